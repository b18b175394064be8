//! The admin client of the embedded log.

use std::collections::BTreeMap;
use std::sync::Arc;

use rusqlite::Connection;

use super::group_state::{GroupState, MemberInfo};
use super::log_dir::{Done, LogDir};
use super::{batches, errors, groups, topics};
use crate::log::{
    self, Commit, ErrorKind, GroupDescription, LogError, MemberDescription, NewTopic, Partition,
    PartitionOffsets, Result, TopicDescription,
};

pub(super) struct LocalAdmin(Arc<LogDir>);

impl LocalAdmin {
    pub fn new(dir: &Arc<LogDir>) -> Self {
        Self(dir.clone())
    }

    fn describe(&self, conn: &Connection, name: &str) -> Done<Option<TopicDescription>> {
        let Some(topic) = topics::find(conn, &self.0.settings, name)? else { return Ok(None) };
        let mut partitions = Vec::new();
        for number in 0..topic.partitions {
            if let Some(row) = topics::partition(conn, topic.id, number)? {
                partitions.push(PartitionOffsets { number, start: row.start, end: row.next });
            }
        }
        let (name, settings) = (topic.name.to_string(), topic.settings);
        Ok(Some(TopicDescription { name, partitions, replication: 1, settings }))
    }

    /// Checks that a commit is of an existing partition and not past its end.
    fn check(&self, conn: &Connection, commit: &Commit) -> Done<()> {
        let partition = Partition { topic: commit.topic.as_str().into(), number: commit.partition };
        let end = topics::get_partition(conn, &self.0.settings, &partition)?.next;
        // An expired offset is valid: reading continues with the first record that is kept.
        let offset = commit.offset;
        if offset <= end {
            return Ok(());
        }
        Err(errors::invalid(format!(
            "{partition} has no offset {offset} yet: {end} is written next; choose one up to {end}"
        )))?
    }
}

impl log::AdminClient for LocalAdmin {
    fn topics(&mut self) -> Result<Vec<TopicDescription>> {
        let all = self.0.read(|conn| {
            let names = topics::names(conn)?;
            let found = names.iter().map(|name| self.describe(conn, name));
            Ok(found.collect::<Done<Vec<_>>>()?.into_iter().flatten().collect())
        })?;
        Ok(all.unwrap_or_default())
    }

    fn topic(&mut self, name: &str) -> Result<Option<TopicDescription>> {
        Ok(self.0.read(|conn| self.describe(conn, name))?.flatten())
    }

    fn create(&mut self, topic: &NewTopic) -> Result<()> {
        self.0.write(true, |tx| topics::create(tx, &self.0.settings, topic))
    }

    fn grow(&mut self, name: &str, total: i32) -> Result<()> {
        self.0.write(true, |tx| topics::grow(tx, &self.0.settings, name, total))
    }

    fn configure(&mut self, name: &str, settings: &BTreeMap<String, String>) -> Result<()> {
        self.0.write(true, |tx| topics::configure(tx, &self.0.settings, name, settings))
    }

    fn delete(&mut self, name: &str) -> Result<()> {
        self.0.write(true, |tx| topics::delete(tx, &self.0.settings, name))?;
        // In steps, so that other writers are not held up. If this process dies, the next deletion goes on.
        while self.0.write(false, batches::sweep)? {}
        Ok(())
    }

    fn groups(&mut self) -> Result<Vec<GroupDescription>> {
        let dir = &self.0;
        let all = dir.read(|conn| {
            let mut groups = Vec::new();
            for name in groups::names(conn)? {
                let mut state = groups::load(conn, &name)?;
                groups::remove_dead(dir, &mut state)?;
                if !state.members.is_empty() || groups::has_committed(conn, &name)? {
                    let (members, state) = (members(&state), state_of(&state).into());
                    groups.push(GroupDescription { name, state, members });
                }
            }
            Ok(groups)
        })?;
        Ok(all.unwrap_or_default())
    }

    fn committed(&mut self, group: &str) -> Result<Vec<Commit>> {
        let found = self.0.read(|conn| groups::committed(conn, group, None))?;
        Ok(found.unwrap_or_default())
    }

    fn set_committed(&mut self, group: &str, commits: &[Commit]) -> Result<()> {
        groups::check(commits)?;
        self.0.write(true, |tx| {
            commits.iter().try_for_each(|commit| self.check(tx.conn, commit))?;
            let mut state = groups::load(tx.conn, group)?;
            groups::remove_dead(&self.0, &mut state)?;
            if !state.members.is_empty() {
                let count = state.members.len();
                Err(LogError::new(
                    ErrorKind::Refused,
                    format!(
                        "group {group:?} has members ({count}); stop them, then set its offsets"
                    ),
                ))?;
            }
            groups::commit(tx, group, commits)
        })
    }
}

/// Kafka's name of the state.
fn state_of(state: &GroupState) -> &'static str {
    if state.members.is_empty() {
        "Empty"
    } else if state.owners.iter().map(|(one, owner)| (one, &owner.0)).eq(state.target.iter()) {
        "Stable"
    } else {
        "PreparingRebalance"
    }
}

fn members(state: &GroupState) -> Vec<MemberDescription> {
    let describe = |(id, info): (&String, &MemberInfo)| {
        let number = state.number_of(id);
        let owned = state.owners.iter().filter(|(_, owner)| Some(owner.0) == number);
        let names = owned.map(|(Partition { topic, number }, _)| format!("{topic}-{number}"));
        MemberDescription { id: id.clone(), host: info.host.clone(), partitions: names.collect() }
    };
    state.members.iter().map(describe).collect()
}
