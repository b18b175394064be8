//! Writes records and commits in one.

use std::sync::Arc;

use super::group::{key_of, GroupFiles};
use super::intents::{self, Frames, Intent, Part};
use super::place::Place;
use super::producer::check_size;
use super::writer::Writer;
use super::{failure, files, frame, murmur, offsets, topics};
use crate::log::{self, Commit, ErrorKind, LogError, Result};
use crate::record::{NewRecord, OwnedRecord};

/// See above.
pub(super) struct LocalTransactionalProducer {
    place: Arc<Place>,
    /// Where the next record without a key goes.
    turn: i32,
}

impl LocalTransactionalProducer {
    /// Of a log.
    pub fn new(place: &Arc<Place>) -> Self {
        Self { place: place.clone(), turn: 0 }
    }

    fn encode(&mut self, records: &[OwnedRecord]) -> Result<Frames> {
        let mut frames = Frames::new();
        let now_ms = files::now_ms();
        for record in records {
            let topic = topics::get_or_make(&self.place, &record.topic)?;
            record.with(|record| {
                let size = frame::size(record);
                check_size(record, size, topic.rules.message_bytes_max)?;
                let number = self.choose(record, topic.partitions)?;
                let out = frames.entry((record.topic.to_owned(), number)).or_default();
                frame::encode(out, record, size, now_ms);
                Ok(())
            })?;
        }
        Ok(frames)
    }

    fn choose(&mut self, record: &NewRecord<'_>, partitions: i32) -> Result<i32> {
        match (record.partition, record.key) {
            (Some(number), _) if (0..partitions).contains(&number) => Ok(number),
            (Some(number), _) => Err(failure::unknown_partition(record.topic, number, partitions)),
            (None, Some(key)) => Ok(murmur::partition_of(key, partitions)),
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
        offsets::check(commits)?;
        let files = GroupFiles::open(&self.place, group)?;
        let mut all = self.encode(records)?;
        let keys: Vec<_> =
            all.keys().map(|(topic, number)| intents::partition_key(topic, *number)).collect();
        let _held = intents::hold_all(&self.place, &keys, group)?;
        check_owner(&files, member, commits)?;
        let mut intent = Intent {
            group: group.into(),
            commits: commits.to_vec(),
            parts: Vec::new(),
            frames: Vec::new(),
        };
        for ((topic, number), frames) in &mut all {
            let rules = topics::get(&self.place, topic)?.rules;
            let mut writer = Writer::open(&self.place.partition(topic, *number))?;
            writer.refresh(&rules)?;
            let first = writer.end();
            writer.seal(frames, u64::MAX);
            let (topic, partition, bytes) = (topic.clone(), *number, frames.len());
            intent.parts.push(Part { topic, partition, first, bytes });
            intent.frames.append(frames);
        }
        let path = intent.write(&self.place)?;
        match intents::apply(&self.place, &intent) {
            Ok(true) => {
                // It holds. While its file cannot be removed, whoever comes
                // next finds that all of it is done, and tries that again.
                let _ = intents::finish(&self.place, &path);
                Ok(())
            }
            Ok(false) => Ok(()),
            Err(error) => Err(intents::take_back(&self.place, &path, error)),
        }
    }
}

/// Only who reads a partition says how far the group has come in it.
fn check_owner(files: &GroupFiles, member: &[u8], commits: &[Commit]) -> Result<()> {
    let state = files.load()?;
    let lost = commits.iter().find(|commit| {
        let owner = state.owners.get(&key_of(&commit.topic, commit.partition));
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
