//! Jobs in queues, in flight and in sets: what moves them.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_postgres::Row;

use super::connection::{args, Call};
use super::errors::Result;
use super::floors::{waiting, Floors};
use super::rows::{know_queue, place, Rows, DEAD, QUEUE, SCHEDULED};
use super::{batches, limits, lines};
use crate::document::{stamped, Document};
use crate::outcome::{Ack, BatchEvent, BatchUpdate, Outcome, SideEffects};
use crate::store::limiter;
use crate::store::line::{called, lines_to_look_at};
use crate::store::options::StoreOptions;
use crate::store::payload::{named_queue, priority_of, JobResources};
use crate::store::types::*;

/// Jobs claimed at once: twice as many take twice as long, and others wait for that (measured with as many acknowledged,
/// 600,000 waiting, beside other builds: 32 ms, p99 64, for 500, and 17, 41 ms for 250, with 5 to 14 % fewer jobs a second).
const CLAIM_MAX: usize = 250;
/// Jobs at the front of a queue among which one is looked for whose claim was lost.
const FRONT_MAX: i64 = 10_000;

/// Whether a push needs no more than its insertion.
pub(super) fn is_plain(jobs: &[NewJob<'_>]) -> bool {
    jobs.iter().all(|job| job.lock.is_none() && job.bid.is_none())
}

pub(super) fn push(call: &mut Call<'_>, jobs: &[NewJob<'_>]) -> Result<Vec<PushResult>> {
    let mut rows = Rows::default();
    let mut results = Vec::with_capacity(jobs.len());
    let mut added: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for job in jobs {
        if let Some(lock) = job.lock {
            if let Some(holder) = limits::lock(call, &lock)? {
                results.push(PushResult::Locked(holder));
                continue;
            }
        }
        if let Some(bid) = job.bid {
            added.entry(bid).or_default().push(JobResources::of(job.payload).jid);
        }
        rows.add(if job.at.is_some() { SCHEDULED } else { QUEUE }, job.queue, job.at, job.payload);
        results.push(PushResult::Stored);
    }
    for (bid, jids) in added {
        batches::count_jobs(call, bid, &jids)?;
    }
    rows.insert(call)?;
    Ok(results)
}

/// Moves waiting jobs into the in-flight set, under tickets in their order; `$1` queues, `$2` floors, `$3` owner, `$4`
/// acknowledged tickets, `$5` count, `$6` first ticket. The lateral part is asked queue by queue, and no further than
/// the count: it locks no row that is not claimed. Rows that others are claiming are skipped. Tickets are looked up from
/// the lowest on, so that the dead entries of those before it are not stepped over. A job's ticket is its place among the sorted
/// ones, by queue, priority and number: a join would read the whole table where the planner takes it for empty (measured: 50 ms).
macro_rules! claim {
    ($gone:literal, $result:literal) => {
        concat!(
            "WITH ", $gone,
            "picked AS MATERIALIZED (SELECT j.tid, (q.number<<53)+(j.priority::bigint<<44)+j.id AS rank ",
            waiting!("$5 FOR UPDATE SKIP LOCKED"),
            " LIMIT $5),
    taken AS (UPDATE chaton.jobs SET place=1, owner=$3, ticket=$6 - 1 + width_bucket(
            (array_position($1, queue)::bigint<<53)+(priority::bigint<<44)+id,
            ARRAY(SELECT rank FROM picked ORDER BY rank))
        WHERE ctid=ANY(ARRAY(SELECT tid FROM picked)) RETURNING ticket, queue, payload,
            CASE priority WHEN 0 THEN id END AS id),
    known AS (INSERT INTO chaton.owners(identity) SELECT $3 WHERE EXISTS(SELECT 1 FROM picked)
        AND NOT EXISTS(SELECT 1 FROM chaton.owners WHERE identity=$3) ON CONFLICT DO NOTHING) ",
            $result
        )
    };
}
const ACK_AND_CLAIM: &str = claim!(
    "gone AS (DELETE FROM chaton.jobs WHERE place=1 AND owner=$3 AND ticket=ANY($4)
        AND ticket>=(SELECT min(t) FROM unnest($4) t) RETURNING 1),",
    "SELECT one.gone, t.ticket, t.queue, t.payload, t.id FROM (SELECT count(*) AS gone FROM gone) one
        LEFT JOIN taken t ON true ORDER BY t.ticket"
);
/// Without acknowledgements there is less to plan, which takes longer than to claim a few jobs, where that has to be done
/// each time.
const CLAIM: &str =
    claim!("", "SELECT 0::bigint, ticket, queue, payload, id FROM taken ORDER BY ticket");

/// Acknowledgements that only delete, and a claim: one statement.
pub(super) fn delete_and_claim(
    call: &mut Call<'_>,
    owner: &str,
    tickets: &[i64],
    request: Option<&ClaimRequest<'_>>,
    floors: &Mutex<Floors>,
) -> Result<ClaimReply> {
    let Some(request) = request.filter(|request| !request.queues.is_empty()) else {
        let gone = call.rows(
            "DELETE FROM chaton.jobs WHERE place=1 AND owner=$1 AND ticket=ANY($2)
             AND ticket>=(SELECT min(t) FROM unnest($2) t) RETURNING 1",
            args![owner, tickets],
        )?;
        return Ok(ClaimReply { fenced: tickets.len() - gone.len(), drained: true, jobs: vec![] });
    };
    let names: Vec<&str> = request.queues.iter().map(|name| &**name).collect();
    let from = floors.lock().of(&names);
    let count = request.count.clamp(1, CLAIM_MAX);
    let first = request.first_ticket as i64;
    let args = args![names, from, owner, tickets, count as i64, first];
    let rows = match tickets.is_empty() && !call.conn.is_direct {
        true => call.rows(CLAIM, args)?,
        false => call.prepared(ACK_AND_CLAIM, args)?,
    };
    let mut reply = ClaimReply::default();
    let mut floors = floors.lock();
    for row in rows {
        reply.fenced = tickets.len().saturating_sub(row.get::<_, i64>(0) as usize);
        let Some(ticket) = row.get::<_, Option<i64>>(1) else { continue };
        let name: &str = row.get(2);
        let name = request.queues.iter().find(|queue| &***queue == name);
        let queue = name.cloned().unwrap_or_else(|| row.get::<_, &str>(2).into());
        // Floors are those of the priority 0.
        row.get::<_, Option<i64>>(4).into_iter().for_each(|id| floors.note(&queue, id));
        reply.jobs.push(ClaimedJob { ticket: ticket as u64, queue, payload: row.get(3) });
    }
    reply.drained = reply.jobs.len() < count;
    Ok(reply)
}

/// The tickets of acknowledgements that only delete; `None` if any does more.
pub(super) fn plain_tickets(acks: &[Ack]) -> Option<Vec<i64>> {
    let (plain, others) = Ack::in_order(acks);
    others.is_empty().then(|| plain.iter().map(|ack| ack.ticket as i64).collect())
}

pub(super) fn ack_and_claim(
    call: &mut Call<'_>,
    owner: &str,
    acks: &[Ack],
    request: Option<&ClaimRequest<'_>>,
    options: &StoreOptions,
    floors: &Mutex<Floors>,
) -> Result<ClaimReply> {
    let (plain, others) = Ack::in_order(acks);
    let tickets: Vec<i64> = plain.iter().map(|ack| ack.ticket as i64).collect();
    limits::serialize(call, acks)?;
    let (mut gone, mut died_at) = (0, None::<f64>);
    for ack in others {
        if ack_one(call, owner, ack)? {
            if let Outcome::Dead { at, .. } = ack.outcome {
                died_at = Some(died_at.map_or(at, |last| last.max(at)));
            }
        } else {
            gone += 1;
        }
    }
    let (now_s, names) = lines_to_look_at(acks);
    for (name, always) in names {
        let look = if always { limiter::look_at } else { limiter::look_if_due };
        look(call, &name, now_s)?;
    }
    if let Some(at) = died_at {
        trim_dead(call, at, options)?;
    }
    let mut reply = delete_and_claim(call, owner, &tickets, request, floors)?;
    reply.fenced += gone;
    Ok(reply)
}

/// `false` when the in-flight entry was gone.
fn ack_one(call: &mut Call<'_>, owner: &str, ack: &Ack) -> Result<bool> {
    let is_there = if ack.outcome == Outcome::Ack {
        call.any(
            "DELETE FROM chaton.jobs WHERE place=1 AND owner=$1 AND ticket=$2 RETURNING 1",
            args![owner, ack.ticket as i64],
        )?
    } else {
        store_outcome(call, owner, ack)?
    };
    if !is_there {
        return ack_ended(call, owner, ack);
    }
    let Some(effects) = &ack.effects else { return Ok(true) };
    apply(call, owner, ack.ticket, effects)?;
    Ok(true)
}

/// A job that a transaction of the application has done and ended, though its process did not learn of it, or died:
/// this, and nothing else, is its end.
fn ack_ended(call: &mut Call<'_>, owner: &str, ack: &Ack) -> Result<bool> {
    let ended = call.one(
        "DELETE FROM chaton.jobs WHERE place=1 AND owner=$1 AND ticket=$2 AND ended RETURNING payload",
        args![owner, ack.ticket as i64],
    )?;
    let Some(ended) = ended else { return Ok(false) };
    let Ok(doc) = Document::parse(ended.get::<_, &[u8]>(0).into()) else { return Ok(true) };
    // The time is that of rates, of which an end gives nothing back.
    if let Some(effects) = SideEffects::of(&doc, Some(BatchEvent::Done), Some(0.0)) {
        if effects.batch.is_some() {
            limits::serialize_batches(call)?;
        }
        apply(call, owner, ack.ticket, &effects)?;
    }
    Ok(true)
}

fn apply(call: &mut Call<'_>, owner: &str, ticket: u64, effects: &SideEffects) -> Result<()> {
    if let Some((key, jid)) = &effects.unlock {
        limits::unlock(call, &[key.as_str()], &[jid.as_str()])?;
    }
    if !effects.release.is_empty() {
        let holders = [limiter::holder(owner, ticket), called(&effects.jid)];
        limits::release(call, &effects.release, &holders)?;
    }
    if let Some(update) = &effects.batch {
        batches::update(call, update)?;
    }
    Ok(())
}

/// Stores the job where its outcome says; `false` when the in-flight entry was gone.
fn store_outcome(call: &mut Call<'_>, owner: &str, ack: &Ack) -> Result<bool> {
    let ticket = ack.ticket as i64;
    let mut queue = Some(&*ack.queue).filter(|queue| !queue.is_empty()).map(String::from);
    let (place, at, payload): (i16, Option<f64>, Option<&[u8]>) = match &ack.outcome {
        Outcome::Ack | Outcome::Discard => {
            return call.any(
                "DELETE FROM chaton.jobs WHERE place=1 AND owner=$1 AND ticket=$2 AND NOT ended RETURNING 1",
                args![owner, ticket],
            )
        }
        Outcome::Retry { at, payload } => (3, Some(*at), Some(payload)),
        Outcome::Reschedule { at, payload } => (SCHEDULED, Some(*at), payload.as_deref()),
        Outcome::Wait(wait) => (SCHEDULED, Some(wait.at), Some(&wait.payload)),
        Outcome::Dead { payload, at } => (DEAD, Some(*at), payload.as_deref()),
        Outcome::Requeue { payload, .. } => (QUEUE, None, payload.as_deref()),
    };
    if let Outcome::Requeue { queue: Some(named), .. } = &ack.outcome {
        queue = queue.or_else(|| Some(named.to_string()));
    }
    if queue.is_none() {
        let claimed = call.one(
            "SELECT payload FROM chaton.jobs WHERE place=1 AND owner=$1 AND ticket=$2",
            args![owner, ticket],
        )?;
        let Some(claimed) = claimed else { return Ok(false) };
        queue = Some(named_queue(payload.unwrap_or_else(|| claimed.get(0))));
    }
    let queue = queue.unwrap_or_default();
    // A job at the front of its queue gets a number before all others.
    let moved = call.one(
        "UPDATE chaton.jobs SET place=$3, queue=$4, at=$5, payload=coalesce($6, payload), owner=NULL, ticket=NULL,
         id=CASE WHEN $3=0::int2 THEN -nextval('chaton.front') ELSE nextval('chaton.back') END
         WHERE place=1 AND owner=$1 AND ticket=$2 AND NOT ended RETURNING id",
        args![owner, ticket, place, queue, at, payload],
    )?;
    let Some(moved) = moved else { return Ok(false) };
    match &ack.outcome {
        Outcome::Requeue { .. } => know_queue(call, &queue)?,
        Outcome::Wait(wait) => lines::join(call, wait, moved.get(0), &queue)?,
        _ => {}
    }
    call.tell(if place == QUEUE { &queue } else { "" });
    Ok(true)
}

/// Trims the dead set, once for all that a call added; the last of them died at this time.
pub(super) fn trim_dead(call: &mut Call<'_>, at: f64, options: &StoreOptions) -> Result<()> {
    let oldest = at - options.dead_age.as_secs_f64();
    let max = i64::try_from(options.dead_max).unwrap_or(i64::MAX);
    call.exec(
        "DELETE FROM chaton.jobs WHERE id=ANY(ARRAY(SELECT id FROM chaton.jobs WHERE place=4 AND at<$1)
         || ARRAY(SELECT id FROM chaton.jobs WHERE place=4 ORDER BY at DESC, id DESC OFFSET $2))",
        args![oldest, max],
    )
}

/// An entry from the columns id, score and document.
pub(super) fn read_entry(row: &Row) -> JobEntry {
    let score: Option<f64> = row.get(1);
    JobEntry { row: row.get(0), score: score.unwrap_or(0.0), payload: row.get(2) }
}

/// Takes due entries, earliest first, and moves them to their queues, or with `claim` (owner and first ticket) into an
/// in-flight set; those that are no job with a queue go to the dead set.
pub(super) fn take_due(
    call: &mut Call<'_>,
    now_s: f64,
    max: usize,
    claim: Option<(&str, u64)>,
    options: &StoreOptions,
) -> Result<(Vec<ClaimedJob>, DueSummary)> {
    let found = call.rows(
        "WITH retries AS MATERIALIZED (SELECT id, at, payload FROM chaton.jobs WHERE place=3 AND at<=$1
             ORDER BY at, id LIMIT $2 FOR UPDATE SKIP LOCKED),
         scheduled AS MATERIALIZED (SELECT id, at, payload FROM chaton.jobs WHERE place=2 AND at<=$1
             ORDER BY at, id LIMIT $2 FOR UPDATE SKIP LOCKED)
         SELECT * FROM (SELECT * FROM retries UNION ALL SELECT * FROM scheduled) due ORDER BY at, id LIMIT $2",
        args![now_s, max as i64],
    )?;
    let entries: Vec<JobEntry> = found.iter().map(read_entry).collect();
    let mut due = DueSummary { moved: entries.len(), ..DueSummary::default() };
    let ids: Vec<i64> = entries.iter().map(|entry| entry.row).collect();
    let mut jobs: Vec<ClaimedJob> = Vec::new();
    let mut claimed: Vec<i64> = Vec::new();
    let mut moved: Vec<(i16, String, Option<f64>, Vec<u8>)> = Vec::new();
    for entry in entries {
        due.lag_max_s = due.lag_max_s.max(now_s - entry.score);
        match (stamped(&entry.payload, now_s, options.format, false), claim) {
            (None, _) => moved.push((DEAD, String::new(), Some(now_s), entry.payload)),
            (Some((queue, payload)), None) => moved.push((QUEUE, queue, None, payload)),
            (Some(_), Some((_, first))) => {
                let ticket = first + jobs.len() as u64;
                jobs.push(ClaimedJob { ticket, queue: "".into(), payload: entry.payload });
                claimed.push(entry.row);
            }
        }
    }
    if let Some((owner, first)) = claim.filter(|_| !claimed.is_empty()) {
        call.rows(
            "WITH known AS (INSERT INTO chaton.owners(identity) VALUES($1) ON CONFLICT DO NOTHING)
             UPDATE chaton.jobs SET place=1, owner=$1, ticket=$3 - 1 + array_position($2, id), queue='', at=NULL
             WHERE id=ANY($2)",
            args![owner, claimed, first as i64],
        )?;
    }
    let gone: Vec<i64> = ids.into_iter().filter(|id| !claimed.contains(id)).collect();
    if !gone.is_empty() {
        call.rows("DELETE FROM chaton.jobs WHERE id=ANY($1)", args![gone])?;
        let mut rows = Rows::default();
        for (place, queue, at, payload) in &moved {
            rows.add(*place, queue, *at, payload);
        }
        rows.insert(call)?;
        if moved.iter().any(|(place, ..)| *place == DEAD) {
            trim_dead(call, now_s, options)?;
        }
    }
    due.next_at = next_at(call)?;
    Ok((jobs, due))
}

/// When the next job of the schedule or the retry set is due: the first of each, by its index whatever the statistics say,
/// which `min(at)` is not.
const NEXT_AT: &str =
    "least((SELECT at FROM chaton.jobs WHERE place>=2 AND place=2 ORDER BY at LIMIT 1),
    (SELECT at FROM chaton.jobs WHERE place>=2 AND place=3 ORDER BY at LIMIT 1))";

fn next_at(call: &mut Call<'_>) -> Result<Option<f64>> {
    Ok(call.value(&format!("SELECT {NEXT_AT}"), &[])?.flatten())
}

/// What is there for a watch: a statement with queues and their floors as its arguments. It needs no [`super::connection::PLANS`]: each of its
/// parts asks for the first row of an index.
pub(super) fn available(queues: &[&str]) -> String {
    if queues.is_empty() {
        return format!("SELECT false, {NEXT_AT}");
    }
    format!(concat!("SELECT EXISTS(SELECT 1 ", waiting!("1"), "), {}"), NEXT_AT)
}

/// Takes one entry out of its queue or set; `false` when it is gone.
fn take(call: &mut Call<'_>, from: &JobLocation, entry: &JobEntry) -> Result<bool> {
    call.any(
        "DELETE FROM chaton.jobs WHERE id=$1 AND place=$2 AND payload=$3 RETURNING 1",
        args![entry.row, place(from), entry.payload],
    )
}

pub(super) fn remove(call: &mut Call<'_>, from: &JobLocation, entry: &JobEntry) -> Result<bool> {
    let taken = take(call, from, entry)?;
    if taken {
        release(call, &[&entry.payload])?;
    }
    Ok(taken)
}

/// Moves an entry with its new document to the back of a queue.
pub(super) fn enqueue_entry(
    call: &mut Call<'_>,
    from: &JobLocation,
    entry: &JobEntry,
    (queue, payload): (&str, &[u8]),
) -> Result<bool> {
    let taken = take(call, from, entry)?;
    if taken {
        let mut rows = Rows::default();
        rows.add(QUEUE, queue, None, payload);
        rows.insert(call)?;
    }
    Ok(taken)
}

pub(super) fn kill(
    call: &mut Call<'_>,
    from: &JobLocation,
    entry: &JobEntry,
    now_s: f64,
    options: &StoreOptions,
) -> Result<bool> {
    let taken = take(call, from, entry)?;
    if taken {
        add_entry(call, &JobLocation::Dead, now_s, &entry.payload, options)?;
        release(call, &[&entry.payload])?;
    }
    Ok(taken)
}

pub(super) fn add_entry(
    call: &mut Call<'_>,
    to: &JobLocation,
    at: f64,
    payload: &[u8],
    options: &StoreOptions,
) -> Result<()> {
    let queue = named_queue(payload);
    let mut rows = Rows::default();
    rows.add(place(to), &queue, Some(at), payload);
    rows.insert(call)?;
    if *to == JobLocation::Dead {
        trim_dead(call, at, options)
    } else {
        Ok(())
    }
}

/// Gives an entry of a set another time.
pub(super) fn reschedule(
    call: &mut Call<'_>,
    from: &JobLocation,
    entry: &JobEntry,
    at: f64,
) -> Result<bool> {
    call.tell("");
    call.any(
        "UPDATE chaton.jobs SET at=$1 WHERE id=$2 AND place=$3 AND payload=$4 RETURNING 1",
        args![at, entry.row, place(from), entry.payload],
    )
}

/// Removes up to `max` entries.
pub(super) fn clear(call: &mut Call<'_>, from: &JobLocation, max: usize) -> Result<usize> {
    let max = i64::try_from(max).unwrap_or(i64::MAX);
    let removed = match from {
        JobLocation::Queue(name) => call.rows(
            "DELETE FROM chaton.jobs WHERE id=ANY(ARRAY(SELECT id FROM chaton.jobs WHERE place=0 AND queue=$1
             ORDER BY priority, id LIMIT $2 FOR UPDATE SKIP LOCKED)) RETURNING payload",
            args![name.as_str(), max],
        )?,
        set => call.rows(
            "DELETE FROM chaton.jobs WHERE id=ANY(ARRAY(SELECT id FROM chaton.jobs WHERE place>=2 AND place=$1
             ORDER BY at, id LIMIT $2 FOR UPDATE SKIP LOCKED)) RETURNING payload",
            args![place(set), max],
        )?,
    };
    let payloads: Vec<&[u8]> = removed.iter().map(|row| row.get(0)).collect();
    release(call, &payloads)?;
    Ok(removed.len())
}

/// Releases the locks of removed jobs and counts them as dead in their batches.
fn release(call: &mut Call<'_>, payloads: &[&[u8]]) -> Result<()> {
    let jobs: Vec<JobResources> =
        payloads.iter().map(|payload| JobResources::of(payload)).collect();
    let (keys, jids): (Vec<&str>, Vec<&str>) =
        jobs.iter().filter_map(|job| Some((job.lock.as_deref()?, &*job.jid))).unzip();
    if !keys.is_empty() {
        limits::unlock(call, &keys, &jids)?;
    }
    if jobs.iter().any(|job| job.bid.is_some()) {
        limits::serialize_batches(call)?;
    }
    for job in jobs {
        let Some(bid) = job.bid else { continue };
        batches::update(call, &BatchUpdate { bid, jid: job.jid, event: BatchEvent::Died })?;
    }
    Ok(())
}

/// The jobs that an owner has in flight.
pub(super) fn in_flight(call: &mut Call<'_>, owner: &str) -> Result<Vec<ClaimedJob>> {
    let rows = call.rows(
        "SELECT ticket, queue, payload FROM chaton.jobs WHERE place=1 AND owner=$1 ORDER BY ticket",
        args![owner],
    )?;
    let job = |row: &Row| ClaimedJob {
        ticket: row.get::<_, i64>(0) as u64,
        queue: Arc::from(row.get::<_, &str>(1)),
        payload: row.get(2),
    };
    Ok(rows.iter().map(job).collect())
}

/// Puts jobs into an in-flight set that has lost them: out of the front of their queue, where they are if the claim was
/// lost, or anew if their push `may_be_lost`, too. Those in the schedule, the retry set or another owner's hands stay
/// there. Returns how many.
///
/// A crash loses no push, as its commit waits for the disk: a job that is nowhere was claimed and ended by another owner
/// since.
pub(super) fn restore(
    call: &mut Call<'_>,
    owner: &str,
    jobs: &[ClaimedJob],
    may_be_lost: bool,
) -> Result<usize> {
    let tickets: Vec<i64> = jobs.iter().map(|job| job.ticket as i64).collect();
    let queues: Vec<&str> = jobs.iter().map(|job| &*job.queue).collect();
    let payloads: Vec<&[u8]> = jobs.iter().map(|job| &*job.payload).collect();
    let priorities: Vec<i16> = payloads.iter().map(|payload| priority_of(payload)).collect();
    let count: Option<i64> = call.value(
        "WITH lost AS MATERIALIZED (SELECT * FROM unnest($2, $3, $4, $7) AS u(ticket, queue, payload, priority)
             WHERE NOT EXISTS (SELECT 1 FROM chaton.jobs j WHERE j.place=1 AND j.owner=$1 AND j.ticket=u.ticket)),
         elsewhere AS MATERIALIZED (SELECT payload FROM chaton.jobs WHERE place IN (1, 2, 3) AND payload=ANY($4)),
         front AS MATERIALIZED (SELECT w.id, w.payload FROM (SELECT DISTINCT queue AS name FROM lost) q
             CROSS JOIN LATERAL (SELECT id, payload FROM chaton.jobs WHERE place=0 AND queue=q.name
             ORDER BY priority, id LIMIT $5) w),
         known AS (INSERT INTO chaton.owners(identity) VALUES($1) ON CONFLICT DO NOTHING),
         taken AS (UPDATE chaton.jobs j SET place=1, owner=$1, ticket=l.ticket FROM front f
             JOIN lost l ON l.payload=f.payload WHERE j.id=f.id AND j.place=0 RETURNING 1),
         added AS (INSERT INTO chaton.jobs(place, owner, ticket, queue, payload, priority)
             SELECT 1, $1, ticket, queue, payload, priority FROM lost l WHERE $6
             AND payload NOT IN (SELECT payload FROM elsewhere) AND payload NOT IN (SELECT payload FROM front) RETURNING 1)
         SELECT (SELECT count(*) FROM taken) + (SELECT count(*) FROM added)",
        args![owner, tickets, queues, payloads, FRONT_MAX, may_be_lost, priorities],
    )?;
    Ok(count.unwrap_or(0) as usize)
}
