//! A response that is streamed, or encoded.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::MutexGuard;

use crate::body_part::BodyPart;
use crate::compression::Encoder;
use crate::content_coding::{AcceptedCodings, ContentCoding};
use crate::exchange::Exchange;
use crate::pending_response::{Capacity, ClientGone, PendingResponse, ResponsePhase};
use crate::response_head::{CompressionOffer, ResponseFraming};
use crate::send_buffer::SpoolWrite;

/// As long as a disk may take for one response.
const RELIEF_WAIT: Duration = Duration::from_secs(1);

impl Exchange {
    /// Begins a streamed response with its head.
    pub fn begin(self: &Arc<Self>, head: Vec<u8>, framing: ResponseFraming, keep_alive: bool) {
        if self.response.lock().begin(head, framing, keep_alive) {
            Arc::clone(self).wake();
        }
    }

    /// Adds bytes to a streamed body. They are taken even without capacity, into memory; after
    /// [`Capacity::Full`] call [`Exchange::wait_for_capacity`] before the next write.
    ///
    /// # Errors
    /// [`ClientGone`] when nobody will read them.
    pub fn write(self: &Arc<Self>, bytes: &[u8]) -> Result<Capacity, ClientGone> {
        let mut encoder = self.encoder();
        match encoder.as_mut().and_then(|encoder| encoder.as_mut()) {
            Some(encoder) => self.write_plain(&encoder.part(bytes)),
            None => self.write_plain(bytes),
        }
    }

    fn write_plain(self: &Arc<Self>, bytes: &[u8]) -> Result<Capacity, ClientGone> {
        let written = self.response.lock().write(bytes, &self.context.config.limits);
        self.after_write(written)
    }

    /// As [`Exchange::write`], for a [`BodyPart`].
    ///
    /// # Errors
    /// [`ClientGone`] when nobody will read it.
    pub fn write_part(self: &Arc<Self>, part: BodyPart) -> Result<Capacity, ClientGone> {
        let mut encoder = self.encoder();
        if let Some(encoder) = encoder.as_mut().and_then(|encoder| encoder.as_mut()) {
            let encoded = match &part {
                BodyPart::Bytes(bytes) => encoder.part(bytes),
                BodyPart::Pinned(memory) => encoder.part((**memory).as_ref()),
                // Its head was written for the bytes of the file.
                BodyPart::File { .. } => return Err(ClientGone),
            };
            return self.write_plain(&encoded);
        }
        let written = self.response.lock().write_part(part, &self.context.config.limits);
        self.after_write(written)
    }

    fn after_write(
        self: &Arc<Self>,
        written: Result<(Capacity, bool), ClientGone>,
    ) -> Result<Capacity, ClientGone> {
        let (capacity, wake) = written?;
        if wake {
            Arc::clone(self).wake();
        }
        Ok(capacity)
    }

    /// Moves output from memory to the temporary file, or blocks the calling thread until there
    /// is capacity again, `timeout` has passed or [`Exchange::interrupt`] was called. The disk is
    /// only written here, without the lock: call it without any lock that others wait for.
    ///
    /// # Errors
    /// [`ClientGone`] when nobody will read more.
    pub fn wait_for_capacity(self: &Arc<Self>, timeout: Duration) -> Result<Capacity, ClientGone> {
        let limits = &self.context.config.limits;
        let until = Instant::now() + timeout;
        let mut response = self.response.lock();
        loop {
            if let Some(mut write) = response.send_buffer.begin_spool(limits) {
                MutexGuard::unlocked(&mut response, || write.run());
                self.end_spool(&mut response, write);
                continue;
            }
            match response.phase() {
                ResponsePhase::Closed | ResponsePhase::TimedOut => return Err(ClientGone),
                // Another thread ended the response: later writes are dropped.
                ResponsePhase::Ended => return Ok(Capacity::Available),
                _ => {}
            }
            let capacity = response.capacity(limits);
            if capacity == Capacity::Available || !response.start_wait() {
                return Ok(capacity);
            }
            let timed_out = self.capacity.wait_until(&mut response, until).timed_out();
            response.end_wait();
            if timed_out {
                return Ok(response.capacity(limits));
            }
        }
    }

    /// Whether whole responses wait as [`Exchange::wait_for_relief`] says.
    pub fn is_short_of_memory(&self) -> bool {
        self.context.budget.is_short()
    }

    /// Waits until the client or a file has taken this whole response, as long as the server has no
    /// memory left for what clients do not take: else threads would produce faster than the disk
    /// writes. It waits a second at most.
    pub fn wait_for_relief(&self) {
        let until = Instant::now() + RELIEF_WAIT;
        let mut response = self.response.lock();
        while response.send_buffer.needs_relief() && response.start_wait() {
            let timed_out = self.capacity.wait_until(&mut response, until).timed_out();
            response.end_wait();
            if timed_out {
                return;
            }
        }
    }

    fn end_spool(self: &Arc<Self>, response: &mut MutexGuard<PendingResponse>, write: SpoolWrite) {
        let (spooled, wake) = response.end_spool(write);
        MutexGuard::unlocked(response, || {
            drop(spooled);
            // Another producer may wait for the end of this write.
            self.notify_capacity();
            if wake {
                Arc::clone(self).wake();
            }
        });
    }

    /// Ends a [`Exchange::wait_for_capacity`] of another thread early, or the next one.
    pub fn interrupt(&self) {
        self.response.lock().interrupt();
        self.capacity.notify_all();
    }

    /// Ends a streamed body. With `complete` false its producer failed midway:
    /// the connection is closed so that the client notices.
    pub fn end(self: Arc<Self>, complete: bool) {
        let encoder = self.encoder().and_then(|mut encoder| encoder.take());
        if let Some(encoder) = encoder.filter(|_| complete) {
            // Nobody reads the rest if the client is gone.
            let _ = self.write_plain(&encoder.finish(b""));
        }
        let wake = self.response.lock().end(complete);
        // Another thread may be waiting for capacity that is no longer needed.
        self.notify_capacity();
        if wake {
            self.wake();
        }
    }

    /// How the response may be compressed; `None` if compression is off.
    pub fn compression(&self) -> Option<CompressionOffer> {
        let encoders = self.context.encoders.as_ref()?;
        let accepted = AcceptedCodings::of(&self.head);
        let coding = accepted.best(|coding| coding == ContentCoding::Gzip);
        Some(CompressionOffer { coding, bytes_min: encoders.settings().bytes_min })
    }

    /// Encodes a whole body. It takes a millisecond for each 100 KB or so: call it without a lock
    /// that others wait for.
    pub fn encode(&self, coding: ContentCoding, bytes: &[u8]) -> Vec<u8> {
        match &self.context.encoders {
            Some(encoders) => encoders.encoder(coding).finish(bytes),
            None => bytes.to_vec(),
        }
    }

    /// Encodes the body of a streamed response from now on; called before [`Exchange::begin`].
    pub fn encode_stream(&self, coding: ContentCoding) {
        if let (Some(mut encoder), Some(encoders)) = (self.encoder(), &self.context.encoders) {
            *encoder = Some(Box::new(encoders.encoder(coding)));
        }
    }

    /// Whether what is written to this response is encoded.
    pub fn is_encoding(&self) -> bool {
        self.encoder().is_some_and(|encoder| encoder.is_some())
    }

    /// The encoder's lock; `None` if compression is off.
    fn encoder(&self) -> Option<MutexGuard<'_, Option<Box<Encoder>>>> {
        self.context.encoders.as_ref().map(|_| self.encoder.lock())
    }
}
