//! Reading a body that is streamed to the application, while its response may already be sent.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::time::{sleep_until, Sleep};

use crate::limits::bytes_min;
use crate::limits::Limits;
use crate::request_body::{BodyError, BodyReader, RequestBody};
use crate::stats::add;
use crate::streamed_body::{BodyCut, StreamedBody, CONNECTION_ENDED};

use super::request::CONTINUE;
use super::Connection;

/// Bytes one connection reads before others are served.
const TURN_BYTES_MAX: usize = 1024 * 1024;

/// A streamed body that has not arrived to its end.
pub(super) struct Upload {
    body: Arc<StreamedBody>,
    reader: BodyReader,
    /// The client waits for 100 Continue.
    expects: bool,
    /// Bytes that arrived in the current [`Timeouts::body`](crate::limits::Timeouts::body).
    arrived: u64,
    timer: Pin<Box<Sleep>>,
    /// The time counts: the client, and not the application, is waited for.
    timed: bool,
}

enum UploadState {
    /// It waits for the client.
    Waiting,
    /// It waits for the application.
    Full,
    Complete,
}

impl Upload {
    fn feed(&mut self, input: &[u8], limits: &Limits) -> Result<(usize, bool), BodyCut> {
        let fed = self.reader.feed(input, limits);
        // Also what comes before a fault.
        self.body.fill(|bytes| self.reader.hand_out(bytes));
        fed.map_err(|error| cut(&error))
    }

    fn is_late(&mut self, cx: &mut Context, time: Duration, rate_min: u64) -> bool {
        if self.expects {
            return false;
        }
        if !self.timed {
            self.timed = true;
            self.restart_timer(time);
        }
        while self.timer.as_mut().poll(cx).is_ready() {
            if self.arrived < bytes_min(rate_min, time) {
                return true;
            }
            self.restart_timer(time);
        }
        false
    }

    fn restart_timer(&mut self, time: Duration) {
        self.arrived = 0;
        self.timer.as_mut().reset((Instant::now() + time).into());
    }
}

impl Connection {
    /// Lets the body of the current request, read with `reader`, be streamed.
    pub(super) fn begin_upload(&mut self, reader: BodyReader) {
        let bytes_max = self.shared.config.limits.stream_body_bytes_max;
        let body = Arc::new(StreamedBody::new(bytes_max, self.waker.clone()));
        let exchange = self.exchange_mut();
        exchange.body = RequestBody::Streamed(Arc::clone(&body));
        let expects = exchange.head.expect_continue;
        let timer = Box::pin(sleep_until(Instant::now().into()));
        self.upload = Some(Upload { body, reader, expects, arrived: 0, timer, timed: false });
    }

    /// Reads as much of a streamed body as has arrived and as there is room for. True when the
    /// task is woken by what the client sends next, also by its end.
    pub(super) fn poll_upload(&mut self, cx: &mut Context) -> bool {
        let Some(mut upload) = self.upload.take() else { return false };
        match self.read_upload(&mut upload, cx) {
            Ok(UploadState::Complete) => upload.body.end(Ok(())),
            Ok(state) => {
                self.upload = Some(upload);
                return matches!(state, UploadState::Waiting);
            }
            Err(cut) => upload.body.end(Err(cut)),
        }
        false
    }

    fn read_upload(
        &mut self,
        upload: &mut Upload,
        cx: &mut Context,
    ) -> Result<UploadState, BodyCut> {
        let shared = Arc::clone(&self.shared);
        let config = &shared.config;
        let mut turn = 0;
        loop {
            let room = upload.body.room();
            if room == 0 {
                upload.timed = false;
                return Ok(UploadState::Full);
            }
            if !self.unread.is_empty() {
                upload.expects = false;
                let rest = self.unread.rest();
                let (taken, done) = upload.feed(&rest[..rest.len().min(room)], &config.limits)?;
                self.unread.consume(taken);
                if done {
                    return Ok(UploadState::Complete);
                }
                continue;
            }
            if upload.expects && upload.body.is_wanted() {
                upload.expects = false;
                self.exchange.interim(CONTINUE);
            }
            let mut scratch = shared.scratch.lock();
            let len = scratch.len().min(room);
            let len = match self.socket.poll_recv(cx, &mut scratch[..len]) {
                Poll::Ready(Ok(len)) if len > 0 => len,
                Poll::Ready(_) => return Err(CONNECTION_ENDED),
                Poll::Pending => {
                    drop(scratch);
                    if upload.is_late(cx, config.timeouts.body, config.limits.body_rate_min) {
                        return Err(BodyCut("the request's body did not arrive in time"));
                    }
                    return Ok(UploadState::Waiting);
                }
            };
            upload.expects = false;
            upload.arrived += len as u64;
            turn += len;
            add(&shared.counters.read_bytes, len as u64);
            let (taken, done) = upload.feed(&scratch[..len], &config.limits)?;
            if taken < len {
                self.unread.push(&scratch[taken..len]);
            }
            drop(scratch);
            self.postpone_request_deadline();
            if done {
                return Ok(UploadState::Complete);
            }
            if turn > TURN_BYTES_MAX {
                // The IO thread does not sleep now, so this does its other work.
                shared.flush_submitted();
                shared.exchanges.wake_ready_if_any();
                cx.waker().wake_by_ref();
                return Ok(UploadState::Waiting);
            }
        }
    }

    /// The response has ended: what is missing of the body has no reader any more.
    pub(super) fn end_upload(&mut self) {
        if let Some(upload) = self.upload.take() {
            upload.body.end(Err(CONNECTION_ENDED));
        }
    }
}

fn cut(error: &BodyError) -> BodyCut {
    match error {
        BodyError::TooLarge => BodyCut("the request's body is too large"),
        BodyError::Chunk(error) => BodyCut(error.reason()),
        BodyError::Spool(_) | BodyError::NoRoom => {
            BodyCut("the request's body could not be stored")
        }
    }
}
