//! One stream: a request and its response.

use std::collections::VecDeque;
use std::future::{poll_fn, Future};
use std::io;
use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{Request, Response, StatusCode};
use tokio::time::{sleep_until, Sleep};

use crate::budget::BudgetShare;
use crate::disk::FileRange;
use crate::error_response::ErrorResponse;
use crate::exchange::Exchange;
use crate::feeder::{FeedStep, Feeder};
use crate::head::{BodyFraming, Version};
use crate::limits::bytes_min;
use crate::pending_response::NextOutput;
use crate::request_body::{BodyError, BodyReader, RequestBody};
use crate::response_head::EncodedHead;
use crate::send_buffer::Segment;
use crate::server_state::ServerState;
use crate::stats::add;
use crate::streamed_body::{BodyCut, StreamedBody, CONNECTION_ENDED};

use super::super::request_end::{RequestEnd, CLIENT_LEFT};
use super::super::send::{advance, relieve, SentBytes};
use super::super::NO_ROOM;
use super::body_clock::BodyClock;
use super::handed::HandedBytes;
use super::window::BodyWindow;
use super::{head, Client};

/// Bytes of the heads of a connection's requests under way. A hundred requests with 10 KiB of cookies
/// each, more than browsers make, fit in; one head may be larger (`header_bytes_max`).
const HEADS_BYTES_MAX: usize = 1 << 20;

/// What a stream costs beside its head, body and response (measured: 5.5 KB). It is counted from its
/// beginning, so that the responses of many requests find that less memory is left.
const STREAM_BYTES: usize = 6 * 1024;

/// How a stream ends early.
pub(super) enum StreamEnd {
    /// The client gave it up, or the connection has ended.
    Gone,
    /// With an error, in the middle of its response.
    Cut,
    /// The application wants to switch protocols.
    NeedsHttp1,
    /// The heads of the connection's requests are too large together.
    NoRoom,
    /// With a response of the engine. `has_head` says that the head of the request was read.
    Refused { response: ErrorResponse, has_head: bool },
}

pub(super) struct Http2Stream {
    pub shared: Arc<ServerState>,
    pub exchange: Arc<Exchange>,
    pub respond: SendResponse<HandedBytes>,
    /// Takes the response's body, once its head is sent.
    pub body: Option<SendStream<HandedBytes>>,
    /// The end of the body is sent.
    pub has_ended: bool,
    pub upload: Option<Http2Upload>,
    /// Output that the connection has not taken yet.
    pub sending: VecDeque<Segment>,
    pub recycled: Vec<u8>,
    pub waker: Waker,
    pub client: Arc<Client>,
    /// Counts the stream and its head.
    head: BudgetShare,
    key: usize,
    since: Instant,
    timer: Option<Pin<Box<Sleep>>>,
    deadline: Option<Instant>,
    /// Bytes that the client has taken since it has let the response wait.
    pub taken: Option<u64>,
    dispatched: bool,
    /// Bytes of the request's head.
    head_bytes: usize,
    /// Bytes of the response that were sent.
    pub sent: u64,
}

impl Http2Stream {
    pub fn new(
        shared: Arc<ServerState>,
        client: Arc<Client>,
        respond: SendResponse<HandedBytes>,
        waker: Waker,
    ) -> Self {
        client.requests.fetch_add(1, Relaxed);
        let key = shared.registry.insert(waker.clone(), None);
        let context = Arc::clone(&shared.exchanges);
        let (remote, tls) = (Arc::clone(&client.remote), client.tls.clone());
        // A stream has no socket that the application could take.
        let exchange =
            Arc::new(Exchange::new(context, -1, client.listener, remote, tls, &client.budget));
        Self {
            shared,
            exchange,
            respond,
            body: None,
            has_ended: false,
            upload: None,
            sending: VecDeque::new(),
            recycled: Vec::new(),
            waker,
            head: BudgetShare::new(&client.budget),
            client,
            key,
            since: Instant::now(),
            timer: None,
            deadline: None,
            taken: None,
            dispatched: false,
            head_bytes: 0,
            sent: 0,
        }
    }

    pub async fn serve(mut self, request: Request<RecvStream>) {
        match self.run(request).await {
            Ok(()) => self.client.waste.answered(),
            Err(StreamEnd::Gone) => {
                self.client.waste.gave_up();
                self.finish();
            }
            Err(StreamEnd::Cut) => {
                self.reset(Reason::INTERNAL_ERROR);
                self.finish();
            }
            Err(StreamEnd::NeedsHttp1) => self.require_http1(),
            // Clients make the request again by themselves (RFC 9113 section 8.7).
            Err(StreamEnd::NoRoom) => {
                self.shared.exchanges.budget.count_refused();
                self.reset(Reason::REFUSED_STREAM);
            }
            Err(StreamEnd::Refused { response, has_head }) => self.refuse(response, has_head),
        }
    }

    async fn run(&mut self, request: Request<RecvStream>) -> Result<(), StreamEnd> {
        let (parts, body) = request.into_parts();
        let shared = Arc::clone(&self.shared);
        let read = head::read(&parts, &shared.config.limits, &mut self.exchange_mut().head);
        if let Err(error) = read {
            let (remote, head) = (&self.client.remote, self.exchange.head());
            shared.report_long_head(&remote.address, &head.bytes, error);
            let response = ErrorResponse::new(error.status(), error.reason());
            return Err(StreamEnd::Refused { response, has_head: false });
        }
        drop(parts);
        self.hold_head()?;
        self.read_body(body).await?;
        self.dispatch();
        self.send_response().await?;
        self.finish();
        Ok(())
    }

    /// Counts the head among those of the connection.
    fn hold_head(&mut self) -> Result<(), StreamEnd> {
        self.head_bytes = self.exchange.head().bytes.len();
        self.head.set(self.head_bytes + STREAM_BYTES, 0);
        let others = self.client.head_bytes.fetch_add(self.head_bytes, Relaxed);
        let is_room = others == 0 || others + self.head_bytes <= HEADS_BYTES_MAX;
        is_room.then_some(()).ok_or(StreamEnd::NoRoom)
    }

    /// The exchange before it is handed over.
    pub fn exchange_mut(&mut self) -> &mut Exchange {
        Arc::get_mut(&mut self.exchange).expect("a request that was not handed over has one owner")
    }

    fn dispatch(&mut self) {
        let id = self.shared.next_id();
        self.since = Instant::now();
        self.dispatched = true;
        self.set_request_deadline();
        let (since, waker) = (self.since, self.waker.clone());
        self.exchange_mut().dispatch(id, since, true, &waker);
        self.shared.submit(Arc::clone(&self.exchange));
    }

    fn set_request_deadline(&mut self) {
        self.deadline = self.shared.config.timeouts.request.map(|time| self.since + time);
    }

    /// Of a request whose body is streamed the time begins anew with each part that arrives.
    pub fn postpone_request_deadline(&mut self) {
        if let Some(time) = self.shared.config.timeouts.request {
            if self.dispatched && self.exchange.response().lock().is_waiting() {
                self.set_timeout(time);
            }
        }
    }

    pub fn set_timeout(&mut self, time: Duration) {
        self.deadline = Some(Instant::now() + time);
    }

    /// Whether the deadline has passed; if not, the task is woken then.
    pub fn poll_expired(&mut self, cx: &mut Context) -> bool {
        let Some(deadline) = self.deadline else { return false };
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(deadline.into())));
        if timer.deadline().into_std() != deadline {
            timer.as_mut().reset(deadline.into());
        }
        timer.as_mut().poll(cx).is_ready()
    }

    /// Asks for the body that the client has announced.
    pub fn send_continue(&mut self) {
        let mut response = Response::new(());
        *response.status_mut() = StatusCode::CONTINUE;
        // It fails only on a stream that has ended, which the next read tells.
        let _ = self.respond.send_informational(response);
    }

    /// Sends the response as it is produced.
    async fn send_response(&mut self) -> Result<(), StreamEnd> {
        loop {
            match poll_fn(|cx| self.poll_response(cx)).await? {
                NextOutput::Send { last } => {
                    let mut sent = self.send(last).await?;
                    self.report_sent(&mut sent);
                    if last {
                        return Ok(());
                    }
                    self.after_part();
                }
                NextOutput::Fed { feeder, .. } => return Box::pin(self.feed_body(feeder)).await,
                _ => return self.end_body(),
            }
        }
    }

    /// Sends what the feeder gives, until its end or that of the client.
    async fn feed_body(&mut self, mut feeder: Box<dyn Feeder>) -> Result<(), StreamEnd> {
        loop {
            let mut out = Vec::new();
            let step = poll_fn(|cx| self.poll_feed(cx, &mut *feeder, &mut out)).await?;
            let FeedStep::Send(shared) = step else { return self.end_body() };
            self.sending.push_back(Segment::Bytes { bytes: out, at: 0 });
            if let Some(bytes) = shared {
                let (end, memory) = (bytes.len(), Box::new(bytes));
                self.sending.push_back(Segment::Pinned { memory, at: 0, end });
            }
            self.send(false).await?;
            self.deadline = None;
            self.recycled = Vec::new();
        }
    }

    fn poll_feed(
        &mut self,
        cx: &mut Context,
        feeder: &mut dyn Feeder,
        out: &mut Vec<u8>,
    ) -> Poll<Result<FeedStep, StreamEnd>> {
        self.shared.exchanges.wake_ready_if_any();
        if self.is_reset(cx) {
            return Poll::Ready(Err(StreamEnd::Gone));
        }
        if self.shared.is_giving_up() {
            return Poll::Ready(Ok(FeedStep::End));
        }
        let drains = self.shared.exchanges.is_draining();
        feeder.poll_step(cx, drains, out).map(Ok)
    }

    /// Sets the deadline for the next output.
    fn after_part(&mut self) {
        if self.exchange.response().lock().is_waiting() {
            // That was an interim response: the final one has not begun.
            self.set_request_deadline();
        } else {
            self.deadline = None;
        }
    }

    /// Ready with [`NextOutput::Send`] or [`NextOutput::Done`].
    fn poll_response(&mut self, cx: &mut Context) -> Poll<Result<NextOutput, StreamEnd>> {
        self.shared.exchanges.wake_ready_if_any();
        self.poll_upload(cx);
        let next = self.exchange.response().lock().next_output(&mut self.sending, false);
        let streaming = match next {
            NextOutput::Pending { streaming } => streaming,
            NextOutput::Hijacked => return Poll::Ready(Err(StreamEnd::Cut)),
            next => return Poll::Ready(Ok(next)),
        };
        if self.is_reset(cx) {
            return Poll::Ready(Err(StreamEnd::Gone));
        }
        let gives_up = self.shared.is_giving_up();
        if streaming || !(gives_up || self.poll_expired(cx)) {
            return Poll::Pending;
        }
        if !self.exchange.response().lock().time_out() {
            // The response has begun meanwhile.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(Err(self.late(gives_up)))
    }

    /// Whether the client has given up the stream, or the connection has ended.
    pub fn is_reset(&mut self, cx: &mut Context) -> bool {
        match &mut self.body {
            Some(body) => body.poll_reset(cx).is_ready(),
            None => self.respond.poll_reset(cx).is_ready(),
        }
    }

    /// Answers 503; the Ruby thread goes on.
    fn late(&self, gives_up: bool) -> StreamEnd {
        let text = match gives_up {
            true => "The server is stopping; try again.",
            false => "The request took too long; try again.",
        };
        if !gives_up {
            add(&self.shared.counters.late, 1);
            self.shared.feed.report_late(self.exchange.id());
        }
        let retry_after_s = self.shared.config.retry_after_s;
        let response = ErrorResponse::new(503, text).retry_after(retry_after_s);
        StreamEnd::Refused { response, has_head: true }
    }

    /// Whether the application's response was cut off.
    pub fn is_cut(&self) -> bool {
        self.exchange.response().lock().is_cut()
    }

    /// Reports sent bytes to the send buffer, so that a waiting producer may go on.
    pub fn report_sent(&mut self, sent: &mut SentBytes) {
        let sent = std::mem::take(sent);
        self.client.waste.sent(sent.memory as u64 + sent.spooled + sent.files);
        let limits = &self.shared.config.limits;
        let mut response = self.exchange.response().lock();
        if response.sent(sent.memory, sent.spooled, &mut self.recycled, limits) {
            drop(response);
            self.exchange.notify_capacity();
        }
    }

    /// Counts and logs the response, or what was sent of it.
    fn finish(&mut self) {
        if !self.dispatched {
            return;
        }
        self.end_upload();
        let response = self.exchange.response().lock();
        let (status, head_bytes) = (response.status(), response.head_bytes() as u64);
        drop(response);
        let status = if status == 0 { CLIENT_LEFT } else { status };
        if !self.exchange.was_left_out() {
            self.shared.counters.responded(status);
        }
        let end = self.end();
        end.count(status, true);
        end.log(status, self.sent.saturating_sub(head_bytes), true);
    }

    fn end(&self) -> RequestEnd<'_> {
        RequestEnd {
            shared: &self.shared,
            exchange: &self.exchange,
            remote: &self.client.remote,
            since: self.since,
            until: Instant::now(),
            was_handed_over: self.dispatched,
        }
    }

    /// Sends the engine's own response.
    fn refuse(&mut self, error: ErrorResponse, has_head: bool) {
        let is_head = has_head && self.exchange.head().is_head();
        add(&self.shared.counters.refused, 1);
        self.shared.counters.responded(error.status);
        self.end().count(error.status, false);
        self.send_whole(error.encode(Version::Http2, is_head));
        self.end().log(error.status, error.text.len() as u64 + 1, has_head);
    }

    /// Sends a short response. It fails only on a stream that has ended.
    fn send_whole(&mut self, head: EncodedHead) {
        let Some(value) = head.value else { return };
        if let Ok(mut body) = self.respond.send_response(*value, false) {
            let _ = body.send_data(self.client.handed.hand_over(head.bytes.into()), true);
        }
    }

    /// HTTP/2 has no status 101 (RFC 9113 section 8.6). Clients that speak both versions make the
    /// request again over HTTP/1.1.
    fn require_http1(&mut self) {
        self.reset(Reason::HTTP_1_1_REQUIRED);
        if !self.shared.refused_upgrade.swap(true, Relaxed) {
            self.shared.feed.warn(&format!(
                "{} was answered 101, but came over HTTP/2, which has no upgrades (RFC 9113 section 8.6): the client \
                 is asked to make the request over HTTP/1.1. Further ones get no line",
                self.exchange.describe()
            ));
        }
    }

    fn reset(&mut self, reason: Reason) {
        match &mut self.body {
            Some(body) => body.send_reset(reason),
            None => self.respond.send_reset(reason),
        }
    }
}

impl Drop for Http2Stream {
    fn drop(&mut self) {
        self.end_upload();
        self.exchange.note_client_left();
        self.exchange.close();
        self.shared.registry.remove(self.key);
        self.client.head_bytes.fetch_sub(self.head_bytes, Relaxed);
        self.client.requests.fetch_sub(1, Relaxed);
        self.client.connection.wake_by_ref();
    }
}

impl Http2Stream {
    /// Reads the body, unless it is streamed.
    pub(super) async fn read_body(&mut self, mut body: RecvStream) -> Result<(), StreamEnd> {
        if body.is_end_stream() {
            return Ok(());
        }
        let exchange = self.exchange_mut();
        let framing = exchange.head.framing;
        // The body need not have a length, as in HTTP/1.
        let expectation = exchange.head.header("expect");
        let expects = expectation.is_some();
        if expectation.is_some_and(|it| !it.eq_ignore_ascii_case(b"100-continue")) {
            let text = "The only expectation this server meets is 100-continue.";
            return Err(refuse(417, text));
        }
        let body_bytes_max = self.shared.config.limits.body_bytes_max;
        if matches!(framing, BodyFraming::Length(len) if len > body_bytes_max) {
            return Err(too_large());
        }
        if self.shared.config.streams_body(self.exchange.head().get(self.exchange.head().path)) {
            self.begin_upload(body, expects);
            // A body that came along with its head is complete before the request is handed over.
            return poll_fn(|cx| {
                self.poll_upload(cx);
                Poll::Ready(Ok(()))
            })
            .await;
        }
        self.exchange_mut().begin_body();
        if expects {
            self.send_continue();
        }
        let limits = &self.shared.config.limits;
        let mut reader = BodyReader::until_end()
            .counted(framing, &self.client.budget, limits)
            .map_err(|error| self.body_end(&error))?;
        let mut clock = self.body_clock();
        loop {
            let part = poll_fn(|cx| self.poll_part(cx, &mut body, &mut clock)).await?;
            let is_last = part.is_none();
            if let Some(bytes) = part {
                self.feed(&mut reader, &bytes)?;
                // The client may send as much again. It fails only on a stream that has ended.
                let _ = body.flow_control().release_capacity(bytes.len());
            }
            let is_whole = is_last || body.is_end_stream();
            if reader.must_write(is_whole, &self.shared.config.limits) {
                reader = self.write_body(reader).await?;
            }
            if is_last {
                self.exchange_mut().body = reader.finish();
                return Ok(());
            }
        }
    }

    pub(super) fn body_clock(&self) -> BodyClock {
        let config = &self.shared.config;
        let window = Arc::clone(&self.client.window);
        let window = BodyWindow::new(Arc::clone(&self.shared), window);
        BodyClock::new(config.timeouts.body, config.limits.body_rate_min, window)
    }

    fn feed(&self, reader: &mut BodyReader, bytes: &[u8]) -> Result<(), StreamEnd> {
        let fed = reader.feed(bytes, &self.shared.config.limits);
        fed.map(drop).map_err(|error| self.body_end(&error))
    }

    /// The next bytes of the body; none at its end.
    fn poll_part(
        &mut self,
        cx: &mut Context,
        body: &mut RecvStream,
        clock: &mut BodyClock,
    ) -> Poll<Result<Option<Bytes>, StreamEnd>> {
        let Poll::Ready(part) = body.poll_data(cx) else {
            if clock.is_late(cx) {
                return Poll::Ready(Err(refuse(408, "The request's body did not arrive in time.")));
            }
            return Poll::Pending;
        };
        let part = part.transpose().map_err(|_| StreamEnd::Gone)?;
        if let Some(bytes) = &part {
            clock.add(bytes.len());
            self.client.waste.took(bytes.len());
        }
        Poll::Ready(Ok(part))
    }

    /// Writes a part of a large body to its file on a thread of its own.
    async fn write_body(&mut self, mut reader: BodyReader) -> Result<BodyReader, StreamEnd> {
        let written = tokio::task::spawn_blocking(move || reader.write().map(|()| reader)).await;
        // The runtime ends before the thread is done only at a stop.
        let reader = written.map_err(|_| StreamEnd::Gone)?;
        reader.map_err(|error| self.body_end(&error))
    }

    fn body_end(&self, error: &BodyError) -> StreamEnd {
        match error {
            BodyError::TooLarge => too_large(),
            BodyError::Chunk(error) => refuse(error.status(), error.reason()),
            BodyError::Spool(error) => {
                self.shared.feed.warn(&format!(
                    "can't keep the body of {} in a temporary file: {error}; \
                     make room in the directory for temporary files (TMPDIR)",
                    self.exchange.describe()
                ));
                refuse(500, "The request's body could not be stored.")
            }
            BodyError::NoRoom => {
                let retry_after_s = self.shared.config.retry_after_s;
                let response = ErrorResponse::new(503, NO_ROOM).retry_after(retry_after_s);
                StreamEnd::Refused { response, has_head: true }
            }
        }
    }
}

fn too_large() -> StreamEnd {
    refuse(413, "The request's body is too large.")
}

/// Refuses a request whose head was read.
pub(super) fn refuse(status: u16, text: &'static str) -> StreamEnd {
    StreamEnd::Refused { response: ErrorResponse::new(status, text), has_head: true }
}

/// Bytes of one DATA frame. Every client takes so many (RFC 9113 section 4.2), and with the nine bytes
/// of its head (section 4.1) the frame fills one TLS record (2^14 bytes, RFC 8446 section 5.1).
pub(super) const DATA_BYTES_MAX: usize = (1 << 14) - 9;

impl Http2Stream {
    /// Sends all segments; with `last` nothing comes after them.
    pub(super) async fn send(&mut self, last: bool) -> Result<SentBytes, StreamEnd> {
        let mut sent = SentBytes::default();
        if self.body.is_none() && !self.send_heads(&mut sent)? {
            return Ok(sent);
        }
        while let Some(left) = self.left_of_first() {
            let room = self.capacity(left).await?;
            self.send_some(room, last, &mut sent).await?;
            self.report_sent(&mut sent);
        }
        self.taken = None;
        if last {
            self.end_body()?;
        }
        Ok(sent)
    }

    /// Sends the heads at the front, of which all but the last are interim ones. True when the
    /// final head is sent and its body follows.
    fn send_heads(&mut self, sent: &mut SentBytes) -> Result<bool, StreamEnd> {
        while let Some(front) = self.sending.pop_front() {
            let Segment::Head { head, len } = front else { return Err(StreamEnd::Cut) };
            sent.memory += len;
            match head.status() {
                StatusCode::SWITCHING_PROTOCOLS => return Err(StreamEnd::NeedsHttp1),
                status if status.is_informational() => {
                    self.respond.send_informational(*head).map_err(|_| StreamEnd::Gone)?;
                }
                _ => {
                    self.sent += len as u64;
                    // A DATA frame ends the stream, so that `SentFrames` can tell the crate's own responses.
                    let body = self.respond.send_response(*head, false);
                    self.body = Some(body.map_err(|_| StreamEnd::Gone)?);
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Bytes left of the first segment that has any.
    fn left_of_first(&mut self) -> Option<u64> {
        loop {
            let front = self.sending.front_mut()?;
            let left = match front.file_range() {
                Some(range) => range.left,
                None => front.unsent_memory().map_or(0, |bytes| bytes.len() as u64),
            };
            if left > 0 {
                return Some(left);
            }
            self.sending.pop_front();
        }
    }

    /// Waits until the client takes some of `wanted` bytes; returns how many.
    async fn capacity(&mut self, wanted: u64) -> Result<usize, StreamEnd> {
        let wanted = wanted.min(super::SEND_BYTES_MAX as u64) as usize;
        let body = self.body.as_mut().ok_or(StreamEnd::Cut)?;
        body.reserve_capacity(wanted);
        let room = body.capacity();
        if room > 0 && self.client.handed.has_room() {
            return Ok(room.min(wanted));
        }
        let relief = self.exchange.response().lock().send_buffer.begin_relief(&mut self.sending);
        if let Some(write) = relief.map_err(|_| StreamEnd::Cut)? {
            relieve(&self.exchange, &mut self.sending, write).await;
        }
        poll_fn(|cx| self.poll_capacity(cx)).await.map(|room| room.min(wanted))
    }

    fn poll_capacity(&mut self, cx: &mut Context) -> Poll<Result<usize, StreamEnd>> {
        loop {
            // The application may wait for the body before it goes on.
            self.poll_upload(cx);
            let Some(body) = &mut self.body else { return Poll::Ready(Err(StreamEnd::Cut)) };
            let room = match body.capacity() {
                0 => body.poll_capacity(cx),
                room => Poll::Ready(Some(Ok(room))),
            };
            match room {
                Poll::Ready(Some(Ok(0))) => {}
                Poll::Ready(Some(Ok(room))) if self.client.handed.poll_room(cx).is_ready() => {
                    return Poll::Ready(Ok(room));
                }
                // The socket is full, which has a clock of its own.
                Poll::Ready(Some(Ok(_))) if !self.is_reset(cx) => {
                    self.taken = None;
                    return Poll::Pending;
                }
                Poll::Ready(_) => return Poll::Ready(Err(StreamEnd::Gone)),
                Poll::Pending if self.is_too_slow(cx) => return Poll::Ready(Err(StreamEnd::Cut)),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Whether the client takes too little while the response waits for its windows; if not, the
    /// task is woken when that may be. All its streams together have the rate of one connection.
    fn is_too_slow(&mut self, cx: &mut Context) -> bool {
        let time = self.shared.config.timeouts.write;
        let rate = self.shared.exchanges.budget.limits().reply_rate_min;
        loop {
            let taken = match self.taken {
                Some(taken) => taken,
                None => {
                    self.set_timeout(time);
                    *self.taken.insert(0)
                }
            };
            if !self.poll_expired(cx) {
                return false;
            }
            let streams = self.client.requests.load(Relaxed).max(1) as u64;
            if taken < (bytes_min(rate, time) / streams).max(1) {
                return true;
            }
            self.taken = None;
        }
    }

    /// Hands at most `room` bytes of the first segment to the connection.
    async fn send_some(
        &mut self,
        room: usize,
        last: bool,
        sent: &mut SentBytes,
    ) -> Result<(), StreamEnd> {
        let room = room.min(DATA_BYTES_MAX);
        let Some(front) = self.sending.front_mut() else { return Ok(()) };
        let bytes = if let Some(range) = front.file_range() {
            read(range, room).await.map_err(|_| StreamEnd::Cut)?
        } else {
            let unsent = front.unsent_memory().unwrap_or_default();
            Bytes::copy_from_slice(&unsent[..unsent.len().min(room)])
        };
        sent.add(advance(&mut self.sending, bytes.len(), &mut self.recycled));
        self.sent += bytes.len() as u64;
        self.taken = self.taken.map(|taken| taken + bytes.len() as u64);
        let is_end = last && self.left_of_first().is_none() && !self.is_cut();
        self.has_ended = is_end;
        let handed = &self.client.handed;
        let body = self.body.as_mut().ok_or(StreamEnd::Cut)?;
        body.send_data(handed.hand_over(bytes), is_end).map_err(|_| StreamEnd::Gone)
    }

    /// Ends a body of which everything is sent. One that was cut off ends with an error.
    pub(super) fn end_body(&mut self) -> Result<(), StreamEnd> {
        if self.is_cut() {
            return Err(StreamEnd::Cut);
        }
        if !std::mem::replace(&mut self.has_ended, true) {
            let body = self.body.as_mut().ok_or(StreamEnd::Cut)?;
            body.send_data(self.client.handed.hand_over(Bytes::new()), true)
                .map_err(|_| StreamEnd::Gone)?;
        }
        Ok(())
    }
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

/// A streamed body that has not arrived to its end.
pub(super) struct Http2Upload {
    body: Arc<StreamedBody>,
    from: RecvStream,
    /// Bytes for which there was no room.
    held: Bytes,
    /// Bytes that may still come.
    left: u64,
    /// The client waits for 100 Continue.
    expects: bool,
    clock: BodyClock,
}

impl Http2Stream {
    /// Lets the body of the request be streamed.
    pub(super) fn begin_upload(&mut self, from: RecvStream, expects: bool) {
        let config = &self.shared.config;
        let body =
            Arc::new(StreamedBody::new(config.limits.stream_body_bytes_max, self.waker.clone()));
        let clock = self.body_clock();
        let left = config.limits.body_bytes_max;
        self.exchange_mut().body = RequestBody::Streamed(Arc::clone(&body));
        self.upload = Some(Http2Upload { body, from, held: Bytes::new(), left, expects, clock });
    }

    /// Takes as much of a streamed body as has arrived and as there is room for.
    pub(super) fn poll_upload(&mut self, cx: &mut Context) {
        let Some(mut upload) = self.upload.take() else { return };
        match self.read_upload(&mut upload, cx) {
            Ok(true) => upload.body.end(Ok(())),
            Ok(false) => self.upload = Some(upload),
            Err(cut) => upload.body.end(Err(cut)),
        }
    }

    /// True when the body is complete.
    fn read_upload(&mut self, upload: &mut Http2Upload, cx: &mut Context) -> Result<bool, BodyCut> {
        loop {
            let room = upload.body.room();
            if room == 0 {
                upload.clock.pause();
                return Ok(false);
            }
            if !upload.held.is_empty() {
                upload.hand_out(room)?;
                self.postpone_request_deadline();
                continue;
            }
            if upload.expects && upload.body.is_wanted() {
                upload.expects = false;
                self.send_continue();
            }
            match upload.from.poll_data(cx) {
                Poll::Ready(Some(Ok(bytes))) => {
                    upload.expects = false;
                    upload.clock.add(bytes.len());
                    self.client.waste.took(bytes.len());
                    upload.held = bytes;
                }
                Poll::Ready(Some(Err(_))) => return Err(CONNECTION_ENDED),
                Poll::Ready(None) => return Ok(true),
                Poll::Pending if !upload.expects && upload.clock.is_late(cx) => {
                    return Err(BodyCut("the request's body did not arrive in time"));
                }
                Poll::Pending => return Ok(false),
            }
        }
    }

    /// The response has ended: what is missing of the body has no reader any more.
    pub(super) fn end_upload(&mut self) {
        if let Some(upload) = self.upload.take() {
            upload.body.end(Err(CONNECTION_ENDED));
        }
    }
}

impl Http2Upload {
    fn hand_out(&mut self, room: usize) -> Result<(), BodyCut> {
        let len = self.held.len().min(room);
        if len as u64 > self.left {
            return Err(BodyCut("the request's body is too large"));
        }
        self.left -= len as u64;
        self.body.fill(|into| into.extend(&self.held[..len]));
        self.held.advance(len);
        // The client may send as much again. It fails only on a stream that has ended.
        let _ = self.from.flow_control().release_capacity(len);
        Ok(())
    }
}
