//! `Chaton::Native::StreamsReader`: reads a partition outside of any group.

use std::sync::Arc;
use std::time::{Duration, Instant};

use chaton_core::event_fd::EventFd;
use chaton_streams::batch::Batch;
use chaton_streams::log::{Limits, Partition, PartitionReader};
use chaton_streams::record::Chunk;
use magnus::{method, prelude::*, Error, RModule, Ruby, Value};
use parking_lot::Mutex;

use super::batch::RbBatch;
use super::log_error;
use crate::convert::seconds;
use crate::gvl::{check_interrupts, without_gvl};
use crate::handle::Handle;

/// Bytes read at once.
const BYTES_MAX: usize = 1 << 20;

struct OpenReader {
    reader: Mutex<Option<Box<dyn PartitionReader>>>,
    event_fd: Arc<EventFd>,
    partition: Partition,
}

/// A reader as a Ruby object.
#[magnus::wrap(class = "Chaton::Native::StreamsReader", free_immediately, size)]
pub struct RbReader(Handle<OpenReader>);

impl RbReader {
    /// Around a reader.
    pub fn new(reader: Box<dyn PartitionReader>, partition: Partition) -> Self {
        let event_fd = reader.interrupter();
        Self(Handle::new(OpenReader { reader: Mutex::new(Some(reader)), event_fd, partition }))
    }

    /// The next records, waited for without the GVL; nil when time is up.
    fn next(
        ruby: &Ruby,
        rb_self: &Self,
        records: usize,
        timeout_s: f64,
    ) -> Result<Option<Value>, Error> {
        let open = rb_self.0.get()?;
        let until = Instant::now() + seconds("timeout_s", timeout_s)?;
        let limits = Limits { records, bytes: BYTES_MAX };
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let read = || {
                let mut reader = open.reader.lock();
                reader.as_mut().map_or(Ok(None), |reader| reader.next(limits, left))
            };
            let chunk = without_gvl(read, &|| open.event_fd.notify());
            check_interrupts()?;
            match chunk {
                Some(Ok(Some(chunk))) => return Ok(Some(batch(ruby, &open.partition, chunk))),
                Some(Err(failed)) => return Err(log_error::raised(&failed)),
                _ if left == Duration::ZERO => return Ok(None),
                _ => {}
            }
        }
    }

    /// Closes files and connections now instead of when it is collected.
    fn close(&self) -> Result<(), Error> {
        let open = self.0.get()?;
        open.event_fd.notify();
        while without_gvl(|| drop(open.reader.lock().take()), &|| {}).is_none() {
            check_interrupts()?;
        }
        Ok(())
    }
}

fn batch(ruby: &Ruby, partition: &Partition, chunk: Chunk) -> Value {
    RbBatch::wrap(ruby, Batch::detached(partition.clone(), Arc::new(chunk)), "chaton")
}

/// Defines the class.
pub fn define(ruby: &Ruby, native: RModule) -> Result<(), Error> {
    let class = native.define_class("StreamsReader", ruby.class_object())?;
    class.undef_default_alloc_func();
    class.define_method("next", method!(RbReader::next, 2))?;
    class.define_method("close", method!(RbReader::close, 0))?;
    Ok(())
}
