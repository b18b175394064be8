//! An HTTP/2 connection (RFC 9113), by the crate h2. Each stream is one request, which goes to
//! the pool and comes back as those of HTTP/1 do.

mod body;
mod body_clock;
mod head;
mod output;
mod reset_budget;
mod stream;
mod transport;
mod upload;

use std::future::{poll_fn, Future};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bytes::Bytes;
use h2::server::{Builder, Connection as Frames, SendResponse};
use h2::{Reason, RecvStream};
use http::Request;
use tokio::time::{sleep_until, Sleep};

use crate::server_state::ServerState;
use crate::tls::TlsPeer;

use super::{Connection, ConnectionGuard};

use reset_budget::ResetBudget;
use stream::Http2Stream;
use transport::Http2Transport;

/// How a client that knows the server begins (RFC 9113 section 3.4); no request of HTTP/1 can.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// So many of its bytes tell the two apart.
const PREFACE_BYTES_MIN: usize = 14;
/// Bytes of one request body on their way: the client sends more when they were read.
const STREAM_WINDOW_BYTES: u32 = 256 * 1024;
/// The same for all bodies of a connection.
const CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;
/// Bytes of one response that wait for the socket in memory: whole frames.
const SEND_BYTES_MAX: usize = 4 * output::DATA_BYTES_MAX;
/// Streams that one side gave up and that are remembered, for frames that still come.
const RESETS_MAX: usize = 32;

/// Whether these are the first bytes of a connection of HTTP/2.
pub(super) fn is_preface(first: &[u8]) -> bool {
    first.len() >= PREFACE_BYTES_MIN
        && first.iter().zip(PREFACE).all(|(byte, expected)| byte == expected)
}

/// What the streams of a connection share.
#[derive(Clone)]
struct Client {
    listener: usize,
    remote: Arc<str>,
    tls: Option<Arc<TlsPeer>>,
    resets: Arc<ResetBudget>,
    /// Requests under way.
    requests: Arc<AtomicUsize>,
    /// Of the connection's task, which looks whether there are any.
    connection: Waker,
}

/// One connection and its streams.
struct Http2Connection<'a> {
    shared: Arc<ServerState>,
    frames: Frames<Http2Transport<'a>, Bytes>,
    client: Client,
    timer: Pin<Box<Sleep>>,
    /// Since when no request is under way.
    idle_since: Option<Instant>,
    /// The last bytes of answers waited for the client's windows then.
    was_sending: bool,
    /// The client knows that it gets no further stream.
    leaving: bool,
    served: u64,
    guard: &'a mut ConnectionGuard,
}

impl Connection {
    /// Serves the connection as one of HTTP/2; `unread` was read before that was known.
    pub(super) async fn serve_http2(&mut self) {
        let shared = Arc::clone(&self.shared);
        let client = Client {
            listener: self.listener,
            remote: Arc::clone(&self.remote),
            tls: self.tls.clone(),
            resets: Arc::new(ResetBudget::new(shared.config.limits.http2_resets_max)),
            requests: Arc::default(),
            connection: self.waker.clone(),
        };
        let end_turn = || shared.flush_submitted();
        let transport =
            Http2Transport::new(&mut self.socket, self.unread.take(), &shared, &end_turn);
        let handshake = settings(&shared).handshake(transport);
        // A client that says nothing is closed as one that begins a head and does not end it.
        let shaken = tokio::time::timeout(shared.config.timeouts.header, handshake).await;
        let Ok(Ok(frames)) = shaken else { return };
        let mut connection = Http2Connection {
            shared: Arc::clone(&shared),
            frames,
            client,
            timer: Box::pin(sleep_until(Instant::now().into())),
            idle_since: None,
            was_sending: false,
            leaving: false,
            served: 0,
            guard: &mut self.guard,
        };
        poll_fn(|cx| connection.poll(cx)).await;
    }
}

fn settings(shared: &ServerState) -> Builder {
    let limits = &shared.config.limits;
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(limits.http2_streams_max)
        .max_header_list_size(u32::try_from(limits.header_bytes_max).unwrap_or(u32::MAX))
        .initial_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_send_buffer_size(SEND_BYTES_MAX)
        .max_concurrent_reset_streams(RESETS_MAX)
        .max_pending_accept_reset_streams(RESETS_MAX);
    builder
}

impl Http2Connection<'_> {
    /// Ready when the connection has ended.
    fn poll(&mut self, cx: &mut Context) -> Poll<()> {
        self.shared.exchanges.wake_ready_if_any();
        if self.shared.exchanges.is_draining() {
            self.leave();
        }
        if self.client.resets.is_spent() {
            self.frames.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
        }
        loop {
            match self.frames.poll_accept(cx) {
                Poll::Ready(Some(Ok((request, respond)))) => self.begin(request, respond),
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending if self.client.requests.load(Relaxed) > 0 => {
                    self.idle_since = None;
                    return Poll::Pending;
                }
                Poll::Pending => return self.poll_idle(cx),
            }
        }
    }

    fn begin(&mut self, request: Request<RecvStream>, respond: SendResponse<Bytes>) {
        self.served += 1;
        // From here on its requests count.
        self.guard.served();
        let requests_max = self.shared.config.limits.requests_per_connection_max;
        let is_last = requests_max > 0 && self.served >= requests_max;
        if is_last || self.shared.should_move_connection(Instant::now()) {
            self.leave();
        }
        let (shared, client) = (Arc::clone(&self.shared), self.client.clone());
        tokio::spawn(async move {
            let waker = poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
            Http2Stream::new(shared, client, respond, waker).serve(request).await;
        });
    }

    /// Tells the client to make its next requests elsewhere; those under way are answered.
    fn leave(&mut self) {
        if !self.leaving {
            self.leaving = true;
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
        let time = match (self.leaving, sending) {
            (false, _) => timeouts.idle,
            (true, true) => timeouts.write,
            (true, false) => timeouts.drain_idle,
        };
        let since = *self.idle_since.get_or_insert_with(Instant::now);
        if !self.is_over(since + time, cx) {
            return Poll::Pending;
        }
        if self.leaving {
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
