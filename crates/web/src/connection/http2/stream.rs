//! One stream: a request and its response.

use std::collections::VecDeque;
use std::future::{poll_fn, Future};
use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{Request, Response, StatusCode};
use tokio::time::{sleep_until, Sleep};

use crate::budget::BudgetShare;
use crate::error_response::ErrorResponse;
use crate::exchange::Exchange;
use crate::pending_response::NextOutput;
use crate::send_buffer::Segment;
use crate::server_state::ServerState;
use crate::stats::add;

use super::super::request_end::{RequestEnd, CLIENT_LEFT};
use super::super::send::SentBytes;
use super::handed::HandedBytes;
use super::upload::Http2Upload;
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
        let remote = Arc::clone(&self.client.remote);
        let report = |text: &[u8], error| shared.report_long_head(&remote.address, text, error);
        head::read(&parts, &shared.config.limits, &mut self.exchange_mut().head, report)
            .map_err(|response| StreamEnd::Refused { response, has_head: false })?;
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
                _ => return self.end_body(),
            }
        }
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
        self.shared.counters.responded(status);
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
            was_handed_over: self.dispatched,
        }
    }

    /// Sends the engine's own response.
    fn refuse(&mut self, error: ErrorResponse, has_head: bool) {
        let is_head = has_head && self.exchange.head().is_head();
        add(&self.shared.counters.refused, 1);
        self.shared.counters.responded(error.status);
        self.end().count(error.status, false);
        self.send_whole(&error.encode(is_head));
        self.end().log(error.status, error.text.len() as u64 + 1, has_head);
    }

    /// Sends a short response. It fails only on a stream that has ended.
    fn send_whole(&mut self, text: &[u8]) {
        let Some((response, len)) = head::take_response(text) else { return };
        let bytes = Bytes::copy_from_slice(&text[len..]);
        if let Ok(mut body) = self.respond.send_response(response, false) {
            let _ = body.send_data(self.client.handed.hand_over(bytes), true);
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
