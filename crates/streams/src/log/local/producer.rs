//! Writes records for all threads of a process: they fill a bounded buffer,
//! and one thread writes what has gathered. While it waits for the disk the
//! next records gather: many share one sync, and a single one waits for
//! nobody.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::log_dir::LogDir;
use super::{errors, files, record_frame, topics};
use crate::log::{self, ErrorKind, LogError, Result};
use crate::receipt::Receipt;
use crate::record::NewRecord;

mod buffer;
mod thread;

use buffer::ProducerBuffer;

/// Of the threads that send and the one that writes.
struct SharedBuffer {
    dir: Arc<LogDir>,
    buffer: Mutex<ProducerBuffer>,
    /// Records were added to an empty buffer, or it ends.
    added: Condvar,
    /// Records have ended, or waits shall.
    ended: Condvar,
}

/// See above.
pub(super) struct LocalProducer(Arc<SharedBuffer>);

impl LocalProducer {
    /// With an empty buffer and no thread yet.
    pub fn new(dir: &Arc<LogDir>) -> Self {
        Self(Arc::new(SharedBuffer {
            dir: dir.clone(),
            buffer: Mutex::new(ProducerBuffer::default()),
            added: Condvar::new(),
            ended: Condvar::new(),
        }))
    }

    fn is_full(&self, buffer: &ProducerBuffer) -> bool {
        let settings = &self.0.dir.settings;
        buffer.records >= settings.produce_buffer_records
            || buffer.bytes >= settings.produce_buffer_bytes
    }

    /// Waits until `over` is true of the buffer.
    fn wait(&self, timeout: Duration, over: impl Fn(&ProducerBuffer) -> bool) -> bool {
        let until = Instant::now() + timeout;
        let mut buffer = self.0.buffer.lock();
        let interrupts = buffer.interrupts;
        while !over(&buffer) {
            if buffer.interrupts != interrupts
                || self.0.ended.wait_until(&mut buffer, until).timed_out()
            {
                return over(&buffer);
            }
        }
        true
    }

    fn start_thread(&self, buffer: &mut ProducerBuffer) -> Result<()> {
        if buffer.thread {
            return Ok(());
        }
        let shared = self.0.clone();
        let started = chaton_core::thread::spawn("chaton-log", move || thread::run(&shared));
        started.map_err(|error| {
            let message = format!("no thread for the log's writer: {error}");
            LogError::new(ErrorKind::Unreachable, message)
        })?;
        buffer.thread = true;
        Ok(())
    }
}

impl log::Producer for LocalProducer {
    fn send(&self, record: &NewRecord<'_>, receipt: Option<(&Arc<Receipt>, usize)>) -> Result<()> {
        let size = record_frame::size(record);
        let mut buffer = self.0.buffer.lock();
        let slot = match buffer.slot(record.topic) {
            Some(slot) => slot,
            None => {
                drop(buffer);
                let topic = topics::get_or_make(&self.0.dir, record.topic)?;
                buffer = self.0.buffer.lock();
                buffer.learn(topic)
            }
        };
        if self.is_full(&buffer) {
            return Err(LogError::new(
                ErrorKind::Full,
                format!(
                    "the producer's buffer is full ({} records, {} bytes wait for the disk)",
                    buffer.records, buffer.bytes
                ),
            ));
        }
        check_size(record, size, buffer.topic(slot).config.message_bytes_max)?;
        let partition = buffer.choose(slot, record)?;
        self.start_thread(&mut buffer)?;
        if buffer.add(slot, partition, record, size, files::now_ms(), receipt) {
            self.0.added.notify_one();
        }
        Ok(())
    }

    fn wait_room(&self, timeout: Duration) -> bool {
        self.wait(timeout, |buffer| !self.is_full(buffer))
    }

    fn interrupt(&self) {
        self.0.buffer.lock().interrupts += 1;
        self.0.ended.notify_all();
    }

    fn flush(&self, timeout: Duration) -> usize {
        self.wait(timeout, |buffer| buffer.records == 0);
        self.buffered()
    }

    fn buffered(&self) -> usize {
        self.0.buffer.lock().records
    }
}

impl Drop for LocalProducer {
    /// What was sent is written all the same; then the thread ends.
    fn drop(&mut self) {
        self.0.buffer.lock().closed = true;
        self.0.added.notify_one();
    }
}

/// A record may be as large as its topic takes.
pub(super) fn check_size(record: &NewRecord<'_>, size: usize, max: u64) -> Result<()> {
    if size as u64 <= max {
        return Ok(());
    }
    Err(errors::invalid(format!(
        "a record of {size} bytes is larger than topic {:?} takes ({max}, its max.message.bytes)",
        record.topic
    )))
}
