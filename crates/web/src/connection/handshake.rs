//! The TLS handshake, before the first request.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{ready, Context, Poll};
use std::time::Instant;

use crate::error_response::ErrorResponse;
use crate::server_state::ServerState;
use crate::stats::add;
use crate::tls::{TlsListener, TlsPeer};

use super::client_socket::ClientSocket;
use super::linger::Linger;
use super::timer::Timer;
use super::tls_session::{begins_http, TlsSession};

/// How a handshake failed.
pub(super) enum HandshakeFailure {
    /// The client is gone or too slow.
    Closed,
    /// What it has sent is wrong, or does not agree with us. An alert says so.
    Refused,
    /// The client speaks HTTP without TLS.
    PlainHttp,
}

impl HandshakeFailure {
    /// The answer in plain HTTP, to a client that can read it.
    pub fn response(self) -> Option<ErrorResponse> {
        let text = "This port speaks HTTPS: write https:// in front of the address.";
        matches!(self, Self::PlainHttp).then(|| ErrorResponse::new(400, text))
    }
}

/// A handshake under way. It counts until it is dropped.
struct Handshake<'a> {
    shared: &'a ServerState,
    /// Number among the handshakes.
    number: u64,
    /// Key in the registry, by which a drain wakes it.
    key: usize,
    since: Instant,
    first: Option<u8>,
}

impl Drop for Handshake<'_> {
    fn drop(&mut self) {
        self.shared.handshakes.end(self.number);
        self.shared.registry.remove(self.key);
    }
}

/// Agrees with the client on the keys of a connection; its socket is encrypted from then on.
pub(super) async fn shake_hands(
    shared: &Arc<ServerState>,
    socket: &mut ClientSocket,
    listener: &Arc<TlsListener>,
) -> Result<Arc<TlsPeer>, HandshakeFailure> {
    let waker = poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
    let number = shared.handshakes.begin(waker.clone(), shared.config.limits.tls_handshakes_max);
    let key = shared.registry.insert(waker, None);
    let mut handshake = Handshake { shared, number, key, since: Instant::now(), first: None };
    let session = TlsSession::new(listener.config()).map_err(|_| HandshakeFailure::Closed)?;
    socket.set_tls(Some(Box::new(session)));
    let shaken = poll_fn(|cx| handshake.poll(socket, cx)).await;
    let counters = &shared.counters;
    add(if shaken.is_ok() { &counters.tls_handshakes } else { &counters.tls_failures }, 1);
    if let Err(failure) = &shaken {
        socket.set_tls(None);
        if matches!(failure, HandshakeFailure::Refused) {
            let mut linger = Linger::begin(socket);
            poll_fn(|cx| match shared.handshakes.is_open(number) {
                true => linger.poll(shared, socket, cx),
                false => Poll::Ready(()),
            })
            .await;
        }
    }
    shaken?;
    let session = socket.tls_mut();
    let certificate = session.and_then(|session| session.peer_certificate()).map(<[u8]>::to_vec);
    Ok(Arc::new(TlsPeer { certificate }))
}

impl Handshake<'_> {
    fn poll(
        &mut self,
        socket: &mut ClientSocket,
        cx: &mut Context,
    ) -> Poll<Result<(), HandshakeFailure>> {
        if !self.shared.handshakes.is_open(self.number) {
            return Poll::Ready(Err(HandshakeFailure::Closed));
        }
        match self.poll_messages(socket, cx) {
            Poll::Pending if self.is_late(socket, cx) => Poll::Ready(Err(HandshakeFailure::Closed)),
            shaken => shaken,
        }
    }

    fn poll_messages(
        &mut self,
        socket: &mut ClientSocket,
        cx: &mut Context,
    ) -> Poll<Result<(), HandshakeFailure>> {
        loop {
            ready!(socket.poll_flush(cx)).map_err(|_| HandshakeFailure::Closed)?;
            match ready!(socket.poll_handshake(cx, &mut self.first)) {
                Ok(true) => return Poll::Ready(Ok(())),
                Ok(false) => {}
                Err(_) if self.first.is_some_and(begins_http) => {
                    return Poll::Ready(Err(HandshakeFailure::PlainHttp));
                }
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    return Poll::Ready(Err(HandshakeFailure::Refused));
                }
                Err(_) => return Poll::Ready(Err(HandshakeFailure::Closed)),
            }
        }
    }

    /// Whether the time for the handshake is over; if not, the task is woken then.
    fn is_late(&self, socket: &mut ClientSocket, cx: &mut Context) -> bool {
        let timeouts = &self.shared.config.timeouts;
        let time = match self.shared.exchanges.is_draining() {
            true => timeouts.tls_handshake.min(timeouts.drain_idle),
            false => timeouts.tls_handshake,
        };
        socket.set_deadline(Some(self.since + time));
        socket.poll_expired(cx)
    }
}
