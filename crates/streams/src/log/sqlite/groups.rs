//! Consumer groups and their committed offsets in the database.

use std::collections::BTreeMap;

use chaton_embedded::Transaction;
use rusqlite::{params, Connection, OptionalExtension};

use super::group_state::{GroupState, Owner};
use super::log_dir::{partition_key, Done, LogDir, CHANGES};
use super::{errors, topics};
use crate::log::{Commit, Partition, Result};

/// The largest metadata of a commit, as in Kafka.
const METADATA_BYTES_MAX: usize = 4096;

/// The last commits by topic and partition.
pub(super) type CommittedOffsets = BTreeMap<(String, i32), Commit>;

/// The shared state as it is stored.
pub(super) fn stored(conn: &Connection, group: &str) -> Done<Option<String>> {
    let mut found = conn.prepare_cached("SELECT state FROM groups WHERE name=?1")?;
    Ok(found.query_row([group], |row| row.get(0)).optional()?)
}

/// The shared state. A damaged one counts as empty: the members that are alive register again.
pub(super) fn load(conn: &Connection, group: &str) -> Done<GroupState> {
    let text = stored(conn, group)?;
    Ok(text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default())
}

/// Changes the state with `change`, which wakes the other members if it does.
pub(super) fn change<T>(
    tx: &Transaction<'_>,
    group: &str,
    change: impl FnOnce(&mut GroupState) -> Done<T>,
) -> Done<T> {
    let before = load(tx.conn, group)?;
    let mut state = before.clone();
    let result = change(&mut state)?;
    if state != before {
        let text = serde_json::to_string(&state)
            .unwrap_or_else(|_| unreachable!("plain maps and strings"));
        tx.conn
            .prepare_cached("INSERT OR REPLACE INTO groups(name, state) VALUES(?1, ?2)")?
            .execute([group, &text])?;
        tx.notify(CHANGES);
    }
    Ok(result)
}

/// Removes dead members from the state.
///
/// # Errors
/// If it cannot be found out whether a member is alive.
pub(super) fn remove_dead(dir: &LogDir, state: &mut GroupState) -> Result<()> {
    let mut dead = Vec::new();
    for (id, info) in &state.members {
        if !info.is_alive(dir.path())? {
            dead.push(id.clone());
        }
    }
    dead.iter().for_each(|id| state.remove(id));
    let known = &state.members;
    state.owners.retain(|_, owner| known.contains_key(&owner.member));
    Ok(())
}

/// The partition counts of all topics that members read.
pub(super) fn partitions(
    conn: &Connection,
    dir: &LogDir,
    state: &GroupState,
) -> Done<BTreeMap<String, i32>> {
    let mut counts = BTreeMap::new();
    for name in state.members.values().flat_map(|info| &info.topics) {
        if !counts.contains_key(name) {
            if let Some(topic) = topics::find(conn, &dir.settings, name)? {
                counts.insert(name.clone(), topic.partitions);
            }
        }
    }
    Ok(counts)
}

/// Checks commits before they are stored.
pub(super) fn check(commits: &[Commit]) -> Result<()> {
    for Commit { topic, partition, offset, metadata } in commits {
        if *offset < 0 {
            return Err(errors::invalid(format!(
                "{offset} is no offset of {topic}/{partition}: offsets begin with 0"
            )));
        }
        let bytes = metadata.len();
        if bytes > METADATA_BYTES_MAX {
            return Err(errors::invalid(format!(
                "{bytes} bytes of metadata beside the offset of {topic}/{partition}; \
                 {METADATA_BYTES_MAX} are the most"
            )));
        }
    }
    Ok(())
}

/// The names of all groups, sorted.
pub(super) fn names(conn: &Connection) -> Done<Vec<String>> {
    let mut names =
        conn.prepare_cached("SELECT name FROM groups UNION SELECT name FROM committed ORDER BY 1")?;
    let names = names.query_map([], |row| row.get(0))?;
    Ok(names.collect::<rusqlite::Result<_>>()?)
}

/// Whether a group has committed anything.
pub(super) fn has_committed(conn: &Connection, group: &str) -> Done<bool> {
    Ok(conn.prepare_cached("SELECT 1 FROM committed WHERE name=?1 LIMIT 1")?.exists([group])?)
}

/// The commits of a group.
pub(super) fn committed(conn: &Connection, group: &str) -> Done<CommittedOffsets> {
    let mut select = conn.prepare_cached(
        "SELECT t.name, p.number, c.next, c.metadata FROM committed c
         JOIN partitions p ON p.id=c.partition JOIN topics t ON t.id=p.topic WHERE c.name=?1",
    )?;
    let commits = select.query_map([group], |row| {
        let (topic, partition): (String, i32) = (row.get(0)?, row.get(1)?);
        let (offset, metadata) = (row.get(2)?, row.get(3)?);
        Ok(((topic.clone(), partition), Commit { topic, partition, offset, metadata }))
    })?;
    Ok(commits.collect::<rusqlite::Result<_>>()?)
}

/// Stores commits.
pub(super) fn commit<'a>(
    tx: &Transaction<'_>,
    group: &str,
    commits: impl IntoIterator<Item = &'a Commit>,
) -> Done<()> {
    let mut insert = tx.conn.prepare_cached(
        "INSERT OR REPLACE INTO committed(name, partition, next, metadata) VALUES(?1, ?2, ?3, ?4)",
    )?;
    for Commit { topic, partition: number, offset, metadata } in commits {
        let one = Partition { topic: topic.as_str().into(), number: *number };
        let row = topics::named(tx.conn, &one)?.ok_or_else(|| errors::unknown_topic(topic))?;
        insert.execute(params![group, row.id, offset, metadata])?;
    }
    Ok(())
}

/// The commits whose partition this member does not own, or has lost meanwhile.
pub(super) fn others<'a>(
    state: &GroupState,
    member: &Owner,
    commits: &'a [Commit],
) -> Vec<&'a Commit> {
    let is_other = |commit: &&Commit| {
        let owner = state.owners.get(&partition_key(&commit.topic, commit.partition));
        owner.is_none_or(|owner| !member.may_write_for(owner))
    };
    commits.iter().filter(is_other).collect()
}
