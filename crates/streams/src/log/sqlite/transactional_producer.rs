//! Writes records and commits in transactions.

use std::collections::BTreeMap;
use std::sync::Arc;

use chaton_embedded::{Enlisted, Transaction};

use super::batches::{self, NewBatch};
use super::group_state::Owner;
use super::log_dir::{Done, LogDir};
use super::{errors, frames, groups, topics};
use crate::log::{Commit, LogError, Result, TransactionalProducer};
use crate::record::OwnedRecord;

/// The records of a transaction by topic and partition.
type BatchesByPartition = BTreeMap<(String, i32), NewBatch>;

pub(super) struct LocalTransactionalProducer {
    dir: Arc<LogDir>,
    /// The last partition chosen for a record without a key.
    round_robin: i32,
}

impl LocalTransactionalProducer {
    pub fn new(dir: &Arc<LogDir>) -> Self {
        Self { dir: dir.clone(), round_robin: fastrand::i32(0..i32::MAX) }
    }

    fn encode(&mut self, records: &[OwnedRecord]) -> Result<BatchesByPartition> {
        let mut batches = BatchesByPartition::new();
        let now_ms = self.dir.now_ms();
        for record in records {
            let topic = topics::get_or_create(&self.dir, &record.topic)?;
            record.with(|record| {
                let size = frames::size(record);
                topic.config.check_size(record, size)?;
                let number = topic.partition_of(record)?.unwrap_or_else(|| {
                    self.round_robin = self.round_robin.wrapping_add(1) & i32::MAX;
                    self.round_robin % topic.partitions
                });
                let batch = batches.entry((record.topic.to_owned(), number)).or_default();
                batch.add(record, size, now_ms);
                Ok::<_, LogError>(())
            })?;
        }
        Ok(batches)
    }

    fn write(
        &mut self,
        records: &[OwnedRecord],
        also: Option<&dyn Enlisted>,
        group: &str,
        member: &[u8],
        commits: &[Commit],
    ) -> Result<()> {
        groups::check(commits)?;
        let member = Owner::of_identity(member);
        let all = self.encode(records)?;
        self.dir.write(true, |tx| {
            let state = groups::load(tx.conn, group)?;
            if let Some(other) = groups::others(&state, &member, commits).first() {
                Err(errors::fenced(group, other))?;
            }
            append(tx, &self.dir, &all)?;
            also.map_or(Ok(()), |also| also.write(tx))?;
            groups::commit(tx, group, commits)
        })
    }
}

fn append(tx: &Transaction<'_>, dir: &LogDir, all: &BatchesByPartition) -> Done<()> {
    for ((topic, number), batch) in all {
        let topic = topics::get(tx.conn, &dir.settings, topic)?;
        batches::append(tx, dir, &topic, *number, [batch])?;
    }
    Ok(())
}

/// Records that are written in a transaction of the store of jobs.
struct EnlistedRecords(Arc<LogDir>, BatchesByPartition);

impl Enlisted for EnlistedRecords {
    fn write(&self, tx: &Transaction<'_>) -> chaton_embedded::Result<()> {
        let Self(dir, batches) = self;
        let done = append(tx, dir, batches);
        done.map_err(|failure| chaton_embedded::Error::refused(dir.error(failure).message))
    }
}

/// See [`RecordLog::enlist`](crate::log::RecordLog::enlist).
pub(super) fn enlist(dir: &Arc<LogDir>, records: &[OwnedRecord]) -> Result<Box<dyn Enlisted>> {
    let batches = LocalTransactionalProducer::new(dir).encode(records)?;
    Ok(Box::new(EnlistedRecords(dir.clone(), batches)))
}

impl TransactionalProducer for LocalTransactionalProducer {
    fn transact(
        &mut self,
        records: &[OwnedRecord],
        group: &str,
        member: &[u8],
        commits: &[Commit],
        _wanted: &dyn Fn() -> bool,
    ) -> Result<()> {
        self.write(records, None, group, member, commits)
    }

    fn transact_with(
        &mut self,
        also: &dyn Enlisted,
        records: &[OwnedRecord],
        group: &str,
        member: &[u8],
        commits: &[Commit],
    ) -> Result<()> {
        self.write(records, Some(also), group, member, commits)
    }
}
