//! Writes records for all threads of a process. They fill a bounded buffer,
//! and one thread writes what has gathered. The next records gather while it
//! waits for the disk, so that many share one sync.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::log_dir::LogDir;
use super::{frames, topics};
use crate::delivery_errors::DeliveryErrors;
use crate::log::{ErrorKind, LogError, Producer, Result};
use crate::receipt::Receipt;
use crate::record::NewRecord;

mod buffer;
mod thread;

use buffer::{ProducerBuffer, SharedBuffer};

pub(super) struct LocalProducer(Arc<SharedBuffer>);

impl LocalProducer {
    /// A producer with an empty buffer; the first record starts its thread.
    pub fn new(dir: &Arc<LogDir>, errors: &Arc<DeliveryErrors>) -> Self {
        Self(Arc::new(SharedBuffer::new(dir, errors)))
    }

    fn is_full(&self, buffer: &ProducerBuffer) -> bool {
        let settings = &self.0.dir.settings;
        buffer.records >= settings.produce_buffer_records
            || buffer.bytes >= settings.produce_buffer_bytes
    }

    /// Waits until the condition holds; false on a timeout or an interrupt.
    fn wait(&self, timeout: Duration, condition: impl Fn(&ProducerBuffer) -> bool) -> bool {
        let until = Instant::now() + timeout;
        let mut buffer = self.0.buffer.lock();
        let interrupts = buffer.interrupts;
        while !condition(&buffer) {
            if buffer.interrupts != interrupts
                || self.0.completed.wait_until(&mut buffer, until).timed_out()
            {
                return condition(&buffer);
            }
        }
        true
    }

    fn start_thread(&self, buffer: &mut ProducerBuffer) -> Result<()> {
        if buffer.has_thread {
            return Ok(());
        }
        let shared = self.0.clone();
        let started = chaton_core::thread::spawn("chaton-log", move || thread::run(&shared));
        started.map_err(|error| {
            let message = format!("no thread for the log's writer: {error}");
            LogError::new(ErrorKind::Unreachable, message)
        })?;
        buffer.has_thread = true;
        Ok(())
    }
}

impl Producer for LocalProducer {
    fn send(&self, record: &NewRecord<'_>, receipt: Option<(&Arc<Receipt>, usize)>) -> Result<()> {
        let size = frames::size(record);
        let mut buffer = self.0.buffer.lock();
        let slot = match buffer.slot(record.topic) {
            Some(slot) => slot,
            None => {
                drop(buffer);
                let topic = topics::get_or_create(&self.0.dir, record.topic)?;
                buffer = self.0.buffer.lock();
                buffer.update_topic(topic)
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
        buffer.topic(slot).config.check_size(record, size)?;
        let partition = buffer.choose(slot, record)?;
        self.start_thread(&mut buffer)?;
        if buffer.add(slot, partition, record, size, self.0.dir.now_ms(), receipt) {
            self.0.added.notify_one();
        }
        Ok(())
    }

    fn wait_room(&self, timeout: Duration) -> bool {
        self.wait(timeout, |buffer| !self.is_full(buffer))
    }

    fn interrupt(&self) {
        self.0.buffer.lock().interrupts += 1;
        self.0.completed.notify_all();
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
    /// The thread ends after it has written the buffered records.
    fn drop(&mut self) {
        self.0.buffer.lock().closed = true;
        self.0.added.notify_one();
    }
}
