//! Batches: their pending jobs, counts, and callbacks that are pushed once.

use tokio_postgres::Row;

use super::connection::{args, Call, NOW};
use super::errors::Result;
use super::limits::serialize_batches;
use super::rows::{Rows, QUEUE};
use crate::outcome::{BatchEvent, BatchUpdate};
use crate::store::types::*;

/// The tables of batches; the one that others are selected by comes last.
const TABLES: [&str; 3] = ["batch_callbacks", "batch_jobs", "batches"];

pub(super) fn open(call: &mut Call<'_>, batch: &NewBatch<'_>) -> Result<()> {
    let until = batch.now_s + batch.ttl.as_secs_f64();
    serialize_batches(call)?;
    forget(call, &format!("bid=$1 AND until<={NOW}"), &[batch.bid])?;
    call.rows(
        &format!(
            "INSERT INTO chaton.batches(bid, description, parent, created_at, until, owner, opened_at)
             VALUES($1, $2, $3, $4, $5, $6, {NOW})
             ON CONFLICT (bid) DO UPDATE SET description=excluded.description"
        ),
        args![batch.bid, batch.description, batch.parent, batch.now_s, until, batch.owner],
    )?;
    let events: Vec<&str> = batch.callbacks.iter().map(|callback| callback.0).collect();
    let queues: Vec<&str> = batch.callbacks.iter().map(|callback| callback.1).collect();
    let payloads: Vec<&[u8]> = batch.callbacks.iter().map(|callback| callback.2).collect();
    call.rows("DELETE FROM chaton.batch_callbacks WHERE bid=$1", args![batch.bid])?;
    call.exec(
        "INSERT INTO chaton.batch_callbacks(bid, event, queue, payload, number)
         SELECT $1, u.* FROM unnest($2, $3, $4) WITH ORDINALITY u",
        args![batch.bid, events, queues, payloads],
    )
}

/// Forgets the batches of which `which` is true; `$1` are the ids.
fn forget(call: &mut Call<'_>, which: &str, bids: &[&str]) -> Result<()> {
    let which = which.replace("bid=$1", "bid=ANY($1)");
    for table in TABLES {
        call.rows(
            &format!(
                "DELETE FROM chaton.{table} WHERE bid IN (SELECT bid FROM chaton.batches WHERE {which})"
            ),
            args![bids],
        )?;
    }
    Ok(())
}

/// Forgets expired batches.
pub(super) fn forget_expired(call: &mut Call<'_>) -> Result<()> {
    forget(call, &format!("until<={NOW} AND $1 IS NOT NULL"), &[])
}

/// Closes a batch; `false` when it is unknown. Its parent waits for it from now on.
pub(super) fn close(call: &mut Call<'_>, bid: &str) -> Result<bool> {
    serialize_batches(call)?;
    call.rows(
        "UPDATE chaton.batches SET children=children+1, running=running+1
         WHERE bid=(SELECT parent FROM chaton.batches WHERE bid=$1 AND owner IS NOT NULL)",
        args![bid],
    )?;
    let known = call.any(
        "UPDATE chaton.batches SET closed=true, owner=NULL WHERE bid=$1 RETURNING 1",
        args![bid],
    )?;
    check(call, bid)?;
    Ok(known)
}

/// Removes an open batch, or those that were left open: see [`crate::store::Store::remove_open`].
pub(super) fn remove_open(call: &mut Call<'_>, bid: Option<&str>) -> Result<Vec<BatchStatus>> {
    serialize_batches(call)?;
    let rows = call.rows(
        &format!(
            "SELECT bid FROM chaton.batches WHERE owner IS NOT NULL AND CASE WHEN $1 IS NULL THEN
             opened_at<{NOW}-$2 OR owner<>'' AND owner NOT IN (SELECT identity FROM chaton.owners)
             ELSE bid=$1 END ORDER BY opened_at LIMIT $3"
        ),
        args![bid, BATCH_OPEN_MAX.as_secs_f64(), OPEN_BATCHES_MAX as i64],
    )?;
    let bids: Vec<&str> = rows.iter().map(|row| row.get(0)).collect();
    let mut gone = Vec::new();
    for bid in &bids {
        gone.extend(status(call, bid)?);
    }
    if !bids.is_empty() {
        forget(call, "bid=$1", &bids)?;
    }
    Ok(gone)
}

/// Lists and counts new jobs of a batch, but for those with a jid that it has.
pub(super) fn count_jobs(call: &mut Call<'_>, bid: &str, jids: &[String]) -> Result<()> {
    call.exec(
        "WITH new AS (INSERT INTO chaton.batch_jobs(bid, jid) SELECT b.bid, j.jid FROM chaton.batches b,
             (SELECT DISTINCT unnest($2) AS jid) j WHERE b.bid=$1 ON CONFLICT DO NOTHING RETURNING 1)
         UPDATE chaton.batches SET total=total+(SELECT count(*) FROM new), pending=pending+(SELECT count(*) FROM new)
         WHERE bid=$1",
        args![bid, jids],
    )
}

/// Counts what happened to a job of a batch; the caller has [`serialize_batches`].
pub(super) fn update(call: &mut Call<'_>, update: &BatchUpdate) -> Result<()> {
    let (bid, jid) = (&*update.bid, &*update.jid);
    // A job that is not listed: another copy of it has succeeded.
    let changed = match update.event {
        BatchEvent::Done => {
            "WITH job AS (DELETE FROM chaton.batch_jobs WHERE bid=$1 AND jid=$2 RETURNING 1)
             UPDATE chaton.batches SET pending=pending-1 WHERE bid=$1 AND EXISTS(SELECT 1 FROM job) RETURNING dead"
        }
        _ => {
            "WITH job AS (UPDATE chaton.batch_jobs SET failed=true WHERE bid=$1 AND jid=$2 RETURNING 1)
             SELECT dead FROM chaton.batches WHERE bid=$1 AND EXISTS(SELECT 1 FROM job)"
        }
    };
    let Some(row) = call.one(changed, args![bid, jid])? else { return Ok(()) };
    if update.event == BatchEvent::Died && !row.get::<_, bool>(0) {
        call.rows("UPDATE chaton.batches SET dead=true WHERE bid=$1", args![bid])?;
        push_callbacks(call, bid, "death")?;
    }
    check(call, bid)
}

/// Pushes the callbacks of events that have come true, also those of the parents.
fn check(call: &mut Call<'_>, bid: &str) -> Result<()> {
    let mut bid = bid.to_string();
    loop {
        let row = call.one(
            "UPDATE chaton.batches b SET complete=b.complete OR t.completes, success=b.success OR t.succeeds
             FROM (SELECT bid, NOT complete AND running<=0 AND (SELECT count(*) FROM chaton.batch_jobs f
                 WHERE f.bid=$1 AND f.failed)>=pending AS completes,
                 NOT success AND pending<=0 AND children<=0 AS succeeds
                 FROM chaton.batches WHERE bid=$1 AND closed) t
             WHERE b.bid=t.bid AND (t.completes OR t.succeeds) RETURNING b.parent, t.completes, t.succeeds",
            args![bid],
        )?;
        let Some(row) = row else { return Ok(()) };
        let (completes, succeeds): (bool, bool) = (row.get(1), row.get(2));
        for (event, is_true) in [("complete", completes), ("success", succeeds)] {
            if is_true {
                push_callbacks(call, &bid, event)?;
            }
        }
        let Some(parent) = row.get::<_, Option<String>>(0) else { return Ok(()) };
        call.rows(
            "UPDATE chaton.batches SET running=running-$2::int, children=children-$3::int WHERE bid=$1",
            args![parent, i32::from(completes), i32::from(succeeds)],
        )?;
        bid = parent;
    }
}

fn push_callbacks(call: &mut Call<'_>, bid: &str, event: &str) -> Result<()> {
    let found = call.rows(
        "SELECT queue, payload FROM chaton.batch_callbacks WHERE bid=$1 AND event=$2 ORDER BY number",
        args![bid, event],
    )?;
    let mut rows = Rows::default();
    for row in &found {
        rows.add(QUEUE, row.get(0), None, row.get(1));
    }
    rows.insert(call)
}

const STATUS: &str = "SELECT b.bid, description, parent, created_at, total, pending, children, complete, success, dead,
    (SELECT count(*) FROM chaton.batch_jobs f WHERE f.bid=b.bid AND failed),
    ARRAY(SELECT jid FROM chaton.batch_jobs f WHERE f.bid=b.bid AND failed ORDER BY jid LIMIT $2)
    FROM chaton.batches b";

fn read(row: &Row) -> BatchStatus {
    let count = |column: usize| row.get::<_, i64>(column).max(0) as u64;
    BatchStatus {
        bid: row.get(0),
        description: row.get(1),
        parent: row.get(2),
        created_at: row.get(3),
        total: count(4),
        pending: count(5),
        failures: count(10),
        failed_jids: row.get(11),
        children_pending: count(6),
        complete: row.get(7),
        success: row.get(8),
        dead: row.get(9),
    }
}

/// Batches that have not succeeded, the latest ones first.
pub(super) fn unfinished(call: &mut Call<'_>, max: usize) -> Result<Vec<BatchStatus>> {
    let rows = call.rows(
        &format!("{STATUS} WHERE NOT success AND until>{NOW} ORDER BY created_at DESC LIMIT $1"),
        args![max as i64, FAILED_JIDS_MAX as i64],
    )?;
    Ok(rows.iter().map(read).collect())
}

pub(super) fn status(call: &mut Call<'_>, bid: &str) -> Result<Option<BatchStatus>> {
    let row = call.one(
        &format!("{STATUS} WHERE bid=$1 AND until>{NOW}"),
        args![bid, FAILED_JIDS_MAX as i64],
    )?;
    Ok(row.as_ref().map(read))
}
