//! Batches: their pending jobs, counts, and callbacks that are pushed once.

use rusqlite::{params, Connection, OptionalExtension, Result};

use super::rows;
use super::transaction::SqliteTransaction;
use crate::outcome::{BatchEvent, BatchUpdate};
use crate::store::clock::unix_s;
use crate::store::payload::jid_of;
use crate::store::types::{
    BatchStatus, NewBatch, BATCH_OPEN_MAX, FAILED_JIDS_MAX, OPEN_BATCHES_MAX,
};

/// The tables of batches; those that others are selected by come last.
const TABLES: [&str; 5] =
    ["batch_failures", "batch_callbacks", "batch_jobs", "batch_lists", "batches"];

/// The columns that decide which callbacks are pushed.
struct BatchCounts {
    parent: Option<String>,
    pending: i64,
    children: i64,
    running: i64,
    complete: bool,
    success: bool,
}

/// The counts of a closed batch.
fn closed(tx: &SqliteTransaction<'_>, bid: &str) -> Result<Option<BatchCounts>> {
    tx.conn
        .prepare_cached(
            "SELECT parent, pending, children, running, complete, success FROM batches
             WHERE bid=?1 AND closed=1",
        )?
        .query_row([bid], |row| {
            Ok(BatchCounts {
                parent: row.get(0)?,
                pending: row.get(1)?,
                children: row.get(2)?,
                running: row.get(3)?,
                complete: row.get(4)?,
                success: row.get(5)?,
            })
        })
        .optional()
}

fn failures(conn: &Connection, bid: &str) -> Result<i64> {
    conn.prepare_cached("SELECT count(*) FROM batch_failures WHERE bid=?1")?
        .query_row([bid], |row| row.get(0))
}

pub(super) fn open(tx: &SqliteTransaction<'_>, batch: &NewBatch<'_>) -> Result<()> {
    let conn = tx.conn;
    let until = batch.now_s + batch.ttl.as_secs_f64();
    forget_expired(tx, "bid=?2 AND until<=?1", batch.bid)?;
    let is_new = conn
        .prepare_cached(
            "INSERT OR IGNORE INTO batches(bid, description, parent, created_at, until)
             VALUES(?1, ?2, ?3, ?4, ?5)",
        )?
        .execute(params![batch.bid, batch.description, batch.parent, batch.now_s, until])?
        > 0;
    if is_new {
        conn.prepare_cached("INSERT INTO batch_lists(bid, owner, opened_at) VALUES(?1, ?2, ?3)")?
            .execute(params![batch.bid, batch.owner, unix_s()])?;
    } else {
        conn.prepare_cached("UPDATE batches SET description=?2 WHERE bid=?1")?
            .execute([batch.bid, batch.description])?;
        conn.prepare_cached("DELETE FROM batch_callbacks WHERE bid=?1")?.execute([batch.bid])?;
    }
    let mut insert = conn.prepare_cached(
        "INSERT INTO batch_callbacks(bid, event, number, queue, payload) VALUES(?1, ?2, ?3, ?4, ?5)",
    )?;
    for (number, (event, queue, payload)) in batch.callbacks.iter().enumerate() {
        insert.execute(params![batch.bid, event, number as i64, queue, payload])?;
    }
    Ok(())
}

/// Forgets expired batches; `which` selects them (?1: now, ?2: a bid).
pub(super) fn forget_expired(tx: &SqliteTransaction<'_>, which: &str, bid: &str) -> Result<()> {
    let now_s = unix_s();
    for table in TABLES {
        let sql =
            format!("DELETE FROM {table} WHERE bid IN (SELECT bid FROM batches WHERE {which})");
        tx.conn.prepare_cached(&sql)?.execute(params![now_s, bid])?;
    }
    Ok(())
}

/// Closes a batch; `false` when it is unknown. Its parent waits for it from now on; an older version counted
/// it there when it opened it, and wrote no owner.
pub(super) fn close(tx: &SqliteTransaction<'_>, bid: &str) -> Result<bool> {
    let conn = tx.conn;
    let was_open = conn
        .prepare_cached("UPDATE batch_lists SET owner=NULL WHERE bid=?1 AND owner IS NOT NULL")?
        .execute([bid])?;
    if was_open > 0 {
        conn.prepare_cached(
            "UPDATE batches SET children=children+1, running=running+1
             WHERE bid=(SELECT parent FROM batches WHERE bid=?1)",
        )?
        .execute([bid])?;
    }
    let known = conn.prepare_cached("UPDATE batches SET closed=1 WHERE bid=?1")?.execute([bid])?;
    check(tx, bid)?;
    Ok(known > 0)
}

/// Removes an open batch, or those that were left open: see [`crate::store::Store::remove_open`].
pub(super) fn remove_open(
    tx: &SqliteTransaction<'_>,
    bid: Option<&str>,
) -> Result<Vec<BatchStatus>> {
    let oldest = unix_s() - BATCH_OPEN_MAX.as_secs_f64();
    let bids: Vec<String> = tx
        .conn
        .prepare_cached(
            "SELECT bid FROM batch_lists WHERE owner IS NOT NULL AND iif(?1 IS NULL,
             opened_at<?2 OR owner<>'' AND owner NOT IN (SELECT identity FROM owners), bid=?1)
             ORDER BY opened_at LIMIT ?3",
        )?
        .query_map(params![bid, oldest, OPEN_BATCHES_MAX as i64], |row| row.get(0))?
        .collect::<Result<_>>()?;
    let mut gone = Vec::new();
    for bid in bids {
        gone.extend(status(tx.conn, &bid)?);
        for table in TABLES {
            let sql = format!("DELETE FROM {table} WHERE bid=?1");
            tx.conn.prepare_cached(&sql)?.execute([&bid])?;
        }
    }
    Ok(gone)
}

/// Lists a new job of a batch; returns 1, or 0 when there is no such batch or it has a job with this jid.
pub(super) fn list_job(tx: &SqliteTransaction<'_>, bid: &str, payload: &[u8]) -> Result<usize> {
    tx.conn
        .prepare_cached(
            "INSERT OR IGNORE INTO batch_jobs(bid, jid) SELECT bid, ?2 FROM batches WHERE bid=?1",
        )?
        .execute(params![bid, jid_of(payload)])
}

/// Counts jobs that were listed.
pub(super) fn count_jobs(tx: &SqliteTransaction<'_>, bid: &str, added: usize) -> Result<()> {
    let (conn, added) = (tx.conn, added as i64);
    if added == 0 {
        return Ok(());
    }
    conn.prepare_cached("UPDATE batches SET total=total+?2, pending=pending+?2 WHERE bid=?1")?
        .execute(params![bid, added])?;
    conn.prepare_cached(
        "INSERT INTO batch_lists(bid, listed) VALUES(?1, ?2)
         ON CONFLICT(bid) DO UPDATE SET listed=listed+?2",
    )?
    .execute(params![bid, added])
    .map(|_| ())
}

/// Counts what happened to a job of a batch.
pub(super) fn update(tx: &SqliteTransaction<'_>, update: &BatchUpdate) -> Result<()> {
    let (bid, jid) = (&*update.bid, &*update.jid);
    let conn = tx.conn;
    let is_done = update.event == BatchEvent::Done;
    // Of the jobs that an older version has pushed, how many have not succeeded.
    let known: Option<(bool, i64)> = conn
        .prepare_cached(
            "SELECT dead, total - coalesce(listed, 0) - coalesce(unlisted, 0)
             FROM batches LEFT JOIN batch_lists USING(bid) WHERE bid=?1",
        )?
        .query_row([bid], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((dead, unlisted)) = known else { return Ok(()) };
    if !is_listed(tx, bid, jid, is_done)? {
        // Another copy of the job has succeeded, unless it is of the older kind.
        if unlisted <= 0 {
            return Ok(());
        }
        if is_done {
            conn.prepare_cached("UPDATE batch_lists SET unlisted=unlisted+1 WHERE bid=?1")?
                .execute([bid])?;
        }
    }
    if is_done {
        conn.prepare_cached("DELETE FROM batch_failures WHERE bid=?1 AND jid=?2")?
            .execute([bid, jid])?;
        conn.prepare_cached("UPDATE batches SET pending=pending-1 WHERE bid=?1")?.execute([bid])?;
    } else {
        conn.prepare_cached("INSERT OR IGNORE INTO batch_failures(bid, jid) VALUES(?1, ?2)")?
            .execute([bid, jid])?;
    }
    if update.event == BatchEvent::Died && !dead {
        conn.prepare_cached("UPDATE batches SET dead=1 WHERE bid=?1")?.execute([bid])?;
        push_callbacks(tx, bid, "death")?;
    }
    check(tx, bid)
}

/// Whether a batch lists this job; if it `ends`, no longer from now on.
fn is_listed(tx: &SqliteTransaction<'_>, bid: &str, jid: &str, ends: bool) -> Result<bool> {
    if ends {
        let mut delete =
            tx.conn.prepare_cached("DELETE FROM batch_jobs WHERE bid=?1 AND jid=?2")?;
        return Ok(delete.execute([bid, jid])? > 0);
    }
    tx.conn
        .prepare_cached("SELECT EXISTS(SELECT 1 FROM batch_jobs WHERE bid=?1 AND jid=?2)")?
        .query_row([bid, jid], |row| row.get(0))
}

/// Pushes the callbacks of events that have come true, also those of the parents.
fn check(tx: &SqliteTransaction<'_>, bid: &str) -> Result<()> {
    let mut bid = bid.to_string();
    loop {
        let Some(batch) = closed(tx, &bid)? else { return Ok(()) };
        let ran = batch.running <= 0 && failures(tx.conn, &bid)? >= batch.pending;
        let completes = ran && !batch.complete;
        let succeeds = batch.pending <= 0 && batch.children <= 0 && !batch.success;
        if !completes && !succeeds {
            return Ok(());
        }
        tx.conn
            .prepare_cached(
                "UPDATE batches SET complete=max(complete, ?2), success=max(success, ?3)
                 WHERE bid=?1",
            )?
            .execute(params![bid, completes, succeeds])?;
        if completes {
            push_callbacks(tx, &bid, "complete")?;
        }
        if succeeds {
            push_callbacks(tx, &bid, "success")?;
        }
        let Some(parent) = batch.parent else { return Ok(()) };
        tx.conn
            .prepare_cached(
                "UPDATE batches SET running=running-?2, children=children-?3 WHERE bid=?1",
            )?
            .execute(params![parent, completes, succeeds])?;
        bid = parent;
    }
}

fn push_callbacks(tx: &SqliteTransaction<'_>, bid: &str, event: &str) -> Result<()> {
    let rows: Vec<(String, Vec<u8>)> = tx
        .conn
        .prepare_cached(
            "SELECT queue, payload FROM batch_callbacks WHERE bid=?1 AND event=?2 ORDER BY number",
        )?
        .query_map([bid, event], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<_>>()?;
    rows.iter().try_for_each(|(queue, payload)| rows::append(tx, queue, payload))
}

/// Batches that have not succeeded, the latest ones first.
pub(super) fn unfinished(conn: &Connection, max: usize) -> Result<Vec<BatchStatus>> {
    let bids: Vec<String> = conn
        .prepare_cached(
            "SELECT bid FROM batches WHERE NOT success AND until>?1 ORDER BY created_at DESC LIMIT ?2",
        )?
        .query_map(params![unix_s(), max as i64], |row| row.get(0))?
        .collect::<Result<_>>()?;
    bids.iter().filter_map(|bid| status(conn, bid).transpose()).collect()
}

pub(super) fn status(conn: &Connection, bid: &str) -> Result<Option<BatchStatus>> {
    let found = conn
        .prepare_cached(
            "SELECT description, parent, created_at, total, pending, children, complete, success,
             dead FROM batches WHERE bid=?1 AND until>?2",
        )?
        .query_row(params![bid, unix_s()], |row| {
            Ok(BatchStatus {
                bid: bid.to_string(),
                description: row.get(0)?,
                parent: row.get(1)?,
                created_at: row.get(2)?,
                total: row.get::<_, i64>(3)? as u64,
                pending: row.get::<_, i64>(4)?.max(0) as u64,
                failures: failures(conn, bid)? as u64,
                failed_jids: vec![],
                children_pending: row.get::<_, i64>(5)?.max(0) as u64,
                complete: row.get(6)?,
                success: row.get(7)?,
                dead: row.get(8)?,
            })
        })
        .optional()?;
    let Some(status) = found else { return Ok(None) };
    let failed_jids = conn
        .prepare_cached("SELECT jid FROM batch_failures WHERE bid=?1 ORDER BY jid LIMIT ?2")?
        .query_map(params![bid, FAILED_JIDS_MAX as i64], |row| row.get(0))?
        .collect::<Result<_>>()?;
    Ok(Some(BatchStatus { failed_jids, ..status }))
}
