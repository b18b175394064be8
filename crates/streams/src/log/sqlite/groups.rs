//! Consumer groups and their committed offsets in the database.

use std::collections::BTreeMap;

use chaton_embedded::Transaction;
use rusqlite::{params, Connection, OptionalExtension};

use super::group_state::{GroupState, Owner};
use super::log_dir::{Done, LogDir, CHANGES};
use super::{errors, topics};
use crate::log::{Commit, Partition, Result};

/// The largest metadata of a commit, as in Kafka.
const METADATA_BYTES_MAX: usize = 4096;

/// The shared state as it is stored; empty if there is none.
pub(super) fn stored(conn: &Connection, group: &str) -> Done<String> {
    let mut found = conn.prepare_cached("SELECT state FROM groups WHERE name=?1")?;
    Ok(found.query_row([group], |row| row.get(0)).optional()?.unwrap_or_default())
}

/// The shared state. A damaged one counts as empty: the members that are alive register again.
pub(super) fn load(conn: &Connection, group: &str) -> Done<GroupState> {
    Ok(serde_json::from_str(&stored(conn, group)?).unwrap_or_default())
}

/// Changes the state with `change`, which wakes the other members if it does; returns also the new state.
pub(super) fn change<T>(
    tx: &Transaction<'_>,
    group: &str,
    change: impl FnOnce(&mut GroupState) -> Done<T>,
) -> Done<(T, GroupState)> {
    let before = stored(tx.conn, group)?;
    let mut state = serde_json::from_str(&before).unwrap_or_default();
    let result = change(&mut state)?;
    let text =
        serde_json::to_string(&state).unwrap_or_else(|_| unreachable!("plain maps and strings"));
    if text != before {
        tx.conn
            .prepare_cached("INSERT OR REPLACE INTO groups(name, state) VALUES(?1, ?2)")?
            .execute([group, &text])?;
        tx.notify(CHANGES);
    }
    Ok((result, state))
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
    Ok(())
}

/// The partition counts of all topics that members read.
pub(super) fn partitions(conn: &Connection, state: &GroupState) -> Done<BTreeMap<String, i32>> {
    let mut counts = BTreeMap::new();
    for name in state.members.values().flat_map(|info| &info.topics) {
        if !counts.contains_key(name) {
            if let Some((_, partitions)) = topics::id_and_partitions(conn, name)? {
                counts.insert(name.clone(), partitions);
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

/// The commits of a group, of one topic or of all, by topic and partition.
pub(super) fn committed(conn: &Connection, group: &str, topic: Option<&str>) -> Done<Vec<Commit>> {
    let of = if topic.is_some() { "t.name=?2" } else { "?2 IS NULL" };
    let mut select = conn.prepare_cached(&format!(
        "SELECT t.name, p.number, c.next, c.metadata FROM topics t CROSS JOIN partitions p ON p.topic=t.id
         CROSS JOIN committed c ON c.name=?1 AND c.partition=p.id WHERE {of} ORDER BY 1, 2",
    ))?;
    let commits = select.query_map(params![group, topic], |row| {
        let (topic, partition, offset, metadata) =
            (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
        Ok(Commit { topic, partition, offset, metadata })
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
    commits.iter().filter(|commit| !state.may_commit(member, commit)).collect()
}
