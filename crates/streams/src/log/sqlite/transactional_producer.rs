//! Writes records and commits in transactions.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::batches::{self, NewBatch};
use super::log_dir::{now_ms, LogDir};
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
        Self { dir: dir.clone(), round_robin: 0 }
    }

    fn encode(&mut self, records: &[OwnedRecord]) -> Result<BatchesByPartition> {
        let mut batches = BatchesByPartition::new();
        let now_ms = now_ms();
        for record in records {
            let topic = topics::get_or_create(&self.dir, &record.topic)?;
            record.with(|record| {
                let size = frames::size(record);
                topic.config.check_size(record, size)?;
                let number = topic.partition_of(record)?.unwrap_or_else(|| {
                    self.round_robin = (self.round_robin + 1) % topic.partitions;
                    self.round_robin
                });
                let batch = batches.entry((record.topic.to_owned(), number)).or_default();
                batch.add(record, size, now_ms);
                Ok::<_, LogError>(())
            })?;
        }
        Ok(batches)
    }
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
        groups::check(commits)?;
        let all = self.encode(records)?;
        let log = &self.dir.settings;
        self.dir.write(true, |tx| {
            let state = groups::load(tx.conn, group)?;
            let member = String::from_utf8_lossy(member);
            if let Some(other) = groups::others(&state, &member, commits).first() {
                Err(errors::fenced(group, other))?;
            }
            for ((topic, number), batch) in &all {
                let topic = topics::get(tx.conn, log, topic)?;
                batches::append(tx, &topic, *number, [batch])?;
            }
            groups::commit(tx, group, commits)
        })
    }
}
