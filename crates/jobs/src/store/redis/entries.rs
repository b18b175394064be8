//! Jobs in queues and sets, for people and tools.

use super::scripts::Script;
use super::store::RedisStore;
use super::LISTS;
use crate::document::enqueued_at;
use crate::store::clock::unix_s;
use crate::store::payload::{has_jid, requeued, set_only, JobResources};
use crate::store::traits::Result;
use crate::store::types::{JobEntry, JobLocation, QueueStatus, Stats};
use chaton_redis::{Pipeline, RespValue};

/// Entries read or removed in one round trip.
const PAGE: usize = 500;

pub(super) fn stats(store: &mut RedisStore) -> Result<Stats> {
    let counts = store.call(Script::Stats, &[])?.items();
    let count = |index: usize| counts.get(index).map_or(0, RespValue::count);
    Ok(Stats {
        processed: count(0),
        failed: count(1),
        enqueued: count(2),
        scheduled: count(3),
        retries: count(4),
        dead: count(5),
        in_flight: count(6),
        processes: count(7),
    })
}

pub(super) fn daily_counts(store: &mut RedisStore, days: &[String]) -> Result<Vec<(u64, u64)>> {
    if days.is_empty() {
        return Ok(Vec::new());
    }
    let mut pipeline = Pipeline::new();
    for day in days {
        for name in ["processed", "failed"] {
            pipeline.begin(2).word("GET").word(format!("stat:{name}:{day}"));
        }
    }
    let counts: Vec<u64> = store.run(&pipeline)?.map(|reply| reply.count()).collect();
    Ok(counts.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect())
}

pub(super) fn queues(store: &mut RedisStore) -> Result<Vec<QueueStatus>> {
    let mut items = store.call(Script::Queues, &[])?.items().into_iter();
    let now_s = unix_s();
    let mut queues = Vec::new();
    while let (Some(name), Some(size), Some(job), Some(paused)) =
        (items.next(), items.next(), items.next(), items.next())
    {
        let latency_s = enqueued_at(&job.bytes()).map_or(0.0, |at| (now_s - at).max(0.0));
        let (name, paused) = (name.text(), paused.count() == 1);
        queues.push(QueueStatus { name, size: size.count(), latency_s, paused });
    }
    queues.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(queues)
}

pub(super) fn list(
    store: &mut RedisStore,
    from: &JobLocation,
    offset: usize,
    count: usize,
) -> Result<Vec<JobEntry>> {
    if count == 0 {
        return Ok(Vec::new());
    }
    let (offset, count) = (offset as i64, count.min(i32::MAX as usize) as i64);
    if let JobLocation::Queue(name) = from {
        return page_of_queue(store, name, offset, count);
    }
    let mut pipeline = Pipeline::new();
    let command = if *from == JobLocation::Dead { "ZREVRANGE" } else { "ZRANGE" };
    pipeline.begin(5).word(command).word(key(from));
    pipeline.number(offset).number(offset + count - 1).word("WITHSCORES");
    let reply = store.run(&pipeline)?.next().unwrap_or(RespValue::Nil);
    Ok(reply.scored().into_iter().map(|(job, score)| entry(job, score)).collect())
}

/// The lists of a queue are one after the other. The front of each is its right end.
fn page_of_queue(
    store: &mut RedisStore,
    name: &str,
    mut offset: i64,
    mut count: i64,
) -> Result<Vec<JobEntry>> {
    let mut pipeline = Pipeline::new();
    for list in LISTS {
        pipeline.begin(2).word("LLEN").parts(&[list.as_bytes(), name.as_bytes()]);
    }
    let lengths = store.run(&pipeline)?;
    pipeline = Pipeline::new();
    for (list, length) in LISTS.into_iter().zip(lengths) {
        let length = length.count() as i64;
        let taken = (length - offset).clamp(0, count);
        if taken > 0 {
            pipeline.begin(4).word("LRANGE").parts(&[list.as_bytes(), name.as_bytes()]);
            pipeline.number(-offset - taken).number(-offset - 1);
        }
        (offset, count) = ((offset - length).max(0), count - taken);
    }
    if pipeline.is_empty() {
        return Ok(Vec::new());
    }
    let lists = store.run(&pipeline)?.map(|list| list.items().into_iter().rev());
    Ok(lists.flatten().map(|job| entry(job.bytes(), 0.0)).collect())
}

pub(super) fn find(store: &mut RedisStore, jid: &str) -> Result<Option<(JobLocation, JobEntry)>> {
    if jid.is_empty() {
        return Ok(None);
    }
    let names = store.one(&[b"SMEMBERS", b"queues"])?.items();
    let queues = names.into_iter().map(|name| JobLocation::Queue(name.text()));
    let locations =
        [JobLocation::Retry, JobLocation::Scheduled, JobLocation::Dead].into_iter().chain(queues);
    for from in locations {
        // Pages shift while jobs come and go. A job that is missed this way
        // was claimed by a worker.
        let mut offset = 0;
        loop {
            let page = list(store, &from, offset, PAGE)?;
            offset += page.len();
            let last = page.len() < PAGE;
            if let Some(entry) = page.into_iter().find(|entry| has_jid(&entry.payload, jid)) {
                return Ok(Some((from, entry)));
            }
            if last {
                break;
            }
        }
    }
    Ok(None)
}

pub(super) fn remove(store: &mut RedisStore, from: &JobLocation, entry: &JobEntry) -> Result<bool> {
    take_entry(store, from, entry, "remove", None, unix_s())
}

pub(super) fn kill(
    store: &mut RedisStore,
    from: &JobLocation,
    entry: &JobEntry,
    now_s: f64,
) -> Result<bool> {
    take_entry(store, from, entry, "dead", None, now_s)
}

pub(super) fn enqueue_entry(
    store: &mut RedisStore,
    from: &JobLocation,
    entry: &JobEntry,
    now_s: f64,
) -> Result<bool> {
    let requeued = requeued(from, entry, now_s, store.options.format)?;
    take_entry(store, from, entry, "push", Some(requeued), now_s)
}

pub(super) fn add_entry(
    store: &mut RedisStore,
    to: &JobLocation,
    at: f64,
    payload: &[u8],
) -> Result<()> {
    set_only(to)?;
    let mut pipeline = Pipeline::new();
    pipeline.begin(4).word("ZADD").word(key(to)).float(at).word(payload);
    if *to == JobLocation::Dead {
        let oldest = at - store.options.dead_age.as_secs_f64();
        pipeline.begin(4).word("ZREMRANGEBYSCORE").word("dead").word("-inf");
        pipeline.word(format!("({oldest:.6}"));
        pipeline.begin(4).word("ZREMRANGEBYRANK").word("dead").word("0");
        pipeline.number(-(store.options.dead_max as i128) - 1);
    }
    store.conn.atomic(&pipeline).map(|_| ())
}

pub(super) fn reschedule_entry(
    store: &mut RedisStore,
    from: &JobLocation,
    entry: &JobEntry,
    at: f64,
) -> Result<bool> {
    set_only(from)?;
    let key = key(from);
    let mut pipeline = Pipeline::new();
    pipeline.begin(3).word("ZSCORE").word(&key).word(&entry.payload);
    pipeline.begin(5).word("ZADD").word(&key).word("XX").float(at).word(&entry.payload);
    let replies = store.conn.atomic(&pipeline)?;
    Ok(replies.first().is_some_and(|score| *score != RespValue::Nil))
}

fn take_entry(
    store: &mut RedisStore,
    from: &JobLocation,
    entry: &JobEntry,
    action: &str,
    requeued: Option<(String, Vec<u8>)>,
    now_s: f64,
) -> Result<bool> {
    let mut pipeline = Pipeline::new();
    store.conn.script(&mut pipeline, Script::TakeEntry, 13)?;
    pipeline.word(key(from)).word(kind(from)).word(&entry.payload).word(action);
    let (queue, payload) = requeued.unwrap_or_default();
    pipeline.word(payload).word(queue);
    super::due::add_dead_limits(store, &mut pipeline, now_s);
    let held =
        if action == "push" { JobResources::default() } else { JobResources::of(&entry.payload) };
    add_resources(&mut pipeline, &held);
    Ok(store.run(&pipeline)?.next().is_some_and(|taken| taken.count() == 1))
}

pub(super) fn clear(store: &mut RedisStore, from: &JobLocation, max: usize) -> Result<usize> {
    let (key, mut cleared) = (key(from), 0);
    let max = if max == 0 { usize::MAX } else { max };
    loop {
        let step = PAGE.min(max - cleared);
        let number = step.to_string();
        let words = [key.as_bytes(), kind(from).as_bytes(), number.as_bytes()];
        let mut answer = store.call(Script::Clear, &words)?.items().into_iter();
        let gone = answer.next().map_or(0, |gone| gone.count()) as usize;
        cleared += gone;
        let held: Vec<JobResources> = answer
            .map(|job| JobResources::of(&job.bytes()))
            .filter(|held| held.lock.is_some() || held.bid.is_some())
            .collect();
        release(store, &held)?;
        if gone < step || cleared >= max {
            return Ok(cleared);
        }
    }
}

/// Ends what removed jobs held.
pub(super) fn release(store: &mut RedisStore, held: &[JobResources]) -> Result<()> {
    if held.is_empty() {
        return Ok(());
    }
    let mut pipeline = Pipeline::new();
    store.conn.script(&mut pipeline, Script::Release, 4 * held.len())?;
    held.iter().for_each(|held| add_resources(&mut pipeline, held));
    store.run(&pipeline).map(|_| ())
}

fn add_resources(pipeline: &mut Pipeline, held: &JobResources) {
    pipeline.word(held.lock.as_deref().unwrap_or_default()).word(&held.jid);
    pipeline.word(held.bid.as_deref().unwrap_or_default()).word(&held.jid);
}

/// The key of a set, or the name of a queue.
fn key(from: &JobLocation) -> String {
    match from {
        JobLocation::Queue(name) => name.clone(),
        JobLocation::Scheduled => "schedule".into(),
        JobLocation::Retry => "retry".into(),
        JobLocation::Dead => "dead".into(),
    }
}

fn kind(from: &JobLocation) -> &'static str {
    match from {
        JobLocation::Queue(_) => "list",
        _ => "zset",
    }
}

fn entry(payload: Vec<u8>, score: f64) -> JobEntry {
    JobEntry { score, row: 0, payload }
}
