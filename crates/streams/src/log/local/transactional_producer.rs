//! Writes records and commits in one.

use std::sync::Arc;

use super::group_files::GroupFiles;
use super::log_dir::{partition_key, LogDir};
use super::partition_writer::PartitionWriter;
use super::producer::check_size;
use super::txn_log::{self, FramesByPartition, TxnEntry, TxnPartition};
use super::{committed_offsets, errors, files, partitioner, record_frame, topics};
use crate::log::{self, Commit, ErrorKind, LogError, Result};
use crate::record::{NewRecord, OwnedRecord};

/// See above.
pub(super) struct LocalTransactionalProducer {
    dir: Arc<LogDir>,
    /// Where the next record without a key goes.
    turn: i32,
}

impl LocalTransactionalProducer {
    /// Of a log.
    pub fn new(dir: &Arc<LogDir>) -> Self {
        Self { dir: dir.clone(), turn: 0 }
    }

    fn encode(&mut self, records: &[OwnedRecord]) -> Result<FramesByPartition> {
        let mut frames = FramesByPartition::new();
        let now_ms = files::now_ms();
        for record in records {
            let topic = topics::get_or_make(&self.dir, &record.topic)?;
            record.with(|record| {
                let size = record_frame::size(record);
                check_size(record, size, topic.config.message_bytes_max)?;
                let number = self.choose(record, topic.partitions)?;
                let out = frames.entry((record.topic.to_owned(), number)).or_default();
                record_frame::encode(out, record, size, now_ms);
                Ok(())
            })?;
        }
        Ok(frames)
    }

    fn choose(&mut self, record: &NewRecord<'_>, partitions: i32) -> Result<i32> {
        match (record.partition, record.key) {
            (Some(number), _) if (0..partitions).contains(&number) => Ok(number),
            (Some(number), _) => Err(errors::unknown_partition(record.topic, number, partitions)),
            (None, Some(key)) => Ok(partitioner::partition_of(key, partitions)),
            (None, None) => {
                self.turn = (self.turn + 1) % partitions;
                Ok(self.turn)
            }
        }
    }
}

impl log::TransactionalProducer for LocalTransactionalProducer {
    fn transact(
        &mut self,
        records: &[OwnedRecord],
        group: &str,
        member: &[u8],
        commits: &[Commit],
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
                // It holds. While its file cannot be removed, whoever comes
                // next finds that all of it is done, and tries that again.
                let _ = txn_log::finish(&self.dir, &path);
                Ok(())
            }
            Ok(false) => Ok(()),
            Err(error) => Err(txn_log::abort(&self.dir, &path, error)),
        }
    }
}

/// Only who reads a partition says how far the group has come in it.
fn check_owner(files: &GroupFiles, member: &[u8], commits: &[Commit]) -> Result<()> {
    let state = files.load()?;
    let lost = commits.iter().find(|commit| {
        let owner = state.owners.get(&partition_key(&commit.topic, commit.partition));
        owner.map(String::as_bytes) != Some(member)
    });
    match lost {
        None => Ok(()),
        Some(commit) => Err(fenced(&files.name, commit)),
    }
}

/// A partition belongs to another member by now.
pub(super) fn fenced(group: &str, commit: &Commit) -> LogError {
    LogError::new(
        ErrorKind::Fenced,
        format!(
            "{}/{} is no longer this member's of group {group:?}; whoever reads it now begins \
             where it was committed",
            commit.topic, commit.partition
        ),
    )
}
