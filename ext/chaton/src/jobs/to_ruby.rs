//! A store's replies as Ruby Hashes and Arrays.

use chaton_jobs::store::{
    BatchStatus, JobEntry, JobLocation, OutboxStatus, OwnerStatus, ProcessStatus, PushResult,
    QueueStatus, Stats,
};
use magnus::{Error, RArray, RHash, Ruby};

use crate::convert::text;
use crate::error;

/// A Hash of these fields of a value, by their names.
macro_rules! fields {
    ($ruby:ident, $from:ident: $($field:ident),*) => {{
        let hash = $ruby.hash_new();
        $(hash.aset($ruby.to_symbol(stringify!($field)), $from.$field)?;)*
        hash
    }};
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
    Ok(
        fields!(ruby, stats: processed, failed, enqueued, scheduled, retries, dead, in_flight, processes),
    )
}

/// Records that wait for the log.
pub fn outbox(ruby: &Ruby, outbox: OutboxStatus) -> Result<RHash, Error> {
    Ok(fields!(ruby, outbox: lag_s, waiting, refused))
}

/// A queue.
pub fn queue(ruby: &Ruby, queue: QueueStatus) -> Result<RHash, Error> {
    Ok(fields!(ruby, queue: name, size, latency_s, paused))
}

/// A process with what it runs.
pub fn process(ruby: &Ruby, process: ProcessStatus) -> Result<RHash, Error> {
    let work = ruby.ary_new();
    for job in process.work {
        work.push((job.tid, &*job.queue, text(&job.payload), job.run_at))?;
    }
    let hash = fields!(ruby, process: identity, info, busy, quiet, rss_kb);
    hash.aset(ruby.to_symbol("beat_at"), process.heartbeat_at)?;
    hash.aset(ruby.to_symbol("work"), work)?;
    Ok(hash)
}

/// An owner of jobs in flight.
pub fn owner(ruby: &Ruby, owner: OwnerStatus) -> Result<RHash, Error> {
    let hash = fields!(ruby, owner: identity);
    hash.aset(ruby.to_symbol("place"), owner.process_key)?;
    hash.aset(ruby.to_symbol("beat_age_s"), owner.heartbeat_age.as_secs_f64())?;
    Ok(hash)
}

/// A batch.
pub fn batch(ruby: &Ruby, batch: BatchStatus) -> Result<RHash, Error> {
    Ok(
        fields!(ruby, batch: bid, description, parent, created_at, total, pending, failures, failed_jids,
               children_pending, complete, success, dead),
    )
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
