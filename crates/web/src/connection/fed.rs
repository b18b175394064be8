//! A response whose body is fed by a hub, over HTTP/1. It is the last one of its connection.

use std::future::poll_fn;
use std::task::{Context, Poll};

use crate::feeder::{FeedStep, Feeder};
use crate::send_buffer::Segment;

use super::{Closing, Connection};

/// Room for the size of a chunk in front of its bytes: eight digits, which may begin with zeros (RFC 9112 section 7.1),
/// and the end of the line.
const SIZE_LINE_BYTES: usize = 10;

impl Connection {
    /// Sends what the feeder gives, until its end or that of the client.
    pub(super) async fn feed(&mut self, mut feeder: Box<dyn Feeder>, chunked: bool) {
        let (status, head_bytes) = {
            let response = self.exchange.response().lock();
            (response.status(), response.head_bytes() as u64)
        };
        self.shared.counters.responded(status);
        self.count_response(status, true);
        let logs = self.shared.log.is_on();
        if !logs {
            self.shrink();
        }
        if self.feed_on(&mut *feeder, chunked).await.is_err() {
            self.socket.mark_cut();
        }
        if logs {
            self.log(status, self.sent.saturating_sub(head_bytes), true);
        }
    }

    async fn feed_on(&mut self, feeder: &mut dyn Feeder, chunked: bool) -> Result<(), Closing> {
        self.socket.disarm();
        loop {
            self.socket.clear_deadline();
            let mut out = Vec::new();
            if chunked {
                out.resize(SIZE_LINE_BYTES, 0);
            }
            let step = poll_fn(|cx| self.poll_feed(cx, feeder, &mut out)).await?;
            let FeedStep::Send(shared) = step else { break };
            let shared_len = shared.as_ref().map_or(0, |bytes| bytes.len());
            if chunked {
                let size = format!("{:08x}\r\n", out.len() - SIZE_LINE_BYTES + shared_len);
                out[..SIZE_LINE_BYTES].copy_from_slice(&size.as_bytes()[..SIZE_LINE_BYTES]);
            }
            let end: &[u8] = if chunked { b"\r\n" } else { b"" };
            match shared {
                None => out.extend_from_slice(end),
                Some(bytes) => {
                    self.push_fed(std::mem::take(&mut out));
                    let memory = Box::new(bytes);
                    self.sending.push_back(Segment::Pinned { memory, at: 0, end: shared_len });
                    out.extend_from_slice(end);
                }
            }
            self.push_fed(out);
            self.send().await?;
            self.recycled = Vec::new();
            self.sending.shrink_to_fit();
        }
        if chunked {
            self.push_fed(b"0\r\n\r\n".to_vec());
            self.send().await?;
        }
        Ok(())
    }

    fn push_fed(&mut self, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.sending.push_back(Segment::Bytes { bytes, at: 0 });
        }
    }

    fn poll_feed(
        &mut self,
        cx: &mut Context<'_>,
        feeder: &mut dyn Feeder,
        out: &mut Vec<u8>,
    ) -> Poll<Result<FeedStep, Closing>> {
        self.shared.exchanges.wake_ready_if_any();
        if self.shared.is_giving_up() {
            return Poll::Ready(Ok(FeedStep::End));
        }
        let drains = self.shared.exchanges.is_draining();
        if let Poll::Ready(step) = feeder.poll_step(cx, drains, out) {
            return Poll::Ready(Ok(step));
        }
        // Clients of an event stream end their side only when they leave.
        if self.socket.poll_hung_up(cx) || self.socket.has_ended() {
            return Poll::Ready(Err(Closing::Now));
        }
        Poll::Pending
    }
}
