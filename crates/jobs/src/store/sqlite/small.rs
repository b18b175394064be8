//! Small things: pauses, cancels, hashes of iterable jobs, ticks.

use rusqlite::{params, Connection, OptionalExtension, Result};

use super::{queues, Tx};
use crate::store::NewJob;

/// How long a cancel is remembered (s).
const CANCEL_S: f64 = 24.0 * 3600.0;

pub(super) fn pause(tx: &Tx<'_>, queue: &str, paused: bool) -> Result<()> {
    tx.wake();
    let id = queues::id_of(tx, queue)?;
    tx.conn
        .prepare_cached("UPDATE queues SET paused=?2 WHERE id=?1")?
        .execute(params![id, paused])
        .map(|_| ())
}

pub(super) fn cancel(tx: &Tx<'_>, jid: &str, now_s: f64) -> Result<()> {
    tx.wake();
    tx.conn.prepare_cached("DELETE FROM cancels WHERE until<?1")?.execute([now_s])?;
    tx.conn
        .prepare_cached("INSERT OR REPLACE INTO cancels(jid, until) VALUES(?1, ?2)")?
        .execute(params![jid, now_s + CANCEL_S])
        .map(|_| ())
}

pub(super) fn cancelled(conn: &Connection, jids: &[&str]) -> Result<Vec<bool>> {
    let mut select = conn.prepare_cached("SELECT EXISTS(SELECT 1 FROM cancels WHERE jid=?1)")?;
    jids.iter().map(|jid| select.query_row([jid], |row| row.get(0))).collect()
}

pub(super) fn load(conn: &Connection, key: &str, now_s: f64) -> Result<Vec<(String, Vec<u8>)>> {
    let mut select = conn
        .prepare_cached("SELECT field, value FROM hashes WHERE key=?1 AND until>?2 ORDER BY field")?;
    let rows = select.query_map(params![key, now_s], |row| Ok((row.get(0)?, row.get(1)?)))?;
    rows.collect()
}

pub(super) fn save(
    tx: &Tx<'_>,
    key: &str,
    fields: &[(&str, &[u8])],
    until: f64,
    now_s: f64,
) -> Result<()> {
    tx.conn.prepare_cached("DELETE FROM hashes WHERE until<?1")?.execute([now_s])?;
    tx.conn.prepare_cached("UPDATE hashes SET until=?2 WHERE key=?1")?.execute(params![key, until])?;
    for (field, value) in fields {
        tx.conn
            .prepare_cached(
                "INSERT OR REPLACE INTO hashes(key, field, value, until) VALUES(?1, ?2, ?3, ?4)",
            )?
            .execute(params![key, field, value, until])?;
    }
    Ok(())
}

pub(super) fn remove_hash(tx: &Tx<'_>, key: &str) -> Result<()> {
    tx.conn.prepare_cached("DELETE FROM hashes WHERE key=?1")?.execute([key]).map(|_| ())
}

pub(super) fn push_once(
    tx: &Tx<'_>,
    key: &str,
    until: f64,
    job: &NewJob<'_>,
    now_s: f64,
) -> Result<bool> {
    tx.conn.prepare_cached("DELETE FROM once WHERE until<?1")?.execute([now_s])?;
    let known: Option<i64> = tx
        .conn
        .prepare_cached("SELECT 1 FROM once WHERE key=?1")?
        .query_row([key], |row| row.get(0))
        .optional()?;
    if known.is_some() {
        return Ok(false);
    }
    tx.conn
        .prepare_cached("INSERT INTO once(key, until) VALUES(?1, ?2)")?
        .execute(params![key, until])?;
    queues::push(tx, std::slice::from_ref(job), now_s)?;
    Ok(true)
}
