//! Owners: who claims jobs, and whether he lives.
//!
//! The clock of leases is the monotonic one: all users of the file are on one
//! machine, it is the same in every process, nobody can set it, and it stands
//! still for all of them while the machine sleeps.

use std::sync::Arc;
use std::time::Duration;

use rusqlite::{params, Connection, OptionalExtension, Result};

use super::{queues, Tx};
use crate::store::{Beat, Beaten, Claimed, OwnerSeen, ProcessSeen};

/// How long a signal waits for its process (s).
const SIGNAL_S: f64 = 60.0;

fn now_ms() -> i64 {
    (chaton_core::clock::now_ns() / 1_000_000) as i64
}

/// Number of an owner, made on first use.
pub(super) fn id_of(tx: &Tx<'_>, identity: &str) -> Result<i64> {
    if let Some(id) = known(tx.conn, identity)? {
        return Ok(id);
    }
    tx.conn
        .prepare_cached(
            "INSERT INTO owners(identity, place, beat_ms, lease_ms, beat_at, info, busy, quiet, rss_kb)
             VALUES(?1, '', ?2, 60000, 0, '', 0, 0, 0)",
        )?
        .execute(params![identity, now_ms()])?;
    Ok(tx.conn.last_insert_rowid())
}

fn known(conn: &Connection, identity: &str) -> Result<Option<i64>> {
    conn.prepare_cached("SELECT id FROM owners WHERE identity=?1")?
        .query_row([identity], |row| row.get(0))
        .optional()
}

pub(super) fn beat(tx: &Tx<'_>, beat: &Beat<'_>, lease: Duration) -> Result<Beaten> {
    let conn = tx.conn;
    let was: Option<String> = conn
        .prepare_cached("SELECT info FROM owners WHERE identity=?1")?
        .query_row([beat.identity], |row| row.get(0))
        .optional()?;
    let is_new = was.is_none_or(|info| info.is_empty());
    let id = id_of(tx, beat.identity)?;
    conn.prepare_cached(
        "UPDATE owners SET place=?2, beat_ms=?3, lease_ms=?4, beat_at=?5, info=?6, busy=?7, quiet=?8,
         rss_kb=?9 WHERE id=?1",
    )?
    .execute(params![
        id,
        beat.place,
        now_ms(),
        lease.as_millis() as i64,
        beat.now_s,
        beat.info,
        beat.busy as i64,
        beat.quiet,
        beat.rss_kb as i64
    ])?;
    conn.prepare_cached("DELETE FROM work WHERE owner=?1")?.execute([id])?;
    for one in beat.work {
        conn.prepare_cached(
            "INSERT OR REPLACE INTO work(owner, tid, queue, payload, run_at) VALUES(?1, ?2, ?3, ?4, ?5)",
        )?
        .execute(params![id, one.tid, &*one.queue, &*one.payload, one.run_at])?;
    }
    for (name, count) in [("processed", beat.processed), ("failed", beat.failed)] {
        if count > 0 {
            conn.prepare_cached(
                "INSERT INTO counters(name, value) VALUES(?1, ?2)
                 ON CONFLICT(name) DO UPDATE SET value=value+excluded.value",
            )?
            .execute(params![name, count as i64])?;
        }
    }
    Ok(Beaten { is_new, signals: signals(tx, beat.identity, beat.now_s)? })
}

fn signals(tx: &Tx<'_>, identity: &str, now_s: f64) -> Result<Vec<String>> {
    let mut select = tx
        .conn
        .prepare_cached("SELECT name FROM signals WHERE identity=?1 AND until>?2 ORDER BY id")?;
    let names: Vec<String> =
        select.query_map(params![identity, now_s], |row| row.get(0))?.collect::<Result<_>>()?;
    tx.conn
        .prepare_cached("DELETE FROM signals WHERE identity=?1 OR until<=?2")?
        .execute(params![identity, now_s])?;
    Ok(names)
}

pub(super) fn signal(tx: &Tx<'_>, identity: &str, name: &str, now_s: f64) -> Result<()> {
    tx.wake();
    tx.conn
        .prepare_cached("INSERT INTO signals(identity, name, until) VALUES(?1, ?2, ?3)")?
        .execute(params![identity, name, now_s + SIGNAL_S])
        .map(|_| ())
}

pub(super) fn all(conn: &Connection) -> Result<Vec<OwnerSeen>> {
    let mut select = conn.prepare_cached("SELECT identity, place, beat_ms FROM owners ORDER BY id")?;
    let now = now_ms();
    let rows = select.query_map([], |row| {
        let beat_ms: i64 = row.get(2)?;
        Ok(OwnerSeen {
            identity: row.get(0)?,
            place: row.get(1)?,
            beat_age: Duration::from_millis((now - beat_ms).max(0) as u64),
        })
    })?;
    rows.collect()
}

pub(super) fn in_flight(conn: &Connection, identity: &str) -> Result<Vec<Claimed>> {
    let Some(owner) = known(conn, identity)? else { return Ok(vec![]) };
    let (first, last) = queues::flight_span(owner);
    let mut select = conn.prepare_cached(
        "SELECT f.id, coalesce(q.name, ''), f.payload FROM flights f LEFT JOIN queues q ON q.id=f.queue
         WHERE f.id BETWEEN ?1 AND ?2 ORDER BY f.id",
    )?;
    let rows = select.query_map([first, last], |row| {
        let name: String = row.get(1)?;
        Ok(Claimed {
            ticket: queues::ticket_of(row.get(0)?),
            queue: Arc::from(name),
            payload: row.get(2)?,
        })
    })?;
    rows.collect()
}

pub(super) fn forget(tx: &Tx<'_>, identity: &str) -> Result<bool> {
    let Some(owner) = known(tx.conn, identity)? else { return Ok(true) };
    let (first, last) = queues::flight_span(owner);
    let busy: bool = tx
        .conn
        .prepare_cached("SELECT EXISTS(SELECT 1 FROM flights WHERE id BETWEEN ?1 AND ?2)")?
        .query_row([first, last], |row| row.get(0))?;
    if busy {
        return Ok(false);
    }
    tx.conn.prepare_cached("DELETE FROM owners WHERE id=?1")?.execute([owner])?;
    tx.conn.prepare_cached("DELETE FROM work WHERE owner=?1")?.execute([owner])?;
    tx.conn.prepare_cached("DELETE FROM slots WHERE flight BETWEEN ?1 AND ?2")?.execute([first, last])?;
    Ok(true)
}

/// Owners that beat within their lease.
pub(super) fn processes(conn: &Connection) -> Result<Vec<ProcessSeen>> {
    let mut select = conn.prepare_cached(
        "SELECT id, identity, info, busy, quiet, rss_kb, beat_at FROM owners
         WHERE info<>'' AND ?1-beat_ms<lease_ms AND ?1>=beat_ms ORDER BY id",
    )?;
    let rows = select.query_map([now_ms()], |row| {
        let seen = ProcessSeen {
            identity: row.get(1)?,
            info: row.get(2)?,
            busy: row.get::<_, i64>(3)? as u64,
            quiet: row.get(4)?,
            rss_kb: row.get::<_, i64>(5)? as u64,
            beat_at: row.get(6)?,
            work: vec![],
        };
        Ok((row.get::<_, i64>(0)?, seen))
    })?;
    let rows: Vec<(i64, ProcessSeen)> = rows.collect::<Result<_>>()?;
    rows.into_iter()
        .map(|(id, seen)| {
            let mut select = conn.prepare_cached(
                "SELECT tid, queue, payload, run_at FROM work WHERE owner=?1 ORDER BY tid",
            )?;
            let work = select
                .query_map([id], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?
                .collect::<Result<_>>()?;
            Ok(ProcessSeen { work, ..seen })
        })
        .collect()
}
