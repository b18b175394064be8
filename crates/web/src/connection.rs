//! One client connection: read a request, hand it over, send the response, repeat.

mod client_socket;
mod fed;
mod handshake;
mod http2;
mod linger;
mod proxy_header;
mod request_end;
mod send;
mod tls_session;

use std::collections::VecDeque;
use std::future::{poll_fn, Future};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{ready, Context, Poll, Waker};
use std::time::{Duration, Instant};

use tokio::time::{sleep_until, Sleep};

use crate::budget::ConnectionBudget;
use crate::connection_registry::IdleMark;
use crate::error_response::ErrorResponse;
use crate::exchange::Exchange;
use crate::forwarded::Peer;
use crate::head::{BodyFraming, HeadError, Parsed, Version};
use crate::limits::{bytes_min, Limits};
use crate::pending_response::NextOutput;
use crate::proxy_protocol::NoProxyHeader;
use crate::read_buffer::ReadBuffer;
use crate::request_body::{BodyError, BodyReader, RequestBody};
use crate::response_head::EncodedHead;
use crate::send_buffer::{Segment, SpoolWrite};
use crate::server_state::ServerState;
use crate::stats::add;
use crate::streamed_body::{BodyCut, StreamedBody, CONNECTION_ENDED};
use crate::tls::{TlsListener, TlsPeer};
use crate::{head, socket};

use client_socket::ClientSocket;
use linger::Linger;
use request_end::{RequestEnd, CLIENT_LEFT};
use send::{relieve, write_some, SentBytes};

/// How a connection ends.
enum Closing {
    /// At once.
    Now,
    /// After the client had time to read the response: it may still be sending,
    /// and closing then would reset the connection.
    Linger,
    /// The application has the connection: here its socket is closed, but it lives on in its
    /// duplicate, unless the engine encrypts for the application.
    Hijacked,
    /// The client speaks HTTP/2.
    Http2,
    /// After a response by the engine itself. `has_head` says that the head of
    /// the request was read.
    Error { response: ErrorResponse, has_head: bool },
}

struct Connection {
    shared: Arc<ServerState>,
    socket: ClientSocket,
    waker: Waker,
    budget: Arc<ConnectionBudget>,
    /// Key in the registry.
    key: usize,
    idle: Arc<IdleMark>,
    listener: usize,
    remote: Arc<Peer>,
    /// The client of an encrypted connection.
    tls: Option<Arc<TlsPeer>>,
    /// The current request, or the last one, kept for its buffers.
    exchange: Arc<Exchange>,
    /// The exchange was handed over: it needs a reset before the next request.
    used: bool,
    unread: ReadBuffer,
    /// The streamed body of the current request.
    upload: Option<Upload>,
    /// Output that the socket has not taken yet.
    sending: VecDeque<Segment>,
    /// A sent buffer that goes back to the exchange.
    recycled: Vec<u8>,
    /// Requests handed over.
    served: u64,
    /// Bytes of the current response that were sent.
    sent: u64,
    /// When the current request began to arrive, or the connection to idle.
    since: Instant,
    /// When the last response was sent.
    ended_at: Instant,
    /// Dropped last: the connection counts as open until its socket is closed.
    guard: ConnectionGuard,
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
            Some(response) => connection.send_error(response, false).await,
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
        let now = Instant::now();
        Self {
            shared,
            socket,
            waker,
            budget,
            key,
            idle,
            listener,
            remote,
            tls,
            exchange,
            used: false,
            unread: ReadBuffer::default(),
            upload: None,
            sending: VecDeque::new(),
            recycled: Vec::new(),
            served: 0,
            sent: 0,
            since: now,
            ended_at: now,
            guard,
        }
    }

    async fn serve(mut self) {
        if self.socket.is_http2() {
            return Box::pin(http2::serve(&mut self)).await;
        }
        let closing = loop {
            if let Err(closing) = self.serve_one().await {
                break closing;
            }
        };
        match closing {
            Closing::Now => self.socket.say_end(),
            Closing::Hijacked => Box::pin(self.relay()).await,
            Closing::Http2 => Box::pin(http2::serve(&mut self)).await,
            Closing::Linger => self.linger().await,
            Closing::Error { response, has_head } => self.send_error(response, has_head).await,
        }
    }

    async fn serve_one(&mut self) -> Result<(), Closing> {
        self.read_head().await?;
        self.read_body().await?;
        self.dispatch();
        if let Err(closing) = self.send_response().await {
            self.end_unfinished(&closing);
            return Err(closing);
        }
        self.finish_request()
    }

    /// The exchange before it is handed over: the last one, unless another
    /// thread still holds it. Called when the next request arrives and not right
    /// after the response, so that its producer has time to drop it.
    fn exchange_mut(&mut self) -> &mut Exchange {
        let used = std::mem::take(&mut self.used);
        if used && Arc::get_mut(&mut self.exchange).is_none() {
            let (context, remote) = (Arc::clone(&self.shared.exchanges), Arc::clone(&self.remote));
            let fd = self.socket.fd().as_raw_fd();
            let tls = self.tls.clone();
            self.exchange =
                Arc::new(Exchange::new(context, fd, self.listener, remote, tls, &self.budget));
        }
        let exchange = Arc::get_mut(&mut self.exchange)
            .expect("a request that was not handed over has one owner");
        if used {
            exchange.reset();
        }
        exchange
    }

    /// Gives back the memory that an idle connection does not need.
    fn shrink(&mut self) {
        self.exchange_mut().shrink();
        self.sending.shrink_to_fit();
        self.recycled = Vec::new();
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Before the socket is closed: a hijack checks the phase under the lock.
        if self.exchange.close() {
            // A child that the application forked may have a copy of the socket,
            // which would keep the connection open.
            socket::shutdown_write(self.socket.fd());
        }
        self.shared.registry.remove(self.key);
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
    async fn send_error(&mut self, error: ErrorResponse, has_head: bool) {
        let head = self.exchange.head();
        let (version, is_head) = match has_head {
            true => (head.version, head.is_head()),
            false => (Version::Http11, false),
        };
        self.sent = 0;
        self.ended_at = Instant::now();
        self.sending.clear();
        let bytes = error.encode(version, is_head).bytes;
        self.sending.push_back(Segment::Bytes { bytes, at: 0 });
        add(&self.shared.counters.refused, 1);
        self.shared.counters.responded(error.status);
        self.count_response(error.status, false);
        let sent = self.send().await;
        if self.shared.log.is_on() {
            self.ended_at = Instant::now();
            self.log(error.status, error.text.len() as u64 + 1, has_head);
        }
        if sent.is_ok() {
            self.linger().await;
        }
    }

    /// Ends the connection after its last response.
    async fn linger(&mut self) {
        let mut linger = Linger::begin(&mut self.socket);
        // Bodies of refused requests must not pile up while their clients leave.
        if let Some(exchange) = Arc::get_mut(&mut self.exchange) {
            exchange.forget_body();
        }
        poll_fn(|cx| linger.poll(&self.shared, &mut self.socket, cx)).await;
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
        let Some(ours) = self.exchange.response().lock().take_relayed() else { return };
        self.socket.clear_deadline();
        let application = socket::set_nonblocking(&ours).and_then(|()| ClientSocket::new(ours));
        let Ok(application) = application else { return };
        let mut state = RelayState {
            _listed: ListedRelay::new(&self.shared, &application),
            application,
            unread: ReadBuffer::default(),
            client_ended: false,
            application_ended: false,
        };
        self.guard.release();
        let carried = poll_fn(|cx| self.poll_relay(&mut state, cx)).await;
        self.guard = ConnectionGuard::new(Arc::clone(&self.shared));
        self.guard.served();
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
            let has_sent = state.application_ended && !self.socket.has_output();
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
        let shared = Arc::clone(&self.shared);
        let mut scratch = shared.scratch.lock();
        let len = match self.socket.poll_recv(cx, &mut scratch[..PART_BYTES]) {
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
            let time = self.shared.config.timeouts.write;
            let rate = self.shared.exchanges.budget.limits().reply_rate_min;
            self.socket.start_blocked(time);
            if self.socket.is_too_slow(cx, time, rate) {
                return Err(Broken);
            }
        }
        Ok(0)
    }

    /// Carries from the application to the client.
    fn carry_out(&mut self, state: &mut RelayState, cx: &mut Context) -> Result<usize, Broken> {
        match self.socket.poll_flush(cx) {
            Poll::Pending => return self.check_stalled(state, cx),
            Poll::Ready(flushed) => flushed.map_err(|_| Broken)?,
        }
        self.socket.end_output();
        if state.application_ended {
            return Ok(0);
        }
        let shared = Arc::clone(&self.shared);
        let mut scratch = shared.scratch.lock();
        let len = match state.application.poll_recv(cx, &mut scratch[..PART_BYTES]) {
            Poll::Pending => return Ok(0),
            // It was closed with bytes in it that the application has not read.
            Poll::Ready(received) => received.unwrap_or(0),
        };
        if len == 0 {
            state.application_ended = true;
            self.socket.say_end();
            return Ok(1);
        }
        let Some(session) = self.socket.tls_mut() else { return Err(Broken) };
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
    async fn read_head(&mut self) -> Result<(), Closing> {
        let header = self.shared.config.timeouts.header;
        self.since = self.ended_at;
        if self.unread.is_empty() {
            self.shared.idles(&self.idle);
            let config = &self.shared.config;
            let first = config.timeouts.idle.min(config.buffers_idle);
            self.socket.set_deadline(self.since + first);
        } else {
            // Pipelined: the client did not wait for the last response.
            if self.parse_unread()? {
                return Ok(());
            }
            self.socket.set_deadline(self.since + header);
        }
        poll_fn(|cx| self.poll_head(cx)).await
    }

    fn poll_head(&mut self, cx: &mut Context) -> Poll<Result<(), Closing>> {
        self.shared.exchanges.wake_ready_if_any();
        loop {
            match self.poll_head_bytes(cx) {
                Poll::Ready(Ok(true)) => return Poll::Ready(Ok(())),
                Poll::Ready(Ok(false)) => {}
                Poll::Ready(Err(end)) => return Poll::Ready(Err(end)),
                Poll::Pending if self.unread.is_empty() => {
                    ready!(self.poll_idle_over(cx));
                    if !self.socket.has_arrived() {
                        return Poll::Ready(Err(Closing::Now));
                    }
                }
                Poll::Pending if self.socket.poll_expired(cx) => {
                    let text = "The request's head did not arrive in time.";
                    return Poll::Ready(Err(refuse(408, text)));
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
        let timeouts = &self.shared.config.timeouts;
        let mut until = self.since + timeouts.idle;
        if self.shared.exchanges.is_draining() {
            until = until.min(self.since + timeouts.drain_idle);
            self.socket.set_deadline(until);
        }
        while self.socket.poll_expired(cx) {
            if Instant::now() >= until {
                return Poll::Ready(());
            }
            self.shrink();
            self.guard.served();
            self.socket.set_deadline(until);
        }
        Poll::Pending
    }

    /// Reads once; true when the head is complete.
    fn poll_head_bytes(&mut self, cx: &mut Context) -> Poll<Result<bool, Closing>> {
        let shared = Arc::clone(&self.shared);
        let mut scratch = shared.scratch.lock();
        let len = match ready!(self.socket.poll_recv(cx, &mut scratch)) {
            Ok(0) if self.unread.is_empty() => return Poll::Ready(Err(Closing::Now)),
            Ok(0) => {
                let text = "The request ended in the middle of its head.";
                return Poll::Ready(Err(refuse(400, text)));
            }
            Ok(len) => len,
            Err(_) => return Poll::Ready(Err(Closing::Now)),
        };
        add(&shared.counters.read_bytes, len as u64);
        self.idle.set_busy();
        if !self.unread.is_empty() {
            self.unread.push(&scratch[..len]);
            drop(scratch);
            return Poll::Ready(self.parse_unread());
        }
        if self.served == 0 && self.shared.config.http2 && http2::is_preface(&scratch[..len]) {
            self.unread.push(&scratch[..len]);
            return Poll::Ready(Err(Closing::Http2));
        }
        // The usual case: the head is parsed in the scratch buffer without a copy.
        let head = &mut self.exchange_mut().head;
        match head::parse(&scratch[..len], &shared.config.limits, head) {
            Ok(Parsed::Complete(taken)) => {
                if taken < len {
                    self.unread.push(&scratch[taken..len]);
                }
                Poll::Ready(Ok(true))
            }
            Ok(Parsed::Partial) => {
                self.unread.push(&scratch[..len]);
                self.since = Instant::now();
                self.socket.set_deadline(self.since + shared.config.timeouts.header);
                Poll::Ready(Ok(false))
            }
            Err(error) => {
                shared.report_long_head(&self.remote.address, &scratch[..len], error);
                Poll::Ready(Err(malformed(error)))
            }
        }
    }

    /// Parses what was read earlier; true when the head is complete.
    fn parse_unread(&mut self) -> Result<bool, Closing> {
        if self.served == 0 && self.shared.config.http2 && http2::is_preface(self.unread.rest()) {
            return Err(Closing::Http2);
        }
        self.exchange_mut();
        let Self { shared, exchange, unread, remote, .. } = self;
        let Some(exchange) = Arc::get_mut(exchange) else { return Err(Closing::Now) };
        match head::parse(unread.rest(), &shared.config.limits, &mut exchange.head) {
            Ok(Parsed::Complete(taken)) => {
                self.unread.consume(taken);
                Ok(true)
            }
            Ok(Parsed::Partial) => Ok(false),
            Err(error) => {
                shared.report_long_head(&remote.address, unread.rest(), error);
                Err(malformed(error))
            }
        }
    }

    /// Reads the body to its end, so that no Ruby thread waits for a slow client; the
    /// application has asked to wait by itself for those that are streamed.
    async fn read_body(&mut self) -> Result<(), Closing> {
        let framing = self.exchange.head().framing;
        if matches!(framing, BodyFraming::None) {
            return Ok(());
        }
        let exchange = self.exchange_mut();
        let expectation = exchange.head.header("expect");
        if expectation.is_some_and(|it| !it.eq_ignore_ascii_case(b"100-continue")) {
            return Err(refuse_request(
                417,
                "The only expectation this server meets is 100-continue.",
            ));
        }
        let spare = std::mem::take(&mut exchange.body_spare);
        let expects = exchange.head.expect_continue;
        let limits = &self.shared.config.limits;
        let Some(mut reader) =
            BodyReader::new(framing, spare, limits).map_err(|e| self.body_end(&e))?
        else {
            return Ok(());
        };
        if self.shared.config.streams_body(self.exchange.head.get(self.exchange.head.path)) {
            self.begin_upload(reader);
            // A body that came along with its head is complete before the request is handed over.
            poll_fn(|cx| Poll::Ready(self.poll_upload(cx))).await;
            return Ok(());
        }
        self.exchange_mut().begin_body();
        let limits = &self.shared.config.limits;
        reader =
            reader.counted(framing, &self.budget, limits).map_err(|error| self.body_end(&error))?;
        if expects && self.unread.is_empty() {
            // A client that has sent some of its body did not wait for this.
            let bytes = EncodedHead::continued().bytes;
            self.sending.push_back(Segment::Bytes { bytes, at: 0 });
            self.send().await?;
        }
        let mut complete = false;
        while !complete {
            self.socket.set_timeout(self.shared.config.timeouts.body);
            let mut arrived = 0;
            complete = poll_fn(|cx| self.poll_body(cx, &mut reader, &mut arrived)).await?;
            if reader.must_write(complete, &self.shared.config.limits) {
                reader = self.write_body(reader).await?;
            }
        }
        self.exchange_mut().body = reader.finish();
        Ok(())
    }

    /// Writes a part of a large body to its file on a thread of its own, so that a slow
    /// disk stops no other connection.
    async fn write_body(&mut self, mut reader: BodyReader) -> Result<BodyReader, Closing> {
        let written = tokio::task::spawn_blocking(move || reader.write().map(|()| reader)).await;
        // The runtime ends before the thread is done only at a stop.
        let reader = written.map_err(|_| Closing::Now)?;
        reader.map_err(|error| self.body_end(&error))
    }

    /// Reads until the body is complete (true), or as much of it is in memory as may be.
    fn poll_body(
        &mut self,
        cx: &mut Context,
        reader: &mut BodyReader,
        arrived: &mut u64,
    ) -> Poll<Result<bool, Closing>> {
        loop {
            let shared = &*self.shared;
            let limits = &shared.config.limits;
            if !self.unread.is_empty() {
                let (taken, done) =
                    reader.feed(self.unread.rest(), limits).map_err(|e| self.body_end(&e))?;
                self.unread.consume(taken);
                if done || reader.must_write(false, limits) {
                    return Poll::Ready(Ok(done));
                }
                continue;
            }
            let mut scratch = shared.scratch.lock();
            let len = match self.socket.poll_recv(cx, &mut scratch) {
                Poll::Ready(Ok(0)) => {
                    let text = "The request ended in the middle of its body.";
                    return Poll::Ready(Err(refuse_request(400, text)));
                }
                Poll::Ready(Ok(len)) => len,
                Poll::Ready(Err(_)) => return Poll::Ready(Err(Closing::Now)),
                Poll::Pending if self.socket.poll_expired(cx) => {
                    let time = shared.config.timeouts.body;
                    if *arrived < bytes_min(limits.body_rate_min, time) {
                        let text = "The request's body did not arrive in time.";
                        return Poll::Ready(Err(refuse_request(408, text)));
                    }
                    *arrived = 0;
                    self.socket.set_timeout(time);
                    continue;
                }
                Poll::Pending => return Poll::Pending,
            };
            *arrived += len as u64;
            add(&shared.counters.read_bytes, len as u64);
            let (taken, done) =
                reader.feed(&scratch[..len], limits).map_err(|e| self.body_end(&e))?;
            if taken < len {
                self.unread.push(&scratch[taken..len]);
            }
            if done || reader.must_write(false, limits) {
                return Poll::Ready(Ok(done));
            }
        }
    }

    fn body_end(&self, error: &BodyError) -> Closing {
        match error {
            BodyError::TooLarge => refuse_request(413, "The request's body is too large."),
            BodyError::Chunk(error) => refuse_request(error.status(), error.reason()),
            BodyError::Spool(error) => {
                self.shared.feed.warn(&format!(
                    "can't keep the body of {} in a temporary file: {error}; \
                     make room in the directory for temporary files (TMPDIR)",
                    self.exchange.describe()
                ));
                refuse_request(500, "The request's body could not be stored.")
            }
            BodyError::NoRoom => self.unavailable(NO_ROOM),
        }
    }
}

/// The text of a 503 for a body.
const NO_ROOM: &str = "The server holds too much for its clients; try again.";

fn malformed(error: HeadError) -> Closing {
    refuse(error.status(), error.reason())
}

/// Refuses a request whose head could not be read.
fn refuse(status: u16, text: &'static str) -> Closing {
    Closing::Error { response: ErrorResponse::new(status, text), has_head: false }
}

/// Refuses a request whose head was read.
fn refuse_request(status: u16, text: &'static str) -> Closing {
    Closing::Error { response: ErrorResponse::new(status, text), has_head: true }
}

/// How long small writes of a streamed response are gathered after the first one
/// was sent.
const GATHER: Duration = Duration::from_millis(1);

impl Connection {
    /// Hands the request over.
    fn dispatch(&mut self) {
        let now = Instant::now();
        let id = self.shared.next_id();
        self.served += 1;
        self.sent = 0;
        self.since = now;
        let requests_max = self.shared.config.limits.requests_per_connection_max;
        let moves = self.shared.should_move_connection(now);
        let another = requests_max == 0 || self.served < requests_max;
        self.set_request_deadline();
        let unread = match self.exchange.body() {
            // They belong to the body, or to the next request.
            RequestBody::Streamed(_) => ReadBuffer::default(),
            _ => std::mem::take(&mut self.unread),
        };
        let waker = self.waker.clone();
        let exchange = self.exchange_mut();
        let may_keep_alive = another && exchange.head.keep_alive && !moves;
        exchange.dispatch(id, now, may_keep_alive, &waker);
        exchange.response_mut().set_unread(unread);
        self.used = true;
        self.shared.submit(Arc::clone(&self.exchange));
    }

    /// Sets the time by which the response must begin.
    fn set_request_deadline(&mut self) {
        match self.shared.config.timeouts.request {
            Some(time) => self.socket.set_deadline(self.since + time),
            None => self.socket.clear_deadline(),
        }
    }

    /// Of a request whose body is streamed the time begins anew with each part that arrives.
    fn postpone_request_deadline(&mut self) {
        if let Some(time) = self.shared.config.timeouts.request {
            if self.exchange.response().lock().is_waiting() {
                self.socket.set_timeout(time);
            }
        }
    }

    /// Sends the response as it is produced.
    async fn send_response(&mut self) -> Result<(), Closing> {
        let mut gathering = false;
        loop {
            match poll_fn(|cx| self.poll_response(cx, &mut gathering)).await? {
                NextOutput::Send { last } => {
                    if !self.guard.served && !self.exchange.response().lock().is_waiting() {
                        self.guard.served();
                    }
                    let mut sent = self.send().await?;
                    if last {
                        return Ok(());
                    }
                    self.report_sent(&mut sent);
                    gathering = self.after_part();
                }
                NextOutput::Fed { feeder, chunked } => {
                    // In a box, so that other connections need no memory for it.
                    Box::pin(self.feed(feeder, chunked)).await;
                    return Err(Closing::Linger);
                }
                _ => return Ok(()),
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
        self.socket.set_timeout(GATHER);
        true
    }

    /// Ready with [`NextOutput::Send`] or [`NextOutput::Done`].
    fn poll_response(
        &mut self,
        cx: &mut Context,
        gathering: &mut bool,
    ) -> Poll<Result<NextOutput, Closing>> {
        self.shared.exchanges.wake_ready_if_any();
        loop {
            let reading = self.poll_upload(cx);
            let next = self.exchange.response().lock().next_output(&mut self.sending, *gathering);
            let streaming = match next {
                NextOutput::Pending { streaming } => streaming,
                NextOutput::Hijacked => return Poll::Ready(Err(Closing::Hijacked)),
                next => return Poll::Ready(Ok(next)),
            };
            if !streaming
                && self.shared.is_giving_up()
                && self.exchange.response().lock().time_out()
            {
                return Poll::Ready(Err(self.unavailable("The server is stopping; try again.")));
            }
            // Both take the same events of the socket.
            if !reading && self.socket.poll_hung_up(cx) {
                return Poll::Ready(Err(Closing::Now));
            }
            if self.socket.has_ended() {
                self.exchange.note_client_left();
            }
            if !self.socket.poll_expired(cx) {
                return Poll::Pending;
            }
            if streaming {
                *gathering = false;
                self.socket.clear_deadline();
            } else if self.exchange.response().lock().time_out() {
                return Poll::Ready(Err(self.request_timed_out()));
            }
        }
    }

    /// Answers 503 after the request timeout; the Ruby thread goes on.
    fn request_timed_out(&mut self) -> Closing {
        add(&self.shared.counters.late, 1);
        self.shared.feed.report_late(self.exchange.id());
        self.unavailable("The request took too long; try again.")
    }

    fn unavailable(&self, text: &'static str) -> Closing {
        let retry_after_s = self.shared.config.retry_after_s;
        let response = ErrorResponse::new(503, text).retry_after(retry_after_s);
        Closing::Error { response, has_head: true }
    }

    /// Counts the response and decides whether the connection stays open.
    fn finish_request(&mut self) -> Result<(), Closing> {
        self.end_upload();
        let streamed = matches!(self.exchange.body(), RequestBody::Streamed(_));
        let mut response = self.exchange.response().lock();
        let (status, keep_alive) = (response.status(), response.keep_alive());
        let head_bytes = response.head_bytes();
        if response.is_cut() {
            self.socket.mark_cut();
        }
        if !streamed {
            self.unread = response.take_unread();
        }
        response.set_spare(std::mem::take(&mut self.recycled));
        if response.settle() {
            self.exchange.notify_capacity();
        }
        drop(response);
        self.count_and_log(status, head_bytes);
        if keep_alive {
            return Ok(());
        }
        let client_closes = !self.exchange.head().keep_alive
            && self.unread.is_empty()
            && self.exchange.body().is_complete();
        Err(if client_closes { Closing::Now } else { Closing::Linger })
    }

    /// Counts a request whose response was not sent to its end, and decides how the connection ends.
    fn end_unfinished(&mut self, closing: &Closing) {
        let response = self.exchange.response().lock();
        let (status, head_bytes) = (response.status(), response.head_bytes());
        drop(response);
        match closing {
            Closing::Now => {
                self.socket.mark_cut();
                self.count_and_log(if status == 0 { CLIENT_LEFT } else { status }, head_bytes);
            }
            // The status of a full hijack is known to the application alone.
            Closing::Hijacked if status != 0 => self.count_and_log(status, head_bytes),
            _ => {}
        }
    }

    /// Of a response by the application.
    fn count_and_log(&mut self, status: u16, head_bytes: usize) {
        self.ended_at = Instant::now();
        if !self.exchange.was_left_out() {
            self.shared.counters.responded(status);
        }
        self.count_response(status, true);
        if self.shared.log.is_on() {
            self.log(status, self.sent.saturating_sub(head_bytes as u64), true);
        }
    }

    /// Counts a response for the metrics; see [`RequestEnd::count`].
    fn count_response(&self, status: u16, has_waited: bool) {
        self.request_end().count(status, has_waited);
    }

    /// Adds a line to the access log.
    fn log(&self, status: u16, sent: u64, has_head: bool) {
        self.request_end().log(status, sent, has_head);
    }

    fn request_end(&self) -> RequestEnd<'_> {
        RequestEnd {
            shared: &self.shared,
            exchange: &self.exchange,
            remote: &self.remote,
            since: self.since,
            until: self.ended_at,
            was_handed_over: self.used,
        }
    }
}

/// Bytes one connection sends before others are served.
const SEND_TURN_BYTES_MAX: usize = 1024 * 1024;

/// Why sending pauses.
enum Pause {
    /// Everything is sent.
    AtEnd,
    /// The file at the front is not in memory.
    ForDisk,
    /// Memory is short, so that this goes to a file.
    ForRelief(SpoolWrite),
}

impl Connection {
    /// Sends everything in `sending`. Progress of a slow client is reported to the
    /// send buffer meanwhile.
    async fn send(&mut self) -> Result<SentBytes, Closing> {
        let mut sent = SentBytes::default();
        loop {
            match poll_fn(|cx| self.poll_send(cx, &mut sent)).await? {
                Pause::AtEnd => break,
                Pause::ForDisk => self.warm_up(&mut sent).await?,
                Pause::ForRelief(write) => {
                    relieve(&self.exchange, &mut self.sending, write).await;
                }
            }
        }
        Ok(sent)
    }

    fn poll_send(
        &mut self,
        cx: &mut Context,
        sent: &mut SentBytes,
    ) -> Poll<Result<Pause, Closing>> {
        let mut turn = 0;
        while !self.sending.is_empty() || self.socket.has_output() {
            match self.write_some() {
                Ok(Some(some)) => {
                    self.socket.note_progress(some.total());
                    sent.add(some);
                    self.sent += some.total();
                    turn += some.total() as usize;
                    add(&self.shared.counters.sent_bytes, some.total());
                }
                Ok(None) => return Poll::Ready(Ok(Pause::ForDisk)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.report_sent(sent);
                    // The application may wait for the body before it goes on.
                    self.poll_upload(cx);
                    let relief =
                        self.exchange.response().lock().send_buffer.begin_relief(&mut self.sending);
                    if let Some(write) = relief.map_err(|_| Closing::Now)? {
                        return Poll::Ready(Ok(Pause::ForRelief(write)));
                    }
                    if !self.poll_send_again(cx)? {
                        return Poll::Pending;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Poll::Ready(Err(Closing::Now)),
            }
            if turn > SEND_TURN_BYTES_MAX {
                self.report_sent(sent);
                // The IO thread does not sleep now, so this does its other work.
                self.shared.flush_submitted();
                self.shared.exchanges.wake_ready_if_any();
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
        self.socket.end_output();
        Poll::Ready(Ok(Pause::AtEnd))
    }

    /// Sends with one system call; `None`: the file at the front is not in memory.
    fn write_some(&mut self) -> io::Result<Option<SentBytes>> {
        let Self { socket, sending, recycled, shared, .. } = self;
        let Some(session) = socket.tls_mut() else {
            return write_some(socket.fd(), sending, recycled);
        };
        let mut sent = SentBytes::default();
        if !session.has_output() {
            match session.encrypt_segments(sending, recycled, &mut shared.scratch.lock())? {
                Some(encrypted) => sent = encrypted,
                None => return Ok(None),
            }
        }
        match socket.send_output() {
            // The bytes are in the hands of the session.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && sent.total() > 0 => {}
            done => done?,
        }
        Ok(Some(sent))
    }

    /// Has the file at the front read into memory.
    async fn warm_up(&mut self, sent: &mut SentBytes) -> Result<(), Closing> {
        self.report_sent(sent);
        match self.sending.front_mut().and_then(Segment::file_range) {
            Some(range) => range.warm_up().await.map_err(|_| Closing::Now),
            None => Ok(()),
        }
    }

    /// Called when the socket is full; true when it takes more after all.
    fn poll_send_again(&mut self, cx: &mut Context) -> Result<bool, Closing> {
        self.socket.start_blocked(self.shared.config.timeouts.write);
        match self.socket.poll_writable(cx) {
            Poll::Ready(Ok(())) => Ok(true),
            Poll::Ready(Err(_)) => Err(Closing::Now),
            Poll::Pending => {
                let time = self.shared.config.timeouts.write;
                let rate = self.shared.exchanges.budget.limits().reply_rate_min;
                match self.socket.is_too_slow(cx, time, rate) {
                    true => Err(Closing::Now),
                    false => Ok(false),
                }
            }
        }
    }

    /// Reports sent bytes to the send buffer, so that a waiting producer may go on.
    fn report_sent(&mut self, sent: &mut SentBytes) {
        let sent = std::mem::take(sent);
        let limits = &self.shared.config.limits;
        let mut response = self.exchange.response().lock();
        if response.sent(sent.memory, sent.spooled, &mut self.recycled, limits) {
            drop(response);
            self.exchange.notify_capacity();
        }
    }
}

/// Bytes one connection reads before others are served.
const TURN_BYTES_MAX: usize = 1024 * 1024;

/// A streamed body that has not arrived to its end.
struct Upload {
    body: Arc<StreamedBody>,
    reader: BodyReader,
    /// The client waits for 100 Continue.
    expects: bool,
    /// Bytes that arrived in the current [`Timeouts::body`](crate::limits::Timeouts::body).
    arrived: u64,
    timer: Pin<Box<Sleep>>,
    /// The time counts: the client, and not the application, is waited for.
    timed: bool,
}

enum UploadState {
    /// It waits for the client.
    Waiting,
    /// It waits for the application.
    Full,
    Complete,
}

impl Upload {
    fn feed(&mut self, input: &[u8], limits: &Limits) -> Result<(usize, bool), BodyCut> {
        let fed = self.reader.feed(input, limits);
        // Also what comes before a fault.
        self.body.fill(|bytes| self.reader.hand_out(bytes));
        fed.map_err(|error| cut(&error))
    }

    fn is_late(&mut self, cx: &mut Context, time: Duration, rate_min: u64) -> bool {
        if self.expects {
            return false;
        }
        if !self.timed {
            self.timed = true;
            self.restart_timer(time);
        }
        while self.timer.as_mut().poll(cx).is_ready() {
            if self.arrived < bytes_min(rate_min, time) {
                return true;
            }
            self.restart_timer(time);
        }
        false
    }

    fn restart_timer(&mut self, time: Duration) {
        self.arrived = 0;
        self.timer.as_mut().reset((Instant::now() + time).into());
    }
}

impl Connection {
    /// Lets the body of the current request, read with `reader`, be streamed.
    fn begin_upload(&mut self, reader: BodyReader) {
        let bytes_max = self.shared.config.limits.stream_body_bytes_max;
        let body = Arc::new(StreamedBody::new(bytes_max, self.waker.clone()));
        let exchange = self.exchange_mut();
        exchange.body = RequestBody::Streamed(Arc::clone(&body));
        let expects = exchange.head.expect_continue;
        let timer = Box::pin(sleep_until(Instant::now().into()));
        self.upload = Some(Upload { body, reader, expects, arrived: 0, timer, timed: false });
    }

    /// Reads as much of a streamed body as has arrived and as there is room for. True when the
    /// task is woken by what the client sends next, also by its end.
    fn poll_upload(&mut self, cx: &mut Context) -> bool {
        let Some(mut upload) = self.upload.take() else { return false };
        match self.read_upload(&mut upload, cx) {
            Ok(UploadState::Complete) => upload.body.end(Ok(())),
            Ok(state) => {
                self.upload = Some(upload);
                return matches!(state, UploadState::Waiting);
            }
            Err(cut) => upload.body.end(Err(cut)),
        }
        false
    }

    fn read_upload(
        &mut self,
        upload: &mut Upload,
        cx: &mut Context,
    ) -> Result<UploadState, BodyCut> {
        let shared = Arc::clone(&self.shared);
        let config = &shared.config;
        let mut turn = 0;
        loop {
            let room = upload.body.room();
            if room == 0 {
                upload.timed = false;
                return Ok(UploadState::Full);
            }
            if !self.unread.is_empty() {
                upload.expects = false;
                let rest = self.unread.rest();
                let (taken, done) = upload.feed(&rest[..rest.len().min(room)], &config.limits)?;
                self.unread.consume(taken);
                if done {
                    return Ok(UploadState::Complete);
                }
                continue;
            }
            if upload.expects && upload.body.is_wanted() {
                upload.expects = false;
                self.exchange.interim(EncodedHead::continued());
            }
            let mut scratch = shared.scratch.lock();
            let len = scratch.len().min(room);
            let len = match self.socket.poll_recv(cx, &mut scratch[..len]) {
                Poll::Ready(Ok(len)) if len > 0 => len,
                Poll::Ready(_) => return Err(CONNECTION_ENDED),
                Poll::Pending => {
                    drop(scratch);
                    if upload.is_late(cx, config.timeouts.body, config.limits.body_rate_min) {
                        return Err(BodyCut("the request's body did not arrive in time"));
                    }
                    return Ok(UploadState::Waiting);
                }
            };
            upload.expects = false;
            upload.arrived += len as u64;
            turn += len;
            add(&shared.counters.read_bytes, len as u64);
            let (taken, done) = upload.feed(&scratch[..len], &config.limits)?;
            if taken < len {
                self.unread.push(&scratch[taken..len]);
            }
            drop(scratch);
            self.postpone_request_deadline();
            if done {
                return Ok(UploadState::Complete);
            }
            if turn > TURN_BYTES_MAX {
                // The IO thread does not sleep now, so this does its other work.
                shared.flush_submitted();
                shared.exchanges.wake_ready_if_any();
                cx.waker().wake_by_ref();
                return Ok(UploadState::Waiting);
            }
        }
    }

    /// The response has ended: what is missing of the body has no reader any more.
    fn end_upload(&mut self) {
        if let Some(upload) = self.upload.take() {
            upload.body.end(Err(CONNECTION_ENDED));
        }
    }
}

fn cut(error: &BodyError) -> BodyCut {
    match error {
        BodyError::TooLarge => BodyCut("the request's body is too large"),
        BodyError::Chunk(error) => BodyCut(error.reason()),
        BodyError::Spool(_) | BodyError::NoRoom => {
            BodyCut("the request's body could not be stored")
        }
    }
}
