//! Pauses, cancels, hashes of iterable jobs and cron ticks; and the removal of expired rows.

use rusqlite::{params, Connection, OptionalExtension, Result};

use super::transaction::SqliteTransaction;
use super::{batches, queues, rows};
use crate::store::clock::unix_s;
use crate::store::types::{NewJob, PushResult, CANCEL_TTL};

pub(super) fn pause(tx: &SqliteTransaction<'_>, queue: &str, paused: bool) -> Result<()> {
    tx.notify();
    let id = rows::queue_id(tx, queue)?;
    tx.conn
        .prepare_cached("UPDATE queues SET paused=?2 WHERE id=?1")?
        .execute(params![id, paused])
        .map(|_| ())
}

pub(super) fn cancel(tx: &SqliteTransaction<'_>, jid: &str) -> Result<()> {
    tx.notify();
    tx.conn
        .prepare_cached("INSERT OR REPLACE INTO cancels(jid, until) VALUES(?1, ?2)")?
        .execute(params![jid, unix_s() + CANCEL_TTL.as_secs_f64()])
        .map(|_| ())
}

pub(super) fn cancelled(conn: &Connection, jids: &[&str]) -> Result<Vec<bool>> {
    let now_s = unix_s();
    let mut select =
        conn.prepare_cached("SELECT EXISTS(SELECT 1 FROM cancels WHERE jid=?1 AND until>?2)")?;
    jids.iter().map(|jid| select.query_row(params![jid, now_s], |row| row.get(0))).collect()
}

pub(super) fn load(conn: &Connection, key: &str) -> Result<Vec<(String, Vec<u8>)>> {
    conn.prepare_cached("SELECT field, value FROM hashes WHERE key=?1 AND until>?2 ORDER BY field")?
        .query_map(params![key, unix_s()], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect()
}

pub(super) fn save(
    tx: &SqliteTransaction<'_>,
    key: &str,
    fields: &[(&str, &[u8])],
    ttl_s: f64,
) -> Result<()> {
    let now_s = unix_s();
    let until = now_s + ttl_s;
    let conn = tx.conn;
    conn.prepare_cached("DELETE FROM hashes WHERE key=?1 AND until<=?2")?
        .execute(params![key, now_s])?;
    conn.prepare_cached("UPDATE hashes SET until=?2 WHERE key=?1")?.execute(params![key, until])?;
    let mut insert = conn.prepare_cached(
        "INSERT OR REPLACE INTO hashes(key, field, value, until) VALUES(?1, ?2, ?3, ?4)",
    )?;
    fields.iter().try_for_each(|(field, value)| {
        insert.execute(params![key, field, value, until]).map(|_| ())
    })
}

pub(super) fn remove_hash(tx: &SqliteTransaction<'_>, key: &str) -> Result<()> {
    tx.conn.prepare_cached("DELETE FROM hashes WHERE key=?1")?.execute([key]).map(|_| ())
}

pub(super) fn push_once(
    tx: &SqliteTransaction<'_>,
    key: &str,
    ttl_s: f64,
    job: &NewJob<'_>,
) -> Result<bool> {
    let now_s = unix_s();
    let known: Option<i64> = tx
        .conn
        .prepare_cached("SELECT 1 FROM ticks WHERE key=?1 AND until>?2")?
        .query_row(params![key, now_s], |row| row.get(0))
        .optional()?;
    if known.is_some() {
        return Ok(false);
    }
    tx.conn
        .prepare_cached("INSERT OR REPLACE INTO ticks(key, until) VALUES(?1, ?2)")?
        .execute(params![key, now_s + ttl_s])?;
    let pushed = queues::push(tx, std::slice::from_ref(job), now_s)?;
    Ok(pushed == [PushResult::Stored])
}

/// Removes expired rows, which reads ignore already.
pub(super) fn remove_expired(tx: &SqliteTransaction<'_>) -> Result<()> {
    let now_s = unix_s();
    for table in ["locks", "slots", "starts", "buckets", "hashes", "ticks", "cancels", "signals"] {
        let sql = format!("DELETE FROM {table} WHERE until<=?1");
        tx.conn.prepare_cached(&sql)?.execute([now_s])?;
    }
    batches::forget_expired(tx, "until<=?1 AND ?2 IS NOT NULL", "")
}
