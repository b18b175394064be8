//! The way of a job: into its queue, into an owner's in-flight set, out of it.

use std::sync::Arc;

use rusqlite::{params, OptionalExtension, Result};

use super::entries::{self, Rules};
use super::{batches, limits, owners, Tx};
use crate::document::{Document, Fields};
use crate::store::{
    Ack, BatchEvent, BatchUpdate, ClaimReply, ClaimRequest, ClaimedJob, JobLocation, NewJob,
    Outcome, PushResult,
};

/// Rowids of one owner's in-flight set; half of those of a queue. Room for a
/// million owners, half a million queues, and 8 × 10¹² jobs in each.
const SPAN: i64 = 1 << 43;
/// Jobs claimed at once.
const CLAIM_MAX: usize = 1000;
/// The queue's number of a job that came from the schedule.
pub(super) const NOWHERE: i64 = 0;
/// Whether a queue holds a job.
const ANY: &str = "SELECT 1 FROM waiting WHERE id BETWEEN ?1 AND ?2 LIMIT 1";

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
    owner * SPAN + (ticket as i64 & (SPAN - 1))
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

/// Whether a queue holds a job.
pub(super) fn holds_any(conn: &rusqlite::Connection, queue: i64) -> Result<bool> {
    entries::exists(conn, ANY, span(queue))
}

/// Adds a job at the back of a queue.
pub(super) fn append(tx: &Tx<'_>, queue: &str, payload: &[u8]) -> Result<()> {
    let position = back(tx, id_of(tx, queue)?)?;
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

/// Adds a job at the front of a queue.
fn prepend(tx: &Tx<'_>, queue: &str, payload: &[u8]) -> Result<()> {
    let (first, last) = span(id_of(tx, queue)?);
    let min: Option<i64> = tx
        .conn
        .prepare_cached("SELECT min(id) FROM waiting WHERE id BETWEEN ?1 AND ?2")?
        .query_row([first, last], |row| row.get(0))?;
    insert(tx, min.map_or(first + SPAN, |min| min - 1), payload)
}

pub(super) fn push(tx: &Tx<'_>, jobs: &[NewJob<'_>], now_s: f64) -> Result<Vec<PushResult>> {
    // The last queue and its next position: a bulk push has one queue.
    let mut last: Option<(&str, i64)> = None;
    let mut answers = Vec::with_capacity(jobs.len());
    for job in jobs {
        if let Some(lock) = job.lock {
            let until = now_s + lock.ttl.as_secs_f64();
            if let Some(holder) = limits::lock(tx, lock.key, lock.jid, until, now_s)? {
                answers.push(PushResult::Locked(holder));
                continue;
            }
        }
        if let Some(bid) = job.bid {
            batches::add(tx, bid)?;
        }
        match job.at {
            Some(at) => entries::add(tx, &JobLocation::Scheduled, at, job.payload)?,
            None => {
                let position = match last {
                    Some((name, position)) if name == job.queue => position,
                    _ => back(tx, id_of(tx, job.queue)?)?,
                };
                insert(tx, position, job.payload)?;
                last = Some((job.queue, position + 1));
            }
        }
        answers.push(PushResult::Stored);
    }
    Ok(answers)
}

pub(super) fn ack_and_claim(
    tx: &Tx<'_>,
    owner: &str,
    settles: &[Ack],
    want: Option<&ClaimRequest<'_>>,
    rules: &Rules,
) -> Result<ClaimReply> {
    let mut turn = ClaimReply::default();
    match owners::known(tx.conn, owner)? {
        Some(id) => turn.fenced = settle_all(tx, (owner, id), settles)?,
        None => turn.fenced = settles.len(),
    }
    entries::trim_dead(tx, rules)?;
    if let Some(want) = want {
        claim(tx, owner, want, &mut turn)?;
    }
    Ok(turn)
}

/// Answers how many were gone.
fn settle_all(tx: &Tx<'_>, owner: (&str, i64), settles: &[Ack]) -> Result<usize> {
    let mut fenced = 0;
    let mut done: Vec<u64> = Vec::with_capacity(settles.len());
    let mut others: Vec<&Ack> = Vec::new();
    for settle in settles {
        if settle.outcome.is_removal() && settle.effects.is_none() {
            done.push(settle.ticket);
        } else {
            others.push(settle);
        }
    }
    // Neighbours go in one statement: mostly a whole batch ended.
    done.sort_unstable();
    let mut delete = tx.conn.prepare_cached("DELETE FROM flights WHERE id BETWEEN ?1 AND ?2")?;
    for run in done.chunk_by(|one, next| one + 1 == *next) {
        let (first, last) = (flight(owner.1, run[0]), flight(owner.1, run[run.len() - 1]));
        fenced += run.len() - delete.execute([first, last])?;
    }
    // Backwards: of several that go to the front the lowest ticket goes last.
    others.sort_by_key(|settle| std::cmp::Reverse(settle.ticket));
    for settle in others {
        fenced += usize::from(!settle_one(tx, owner, settle)?);
    }
    Ok(fenced)
}

/// `false`: the entry was gone.
fn settle_one(tx: &Tx<'_>, owner: (&str, i64), settle: &Ack) -> Result<bool> {
    let was: Option<Vec<u8>> = tx
        .conn
        .prepare_cached("DELETE FROM flights WHERE id=?1 RETURNING payload")?
        .query_row([flight(owner.1, settle.ticket)], |row| row.get(0))
        .optional()?;
    let Some(was) = was else { return Ok(false) };
    place(tx, settle, &was)?;
    let Some(effects) = &settle.effects else { return Ok(true) };
    if let Some((key, jid)) = &effects.unlock {
        limits::unlock(tx, key, jid)?;
    }
    for key in &effects.release {
        limits::release(tx, key, owner.0, settle.ticket)?;
    }
    if let Some(step) = &effects.batch {
        batches::step(tx, step)?;
    }
    Ok(true)
}

fn place(tx: &Tx<'_>, settle: &Ack, was: &[u8]) -> Result<()> {
    match &settle.outcome {
        Outcome::Ack | Outcome::Discard => Ok(()),
        Outcome::Retry { at, payload } => entries::add(tx, &JobLocation::Retry, *at, payload),
        Outcome::Reschedule { at } => entries::add(tx, &JobLocation::Scheduled, *at, was),
        Outcome::Dead { payload, at } => {
            entries::add(tx, &JobLocation::Dead, *at, payload.as_deref().unwrap_or(was))
        }
        Outcome::Requeue { payload, queue } => {
            let payload = payload.as_deref().unwrap_or(was);
            match (&*settle.queue, queue) {
                ("", Some(queue)) => prepend(tx, queue, payload),
                ("", None) => prepend(tx, &home(payload), payload),
                (queue, _) => prepend(tx, queue, payload),
            }
        }
    }
}

/// The queue that a document names.
fn home(payload: &[u8]) -> String {
    let named = Fields::parse(payload).ok().and_then(|fields| fields.text("queue"));
    named.filter(|name| !name.is_empty()).unwrap_or_else(|| "default".into())
}

fn claim(tx: &Tx<'_>, owner: &str, want: &ClaimRequest<'_>, turn: &mut ClaimReply) -> Result<()> {
    let count = want.count.clamp(1, CLAIM_MAX);
    turn.drained = true;
    for name in want.queues {
        let queue: Option<(i64, bool)> = tx
            .conn
            .prepare_cached("SELECT id, paused FROM queues WHERE name=?1")?
            .query_row([&**name], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        let Some((queue, false)) = queue else { continue };
        let left = count - turn.jobs.len();
        if left > 0 {
            let first_ticket = want.first_ticket + turn.jobs.len() as u64;
            take(tx, owner, (queue, name), left, first_ticket, &mut turn.jobs)?;
        }
        if turn.jobs.len() == count && turn.drained {
            turn.drained = !holds_any(tx.conn, queue)?;
        }
    }
    Ok(())
}

/// Moves the first jobs of a queue into the owner's in-flight set.
fn take(
    tx: &Tx<'_>,
    owner: &str,
    (queue, name): (i64, &Arc<str>),
    count: usize,
    first_ticket: u64,
    jobs: &mut Vec<ClaimedJob>,
) -> Result<()> {
    let (first, last) = span(queue);
    let mut select = tx.conn.prepare_cached(
        "SELECT id, payload FROM waiting WHERE id BETWEEN ?1 AND ?2 ORDER BY id LIMIT ?3",
    )?;
    let mut rows = select.query(params![first, last, count as i64])?;
    let mut ends: Option<(i64, i64)> = None;
    let before = jobs.len();
    while let Some(row) = rows.next()? {
        let id: i64 = row.get(0)?;
        ends = Some((ends.map_or(id, |(first, _)| first), id));
        let ticket = first_ticket + (jobs.len() - before) as u64;
        jobs.push(ClaimedJob { ticket, queue: Arc::clone(name), payload: row.get(1)? });
    }
    drop(rows);
    let Some((first, last)) = ends else { return Ok(()) };
    tx.conn
        .prepare_cached("DELETE FROM waiting WHERE id BETWEEN ?1 AND ?2")?
        .execute([first, last])?;
    let owner = owners::id_of(tx, owner)?;
    let mut insert = tx.conn.prepare_cached(FLY)?;
    for job in &jobs[before..] {
        insert.execute(params![flight(owner, job.ticket), queue, job.payload])?;
    }
    Ok(())
}

const FLY: &str = "INSERT INTO flights(id, queue, payload) VALUES(?1, ?2, ?3)";

/// Puts a job into an in-flight set.
pub(super) fn fly(tx: &Tx<'_>, flight: i64, queue: i64, payload: &[u8]) -> Result<()> {
    tx.conn.prepare_cached(FLY)?.execute(params![flight, queue, payload]).map(|_| ())
}

/// A job is thrown away: its lock is freed, its batch told.
pub(super) fn discard(tx: &Tx<'_>, payload: &[u8]) -> Result<()> {
    let Ok(doc) = Document::parse(payload.into()) else { return Ok(()) };
    if let Some(lock) = doc.extra().and_then(|extra| extra.lock.as_deref()) {
        limits::unlock(tx, lock, doc.jid())?;
    }
    let Some(bid) = doc.bid() else { return Ok(()) };
    let (bid, jid) = (bid.to_string(), doc.jid().to_string());
    batches::step(tx, &BatchUpdate { bid, jid, event: BatchEvent::Died })
}
