//! The thread that writes what a process produces.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::buffer::PartitionBuffer;
use super::SharedBuffer;
use crate::log::local::log_dir::LogDir;
use crate::log::local::partition_writer::{AppendResult, PartitionWriter};
use crate::log::local::path_lock::PathLock;
use crate::log::local::topics::{self, LocalTopic};
use crate::log::local::{errors, files, txn_log};
use crate::log::{LogError, Result};

/// Partitions held open at once; each has four descriptors and a mapping.
const OPEN_MAX: usize = 64;

/// A partition that is written to.
struct OpenWriter {
    writer: PartitionWriter,
    lock: Arc<PathLock>,
    used: u64,
}

#[derive(Default)]
struct OpenWriters {
    open: HashMap<(usize, i32), OpenWriter>,
    uses: u64,
}

/// Writes until the producer is gone and all is written.
pub(super) fn run(shared: &SharedBuffer) {
    let mut writers = OpenWriters::default();
    loop {
        let mut buffer = shared.buffer.lock();
        while buffer.is_idle() && !buffer.closed {
            shared.added.wait(&mut buffer);
        }
        let Some((slot, partition, batch)) = buffer.take() else { return };
        let topic = buffer.topic(slot).clone();
        drop(buffer);
        let (records, bytes) = (batch.len(), batch.frames.len());
        write(shared, &mut writers, slot, topic, partition, batch);
        let mut buffer = shared.buffer.lock();
        buffer.records -= records;
        buffer.bytes -= bytes;
        drop(buffer);
        shared.ended.notify_all();
    }
}

/// Writes one partition's records and tells who waits for them.
fn write(
    shared: &SharedBuffer,
    writers: &mut OpenWriters,
    slot: usize,
    known: LocalTopic,
    partition: i32,
    mut batch: PartitionBuffer,
) {
    let written = current(shared, writers, slot, known)
        .and_then(|topic| writers.write(&shared.dir, slot, &topic, partition, &mut batch.frames));
    match written {
        Ok(AppendResult { first, count, error }) => {
            batch.settle(partition, first, count, error.as_ref());
        }
        Err(error) => batch.settle(partition, 0, 0, Some(&error)),
    }
}

/// The topic as it is now.
fn current(
    shared: &SharedBuffer,
    writers: &mut OpenWriters,
    slot: usize,
    known: LocalTopic,
) -> Result<LocalTopic> {
    if files::file_id(&shared.dir.topic_metadata(&known.name)) == known.identity {
        return Ok(known);
    }
    // Its files may be others now.
    writers.open.retain(|(of, _), _| *of != slot);
    match topics::find(&shared.dir, &known.name)? {
        Some(topic) => {
            shared.buffer.lock().learn(topic.clone());
            Ok(topic)
        }
        None => {
            // As the first record of a topic does.
            let made = topics::recreate(&shared.dir, &known);
            let mut buffer = shared.buffer.lock();
            match made {
                Ok(topic) => {
                    buffer.learn(topic.clone());
                    Ok(topic)
                }
                Err(error) => {
                    buffer.unlearn(slot);
                    Err(error)
                }
            }
        }
    }
}

impl OpenWriters {
    fn write(
        &mut self,
        dir: &LogDir,
        slot: usize,
        topic: &LocalTopic,
        partition: i32,
        frames: &mut [u8],
    ) -> Result<AppendResult> {
        if partition >= topic.partitions {
            return Err(errors::unknown_partition(&topic.name, partition, topic.partitions));
        }
        let folder = dir.partition(&topic.name, partition);
        if self.open.get(&(slot, partition)).is_some_and(|open| open.writer.is_gone()) {
            // With its lock: others have another one by now.
            self.open.remove(&(slot, partition));
        }
        let open = self.open(slot, partition, folder)?;
        let key = txn_log::partition_lock_key(&topic.name, partition);
        let held = txn_log::acquire(dir, &open.lock, &key, topic.config.lock_wait)?;
        let refreshed = open.writer.refresh(&topic.config);
        let written = refreshed.map(|()| open.writer.append(frames, &topic.config));
        drop(held);
        if has_failed(&written) {
            // Begins again from what the files say.
            self.open.remove(&(slot, partition));
        }
        written
    }

    fn open(&mut self, slot: usize, partition: i32, folder: PathBuf) -> Result<&mut OpenWriter> {
        self.uses += 1;
        let uses = self.uses;
        if !self.open.contains_key(&(slot, partition)) {
            if self.open.len() >= OPEN_MAX {
                let oldest =
                    self.open.iter().min_by_key(|(_, open)| open.used).map(|(key, _)| *key);
                oldest.and_then(|key| self.open.remove(&key));
            }
            if !folder.is_dir() {
                topics::restore_partition(&folder)?;
            }
            let lock = PathLock::open(&folder.join("writer.lock"))?;
            let writer = PartitionWriter::open(&folder)?;
            self.open.insert((slot, partition), OpenWriter { writer, lock, used: uses });
        }
        let open = self.open.get_mut(&(slot, partition));
        let open = open.unwrap_or_else(|| unreachable!("opened above"));
        open.used = uses;
        Ok(open)
    }
}

fn has_failed(written: &std::result::Result<AppendResult, LogError>) -> bool {
    written.as_ref().map_or(true, |written| written.error.is_some())
}
