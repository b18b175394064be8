//! Pushing, claiming and acknowledging jobs.

use std::collections::BTreeMap;
use std::sync::Arc;

use rusqlite::{OptionalExtension, Result};

use super::rows::{self, in_flight_row};
use super::transaction::SqliteTransaction;
use super::{batches, limits, lines, processes};
use crate::outcome::{Ack, Outcome};
use crate::store::limiter::{self, LimitTables};
use crate::store::line::{called, lines_to_look_at};
use crate::store::options::StoreOptions;
use crate::store::payload::{named_queue, priority_of};
use crate::store::types::{
    ClaimReply, ClaimRequest, ClaimedJob, JobLocation, NewJob, PushResult, CLAIM_MAX,
};

pub(super) fn push(
    tx: &SqliteTransaction<'_>,
    jobs: &[NewJob<'_>],
    now_s: f64,
) -> Result<Vec<PushResult>> {
    // The last queue and priority, and the next row: a bulk push has one queue.
    let mut last: Option<(&str, i16, i64)> = None;
    let mut results = Vec::with_capacity(jobs.len());
    let mut added: BTreeMap<&str, usize> = BTreeMap::new();
    for job in jobs {
        if let Some(lock) = job.lock {
            let until = now_s + lock.ttl.as_secs_f64();
            if let Some(holder) = limits::lock(tx, lock.key, lock.jid, until, now_s)? {
                results.push(PushResult::Locked(holder));
                continue;
            }
        }
        if let Some(bid) = job.bid {
            *added.entry(bid).or_default() += batches::list_job(tx, bid, job.payload)?;
        }
        match job.at {
            Some(at) => rows::add_to_set(tx, &JobLocation::Scheduled, at, job.payload)?,
            None => {
                let priority = priority_of(job.payload);
                let row = match last {
                    Some((name, same, row)) if name == job.queue && same == priority => row,
                    _ => rows::back(tx, rows::queue_id(tx, job.queue)?, priority)?,
                };
                rows::insert(tx, row, job.payload)?;
                last = Some((job.queue, priority, row + 1));
            }
        }
        results.push(PushResult::Stored);
    }
    added.iter().try_for_each(|(bid, count)| batches::count_jobs(tx, bid, *count))?;
    Ok(results)
}

pub(super) fn ack_and_claim(
    tx: &SqliteTransaction<'_>,
    owner: &str,
    acks: &[Ack],
    request: Option<&ClaimRequest<'_>>,
    options: &StoreOptions,
) -> Result<ClaimReply> {
    let mut reply = ClaimReply::default();
    match processes::known_id(tx.conn, owner)? {
        Some(id) => reply.fenced = ack_all(tx, (owner, id), acks)?,
        None => reply.fenced = acks.len(),
    }
    rows::trim_dead(tx, options)?;
    if let Some(request) = request {
        claim(tx, owner, request, &mut reply)?;
    }
    Ok(reply)
}

/// Returns how many in-flight entries were gone.
fn ack_all(tx: &SqliteTransaction<'_>, owner: (&str, i64), acks: &[Ack]) -> Result<usize> {
    let mut fenced = 0;
    let (plain, others) = Ack::in_order(acks);
    // Consecutive tickets go in one statement: mostly a whole batch ended.
    let mut tickets: Vec<u64> = plain.iter().map(|ack| ack.ticket).collect();
    tickets.sort_unstable();
    let mut delete = tx.conn.prepare_cached("DELETE FROM flights WHERE id BETWEEN ?1 AND ?2")?;
    for run in tickets.chunk_by(|one, next| one + 1 == *next) {
        let ends = [run[0], run[run.len() - 1]].map(|ticket| in_flight_row(owner.1, ticket));
        fenced += run.len() - delete.execute(ends)?;
    }
    for ack in others {
        fenced += usize::from(!ack_one(tx, owner, ack)?);
    }
    let (now_s, names) = lines_to_look_at(acks);
    for (name, always) in names {
        let look = if always { limiter::look_at } else { limiter::look_if_due };
        look(&mut &*tx, &name, now_s)?;
    }
    Ok(fenced)
}

/// `false` when the in-flight entry was gone.
fn ack_one(tx: &SqliteTransaction<'_>, owner: (&str, i64), ack: &Ack) -> Result<bool> {
    let claimed: Option<Vec<u8>> = tx
        .conn
        .prepare_cached("DELETE FROM flights WHERE id=?1 RETURNING payload")?
        .query_row([in_flight_row(owner.1, ack.ticket)], |row| row.get(0))
        .optional()?;
    let Some(claimed) = claimed else { return Ok(false) };
    store_outcome(tx, ack, &claimed)?;
    let Some(effects) = &ack.effects else { return Ok(true) };
    if let Some((key, jid)) = &effects.unlock {
        limits::unlock(tx, key, jid)?;
    }
    for key in &effects.release {
        for holder in [limiter::holder(owner.0, ack.ticket), called(&effects.jid)] {
            (&mut &*tx).release(key, &holder)?;
        }
    }
    if let Some(update) = &effects.batch {
        batches::update(tx, update)?;
    }
    Ok(true)
}

/// Stores the job where its outcome says; `claimed` is its document so far.
fn store_outcome(tx: &SqliteTransaction<'_>, ack: &Ack, claimed: &[u8]) -> Result<()> {
    match &ack.outcome {
        Outcome::Ack | Outcome::Discard => Ok(()),
        Outcome::Retry { at, payload } => rows::add_to_set(tx, &JobLocation::Retry, *at, payload),
        Outcome::Reschedule { at, payload } => {
            let payload = payload.as_deref().unwrap_or(claimed);
            rows::add_to_set(tx, &JobLocation::Scheduled, *at, payload)
        }
        Outcome::Wait(wait) if ack.queue.is_empty() => {
            lines::join(tx, wait, &named_queue(&wait.payload))
        }
        Outcome::Wait(wait) => lines::join(tx, wait, &ack.queue),
        Outcome::Dead { payload, at } => {
            let payload = payload.as_deref().unwrap_or(claimed);
            rows::add_to_set(tx, &JobLocation::Dead, *at, payload)
        }
        Outcome::Requeue { payload, queue } => {
            let payload = payload.as_deref().unwrap_or(claimed);
            match (&*ack.queue, queue) {
                ("", Some(queue)) => rows::prepend(tx, queue, payload),
                ("", None) => rows::prepend(tx, &named_queue(payload), payload),
                (queue, _) => rows::prepend(tx, queue, payload),
            }
        }
    }
}

fn claim(
    tx: &SqliteTransaction<'_>,
    owner: &str,
    request: &ClaimRequest<'_>,
    reply: &mut ClaimReply,
) -> Result<()> {
    let count = request.count.clamp(1, CLAIM_MAX);
    reply.drained = true;
    for name in request.queues {
        let queue: Option<(i64, bool)> = tx
            .conn
            .prepare_cached("SELECT id, paused FROM queues WHERE name=?1")?
            .query_row([&**name], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        let Some((queue, false)) = queue else { continue };
        let left = count - reply.jobs.len();
        if left > 0 {
            let first_ticket = request.first_ticket + reply.jobs.len() as u64;
            claim_from(tx, owner, (queue, name), left, first_ticket, &mut reply.jobs)?;
        }
        if reply.jobs.len() == count && reply.drained {
            reply.drained = !rows::holds_any(tx.conn, queue)?;
        }
    }
    Ok(())
}

/// Moves the first jobs of a queue into the owner's in-flight set.
fn claim_from(
    tx: &SqliteTransaction<'_>,
    owner: &str,
    (queue, name): (i64, &Arc<str>),
    count: usize,
    first_ticket: u64,
    jobs: &mut Vec<ClaimedJob>,
) -> Result<()> {
    let (first, last) = rows::queue_rows(queue);
    let mut select = tx.conn.prepare_cached(
        "SELECT id, payload FROM waiting WHERE id BETWEEN ?1 AND ?2 ORDER BY id LIMIT ?3",
    )?;
    let mut found = select.query([first, last, count as i64])?;
    let mut ends: Option<(i64, i64)> = None;
    let before = jobs.len();
    while let Some(row) = found.next()? {
        let id: i64 = row.get(0)?;
        ends = Some((ends.map_or(id, |(first, _)| first), id));
        let ticket = first_ticket + (jobs.len() - before) as u64;
        jobs.push(ClaimedJob { ticket, queue: Arc::clone(name), payload: row.get(1)? });
    }
    drop(found);
    let Some(ends) = ends else { return Ok(()) };
    tx.conn.prepare_cached("DELETE FROM waiting WHERE id BETWEEN ?1 AND ?2")?.execute(ends)?;
    let owner = processes::id_of(tx, owner)?;
    jobs[before..].iter().try_for_each(|job| {
        rows::insert_in_flight(tx, in_flight_row(owner, job.ticket), queue, &job.payload)
    })
}
