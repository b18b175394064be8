//! The schedule, the retry set and the dead set: one table, ordered by time.

use std::sync::Arc;

use rusqlite::{params, OptionalExtension, Result};

use super::{owners, queues, Tx};
use crate::document::{stamped, Fields};
use crate::store::{ClaimedJob, DueSummary, JobEntry, JobLocation};

/// What a store was told to keep, and how it writes times.
#[derive(Clone, Copy)]
pub(super) struct Rules {
    /// Jobs in the dead set.
    pub dead_max: usize,
    /// How long they are kept there.
    pub dead_age_s: f64,
    /// Generation of the format in which times are stamped.
    pub format: u8,
    /// Silence after which an owner is dead.
    pub lease_s: f64,
}

/// What a set is called in the table; `None` for a queue.
pub(super) fn kind(place: &JobLocation) -> Option<i64> {
    match place {
        JobLocation::Queue(_) => None,
        JobLocation::Scheduled => Some(0),
        JobLocation::Retry => Some(1),
        JobLocation::Dead => Some(2),
    }
}

pub(super) fn add(tx: &Tx<'_>, place: &JobLocation, at: f64, payload: &[u8]) -> Result<()> {
    match place {
        JobLocation::Dead => tx.buried(at),
        _ => tx.wake(),
    }
    tx.conn
        .prepare_cached("INSERT INTO entries(kind, at, payload) VALUES(?1, ?2, ?3)")?
        .execute(params![kind(place), at, payload])
        .map(|_| ())
}

/// Keeps the dead set within its bounds, once for all that an operation buried.
pub(super) fn trim_dead(tx: &Tx<'_>, rules: &Rules) -> Result<()> {
    let Some(at) = tx.last_burial() else { return Ok(()) };
    tx.conn
        .prepare_cached("DELETE FROM entries WHERE kind=2 AND at<?1")?
        .execute([at - rules.dead_age_s])?;
    tx.conn
        .prepare_cached(
            "DELETE FROM entries WHERE id IN (SELECT id FROM entries WHERE kind=2
             ORDER BY at DESC, id DESC LIMIT -1 OFFSET ?1)",
        )?
        .execute([rules.dead_max as i64])
        .map(|_| ())
}

struct Row {
    id: i64,
    at: f64,
    payload: Vec<u8>,
}

/// Due entries of both sets, the earliest first.
fn due_rows(tx: &Tx<'_>, now_s: f64, max: usize) -> Result<Vec<Row>> {
    let mut select = tx.conn.prepare_cached(
        "SELECT id, at, payload FROM entries WHERE kind=?1 AND at<=?2 ORDER BY at, id LIMIT ?3",
    )?;
    let mut rows = Vec::new();
    for kind in [1, 0] {
        let found = select.query_map(params![kind, now_s, max as i64], |row| {
            Ok(Row { id: row.get(0)?, at: row.get(1)?, payload: row.get(2)? })
        })?;
        rows.extend(found.collect::<Result<Vec<_>>>()?);
    }
    rows.sort_by(|a, b| a.at.total_cmp(&b.at));
    rows.truncate(max);
    Ok(rows)
}

fn delete(tx: &Tx<'_>, id: i64) -> Result<usize> {
    tx.conn.prepare_cached("DELETE FROM entries WHERE id=?1")?.execute([id])
}

/// When the next job of the schedule or the retry set is due.
pub(super) fn next_at(conn: &rusqlite::Connection) -> Result<Option<f64>> {
    let mut select = conn.prepare_cached("SELECT min(at) FROM entries WHERE kind=?1")?;
    let times = [0, 1].map(|kind| select.query_row([kind], |row| row.get::<_, Option<f64>>(0)));
    let times = times.into_iter().collect::<Result<Vec<_>>>()?;
    Ok(times.into_iter().flatten().min_by(f64::total_cmp))
}

pub(super) fn move_due(tx: &Tx<'_>, now_s: f64, max: usize, rules: &Rules) -> Result<DueSummary> {
    let mut due = DueSummary::default();
    for row in due_rows(tx, now_s, max)? {
        delete(tx, row.id)?;
        due.moved += 1;
        due.lag_max_s = due.lag_max_s.max(now_s - row.at);
        match stamped(&row.payload, now_s, rules.format, false) {
            Some((queue, payload)) => queues::append(tx, &queue, &payload)?,
            None => add(tx, &JobLocation::Dead, now_s, &row.payload)?,
        }
    }
    trim_dead(tx, rules)?;
    due.next_at = next_at(tx.conn)?;
    Ok(due)
}

pub(super) fn claim_due(
    tx: &Tx<'_>,
    owner: &str,
    first_ticket: u64,
    now_s: f64,
    max: usize,
    rules: &Rules,
) -> Result<(Vec<ClaimedJob>, DueSummary)> {
    let mut due = DueSummary::default();
    let mut jobs: Vec<ClaimedJob> = Vec::new();
    let nowhere: Arc<str> = Arc::from("");
    for row in due_rows(tx, now_s, max)? {
        delete(tx, row.id)?;
        due.moved += 1;
        due.lag_max_s = due.lag_max_s.max(now_s - row.at);
        if stamped(&row.payload, now_s, rules.format, false).is_none() {
            add(tx, &JobLocation::Dead, now_s, &row.payload)?;
            continue;
        }
        let ticket = first_ticket + jobs.len() as u64;
        let flight = queues::flight(owners::id_of(tx, owner)?, ticket);
        queues::fly(tx, flight, queues::NOWHERE, &row.payload)?;
        jobs.push(ClaimedJob { ticket, queue: nowhere.clone(), payload: row.payload });
    }
    trim_dead(tx, rules)?;
    due.next_at = next_at(tx.conn)?;
    Ok((jobs, due))
}

/// Takes one entry out of its place; `false` when it is gone.
fn take(tx: &Tx<'_>, place: &JobLocation, entry: &JobEntry) -> Result<bool> {
    let Some(kind) = kind(place) else {
        let mut delete =
            tx.conn.prepare_cached("DELETE FROM waiting WHERE id=?1 AND payload=?2")?;
        return Ok(delete.execute(params![entry.row, entry.payload])? > 0);
    };
    let mut delete =
        tx.conn.prepare_cached("DELETE FROM entries WHERE id=?1 AND kind=?2 AND payload=?3")?;
    Ok(delete.execute(params![entry.row, kind, entry.payload])? > 0)
}

pub(super) fn remove(tx: &Tx<'_>, place: &JobLocation, entry: &JobEntry) -> Result<bool> {
    if !take(tx, place, entry)? {
        return Ok(false);
    }
    queues::discard(tx, &entry.payload)?;
    Ok(true)
}

/// Puts an entry with its new document at the back of a queue.
pub(super) fn requeue(
    tx: &Tx<'_>,
    place: &JobLocation,
    entry: &JobEntry,
    queue: &str,
    payload: &[u8],
) -> Result<bool> {
    if !take(tx, place, entry)? {
        return Ok(false);
    }
    queues::append(tx, queue, payload)?;
    Ok(true)
}

pub(super) fn kill(
    tx: &Tx<'_>,
    place: &JobLocation,
    entry: &JobEntry,
    now_s: f64,
    rules: &Rules,
) -> Result<bool> {
    if !take(tx, place, entry)? {
        return Ok(false);
    }
    add(tx, &JobLocation::Dead, now_s, &entry.payload)?;
    queues::discard(tx, &entry.payload)?;
    trim_dead(tx, rules)?;
    Ok(true)
}

/// Removes up to `max` entries; `discard` looks at each.
pub(super) fn clear(tx: &Tx<'_>, place: &JobLocation, max: usize) -> Result<usize> {
    let gone: Vec<Vec<u8>> = match (kind(place), place) {
        (None, JobLocation::Queue(name)) => {
            let Some(queue) = queues::known(tx, name)? else { return Ok(0) };
            let (first, last) = queues::span(queue);
            tx.conn
                .prepare_cached(
                    "DELETE FROM waiting WHERE id IN (SELECT id FROM waiting
                     WHERE id BETWEEN ?1 AND ?2 ORDER BY id LIMIT ?3) RETURNING payload",
                )?
                .query_map(params![first, last, max as i64], |row| row.get(0))?
                .collect::<Result<_>>()?
        }
        (kind, _) => tx
            .conn
            .prepare_cached(
                "DELETE FROM entries WHERE id IN (SELECT id FROM entries WHERE kind=?1
                 ORDER BY at, id LIMIT ?2) RETURNING payload",
            )?
            .query_map(params![kind, max as i64], |row| row.get(0))?
            .collect::<Result<_>>()?,
    };
    gone.iter().try_for_each(|payload| queues::discard(tx, payload))?;
    Ok(gone.len())
}

/// Where an entry goes that is asked for again, and as what; `None` when it
/// names no queue and came from none.
pub(super) fn renewed(
    place: &JobLocation,
    entry: &JobEntry,
    now_s: f64,
    format: u8,
) -> Option<(String, Vec<u8>)> {
    let ready = stamped(&entry.payload, now_s, format, *place == JobLocation::Retry);
    match (ready, place) {
        (Some((_, payload)), JobLocation::Queue(queue)) => Some((queue.clone(), payload)),
        (Some(ready), _) => Some(ready),
        (None, JobLocation::Queue(queue)) => Some((queue.clone(), entry.payload.clone())),
        (None, _) => None,
    }
}

/// The jid in a document.
pub(super) fn jid_of(payload: &[u8]) -> Option<String> {
    Fields::parse(payload).ok()?.text("jid")
}

/// Whether there is such a row.
pub(super) fn exists(conn: &rusqlite::Connection, sql: &str, span: (i64, i64)) -> Result<bool> {
    let found: Option<i64> =
        conn.prepare_cached(sql)?.query_row([span.0, span.1], |row| row.get(0)).optional()?;
    Ok(found.is_some())
}
