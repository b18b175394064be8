//! Looks after topics and groups.

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

/// See above.
pub(super) struct LocalAdmin(Arc<LogDir>);

impl LocalAdmin {
    /// Of a log.
    pub fn new(dir: &Arc<LogDir>) -> Self {
        Self(dir.clone())
    }

    fn describe(&self, topic: topics::LocalTopic) -> Result<TopicDescription> {
        let mut partitions = Vec::new();
        for number in 0..topic.partitions {
            let partition = Partition { topic: topic.name.clone(), number };
            partitions.push(self.look_at(&partition)?);
        }
        Ok(TopicDescription {
            name: topic.name.to_string(),
            partitions,
            replication: 1,
            settings: topic.settings,
        })
    }

    fn look_at(&self, partition: &Partition) -> Result<PartitionOffsets> {
        let number = partition.number;
        let mut cursor = match PartitionCursor::open(&self.0, partition, Position::Latest) {
            // Who looks first makes the lock, which a full disk has no room for.
            Err(error) if error.kind == ErrorKind::Full && self.is_blank(partition) => {
                return Ok(PartitionOffsets { number, start: 0, end: 0 });
            }
            opened => opened?,
        };
        cursor.settle()?;
        let (start, end) = (cursor.start()?, cursor.end());
        Ok(PartitionOffsets { number, start: start.min(end), end })
    }

    /// Whether nothing was ever written there.
    fn is_blank(&self, partition: &Partition) -> bool {
        let folder = self.0.partition(&partition.topic, partition.number);
        segment::list(&folder).is_ok_and(|bases| bases.is_empty())
    }

    /// That a partition is there, and its records reach to a commit.
    fn check(&self, commit: &Commit) -> Result<()> {
        let topic = topics::get(&self.0, &commit.topic)?;
        let Commit { topic: name, partition: number, offset, .. } = commit;
        if !(0..topic.partitions).contains(number) {
            return Err(errors::unknown_partition(name, *number, topic.partitions));
        }
        let partition = Partition { topic: topic.name.clone(), number: *number };
        let end = self.look_at(&partition)?.end;
        // One that retention has passed is right: reading goes on with the first that is kept.
        if *offset <= end {
            return Ok(());
        }
        Err(errors::invalid(format!(
            "{name}/{number} has no offset {offset} yet: {end} is written next; choose one up to {end}"
        )))
    }

    /// A group that is there.
    fn find(&self, group: &str) -> Result<Option<GroupFiles>> {
        let there = self.0.group(group).is_dir();
        there.then(|| GroupFiles::open(&self.0, group)).transpose()
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
            // Deleted meanwhile.
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
        // A topic that is made under this name later begins anew.
        for group in folders(&self.0.groups())?.iter().filter_map(|name| unescaped(name)) {
            let files = GroupFiles::open(&self.0, &group)?;
            let _held = files.hold()?;
            committed_offsets::forget(&files.folder, name, self.0.settings.durable)?;
        }
        Ok(())
    }

    fn groups(&mut self) -> Result<Vec<GroupDescription>> {
        let mut groups = Vec::new();
        for name in folders(&self.0.groups())?.iter().filter_map(|name| unescaped(name)) {
            let files = GroupFiles::open(&self.0, &name)?;
            let _held = files.hold()?;
            let mut state = files.load()?;
            files.bury(&mut state)?;
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
        let _held = files.hold()?;
        Ok(committed_offsets::load(&files.folder)?.into_values().collect())
    }

    fn set_committed(&mut self, group: &str, commits: &[Commit]) -> Result<()> {
        committed_offsets::check(commits)?;
        commits.iter().try_for_each(|commit| self.check(commit))?;
        let files = GroupFiles::open(&self.0, group)?;
        let _held = files.hold()?;
        let mut state = files.load()?;
        files.bury(&mut state)?;
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

/// As Kafka calls it.
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
