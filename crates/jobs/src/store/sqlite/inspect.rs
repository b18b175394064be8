//! Reads for people and for the watch.

use std::sync::Arc;

use rusqlite::{params, Connection, OptionalExtension, Result};

use super::entries::read_entry;
use super::{processes, rows};
use crate::document::enqueued_at;
use crate::store::payload::has_jid;
use crate::store::types::{Availability, JobEntry, JobLocation, QueueStatus, Stats};

pub(super) fn availability(conn: &Connection, names: &[Arc<str>]) -> Result<Availability> {
    let mut ready = false;
    for name in names {
        let id: Option<i64> = conn
            .prepare_cached("SELECT id FROM queues WHERE name=?1 AND paused=0")?
            .query_row([&**name], |row| row.get(0))
            .optional()?;
        if let Some(id) = id {
            ready = ready || rows::holds_any(conn, id)?;
        }
    }
    Ok(Availability { ready, next_at: rows::next_at(conn)? })
}

pub(super) fn stats(conn: &Connection, lease_s: f64) -> Result<Stats> {
    let count = |sql: &str| -> Result<u64> {
        conn.prepare_cached(sql)?.query_row([], |row| row.get::<_, i64>(0)).map(|n| n as u64)
    };
    Ok(Stats {
        processed: count("SELECT coalesce(sum(value), 0) FROM counters WHERE name='processed'")?,
        failed: count("SELECT coalesce(sum(value), 0) FROM counters WHERE name='failed'")?,
        enqueued: enqueued(conn)?,
        scheduled: count("SELECT count(*) FROM entries WHERE kind=0")?,
        retries: count("SELECT count(*) FROM entries WHERE kind=1")?,
        dead: count("SELECT count(*) FROM entries WHERE kind=2")?,
        in_flight: count("SELECT count(*) FROM flights")?,
        processes: processes::processes(conn, lease_s)?.len() as u64,
    })
}

/// Jobs in all queues.
fn enqueued(conn: &Connection) -> Result<u64> {
    let mut select = conn.prepare_cached("SELECT id FROM queues")?;
    let ids: Vec<i64> = select.query_map([], |row| row.get(0))?.collect::<Result<_>>()?;
    ids.into_iter().map(|id| rows::size(conn, id).map(|size| size as u64)).sum()
}

pub(super) fn queues(conn: &Connection, now_s: f64) -> Result<Vec<QueueStatus>> {
    let mut select = conn.prepare_cached("SELECT id, name, paused FROM queues ORDER BY name")?;
    let rows: Vec<(i64, String, bool)> = select
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
        .collect::<Result<_>>()?;
    let seen = |(id, name, paused): (i64, String, bool)| {
        let (first, last) = rows::queue_rows(id);
        let size = rows::size(conn, id)?;
        let next: Option<Vec<u8>> = conn
            .prepare_cached(
                "SELECT payload FROM waiting WHERE id BETWEEN ?1 AND ?2 ORDER BY id LIMIT 1",
            )?
            .query_row([first, last], |row| row.get(0))
            .optional()?;
        let latency_s =
            next.and_then(|payload| enqueued_at(&payload)).map_or(0.0, |at| (now_s - at).max(0.0));
        Ok(QueueStatus { name, size: size as u64, latency_s, paused })
    };
    rows.into_iter().map(seen).collect()
}

pub(super) fn list(
    conn: &Connection,
    from: &JobLocation,
    offset: usize,
    count: usize,
) -> Result<Vec<JobEntry>> {
    let bound = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
    let (offset, count) = (bound(offset), bound(count));
    if let JobLocation::Queue(name) = from {
        let Some(id) = rows::known_queue_id(conn, name)? else { return Ok(vec![]) };
        let (first, last) = rows::queue_rows(id);
        let mut select = conn.prepare_cached(
            "SELECT id, 0.0, payload FROM waiting WHERE id BETWEEN ?1 AND ?2 ORDER BY id
             LIMIT ?3 OFFSET ?4",
        )?;
        let rows = select.query_map([first, last, count, offset], read_entry)?;
        return rows.collect();
    }
    let order = if *from == JobLocation::Dead { "DESC" } else { "ASC" };
    let mut select = conn.prepare_cached(&format!(
        "SELECT id, at, payload FROM entries WHERE kind=?1 ORDER BY at {order}, id {order}
         LIMIT ?2 OFFSET ?3"
    ))?;
    let rows = select.query_map(params![rows::set_kind(from), count, offset], read_entry)?;
    rows.collect()
}

/// Finds a job by its jid.
pub(super) fn find(conn: &Connection, jid: &str) -> Result<Option<(JobLocation, JobEntry)>> {
    if jid.is_empty() {
        return Ok(None);
    }
    for place in [JobLocation::Retry, JobLocation::Scheduled, JobLocation::Dead] {
        let mut select = conn.prepare_cached(
            "SELECT id, at, payload FROM entries
             WHERE kind=?1 AND instr(payload, CAST(?2 AS BLOB))>0",
        )?;
        let mut rows = select.query(params![rows::set_kind(&place), jid])?;
        while let Some(row) = rows.next()? {
            let found = read_entry(row)?;
            if has_jid(&found.payload, jid) {
                return Ok(Some((place, found)));
            }
        }
    }
    let mut select = conn.prepare_cached(
        "SELECT w.id, 0.0, w.payload, q.name FROM waiting w JOIN queues q ON q.id=w.id/?1
         WHERE instr(w.payload, CAST(?2 AS BLOB))>0",
    )?;
    let mut rows = select.query(params![rows::queue_rows(1).0, jid])?;
    while let Some(row) = rows.next()? {
        let found = read_entry(row)?;
        if has_jid(&found.payload, jid) {
            return Ok(Some((JobLocation::Queue(row.get(3)?), found)));
        }
    }
    Ok(None)
}
