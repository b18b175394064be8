//! An HTTP/2 connection (RFC 9113), by the crate h2. Each stream is one request, which goes to
//! the pool and comes back as those of HTTP/1 do.

mod frames;
mod handed;
mod head;
mod sent_frames;
mod stream;
mod transport;
mod waste;

use std::future::{poll_fn, Future};
use std::pin::{pin, Pin};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use h2::server::{Builder, Connection as Frames, SendResponse};
use h2::{Reason, RecvStream};
use http::Request;
use tokio::time::{sleep_until, Sleep};

use crate::budget::ConnectionBudget;
use crate::connection_registry::IdleMark;
use crate::forwarded::Peer;
use crate::limits::Limits;
use crate::server_state::ServerState;
use crate::tls::TlsPeer;

use super::request_end::count_unread;
use super::window::{self, ReceiveWindow};
use super::{Connection, ConnectionGuard};

use handed::{Handed, HandedBytes};
use stream::Http2Stream;
use transport::Http2Transport;
use waste::Waste;

/// How a client that knows the server begins (RFC 9113 section 3.4); no request of HTTP/1 can.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// So many of its bytes tell the two apart.
const PREFACE_BYTES_MIN: usize = 14;
/// Bytes of one response that wait for the socket in memory: whole frames.
const SEND_BYTES_MAX: usize = 4 * stream::DATA_BYTES_MAX;
/// Streams that one side gave up and that are remembered, for frames that still come.
const RESETS_MAX: usize = 32;
/// A client is sent to another worker with its first request after so long without one. In the middle of
/// its requests it would give up those that it has not sent yet: h2load had up to 9 % of 10,000 refused.
const QUIET_BEFORE_MOVE: Duration = Duration::from_secs(1);
/// Unread DATA frames may be as short as this allows: 2,000 of 10 bytes. The crate would derive it
/// from the connection's window.
const SHORT_DATA_BUDGET: usize = 512 * 1024;

/// Whether these are the first bytes of a connection of HTTP/2.
pub(super) fn is_preface(first: &[u8]) -> bool {
    first.len() >= PREFACE_BYTES_MIN
        && first.iter().zip(PREFACE).all(|(byte, expected)| byte == expected)
}

/// What the streams of a connection share.
struct Client {
    listener: usize,
    remote: Arc<Peer>,
    tls: Option<Arc<TlsPeer>>,
    waste: Arc<Waste>,
    window: Arc<ReceiveWindow>,
    budget: Arc<ConnectionBudget>,
    handed: Arc<Handed>,
    /// Requests under way.
    requests: AtomicUsize,
    /// Bytes of their heads.
    head_bytes: AtomicUsize,
    /// Of the connection's task, which looks whether there are any.
    connection: Waker,
}

/// None at the end of the connection.
type Accepted = Option<Result<(Request<RecvStream>, SendResponse<HandedBytes>), h2::Error>>;

/// One connection and its streams.
struct Http2Connection<'a> {
    shared: Arc<ServerState>,
    frames: Frames<Http2Transport<'a>, HandedBytes>,
    client: Arc<Client>,
    /// The receive window that the client knows, or will once it has sent less.
    window: u32,
    /// Requests may wait in the crate until the connection holds less memory.
    held_back: bool,
    timer: Pin<Box<Sleep>>,
    /// Since when no request is under way.
    idle_since: Option<Instant>,
    /// The last bytes of answers waited for the client's windows then.
    was_sending: bool,
    /// Since when the client knows that it gets no further stream.
    leaving: Option<Instant>,
    served: u64,
    idle: Arc<IdleMark>,
    guard: &'a mut ConnectionGuard,
}

/// Serves the connection as one of HTTP/2; `unread` was read before that was known.
pub(super) async fn serve(connection: &mut Connection) {
    let (shared, idle) = (Arc::clone(&connection.task.shared), Arc::clone(&connection.idle));
    if connection.task.wire.unread.is_empty() {
        shared.idles(&idle);
    }
    let budget =
        ConnectionBudget::new(&shared.exchanges.budget, Some(connection.task.waker.clone()));
    let client = Arc::new(Client {
        listener: connection.listener,
        remote: Arc::clone(&connection.task.remote),
        tls: connection.tls.clone(),
        waste: Arc::new(Waste::new(shared.config.limits.http2_resets_max)),
        window: Arc::new(ReceiveWindow::new(connection.task.waker.clone())),
        handed: Handed::new(&budget),
        budget,
        requests: AtomicUsize::new(0),
        head_bytes: AtomicUsize::new(0),
        connection: connection.task.waker.clone(),
    });
    let end_turn = || shared.flush_submitted();
    let (first, waste) = (connection.task.wire.unread.take(), Arc::clone(&client.waste));
    let remote = Arc::clone(&connection.task.remote);
    let refused = |status| count_unread(&shared, &remote.address, status);
    let transport = Http2Transport::new(
        &mut connection.task.wire.socket,
        first,
        &shared,
        waste,
        &end_turn,
        &refused,
    );
    let Some(frames) = shake_hands(&shared, transport, &idle).await else { return };
    let mut served = Http2Connection {
        shared: Arc::clone(&shared),
        frames,
        client,
        window: window::CONNECTION_BYTES,
        held_back: false,
        timer: Box::pin(sleep_until(Instant::now().into())),
        idle_since: None,
        was_sending: false,
        leaving: None,
        served: 0,
        idle,
        guard: &mut connection.task.wire.guard,
    };
    poll_fn(|cx| served.poll(cx)).await;
    drop(served);
    // The client may still send, be it that it has read the last answers.
    if !connection.idle.must_close() {
        connection.linger().await;
    }
}

/// Reads the preface. A client that says nothing is closed as one that begins a head and does not
/// end it, soon once the server drains, and at once to make room.
async fn shake_hands<'a>(
    shared: &ServerState,
    transport: Http2Transport<'a>,
    idle: &IdleMark,
) -> Option<Frames<Http2Transport<'a>, HandedBytes>> {
    let since = Instant::now();
    let mut handshake = pin!(settings(shared).handshake(transport));
    let mut timer = pin!(sleep_until(since.into()));
    poll_fn(|cx| {
        if let Poll::Ready(shaken) = handshake.as_mut().poll(cx) {
            return Poll::Ready(shaken.ok());
        }
        if idle.must_close() {
            return Poll::Ready(None);
        }
        let timeouts = &shared.config.timeouts;
        let time = match shared.exchanges.is_draining() {
            true => timeouts.header.min(timeouts.drain_idle),
            false => timeouts.header,
        };
        timer.as_mut().reset((since + time).into());
        timer.as_mut().poll(cx).map(|()| None)
    })
    .await
}

fn settings(shared: &ServerState) -> Builder {
    let limits = &shared.config.limits;
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(limits.http2_streams_max)
        .max_header_list_size(header_list_bytes_max(limits))
        .initial_window_size(window::STREAM_BYTES)
        .initial_connection_window_size(window::CONNECTION_BYTES)
        .max_send_buffer_size(SEND_BYTES_MAX)
        .max_concurrent_reset_streams(RESETS_MAX)
        // A client may leave a page while all of its requests are on their way.
        .max_pending_accept_reset_streams(limits.http2_streams_max as usize)
        .data_frame_budget(SHORT_DATA_BUDGET);
    builder
}

/// A list of headers counts 32 bytes more for each of them, also for the four pseudo-headers (RFC 9113
/// section 6.5.2). What fits into the limits of HTTP/1 does so here, and what is a little larger is
/// refused by the same parser, which can say why.
fn header_list_bytes_max(limits: &Limits) -> u32 {
    let bytes = limits.header_bytes_max + 32 * (limits.header_count_max + 4);
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

impl Http2Connection<'_> {
    /// Ready when the connection has ended.
    fn poll(&mut self, cx: &mut Context) -> Poll<()> {
        self.shared.exchanges.wake_ready_if_any();
        if self.shared.exchanges.is_draining() {
            self.leave();
        }
        if self.client.waste.begin_turn(!self.held_back) {
            self.calm();
        }
        let window = self.client.window.bytes();
        if std::mem::replace(&mut self.window, window) != window {
            self.frames.set_target_window_size(window);
        }
        loop {
            match self.poll_accept(cx) {
                Poll::Ready(Some(Ok((request, respond)))) => self.begin(request, respond),
                Poll::Ready(end) => {
                    // Frames or headers that cannot be read, or are too many, belong to no stream.
                    let is_unread = end.is_some_and(|end| end.is_err_and(|it| it.is_library()));
                    if is_unread || self.client.waste.is_spent() {
                        count_unread(&self.shared, &self.client.remote.address, 400);
                    }
                    return Poll::Ready(());
                }
                Poll::Pending if self.client.requests.load(Relaxed) > 0 => {
                    self.idle_since = None;
                    self.idle.set_busy();
                    return Poll::Pending;
                }
                // The last answer was sent in this turn, which began before.
                Poll::Pending if self.client.waste.is_spent() && !self.frames.has_streams() => {
                    self.frames.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
                    return self.frames.poll_closed(cx).map(drop);
                }
                Poll::Pending => return self.poll_idle(cx),
            }
        }
    }

    /// The next request. While the connection holds all the memory it may, none is taken.
    fn poll_accept(&mut self, cx: &mut Context) -> Poll<Accepted> {
        self.held_back = self.client.budget.is_full();
        if self.held_back {
            return self.frames.poll_closed(cx).map(|end| end.err().map(Err));
        }
        self.frames.poll_accept(cx)
    }

    /// The client has wasted too much. What it was promised is answered, unless it goes on. The crate sends an answer
    /// that it holds after the request has ended here.
    fn calm(&mut self) {
        self.leave();
        if !self.is_answering() || self.client.waste.is_over() {
            self.frames.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
        }
    }

    fn is_answering(&self) -> bool {
        self.client.requests.load(Relaxed) > 0 || self.frames.has_streams()
    }

    /// Why the client gets no further request through, if so: it has wasted too much, or was told to
    /// leave and answers no PING, without which h2 sends no GOAWAY that names a last stream.
    fn refusal(&self, is_spent: bool) -> Option<Reason> {
        if is_spent {
            return Some(Reason::ENHANCE_YOUR_CALM);
        }
        let until = self.leaving? + self.shared.config.timeouts.drain_idle;
        (Instant::now() > until).then_some(Reason::REFUSED_STREAM)
    }

    fn begin(&mut self, request: Request<RecvStream>, mut respond: SendResponse<HandedBytes>) {
        let is_spent = self.client.waste.began(respond.stream_id().into());
        if let Some(reason) = self.refusal(is_spent) {
            return respond.send_reset(reason);
        }
        self.served += 1;
        // From here on its requests count.
        self.guard.served();
        let requests_max = self.shared.config.limits.requests_per_connection_max;
        let is_last = requests_max > 0 && self.served >= requests_max;
        if is_last || self.should_move() {
            self.leave();
        }
        let (shared, client) = (Arc::clone(&self.shared), Arc::clone(&self.client));
        tokio::spawn(async move {
            let waker = poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
            let (parts, body) = request.into_parts();
            Http2Stream::new(shared, client, body, respond, waker).serve(parts).await;
        });
    }

    /// Whether the client should make what follows on a connection to a freer worker.
    fn should_move(&self) -> bool {
        let Some(since) = self.idle_since else { return false };
        let now = Instant::now();
        now - since >= QUIET_BEFORE_MOVE && self.shared.should_move_connection(now)
    }

    /// Tells the client to make its next requests elsewhere; those under way are answered.
    fn leave(&mut self) {
        if self.leaving.is_none() {
            self.leaving = Some(Instant::now());
            self.frames.graceful_shutdown();
            self.client.connection.wake_by_ref();
        }
    }

    /// Without requests the connection ends after a time, and soon when it is leaving. What the
    /// crate holds of their answers is sent before that, unless the client opens no window for it.
    fn poll_idle(&mut self, cx: &mut Context) -> Poll<()> {
        let sending = self.frames.has_streams();
        if std::mem::replace(&mut self.was_sending, sending) != sending {
            self.idle_since = None;
        }
        let timeouts = &self.shared.config.timeouts;
        let time = match (self.leaving.is_some(), sending) {
            (false, _) => timeouts.idle,
            (true, true) => timeouts.write,
            (true, false) => timeouts.drain_idle,
        };
        if self.idle_since.is_none() && !sending {
            self.shared.idles(&self.idle);
        } else if sending {
            self.idle.set_busy();
        }
        let since = *self.idle_since.get_or_insert_with(Instant::now);
        if self.idle.must_close() {
            // Says which requests were not looked at, as far as the socket takes it (RFC 9113 section 6.8).
            self.frames.abrupt_shutdown(Reason::NO_ERROR);
            let _ = self.frames.poll_closed(cx);
            return Poll::Ready(());
        }
        if !self.is_over(since + time, cx) {
            return Poll::Pending;
        }
        if self.leaving.is_some() {
            return Poll::Ready(());
        }
        self.leave();
        self.idle_since = None;
        Poll::Pending
    }

    /// Whether that time has come; if not, the task is woken then.
    fn is_over(&mut self, until: Instant, cx: &mut Context) -> bool {
        if self.timer.deadline().into_std() != until {
            self.timer.as_mut().reset(until.into());
        }
        self.timer.as_mut().poll(cx).is_ready()
    }
}
