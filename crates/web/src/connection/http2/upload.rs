//! Reading a body that is streamed to the application.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use h2::RecvStream;

use crate::request_body::RequestBody;
use crate::streamed_body::{BodyCut, StreamedBody, CONNECTION_ENDED};

use super::body_clock::BodyClock;
use super::stream::Http2Stream;

/// A streamed body that has not arrived to its end.
pub(super) struct Http2Upload {
    body: Arc<StreamedBody>,
    from: RecvStream,
    /// Bytes for which there was no room.
    held: Bytes,
    /// Bytes that may still come.
    left: u64,
    /// The client waits for 100 Continue.
    expects: bool,
    clock: BodyClock,
}

impl Http2Stream {
    /// Lets the body of the request be streamed.
    pub(super) fn begin_upload(&mut self, from: RecvStream, expects: bool) {
        let config = &self.shared.config;
        let body =
            Arc::new(StreamedBody::new(config.limits.stream_body_bytes_max, self.waker.clone()));
        let clock = self.body_clock();
        let left = config.limits.body_bytes_max;
        self.exchange_mut().body = RequestBody::Streamed(Arc::clone(&body));
        self.upload = Some(Http2Upload { body, from, held: Bytes::new(), left, expects, clock });
    }

    /// Takes as much of a streamed body as has arrived and as there is room for.
    pub(super) fn poll_upload(&mut self, cx: &mut Context) {
        let Some(mut upload) = self.upload.take() else { return };
        match self.read_upload(&mut upload, cx) {
            Ok(true) => upload.body.end(Ok(())),
            Ok(false) => self.upload = Some(upload),
            Err(cut) => upload.body.end(Err(cut)),
        }
    }

    /// True when the body is complete.
    fn read_upload(&mut self, upload: &mut Http2Upload, cx: &mut Context) -> Result<bool, BodyCut> {
        loop {
            let room = upload.body.room();
            if room == 0 {
                upload.clock.pause();
                return Ok(false);
            }
            if !upload.held.is_empty() {
                upload.hand_out(room)?;
                self.postpone_request_deadline();
                continue;
            }
            if upload.expects && upload.body.is_wanted() {
                upload.expects = false;
                self.send_continue();
            }
            match upload.from.poll_data(cx) {
                Poll::Ready(Some(Ok(bytes))) => {
                    upload.expects = false;
                    upload.clock.add(bytes.len());
                    self.client.waste.took(bytes.len());
                    upload.held = bytes;
                }
                Poll::Ready(Some(Err(_))) => return Err(CONNECTION_ENDED),
                Poll::Ready(None) => return Ok(true),
                Poll::Pending if !upload.expects && upload.clock.is_late(cx) => {
                    return Err(BodyCut("the request's body did not arrive in time"));
                }
                Poll::Pending => return Ok(false),
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

impl Http2Upload {
    fn hand_out(&mut self, room: usize) -> Result<(), BodyCut> {
        let len = self.held.len().min(room);
        if len as u64 > self.left {
            return Err(BodyCut("the request's body is too large"));
        }
        self.left -= len as u64;
        self.body.fill(|into| into.extend(&self.held[..len]));
        self.held.advance(len);
        // The client may send as much again. It fails only on a stream that has ended.
        let _ = self.from.flow_control().release_capacity(len);
        Ok(())
    }
}
