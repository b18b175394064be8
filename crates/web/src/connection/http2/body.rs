//! Reading a request's body to its end, before the request is handed over.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::RecvStream;

use crate::error_response::ErrorResponse;
use crate::head::BodyFraming;
use crate::request_body::{BodyError, BodyReader};

use super::super::request::NO_ROOM;
use super::body_clock::BodyClock;
use super::stream::{Http2Stream, StreamEnd};
use super::window::BodyWindow;

impl Http2Stream {
    /// Reads the body, unless it is streamed.
    pub(super) async fn read_body(&mut self, mut body: RecvStream) -> Result<(), StreamEnd> {
        if body.is_end_stream() {
            return Ok(());
        }
        let exchange = self.exchange_mut();
        let framing = exchange.head.framing;
        // The body need not have a length, as in HTTP/1.
        let expectation = exchange.head.header("expect");
        let expects = expectation.is_some();
        if expectation.is_some_and(|it| !it.eq_ignore_ascii_case(b"100-continue")) {
            let text = "The only expectation this server meets is 100-continue.";
            return Err(refuse(417, text));
        }
        let body_bytes_max = self.shared.config.limits.body_bytes_max;
        if matches!(framing, BodyFraming::Length(len) if len > body_bytes_max) {
            return Err(too_large());
        }
        if self.shared.config.streams_body(self.exchange.head().get(self.exchange.head().path)) {
            self.begin_upload(body, expects);
            // A body that came along with its head is complete before the request is handed over.
            return poll_fn(|cx| {
                self.poll_upload(cx);
                Poll::Ready(Ok(()))
            })
            .await;
        }
        if expects {
            self.send_continue();
        }
        let limits = &self.shared.config.limits;
        let mut reader = BodyReader::until_end()
            .counted(framing, &self.client.budget, limits)
            .map_err(|error| self.body_end(&error))?;
        let mut clock = self.body_clock();
        loop {
            let part = poll_fn(|cx| self.poll_part(cx, &mut body, &mut clock)).await?;
            let is_last = part.is_none();
            if let Some(bytes) = part {
                self.feed(&mut reader, &bytes)?;
                // The client may send as much again. It fails only on a stream that has ended.
                let _ = body.flow_control().release_capacity(bytes.len());
            }
            let is_whole = is_last || body.is_end_stream();
            if reader.must_write(is_whole, &self.shared.config.limits) {
                reader = self.write_body(reader).await?;
            }
            if is_last {
                self.exchange_mut().body = reader.finish();
                return Ok(());
            }
        }
    }

    pub(super) fn body_clock(&self) -> BodyClock {
        let config = &self.shared.config;
        let window = Arc::clone(&self.client.window);
        let window = BodyWindow::new(Arc::clone(&self.shared), window);
        BodyClock::new(config.timeouts.body, config.limits.body_rate_min, window)
    }

    fn feed(&self, reader: &mut BodyReader, bytes: &[u8]) -> Result<(), StreamEnd> {
        let fed = reader.feed(bytes, &self.shared.config.limits);
        fed.map(drop).map_err(|error| self.body_end(&error))
    }

    /// The next bytes of the body; none at its end.
    fn poll_part(
        &mut self,
        cx: &mut Context,
        body: &mut RecvStream,
        clock: &mut BodyClock,
    ) -> Poll<Result<Option<Bytes>, StreamEnd>> {
        let Poll::Ready(part) = body.poll_data(cx) else {
            if clock.is_late(cx) {
                return Poll::Ready(Err(refuse(408, "The request's body did not arrive in time.")));
            }
            return Poll::Pending;
        };
        let part = part.transpose().map_err(|_| StreamEnd::Gone)?;
        if let Some(bytes) = &part {
            clock.add(bytes.len());
            self.client.waste.took(bytes.len());
        }
        Poll::Ready(Ok(part))
    }

    /// Writes a part of a large body to its file on a thread of its own.
    async fn write_body(&mut self, mut reader: BodyReader) -> Result<BodyReader, StreamEnd> {
        let written = tokio::task::spawn_blocking(move || reader.write().map(|()| reader)).await;
        // The runtime ends before the thread is done only at a stop.
        let reader = written.map_err(|_| StreamEnd::Gone)?;
        reader.map_err(|error| self.body_end(&error))
    }

    fn body_end(&self, error: &BodyError) -> StreamEnd {
        match error {
            BodyError::TooLarge => too_large(),
            BodyError::Chunk(error) => refuse(error.status(), error.reason()),
            BodyError::Spool(error) => {
                self.shared.feed.warn(&format!(
                    "can't keep the body of {} in a temporary file: {error}; \
                     make room in the directory for temporary files (TMPDIR)",
                    self.exchange.describe()
                ));
                refuse(500, "The request's body could not be stored.")
            }
            BodyError::NoRoom => {
                let retry_after_s = self.shared.config.retry_after_s;
                let response = ErrorResponse::new(503, NO_ROOM).retry_after(retry_after_s);
                StreamEnd::Refused { response, has_head: true }
            }
        }
    }
}

fn too_large() -> StreamEnd {
    refuse(413, "The request's body is too large.")
}

/// Refuses a request whose head was read.
pub(super) fn refuse(status: u16, text: &'static str) -> StreamEnd {
    StreamEnd::Refused { response: ErrorResponse::new(status, text), has_head: true }
}
