//! The schedule, the retry set and the dead set: one table, ordered by time.

use std::sync::Arc;

use rusqlite::{params, OptionalExtension, Result};

use super::{owners, queues, Tx};
use crate::document::Fields;
use crate::store::{Claimed, Due, Entry, Place};

/// How much of the dead is kept.
#[derive(Clone, Copy)]
pub(super) struct Keep {
    pub count: usize,
    pub age_s: f64,
    /// Generation of the format in which times are stamped.
    pub format: u8,
}

/// What a set is called in the table; `None` for a queue.
pub(super) fn kind(place: &Place) -> Option<i64> {
    match place {
        Place::Queue(_) => None,
        Place::Scheduled => Some(0),
        Place::Retry => Some(1),
        Place::Dead => Some(2),
    }
}

pub(super) fn add(tx: &Tx<'_>, place: &Place, at: f64, payload: &[u8]) -> Result<()> {
    // What is due sooner than anything else is worth a look; the dead are not.
    if *place != Place::Dead {
        tx.wake();
    }
    tx.conn
        .prepare_cached("INSERT INTO entries(kind, at, payload) VALUES(?1, ?2, ?3)")?
        .execute(params![kind(place), at, payload])
        .map(|_| ())
}

pub(super) fn trim_dead(tx: &Tx<'_>, now_s: f64, keep: &Keep) -> Result<()> {
    tx.conn
        .prepare_cached("DELETE FROM entries WHERE kind=2 AND at<?1")?
        .execute([now_s - keep.age_s])?;
    tx.conn
        .prepare_cached(
            "DELETE FROM entries WHERE id IN (SELECT id FROM entries WHERE kind=2
             ORDER BY at DESC, id DESC LIMIT -1 OFFSET ?1)",
        )?
        .execute([keep.count as i64])
        .map(|_| ())
}

struct Row {
    id: i64,
    at: f64,
    payload: Vec<u8>,
}

/// Due entries of both sets, the earliest first.
fn due_rows(tx: &Tx<'_>, now_s: f64, max: usize) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for kind in [1, 0] {
        let mut select = tx.conn.prepare_cached(
            "SELECT id, at, payload FROM entries WHERE kind=?1 AND at<=?2 ORDER BY at, id LIMIT ?3",
        )?;
        let left = (max - rows.len()) as i64;
        let found = select.query_map(params![kind, now_s, left], |row| {
            Ok(Row { id: row.get(0)?, at: row.get(1)?, payload: row.get(2)? })
        })?;
        rows.extend(found.collect::<Result<Vec<_>>>()?);
    }
    Ok(rows)
}

fn delete(tx: &Tx<'_>, id: i64) -> Result<bool> {
    Ok(tx.conn.prepare_cached("DELETE FROM entries WHERE id=?1")?.execute([id])? > 0)
}

/// When the next job of the schedule or the retry set is due.
pub(super) fn next_at(conn: &rusqlite::Connection) -> Result<Option<f64>> {
    let mut select = conn.prepare_cached("SELECT min(at) FROM entries WHERE kind=?1")?;
    let times: Vec<Option<f64>> =
        [0, 1].iter().map(|kind| select.query_row([kind], |row| row.get(0))).collect::<Result<_>>()?;
    Ok(times.into_iter().flatten().min_by(f64::total_cmp))
}

/// A document's queue; `None` when it is none.
fn queue_of(payload: &[u8]) -> Option<String> {
    Fields::parse(payload).ok()?.text("queue").filter(|queue| !queue.is_empty())
}

/// The document with the time of its enqueueing, the other bytes as they are.
pub(super) fn stamped(payload: &[u8], now_s: f64, format: u8) -> Option<Vec<u8>> {
    let mut fields = Fields::parse(payload).ok()?;
    let now = if format >= 8 { format!("{}", (now_s * 1e3) as i64) } else { format!("{now_s:.6}") };
    fields.set("enqueued_at", now);
    Some(fields.to_vec())
}

pub(super) fn move_due(tx: &Tx<'_>, now_s: f64, max: usize, keep: &Keep) -> Result<Due> {
    let mut due = Due::default();
    for row in due_rows(tx, now_s, max)? {
        delete(tx, row.id)?;
        due.moved += 1;
        due.lag_max_s = due.lag_max_s.max(now_s - row.at);
        let ready = queue_of(&row.payload).zip(stamped(&row.payload, now_s, keep.format));
        match ready {
            Some((queue, payload)) => queues::append(tx, &queue, &payload)?,
            None => bury(tx, now_s, &row.payload, keep)?,
        }
    }
    due.next_at = next_at(tx.conn)?;
    Ok(due)
}

fn bury(tx: &Tx<'_>, now_s: f64, payload: &[u8], keep: &Keep) -> Result<()> {
    add(tx, &Place::Dead, now_s, payload)?;
    trim_dead(tx, now_s, keep)
}

pub(super) fn claim_due(
    tx: &Tx<'_>,
    owner: &str,
    first_ticket: u64,
    now_s: f64,
    max: usize,
    keep: &Keep,
) -> Result<(Vec<Claimed>, Due)> {
    let owner = owners::id_of(tx, owner)?;
    let mut due = Due::default();
    let mut jobs = Vec::new();
    for row in due_rows(tx, now_s, max)? {
        delete(tx, row.id)?;
        due.moved += 1;
        due.lag_max_s = due.lag_max_s.max(now_s - row.at);
        if queue_of(&row.payload).is_none() {
            bury(tx, now_s, &row.payload, keep)?;
            continue;
        }
        let ticket = first_ticket + jobs.len() as u64;
        tx.conn
            .prepare_cached("INSERT INTO flights(id, queue, payload) VALUES(?1, 0, ?2)")?
            .execute(params![queues::flight(owner, ticket), row.payload])?;
        jobs.push(Claimed { ticket, queue: Arc::from(""), payload: row.payload });
    }
    due.next_at = next_at(tx.conn)?;
    Ok((jobs, due))
}

/// Takes one entry out of its place; `None` when it is gone.
pub(super) fn take(tx: &Tx<'_>, place: &Place, entry: &Entry) -> Result<Option<Vec<u8>>> {
    let sql = match place {
        Place::Queue(_) => "DELETE FROM waiting WHERE id=?1 AND payload=?2 RETURNING payload",
        _ => "DELETE FROM entries WHERE id=?1 AND payload=?2 RETURNING payload",
    };
    tx.conn
        .prepare_cached(sql)?
        .query_row(params![entry.row, entry.payload], |row| row.get(0))
        .optional()
}

pub(super) fn remove(tx: &Tx<'_>, place: &Place, entry: &Entry) -> Result<bool> {
    let Some(payload) = take(tx, place, entry)? else { return Ok(false) };
    queues::discard(tx, &payload)?;
    Ok(true)
}

pub(super) fn requeue(
    tx: &Tx<'_>,
    place: &Place,
    entry: &Entry,
    now_s: f64,
    keep: &Keep,
) -> Result<bool> {
    let Some(payload) = take(tx, place, entry)? else { return Ok(false) };
    let payload = if *place == Place::Retry { less_one(&payload) } else { payload };
    let ready = queue_of(&payload).zip(stamped(&payload, now_s, keep.format));
    match ready {
        Some((queue, payload)) => queues::append(tx, &queue, &payload)?,
        None => bury(tx, now_s, &payload, keep)?,
    }
    Ok(true)
}

/// The document with its `retry_count` less one, as Sidekiq does: the run that
/// was asked for by hand is not counted twice.
fn less_one(payload: &[u8]) -> Vec<u8> {
    let Ok(mut fields) = Fields::parse(payload) else { return payload.to_vec() };
    let Some(count) = fields.number("retry_count") else { return payload.to_vec() };
    fields.set("retry_count", format!("{}", count as i64 - 1));
    fields.to_vec()
}

pub(super) fn kill(
    tx: &Tx<'_>,
    place: &Place,
    entry: &Entry,
    now_s: f64,
    keep: &Keep,
) -> Result<bool> {
    let Some(payload) = take(tx, place, entry)? else { return Ok(false) };
    queues::discard(tx, &payload)?;
    bury(tx, now_s, &payload, keep)?;
    Ok(true)
}

pub(super) fn clear(tx: &Tx<'_>, place: &Place, max: usize) -> Result<usize> {
    let limit = if max == 0 { -1 } else { max as i64 };
    let rows: Vec<Vec<u8>> = match place {
        Place::Queue(name) => {
            let Some(queue) = queues::known(tx, name)? else { return Ok(0) };
            let (first, last) = queues::span(queue);
            let mut delete = tx.conn.prepare_cached(
                "DELETE FROM waiting WHERE id IN (SELECT id FROM waiting WHERE id BETWEEN ?1 AND ?2
                 ORDER BY id LIMIT ?3) RETURNING payload",
            )?;
            let rows = delete.query_map([first, last, limit], |row| row.get(0))?;
            rows.collect::<Result<_>>()?
        }
        set => {
            let mut delete = tx.conn.prepare_cached(
                "DELETE FROM entries WHERE id IN (SELECT id FROM entries WHERE kind=?1
                 ORDER BY at, id LIMIT ?2) RETURNING payload",
            )?;
            let rows = delete.query_map(params![kind(set), limit], |row| row.get(0))?;
            rows.collect::<Result<_>>()?
        }
    };
    rows.iter().try_for_each(|payload| queues::discard(tx, payload))?;
    Ok(rows.len())
}
