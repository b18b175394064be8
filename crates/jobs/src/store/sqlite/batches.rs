//! Batches: counts, and callbacks pushed once when they come true.

use rusqlite::{params, Connection, OptionalExtension, Result};

use super::{queues, Tx};
use crate::store::{BatchEvent, BatchStatus, BatchStep, NewBatch};

/// Jids of failed jobs that a status names at most.
const FAILED_SHOWN: i64 = 1000;

struct Row {
    parent: Option<String>,
    open: bool,
    pending: i64,
    children_pending: i64,
    children_running: i64,
    complete: bool,
    success: bool,
    dead: bool,
}

fn row(tx: &Tx<'_>, bid: &str) -> Result<Option<Row>> {
    tx.conn
        .prepare_cached(
            "SELECT parent, open, pending, children_pending, children_running, complete, success, dead
             FROM batches WHERE bid=?1",
        )?
        .query_row([bid], |row| {
            Ok(Row {
                parent: row.get(0)?,
                open: row.get(1)?,
                pending: row.get(2)?,
                children_pending: row.get(3)?,
                children_running: row.get(4)?,
                complete: row.get(5)?,
                success: row.get(6)?,
                dead: row.get(7)?,
            })
        })
        .optional()
}

fn failures(conn: &Connection, bid: &str) -> Result<i64> {
    conn.prepare_cached("SELECT count(*) FROM batch_failures WHERE bid=?1")?
        .query_row([bid], |row| row.get(0))
}

pub(super) fn open(tx: &Tx<'_>, batch: &NewBatch<'_>) -> Result<()> {
    let conn = tx.conn;
    forget_old(tx, batch.now_s)?;
    let is_new = conn
        .prepare_cached(
            "INSERT OR IGNORE INTO batches(bid, description, parent, created_at, until, open)
             VALUES(?1, ?2, ?3, ?4, ?5, 1)",
        )?
        .execute(params![
            batch.bid,
            batch.description,
            batch.parent,
            batch.now_s,
            batch.now_s + batch.ttl.as_secs_f64()
        ])?
        > 0;
    if let (true, Some(parent)) = (is_new, batch.parent) {
        conn.prepare_cached(
            "UPDATE batches SET children_pending=children_pending+1,
             children_running=children_running+1 WHERE bid=?1",
        )?
        .execute([parent])?;
    }
    if !is_new {
        conn.prepare_cached("UPDATE batches SET open=1, description=?2 WHERE bid=?1")?
            .execute([batch.bid, batch.description])?;
        conn.prepare_cached("DELETE FROM batch_callbacks WHERE bid=?1")?.execute([batch.bid])?;
    }
    for (event, queue, payload) in batch.callbacks {
        conn.prepare_cached(
            "INSERT INTO batch_callbacks(bid, event, queue, payload) VALUES(?1, ?2, ?3, ?4)",
        )?
        .execute(params![batch.bid, event, queue, payload])?;
    }
    Ok(())
}

fn forget_old(tx: &Tx<'_>, now_s: f64) -> Result<()> {
    for table in ["batch_failures", "batch_callbacks"] {
        tx.conn
            .prepare_cached(&format!(
                "DELETE FROM {table} WHERE bid IN (SELECT bid FROM batches WHERE until<?1)"
            ))?
            .execute([now_s])?;
    }
    tx.conn.prepare_cached("DELETE FROM batches WHERE until<?1")?.execute([now_s]).map(|_| ())
}

pub(super) fn close(tx: &Tx<'_>, bid: &str) -> Result<()> {
    tx.conn.prepare_cached("UPDATE batches SET open=0 WHERE bid=?1")?.execute([bid])?;
    fire(tx, bid)
}

/// One more job of a batch.
pub(super) fn add(tx: &Tx<'_>, bid: &str) -> Result<()> {
    tx.conn
        .prepare_cached("UPDATE batches SET total=total+1, pending=pending+1 WHERE bid=?1")?
        .execute([bid])
        .map(|_| ())
}

/// A job of a batch was run.
pub(super) fn step(tx: &Tx<'_>, step: &BatchStep) -> Result<()> {
    let (bid, jid) = (&*step.bid, &*step.jid);
    let conn = tx.conn;
    if step.what == BatchEvent::Done {
        conn.prepare_cached("DELETE FROM batch_failures WHERE bid=?1 AND jid=?2")?
            .execute([bid, jid])?;
        conn.prepare_cached("UPDATE batches SET pending=max(pending-1, 0) WHERE bid=?1")?
            .execute([bid])?;
    } else {
        conn.prepare_cached("INSERT OR IGNORE INTO batch_failures(bid, jid) VALUES(?1, ?2)")?
            .execute([bid, jid])?;
    }
    if step.what == BatchEvent::Died {
        died(tx, bid)?;
    }
    fire(tx, bid)
}

fn died(tx: &Tx<'_>, bid: &str) -> Result<()> {
    if row(tx, bid)?.is_some_and(|batch| !batch.dead) {
        set(tx, bid, "dead")?;
        callbacks(tx, bid, "death")?;
    }
    Ok(())
}

/// Pushes the callbacks of what has come true, up through the parents.
fn fire(tx: &Tx<'_>, bid: &str) -> Result<()> {
    let mut bid = bid.to_string();
    loop {
        let Some(batch) = row(tx, &bid)?.filter(|batch| !batch.open) else { return Ok(()) };
        let ran = batch.pending == failures(tx.conn, &bid)? && batch.children_running == 0;
        let completes = !batch.complete && ran;
        if completes {
            set(tx, &bid, "complete")?;
            callbacks(tx, &bid, "complete")?;
        }
        let succeeds = !batch.success && batch.pending == 0 && batch.children_pending == 0;
        if succeeds {
            set(tx, &bid, "success")?;
            callbacks(tx, &bid, "success")?;
        }
        let Some(parent) = batch.parent.filter(|_| completes || succeeds) else { return Ok(()) };
        tx.conn
            .prepare_cached(
                "UPDATE batches SET children_running=children_running-?2,
                 children_pending=children_pending-?3 WHERE bid=?1",
            )?
            .execute(params![parent, completes, succeeds])?;
        bid = parent;
    }
}

fn set(tx: &Tx<'_>, bid: &str, flag: &str) -> Result<()> {
    tx.conn
        .prepare_cached(&format!("UPDATE batches SET {flag}=1 WHERE bid=?1"))?
        .execute([bid])
        .map(|_| ())
}

fn callbacks(tx: &Tx<'_>, bid: &str, event: &str) -> Result<()> {
    let mut select = tx.conn.prepare_cached(
        "SELECT queue, payload FROM batch_callbacks WHERE bid=?1 AND event=?2 ORDER BY id",
    )?;
    let rows: Vec<(String, Vec<u8>)> = select
        .query_map([bid, event], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<_>>()?;
    rows.iter().try_for_each(|(queue, payload)| queues::append(tx, queue, payload))
}

pub(super) fn status(conn: &Connection, bid: &str) -> Result<Option<BatchStatus>> {
    let found = conn
        .prepare_cached(
            "SELECT description, parent, created_at, total, pending, children_pending, complete,
             success, dead FROM batches WHERE bid=?1",
        )?
        .query_row([bid], |row| {
            Ok(BatchStatus {
                bid: bid.to_string(),
                description: row.get(0)?,
                parent: row.get(1)?,
                created_at: row.get(2)?,
                total: row.get::<_, i64>(3)? as u64,
                pending: row.get::<_, i64>(4)? as u64,
                failures: failures(conn, bid)? as u64,
                failed_jids: vec![],
                children_pending: row.get::<_, i64>(5)? as u64,
                complete: row.get(6)?,
                success: row.get(7)?,
                dead: row.get(8)?,
            })
        })
        .optional()?;
    let Some(status) = found else { return Ok(None) };
    let mut select =
        conn.prepare_cached("SELECT jid FROM batch_failures WHERE bid=?1 ORDER BY jid LIMIT ?2")?;
    let failed_jids =
        select.query_map(params![bid, FAILED_SHOWN], |row| row.get(0))?.collect::<Result<_>>()?;
    Ok(Some(BatchStatus { failed_jids, ..status }))
}
