//! Writes records and commits in transactions.

use std::sync::Arc;

use super::group_files::GroupFiles;
use super::log_dir::{partition_key, LogDir};
use super::partition_writer::PartitionWriter;
use super::txn_log::{self, FramesByPartition, TxnEntry, TxnPartition};
use super::{committed_offsets, errors, files, record_frame, topics};
use crate::log::{Commit, Result, TransactionalProducer};
use crate::record::OwnedRecord;

pub(super) struct LocalTransactionalProducer {
    dir: Arc<LogDir>,
    /// The last partition chosen for a record without a key.
    round_robin: i32,
}

impl LocalTransactionalProducer {
    pub fn new(dir: &Arc<LogDir>) -> Self {
        Self { dir: dir.clone(), round_robin: 0 }
    }

    fn encode(&mut self, records: &[OwnedRecord]) -> Result<FramesByPartition> {
        let mut frames = FramesByPartition::new();
        let now_ms = files::now_ms();
        for record in records {
            let topic = topics::get_or_create(&self.dir, &record.topic)?;
            record.with(|record| {
                let size = record_frame::size(record);
                topic.config.check_size(record, size)?;
                let number = topic.partition_of(record)?.unwrap_or_else(|| {
                    self.round_robin = (self.round_robin + 1) % topic.partitions;
                    self.round_robin
                });
                let out = frames.entry((record.topic.to_owned(), number)).or_default();
                record_frame::encode(out, record, size, now_ms);
                Ok(())
            })?;
        }
        Ok(frames)
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
        committed_offsets::check(commits)?;
        let files = GroupFiles::open(&self.dir, group)?;
        let mut all = self.encode(records)?;
        let keys: Vec<_> =
            all.keys().map(|(topic, number)| txn_log::partition_lock_key(topic, *number)).collect();
        let _held = txn_log::acquire_all(&self.dir, &keys, group)?;
        check_owner(&files, member, commits)?;
        let mut txn = TxnEntry {
            group: group.into(),
            commits: commits.to_vec(),
            partitions: Vec::new(),
            frames: Vec::new(),
        };
        for ((topic, number), frames) in &mut all {
            let config = topics::get(&self.dir, topic)?.config;
            let mut writer = PartitionWriter::open(&self.dir.partition(topic, *number))?;
            writer.refresh(&config)?;
            let first = writer.end();
            writer.seal(frames, u64::MAX);
            let (topic, partition, bytes) = (topic.clone(), *number, frames.len());
            txn.partitions.push(TxnPartition { topic, partition, first, bytes });
            txn.frames.append(frames);
        }
        let path = txn.prepare(&self.dir)?;
        match txn_log::apply(&self.dir, &txn) {
            Ok(true) => {
                // The transaction holds. If its file cannot be removed, the
                // next process finds it applied and removes the file.
                let _ = txn_log::finish_txn(&self.dir, &path);
                Ok(())
            }
            Ok(false) => Ok(()),
            Err(error) => Err(txn_log::abort(&self.dir, &path, error)),
        }
    }
}

/// Only the owner of a partition may commit in it.
fn check_owner(files: &GroupFiles, member: &[u8], commits: &[Commit]) -> Result<()> {
    let state = files.load()?;
    let lost = commits.iter().find(|commit| {
        let owner = state.owners.get(&partition_key(&commit.topic, commit.partition));
        owner.map(String::as_bytes) != Some(member)
    });
    lost.map_or(Ok(()), |commit| Err(errors::fenced(&files.name, commit)))
}
