//! One request and its response: what crosses between the IO thread and Ruby.

mod context;

use std::borrow::Cow;
use std::net::IpAddr;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};
use std::{fmt, io};

use chaton_core::work::{Role, Work};
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::body_part::BodyPart;
use crate::budget::ConnectionBudget;
use crate::compression::Encoder;
use crate::content_coding::{AcceptedCodings, ContentCoding};
use crate::error_response::ErrorResponse;
use crate::feeder::Feeder;
use crate::forwarded::{Forwarded, Peer, Trust};
use crate::head::{RequestHead, Version};
use crate::pending_response::{Capacity, ClientGone, PendingResponse, ResponsePhase};
use crate::request_body::RequestBody;
use crate::request_start;
use crate::response_head::{
    BodySize, CompressionOffer, EncodedHead, ResponseContext, ResponseHead,
};
use crate::send_buffer::SpoolWrite;
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
    /// Set while the body is read.
    head_at: Option<Instant>,
    body_wait: Option<Duration>,
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
    /// It is the server's own, and not counted.
    left_out: AtomicBool,
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
            head_at: None,
            body_wait: None,
            taken_after_ns: AtomicU64::new(0),
            listener,
            peer,
            tls,
            may_keep_alive: false,
            context,
            waker: None,
            client_left: AtomicBool::new(false),
            aborted: AtomicBool::new(false),
            left_out: AtomicBool::new(false),
            encoder: Mutex::new(None),
            response: Mutex::new(PendingResponse::new(socket, budget)),
            capacity: Condvar::new(),
        }
    }

    /// Another one of the same connection.
    pub(crate) fn successor(&self, budget: &Arc<ConnectionBudget>) -> Self {
        let (context, peer) = (Arc::clone(&self.context), Arc::clone(&self.peer));
        let socket = self.response.lock().socket();
        Self::new(context, socket, self.listener, peer, self.tls.clone(), budget)
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

    /// How long its body took to arrive, after its head; `None`: it has none, or the application reads it by itself.
    pub fn body_wait(&self) -> Option<Duration> {
        self.body_wait
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

    /// What the head of the response depends on.
    pub fn response_context(&self, compression: Option<CompressionOffer>) -> ResponseContext {
        ResponseContext {
            version: self.head.version,
            is_head: self.head.is_head(),
            keep_alive: self.keep_alive(),
            compression,
            timing: self.timing(),
        }
    }

    /// Gives the whole response: its head, with what of the body is in its buffer, and after that `tail`.
    pub fn complete(self: Arc<Self>, head: EncodedHead, tail: Option<BodyPart>) {
        if self.response.lock().complete(head, tail) {
            self.wake();
        }
    }

    /// Sends an interim response before the final head.
    pub fn interim(self: &Arc<Self>, head: EncodedHead) {
        // RFC 9110 15.2: HTTP/1.0 has no interim responses.
        if matches!(self.head.version, Version::Http10) {
            return;
        }
        if self.response.lock().interim(head) {
            Arc::clone(self).wake();
        }
    }

    /// Gives up without an outcome: 500, and the connection is closed. A
    /// streamed response is cut off.
    pub fn abandon(self: Arc<Self>) {
        let error = ErrorResponse::new(500, "The application gave no answer.");
        let head = error.encode(self.head.version, self.head.is_head());
        let wake = {
            let mut response = self.response.lock();
            response.complete(head, None) || response.end(false)
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
        self.refuse(503, "The server is busy; try again.");
    }

    /// Refuses the request with this status, a text for people and `Retry-After`.
    pub fn refuse(self: Arc<Self>, status: u16, why: &'static str) {
        let retry_after_s = self.context.config.retry_after_s;
        let error = ErrorResponse::new(status, why).retry_after(retry_after_s);
        let head = error.encode(self.head.version, self.head.is_head());
        self.complete(head, None);
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

    /// Leaves the request out of counters and lists of running work: the page that shows them asks every two
    /// seconds.
    pub fn leave_out(&self) {
        if !self.left_out.swap(true, Relaxed) {
            self.context.counters.left_out.fetch_add(1, Relaxed);
        }
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

    fn wake(self: Arc<Self>) {
        let context = Arc::clone(&self.context);
        context.push_ready(self);
    }

    // The connection's side.

    /// Its body is read from now on.
    pub(crate) fn begin_body(&mut self) {
        self.head_at = Some(Instant::now());
    }

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
        self.body_wait = self.head_at.take().map(|at| received_at.saturating_duration_since(at));
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

    /// Whether it is not counted.
    pub(crate) fn was_left_out(&self) -> bool {
        self.left_out.load(Relaxed)
    }

    /// Prepares for the next request of the connection.
    pub(crate) fn reset(&mut self) {
        *self.left_out.get_mut() = false;
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

    fn is_left_out(&self) -> bool {
        self.was_left_out()
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

impl Exchange {
    /// The peer's address without its port; `127.0.0.1` for a Unix socket.
    pub fn peer_addr(&self) -> &str {
        &self.peer.address
    }

    /// The client's address: the peer's, or what a trusted proxy says.
    pub fn remote_addr(&self) -> Cow<'_, str> {
        let client = self.forwarded().client();
        client.map_or(Cow::Borrowed(&*self.peer.address), |client| client.to_string().into())
    }

    /// The same, parsed; the peer's of a Unix socket is a loopback address.
    pub fn client_ip(&self) -> Option<IpAddr> {
        self.forwarded().client().or_else(|| self.peer.address.parse().ok())
    }

    /// The headers in which proxies speak for the client.
    pub fn forwarded(&self) -> Forwarded<'_> {
        self.context.config.forwarded.read(self.peer.trust, &self.head)
    }

    /// Whether the settings name proxies.
    pub fn may_have_proxy(&self) -> bool {
        !self.context.config.forwarded.proxies.is_empty()
    }

    /// Whether what the request says of its trace and its beginning counts.
    pub fn is_believed(&self) -> bool {
        self.peer.trust != Trust::Hidden
    }

    /// Whether the client spoke HTTPS, here, with a balancer of connections or with a trusted proxy: the scheme of the
    /// request.
    pub fn is_encrypted(&self) -> bool {
        self.tls.is_some() || self.peer.spoke_tls || self.forwarded().is_https()
    }

    /// As [`Self::is_encrypted`], or by a header that is the application's matter.
    pub fn is_https(&self) -> bool {
        self.is_encrypted() || self.forwarded().claims_https()
    }

    /// How long the request was on its way before it arrived here, `took` ago.
    pub(crate) fn waited_before(&self, took: Duration) -> Duration {
        match self.is_believed() {
            true => request_start::waited_before(&self.head, took),
            false => Duration::ZERO,
        }
    }

    /// Tells the log once that a header is kept from the application, if that may be a surprise.
    pub fn warn_hidden(&self, name: &[u8]) {
        let is_expected =
            self.peer.trust == Trust::Proxy || self.context.config.forwarded.hides_all();
        if is_expected || self.context.has_warned_hidden.swap(true, Relaxed) {
            return;
        }
        chaton_core::log::warn(&format!(
            "did not pass the header {} of {} on to the application, because anybody can write it. If the peer is a \
             proxy of yours, name it in web {{ trusted_proxies \"…\" }}; if there is none, say trusted_proxies :none. \
             Further headers are left out without this line",
            String::from_utf8_lossy(name),
            self.peer.address
        ));
    }
}

impl Exchange {
    /// Notes the status of the head that the application is about to send on the connection that it takes, for the
    /// access log and the metrics.
    pub fn announce(&self, status: u16) {
        self.response.lock().announce(status);
    }

    /// Takes the connection away from the engine: a duplicate of its socket,
    /// non-blocking as accepted, and the bytes already read past the request.
    /// Of an encrypted connection it is one end of a pair of sockets; the engine
    /// encrypts between the other end and the client.
    ///
    /// # Errors
    /// When a response exists already, the client is gone, the request's body is
    /// streamed, or the operating system has no descriptor left.
    pub fn hijack(&self) -> io::Result<(OwnedFd, Vec<u8>)> {
        if matches!(self.body, RequestBody::Streamed(_)) {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "the connection can't be hijacked: the request's body is streamed",
            ));
        }
        if self.head.version == Version::Http2 {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "the connection can't be hijacked: it carries other requests, too (HTTP/2)",
            ));
        }
        let mut response = self.response.lock();
        let Some((socket, mut unread)) = response.hijack() else {
            return Err(io::Error::new(
                io::ErrorKind::NotConnected,
                "the connection can't be hijacked: it is closed or was answered already",
            ));
        };
        let given = if self.tls.is_some() {
            UnixStream::pair().and_then(|(ours, theirs)| {
                theirs.set_nonblocking(true)?;
                response.set_relayed(ours.into());
                Ok(theirs.into())
            })
        } else {
            // SAFETY: the connection keeps its socket open while the phase is
            // `Waiting`, which held until this lock was taken.
            unsafe { BorrowedFd::borrow_raw(socket) }.try_clone_to_owned()
        };
        let socket = match given {
            Ok(socket) => socket,
            Err(error) => {
                response.undo_hijack(unread);
                return Err(error);
            }
        };
        drop(response);
        self.wake_connection();
        Ok((socket, unread.take()))
    }
}

/// Proxies must neither store, compress nor collect events (`Chaton::EventStream::HEADERS`).
const EVENT_STREAM_HEADERS: [(&[u8], &[u8]); 3] = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
];

/// As long as a disk may take for one response.
const RELIEF_WAIT: Duration = Duration::from_secs(1);

impl Exchange {
    /// Begins a streamed response with its head.
    pub fn begin(self: &Arc<Self>, head: EncodedHead) {
        if self.response.lock().begin(head) {
            Arc::clone(self).wake();
        }
    }

    /// Begins a response whose body is fed: it needs no thread, and its connection is closed at its end.
    pub fn begin_fed(self: &Arc<Self>, head: EncodedHead, feeder: Box<dyn Feeder>) {
        let (wake, unused) = self.response.lock().begin_fed(head, feeder);
        if wake {
            Arc::clone(self).wake();
        }
        drop(unused);
    }

    /// Answers with the head of an event stream, for a client that comes back to it; see [`Exchange::begin_fed`].
    pub fn begin_events(self: &Arc<Self>, feeder: Box<dyn Feeder>) {
        let context = ResponseContext {
            is_head: false,
            keep_alive: false,
            timing: None,
            ..self.response_context(None)
        };
        let head = ResponseHead::new(self.take_buffer(), 200, &context).and_then(|mut head| {
            for (name, value) in EVENT_STREAM_HEADERS {
                head.header(name, value)?;
            }
            head.finish(BodySize::Unknown)
        });
        // These headers are good.
        if let Ok(head) = head {
            self.begin_fed(head, feeder);
        }
    }

    /// Adds bytes to a streamed body. They are taken even without capacity, into memory; after
    /// [`Capacity::Full`] call [`Exchange::wait_for_capacity`] before the next write.
    ///
    /// # Errors
    /// [`ClientGone`] when nobody will read them.
    pub fn write(self: &Arc<Self>, bytes: &[u8]) -> Result<Capacity, ClientGone> {
        let mut encoder = self.encoder();
        match encoder.as_mut().and_then(|encoder| encoder.as_mut()) {
            Some(encoder) => self.write_plain(&encoder.part(bytes)),
            None => self.write_plain(bytes),
        }
    }

    fn write_plain(self: &Arc<Self>, bytes: &[u8]) -> Result<Capacity, ClientGone> {
        let written = self.response.lock().write(bytes, &self.context.config.limits);
        self.after_write(written)
    }

    /// As [`Exchange::write`], for a [`BodyPart`].
    ///
    /// # Errors
    /// [`ClientGone`] when nobody will read it.
    pub fn write_part(self: &Arc<Self>, part: BodyPart) -> Result<Capacity, ClientGone> {
        let mut encoder = self.encoder();
        if let Some(encoder) = encoder.as_mut().and_then(|encoder| encoder.as_mut()) {
            let encoded = match &part {
                BodyPart::Bytes(bytes) => encoder.part(bytes),
                BodyPart::Pinned(memory) => encoder.part((**memory).as_ref()),
                // Its head was written for the bytes of the file.
                BodyPart::File { .. } => return Err(ClientGone),
            };
            return self.write_plain(&encoded);
        }
        let written = self.response.lock().write_part(part, &self.context.config.limits);
        self.after_write(written)
    }

    fn after_write(
        self: &Arc<Self>,
        written: Result<(Capacity, bool), ClientGone>,
    ) -> Result<Capacity, ClientGone> {
        let (capacity, wake) = written?;
        if wake {
            Arc::clone(self).wake();
        }
        Ok(capacity)
    }

    /// Moves output from memory to the temporary file, or blocks the calling thread until there
    /// is capacity again, `timeout` has passed or [`Exchange::interrupt`] was called. The disk is
    /// only written here, without the lock: call it without any lock that others wait for.
    ///
    /// # Errors
    /// [`ClientGone`] when nobody will read more.
    pub fn wait_for_capacity(self: &Arc<Self>, timeout: Duration) -> Result<Capacity, ClientGone> {
        let limits = &self.context.config.limits;
        let until = Instant::now() + timeout;
        let mut response = self.response.lock();
        loop {
            if let Some(mut write) = response.send_buffer.begin_spool(limits) {
                MutexGuard::unlocked(&mut response, || write.run());
                self.end_spool(&mut response, write);
                continue;
            }
            match response.phase() {
                ResponsePhase::Closed | ResponsePhase::TimedOut => return Err(ClientGone),
                // Another thread ended the response: later writes are dropped.
                ResponsePhase::Ended => return Ok(Capacity::Available),
                _ => {}
            }
            let capacity = response.capacity(limits);
            if capacity == Capacity::Available || !response.start_wait() {
                return Ok(capacity);
            }
            let timed_out = self.capacity.wait_until(&mut response, until).timed_out();
            response.end_wait();
            if timed_out {
                return Ok(response.capacity(limits));
            }
        }
    }

    /// Whether whole responses wait as [`Exchange::wait_for_relief`] says.
    pub fn is_short_of_memory(&self) -> bool {
        self.context.budget.is_short()
    }

    /// Waits until the client or a file has taken this whole response, as long as the server has no
    /// memory left for what clients do not take: else threads would produce faster than the disk
    /// writes. It waits a second at most.
    pub fn wait_for_relief(&self) {
        let until = Instant::now() + RELIEF_WAIT;
        let mut response = self.response.lock();
        while response.send_buffer.needs_relief() && response.start_wait() {
            let timed_out = self.capacity.wait_until(&mut response, until).timed_out();
            response.end_wait();
            if timed_out {
                return;
            }
        }
    }

    fn end_spool(self: &Arc<Self>, response: &mut MutexGuard<PendingResponse>, write: SpoolWrite) {
        let (spooled, wake) = response.end_spool(write);
        MutexGuard::unlocked(response, || {
            drop(spooled);
            // Another producer may wait for the end of this write.
            self.notify_capacity();
            if wake {
                Arc::clone(self).wake();
            }
        });
    }

    /// Ends a [`Exchange::wait_for_capacity`] of another thread early, or the next one.
    pub fn interrupt(&self) {
        self.response.lock().interrupt();
        self.capacity.notify_all();
    }

    /// Ends a streamed body. With `complete` false its producer failed midway:
    /// the connection is closed so that the client notices.
    pub fn end(self: Arc<Self>, complete: bool) {
        let encoder = self.encoder().and_then(|mut encoder| encoder.take());
        if let Some(encoder) = encoder.filter(|_| complete) {
            // Nobody reads the rest if the client is gone.
            let _ = self.write_plain(&encoder.finish(b""));
        }
        let wake = self.response.lock().end(complete);
        // Another thread may be waiting for capacity that is no longer needed.
        self.notify_capacity();
        if wake {
            self.wake();
        }
    }

    /// How the response may be compressed; `None` if compression is off.
    pub fn compression(&self) -> Option<CompressionOffer> {
        let encoders = self.context.encoders.as_ref()?;
        let accepted = AcceptedCodings::of(&self.head);
        let coding = accepted.best(|coding| coding == ContentCoding::Gzip);
        Some(CompressionOffer { coding, bytes_min: encoders.settings().bytes_min })
    }

    /// Encodes a whole body. It takes a millisecond for each 100 KB or so: call it without a lock
    /// that others wait for.
    pub fn encode(&self, coding: ContentCoding, bytes: &[u8]) -> Vec<u8> {
        match &self.context.encoders {
            Some(encoders) => encoders.encoder(coding).finish(bytes),
            None => bytes.to_vec(),
        }
    }

    /// Encodes the body of a streamed response from now on; called before [`Exchange::begin`].
    pub fn encode_stream(&self, coding: ContentCoding) {
        if let (Some(mut encoder), Some(encoders)) = (self.encoder(), &self.context.encoders) {
            *encoder = Some(Box::new(encoders.encoder(coding)));
        }
    }

    /// Whether what is written to this response is encoded.
    pub fn is_encoding(&self) -> bool {
        self.encoder().is_some_and(|encoder| encoder.is_some())
    }

    /// The encoder's lock; `None` if compression is off.
    fn encoder(&self) -> Option<MutexGuard<'_, Option<Box<Encoder>>>> {
        self.context.encoders.as_ref().map(|_| self.encoder.lock())
    }
}
