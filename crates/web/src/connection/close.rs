//! Ending a connection.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::error_response::ErrorResponse;
use crate::send_buffer::Segment;
use crate::stats::add;

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

    /// Ends the sending side and discards what still arrives, within bounds: closing with unread
    /// data would send a reset, and a reset can overtake the response (RFC 9112 section 9.6).
    pub(super) async fn linger(&mut self) {
        self.socket.end();
        // Bodies of refused requests must not pile up while their clients leave.
        if let Some(exchange) = Arc::get_mut(&mut self.exchange) {
            exchange.forget_body();
        }
        self.socket.set_timeout(LINGER);
        let mut left = LINGER_BYTES_MAX;
        poll_fn(|cx| self.poll_linger(cx, &mut left)).await;
    }

    fn poll_linger(&mut self, cx: &mut Context, left: &mut usize) -> Poll<()> {
        let mut scratch = self.shared.scratch.lock();
        loop {
            match self.socket.poll_recv(cx, &mut scratch) {
                Poll::Ready(Ok(len)) if len > 0 && len <= *left => *left -= len,
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending if self.socket.poll_expired(cx) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}
