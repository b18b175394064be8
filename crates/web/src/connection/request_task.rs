//! What becomes of a request whose head is read, whichever version of HTTP it came by: its body is read, it is handed
//! over, and its response is sent. Reading and writing is the matter of the [`Wire`].

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::budget::ConnectionBudget;
use crate::exchange::Exchange;
use crate::feeder::{FeedStep, Feeder};
use crate::forwarded::Peer;
use crate::head::{BodyFraming, RequestHead};
use crate::pending_response::NextOutput;
use crate::request_body::{BodyError, BodyReader, RequestBody};
use crate::send_buffer::Segment;
use crate::server_state::ServerState;
use crate::streamed_body::{BodyCut, StreamedBody, CONNECTION_ENDED};

use super::body_clock::BodyClock;
use super::refusal::{Refusal, Stop};
use super::request_end::RequestEnd;
use super::send::SentBytes;
use super::timer::{LazyTimer, Timer};
use super::window::BodyWindow;

/// Bytes of a body that one connection reads before others are served.
const TURN_BYTES_MAX: usize = 1024 * 1024;

/// Bytes of a body that have arrived.
pub(super) struct Arrived {
    /// How many came from the socket.
    pub len: usize,
    /// Nothing comes after them.
    pub is_whole: bool,
}

/// Why no more of a body arrives.
pub(super) enum BodyStop {
    /// It is refused.
    Error(BodyError),
    /// The client has ended its side in the middle of it.
    Ended,
    /// The connection or the stream is broken.
    Gone,
}

impl From<BodyError> for BodyStop {
    fn from(error: BodyError) -> Self {
        Self::Error(error)
    }
}

/// A version of HTTP: how it reads a body and writes a response.
pub(super) trait Wire: Sized {
    /// How long small writes of a streamed response are gathered after the first one was sent; `None`: they are not.
    const GATHER: Option<Duration>;

    /// A timer for the task.
    fn timer(&mut self) -> &mut impl Timer;

    /// Whether the client sends a body.
    fn has_body(&mut self, framing: BodyFraming) -> bool;

    /// The part of the body in the window of its connection, if there is one.
    fn window(&self, _shared: &Arc<ServerState>) -> Option<BodyWindow> {
        None
    }

    /// Whether bytes of the body were read with the head.
    fn has_unread(&self) -> bool {
        false
    }

    /// Asks for the body that the client has announced (RFC 9110 section 10.1.1).
    fn ask_for_body(&mut self, exchange: &Arc<Exchange>);

    /// Gives `feed` at most `room` bytes of the body. It says how many it took, and whether they were the last.
    fn poll_body(
        &mut self,
        cx: &mut Context,
        shared: &ServerState,
        room: usize,
        feed: impl FnMut(&[u8]) -> Result<(usize, bool), BodyError>,
    ) -> Poll<Result<Arrived, BodyStop>>;

    /// Nothing more of the body is read.
    fn end_body(&mut self) {}

    /// Whether nobody waits for the response any more; if not, the task is woken when that changes. `is_reading`: what
    /// the client sends wakes it already.
    fn poll_gone(&mut self, cx: &mut Context, is_reading: bool) -> bool;

    /// Whether the client has ended its side, as [`Wire::poll_gone`] has found.
    fn has_ended(&self) -> bool {
        false
    }

    /// The response may have begun.
    fn note_begun(&mut self, _exchange: &Exchange) {}

    /// So much was sent.
    fn note_sent(&mut self, _sent: SentBytes) {}

    /// Sends all segments; with `last` nothing comes after them.
    async fn send(task: &mut RequestTask<Self>, last: bool) -> Result<SentBytes, Stop>;

    /// Ends a response of which everything is sent; `sent` was not reported.
    fn end_response(task: &mut RequestTask<Self>, sent: SentBytes) -> Result<(), Stop>;

    /// Ends a response that was fed, or was cut off.
    fn end_fed(task: &mut RequestTask<Self>, fed: Result<(), Stop>) -> Result<(), Stop>;
}

/// A request on its way, or with HTTP/1 the last one.
pub(super) struct RequestTask<W> {
    pub shared: Arc<ServerState>,
    pub waker: Waker,
    pub remote: Arc<Peer>,
    pub budget: Arc<ConnectionBudget>,
    /// The current request, or the last one, kept for its buffers.
    pub exchange: Arc<Exchange>,
    /// It was handed over.
    pub is_handed_over: bool,
    /// The streamed body of the request.
    upload: Option<Box<Upload>>,
    /// Output that the wire has not taken yet.
    pub sending: VecDeque<Segment>,
    /// A sent buffer that goes back to the exchange.
    pub recycled: Vec<u8>,
    /// Bytes of the response that were sent.
    pub sent: u64,
    /// When the request was complete, or began to arrive, or the connection to idle.
    pub since: Instant,
    pub wire: W,
}

fn owned(exchange: &mut Arc<Exchange>) -> &mut Exchange {
    Arc::get_mut(exchange).expect("a request that was not handed over has one owner")
}

impl<W> RequestTask<W> {
    pub fn new(
        shared: Arc<ServerState>,
        waker: Waker,
        remote: Arc<Peer>,
        budget: Arc<ConnectionBudget>,
        exchange: Arc<Exchange>,
        wire: W,
    ) -> Self {
        Self {
            shared,
            waker,
            remote,
            budget,
            exchange,
            is_handed_over: false,
            upload: None,
            sending: VecDeque::new(),
            recycled: Vec::new(),
            sent: 0,
            since: Instant::now(),
            wire,
        }
    }

    /// The exchange before it is handed over.
    pub fn exchange_mut(&mut self) -> &mut Exchange {
        owned(&mut self.exchange)
    }

    /// The exchange for the next request: the last one, unless another
    /// thread still holds it. Called when that arrives and not right
    /// after the response, so that its producer has time to drop it.
    pub fn next_exchange(&mut self) -> &mut Exchange {
        let is_used = std::mem::take(&mut self.is_handed_over);
        if is_used && Arc::get_mut(&mut self.exchange).is_none() {
            self.exchange = Arc::new(self.exchange.successor(&self.budget));
        }
        let exchange = owned(&mut self.exchange);
        if is_used {
            exchange.reset();
        }
        exchange
    }

    /// Gives back the memory that an idle connection does not need.
    pub fn shrink(&mut self) {
        self.next_exchange().shrink();
        self.sending.shrink_to_fit();
        self.recycled = Vec::new();
    }

    /// Counts and logs a request whose response was sent at that time.
    pub fn end(&self, until: Instant) -> RequestEnd<'_> {
        RequestEnd {
            shared: &self.shared,
            exchange: &self.exchange,
            remote: &self.remote,
            since: self.since,
            until,
            was_handed_over: self.is_handed_over,
        }
    }
}

impl<W: Wire> RequestTask<W> {
    /// Reads the body to its end, so that no Ruby thread waits for a slow client; the
    /// application has asked to wait by itself for those that are streamed.
    pub async fn read_body(&mut self) -> Result<(), Stop> {
        let RequestHead { version, framing, .. } = *self.exchange.head();
        if !self.wire.has_body(framing) {
            return Ok(());
        }
        let shared = Arc::clone(&self.shared);
        let limits = &shared.config.limits;
        let exchange = self.exchange_mut();
        let expectation = exchange.head.header("expect");
        if expectation.is_some_and(|it| !it.eq_ignore_ascii_case(b"100-continue")) {
            let text = "The only expectation this server meets is 100-continue.";
            return Err(Refusal::new(417, text).into());
        }
        let spare = std::mem::take(&mut exchange.body_spare);
        let expects = exchange.head.expect_continue;
        let reader = BodyReader::new(version, framing, spare, limits);
        let reader = reader.map_err(|error| self.refuse_body(&error))?;
        let Some(reader) = reader else { return Ok(()) };
        if shared.config.streams_body(self.exchange.head.get(self.exchange.head.path)) {
            self.begin_upload(reader, expects);
            // A body that came along with its head is complete before the request is handed over.
            poll_fn(|cx| Poll::Ready(self.poll_upload(cx))).await;
            return Ok(());
        }
        self.exchange_mut().begin_body();
        let counted = reader.counted(framing, &self.budget, limits);
        let mut reader = counted.map_err(|error| self.refuse_body(&error))?;
        // A client that has sent some of its body did not wait for this.
        if expects && !self.wire.has_unread() {
            // In a box, as what follows: other connections need no memory for it.
            Box::pin(self.send_continue()).await?;
        }
        let mut clock = BodyClock::new(self.wire.window(&shared));
        loop {
            let is_whole = poll_fn(|cx| self.poll_body(cx, &mut reader, &mut clock)).await?;
            if reader.must_write(is_whole, limits) {
                reader = Box::pin(self.write_body(reader)).await?;
                clock.restart();
            }
            if is_whole {
                self.wire.end_body();
                self.exchange_mut().body = reader.finish();
                return Ok(());
            }
        }
    }

    async fn send_continue(&mut self) -> Result<(), Stop> {
        self.wire.ask_for_body(&self.exchange);
        self.exchange.response().lock().next_output(&mut self.sending, false);
        let mut sent = W::send(self, false).await?;
        self.report_sent(&mut sent);
        Ok(())
    }

    /// Writes a part of a large body to its file on a thread of its own, so that a slow
    /// disk stops no other connection.
    async fn write_body(&mut self, mut reader: BodyReader) -> Result<BodyReader, Stop> {
        let written = tokio::task::spawn_blocking(move || reader.write().map(|()| reader)).await;
        // The runtime ends before the thread is done only at a stop.
        let reader = written.map_err(|_| Stop::Gone)?;
        reader.map_err(|error| self.refuse_body(&error))
    }

    /// Reads until the body is complete (true), or as much of it is in memory as may be.
    fn poll_body(
        &mut self,
        cx: &mut Context,
        reader: &mut BodyReader,
        clock: &mut BodyClock,
    ) -> Poll<Result<bool, Stop>> {
        let Self { shared, wire, .. } = self;
        let limits = &shared.config.limits;
        let stop = loop {
            match wire.poll_body(cx, shared, usize::MAX, |bytes| reader.feed(bytes, limits)) {
                Poll::Ready(Ok(Arrived { len, is_whole })) => {
                    clock.add(len);
                    if is_whole || reader.must_write(false, limits) {
                        return Poll::Ready(Ok(is_whole));
                    }
                }
                Poll::Ready(Err(stop)) => break stop,
                Poll::Pending if clock.is_late(cx, wire.timer(), &shared.config) => {
                    let text = "The request's body did not arrive in time.";
                    return Poll::Ready(Err(Refusal::new(408, text).into()));
                }
                Poll::Pending => return Poll::Pending,
            }
        };
        Poll::Ready(Err(match stop {
            BodyStop::Error(error) => self.refuse_body(&error),
            BodyStop::Ended => {
                Refusal::new(400, "The request ended in the middle of its body.").into()
            }
            BodyStop::Gone => Stop::Gone,
        }))
    }

    fn refuse_body(&self, error: &BodyError) -> Stop {
        Refusal::of_body(&self.shared, &self.exchange, error).into()
    }

    /// Hands the request over.
    pub fn dispatch(&mut self, now: Instant, may_keep_alive: bool) {
        (self.since, self.sent) = (now, 0);
        self.set_request_deadline();
        let id = self.shared.next_id();
        let Self { exchange, waker, shared, .. } = self;
        owned(exchange).dispatch(id, now, may_keep_alive, waker);
        self.is_handed_over = true;
        shared.submit(Arc::clone(exchange));
    }

    /// Sets the time by which the response must begin.
    fn set_request_deadline(&mut self) {
        self.wire
            .timer()
            .set_deadline(self.shared.config.timeouts.request.map(|time| self.since + time));
    }

    /// Of a request whose body is streamed the time begins anew with each part that arrives.
    fn postpone_request_deadline(&mut self) {
        if let Some(time) = self.shared.config.timeouts.request {
            if self.is_handed_over && self.exchange.response().lock().is_waiting() {
                self.wire.timer().set_deadline(Some(Instant::now() + time));
            }
        }
    }

    /// Sends the response as it is produced.
    pub async fn send_response(&mut self) -> Result<(), Stop> {
        let mut gathering = false;
        loop {
            match poll_fn(|cx| self.poll_response(cx, &mut gathering)).await? {
                NextOutput::Send { last } => {
                    self.wire.note_begun(&self.exchange);
                    let mut sent = W::send(self, last).await?;
                    if last {
                        return W::end_response(self, sent);
                    }
                    self.report_sent(&mut sent);
                    gathering = self.after_part();
                }
                // In a box, so that other requests need no memory for it.
                NextOutput::Fed { feeder, chunked } => {
                    let fed = Box::pin(self.feed(feeder, chunked)).await;
                    return W::end_fed(self, fed);
                }
                _ => return W::end_response(self, SentBytes::default()),
            }
        }
    }

    /// Sets the deadline for the next output; true when small writes are gathered.
    fn after_part(&mut self) -> bool {
        if self.exchange.response().lock().is_waiting() {
            // That was an interim response: the final one has not begun.
            self.set_request_deadline();
            return false;
        }
        self.wire.timer().set_deadline(W::GATHER.map(|time| Instant::now() + time));
        W::GATHER.is_some()
    }

    /// Ready with [`NextOutput::Send`], [`NextOutput::Fed`] or [`NextOutput::Done`].
    fn poll_response(
        &mut self,
        cx: &mut Context,
        gathering: &mut bool,
    ) -> Poll<Result<NextOutput, Stop>> {
        self.shared.exchanges.wake_ready_if_any();
        loop {
            let is_reading = self.poll_upload(cx);
            let next = self.exchange.response().lock().next_output(&mut self.sending, *gathering);
            let streaming = match next {
                NextOutput::Pending { streaming } => streaming,
                NextOutput::Hijacked => return Poll::Ready(Err(Stop::Hijacked)),
                next => return Poll::Ready(Ok(next)),
            };
            let is_stopping = !streaming && self.shared.is_giving_up();
            if is_stopping && self.exchange.response().lock().time_out() {
                return Poll::Ready(Err(self.refuse_late(true)));
            }
            if self.wire.poll_gone(cx, is_reading) {
                return Poll::Ready(Err(Stop::Gone));
            }
            if self.wire.has_ended() {
                self.exchange.note_client_left();
            }
            if !self.wire.timer().poll_expired(cx) {
                return Poll::Pending;
            }
            if streaming {
                *gathering = false;
                self.wire.timer().set_deadline(None);
            } else if self.exchange.response().lock().time_out() {
                return Poll::Ready(Err(self.refuse_late(false)));
            }
        }
    }

    fn refuse_late(&self, is_stopping: bool) -> Stop {
        Refusal::late(&self.shared, &self.exchange, is_stopping).into()
    }

    /// Reports sent bytes to the send buffer, so that a waiting producer may go on.
    pub fn report_sent(&mut self, sent: &mut SentBytes) {
        let sent = std::mem::take(sent);
        self.wire.note_sent(sent);
        let limits = &self.shared.config.limits;
        let mut response = self.exchange.response().lock();
        if response.sent(sent.memory, sent.spooled, &mut self.recycled, limits) {
            drop(response);
            self.exchange.notify_capacity();
        }
    }
}

/// Room for the size of a chunk in front of its bytes: eight digits, which may begin with zeros (RFC 9112 section 7.1),
/// and the end of the line.
const SIZE_LINE_BYTES: usize = 10;

impl<W: Wire> RequestTask<W> {
    /// Sends what the feeder gives, until its end or that of the client. The response is counted when it begins.
    async fn feed(&mut self, mut feeder: Box<dyn Feeder>, chunked: bool) -> Result<(), Stop> {
        let (status, head_bytes) = {
            let response = self.exchange.response().lock();
            (response.status(), response.head_bytes() as u64)
        };
        self.shared.counters.responded(status);
        self.end(Instant::now()).count(status, true);
        let logs = self.shared.log.is_on();
        if !logs {
            self.shrink();
        }
        let fed = self.feed_on(&mut *feeder, chunked).await;
        if logs {
            self.end(Instant::now()).log(status, self.sent.saturating_sub(head_bytes), true);
        }
        self.is_handed_over = false;
        fed
    }

    async fn feed_on(&mut self, feeder: &mut dyn Feeder, chunked: bool) -> Result<(), Stop> {
        self.wire.timer().disarm();
        loop {
            self.wire.timer().set_deadline(None);
            let mut out = Vec::new();
            if chunked {
                out.resize(SIZE_LINE_BYTES, 0);
            }
            let step = poll_fn(|cx| self.poll_feed(cx, feeder, &mut out)).await?;
            let FeedStep::Send(shared) = step else { break };
            let shared_len = shared.as_ref().map_or(0, |bytes| bytes.len());
            if chunked {
                let size = format!("{:08x}\r\n", out.len() - SIZE_LINE_BYTES + shared_len);
                out[..SIZE_LINE_BYTES].copy_from_slice(&size.as_bytes()[..SIZE_LINE_BYTES]);
            }
            let end: &[u8] = if chunked { b"\r\n" } else { b"" };
            match shared {
                None => out.extend_from_slice(end),
                Some(bytes) => {
                    self.push(std::mem::take(&mut out));
                    let memory = Box::new(bytes);
                    self.sending.push_back(Segment::Pinned { memory, at: 0, end: shared_len });
                    out.extend_from_slice(end);
                }
            }
            self.push(out);
            W::send(self, false).await?;
            self.recycled = Vec::new();
            self.sending.shrink_to_fit();
        }
        if chunked {
            self.push(b"0\r\n\r\n".to_vec());
            W::send(self, true).await?;
        }
        Ok(())
    }

    fn push(&mut self, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.sending.push_back(Segment::Bytes { bytes, at: 0 });
        }
    }

    fn poll_feed(
        &mut self,
        cx: &mut Context<'_>,
        feeder: &mut dyn Feeder,
        out: &mut Vec<u8>,
    ) -> Poll<Result<FeedStep, Stop>> {
        self.shared.exchanges.wake_ready_if_any();
        if self.shared.is_giving_up() {
            return Poll::Ready(Ok(FeedStep::End));
        }
        let drains = self.shared.exchanges.is_draining();
        if let Poll::Ready(step) = feeder.poll_step(cx, drains, out) {
            return Poll::Ready(Ok(step));
        }
        // Clients of an event stream end their side only when they leave.
        if self.wire.poll_gone(cx, false) || self.wire.has_ended() {
            return Poll::Ready(Err(Stop::Gone));
        }
        Poll::Pending
    }
}

/// A streamed body that has not arrived to its end.
struct Upload {
    body: Arc<StreamedBody>,
    reader: BodyReader,
    /// The client waits for 100 Continue.
    expects: bool,
    clock: BodyClock,
    timer: LazyTimer,
}

enum UploadState {
    /// It waits for the client.
    Waiting,
    /// It waits for the application.
    Full,
    Whole,
}

impl<W: Wire> RequestTask<W> {
    /// Lets the body of the current request, read with `reader`, be streamed.
    fn begin_upload(&mut self, reader: BodyReader, expects: bool) {
        let bytes_max = self.shared.config.limits.stream_body_bytes_max;
        let body = Arc::new(StreamedBody::new(bytes_max, self.waker.clone()));
        self.exchange_mut().body = RequestBody::Streamed(Arc::clone(&body));
        let clock = BodyClock::new(self.wire.window(&self.shared));
        let timer = LazyTimer::default();
        self.upload = Some(Box::new(Upload { body, reader, expects, clock, timer }));
    }

    /// Reads as much of a streamed body as has arrived and as there is room for. True when the
    /// task is woken by what the client sends next, also by its end.
    pub fn poll_upload(&mut self, cx: &mut Context) -> bool {
        let Some(mut upload) = self.upload.take() else { return false };
        match self.read_upload(&mut upload, cx) {
            Ok(UploadState::Whole) => upload.body.end(Ok(())),
            Ok(state) => {
                self.upload = Some(upload);
                return matches!(state, UploadState::Waiting);
            }
            Err(cut) => upload.body.end(Err(cut)),
        }
        self.wire.end_body();
        false
    }

    /// The response has ended: what is missing of the body has no reader any more.
    pub fn end_upload(&mut self) {
        if let Some(upload) = self.upload.take() {
            self.wire.end_body();
            upload.body.end(Err(CONNECTION_ENDED));
        }
    }

    fn read_upload(&mut self, to: &mut Upload, cx: &mut Context) -> Result<UploadState, BodyCut> {
        let shared = Arc::clone(&self.shared);
        let limits = &shared.config.limits;
        let mut turn = 0;
        loop {
            let room = to.body.room();
            if room == 0 {
                to.clock.pause();
                return Ok(UploadState::Full);
            }
            let Upload { body, reader, .. } = to;
            let polled = self.wire.poll_body(cx, &shared, room, |bytes| {
                let fed = reader.feed(bytes, limits);
                // Also what comes before a fault.
                body.fill(|bytes| reader.hand_out(bytes));
                fed
            });
            let Poll::Ready(arrived) = polled else {
                if to.expects && to.body.is_wanted() {
                    to.expects = false;
                    self.wire.ask_for_body(&self.exchange);
                }
                if !to.expects && to.clock.is_late(cx, &mut to.timer, &shared.config) {
                    return Err(BodyCut("the request's body did not arrive in time"));
                }
                return Ok(UploadState::Waiting);
            };
            let Arrived { len, is_whole } = arrived.map_err(|stop| cut(&stop))?;
            to.expects = false;
            to.clock.add(len);
            self.postpone_request_deadline();
            if is_whole {
                return Ok(UploadState::Whole);
            }
            turn += len;
            if turn > TURN_BYTES_MAX {
                // The IO thread does not sleep now, so this does its other work.
                shared.flush_submitted();
                shared.exchanges.wake_ready_if_any();
                cx.waker().wake_by_ref();
                return Ok(UploadState::Waiting);
            }
        }
    }
}

fn cut(stop: &BodyStop) -> BodyCut {
    match stop {
        BodyStop::Ended | BodyStop::Gone => CONNECTION_ENDED,
        BodyStop::Error(BodyError::TooLarge) => BodyCut("the request's body is too large"),
        BodyStop::Error(BodyError::Chunk(error)) => BodyCut(error.reason()),
        BodyStop::Error(BodyError::Spool(_) | BodyError::NoRoom) => {
            BodyCut("the request's body could not be stored")
        }
    }
}
