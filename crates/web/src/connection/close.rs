//! The last words of a connection.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::outbox::Segment;
use crate::{socket, wire_text};

use super::{Connection, Refusal};

impl Connection {
    /// Answers by itself and ends the connection.
    pub(super) async fn refuse(&mut self, refusal: Refusal) {
        let Refusal { status, text, retry_after_s, has_head } = refusal;
        let head = self.exchange.head();
        let is_head = has_head && head.get(head.method) == b"HEAD";
        let bytes = wire_text::refusal(status, text, retry_after_s, is_head);
        self.sent = 0;
        self.sending.clear();
        self.sending.push_back(Segment::Bytes { bytes, at: 0 });
        self.shared.counters.refused.add(1);
        self.shared.counters.responded(status);
        let sent = self.send().await;
        if self.shared.log.is_on() {
            self.log(status, text.len() as u64 + 1, has_head);
        }
        if sent.is_ok() {
            self.linger().await;
        }
    }

    /// Ends the sending side and throws away what still arrives, within bounds:
    /// closing with unread data would send a reset, and a reset can overtake
    /// the answer (RFC 9112 section 9.6).
    pub(super) async fn linger(&mut self) {
        socket::shutdown_write(self.wire.fd());
        // A flood of refused requests must not pile up while their clients leave.
        if let Some(exchange) = Arc::get_mut(&mut self.exchange) {
            exchange.forget_body();
        }
        self.wire.set_timeout(self.shared.config.linger);
        let mut left = self.shared.config.linger_bytes_max;
        poll_fn(|cx| self.poll_linger(cx, &mut left)).await;
    }

    fn poll_linger(&mut self, cx: &mut Context, left: &mut usize) -> Poll<()> {
        let mut scratch = self.shared.scratch.lock();
        loop {
            match self.wire.poll_recv(cx, &mut scratch) {
                Poll::Ready(Ok(len)) if len > 0 && len <= *left => *left -= len,
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending if self.wire.poll_expired(cx) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}
