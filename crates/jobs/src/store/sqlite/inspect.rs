//! What people and the watcher look at.

use std::sync::Arc;

use rusqlite::{params, Connection, OptionalExtension, Result};

use super::{entries, owners, queues};
use crate::document::Fields;
use crate::store::{Armed, Entry, Place, QueueSeen, Stats};

pub(super) fn armed(conn: &Connection, queues: &[Arc<str>]) -> Result<Armed> {
    let mut ready = false;
    for name in queues {
        let id: Option<i64> = conn
            .prepare_cached("SELECT id FROM queues WHERE name=?1 AND paused=0")?
            .query_row([&**name], |row| row.get(0))
            .optional()?;
        if let Some(id) = id {
            let (first, last) = queues::span(id);
            ready |= conn
                .prepare_cached("SELECT EXISTS(SELECT 1 FROM waiting WHERE id BETWEEN ?1 AND ?2)")?
                .query_row([first, last], |row| row.get::<_, bool>(0))?;
        }
    }
    Ok(Armed { ready, next_at: entries::next_at(conn)? })
}

pub(super) fn stats(conn: &Connection) -> Result<Stats> {
    let count = |sql: &str| -> Result<u64> {
        conn.prepare_cached(sql)?.query_row([], |row| row.get::<_, i64>(0)).map(|n| n as u64)
    };
    Ok(Stats {
        processed: count("SELECT coalesce(sum(value), 0) FROM counters WHERE name='processed'")?,
        failed: count("SELECT coalesce(sum(value), 0) FROM counters WHERE name='failed'")?,
        enqueued: count("SELECT count(*) FROM waiting")?,
        scheduled: count("SELECT count(*) FROM entries WHERE kind=0")?,
        retries: count("SELECT count(*) FROM entries WHERE kind=1")?,
        dead: count("SELECT count(*) FROM entries WHERE kind=2")?,
        in_flight: count("SELECT count(*) FROM flights")?,
        processes: owners::processes(conn)?.len() as u64,
    })
}

pub(super) fn queues(conn: &Connection, now_s: f64) -> Result<Vec<QueueSeen>> {
    let mut select = conn.prepare_cached("SELECT id, name, paused FROM queues ORDER BY name")?;
    let rows: Vec<(i64, String, bool)> = select
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
        .collect::<Result<_>>()?;
    rows.into_iter()
        .map(|(id, name, paused)| {
            let (first, last) = queues::span(id);
            let size: i64 = conn
                .prepare_cached("SELECT count(*) FROM waiting WHERE id BETWEEN ?1 AND ?2")?
                .query_row([first, last], |row| row.get(0))?;
            let head: Option<Vec<u8>> = conn
                .prepare_cached(
                    "SELECT payload FROM waiting WHERE id BETWEEN ?1 AND ?2 ORDER BY id LIMIT 1",
                )?
                .query_row([first, last], |row| row.get(0))
                .optional()?;
            let latency_s = head.map_or(0.0, |payload| age_s(&payload, now_s));
            Ok(QueueSeen { name, size: size as u64, latency_s, paused })
        })
        .collect()
}

/// Since when a job waits: seconds as a float, or ms as an integer.
fn age_s(payload: &[u8], now_s: f64) -> f64 {
    let Ok(fields) = Fields::parse(payload) else { return 0.0 };
    let Some(text) = fields.get("enqueued_at").or_else(|| fields.get("created_at")) else {
        return 0.0;
    };
    let at: f64 = text.parse().unwrap_or(now_s);
    let at = if text.contains(['.', 'e', 'E']) { at } else { at / 1e3 };
    (now_s - at).max(0.0)
}

pub(super) fn list(
    conn: &Connection,
    place: &Place,
    offset: usize,
    count: usize,
) -> Result<Vec<Entry>> {
    let page = [count as i64, offset as i64];
    if let Place::Queue(name) = place {
        let id: Option<i64> = conn
            .prepare_cached("SELECT id FROM queues WHERE name=?1")?
            .query_row([name], |row| row.get(0))
            .optional()?;
        let Some(id) = id else { return Ok(vec![]) };
        let (first, last) = queues::span(id);
        let mut select = conn.prepare_cached(
            "SELECT id, 0.0, payload FROM waiting WHERE id BETWEEN ?1 AND ?2 ORDER BY id
             LIMIT ?3 OFFSET ?4",
        )?;
        let rows = select.query_map([first, last, page[0], page[1]], entry)?;
        return rows.collect();
    }
    let order = if *place == Place::Dead { "DESC" } else { "ASC" };
    let mut select = conn.prepare_cached(&format!(
        "SELECT id, at, payload FROM entries WHERE kind=?1 ORDER BY at {order}, id {order}
         LIMIT ?2 OFFSET ?3"
    ))?;
    let rows = select.query_map(params![entries::kind(place), page[0], page[1]], entry)?;
    rows.collect()
}

fn entry(row: &rusqlite::Row<'_>) -> Result<Entry> {
    Ok(Entry { row: row.get(0)?, score: row.get(1)?, payload: row.get(2)? })
}

/// Looks for a jid. The text is searched first: reading every document would
/// take much longer.
pub(super) fn find(conn: &Connection, jid: &str) -> Result<Option<(Place, Entry)>> {
    let is_it = |entry: &Entry| {
        Fields::parse(&entry.payload).ok().and_then(|fields| fields.text("jid")).as_deref()
            == Some(jid)
    };
    for (kind, place) in [(0, Place::Scheduled), (1, Place::Retry), (2, Place::Dead)] {
        let mut select = conn.prepare_cached(
            "SELECT id, at, payload FROM entries WHERE kind=?1 AND instr(payload, CAST(?2 AS BLOB))",
        )?;
        for found in select.query_map(params![kind, jid], entry)? {
            let found = found?;
            if is_it(&found) {
                return Ok(Some((place, found)));
            }
        }
    }
    let mut select = conn.prepare_cached(
        "SELECT w.id, 0.0, w.payload, q.name FROM waiting w JOIN queues q ON q.id=w.id/?1
         WHERE instr(w.payload, CAST(?2 AS BLOB))",
    )?;
    let width = queues::span(1).0;
    let rows = select.query_map(params![width, jid], |row| Ok((entry(row)?, row.get(3)?)))?;
    for found in rows {
        let (found, name): (Entry, String) = found?;
        if is_it(&found) {
            return Ok(Some((Place::Queue(name), found)));
        }
    }
    Ok(None)
}
