//! The way of a job: into its queue, into an owner's in-flight set, out of it.

use std::sync::Arc;

use rusqlite::{params, OptionalExtension, Result};

use super::{batches, limits, Tx};
use crate::store::{
    BatchEvent, Claimed, NewJob, Outcome, Place, Pushed, Settle, Turn, Want,
};

/// Rowids of one queue, or of one owner's in-flight set.
const SPAN: i64 = 1 << 43;

/// First and last rowid of a queue. Positions grow from the middle both ways.
pub(super) fn span(queue: i64) -> (i64, i64) {
    (queue * 2 * SPAN, (queue + 1) * 2 * SPAN - 1)
}

/// First and last rowid of an owner's in-flight set.
pub(super) fn flight_span(owner: i64) -> (i64, i64) {
    (owner * SPAN, (owner + 1) * SPAN - 1)
}

/// The rowid of a job in flight.
pub(super) fn flight(owner: i64, ticket: u64) -> i64 {
    owner * SPAN + ticket as i64
}

/// The ticket of a rowid.
pub(super) fn ticket_of(flight: i64) -> u64 {
    (flight % SPAN) as u64
}

/// Number of a queue, made on first use.
pub(super) fn id_of(tx: &Tx<'_>, name: &str) -> Result<i64> {
    if let Some(id) = known(tx, name)? {
        return Ok(id);
    }
    tx.conn.prepare_cached("INSERT INTO queues(name) VALUES(?1)")?.execute([name])?;
    Ok(tx.conn.last_insert_rowid())
}

/// Number of a queue that was ever used.
pub(super) fn known(tx: &Tx<'_>, name: &str) -> Result<Option<i64>> {
    tx.conn
        .prepare_cached("SELECT id FROM queues WHERE name=?1")?
        .query_row([name], |row| row.get(0))
        .optional()
}

/// Adds a job at the back of a queue.
pub(super) fn append(tx: &Tx<'_>, queue: &str, payload: &[u8]) -> Result<()> {
    let id = id_of(tx, queue)?;
    let position = back(tx, id)?;
    insert(tx, position, payload)
}

fn insert(tx: &Tx<'_>, position: i64, payload: &[u8]) -> Result<()> {
    tx.wake();
    tx.conn
        .prepare_cached("INSERT INTO waiting(id, payload) VALUES(?1, ?2)")?
        .execute(params![position, payload])
        .map(|_| ())
}

/// The next position at the back.
fn back(tx: &Tx<'_>, queue: i64) -> Result<i64> {
    let (first, last) = span(queue);
    let max: Option<i64> = tx
        .conn
        .prepare_cached("SELECT max(id) FROM waiting WHERE id BETWEEN ?1 AND ?2")?
        .query_row([first, last], |row| row.get(0))?;
    Ok(max.map_or(first + SPAN, |max| max + 1))
}

/// The next position at the front.
fn front(tx: &Tx<'_>, queue: i64) -> Result<i64> {
    let (first, last) = span(queue);
    let min: Option<i64> = tx
        .conn
        .prepare_cached("SELECT min(id) FROM waiting WHERE id BETWEEN ?1 AND ?2")?
        .query_row([first, last], |row| row.get(0))?;
    Ok(min.map_or(first + SPAN, |min| min - 1))
}

/// Adds a job at the front of a queue.
pub(super) fn prepend(tx: &Tx<'_>, queue: &str, payload: &[u8]) -> Result<()> {
    let id = id_of(tx, queue)?;
    let position = front(tx, id)?;
    insert(tx, position, payload)
}

pub(super) fn push(tx: &Tx<'_>, jobs: &[NewJob<'_>], now_s: f64) -> Result<Vec<Pushed>> {
    // The last queue and its next position: a bulk push has one queue.
    let mut last: Option<(&str, i64)> = None;
    let mut answers = Vec::with_capacity(jobs.len());
    for job in jobs {
        if let Some(lock) = job.lock {
            let until = now_s + lock.ttl.as_secs_f64();
            if let Some(holder) = limits::lock(tx, lock.key, lock.jid, until, now_s)? {
                answers.push(Pushed::Locked(holder));
                continue;
            }
        }
        if let Some(bid) = job.bid {
            batches::add(tx, bid)?;
        }
        match job.at {
            Some(at) => super::entries::add(tx, &Place::Scheduled, at, job.payload)?,
            None => {
                let position = match last {
                    Some((name, position)) if name == job.queue => position,
                    _ => {
                        let id = id_of(tx, job.queue)?;
                        back(tx, id)?
                    }
                };
                insert(tx, position, job.payload)?;
                last = Some((job.queue, position + 1));
            }
        }
        answers.push(Pushed::Stored);
    }
    Ok(answers)
}

pub(super) fn turn(
    tx: &Tx<'_>,
    owner: &str,
    settles: &[Settle],
    want: Option<&Want<'_>>,
    keep: &super::entries::Keep,
) -> Result<Turn> {
    let owner = super::owners::id_of(tx, owner)?;
    let mut turn = Turn::default();
    // Backwards: of several that go to the front the lowest ticket goes last.
    let mut order: Vec<&Settle> = settles.iter().collect();
    if settles.iter().any(|settle| matches!(settle.outcome, Outcome::Back { .. })) {
        order.sort_by_key(|settle| std::cmp::Reverse(settle.ticket));
    }
    for one in order {
        if !settle(tx, owner, one, keep)? {
            turn.fenced += 1;
        }
    }
    if let Some(want) = want {
        claim(tx, owner, want, &mut turn)?;
    }
    Ok(turn)
}

/// `false`: the entry was gone.
fn settle(tx: &Tx<'_>, owner: i64, settle: &Settle, keep: &super::entries::Keep) -> Result<bool> {
    let id = flight(owner, settle.ticket);
    if settle.outcome == Outcome::Done {
        let gone = tx.conn.prepare_cached("DELETE FROM flights WHERE id=?1")?.execute([id])? == 0;
        if gone {
            return Ok(false);
        }
    } else {
        let row: Option<Vec<u8>> = tx
            .conn
            .prepare_cached("DELETE FROM flights WHERE id=?1 RETURNING payload")?
            .query_row([id], |row| row.get(0))
            .optional()?;
        let Some(was) = row else { return Ok(false) };
        place(tx, settle, &was, keep)?;
    }
    let Some(effects) = &settle.effects else { return Ok(true) };
    if let Some((key, jid)) = &effects.unlock {
        limits::unlock(tx, key, jid)?;
    }
    for key in &effects.release {
        limits::release(tx, key, id)?;
    }
    if let Some(step) = &effects.batch {
        batches::step(tx, step)?;
    }
    Ok(true)
}

fn place(tx: &Tx<'_>, settle: &Settle, was: &[u8], keep: &super::entries::Keep) -> Result<()> {
    use super::entries::add;
    match &settle.outcome {
        Outcome::Done => Ok(()),
        Outcome::Retry { at, payload } => add(tx, &Place::Retry, *at, payload),
        Outcome::Later { at, payload } => {
            add(tx, &Place::Scheduled, *at, payload.as_deref().unwrap_or(was))
        }
        Outcome::Dead { payload, at } => {
            add(tx, &Place::Dead, *at, payload.as_deref().unwrap_or(was))?;
            super::entries::trim_dead(tx, *at, keep)
        }
        Outcome::Back { payload, queue } => {
            let queue = queue.as_ref().unwrap_or(&settle.queue);
            prepend(tx, queue, payload.as_deref().unwrap_or(was))
        }
    }
}

fn claim(tx: &Tx<'_>, owner: i64, want: &Want<'_>, turn: &mut Turn) -> Result<()> {
    let mut ticket = want.first_ticket;
    let mut emptied = 0;
    for name in want.queues {
        let left = want.count - turn.jobs.len();
        if left == 0 {
            break;
        }
        let queue: Option<(i64, bool)> = tx
            .conn
            .prepare_cached("SELECT id, paused FROM queues WHERE name=?1")?
            .query_row([&**name], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        let Some((queue, false)) = queue else {
            emptied += 1;
            continue;
        };
        let taken = take(tx, queue, left)?;
        if taken.len() < left {
            emptied += 1;
        }
        for payload in taken {
            tx.conn
                .prepare_cached("INSERT INTO flights(id, queue, payload) VALUES(?1, ?2, ?3)")?
                .execute(params![flight(owner, ticket), queue, payload])?;
            turn.jobs.push(Claimed { ticket, queue: Arc::clone(name), payload });
            ticket += 1;
        }
    }
    turn.drained = emptied == want.queues.len();
    Ok(())
}

/// The first jobs of a queue, taken out of it.
fn take(tx: &Tx<'_>, queue: i64, count: usize) -> Result<Vec<Vec<u8>>> {
    let (first, last) = span(queue);
    let mut select = tx.conn.prepare_cached(
        "SELECT id, payload FROM waiting WHERE id BETWEEN ?1 AND ?2 ORDER BY id LIMIT ?3",
    )?;
    let rows: Vec<(i64, Vec<u8>)> = select
        .query_map(params![first, last, count as i64], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<_>>()?;
    if let (Some(from), Some(to)) = (rows.first(), rows.last()) {
        tx.conn
            .prepare_cached("DELETE FROM waiting WHERE id BETWEEN ?1 AND ?2")?
            .execute([from.0, to.0])?;
    }
    Ok(rows.into_iter().map(|(_, payload)| payload).collect())
}

/// A job is thrown away: its lock is freed, its batch told.
pub(super) fn discard(tx: &Tx<'_>, payload: &[u8]) -> Result<()> {
    let Ok(doc) = crate::document::Document::parse(payload.into()) else { return Ok(()) };
    if let Some(lock) = doc.extra().and_then(|extra| extra.lock.as_deref()) {
        limits::unlock(tx, lock, doc.jid())?;
    }
    if let Some(bid) = doc.bid() {
        let step = crate::store::BatchStep {
            bid: bid.to_string(),
            jid: doc.jid().to_string(),
            what: BatchEvent::Died,
        };
        batches::step(tx, &step)?;
    }
    Ok(())
}
