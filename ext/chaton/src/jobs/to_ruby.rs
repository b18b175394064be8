//! A store's replies as Ruby Hashes and Arrays.

use chaton_jobs::store::{
    BatchStatus, JobEntry, JobLocation, OutboxStatus, OwnerStatus, ProcessStatus, PushResult,
    QueueStatus, Stats,
};
use magnus::{Error, IntoValue, RArray, RHash, Ruby};

use crate::convert::text;
use crate::error;

/// A Hash with Symbol keys.
pub struct SymbolHash(pub RHash);

impl SymbolHash {
    /// An empty one.
    pub fn new(ruby: &Ruby) -> Self {
        Self(ruby.hash_new())
    }

    /// Adds a member.
    pub fn with(self, name: &str, value: impl IntoValue) -> Result<Self, Error> {
        let ruby = Ruby::get_with(self.0);
        self.0.aset(ruby.to_symbol(name), value)?;
        Ok(self)
    }
}

/// The location of this name.
///
/// # Errors
/// `ArgumentError` when there is none.
pub fn place(name: &str) -> Result<JobLocation, Error> {
    location(name).map_err(error::argument)
}

/// The same, without Ruby.
pub fn location(name: &str) -> Result<JobLocation, String> {
    match name {
        "scheduled" => Ok(JobLocation::Scheduled),
        "retry" => Ok(JobLocation::Retry),
        "dead" => Ok(JobLocation::Dead),
        _ => match name.strip_prefix("queue:") {
            Some(queue) if !queue.is_empty() => Ok(JobLocation::Queue(queue.into())),
            _ => Err(format!(
                "{name:?} is no place of jobs; use queue:NAME, scheduled, retry or dead"
            )),
        },
    }
}

/// Its name.
pub fn place_name(place: &JobLocation) -> String {
    match place {
        JobLocation::Queue(queue) => format!("queue:{queue}"),
        JobLocation::Scheduled => "scheduled".into(),
        JobLocation::Retry => "retry".into(),
        JobLocation::Dead => "dead".into(),
    }
}

/// `[score, row, payload]`.
pub fn entry(ruby: &Ruby, entry: &JobEntry) -> Result<RArray, Error> {
    let shown = ruby.ary_new_capa(3);
    shown.push(entry.score)?;
    shown.push(entry.row)?;
    shown.push(text(&entry.payload))?;
    Ok(shown)
}

/// nil when it was stored, else the jid that holds the lock.
pub fn pushed(pushed: PushResult) -> Option<String> {
    match pushed {
        PushResult::Stored => None,
        PushResult::Locked(jid) => Some(jid),
    }
}

/// # Errors
/// What Ruby raises, as all below.
pub fn stats(ruby: &Ruby, stats: &Stats) -> Result<RHash, Error> {
    let hash = SymbolHash::new(ruby)
        .with("processed", stats.processed)?
        .with("failed", stats.failed)?
        .with("enqueued", stats.enqueued)?
        .with("scheduled", stats.scheduled)?
        .with("retries", stats.retries)?
        .with("dead", stats.dead)?
        .with("in_flight", stats.in_flight)?
        .with("processes", stats.processes)?;
    Ok(hash.0)
}

/// Records that wait for the log.
pub fn outbox(ruby: &Ruby, outbox: OutboxStatus) -> Result<RHash, Error> {
    let hash = SymbolHash::new(ruby)
        .with("lag_s", outbox.lag_s)?
        .with("waiting", outbox.waiting)?
        .with("refused", outbox.refused)?;
    Ok(hash.0)
}

/// A queue.
pub fn queue(ruby: &Ruby, queue: QueueStatus) -> Result<RHash, Error> {
    let hash = SymbolHash::new(ruby)
        .with("name", queue.name)?
        .with("size", queue.size)?
        .with("latency_s", queue.latency_s)?
        .with("paused", queue.paused)?;
    Ok(hash.0)
}

/// A process with what it runs.
pub fn process(ruby: &Ruby, process: ProcessStatus) -> Result<RHash, Error> {
    let work = ruby.ary_new();
    for job in process.work {
        work.push((job.tid, &*job.queue, text(&job.payload), job.run_at))?;
    }
    let hash = SymbolHash::new(ruby)
        .with("identity", process.identity)?
        .with("info", process.info)?
        .with("busy", process.busy)?
        .with("quiet", process.quiet)?
        .with("rss_kb", process.rss_kb)?
        .with("beat_at", process.heartbeat_at)?
        .with("work", work)?;
    Ok(hash.0)
}

/// An owner of jobs in flight.
pub fn owner(ruby: &Ruby, owner: OwnerStatus) -> Result<RHash, Error> {
    let hash = SymbolHash::new(ruby)
        .with("identity", owner.identity)?
        .with("place", owner.process_key)?
        .with("beat_age_s", owner.heartbeat_age.as_secs_f64())?;
    Ok(hash.0)
}

/// A batch.
pub fn batch(ruby: &Ruby, batch: BatchStatus) -> Result<RHash, Error> {
    let hash = SymbolHash::new(ruby)
        .with("bid", batch.bid)?
        .with("description", batch.description)?
        .with("parent", batch.parent)?
        .with("created_at", batch.created_at)?
        .with("total", batch.total)?
        .with("pending", batch.pending)?
        .with("failures", batch.failures)?
        .with("failed_jids", ruby.ary_from_iter(batch.failed_jids))?
        .with("children_pending", batch.children_pending)?
        .with("complete", batch.complete)?
        .with("success", batch.success)?
        .with("dead", batch.dead)?;
    Ok(hash.0)
}

/// A list of Hashes.
pub fn list<T>(
    ruby: &Ruby,
    items: Vec<T>,
    show: impl Fn(&Ruby, T) -> Result<RHash, Error>,
) -> Result<RArray, Error> {
    let shown = ruby.ary_new_capa(items.len());
    for item in items {
        shown.push(show(ruby, item)?)?;
    }
    Ok(shown)
}
