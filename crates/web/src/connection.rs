//! One client connection: read a request, hand it over, send the response, repeat.

mod client_socket;
mod close;
mod handshake;
mod http2;
mod proxy_header;
pub(crate) mod relay;
mod request;
mod request_end;
mod respond;
mod send;
mod tls_session;
mod upload;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Instant;

use crate::budget::ConnectionBudget;
use crate::connection_registry::IdleMark;
use crate::error_response::ErrorResponse;
use crate::exchange::Exchange;
use crate::forwarded::Peer;
use crate::proxy_protocol::NoProxyHeader;
use crate::read_buffer::ReadBuffer;
use crate::send_buffer::Segment;
use crate::server_state::ServerState;
use crate::socket;
use crate::stats::add;
use crate::tls::{TlsListener, TlsPeer};

use client_socket::ClientSocket;
use upload::Upload;

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
            since: Instant::now(),
            guard,
        }
    }

    async fn serve(mut self) {
        if self.socket.is_http2() {
            return Box::pin(self.serve_http2()).await;
        }
        let closing = loop {
            if let Err(closing) = self.serve_one().await {
                break closing;
            }
        };
        match closing {
            Closing::Now => self.socket.say_end(),
            Closing::Hijacked => Box::pin(self.relay()).await,
            Closing::Http2 => Box::pin(self.serve_http2()).await,
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
