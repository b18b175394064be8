//! One stream: a request and its response.

use std::future::poll_fn;
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::task::{ready, Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::request::Parts;
use http::{Response, StatusCode};

use crate::budget::BudgetShare;
use crate::disk::FileRange;
use crate::exchange::Exchange;
use crate::head::{BodyFraming, Version};
use crate::limits::bytes_min;
use crate::request_body::BodyError;
use crate::response_head::EncodedHead;
use crate::send_buffer::Segment;
use crate::server_state::ServerState;

use super::super::refusal::{Refusal, Stop};
use super::super::request_end::CLIENT_LEFT;
use super::super::request_task::{Arrived, BodyStop, RequestTask, Wire};
use super::super::send::{advance, relieve, SentBytes};
use super::super::timer::{LazyTimer, Timer};
use super::super::window::BodyWindow;
use super::handed::HandedBytes;
use super::{head, Client};

/// Bytes of the heads of a connection's requests under way. A hundred requests with 10 KiB of cookies
/// each, more than browsers make, fit in; one head may be larger (`header_bytes_max`).
const HEADS_BYTES_MAX: usize = 1 << 20;

/// What a stream costs beside its head, body and response (measured: 5.5 KB). It is counted from its
/// beginning, so that the responses of many requests find that less memory is left.
const STREAM_BYTES: usize = 6 * 1024;

/// A request of HTTP/2.
pub(super) struct Http2Stream {
    task: RequestTask<Http2>,
    /// Counts the stream and its head.
    head: BudgetShare,
    key: usize,
    /// Bytes of the request's head.
    head_bytes: usize,
}

impl Http2Stream {
    pub fn new(
        shared: Arc<ServerState>,
        client: Arc<Client>,
        body: RecvStream,
        respond: SendResponse<HandedBytes>,
        waker: Waker,
    ) -> Self {
        client.requests.fetch_add(1, Relaxed);
        let key = shared.registry.insert(waker.clone(), None);
        let context = Arc::clone(&shared.exchanges);
        let (remote, tls) = (Arc::clone(&client.remote), client.tls.clone());
        let budget = Arc::clone(&client.budget);
        // A stream has no socket that the application could take.
        let exchange = Exchange::new(context, -1, client.listener, remote, tls, &budget);
        let (head, remote) = (BudgetShare::new(&budget), Arc::clone(&client.remote));
        let wire = Http2::new(client, body, respond);
        let task = RequestTask::new(shared, waker, remote, budget, Arc::new(exchange), wire);
        Self { task, head, key, head_bytes: 0 }
    }

    pub async fn serve(mut self, parts: Parts) {
        let Err(stop) = self.run(parts).await else {
            return self.task.wire.client.waste.answered();
        };
        match stop {
            Stop::Refused(refusal) => self.refuse(&refusal),
            // Clients make the request again by themselves (RFC 9113 section 8.7).
            Stop::NoRoom => {
                self.task.shared.exchanges.budget.count_refused();
                self.task.wire.reset(Reason::REFUSED_STREAM);
            }
            Stop::NeedsHttp1 => self.require_http1(),
            Stop::Gone => {
                self.task.wire.client.waste.gave_up();
                self.finish();
            }
            Stop::Cut | Stop::Hijacked | Stop::Linger | Stop::Http2 => {
                self.task.wire.reset(Reason::INTERNAL_ERROR);
                self.finish();
            }
        }
    }

    async fn run(&mut self, parts: Parts) -> Result<(), Stop> {
        let shared = Arc::clone(&self.task.shared);
        let read = head::read(&parts, &shared.config.limits, &mut self.task.exchange_mut().head);
        if let Err(error) = read {
            let (remote, head) = (&self.task.remote, self.task.exchange.head());
            shared.report_long_head(&remote.address, &head.bytes, error);
            return Err(Refusal::of_head(error).into());
        }
        drop(parts);
        self.hold_head()?;
        self.task.read_body().await?;
        self.task.dispatch(Instant::now(), true);
        self.task.send_response().await?;
        self.finish();
        Ok(())
    }

    /// Counts the head among those of the connection.
    fn hold_head(&mut self) -> Result<(), Stop> {
        self.head_bytes = self.task.exchange.head().bytes.len();
        self.head.set(self.head_bytes + STREAM_BYTES, 0);
        let others = self.task.wire.client.head_bytes.fetch_add(self.head_bytes, Relaxed);
        let is_room = others == 0 || others + self.head_bytes <= HEADS_BYTES_MAX;
        is_room.then_some(()).ok_or(Stop::NoRoom)
    }

    /// Counts and logs the response, or what was sent of it.
    fn finish(&mut self) {
        if !self.task.is_handed_over {
            return;
        }
        self.task.end_upload();
        let response = self.task.exchange.response().lock();
        let (status, head_bytes) = (response.status(), response.head_bytes() as u64);
        drop(response);
        let status = if status == 0 { CLIENT_LEFT } else { status };
        let sent = self.task.sent.saturating_sub(head_bytes);
        self.task.end(Instant::now()).answered(status, sent);
    }

    /// Sends the engine's own response.
    fn refuse(&mut self, refusal: &Refusal) {
        let is_head = refusal.has_head && self.task.exchange.head().is_head();
        self.task.end(Instant::now()).refused(refusal);
        self.task.wire.send_whole(refusal.response.encode(Version::Http2, is_head));
        self.task.end(Instant::now()).log_refused(refusal);
    }

    /// HTTP/2 has no status 101 (RFC 9113 section 8.6). Clients that speak both versions make the
    /// request again over HTTP/1.1.
    fn require_http1(&mut self) {
        self.task.wire.reset(Reason::HTTP_1_1_REQUIRED);
        let shared = &self.task.shared;
        if !shared.refused_upgrade.swap(true, Relaxed) {
            shared.feed.warn(&format!(
                "{} was answered 101, but came over HTTP/2, which has no upgrades (RFC 9113 section 8.6): the client \
                 is asked to make the request over HTTP/1.1. Further ones get no line",
                self.task.exchange.describe()
            ));
        }
    }
}

impl Drop for Http2Stream {
    fn drop(&mut self) {
        self.task.end_upload();
        self.task.exchange.note_client_left();
        self.task.exchange.close();
        self.task.shared.registry.remove(self.key);
        let client = &self.task.wire.client;
        client.head_bytes.fetch_sub(self.head_bytes, Relaxed);
        client.requests.fetch_sub(1, Relaxed);
        client.connection.wake_by_ref();
    }
}

/// Bytes of one DATA frame. Every client takes so many (RFC 9113 section 4.2), and with the nine bytes
/// of its head (section 4.1) the frame fills one TLS record (2^14 bytes, RFC 8446 section 5.1).
pub(super) const DATA_BYTES_MAX: usize = (1 << 14) - 9;

/// How a body is read and a response is written.
pub(super) struct Http2 {
    client: Arc<Client>,
    /// The request's body; none once nothing more of it is read.
    from: Option<RecvStream>,
    /// Bytes of it for which there was no room.
    held: Bytes,
    respond: SendResponse<HandedBytes>,
    /// Takes the response's body, once its head is sent.
    body: Option<SendStream<HandedBytes>>,
    /// The end of the body is sent.
    is_at_end: bool,
    timer: LazyTimer,
    /// Bytes that the client has taken since it has let the response wait.
    taken: Option<u64>,
}

impl Http2 {
    fn new(client: Arc<Client>, body: RecvStream, respond: SendResponse<HandedBytes>) -> Self {
        Self {
            client,
            from: Some(body),
            held: Bytes::new(),
            respond,
            body: None,
            is_at_end: false,
            timer: LazyTimer::default(),
            taken: None,
        }
    }

    /// Sends a short response. It fails only on a stream that has ended.
    fn send_whole(&mut self, head: EncodedHead) {
        let Some(value) = head.value else { return };
        if let Ok(mut body) = self.respond.send_response(*value, false) {
            let _ = body.send_data(self.client.handed.hand_over(head.bytes.into()), true);
        }
    }

    fn reset(&mut self, reason: Reason) {
        match &mut self.body {
            Some(body) => body.send_reset(reason),
            None => self.respond.send_reset(reason),
        }
    }
}

impl Wire for Http2 {
    const GATHER: Option<Duration> = None;

    fn timer(&mut self) -> &mut impl Timer {
        &mut self.timer
    }

    fn has_body(&mut self, _: BodyFraming) -> bool {
        self.from = self.from.take().filter(|from| !from.is_end_stream());
        self.from.is_some()
    }

    fn window(&self, shared: &Arc<ServerState>) -> Option<BodyWindow> {
        Some(BodyWindow::new(Arc::clone(shared), Arc::clone(&self.client.window)))
    }

    fn ask_for_body(&mut self, _: &Arc<Exchange>) {
        let mut response = Response::new(());
        *response.status_mut() = StatusCode::CONTINUE;
        // It fails only on a stream that has ended, which the next read tells.
        let _ = self.respond.send_informational(response);
    }

    fn poll_body(
        &mut self,
        cx: &mut Context,
        _: &ServerState,
        room: usize,
        mut feed: impl FnMut(&[u8]) -> Result<(usize, bool), BodyError>,
    ) -> Poll<Result<Arrived, BodyStop>> {
        let Some(from) = &mut self.from else { return Poll::Ready(Err(BodyStop::Gone)) };
        let mut len = 0;
        if self.held.is_empty() {
            match ready!(from.poll_data(cx)) {
                Some(Ok(bytes)) => {
                    len = bytes.len();
                    self.client.waste.took(len);
                    self.held = bytes;
                }
                Some(Err(_)) => return Poll::Ready(Err(BodyStop::Gone)),
                None => return Poll::Ready(Ok(Arrived { len, is_whole: true })),
            }
        }
        let (taken, _) = feed(&self.held[..self.held.len().min(room)])?;
        self.held.advance(taken);
        // The client may send as much again. It fails only on a stream that has ended.
        let _ = from.flow_control().release_capacity(taken);
        let is_whole = self.held.is_empty() && from.is_end_stream();
        Poll::Ready(Ok(Arrived { len, is_whole }))
    }

    fn end_body(&mut self) {
        (self.from, self.held) = (None, Bytes::new());
    }

    /// The client has given up the stream, or the connection has ended.
    fn poll_gone(&mut self, cx: &mut Context, _: bool) -> bool {
        match &mut self.body {
            Some(body) => body.poll_reset(cx).is_ready(),
            None => self.respond.poll_reset(cx).is_ready(),
        }
    }

    fn note_sent(&mut self, sent: SentBytes) {
        self.client.waste.sent(sent.total());
    }

    async fn send(task: &mut RequestTask<Self>, last: bool) -> Result<SentBytes, Stop> {
        let mut sent = SentBytes::default();
        if task.wire.body.is_none() && !send_heads(task, &mut sent)? {
            return Ok(sent);
        }
        while let Some(left) = left_of_first(task) {
            let room = capacity(task, left).await?;
            send_some(task, room, last, &mut sent).await?;
            task.report_sent(&mut sent);
        }
        task.wire.taken = None;
        Ok(sent)
    }

    /// Ends a body of which everything is sent. One that was cut off ends with an error.
    fn end_response(task: &mut RequestTask<Self>, mut sent: SentBytes) -> Result<(), Stop> {
        task.report_sent(&mut sent);
        if is_cut(task) {
            return Err(Stop::Cut);
        }
        let wire = &mut task.wire;
        if !std::mem::replace(&mut wire.is_at_end, true) {
            let body = wire.body.as_mut().ok_or(Stop::Cut)?;
            body.send_data(wire.client.handed.hand_over(Bytes::new()), true)
                .map_err(|_| Stop::Gone)?;
        }
        Ok(())
    }

    fn end_fed(task: &mut RequestTask<Self>, fed: Result<(), Stop>) -> Result<(), Stop> {
        fed.and_then(|()| Self::end_response(task, SentBytes::default()))
    }
}

/// Sends the heads at the front, of which all but the last are interim ones. True when the
/// final head is sent and its body follows.
fn send_heads(task: &mut RequestTask<Http2>, sent: &mut SentBytes) -> Result<bool, Stop> {
    while let Some(front) = task.sending.pop_front() {
        let Segment::Head { head, len } = front else { return Err(Stop::Cut) };
        sent.memory += len;
        match head.status() {
            StatusCode::SWITCHING_PROTOCOLS => return Err(Stop::NeedsHttp1),
            status if status.is_informational() => {
                task.wire.respond.send_informational(*head).map_err(|_| Stop::Gone)?;
            }
            _ => {
                task.sent += len as u64;
                // A DATA frame ends the stream, so that `SentFrames` can tell the crate's own responses.
                let body = task.wire.respond.send_response(*head, false);
                task.wire.body = Some(body.map_err(|_| Stop::Gone)?);
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Bytes left of the first segment that has any.
fn left_of_first(task: &mut RequestTask<Http2>) -> Option<u64> {
    loop {
        let front = task.sending.front_mut()?;
        let left = match front.file_range() {
            Some(range) => range.left,
            None => front.unsent_memory().map_or(0, |bytes| bytes.len() as u64),
        };
        if left > 0 {
            return Some(left);
        }
        task.sending.pop_front();
    }
}

/// Waits until the client takes some of `wanted` bytes; returns how many.
async fn capacity(task: &mut RequestTask<Http2>, wanted: u64) -> Result<usize, Stop> {
    let wanted = wanted.min(super::SEND_BYTES_MAX as u64) as usize;
    let body = task.wire.body.as_mut().ok_or(Stop::Cut)?;
    body.reserve_capacity(wanted);
    let room = body.capacity();
    if room > 0 && task.wire.client.handed.has_room() {
        return Ok(room.min(wanted));
    }
    let relief = task.exchange.response().lock().send_buffer.begin_relief(&mut task.sending);
    if let Some(write) = relief.map_err(|_| Stop::Cut)? {
        relieve(&task.exchange, &mut task.sending, write).await;
    }
    poll_fn(|cx| poll_capacity(task, cx)).await.map(|room| room.min(wanted))
}

fn poll_capacity(task: &mut RequestTask<Http2>, cx: &mut Context) -> Poll<Result<usize, Stop>> {
    loop {
        // The application may wait for the body before it goes on.
        task.poll_upload(cx);
        let Some(body) = &mut task.wire.body else { return Poll::Ready(Err(Stop::Cut)) };
        let room = match body.capacity() {
            0 => body.poll_capacity(cx),
            room => Poll::Ready(Some(Ok(room))),
        };
        match room {
            Poll::Ready(Some(Ok(0))) => {}
            Poll::Ready(Some(Ok(room))) if task.wire.client.handed.poll_room(cx).is_ready() => {
                return Poll::Ready(Ok(room));
            }
            // The socket is full, which has a clock of its own.
            Poll::Ready(Some(Ok(_))) if !task.wire.poll_gone(cx, false) => {
                task.wire.taken = None;
                return Poll::Pending;
            }
            Poll::Ready(_) => return Poll::Ready(Err(Stop::Gone)),
            Poll::Pending if is_too_slow(task, cx) => return Poll::Ready(Err(Stop::Cut)),
            Poll::Pending => return Poll::Pending,
        }
    }
}

/// Whether the client takes too little while the response waits for its windows; if not, the
/// task is woken when that may be. All its streams together have the rate of one connection.
fn is_too_slow(task: &mut RequestTask<Http2>, cx: &mut Context) -> bool {
    let time = task.shared.config.timeouts.write;
    let rate = task.shared.exchanges.budget.limits().reply_rate_min;
    loop {
        let taken = match task.wire.taken {
            Some(taken) => taken,
            None => {
                task.wire.timer.set_deadline(Some(Instant::now() + time));
                *task.wire.taken.insert(0)
            }
        };
        if !task.wire.timer.poll_expired(cx) {
            return false;
        }
        let streams = task.wire.client.requests.load(Relaxed).max(1) as u64;
        if taken < (bytes_min(rate, time) / streams).max(1) {
            return true;
        }
        task.wire.taken = None;
    }
}

/// Hands at most `room` bytes of the first segment to the connection.
async fn send_some(
    task: &mut RequestTask<Http2>,
    room: usize,
    last: bool,
    sent: &mut SentBytes,
) -> Result<(), Stop> {
    let room = room.min(DATA_BYTES_MAX);
    let Some(front) = task.sending.front_mut() else { return Ok(()) };
    let bytes = if let Some(range) = front.file_range() {
        read(range, room).await.map_err(|_| Stop::Cut)?
    } else {
        let unsent = front.unsent_memory().unwrap_or_default();
        Bytes::copy_from_slice(&unsent[..unsent.len().min(room)])
    };
    sent.add(advance(&mut task.sending, bytes.len(), &mut task.recycled));
    task.sent += bytes.len() as u64;
    task.wire.taken = task.wire.taken.map(|taken| taken + bytes.len() as u64);
    let is_end = last && left_of_first(task).is_none() && !is_cut(task);
    task.wire.is_at_end = is_end;
    let handed = &task.wire.client.handed;
    let body = task.wire.body.as_mut().ok_or(Stop::Cut)?;
    body.send_data(handed.hand_over(bytes), is_end).map_err(|_| Stop::Gone)
}

/// Whether the application's response was cut off.
fn is_cut(task: &RequestTask<Http2>) -> bool {
    task.exchange.response().lock().is_cut()
}

/// Reads from the front of a range, first into memory if it is not there.
async fn read(range: &mut FileRange, room: usize) -> io::Result<Bytes> {
    let mut bytes = vec![0; room.min(usize::try_from(range.left).unwrap_or(room))];
    loop {
        if let Some(len) = range.read(&mut bytes)? {
            bytes.truncate(len);
            return Ok(bytes.into());
        }
        range.warm_up().await?;
    }
}
