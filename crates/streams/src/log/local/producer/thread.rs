//! The thread that writes a producer's records.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::buffer::{SharedBuffer, TakenRecords};
use crate::log::local::log_dir::LogDir;
use crate::log::local::partition_writer::{AppendResult, PartitionWriter};
use crate::log::local::path_lock::PathLock;
use crate::log::local::topics::{self, LocalTopic};
use crate::log::local::{errors, files, txn_log};
use crate::log::{Partition, Result};

/// Partitions that are kept open; each needs four descriptors.
const OPEN_MAX: usize = 64;

/// The longest wait for the lock of one partition, because the others wait with it: longer than
/// most writers need for a sync of the disk.
const LOCK_WAIT: Duration = Duration::from_millis(20);

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
    let mut locked_out = VecDeque::new();
    let mut retries = false;
    while let Some((taken, wait)) = next(shared, &mut locked_out, retries) {
        retries = !retries;
        let (records, bytes) = (taken.records.len(), taken.records.frames.len());
        if let Some(taken) = write(shared, &mut writers, taken, wait) {
            locked_out.push_back(taken);
            continue;
        }
        let mut buffer = shared.buffer.lock();
        buffer.records -= records;
        buffer.bytes -= bytes;
        drop(buffer);
        shared.completed.notify_all();
    }
}

/// What to write next, and how long to wait for its lock; `None` at the end. Partitions whose lock
/// another process holds are tried again every other time (`retries`), and waited for when there
/// is nothing else to write. Until then nothing more of them is taken, which keeps their order.
fn next(
    shared: &SharedBuffer,
    locked_out: &mut VecDeque<TakenRecords>,
    retries: bool,
) -> Option<(TakenRecords, Duration)> {
    let mut buffer = shared.buffer.lock();
    loop {
        let is_other = |slot: usize, partition: i32| {
            !locked_out.iter().any(|one| (one.slot, one.partition) == (slot, partition))
        };
        let others = buffer.is_pending(is_other);
        if others && (!retries || locked_out.is_empty()) {
            return Some((buffer.take(is_other)?, LOCK_WAIT));
        }
        if let Some(taken) = locked_out.pop_front() {
            return Some((taken, if others { Duration::ZERO } else { LOCK_WAIT }));
        }
        if buffer.closed {
            return None;
        }
        shared.added.wait(&mut buffer);
    }
}

/// Writes one partition's records and completes their receipts. Returns the records whose lock
/// another process holds, while there is time left to write them.
fn write(
    shared: &SharedBuffer,
    writers: &mut OpenWriters,
    mut taken: TakenRecords,
    wait: Duration,
) -> Option<TakenRecords> {
    let known = shared.buffer.lock().topic(taken.slot).clone();
    let place = Partition { topic: known.name.clone(), number: taken.partition };
    let lock_wait = known.config.lock_wait;
    let left = lock_wait.saturating_sub(taken.records.age());
    let result = (shared.dir.id())
        .and_then(|_| refresh_topic(shared, writers, taken.slot, known))
        .and_then(|topic| writers.append(&shared.dir, &topic, &mut taken, wait.min(left)));
    match result {
        Ok(None) if left > wait => return Some(taken),
        Ok(None) => {
            let lock = shared.dir.partition(&place.topic, place.number).join("writer.lock");
            let error = errors::lock_timed_out(&lock, lock_wait.as_millis());
            taken.records.complete(&place, 0..0, Some(&error));
        }
        Ok(Some(AppendResult { first, count, error })) => {
            taken.records.complete(&place, first..first + count as i64, error.as_ref());
        }
        Err(error) => taken.records.complete(&place, 0..0, Some(&error)),
    }
    None
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
    /// Appends records; `None` if another process holds the lock for longer than `wait`.
    fn append(
        &mut self,
        dir: &LogDir,
        topic: &LocalTopic,
        taken: &mut TakenRecords,
        wait: Duration,
    ) -> Result<Option<AppendResult>> {
        let (slot, partition) = (taken.slot, taken.partition);
        topic.check_partition(partition)?;
        let folder = dir.partition(&topic.name, partition);
        if self.open.get(&(slot, partition)).is_some_and(|open| open.writer.is_gone()) {
            // The lock goes with it: other processes use another file now.
            self.open.remove(&(slot, partition));
        }
        let open = self.open(slot, partition, folder)?;
        let key = txn_log::partition_lock_key(&topic.name, partition);
        let Some(held) = txn_log::acquire_within(dir, &open.lock, &key, wait)? else {
            return Ok(None);
        };
        let refreshed = open.writer.refresh(&topic.config);
        let frames = &mut taken.records.frames;
        let result = refreshed.map(|()| open.writer.append(frames, &topic.config));
        drop(held);
        if result.as_ref().map_or(true, |result| result.error.is_some()) {
            // The next append begins from what the files say.
            self.open.remove(&(slot, partition));
        }
        result.map(Some)
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
