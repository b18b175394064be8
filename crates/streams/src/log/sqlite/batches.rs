//! Batches of records: rows that are appended to a partition and removed from its start.

use chaton_embedded::Transaction;
use rusqlite::{params, Connection, OptionalExtension};

use super::log_dir::{channel_of, Done, LogDir, OFFSET_BITS};
use super::topic_config::TopicConfig;
use super::topics::{self, LocalTopic, PartitionRow};
use super::{age_clock, errors, frames};
use crate::record::NewRecord;

/// Batches removed in one transaction, which bounds the wait of writers: 4 MB of full ones.
const REMOVED_MAX: i64 = 64;

/// The ids of a partition's batches.
pub(super) fn ids(partition: i64) -> std::ops::Range<i64> {
    partition << OFFSET_BITS..(partition + 1) << OFFSET_BITS
}

/// Records of one partition.
#[derive(Debug, Default)]
pub(super) struct NewBatch {
    pub frames: Vec<u8>,
    pub count: usize,
    /// The newest timestamp.
    pub newest_ms: i64,
}

impl NewBatch {
    /// Adds a record of this size.
    pub fn add(&mut self, record: &NewRecord<'_>, size: usize, now_ms: i64) {
        let timestamp_ms = frames::encode(&mut self.frames, record, size, now_ms);
        self.newest_ms =
            if self.count == 0 { timestamp_ms } else { self.newest_ms.max(timestamp_ms) };
        self.count += 1;
    }
}

/// Appends batches to a partition and removes expired ones; returns the offset of the first record.
pub(super) fn append<'a>(
    tx: &Transaction<'_>,
    dir: &LogDir,
    topic: &LocalTopic,
    number: i32,
    batches: impl IntoIterator<Item = &'a NewBatch>,
) -> Done<i64> {
    topic.check_partition(number)?;
    let lost = || errors::corrupt(&format!("partition {}/{number} has no row", topic.name));
    let mut row = topics::partition(tx.conn, topic.id, number)?.ok_or_else(lost)?;
    let (first, now_ms) = (row.next, age_clock::now_ms(tx, dir.now_ms())?);
    let mut insert =
        tx.conn.prepare_cached("INSERT INTO record_batches VALUES(?1, ?2, ?3, ?4, ?5, ?6)")?;
    for NewBatch { frames, count, newest_ms } in batches {
        let (id, crc) = (ids(row.id).start + row.next, crc32c::crc32c(frames));
        insert.execute(params![id, *count as i64, now_ms, newest_ms, crc, frames])?;
        row.next += *count as i64;
        row.bytes += frames.len() as i64;
    }
    expire(tx.conn, &mut row, &topic.config, now_ms)?;
    tx.conn
        .prepare_cached("UPDATE partitions SET start=?2, next=?3, bytes=?4 WHERE id=?1")?
        .execute([row.id, row.start, row.next, row.bytes])?;
    tx.notify(channel_of(&topic.name));
    Ok(first)
}

/// Removes the oldest batches that exceed the retention limits, never the last one.
fn expire(
    conn: &Connection,
    row: &mut PartitionRow,
    config: &TopicConfig,
    now_ms: i64,
) -> rusqlite::Result<()> {
    if config.retention_bytes.is_none() && config.retention_ms.is_none() {
        return Ok(());
    }
    let ids = ids(row.id);
    let mut select = conn.prepare_cached(
        "SELECT id, count, written_ms, length(frames) FROM record_batches WHERE id>=?1 AND id<?2
         ORDER BY id LIMIT ?3",
    )?;
    let mut rows = select.query([ids.start, ids.start + row.next, REMOVED_MAX])?;
    let before = row.start;
    while let Some(batch) = rows.next()? {
        let (id, count, bytes): (i64, i64, i64) = (batch.get(0)?, batch.get(1)?, batch.get(3)?);
        let end = id - ids.start + count;
        let age_ms = now_ms.saturating_sub(batch.get(2)?);
        let over = config.retention_bytes.is_some_and(|limit| row.bytes as u64 > limit)
            || config.retention_ms.is_some_and(|limit| age_ms > limit as i64);
        if end >= row.next || !over {
            break;
        }
        (row.start, row.bytes) = (end, row.bytes - bytes);
    }
    drop(rows);
    if row.start > before {
        conn.prepare_cached("DELETE FROM record_batches WHERE id>=?1 AND id<?2")?
            .execute([ids.start, ids.start + row.start])?;
    }
    Ok(())
}

/// Removes some batches of a deleted topic; false if there are none.
pub(super) fn sweep(tx: &Transaction<'_>) -> Done<bool> {
    let first = "SELECT id FROM partitions WHERE topic<0 LIMIT 1";
    let Some(id) = tx.conn.query_row(first, [], |row| row.get(0)).optional()? else {
        return Ok(false);
    };
    let ids = ids(id);
    let batches = "SELECT id FROM record_batches WHERE id>=?1 AND id<?2 LIMIT ?3";
    let removed = tx.conn.execute(
        &format!("DELETE FROM record_batches WHERE id IN ({batches})"),
        [ids.start, ids.end, REMOVED_MAX],
    )?;
    if removed == 0 {
        tx.conn.execute("DELETE FROM partitions WHERE id=?1", [id])?;
    }
    Ok(true)
}
