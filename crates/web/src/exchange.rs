//! One request and its response: what crosses between the IO thread and Ruby.

mod client;
mod context;
mod hijack;
mod stream;

use std::fmt;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use chaton_core::work::{Role, Work};
use parking_lot::{Condvar, Mutex};

use crate::access_log::AccessLog;
use crate::body_part::BodyPart;
use crate::budget::ConnectionBudget;
use crate::compression::Encoder;
use crate::error_response::ErrorResponse;
use crate::forwarded::Peer;
use crate::head::{RequestHead, Version};
use crate::pending_response::{PendingResponse, ResponsePhase};
use crate::request_body::RequestBody;
use crate::response_head::head_len;
use crate::server_timing::ServerTiming;
use crate::streamed_body::CONNECTION_ENDED;
use crate::tls::TlsPeer;

pub(crate) use context::ExchangeContext;

/// Longest text [`Exchange::describe`] gives.
const DESCRIPTION_BYTES_MAX: usize = 200;
/// As much of a client's request id as Rails takes.
const REQUEST_ID_BYTES_MAX: usize = 255;

/// One request and the place for its response.
///
/// It is shared as `Arc<Exchange>`; the connection takes it back for its next request once nobody
/// else holds it, so drop it soon after the response ended. Only the first outcome counts:
/// [`complete`](Exchange::complete), [`begin`](Exchange::begin) … [`end`](Exchange::end),
/// [`hijack`](Exchange::hijack), [`shed`](Exchange::shed) or [`abandon`](Exchange::abandon); later
/// ones do nothing.
pub struct Exchange {
    id: u64,
    pub(crate) head: RequestHead,
    pub(crate) body: RequestBody,
    /// Capacity for the next body kept in memory.
    pub(crate) body_spare: Vec<u8>,
    received_at: Instant,
    taken_after_ns: AtomicU64,
    listener: usize,
    peer: Arc<Peer>,
    tls: Option<Arc<TlsPeer>>,
    /// What the client asked for and the request count allows.
    may_keep_alive: bool,
    context: Arc<ExchangeContext>,
    waker: Option<Waker>,
    /// The client has ended its side of the connection.
    client_left: AtomicBool,
    /// It was not run, because its client had left.
    aborted: AtomicBool,
    /// Encodes a streamed body. It is locked before the response.
    encoder: Mutex<Option<Box<Encoder>>>,
    response: Mutex<PendingResponse>,
    capacity: Condvar,
}

impl Exchange {
    /// An exchange of the connection on `socket`, ready to receive a request.
    pub(crate) fn new(
        context: Arc<ExchangeContext>,
        socket: RawFd,
        listener: usize,
        peer: Arc<Peer>,
        tls: Option<Arc<TlsPeer>>,
        budget: &Arc<ConnectionBudget>,
    ) -> Self {
        Self {
            id: 0,
            head: RequestHead::default(),
            body: RequestBody::Empty,
            body_spare: Vec::new(),
            received_at: Instant::now(),
            taken_after_ns: AtomicU64::new(0),
            listener,
            peer,
            tls,
            may_keep_alive: false,
            context,
            waker: None,
            client_left: AtomicBool::new(false),
            aborted: AtomicBool::new(false),
            encoder: Mutex::new(None),
            response: Mutex::new(PendingResponse::new(socket, budget)),
            capacity: Condvar::new(),
        }
    }

    /// Number of the request within this engine, from 1.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The request's head.
    pub fn head(&self) -> &RequestHead {
        &self.head
    }

    /// When the request was complete.
    pub fn received_at(&self) -> Instant {
        self.received_at
    }

    /// How long it has waited for a thread; `None`: none has taken it.
    pub(crate) fn waited(&self) -> Option<Duration> {
        Some(self.taken_after_ns.load(Relaxed)).filter(|ns| *ns != 0).map(Duration::from_nanos)
    }

    /// Its times so far, if the settings say that clients learn them.
    pub fn timing(&self) -> Option<ServerTiming> {
        if !self.context.config.server_timing {
            return None;
        }
        let took = self.received_at.elapsed();
        let waited = self.waited().unwrap_or_default();
        let queue = self.waited_before(took) + waited;
        Some(ServerTiming { queue, app: took.saturating_sub(waited) })
    }

    /// The client, if the connection is encrypted.
    pub fn tls(&self) -> Option<&TlsPeer> {
        self.tls.as_deref()
    }

    /// Which of the configured listeners the connection came from.
    pub fn listener(&self) -> usize {
        self.listener
    }

    /// The request's body.
    pub fn body(&self) -> &RequestBody {
        &self.body
    }

    /// The connection's output buffer, empty but with its capacity.
    pub fn take_buffer(&self) -> Vec<u8> {
        self.response.lock().take_spare()
    }

    /// Whether the connection could serve another request after this one, as
    /// far as the client, the request count and a drain allow. It could not while
    /// a streamed body still arrives.
    pub fn keep_alive(&self) -> bool {
        self.may_keep_alive && !self.context.is_draining() && self.body.is_complete()
    }

    /// Gives the whole response: `out` and, after it, `tail`.
    pub fn complete(self: Arc<Self>, out: Vec<u8>, tail: Option<BodyPart>, keep_alive: bool) {
        let head_bytes = self.logged_head_len(&out);
        if self.response.lock().complete(out, head_bytes, tail, keep_alive) {
            self.wake();
        }
    }

    /// Sends an interim response, `bytes` as they are, before the final head.
    pub fn interim(self: &Arc<Self>, bytes: &[u8]) {
        // RFC 9110 15.2: HTTP/1.0 has no interim responses.
        if matches!(self.head.version, Version::Http10) {
            return;
        }
        if self.response.lock().interim(bytes) {
            Arc::clone(self).wake();
        }
    }

    /// Gives up without an outcome: 500, and the connection is closed. A
    /// streamed response is cut off.
    pub fn abandon(self: Arc<Self>) {
        let error = ErrorResponse::new(500, "The application gave no answer.");
        let out = error.encode(self.head.is_head());
        let head_bytes = self.logged_head_len(&out);
        let wake = {
            let mut response = self.response.lock();
            response.complete(out, head_bytes, None, false) || response.end(false)
        };
        if wake {
            self.wake();
        }
    }

    /// Refuses the request because the server is overloaded: 503 with
    /// `Retry-After`, and the connection is closed.
    pub fn shed(self: Arc<Self>) {
        self.context.count_shed();
        self.refuse_busy();
    }

    fn refuse_busy(self: Arc<Self>) {
        let error = ErrorResponse::new(503, "The server is busy; try again.");
        let out = error.retry_after(self.context.config.retry_after_s).encode(self.head.is_head());
        self.complete(out, None, false);
    }

    /// Whether the application is to run this request; called when a thread has taken it.
    /// A client that left while the request waited would not read its response: it is
    /// answered 503, which one that only ended its own side still reads.
    pub fn may_begin(self: &Arc<Self>) -> bool {
        let waited = self.received_at.elapsed();
        self.taken_after_ns.store((waited.as_nanos() as u64).max(1), Relaxed);
        let abort_after = self.context.config.timeouts.abort_on_close;
        let aborts =
            abort_after.is_some_and(|time| self.client_left.load(Relaxed) && waited >= time);
        if aborts {
            self.context.counters.aborted.fetch_add(1, Relaxed);
            self.aborted.store(true, Relaxed);
            Arc::clone(self).refuse_busy();
        }
        !aborts && !self.is_gone()
    }

    /// Whether nobody waits for this response any more.
    pub fn is_gone(&self) -> bool {
        matches!(self.response.lock().phase(), ResponsePhase::Closed | ResponsePhase::TimedOut)
    }

    /// Whether the engine answered 503 because the request timeout passed.
    pub fn timed_out(&self) -> bool {
        self.response.lock().phase() == ResponsePhase::TimedOut
    }

    /// Method and path, at most 200 bytes.
    pub fn describe(&self) -> String {
        let method = String::from_utf8_lossy(self.head.get(self.head.method));
        let path = self.head.get(self.head.path);
        let path_bytes_max = DESCRIPTION_BYTES_MAX.saturating_sub(method.len() + 1);
        let path = &path[..path.len().min(path_bytes_max)];
        let mut text = format!("{method} {}", String::from_utf8_lossy(path));
        while text.len() > DESCRIPTION_BYTES_MAX {
            text.pop();
        }
        text
    }

    /// What names it in the log: the client's `X-Request-Id`, else the process and its number.
    pub fn request_id(&self) -> String {
        match self.head.header("x-request-id").filter(|id| !id.is_empty()) {
            Some(id) => String::from_utf8_lossy(&id[..id.len().min(REQUEST_ID_BYTES_MAX)]).into(),
            None => own_request_id(self.id),
        }
    }

    /// Length of the head that `out` begins with; 0 without an access log, which alone uses it.
    fn logged_head_len(&self, out: &[u8]) -> usize {
        match self.context.config.access_log {
            AccessLog::Off => 0,
            _ => head_len(out),
        }
    }

    fn wake(self: Arc<Self>) {
        let context = Arc::clone(&self.context);
        context.push_ready(self);
    }

    // The connection's side.

    /// Completes the parsed request before it is handed over.
    pub(crate) fn dispatch(
        &mut self,
        id: u64,
        received_at: Instant,
        may_keep_alive: bool,
        waker: &Waker,
    ) {
        self.id = id;
        self.received_at = received_at;
        *self.taken_after_ns.get_mut() = 0;
        self.may_keep_alive = may_keep_alive;
        if !self.waker.as_ref().is_some_and(|own| own.will_wake(waker)) {
            self.waker = Some(waker.clone());
        }
    }

    /// The client has ended its side of the connection.
    pub(crate) fn note_client_left(&self) {
        self.client_left.store(true, Relaxed);
    }

    /// Whether it was not run, because its client had left.
    pub(crate) fn was_aborted(&self) -> bool {
        self.aborted.load(Relaxed)
    }

    /// Prepares for the next request of the connection.
    pub(crate) fn reset(&mut self) {
        self.head.clear();
        if let RequestBody::Memory(bytes) = std::mem::take(&mut self.body) {
            self.body_spare = bytes;
        }
        *self.encoder.get_mut() = None;
        self.response.get_mut().reset();
    }

    /// Gives back the memory that an idle connection does not need.
    pub(crate) fn shrink(&mut self) {
        self.head = RequestHead::default();
        self.body_spare = Vec::new();
        self.response.get_mut().shrink();
    }

    /// Drops the request's body: nobody reads it and no other request follows.
    pub(crate) fn forget_body(&mut self) {
        self.body = RequestBody::Empty;
        self.body_spare = Vec::new();
    }

    pub(crate) fn response(&self) -> &Mutex<PendingResponse> {
        &self.response
    }

    pub(crate) fn response_mut(&mut self) -> &mut PendingResponse {
        self.response.get_mut()
    }

    /// Wakes the connection's task; cheap on the IO thread.
    pub(crate) fn wake_connection(&self) {
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }

    pub(crate) fn notify_capacity(&self) {
        self.capacity.notify_all();
    }

    /// The connection closes: later output is refused. Returns whether the socket
    /// is still the connection's own.
    pub(crate) fn close(&self) -> bool {
        let mut response = self.response.lock();
        let rest = response.close();
        let own = response.phase() != ResponsePhase::Hijacked;
        drop(response);
        self.capacity.notify_all();
        if let RequestBody::Streamed(body) = &self.body {
            body.end(Err(CONNECTION_ENDED));
        }
        drop(rest);
        own
    }
}

/// The id of a request whose client sent none.
pub fn own_request_id(id: u64) -> String {
    format!("{}-{id}", std::process::id())
}

impl Work for Exchange {
    fn role(&self) -> Role {
        Role::Web
    }

    fn id(&self) -> u64 {
        self.id
    }

    fn describe(&self) -> String {
        Exchange::describe(self)
    }

    fn log_context(&self) -> Vec<(&'static str, String)> {
        vec![("request_id", self.request_id())]
    }

    fn bytes(&self) -> usize {
        // A spooled body lies in a file and takes no room in the queue.
        let body = match &self.body {
            RequestBody::Memory(bytes) => bytes.len(),
            RequestBody::Streamed(body) => body.bytes_max(),
            _ => 0,
        };
        self.head.bytes.len() + body
    }

    fn abandon(self: Arc<Self>) {
        Exchange::abandon(self);
    }

    fn release(self: Arc<Self>) {
        self.shed();
    }
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange").field("id", &self.id).field("what", &self.describe()).finish()
    }
}
