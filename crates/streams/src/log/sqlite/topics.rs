//! Topics and their partitions.

use std::collections::BTreeMap;
use std::sync::Arc;

use chaton_embedded::Transaction;
use rusqlite::{params, Connection, OptionalExtension, Row};

use super::log_dir::{channel_of, check_name, Done, LogDir, CHANGES, OFFSET_BITS};
use super::topic_config::TopicConfig;
use super::{errors, partitioner};
use crate::log::{ErrorKind, LogError, NewTopic, Partition, Result};
use crate::record::NewRecord;
use crate::settings::LogSettings;

const PARTITIONS_MAX: i32 = 10_000;

/// A topic as it was read.
#[derive(Clone, Debug)]
pub(super) struct LocalTopic {
    /// Another one for a topic that was deleted and created again.
    pub id: i64,
    pub name: Arc<str>,
    pub partitions: i32,
    pub settings: BTreeMap<String, String>,
    pub config: Arc<TopicConfig>,
}

impl LocalTopic {
    /// The partition that a record names or that its key belongs to; `None`
    /// for a record without either.
    pub fn partition_of(&self, record: &NewRecord<'_>) -> Result<Option<i32>> {
        match (record.partition, record.key) {
            (Some(number), _) => self.check_partition(number).map(|()| Some(number)),
            (None, Some(key)) => Ok(Some(partitioner::partition_of(key, self.partitions))),
            (None, None) => Ok(None),
        }
    }

    /// Whether nothing about it has changed.
    pub fn is_same(&self, other: &Self) -> bool {
        (self.id, self.partitions, &self.settings) == (other.id, other.partitions, &other.settings)
    }

    pub fn check_partition(&self, number: i32) -> Result<()> {
        if (0..self.partitions).contains(&number) {
            return Ok(());
        }
        Err(errors::unknown_partition(&self.name, number, self.partitions))
    }
}

/// A partition as it was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartitionRow {
    /// Never used again, also when the topic is created anew.
    pub id: i64,
    /// The log start offset.
    pub start: i64,
    /// The log end offset.
    pub next: i64,
    pub bytes: i64,
}

fn partition_row(row: &Row<'_>) -> rusqlite::Result<PartitionRow> {
    Ok(PartitionRow { id: row.get(0)?, start: row.get(1)?, next: row.get(2)?, bytes: row.get(3)? })
}

/// The partition of a topic, if there is one.
pub(super) fn partition(conn: &Connection, topic: i64, number: i32) -> Done<Option<PartitionRow>> {
    let mut found = conn.prepare_cached(
        "SELECT id, start, next, bytes FROM partitions WHERE topic=?1 AND number=?2",
    )?;
    Ok(found.query_row(params![topic, number], partition_row).optional()?)
}

/// The partition of this name, if there is one.
pub(super) fn named(conn: &Connection, partition: &Partition) -> Done<Option<PartitionRow>> {
    let mut found = conn.prepare_cached(
        "SELECT p.id, p.start, p.next, p.bytes FROM topics t JOIN partitions p ON p.topic=t.id
         WHERE t.name=?1 AND p.number=?2",
    )?;
    let of = params![&*partition.topic, partition.number];
    Ok(found.query_row(of, partition_row).optional()?)
}

/// The id of the topic of this name, and how many partitions it has, if it exists.
pub(super) fn id_and_partitions(conn: &Connection, name: &str) -> Done<Option<(i64, i32)>> {
    let mut found = conn.prepare_cached("SELECT id, partitions FROM topics WHERE name=?1")?;
    Ok(found.query_row([name], |row| Ok((row.get(0)?, row.get(1)?))).optional()?)
}

/// The topic of this name, if it exists.
pub(super) fn find(conn: &Connection, log: &LogSettings, name: &str) -> Done<Option<LocalTopic>> {
    let mut found =
        conn.prepare_cached("SELECT id, partitions, settings FROM topics WHERE name=?1")?;
    let row = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get::<_, String>(2)?));
    let Some((id, partitions, settings)) = found.query_row([name], row).optional()? else {
        return Ok(None);
    };
    let settings: BTreeMap<String, String> = serde_json::from_str(&settings)
        .map_err(|error| errors::corrupt(&format!("the settings of topic {name:?}: {error}")))?;
    let config = Arc::new(TopicConfig::of(log, &settings)?);
    Ok(Some(LocalTopic { id, name: name.into(), partitions, settings, config }))
}

/// The topic of this name, or the error that it does not exist.
pub(super) fn get(conn: &Connection, log: &LogSettings, name: &str) -> Done<LocalTopic> {
    Ok(find(conn, log, name)?.ok_or_else(|| errors::unknown_topic(name))?)
}

/// The partition, or the error that it does not exist.
pub(super) fn get_partition(
    conn: &Connection,
    log: &LogSettings,
    one: &Partition,
) -> Done<PartitionRow> {
    let topic = get(conn, log, &one.topic)?;
    topic.check_partition(one.number)?;
    let lost = || errors::corrupt(&format!("partition {one} has no row"));
    Ok(partition(conn, topic.id, one.number)?.ok_or_else(lost)?)
}

/// The topic of this name, created with default settings if needed.
pub(super) fn get_or_create(dir: &LogDir, name: &str) -> Result<LocalTopic> {
    match dir.read(|conn| find(conn, &dir.settings, name))?.flatten() {
        Some(topic) => Ok(topic),
        None => dir.write(true, |tx| find_or_create(tx, &dir.settings, name, None)),
    }
}

/// Creates the declared topics that do not exist.
pub(super) fn create_declared(dir: &LogDir) -> Result<()> {
    dir.settings.topics.keys().try_for_each(|name| get_or_create(dir, name).map(drop))
}

/// The topic of this name. If there is none, it is created as it is declared, or with so many partitions.
pub(super) fn find_or_create(
    tx: &Transaction<'_>,
    log: &LogSettings,
    name: &str,
    partitions: Option<i32>,
) -> Done<LocalTopic> {
    if let Some(topic) = find(tx.conn, log, name)? {
        return Ok(topic);
    }
    let declared = log.topics.get(name);
    let new = NewTopic {
        name: name.into(),
        partitions: declared.and_then(|topic| topic.partitions).or(partitions),
        replication: None,
        settings: declared.map(|topic| topic.settings.clone()).unwrap_or_default(),
    };
    create(tx, log, &new)?;
    get(tx.conn, log, name)
}

pub(super) fn names(conn: &Connection) -> Done<Vec<String>> {
    let mut names = conn.prepare_cached("SELECT name FROM topics ORDER BY name")?;
    let names = names.query_map([], |row| row.get(0))?;
    Ok(names.collect::<rusqlite::Result<_>>()?)
}

pub(super) fn create(tx: &Transaction<'_>, log: &LogSettings, new: &NewTopic) -> Done<()> {
    let name = &new.name;
    check_name(name)?;
    let partitions = new.partitions.unwrap_or(log.partitions);
    check_partitions(name, partitions)?;
    TopicConfig::of(log, &new.settings)?;
    if find(tx.conn, log, name)?.is_some() {
        Err(errors::invalid(format!("topic {name:?} exists already")))?;
    }
    tx.conn
        .prepare_cached("INSERT INTO topics(name, partitions, settings) VALUES(?1, ?2, ?3)")?
        .execute(params![name, partitions, encode(&new.settings)])?;
    add_partitions(tx, tx.conn.last_insert_rowid(), 0..partitions)?;
    changed(tx, name);
    Ok(())
}

fn add_partitions(tx: &Transaction<'_>, topic: i64, numbers: std::ops::Range<i32>) -> Done<()> {
    let mut add = tx.conn.prepare_cached("INSERT INTO partitions(topic, number) VALUES(?1, ?2)")?;
    for number in numbers {
        add.execute(params![topic, number])?;
        check_partition_id(tx.conn.last_insert_rowid())?;
    }
    Ok(())
}

/// Refuses a partition for which there are no ids.
fn check_partition_id(id: i64) -> Result<()> {
    if id < i64::MAX >> OFFSET_BITS {
        return Ok(());
    }
    Err(errors::invalid(
        "too many partitions were created in this log, also counting deleted ones; begin a new one",
    ))
}

/// Adds partitions to a topic.
pub(super) fn grow(tx: &Transaction<'_>, log: &LogSettings, name: &str, total: i32) -> Done<()> {
    check_partitions(name, total)?;
    let topic = get(tx.conn, log, name)?;
    if topic.partitions > total {
        Err(errors::invalid(format!(
            "topic {name:?} has {} partitions, which cannot be reduced to {total}",
            topic.partitions
        )))?;
    }
    add_partitions(tx, topic.id, topic.partitions..total)?;
    tx.conn.execute("UPDATE topics SET partitions=?2 WHERE id=?1", params![topic.id, total])?;
    changed(tx, name);
    Ok(())
}

/// Changes these settings and leaves the others.
pub(super) fn configure(
    tx: &Transaction<'_>,
    log: &LogSettings,
    name: &str,
    settings: &BTreeMap<String, String>,
) -> Done<()> {
    TopicConfig::of(log, settings)?;
    let mut topic = get(tx.conn, log, name)?;
    topic.settings.extend(settings.iter().map(|(name, value)| (name.clone(), value.clone())));
    let settings = encode(&topic.settings);
    tx.conn.execute("UPDATE topics SET settings=?2 WHERE id=?1", params![topic.id, settings])?;
    Ok(())
}

/// Deletes a topic and its commits; [`batches::sweep`](super::batches::sweep) removes its records.
pub(super) fn delete(tx: &Transaction<'_>, log: &LogSettings, name: &str) -> Done<()> {
    let topic = get(tx.conn, log, name)?;
    let partitions = "SELECT id FROM partitions WHERE topic=?1";
    for sql in [
        &format!("DELETE FROM committed WHERE partition IN ({partitions})"),
        "UPDATE partitions SET topic=-id WHERE topic=?1",
        "DELETE FROM topics WHERE id=?1",
    ] {
        tx.conn.execute(sql, [topic.id])?;
    }
    changed(tx, name);
    Ok(())
}

/// Members of groups look at the topic again.
fn changed(tx: &Transaction<'_>, name: &str) {
    tx.notify(CHANGES);
    tx.notify(channel_of(name));
}

fn encode(settings: &BTreeMap<String, String>) -> String {
    serde_json::to_string(settings).unwrap_or_else(|_| unreachable!("a plain map"))
}

fn check_partitions(name: &str, count: i32) -> Result<()> {
    if (1..=PARTITIONS_MAX).contains(&count) {
        return Ok(());
    }
    Err(LogError::new(
        ErrorKind::Invalid,
        format!("topic {name:?} may have 1 to {PARTITIONS_MAX} partitions, not {count}"),
    ))
}
