//! Owners of jobs in flight, and their leases.
//!
//! Leases use the monotonic clock. All users of the file are on one machine, so the clock is the
//! same in every process, and nobody can set it. It stops while the machine sleeps, so that no
//! lease expires then; by the wall clock or CLOCK_BOOTTIME the first process to wake would take all
//! others for dead. It restarts at each boot, so the boot id is stored with it: an owner whose last
//! heartbeat was before the boot is dead.

use std::sync::Arc;
use std::time::Duration;

use chaton_core::clock::boot_id;
use chaton_embedded::LockPlace;
use rusqlite::{params, Connection, OptionalExtension, Result};

use super::rows;
use super::transaction::SqliteTransaction;
use crate::store::clock::unix_s;
use crate::store::types::{
    ClaimedJob, HeartbeatReply, OwnerStatus, ProcessReport, ProcessStatus, RunningJob, SIGNAL_TTL,
};

/// Time by which the heartbeat of an owner of another boot exceeds the lease (s).
const DEAD_S: f64 = 1.0;

fn clock_s() -> f64 {
    chaton_core::clock::now_ns() as f64 / 1e9
}

/// Age of a heartbeat. One of another boot is older than the lease, whatever the wall clock says.
fn age_s(boot_then: &str, clock_then: f64, beat_at: f64, lease_s: f64) -> f64 {
    if boot_then == boot_id() {
        return (clock_s() - clock_then).max(0.0);
    }
    (unix_s() - beat_at).max(lease_s + DEAD_S)
}

/// The id of an owner, made on first use.
pub(super) fn id_of(tx: &SqliteTransaction<'_>, identity: &str) -> Result<i64> {
    if let Some(id) = known_id(tx.conn, identity)? {
        return Ok(id);
    }
    tx.conn
        .prepare_cached(
            "INSERT INTO owners(identity, boot, clock, beat_at) VALUES(?1, ?2, ?3, ?4)",
        )?
        .execute(params![identity, boot_id(), clock_s(), unix_s()])?;
    Ok(tx.conn.last_insert_rowid())
}

/// The id of a known owner.
pub(super) fn known_id(conn: &Connection, identity: &str) -> Result<Option<i64>> {
    conn.prepare_cached("SELECT id FROM owners WHERE identity=?1")?
        .query_row([identity], |row| row.get(0))
        .optional()
}

pub(super) fn heartbeat(
    tx: &SqliteTransaction<'_>,
    report: &ProcessReport<'_>,
) -> Result<HeartbeatReply> {
    let conn = tx.conn;
    let id = id_of(tx, report.identity)?;
    // An owner that only claimed has no process key yet.
    let is_new: bool = conn
        .prepare_cached("SELECT place IS NULL FROM owners WHERE id=?1")?
        .query_row([id], |row| row.get(0))?;
    conn.prepare_cached(
        "UPDATE owners SET place=?2, boot=?3, clock=?4, beat_at=?5, info=?6, busy=?7, quiet=?8,
         rss_kb=?9 WHERE id=?1",
    )?
    .execute(params![
        id,
        report.process_key,
        boot_id(),
        clock_s(),
        report.now_s,
        report.info,
        report.busy as i64,
        report.quiet,
        report.rss_kb as i64
    ])?;
    conn.prepare_cached("DELETE FROM work WHERE owner=?1")?.execute([id])?;
    for job in report.work {
        conn.prepare_cached(
            "INSERT OR REPLACE INTO work(owner, tid, queue, payload, run_at)
             VALUES(?1, ?2, ?3, ?4, ?5)",
        )?
        .execute(params![id, job.tid, &*job.queue, &*job.payload, job.run_at])?;
    }
    for (name, count) in [("processed", report.processed), ("failed", report.failed)] {
        if count > 0 {
            conn.prepare_cached(
                "INSERT INTO counters(name, value) VALUES(?1, ?2)
                 ON CONFLICT(name) DO UPDATE SET value=value+excluded.value",
            )?
            .execute(params![name, count as i64])?;
        }
    }
    let processes: i64 =
        conn.prepare_cached("SELECT count(*) FROM owners")?.query_row([], |row| row.get(0))?;
    Ok(HeartbeatReply {
        is_new,
        // All users of the file are on one machine and share its clock.
        now_s: unix_s(),
        processes: processes as usize,
        silent: 0,
        signals: signals(tx, report.identity)?,
        shared: false,
        follows: false,
    })
}

/// Notes the lock by which others see that the process has ended.
pub(super) fn note_lock(
    tx: &SqliteTransaction<'_>,
    identity: &str,
    lock: Option<&LockPlace>,
) -> Result<()> {
    let Some(LockPlace { file, byte }) = lock else {
        return remove_lock(tx, identity);
    };
    tx.conn
        .prepare_cached(
            "INSERT INTO owner_locks(identity, file, byte) VALUES(?1, ?2, ?3)
             ON CONFLICT(identity) DO UPDATE SET file=?2, byte=?3 WHERE file<>?2 OR byte<>?3",
        )?
        .execute(params![identity, file, byte])
        .map(|_| ())
}

fn remove_lock(tx: &SqliteTransaction<'_>, identity: &str) -> Result<()> {
    tx.conn
        .prepare_cached("DELETE FROM owner_locks WHERE identity=?1")?
        .execute([identity])
        .map(|_| ())
}

fn signals(tx: &SqliteTransaction<'_>, identity: &str) -> Result<Vec<String>> {
    let now_s = unix_s();
    let names: Vec<String> = tx
        .conn
        .prepare_cached("SELECT name FROM signals WHERE identity=?1 AND until>?2 ORDER BY id")?
        .query_map(params![identity, now_s], |row| row.get(0))?
        .collect::<Result<_>>()?;
    tx.conn
        .prepare_cached("DELETE FROM signals WHERE identity=?1 OR until<=?2")?
        .execute(params![identity, now_s])?;
    Ok(names)
}

pub(super) fn signal(tx: &SqliteTransaction<'_>, identity: &str, name: &str) -> Result<()> {
    tx.conn
        .prepare_cached("INSERT INTO signals(identity, name, until) VALUES(?1, ?2, ?3)")?
        .execute(params![identity, name, unix_s() + SIGNAL_TTL.as_secs_f64()])
        .map(|_| ())
}

/// All owners, each with its lock.
pub(super) fn owners(
    conn: &Connection,
    lease_s: f64,
) -> Result<Vec<(OwnerStatus, Option<LockPlace>)>> {
    conn.prepare_cached(
        "SELECT o.identity, coalesce(o.place, ''), o.boot, o.clock, o.beat_at, l.file, l.byte
         FROM owners o LEFT JOIN owner_locks l ON l.identity=o.identity ORDER BY o.id",
    )?
    .query_map([], |row| {
        let boot: String = row.get(2)?;
        let age_s = age_s(&boot, row.get(3)?, row.get(4)?, lease_s);
        let file: Option<String> = row.get(5)?;
        let byte: Option<i64> = row.get(6)?;
        let status = OwnerStatus {
            identity: row.get(0)?,
            process_key: row.get(1)?,
            heartbeat_age: Duration::try_from_secs_f64(age_s).unwrap_or(Duration::MAX),
            ended: false,
        };
        Ok((status, file.zip(byte).map(|(file, byte)| LockPlace { file, byte })))
    })?
    .collect()
}

pub(super) fn in_flight(conn: &Connection, identity: &str) -> Result<Vec<ClaimedJob>> {
    let Some(owner) = known_id(conn, identity)? else { return Ok(vec![]) };
    let (first, last) = rows::in_flight_rows(owner);
    let mut select = conn.prepare_cached(
        "SELECT f.id, coalesce(q.name, ''), f.payload
         FROM flights f LEFT JOIN queues q ON q.id=f.queue
         WHERE f.id BETWEEN ?1 AND ?2 ORDER BY f.id",
    )?;
    let rows = select.query_map([first, last], |row| {
        let name: String = row.get(1)?;
        let ticket = rows::ticket_of(row.get(0)?);
        Ok(ClaimedJob { ticket, queue: Arc::from(name), payload: row.get(2)? })
    })?;
    rows.collect()
}

pub(super) fn forget(tx: &SqliteTransaction<'_>, identity: &str) -> Result<bool> {
    let Some(owner) = known_id(tx.conn, identity)? else { return Ok(true) };
    let busy: bool = tx
        .conn
        .prepare_cached("SELECT EXISTS(SELECT 1 FROM flights WHERE id BETWEEN ?1 AND ?2)")?
        .query_row(rows::in_flight_rows(owner), |row| row.get(0))?;
    if busy {
        return Ok(false);
    }
    for sql in ["DELETE FROM owners WHERE id=?1", "DELETE FROM work WHERE owner=?1"] {
        tx.conn.prepare_cached(sql)?.execute([owner])?;
    }
    tx.conn.prepare_cached("DELETE FROM signals WHERE identity=?1")?.execute([identity])?;
    remove_lock(tx, identity)?;
    Ok(true)
}

/// Owners whose lease has not expired.
pub(super) fn processes(conn: &Connection, lease_s: f64) -> Result<Vec<ProcessStatus>> {
    let mut select = conn.prepare_cached(
        "SELECT id, identity, info, busy, quiet, rss_kb, beat_at, boot, clock FROM owners
         WHERE place IS NOT NULL ORDER BY identity",
    )?;
    let rows = select.query_map([], |row| {
        let seen = ProcessStatus {
            identity: row.get(1)?,
            info: row.get(2)?,
            busy: row.get::<_, i64>(3)? as u64,
            quiet: row.get(4)?,
            rss_kb: row.get::<_, i64>(5)? as u64,
            heartbeat_at: row.get(6)?,
            work: vec![],
        };
        let boot: String = row.get(7)?;
        let age_s = age_s(&boot, row.get(8)?, seen.heartbeat_at, lease_s);
        Ok((row.get::<_, i64>(0)?, age_s, seen))
    })?;
    let rows: Vec<(i64, f64, ProcessStatus)> = rows.collect::<Result<_>>()?;
    let alive = rows.into_iter().filter(|(_, age_s, _)| *age_s <= lease_s);
    alive.map(|(id, _, seen)| Ok(ProcessStatus { work: running_jobs(conn, id)?, ..seen })).collect()
}

fn running_jobs(conn: &Connection, owner: i64) -> Result<Vec<RunningJob>> {
    conn.prepare_cached("SELECT tid, queue, payload, run_at FROM work WHERE owner=?1 ORDER BY tid")?
        .query_map([owner], |row| {
            let (queue, payload): (String, Vec<u8>) = (row.get(1)?, row.get(2)?);
            let (queue, payload) = (queue.into(), payload.into());
            Ok(RunningJob { tid: row.get(0)?, queue, payload, run_at: row.get(3)? })
        })?
        .collect()
}
