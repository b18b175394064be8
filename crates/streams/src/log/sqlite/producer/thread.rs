//! The thread that writes a producer's records.

use std::collections::BTreeMap;
use std::time::Duration;

use chaton_embedded::Transaction;

use super::buffer::{PendingBatch, SharedBuffer};
use crate::log::sqlite::batches;
use crate::log::sqlite::log_dir::{Done, Failure, LogDir};
use crate::log::sqlite::topics::{self, LocalTopic};
use crate::log::Result;

/// The longest wait for the log's lock before it is looked which records have become too old.
const LOCK_WAIT: Duration = Duration::from_millis(200);

/// The wait after which it is said why: others write for milliseconds, and a busy disk takes less.
const SAID_AFTER: Duration = Duration::from_secs(5);

/// Topics of a transaction, by slot.
type Topics = BTreeMap<usize, LocalTopic>;

/// Writes until the producer is dropped and its buffer is empty.
pub(super) fn run(shared: &SharedBuffer) {
    while let Some((taken, topics)) = next(shared) {
        let records: usize = taken.iter().map(|it| it.batch.count).sum();
        let bytes: usize = taken.iter().map(|it| it.batch.frames.len()).sum();
        write(shared, taken, &topics);
        let mut buffer = shared.buffer.lock();
        buffer.records -= records;
        buffer.bytes -= bytes;
        drop(buffer);
        shared.completed.notify_all();
    }
}

/// What to write next, and its topics as they are known; `None` at the end.
fn next(shared: &SharedBuffer) -> Option<(Vec<PendingBatch>, Topics)> {
    let mut buffer = shared.buffer.lock();
    loop {
        let taken = buffer.take();
        if !taken.is_empty() {
            let slots = taken.iter().map(|one| one.slot);
            let topics = slots.map(|slot| (slot, buffer.topic(slot).clone())).collect();
            return Some((taken, topics));
        }
        if buffer.closed {
            return None;
        }
        shared.added.wait(&mut buffer);
    }
}

/// Writes batches and completes their receipts. While another process holds the log's lock, it tries
/// again until they are too old.
fn write(shared: &SharedBuffer, mut taken: Vec<PendingBatch>, known: &Topics) {
    let dir = &shared.dir;
    let mut is_said = false;
    while !taken.is_empty() {
        let written = dir.wait_for_log_room().and_then(|()| {
            dir.write_within(LOCK_WAIT, true, |tx| append_all(tx, dir, &taken, known.clone()))
        });
        let results = match written {
            Ok((results, topics)) => {
                let mut buffer = shared.buffer.lock();
                for (slot, topic) in topics {
                    if !topic.is_same(&known[&slot]) {
                        buffer.update_topic(topic);
                    }
                }
                drop(buffer);
                results
            }
            Err(Failure::Busy(error)) => {
                if !is_said && taken.iter().any(|one| one.age() >= SAID_AFTER) {
                    shared.errors.complain(error.clone());
                    is_said = true;
                }
                let is_old = |one: &PendingBatch| one.age() >= known[&one.slot].config.lock_wait;
                let (old, waiting): (Vec<_>, Vec<_>) =
                    std::mem::take(&mut taken).into_iter().partition(is_old);
                let results = vec![Err(error); old.len()];
                complete(old, results, known);
                taken = waiting;
                continue;
            }
            Err(failure) => vec![Err(dir.error(failure)); taken.len()],
        };
        complete(std::mem::take(&mut taken), results, known);
    }
}

fn complete(batches: Vec<PendingBatch>, results: Vec<Result<i64>>, topics: &Topics) {
    for (one, result) in batches.into_iter().zip(results) {
        let slot = one.slot;
        one.complete(&topics[&slot].name, &result);
    }
}

/// Appends batches; returns the first offset of each, and the topics. A topic that was deleted is
/// created again, with as many partitions as before, because records wait for them.
fn append_all(
    tx: &Transaction<'_>,
    dir: &LogDir,
    taken: &[PendingBatch],
    mut topics: Topics,
) -> Done<(Vec<Result<i64>>, Topics)> {
    for topic in topics.values_mut() {
        *topic = topics::find_or_create(tx, &dir.settings, &topic.name, Some(topic.partitions))?;
    }
    let mut results = Vec::new();
    for one in taken {
        results.push(
            match batches::append(tx, dir, &topics[&one.slot], one.partition, [&one.batch]) {
                Ok(first) => Ok(first),
                // Nothing of it is written, and the others are.
                Err(Failure::Log(error)) => Err(error),
                Err(failure) => return Err(failure),
            },
        );
    }
    Ok((results, topics))
}
