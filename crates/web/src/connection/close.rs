//! Ending a connection.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::error_response::ErrorResponse;
use crate::send_buffer::Segment;
use crate::server_state::ServerState;
use crate::stats::add;

use super::client_socket::ClientSocket;
use super::Connection;

/// Longest wait for the peer's end after the engine ended its own side early, so
/// that a reset does not destroy the response.
const LINGER: Duration = Duration::from_secs(1);
/// Bytes read and thrown away during that wait.
const LINGER_BYTES_MAX: usize = 256 * 1024;

impl Connection {
    /// Sends the engine's own response and ends the connection.
    pub(super) async fn send_error(&mut self, error: ErrorResponse, has_head: bool) {
        let is_head = has_head && self.exchange.head().is_head();
        self.sent = 0;
        self.sending.clear();
        self.sending.push_back(Segment::Bytes { bytes: error.encode(is_head), at: 0 });
        add(&self.shared.counters.refused, 1);
        self.shared.counters.responded(error.status);
        self.count_response(error.status, false);
        let sent = self.send().await;
        if self.shared.log.is_on() {
            self.log(error.status, error.text.len() as u64 + 1, has_head);
        }
        if sent.is_ok() {
            self.linger().await;
        }
    }

    /// Ends the connection after its last response.
    pub(super) async fn linger(&mut self) {
        let mut linger = Linger::begin(&mut self.socket);
        // Bodies of refused requests must not pile up while their clients leave.
        if let Some(exchange) = Arc::get_mut(&mut self.exchange) {
            exchange.forget_body();
        }
        poll_fn(|cx| linger.poll(&self.shared, &mut self.socket, cx)).await;
    }
}

/// The end of a connection: the sending side is closed, and what still arrives is discarded, within bounds.
/// Closing with unread data would send a reset, and a reset can overtake the response (RFC 9112 section
/// 9.6), or the alert that says why a handshake has failed.
pub(super) struct Linger {
    left: usize,
}

impl Linger {
    pub fn begin(socket: &mut ClientSocket) -> Self {
        socket.end();
        socket.set_timeout(LINGER);
        Self { left: LINGER_BYTES_MAX }
    }

    pub fn poll(
        &mut self,
        shared: &ServerState,
        socket: &mut ClientSocket,
        cx: &mut Context,
    ) -> Poll<()> {
        let mut scratch = shared.scratch.lock();
        loop {
            match socket.poll_recv(cx, &mut scratch) {
                Poll::Ready(Ok(len)) if len > 0 && len <= self.left => self.left -= len,
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending if socket.poll_expired(cx) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}
