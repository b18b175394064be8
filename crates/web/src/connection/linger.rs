//! Ending a connection.

use std::task::{Context, Poll};
use std::time::Duration;

use crate::server_state::ServerState;

use super::client_socket::ClientSocket;
use super::timer::Timer;

/// Longest wait for the peer's end after the engine ended its own side early, so
/// that a reset does not destroy the response.
const LINGER: Duration = Duration::from_secs(1);
/// Bytes read and thrown away during that wait.
const LINGER_BYTES_MAX: usize = 256 * 1024;

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
