//! Reading a request: its head, then its whole body, unless that is streamed.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{ready, Context, Poll};
use std::time::Instant;

use crate::error_response::ErrorResponse;
use crate::head::{self, BodyFraming, HeadError, Parsed};
use crate::limits::bytes_min;
use crate::request_body::{BodyError, BodyReader};
use crate::send_buffer::Segment;
use crate::stats::add;

use super::{http2, Closing, Connection};

/// Asks the client to send the body it announced (RFC 9110 section 10.1.1).
pub(super) const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

impl Connection {
    /// Waits for a request and reads its head. The bytes behind it are in `unread`.
    pub(super) async fn read_head(&mut self) -> Result<(), Closing> {
        let header = self.shared.config.timeouts.header;
        if self.unread.is_empty() {
            self.shared.idles(&self.idle);
            self.since = Instant::now();
            let config = &self.shared.config;
            let first = config.timeouts.idle.min(config.buffers_idle);
            self.socket.set_deadline(self.since + first);
        } else {
            // Pipelined: the client did not wait for the last response.
            if self.parse_unread()? {
                return Ok(());
            }
            self.since = Instant::now();
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
    pub(super) async fn read_body(&mut self) -> Result<(), Closing> {
        let exchange = self.exchange_mut();
        let framing = exchange.head.framing;
        if matches!(framing, BodyFraming::None) {
            return Ok(());
        }
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
        let limits = &self.shared.config.limits;
        reader =
            reader.counted(framing, &self.budget, limits).map_err(|error| self.body_end(&error))?;
        if expects && self.unread.is_empty() {
            // A client that has sent some of its body did not wait for this.
            self.sending.push_back(Segment::Bytes { bytes: CONTINUE.to_vec(), at: 0 });
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
pub(super) const NO_ROOM: &str = "The server holds too much for its clients; try again.";

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
