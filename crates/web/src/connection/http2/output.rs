//! Sending a response: its head, then its segments as the client takes them.

use std::future::poll_fn;
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::StatusCode;

use crate::disk::FileRange;
use crate::limits::bytes_min;

use super::super::send::{advance, relieve, SentBytes};
use super::head;
use super::stream::{Http2Stream, StreamEnd};

/// Bytes of one DATA frame. Every client takes so many (RFC 9113 section 4.2), and with the nine bytes
/// of its head (section 4.1) the frame fills one TLS record (2^14 bytes, RFC 8446 section 5.1).
pub(super) const DATA_BYTES_MAX: usize = (1 << 14) - 9;

impl Http2Stream {
    /// Sends all segments; with `last` nothing comes after them.
    pub(super) async fn send(&mut self, last: bool) -> Result<SentBytes, StreamEnd> {
        let mut sent = SentBytes::default();
        if self.body.is_none() && !self.send_heads(&mut sent)? {
            return Ok(sent);
        }
        while let Some(left) = self.left_of_first() {
            let room = self.capacity(left).await?;
            self.send_some(room, last, &mut sent).await?;
            self.report_sent(&mut sent);
        }
        self.taken = None;
        if last {
            self.end_body()?;
        }
        Ok(sent)
    }

    /// Sends the heads at the front, of which all but the last are interim ones. True when the
    /// final head is sent and its body follows.
    fn send_heads(&mut self, sent: &mut SentBytes) -> Result<bool, StreamEnd> {
        while let Some(front) = self.sending.front() {
            let text = front.unsent_memory().ok_or(StreamEnd::Cut)?;
            let (response, len) = head::take_response(text).ok_or(StreamEnd::Cut)?;
            advance(&mut self.sending, len, &mut self.recycled);
            sent.memory += len;
            self.sent += len as u64;
            if response.status().is_informational() {
                if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                    return Err(StreamEnd::NeedsHttp1);
                }
                self.respond.send_informational(response).map_err(|_| StreamEnd::Gone)?;
                continue;
            }
            // A DATA frame ends the stream, so that `SentFrames` can tell the crate's own responses.
            let body = self.respond.send_response(response, false);
            self.body = Some(body.map_err(|_| StreamEnd::Gone)?);
            return Ok(true);
        }
        Ok(false)
    }

    /// Bytes left of the first segment that has any.
    fn left_of_first(&mut self) -> Option<u64> {
        loop {
            let front = self.sending.front_mut()?;
            let left = match front.file_range() {
                Some(range) => range.left,
                None => front.unsent_memory().map_or(0, |bytes| bytes.len() as u64),
            };
            if left > 0 {
                return Some(left);
            }
            self.sending.pop_front();
        }
    }

    /// Waits until the client takes some of `wanted` bytes; returns how many.
    async fn capacity(&mut self, wanted: u64) -> Result<usize, StreamEnd> {
        let wanted = wanted.min(super::SEND_BYTES_MAX as u64) as usize;
        let body = self.body.as_mut().ok_or(StreamEnd::Cut)?;
        body.reserve_capacity(wanted);
        let room = body.capacity();
        if room > 0 && self.client.handed.has_room() {
            return Ok(room.min(wanted));
        }
        let relief = self.exchange.response().lock().send_buffer.begin_relief(&mut self.sending);
        if let Some(write) = relief.map_err(|_| StreamEnd::Cut)? {
            relieve(&self.exchange, &mut self.sending, write).await;
        }
        poll_fn(|cx| self.poll_capacity(cx)).await.map(|room| room.min(wanted))
    }

    fn poll_capacity(&mut self, cx: &mut Context) -> Poll<Result<usize, StreamEnd>> {
        loop {
            // The application may wait for the body before it goes on.
            self.poll_upload(cx);
            let Some(body) = &mut self.body else { return Poll::Ready(Err(StreamEnd::Cut)) };
            let room = match body.capacity() {
                0 => body.poll_capacity(cx),
                room => Poll::Ready(Some(Ok(room))),
            };
            match room {
                Poll::Ready(Some(Ok(0))) => {}
                Poll::Ready(Some(Ok(room))) if self.client.handed.poll_room(cx).is_ready() => {
                    return Poll::Ready(Ok(room));
                }
                // The socket is full, which has a clock of its own.
                Poll::Ready(Some(Ok(_))) if !self.is_reset(cx) => {
                    self.taken = None;
                    return Poll::Pending;
                }
                Poll::Ready(_) => return Poll::Ready(Err(StreamEnd::Gone)),
                Poll::Pending if self.is_too_slow(cx) => return Poll::Ready(Err(StreamEnd::Cut)),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Whether the client takes too little while the response waits for its windows; if not, the
    /// task is woken when that may be. All its streams together have the rate of one connection.
    fn is_too_slow(&mut self, cx: &mut Context) -> bool {
        let time = self.shared.config.timeouts.write;
        let rate = self.shared.exchanges.budget.limits().reply_rate_min;
        loop {
            let taken = match self.taken {
                Some(taken) => taken,
                None => {
                    self.set_timeout(time);
                    *self.taken.insert(0)
                }
            };
            if !self.poll_expired(cx) {
                return false;
            }
            let streams = self.client.requests.load(Relaxed).max(1) as u64;
            if taken < (bytes_min(rate, time) / streams).max(1) {
                return true;
            }
            self.taken = None;
        }
    }

    /// Hands at most `room` bytes of the first segment to the connection.
    async fn send_some(
        &mut self,
        room: usize,
        last: bool,
        sent: &mut SentBytes,
    ) -> Result<(), StreamEnd> {
        let room = room.min(DATA_BYTES_MAX);
        let Some(front) = self.sending.front_mut() else { return Ok(()) };
        let bytes = if let Some(range) = front.file_range() {
            read(range, room).await.map_err(|_| StreamEnd::Cut)?
        } else {
            let unsent = front.unsent_memory().unwrap_or_default();
            Bytes::copy_from_slice(&unsent[..unsent.len().min(room)])
        };
        sent.add(advance(&mut self.sending, bytes.len(), &mut self.recycled));
        self.sent += bytes.len() as u64;
        self.taken = self.taken.map(|taken| taken + bytes.len() as u64);
        let is_end = last && self.left_of_first().is_none() && !self.is_cut();
        self.has_ended = is_end;
        let handed = &self.client.handed;
        let body = self.body.as_mut().ok_or(StreamEnd::Cut)?;
        body.send_data(handed.hand_over(bytes), is_end).map_err(|_| StreamEnd::Gone)
    }

    /// Ends a body of which everything is sent. One that was cut off ends with an error.
    pub(super) fn end_body(&mut self) -> Result<(), StreamEnd> {
        if self.is_cut() {
            return Err(StreamEnd::Cut);
        }
        if !std::mem::replace(&mut self.has_ended, true) {
            let body = self.body.as_mut().ok_or(StreamEnd::Cut)?;
            body.send_data(self.client.handed.hand_over(Bytes::new()), true)
                .map_err(|_| StreamEnd::Gone)?;
        }
        Ok(())
    }
}

/// Reads from the front of a range, first into memory if it is not there.
async fn read(range: &mut FileRange, room: usize) -> io::Result<Bytes> {
    let mut bytes = vec![0; room.min(usize::try_from(range.left).unwrap_or(room))];
    loop {
        if let Some(len) = range.read(&mut bytes)? {
            bytes.truncate(len);
            return Ok(bytes.into());
        }
        range.warm_up().await?;
    }
}
