//! The admin client of the embedded log.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::group_files::GroupFiles;
use super::group_state::{GroupState, MemberInfo};
use super::log_dir::{folders, parse_partition_key, unescaped, LogDir};
use super::partition_cursor::PartitionCursor;
use super::topics;
use super::{committed_offsets, errors, segment};
use crate::log::{
    self, Commit, ErrorKind, GroupDescription, LogError, MemberDescription, NewTopic, Partition,
    PartitionOffsets, Position, Result, TopicDescription,
};

pub(super) struct LocalAdmin(Arc<LogDir>);

impl LocalAdmin {
    pub fn new(dir: &Arc<LogDir>) -> Self {
        Self(dir.clone())
    }

    fn describe(&self, topic: topics::LocalTopic) -> Result<TopicDescription> {
        let mut partitions = Vec::new();
        for number in 0..topic.partitions {
            let partition = Partition { topic: topic.name.clone(), number };
            partitions.push(self.offsets(&partition)?);
        }
        Ok(TopicDescription {
            name: topic.name.to_string(),
            partitions,
            replication: 1,
            settings: topic.settings,
        })
    }

    fn offsets(&self, partition: &Partition) -> Result<PartitionOffsets> {
        let number = partition.number;
        let mut cursor = match PartitionCursor::open(&self.0, partition, Position::Latest) {
            // The first look creates a lock, for which a full disk has no room.
            Err(error) if error.kind == ErrorKind::Full && self.is_blank(partition) => {
                return Ok(PartitionOffsets { number, start: 0, end: 0 });
            }
            opened => opened?,
        };
        cursor.recover_tail()?;
        let (start, end) = (cursor.start()?, cursor.end());
        Ok(PartitionOffsets { number, start: start.min(end), end })
    }

    /// Whether nothing was ever written to it.
    fn is_blank(&self, partition: &Partition) -> bool {
        let folder = self.0.partition(&partition.topic, partition.number);
        segment::list(&folder).is_ok_and(|bases| bases.is_empty())
    }

    /// Checks that a commit is of an existing partition and not past its end.
    fn check(&self, commit: &Commit) -> Result<()> {
        let partition = Partition { topic: commit.topic.as_str().into(), number: commit.partition };
        topics::get_with(&self.0, &partition)?;
        let end = self.offsets(&partition)?.end;
        // An expired offset is valid: reading continues with the first record that is kept.
        let offset = commit.offset;
        if offset <= end {
            return Ok(());
        }
        Err(errors::invalid(format!(
            "{partition} has no offset {offset} yet: {end} is written next; choose one up to {end}"
        )))
    }

    /// The group, if it exists.
    fn find(&self, group: &str) -> Result<Option<GroupFiles>> {
        let exists = self.0.group(group).is_dir();
        exists.then(|| GroupFiles::open(&self.0, group)).transpose()
    }
}

impl log::AdminClient for LocalAdmin {
    fn topics(&mut self) -> Result<Vec<TopicDescription>> {
        let mut all = Vec::new();
        for name in topics::names(&self.0)? {
            all.extend(self.topic(&name)?);
        }
        Ok(all)
    }

    fn topic(&mut self, name: &str) -> Result<Option<TopicDescription>> {
        let Some(topic) = topics::find(&self.0, name)? else { return Ok(None) };
        match self.describe(topic) {
            Ok(topic) => Ok(Some(topic)),
            // It was deleted meanwhile.
            Err(error) if error.kind == ErrorKind::UnknownTopic => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn create(&mut self, topic: &NewTopic) -> Result<()> {
        topics::create(&self.0, topic)
    }

    fn grow(&mut self, name: &str, total: i32) -> Result<()> {
        topics::grow(&self.0, name, total)
    }

    fn configure(&mut self, name: &str, settings: &BTreeMap<String, String>) -> Result<()> {
        topics::configure(&self.0, name, settings)
    }

    fn delete(&mut self, name: &str) -> Result<()> {
        topics::delete(&self.0, name)?;
        // A later topic of this name begins without commits.
        for group in folders(&self.0.groups())?.iter().filter_map(|name| unescaped(name)) {
            let files = GroupFiles::open(&self.0, &group)?;
            let _held = files.lock()?;
            committed_offsets::forget(&files.folder, name, self.0.settings.durable)?;
        }
        Ok(())
    }

    fn groups(&mut self) -> Result<Vec<GroupDescription>> {
        let mut groups = Vec::new();
        for name in folders(&self.0.groups())?.iter().filter_map(|name| unescaped(name)) {
            let files = GroupFiles::open(&self.0, &name)?;
            let _held = files.lock()?;
            let mut state = files.load()?;
            files.remove_dead(&mut state)?;
            if !state.members.is_empty() || committed_offsets::exist(&files.folder) {
                groups.push(GroupDescription {
                    name,
                    state: state_of(&state).into(),
                    members: members(&state),
                });
            }
        }
        Ok(groups)
    }

    fn committed(&mut self, group: &str) -> Result<Vec<Commit>> {
        let Some(files) = self.find(group)? else { return Ok(Vec::new()) };
        let _held = files.lock()?;
        Ok(committed_offsets::load(&files.folder)?.into_values().collect())
    }

    fn set_committed(&mut self, group: &str, commits: &[Commit]) -> Result<()> {
        committed_offsets::check(commits)?;
        commits.iter().try_for_each(|commit| self.check(commit))?;
        let files = GroupFiles::open(&self.0, group)?;
        let _held = files.lock()?;
        let mut state = files.load()?;
        files.remove_dead(&mut state)?;
        if !state.members.is_empty() {
            let count = state.members.len();
            return Err(LogError::new(
                ErrorKind::Refused,
                format!("group {group:?} has members ({count}); stop them, then set its offsets"),
            ));
        }
        committed_offsets::append(&files.folder, commits, self.0.settings.durable)
    }
}

/// Kafka's name of the state.
fn state_of(state: &GroupState) -> &'static str {
    if state.members.is_empty() {
        "Empty"
    } else if state.owners == state.target {
        "Stable"
    } else {
        "PreparingRebalance"
    }
}

fn members(state: &GroupState) -> Vec<MemberDescription> {
    let owned = |id: &String| {
        let mut keys: Vec<_> =
            state.owners.iter().filter(|(_, owner)| *owner == id).map(|(key, _)| key).collect();
        keys.sort();
        keys.into_iter()
            .filter_map(|key| parse_partition_key(key))
            .map(|Partition { topic, number }| format!("{topic}-{number}"))
            .collect()
    };
    let describe = |(id, info): (&String, &MemberInfo)| MemberDescription {
        id: id.clone(),
        host: info.host.clone(),
        partitions: owned(id),
    };
    state.members.iter().map(describe).collect()
}
