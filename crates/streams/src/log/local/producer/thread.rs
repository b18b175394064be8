//! The thread that writes a producer's records.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::buffer::{PartitionBuffer, SharedBuffer};
use crate::log::local::log_dir::LogDir;
use crate::log::local::partition_writer::{AppendResult, PartitionWriter};
use crate::log::local::path_lock::PathLock;
use crate::log::local::topics::{self, LocalTopic};
use crate::log::local::{files, txn_log};
use crate::log::{Partition, Result};

/// Partitions that are kept open; each needs four descriptors.
const OPEN_MAX: usize = 64;

struct OpenWriter {
    writer: PartitionWriter,
    lock: Arc<PathLock>,
    last_use: u64,
}

#[derive(Default)]
struct OpenWriters {
    open: HashMap<(usize, i32), OpenWriter>,
    uses: u64,
}

/// Writes until the producer is dropped and its buffer is empty.
pub(super) fn run(shared: &SharedBuffer) {
    let mut writers = OpenWriters::default();
    loop {
        let mut buffer = shared.buffer.lock();
        while buffer.is_idle() && !buffer.closed {
            shared.added.wait(&mut buffer);
        }
        let Some((slot, partition, taken)) = buffer.take() else { return };
        let topic = buffer.topic(slot).clone();
        drop(buffer);
        let (records, bytes) = (taken.len(), taken.frames.len());
        write(shared, &mut writers, slot, topic, partition, taken);
        let mut buffer = shared.buffer.lock();
        buffer.records -= records;
        buffer.bytes -= bytes;
        drop(buffer);
        shared.completed.notify_all();
    }
}

/// Writes one partition's records and completes their receipts.
fn write(
    shared: &SharedBuffer,
    writers: &mut OpenWriters,
    slot: usize,
    known: LocalTopic,
    partition: i32,
    mut records: PartitionBuffer,
) {
    let place = Partition { topic: known.name.clone(), number: partition };
    let result = refresh_topic(shared, writers, slot, known).and_then(|topic| {
        writers.append(&shared.dir, slot, &topic, partition, &mut records.frames)
    });
    match result {
        Ok(AppendResult { first, count, error }) => {
            records.complete(&place, first..first + count as i64, error.as_ref());
        }
        Err(error) => records.complete(&place, 0..0, Some(&error)),
    }
}

/// The topic as it is now; a deleted one is created again.
fn refresh_topic(
    shared: &SharedBuffer,
    writers: &mut OpenWriters,
    slot: usize,
    known: LocalTopic,
) -> Result<LocalTopic> {
    if files::file_id(&shared.dir.topic_metadata(&known.name)) == known.identity {
        return Ok(known);
    }
    // Its files may have been replaced.
    writers.open.retain(|(of, _), _| *of != slot);
    let topic = match topics::find(&shared.dir, &known.name)? {
        Some(topic) => topic,
        None => topics::recreate(&shared.dir, &known)
            .inspect_err(|_| shared.buffer.lock().forget_topic(slot))?,
    };
    shared.buffer.lock().update_topic(topic.clone());
    Ok(topic)
}

impl OpenWriters {
    fn append(
        &mut self,
        dir: &LogDir,
        slot: usize,
        topic: &LocalTopic,
        partition: i32,
        frames: &mut [u8],
    ) -> Result<AppendResult> {
        topic.check_partition(partition)?;
        let folder = dir.partition(&topic.name, partition);
        if self.open.get(&(slot, partition)).is_some_and(|open| open.writer.is_gone()) {
            // The lock goes with it: other processes use another file now.
            self.open.remove(&(slot, partition));
        }
        let open = self.open(slot, partition, folder)?;
        let key = txn_log::partition_lock_key(&topic.name, partition);
        let held = txn_log::acquire(dir, &open.lock, &key, topic.config.lock_wait)?;
        let refreshed = open.writer.refresh(&topic.config);
        let result = refreshed.map(|()| open.writer.append(frames, &topic.config));
        drop(held);
        if result.as_ref().map_or(true, |result| result.error.is_some()) {
            // The next append begins from what the files say.
            self.open.remove(&(slot, partition));
        }
        result
    }

    fn open(&mut self, slot: usize, partition: i32, folder: PathBuf) -> Result<&mut OpenWriter> {
        self.uses += 1;
        let uses = self.uses;
        if !self.open.contains_key(&(slot, partition)) {
            if self.open.len() >= OPEN_MAX {
                let oldest =
                    self.open.iter().min_by_key(|(_, open)| open.last_use).map(|(key, _)| *key);
                oldest.and_then(|key| self.open.remove(&key));
            }
            if !folder.is_dir() {
                topics::restore_partition(&folder)?;
            }
            let lock = PathLock::open(&folder.join("writer.lock"))?;
            let writer = PartitionWriter::open(&folder)?;
            self.open.insert((slot, partition), OpenWriter { writer, lock, last_use: uses });
        }
        let open = self.open.get_mut(&(slot, partition));
        let open = open.unwrap_or_else(|| unreachable!("opened above"));
        open.last_use = uses;
        Ok(open)
    }
}
