//! Lines of jobs behind limits: see [`crate::store::line`]. Callers have [`super::limits::serialize_limits`].

use tokio_postgres::Row;

use super::connection::{args, Call};
use super::errors::Result;
use super::limits;
use super::rows::know_queue;
use crate::limit::{Limit, LimitRule};
use crate::outcome::Wait;
use crate::store::line::*;
use crate::store::types::{Grant, LimitRequest};

/// A job in a line.
struct Waiting {
    jid: String,
    /// The number of its entry in the schedule, and its time.
    entry: i64,
    at: f64,
    queue: String,
}

/// A job, which is this entry of the schedule, joins the line of a limit that has denied it.
pub(super) fn join(call: &mut Call<'_>, wait: &Wait, entry: i64, queue: &str) -> Result<()> {
    let (name, (max, span_s)) = (wait.behind.line(), wait.behind.rule.size());
    call.rows(
        "INSERT INTO chaton.lines AS l (name, max, span, look_at) VALUES($1, $2, $3, 0)
         ON CONFLICT (name) DO UPDATE SET max=$2, span=$3, look_at=0 WHERE $4 AND (l.max<>$2 OR l.span<>$3)",
        args![name, i64::from(max), span_s, wait.is_new],
    )?;
    call.exec(
        "INSERT INTO chaton.line_jobs(name, jid, place, entry, at, queue) VALUES($1, $2, $3, $4, $5, $6)
         ON CONFLICT (name, jid) DO UPDATE SET place=$3, entry=$4, at=$5, queue=$6",
        args![name, wait.jid, wait.place, entry, wait.at, queue],
    )
}

/// A job leaves a line. Whether it was in it.
pub(super) fn leave(call: &mut Call<'_>, name: &str, jid: &str) -> Result<bool> {
    let left = call.any(
        "DELETE FROM chaton.line_jobs WHERE name=$1 AND jid=$2 RETURNING 1",
        args![name, jid],
    )?;
    if left {
        remove_if_empty(call, name)?;
    }
    Ok(left)
}

fn remove_if_empty(call: &mut Call<'_>, name: &str) -> Result<()> {
    call.exec(
        "DELETE FROM chaton.lines WHERE name=$1 AND NOT EXISTS(SELECT 1 FROM chaton.line_jobs WHERE name=$1)",
        args![name],
    )
}

/// How many jobs stand in the line before this place, counted up to `max`.
pub(super) fn ahead(call: &mut Call<'_>, name: &str, place: f64, max: u32) -> Result<usize> {
    let row = call.one(
        "SELECT count(*) FROM (SELECT 1 FROM chaton.line_jobs WHERE name=$1 AND place<$2 LIMIT $3) jobs",
        args![name, place, i64::from(max)],
    )?;
    Ok(row.map_or(0, |row| row.get::<_, i64>(0) as usize))
}

/// Looks at a line if its time has come.
pub(super) fn look_if_due(call: &mut Call<'_>, name: &str, now_s: f64) -> Result<()> {
    if call.any("SELECT 1 FROM chaton.lines WHERE name=$1 AND look_at<=$2", args![name, now_s])? {
        look_at(call, name, now_s)?;
    }
    Ok(())
}

/// The lines whose time has come, or cannot have been set by this clock.
pub(super) fn due(call: &mut Call<'_>, now_s: f64) -> Result<Vec<String>> {
    let due = call.rows(
        "SELECT name FROM chaton.lines WHERE look_at<=$1 OR look_at>$1+$2 ORDER BY look_at LIMIT $3",
        args![now_s, LOOK_S, LOOKS_MAX as i64],
    )?;
    Ok(due.iter().map(|row| row.get(0)).collect())
}

/// Looks at all of these lines that are still due.
pub(super) fn look_at_all(call: &mut Call<'_>, now_s: f64) -> Result<()> {
    limits::serialize_limits(call)?;
    for name in due(call, now_s)? {
        limits::set_back(call, &name, now_s)?;
        look_at(call, &name, now_s)?;
    }
    Ok(())
}

/// Calls the first jobs of a line, as far as there are slots, or gives them their times.
pub(super) fn look_at(call: &mut Call<'_>, name: &str, now_s: f64) -> Result<()> {
    let size = call.one("SELECT max, span FROM chaton.lines WHERE name=$1", args![name])?;
    let (Some(size), Some((kind, key))) = (size, name.split_once(':')) else { return Ok(()) };
    let max = u32::try_from(size.get::<_, i64>(0)).unwrap_or(u32::MAX);
    let behind = Limit { key: key.into(), rule: LimitRule::of(kind, max, size.get(1)) };
    let look_at = match behind.rule {
        LimitRule::Concurrent { max, .. } => call_jobs(call, name, (key, max), now_s)?,
        _ => promise(call, name, &behind, now_s)?,
    };
    call.rows("UPDATE chaton.lines SET look_at=$2 WHERE name=$1", args![name, look_at])?;
    remove_if_empty(call, name)
}

/// The first jobs of a line, each with whether its entry is still in the schedule, and whether its queue is paused.
fn first(call: &mut Call<'_>, name: &str, count: usize) -> Result<Vec<(Waiting, bool, bool)>> {
    let rows = call.rows(
        "SELECT l.jid, l.entry, l.at, l.queue,
         EXISTS(SELECT 1 FROM chaton.jobs j WHERE j.id=l.entry AND j.place=2 AND j.at=l.at),
         EXISTS(SELECT 1 FROM chaton.queues k WHERE k.name=l.queue AND k.paused)
         FROM chaton.line_jobs l WHERE l.name=$1 ORDER BY l.place, l.jid LIMIT $2",
        args![name, count as i64],
    )?;
    let waiting = |row: &Row| {
        let waiting =
            Waiting { jid: row.get(0), entry: row.get(1), at: row.get(2), queue: row.get(3) };
        (waiting, row.get(4), row.get(5))
    };
    Ok(rows.iter().map(waiting).collect())
}

fn call_jobs(call: &mut Call<'_>, name: &str, (key, max): (&str, u32), now_s: f64) -> Result<f64> {
    let (held, mut next) = limits::held(call, key, now_s)?;
    let mut free = (max as usize).saturating_sub(held);
    let (mut called_jobs, mut read) = (vec![], 0);
    while free > 0 && called_jobs.len() < CALL_MAX && read < READ_MAX {
        let waiting = first(call, name, free.min(CALL_MAX - called_jobs.len()))?;
        if waiting.is_empty() {
            break;
        }
        read += waiting.len();
        for (one, is_there, is_paused) in waiting {
            leave(call, name, &one.jid)?;
            // One that is being moved or removed just now is not called.
            let is_there = is_there
                && call.any(
                    "SELECT 1 FROM chaton.jobs WHERE id=$1 AND place=2 AND at=$2 FOR UPDATE SKIP LOCKED",
                    args![one.entry, one.at],
                )?;
            if !is_there {
                continue;
            }
            // One whose queue is paused waits there, and holds nothing up.
            if !is_paused {
                limits::hold(call, key, &called(&one.jid), now_s + CALLED_S)?;
                next = Some(next.unwrap_or(f64::MAX).min(now_s + CALLED_S));
                free -= 1;
            }
            called_jobs.push(one);
        }
    }
    for one in called_jobs.iter().rev() {
        know_queue(call, &one.queue)?;
        call.tell(&one.queue);
        call.rows(
            "UPDATE chaton.jobs SET place=0, queue=$2, at=NULL, id=-nextval('chaton.front') WHERE id=$1",
            args![one.entry, one.queue],
        )?;
    }
    Ok(next.filter(|_| free == 0).unwrap_or(now_s).min(now_s + LOOK_S))
}

fn promise(call: &mut Call<'_>, name: &str, behind: &Limit, now_s: f64) -> Result<f64> {
    let taken = limits::taken(call, behind, now_s)?;
    let first = first(call, name, READ_MAX)?;
    let waiting = first.iter().map(|(one, is_there, _)| Ok((one.at, *is_there)));
    let (promises, look_at) =
        promises::<super::errors::Failure>(waiting, behind.rule, &taken, now_s)?;
    for ((one, ..), promise) in first.iter().zip(promises) {
        match promise {
            Promise::Leave => {
                leave(call, name, &one.jid)?;
            }
            Promise::At(at) => {
                call.tell("");
                call.rows(
                    "WITH entry AS (UPDATE chaton.jobs SET at=$1 WHERE id=$2 AND place=2)
                     UPDATE chaton.line_jobs SET at=$1 WHERE name=$3 AND jid=$4",
                    args![at, one.entry, name, one.jid],
                )?;
            }
            Promise::Stays => {}
        }
    }
    Ok(look_at)
}

/// Asks limits for claimed jobs: see [`crate::store::Store::acquire`].
pub(super) fn acquire(
    call: &mut Call<'_>,
    owner: &str,
    requests: &[LimitRequest<'_>],
    now_s: f64,
) -> Result<Vec<Grant>> {
    if requests.iter().any(|request| !request.limits.is_empty()) {
        limits::serialize_limits(call)?;
    }
    let mut one = |request: &LimitRequest<'_>| {
        let holder = limits::holder(owner, request.ticket);
        let mut denied = None;
        // All are checked before one is used up: together or not at all.
        for (index, limit) in request.limits.iter().enumerate() {
            if let Some(at) = denial(call, limit, &holder, request, now_s)? {
                denied = latest(denied, index, at);
            }
        }
        if let Some((limit, at)) = denied {
            return Ok(Grant::Behind { limit, at });
        }
        for limit in request.limits {
            let waited = leave(call, &limit.line(), request.jid)?;
            if limit.rule.is_concurrent() {
                limits::release(call, std::slice::from_ref(&limit.key), &[called(request.jid)])?;
            }
            limits::use_up(call, limit, &holder, now_s)?;
            if waited && !limit.rule.is_concurrent() {
                look_if_due(call, &limit.line(), now_s)?;
            }
        }
        Ok(Grant::Now)
    };
    requests.iter().map(&mut one).collect()
}

/// `None` when granted, else when to ask again, if that is known.
fn denial(
    call: &mut Call<'_>,
    limit: &Limit,
    holder: &str,
    request: &LimitRequest<'_>,
    now_s: f64,
) -> Result<Option<Option<f64>>> {
    let ahead = ahead(call, &limit.line(), request.place, limit.rule.size().0)?;
    if let LimitRule::Concurrent { max, .. } = limit.rule {
        let (used, _) = limits::held(call, &limit.key, now_s)?;
        if used + ahead < max as usize {
            return Ok(None);
        }
        // A job that requests again keeps its slot, and a called one has it already.
        let holders = vec![holder.to_string(), called(request.jid)];
        let own = call.any(
            "SELECT 1 FROM chaton.slots WHERE key=$1 AND holder=ANY($2)",
            args![limit.key.as_str(), holders],
        )?;
        return Ok((!own).then_some(None));
    }
    let taken = limits::taken(call, limit, now_s)?;
    let at = token_at(limit.rule, &taken, ahead, now_s).unwrap_or(now_s + limit.rule.size().1);
    Ok((at > now_s).then_some(Some(at)))
}
