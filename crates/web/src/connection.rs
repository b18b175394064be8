//! One client connection: read a request, hand it over, send the response, repeat.

mod body_clock;
mod client_socket;
mod handshake;
mod http1;
mod http2;
mod linger;
mod proxy_header;
mod refusal;
mod request_end;
mod request_task;
mod send;
mod timer;
mod tls_session;
mod window;

use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::task::{ready, Context, Poll, Waker};
use std::time::Instant;

use crate::budget::ConnectionBudget;
use crate::connection_registry::IdleMark;
use crate::exchange::Exchange;
use crate::forwarded::Peer;
use crate::head::{Parsed, Version};
use crate::proxy_protocol::NoProxyHeader;
use crate::read_buffer::ReadBuffer;
use crate::request_body::RequestBody;
use crate::send_buffer::Segment;
use crate::server_state::ServerState;
use crate::stats::add;
use crate::tls::{TlsListener, TlsPeer};
use crate::{head, socket};

use client_socket::ClientSocket;
use http1::Http1;
use linger::Linger;
use refusal::{Refusal, Stop};
use request_end::CLIENT_LEFT;
use request_task::{RequestTask, Wire};
use timer::Timer;

/// A connection that speaks HTTP/1, or that has not said yet what it speaks.
struct Connection {
    /// The current request, or the last one.
    task: RequestTask<Http1>,
    /// Key in the registry.
    key: usize,
    idle: Arc<IdleMark>,
    listener: usize,
    /// The client of an encrypted connection.
    tls: Option<Arc<TlsPeer>>,
    /// Requests handed over.
    served: u64,
    /// When the last response was sent.
    ended_at: Instant,
}

/// Serves an accepted connection on a task of its own.
pub(crate) fn spawn(
    shared: Arc<ServerState>,
    socket: OwnedFd,
    listener: usize,
    remote: Option<IpAddr>,
    tls: Option<Arc<TlsListener>>,
) {
    let guard = ConnectionGuard::new(Arc::clone(&shared));
    tokio::spawn(async move {
        let waker = poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
        // A socket that the event loop refuses can only be closed.
        let Ok(mut socket) = ClientSocket::new(socket) else { return };
        let mut header = None;
        if let Some(bind) = shared.config.proxy_protocol.iter().find(|it| it.listener == listener) {
            match Box::pin(proxy_header::read(&shared, &mut socket, bind, remote)).await {
                Ok(read) => header = Some(read),
                Err(NoProxyHeader) => return add(&shared.counters.refused, 1),
            }
        }
        let remote = Arc::new(Peer::new(&shared.config.forwarded, remote, header));
        let mut peer = None;
        let mut refused = None;
        if let Some(tls) = tls {
            // In a box, so that plain connections need no memory for it.
            match Box::pin(handshake::shake_hands(&shared, &mut socket, &tls)).await {
                Ok(shaken) => peer = Some(shaken),
                Err(failure) => match failure.response() {
                    Some(response) => refused = Some(response),
                    None => return,
                },
            }
        }
        let mut connection = Connection::new(shared, guard, socket, waker, listener, remote, peer);
        match refused {
            Some(response) => connection.refuse(&Refusal { response, has_head: false }).await,
            None => connection.serve().await,
        }
    });
}

impl Connection {
    fn new(
        shared: Arc<ServerState>,
        guard: ConnectionGuard,
        socket: ClientSocket,
        waker: Waker,
        listener: usize,
        remote: Arc<Peer>,
        tls: Option<Arc<TlsPeer>>,
    ) -> Self {
        let idle = Arc::<IdleMark>::default();
        let key = shared.registry.insert(waker.clone(), Some(&idle));
        let context = Arc::clone(&shared.exchanges);
        let fd = socket.fd().as_raw_fd();
        let budget = ConnectionBudget::new(&context.budget, None);
        let (client, peer) = (Arc::clone(&remote), tls.clone());
        let exchange = Arc::new(Exchange::new(context, fd, listener, client, peer, &budget));
        let wire = Http1 { socket, unread: ReadBuffer::default(), guard };
        let task = RequestTask::new(shared, waker, remote, budget, exchange, wire);
        let ended_at = task.since;
        Self { task, key, idle, listener, tls, served: 0, ended_at }
    }

    async fn serve(&mut self) {
        if self.task.wire.socket.is_http2() {
            return Box::pin(http2::serve(self)).await;
        }
        let stop = loop {
            if let Err(stop) = self.serve_one().await {
                break stop;
            }
        };
        match stop {
            Stop::Hijacked => Box::pin(self.relay()).await,
            Stop::Http2 => Box::pin(http2::serve(self)).await,
            Stop::Linger => self.linger().await,
            Stop::Refused(refusal) => self.refuse(&refusal).await,
            Stop::Gone | Stop::Cut | Stop::NeedsHttp1 | Stop::NoRoom => {
                self.task.wire.socket.say_end();
            }
        }
    }

    async fn serve_one(&mut self) -> Result<(), Stop> {
        self.read_head().await?;
        self.task.read_body().await?;
        self.dispatch();
        if let Err(stop) = self.task.send_response().await {
            self.end_unfinished(&stop);
            return Err(stop);
        }
        self.finish_request()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Before the socket is closed: a hijack checks the phase under the lock.
        if self.task.exchange.close() {
            // A child that the application forked may have a copy of the socket,
            // which would keep the connection open.
            socket::shutdown_write(self.task.wire.socket.fd());
        }
        self.task.shared.registry.remove(self.key);
    }
}

/// Counts a connection as open until it is dropped.
struct ConnectionGuard {
    shared: Arc<ServerState>,
    /// It counts no longer.
    released: bool,
    /// A response has begun, or the connection has idled: it is no longer about to bring
    /// work.
    served: bool,
}

impl ConnectionGuard {
    fn new(shared: Arc<ServerState>) -> Self {
        shared.connection_opened();
        Self { shared, released: false, served: false }
    }

    /// Counts the connection as closed, which the application has now.
    fn release(&mut self) {
        if !std::mem::replace(&mut self.released, true) {
            self.shared.connection_closed(self.served);
        }
    }

    /// See the field.
    fn served(&mut self) {
        if !std::mem::replace(&mut self.served, true) {
            self.shared.connection_served();
        }
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            add(&self.shared.counters.panics, 1);
        }
        self.release();
    }
}

impl Connection {
    /// Sends the engine's own response and ends the connection.
    async fn refuse(&mut self, refusal: &Refusal) {
        let head = self.task.exchange.head();
        let (version, is_head) = match refusal.has_head {
            true => (head.version, head.is_head()),
            false => (Version::Http11, false),
        };
        let bytes = refusal.response.encode(version, is_head).bytes;
        self.ended_at = Instant::now();
        self.task.sending.clear();
        self.task.sending.push_back(Segment::Bytes { bytes, at: 0 });
        self.task.end(self.ended_at).refused(refusal);
        let sent = Http1::send(&mut self.task, true).await;
        self.ended_at = Instant::now();
        self.task.end(self.ended_at).log_refused(refusal);
        if sent.is_ok() {
            self.linger().await;
        }
    }

    /// Ends the connection after its last response.
    async fn linger(&mut self) {
        let RequestTask { shared, exchange, wire, .. } = &mut self.task;
        let mut linger = Linger::begin(&mut wire.socket);
        // Bodies of refused requests must not pile up while their clients leave.
        if let Some(exchange) = Arc::get_mut(exchange) {
            exchange.forget_body();
        }
        poll_fn(|cx| linger.poll(shared, &mut wire.socket, cx)).await;
    }
}

/// Bytes carried at once in one direction.
const PART_BYTES: usize = 16 * 1024;
/// Bytes one connection carries before others are served.
const RELAY_TURN_BYTES_MAX: usize = 1024 * 1024;

/// The application's side of a relay.
struct RelayState {
    /// Dropped before the socket that it is of.
    _listed: ListedRelay,
    application: ClientSocket,
    /// Bytes of the client that the application has not taken yet.
    unread: ReadBuffer,
    /// The client sends nothing more.
    client_ended: bool,
    /// The application sends nothing more.
    application_ended: bool,
}

/// One of the two sides can't go on.
struct Broken;

/// A relay in the list of all.
struct ListedRelay {
    shared: Arc<ServerState>,
    fd: RawFd,
}

impl ListedRelay {
    fn new(shared: &Arc<ServerState>, application: &ClientSocket) -> Self {
        let fd = application.fd().as_raw_fd();
        shared.relays.add(fd);
        Self { shared: Arc::clone(shared), fd }
    }
}

impl Drop for ListedRelay {
    fn drop(&mut self) {
        self.shared.relays.remove(self.fd);
        self.shared.all_closed.changed();
    }
}

impl Connection {
    /// Carries bytes until both sides have ended. Meanwhile the connection does not count: the
    /// application has it, and bounds how many it takes.
    async fn relay(&mut self) {
        let Some(ours) = self.task.exchange.response().lock().take_relayed() else { return };
        self.task.wire.socket.set_deadline(None);
        let application = socket::set_nonblocking(&ours).and_then(|()| ClientSocket::new(ours));
        let Ok(application) = application else { return };
        let mut state = RelayState {
            _listed: ListedRelay::new(&self.task.shared, &application),
            application,
            unread: ReadBuffer::default(),
            client_ended: false,
            application_ended: false,
        };
        self.task.wire.guard.release();
        let carried = poll_fn(|cx| self.poll_relay(&mut state, cx)).await;
        self.task.wire.guard = ConnectionGuard::new(Arc::clone(&self.task.shared));
        self.task.wire.guard.served();
        drop(state);
        if carried.is_ok() {
            self.linger().await;
        }
    }

    fn poll_relay(&mut self, state: &mut RelayState, cx: &mut Context) -> Poll<Result<(), Broken>> {
        let mut turn = 0;
        loop {
            let inwards = self.carry_in(state, cx)?;
            let outwards = self.carry_out(state, cx)?;
            let has_sent = state.application_ended && !self.task.wire.socket.has_output();
            // An application that has closed its end takes nothing more either.
            if has_sent && (state.client_ended || state.application.poll_hung_up(cx)) {
                return Poll::Ready(Ok(()));
            }
            turn += inwards + outwards;
            if turn > RELAY_TURN_BYTES_MAX {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            if inwards + outwards == 0 {
                return Poll::Pending;
            }
        }
    }

    /// Carries from the client to the application; 0 when the task is woken as soon as it can go on.
    fn carry_in(&mut self, state: &mut RelayState, cx: &mut Context) -> Result<usize, Broken> {
        if !state.unread.is_empty() {
            let taken = give(&mut state.application, state.unread.rest(), cx)?;
            state.unread.consume(taken);
            return Ok(taken);
        }
        if state.client_ended {
            return Ok(0);
        }
        let shared = Arc::clone(&self.task.shared);
        let mut scratch = shared.scratch.lock();
        let len = match self.task.wire.socket.poll_recv(cx, &mut scratch[..PART_BYTES]) {
            Poll::Pending => return Ok(0),
            Poll::Ready(Err(_)) => return Err(Broken),
            Poll::Ready(Ok(len)) => len,
        };
        if len == 0 {
            state.client_ended = true;
            socket::shutdown_write(state.application.fd());
        }
        state.unread.push(&scratch[..len]);
        Ok(len)
    }

    /// The client takes nothing now. An application that has closed its end can't give such a client up, so that is
    /// done here after the time that a response has.
    fn check_stalled(&mut self, state: &mut RelayState, cx: &mut Context) -> Result<usize, Broken> {
        if state.application.poll_hung_up(cx) {
            let time = self.task.shared.config.timeouts.write;
            let rate = self.task.shared.exchanges.budget.limits().reply_rate_min;
            self.task.wire.socket.start_blocked(time);
            if self.task.wire.socket.is_too_slow(cx, time, rate) {
                return Err(Broken);
            }
        }
        Ok(0)
    }

    /// Carries from the application to the client.
    fn carry_out(&mut self, state: &mut RelayState, cx: &mut Context) -> Result<usize, Broken> {
        match self.task.wire.socket.poll_flush(cx) {
            Poll::Pending => return self.check_stalled(state, cx),
            Poll::Ready(flushed) => flushed.map_err(|_| Broken)?,
        }
        self.task.wire.socket.end_output();
        if state.application_ended {
            return Ok(0);
        }
        let shared = Arc::clone(&self.task.shared);
        let mut scratch = shared.scratch.lock();
        let len = match state.application.poll_recv(cx, &mut scratch[..PART_BYTES]) {
            Poll::Pending => return Ok(0),
            // It was closed with bytes in it that the application has not read.
            Poll::Ready(received) => received.unwrap_or(0),
        };
        if len == 0 {
            state.application_ended = true;
            self.task.wire.socket.say_end();
            return Ok(1);
        }
        let Some(session) = self.task.wire.socket.tls_mut() else { return Err(Broken) };
        // All that was encrypted before is sent, so there is room for a part.
        match session.encrypt(&scratch[..len]) {
            Ok(taken) if taken == len => Ok(len),
            _ => Err(Broken),
        }
    }
}

/// Gives the application bytes; 0 when it takes none now, and the task is woken when it does.
fn give(application: &mut ClientSocket, bytes: &[u8], cx: &mut Context) -> Result<usize, Broken> {
    loop {
        match socket::send(application.fd(), bytes) {
            Ok(len) => return Ok(len),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                application.clear_writable();
                match application.poll_writable(cx) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(_)) => return Err(Broken),
                    Poll::Pending => return Ok(0),
                }
            }
            Err(_) => return Err(Broken),
        }
    }
}

impl Connection {
    /// Waits for a request and reads its head. The bytes behind it are in `unread`.
    async fn read_head(&mut self) -> Result<(), Stop> {
        let header = self.task.shared.config.timeouts.header;
        self.task.since = self.ended_at;
        if self.task.wire.unread.is_empty() {
            self.task.shared.idles(&self.idle);
            let config = &self.task.shared.config;
            let first = config.timeouts.idle.min(config.buffers_idle);
            self.task.wire.socket.set_deadline(Some(self.task.since + first));
        } else {
            // Pipelined: the client did not wait for the last response.
            if self.parse_unread()? {
                return Ok(());
            }
            self.task.wire.socket.set_deadline(Some(self.task.since + header));
        }
        poll_fn(|cx| self.poll_head(cx)).await
    }

    fn poll_head(&mut self, cx: &mut Context) -> Poll<Result<(), Stop>> {
        self.task.shared.exchanges.wake_ready_if_any();
        loop {
            match self.poll_head_bytes(cx) {
                Poll::Ready(Ok(true)) => return Poll::Ready(Ok(())),
                Poll::Ready(Ok(false)) => {}
                Poll::Ready(Err(end)) => return Poll::Ready(Err(end)),
                Poll::Pending if self.task.wire.unread.is_empty() => {
                    ready!(self.poll_idle_over(cx));
                    if !self.task.wire.socket.has_arrived() {
                        return Poll::Ready(Err(Stop::Gone));
                    }
                }
                Poll::Pending if self.task.wire.socket.poll_expired(cx) => {
                    let text = "The request's head did not arrive in time.";
                    return Poll::Ready(Err(Refusal::unread(408, text).into()));
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Ready when a connection without a request has idled long enough, or is to make room.
    fn poll_idle_over(&mut self, cx: &mut Context) -> Poll<()> {
        if self.idle.must_close() {
            return Poll::Ready(());
        }
        let timeouts = &self.task.shared.config.timeouts;
        let mut until = self.task.since + timeouts.idle;
        if self.task.shared.exchanges.is_draining() {
            until = until.min(self.task.since + timeouts.drain_idle);
            self.task.wire.socket.set_deadline(Some(until));
        }
        while self.task.wire.socket.poll_expired(cx) {
            if Instant::now() >= until {
                return Poll::Ready(());
            }
            self.task.shrink();
            self.task.wire.guard.served();
            self.task.wire.socket.set_deadline(Some(until));
        }
        Poll::Pending
    }

    /// Reads once; true when the head is complete.
    fn poll_head_bytes(&mut self, cx: &mut Context) -> Poll<Result<bool, Stop>> {
        let shared = Arc::clone(&self.task.shared);
        let mut scratch = shared.scratch.lock();
        let len = match ready!(self.task.wire.socket.poll_recv(cx, &mut scratch)) {
            Ok(0) if self.task.wire.unread.is_empty() => return Poll::Ready(Err(Stop::Gone)),
            Ok(0) => {
                let text = "The request ended in the middle of its head.";
                return Poll::Ready(Err(Refusal::unread(400, text).into()));
            }
            Ok(len) => len,
            Err(_) => return Poll::Ready(Err(Stop::Gone)),
        };
        add(&shared.counters.read_bytes, len as u64);
        self.idle.set_busy();
        if !self.task.wire.unread.is_empty() {
            self.task.wire.unread.push(&scratch[..len]);
            drop(scratch);
            return Poll::Ready(self.parse_unread());
        }
        if self.served == 0 && self.task.shared.config.http2 && http2::is_preface(&scratch[..len]) {
            self.task.wire.unread.push(&scratch[..len]);
            return Poll::Ready(Err(Stop::Http2));
        }
        // The usual case: the head is parsed in the scratch buffer without a copy.
        let head = &mut self.task.next_exchange().head;
        match head::parse(&scratch[..len], &shared.config.limits, head) {
            Ok(Parsed::Complete(taken)) => {
                if taken < len {
                    self.task.wire.unread.push(&scratch[taken..len]);
                }
                Poll::Ready(Ok(true))
            }
            Ok(Parsed::Partial) => {
                self.task.wire.unread.push(&scratch[..len]);
                self.task.since = Instant::now();
                let until = self.task.since + shared.config.timeouts.header;
                self.task.wire.socket.set_deadline(Some(until));
                Poll::Ready(Ok(false))
            }
            Err(error) => {
                shared.report_long_head(&self.task.remote.address, &scratch[..len], error);
                Poll::Ready(Err(Refusal::of_head(error).into()))
            }
        }
    }

    /// Parses what was read earlier; true when the head is complete.
    fn parse_unread(&mut self) -> Result<bool, Stop> {
        if self.served == 0
            && self.task.shared.config.http2
            && http2::is_preface(self.task.wire.unread.rest())
        {
            return Err(Stop::Http2);
        }
        self.task.next_exchange();
        let RequestTask { shared, exchange, wire: Http1 { unread, .. }, remote, .. } =
            &mut self.task;
        let Some(exchange) = Arc::get_mut(exchange) else { return Err(Stop::Gone) };
        match head::parse(unread.rest(), &shared.config.limits, &mut exchange.head) {
            Ok(Parsed::Complete(taken)) => {
                unread.consume(taken);
                Ok(true)
            }
            Ok(Parsed::Partial) => Ok(false),
            Err(error) => {
                shared.report_long_head(&remote.address, unread.rest(), error);
                Err(Refusal::of_head(error).into())
            }
        }
    }

    /// Hands the request over.
    fn dispatch(&mut self) {
        let now = Instant::now();
        self.served += 1;
        let requests_max = self.task.shared.config.limits.requests_per_connection_max;
        let moves = self.task.shared.should_move_connection(now);
        let another = requests_max == 0 || self.served < requests_max;
        let unread = match self.task.exchange.body() {
            // They belong to the body, or to the next request.
            RequestBody::Streamed(_) => ReadBuffer::default(),
            _ => std::mem::take(&mut self.task.wire.unread),
        };
        let exchange = self.task.exchange_mut();
        exchange.response_mut().set_unread(unread);
        let may_keep_alive = another && exchange.head.keep_alive && !moves;
        self.task.dispatch(now, may_keep_alive);
    }

    /// Counts the response and decides whether the connection stays open.
    fn finish_request(&mut self) -> Result<(), Stop> {
        self.task.end_upload();
        let RequestTask { exchange, wire, recycled, .. } = &mut self.task;
        let streamed = matches!(exchange.body(), RequestBody::Streamed(_));
        let mut response = exchange.response().lock();
        let (status, keep_alive) = (response.status(), response.keep_alive());
        let head_bytes = response.head_bytes();
        if response.is_cut() {
            wire.socket.mark_cut();
        }
        if !streamed {
            wire.unread = response.take_unread();
        }
        response.set_spare(std::mem::take(recycled));
        if response.settle() {
            exchange.notify_capacity();
        }
        drop(response);
        self.answered(status, head_bytes);
        if keep_alive {
            return Ok(());
        }
        let client_closes = !self.task.exchange.head().keep_alive
            && self.task.wire.unread.is_empty()
            && self.task.exchange.body().is_complete();
        Err(if client_closes { Stop::Gone } else { Stop::Linger })
    }

    /// Counts a request whose response was not sent to its end.
    fn end_unfinished(&mut self, stop: &Stop) {
        let response = self.task.exchange.response().lock();
        let (status, head_bytes) = (response.status(), response.head_bytes());
        drop(response);
        match stop {
            Stop::Gone | Stop::Cut => {
                self.task.wire.socket.mark_cut();
                self.answered(if status == 0 { CLIENT_LEFT } else { status }, head_bytes);
            }
            // The status of a full hijack is known to the application alone.
            Stop::Hijacked if status != 0 => self.answered(status, head_bytes),
            _ => {}
        }
    }

    /// Counts and logs a response by the application.
    fn answered(&mut self, status: u16, head_bytes: usize) {
        self.ended_at = Instant::now();
        let sent = self.task.sent.saturating_sub(head_bytes as u64);
        self.task.end(self.ended_at).answered(status, sent);
    }
}
