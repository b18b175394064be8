//! What goes into a store and comes out of it. Times are seconds since 1970
//! as `f64` (Sidekiq's scores), unless a name says otherwise.

use std::sync::Arc;
use std::time::Duration;

use crate::limit::Limit;

/// A job to be stored.
#[derive(Clone, Copy, Debug)]
pub struct NewJob<'a> {
    /// Its queue.
    pub queue: &'a str,
    /// Its document, JSON.
    pub payload: &'a [u8],
    /// When it is due; `None`: now.
    pub at: Option<f64>,
    /// The lock it needs (unique jobs).
    pub lock: Option<NewLock<'a>>,
    /// The batch it belongs to.
    pub bid: Option<&'a str>,
}

/// A lock asked for by a push.
#[derive(Clone, Copy, Debug)]
pub struct NewLock<'a> {
    /// What is locked.
    pub key: &'a str,
    /// Who will hold it.
    pub jid: &'a str,
    /// When it ends by itself.
    pub ttl: Duration,
}

/// A lock that is held.
#[derive(Clone, Copy, Debug)]
pub struct Held<'a> {
    /// What is locked.
    pub key: &'a str,
    /// Who holds it; another holder's lock is left alone.
    pub jid: &'a str,
}

/// What became of a pushed job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// Stored.
    Stored,
    /// Not stored: its lock is held by this jid.
    Locked(String),
}

/// What an owner asks for.
#[derive(Clone, Debug)]
pub struct Want<'a> {
    /// Queues in the order in which they are emptied.
    pub queues: &'a [Arc<str>],
    /// Jobs at most (1 to 1,000).
    pub count: usize,
    /// Ticket of the first one.
    pub first_ticket: u64,
}

/// A claimed job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// Its number in the owner's in-flight set.
    pub ticket: u64,
    /// The queue it came from; empty when it came from the schedule or the
    /// retry set ([`super::Store::claim_due`]).
    pub queue: Arc<str>,
    /// Its document, as it was stored.
    pub payload: Vec<u8>,
}

/// Answer of [`super::Store::turn`].
#[derive(Clone, Debug, Default)]
pub struct Turn {
    /// What was claimed, in order.
    pub jobs: Vec<Claimed>,
    /// Settles whose entry was gone.
    pub fenced: usize,
    /// All queues asked were empty or paused when the claim ended.
    pub drained: bool,
}

/// A job's question to its limiters.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// Its ticket.
    pub ticket: u64,
    /// Its limits; granted together or not at all.
    pub limits: &'a [Limit],
}

/// Answer of a limiter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Grant {
    /// Start.
    Now,
    /// Ask again at this time; `None`: when a slot is free, nobody knows when.
    At(Option<f64>),
}

/// Answer of [`super::Store::move_due`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Due {
    /// Entries taken out of the sets, malformed ones included.
    pub moved: usize,
    /// When the next one is due, whichever set it is in.
    pub next_at: Option<f64>,
    /// How late the latest of the moved ones was (s).
    pub lag_max_s: f64,
}

/// A sign of life.
#[derive(Clone, Debug)]
pub struct Beat<'a> {
    /// `HOST:PID:NONCE`.
    pub identity: &'a str,
    /// What a recoverer on the same machine needs to see that it is dead:
    /// boot id, pid namespace, pid, start time.
    pub place: &'a str,
    /// The process's description: JSON as Sidekiq's `info`.
    pub info: &'a str,
    /// Threads it may run.
    pub concurrency: usize,
    /// Jobs running.
    pub busy: usize,
    /// It takes no more jobs.
    pub quiet: bool,
    /// Resident memory in KB.
    pub rss_kb: u64,
    /// Last round trip in µs.
    pub rtt_us: u64,
    /// What runs now.
    pub work: &'a [Working],
    /// Jobs ended since the last beat that succeeded in being written.
    pub processed: u64,
    /// Of these, failed.
    pub failed: u64,
    /// Now.
    pub now_s: f64,
}

/// A job that runs.
#[derive(Clone, Debug)]
pub struct Working {
    /// The thread, a short name unique in the process.
    pub tid: String,
    /// Its queue.
    pub queue: Arc<str>,
    /// Its document.
    pub payload: Arc<[u8]>,
    /// When it began (s).
    pub run_at: i64,
}

/// Answer to a beat.
#[derive(Clone, Debug, Default)]
pub struct Beaten {
    /// The process was not known (its first beat, or it had been given up).
    pub is_new: bool,
    /// Signals left for it, oldest first.
    pub signals: Vec<String>,
}

/// An owner of jobs in flight.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnerSeen {
    /// `HOST:PID:NONCE`.
    pub identity: String,
    /// See [`Beat::place`]; empty when unknown.
    pub place: String,
    /// Since its last beat, by the store's clock.
    pub beat_age: Duration,
}

/// A new batch.
#[derive(Clone, Debug)]
pub struct NewBatch<'a> {
    /// Its number.
    pub bid: &'a str,
    /// The batch whose jobs made it.
    pub parent: Option<&'a str>,
    /// For people.
    pub description: &'a str,
    /// `(event, queue, document)`: jobs pushed when the event comes; the event
    /// is `success`, `complete` or `death`.
    pub callbacks: &'a [(&'a str, &'a str, &'a [u8])],
    /// Forgotten this long after it was made.
    pub ttl: Duration,
    /// Now.
    pub now_s: f64,
}

/// The counts of a batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BatchStatus {
    /// Its number.
    pub bid: String,
    /// For people.
    pub description: String,
    /// The batch it is nested in.
    pub parent: Option<String>,
    /// When it was made.
    pub created_at: f64,
    /// Jobs it was ever given.
    pub total: u64,
    /// Jobs that have not succeeded.
    pub pending: u64,
    /// Jobs whose last run failed.
    pub failures: u64,
    /// Of these, jids (at most 1,000).
    pub failed_jids: Vec<String>,
    /// Nested batches that have not succeeded.
    pub children_pending: u64,
    /// All jobs, and nested batches, ran at least once.
    pub complete: bool,
    /// All succeeded.
    pub success: bool,
    /// One of its jobs died.
    pub dead: bool,
}

/// Counters and sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Jobs ended, failures included.
    pub processed: u64,
    /// Of these, failed.
    pub failed: u64,
    /// Waiting in all queues.
    pub enqueued: u64,
    /// In the schedule.
    pub scheduled: u64,
    /// In the retry set.
    pub retries: u64,
    /// In the dead set.
    pub dead: u64,
    /// In flight.
    pub in_flight: u64,
    /// Living processes.
    pub processes: u64,
}

/// A queue.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueSeen {
    /// Its name.
    pub name: String,
    /// Jobs waiting.
    pub size: u64,
    /// Age of the next one (s), 0 when empty.
    pub latency_s: f64,
    /// It gives no jobs.
    pub paused: bool,
}

/// A process, as it described itself.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessSeen {
    /// `HOST:PID:NONCE`.
    pub identity: String,
    /// JSON.
    pub info: String,
    /// Jobs running.
    pub busy: u64,
    /// It takes no more.
    pub quiet: bool,
    /// Resident memory in KB.
    pub rss_kb: u64,
    /// Its last beat (s).
    pub beat_at: f64,
    /// `(tid, queue, document, run_at)` of what runs.
    pub work: Vec<(String, String, Vec<u8>, i64)>,
}

/// A place where jobs wait.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// A queue.
    Queue(String),
    /// The schedule.
    Scheduled,
    /// The retry set.
    Retry,
    /// The dead set.
    Dead,
}

/// A job in a place.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Its score (s); 0 in a queue.
    pub score: f64,
    /// The store's number of it where it has one (SQLite), else 0.
    pub row: i64,
    /// Its document.
    pub payload: Vec<u8>,
}

/// Answer of [`super::Watch::arm`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Armed {
    /// One of the queues that is not paused holds a job now.
    pub ready: bool,
    /// When the next scheduled job or retry is due.
    pub next_at: Option<f64>,
}

/// What ended a [`super::Watch::wait`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Something changed; names of queues where known (empty: could be any).
    Changed {
        /// Queues that got or lost a job.
        queues: Vec<Arc<str>>,
        /// The schedule, the retry set, pauses or cancels changed, or nobody knows.
        other: bool,
    },
    /// Nothing within the time.
    Timeout,
    /// [`super::Interrupt::interrupt`].
    Interrupted,
}
