//! Pushing jobs.

use std::time::Duration;

use super::scripts::Script;
use super::store::{ms, RedisStore};
use super::{list_of, LISTS};
use crate::store::payload::jid_of;
use crate::store::traits::Result;
use crate::store::types::{NewJob, PushResult};
use chaton_redis::{Pipeline, RespValue};

/// Bytes of a job's command in addition to its document, about.
const JOB_BYTES: usize = 96;
/// Jobs in a queue with which the next push probably finds some: one that finds none needs two round trips.
const QUEUE_RESERVE: u64 = 32;

pub(super) fn push(store: &mut RedisStore, jobs: &[NewJob<'_>]) -> Result<Vec<PushResult>> {
    if jobs.is_empty() {
        return Ok(Vec::new());
    }
    let pushed = write_jobs(store, jobs)?;
    store.conn.confirm()?;
    Ok(pushed)
}

fn write_jobs(store: &mut RedisStore, jobs: &[NewJob<'_>]) -> Result<Vec<PushResult>> {
    if jobs.iter().any(|job| job.lock.is_some() || job.bid.is_some()) {
        let answers = push_script(store, "", Duration::ZERO, jobs)?.items();
        let pushed = |holder: RespValue| match holder.text() {
            holder if holder.is_empty() => PushResult::Stored,
            holder => PushResult::Locked(holder),
        };
        return Ok(answers.into_iter().map(pushed).collect());
    }
    let jobs: Vec<Targeted<'_>> =
        jobs.iter().map(|job| Targeted { job, list: list_of(job.payload) }).collect();
    if jobs.chunk_by(same_target).nth(1).is_none() {
        push_one_group(store, &jobs)?;
    } else {
        let mut pipeline = Pipeline::new();
        for group in jobs.chunk_by(same_target) {
            add_name(&mut pipeline, group);
            add_jobs(&mut pipeline, group);
        }
        store.conn.atomic(&pipeline)?;
    }
    Ok(vec![PushResult::Stored; jobs.len()])
}

/// A single group is one command, atomic by itself. The queue's name is added before it, which does no harm if
/// the command fails. A queue that is not empty has its name in the set already, since the push that found it
/// empty added it: so the name is left out while the last push to the same queue found a reserve of jobs there,
/// and is added after the jobs if that has changed, which costs a second round trip.
fn push_one_group(store: &mut RedisStore, group: &[Targeted<'_>]) -> Result<()> {
    let Targeted { job, list } = group[0];
    let queue = (job.at.is_none() && list == LISTS[1]).then_some(job.queue);
    let is_listed = queue.is_some_and(|queue| store.filled == queue);
    store.filled.clear();
    let mut pipeline = Pipeline::new();
    if !is_listed {
        add_name(&mut pipeline, group);
    }
    add_jobs(&mut pipeline, group);
    let length = store.conn.run(&pipeline)?.pop().map_or(0, |reply| reply.count());
    let Some(queue) = queue else { return Ok(()) };
    if length > group.len() as u64 + QUEUE_RESERVE {
        store.filled.push_str(queue);
    } else if is_listed {
        // The jobs are stored, whatever becomes of this. If it fails, the next push adds the name.
        let _ = store.one(&[b"SADD", b"queues", queue.as_bytes()]);
    }
    Ok(())
}

pub(super) fn push_once(
    store: &mut RedisStore,
    key: &str,
    ttl: Duration,
    job: &NewJob<'_>,
) -> Result<bool> {
    let answers = push_script(store, key, ttl, std::slice::from_ref(job))?.items();
    Ok(answers.into_iter().next().is_some_and(|holder| holder.text().is_empty()))
}

fn push_script(
    store: &mut RedisStore,
    once: &str,
    ttl: Duration,
    jobs: &[NewJob<'_>],
) -> Result<RespValue> {
    let mut pipeline = Pipeline::new();
    store.conn.script(&mut pipeline, Script::Push, 2 + 7 * jobs.len())?;
    pipeline.word(once).number(ms(ttl));
    for job in jobs {
        pipeline.word(job.queue).word(job.payload);
        match job.at {
            Some(at) => pipeline.float(at),
            None => pipeline.word(""),
        };
        match job.lock {
            Some(lock) => pipeline.word(lock.key).word(lock.jid).number(ms(lock.ttl)),
            None if job.bid.is_some() => pipeline.word("").word(jid_of(job.payload)).word(""),
            None => pipeline.word("").word("").word(""),
        };
        pipeline.word(job.bid.unwrap_or_default());
    }
    Ok(store.run(&pipeline)?.next().unwrap_or(RespValue::Nil))
}

/// A job and the list of its queue that it belongs to.
#[derive(Clone, Copy)]
struct Targeted<'a> {
    job: &'a NewJob<'a>,
    list: &'static str,
}

/// Whether one command can add both jobs.
fn same_target(a: &Targeted<'_>, b: &Targeted<'_>) -> bool {
    match (a.job.at, b.job.at) {
        (None, None) => a.job.queue == b.job.queue && a.list == b.list,
        (Some(_), Some(_)) => true,
        _ => false,
    }
}

/// Adds the queue of a group to the set of all queues, unless the group goes to the schedule.
fn add_name(pipeline: &mut Pipeline, group: &[Targeted<'_>]) {
    let job = group[0].job;
    if job.at.is_none() {
        pipeline.begin(3).word("SADD").word("queues").word(job.queue);
    }
}

fn add_jobs(pipeline: &mut Pipeline, group: &[Targeted<'_>]) {
    let Targeted { job: first, list } = group[0];
    pipeline.reserve(group.iter().map(|one| one.job.payload.len() + JOB_BYTES).sum());
    if first.at.is_some() {
        pipeline.begin(2 + 2 * group.len()).word("ZADD").word("schedule");
        for one in group {
            pipeline.float(one.job.at.unwrap_or_default()).word(one.job.payload);
        }
    } else {
        let key = [list.as_bytes(), first.queue.as_bytes()];
        pipeline.begin(2 + group.len()).word("LPUSH").parts(&key);
        for one in group {
            pipeline.word(one.job.payload);
        }
    }
}
