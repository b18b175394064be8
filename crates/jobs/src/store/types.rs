//! The arguments and results of a store. Times are seconds since 1970 as `f64`
//! (Sidekiq's scores) unless a name says otherwise.

use std::sync::Arc;
use std::time::Duration;

pub use chaton_core::outbox::OutboxStatus;

use crate::limit::Limit;

/// Jobs claimed at once.
pub(super) const CLAIM_MAX: usize = 1000;
/// Jids of failed jobs that a [`BatchStatus`] names at most.
pub(super) const FAILED_JIDS_MAX: usize = 1000;
/// How long a batch may be open. Only the crash of a process without a lease lasts so long.
pub(super) const BATCH_OPEN_MAX: Duration = Duration::from_secs(24 * 3600);
/// Open batches looked at in one call.
pub(super) const OPEN_BATCHES_MAX: usize = 1000;
/// How long a cancel is kept.
pub(super) const CANCEL_TTL: Duration = Duration::from_secs(24 * 3600);
/// How long a signal waits for its process, as in Sidekiq's own UI.
pub(super) const SIGNAL_TTL: Duration = Duration::from_secs(60);

/// A job to be stored.
#[derive(Clone, Copy, Debug)]
pub struct NewJob<'a> {
    /// Its queue.
    pub queue: &'a str,
    /// Its document, JSON.
    pub payload: &'a [u8],
    /// When it is due; `None` for now.
    pub at: Option<f64>,
    /// The lock it needs (unique jobs).
    pub lock: Option<NewLock<'a>>,
    /// The batch it belongs to.
    pub bid: Option<&'a str>,
}

/// The lock that a pushed unique job takes.
#[derive(Clone, Copy, Debug)]
pub struct NewLock<'a> {
    /// The locked key.
    pub key: &'a str,
    /// The job that will hold it.
    pub jid: &'a str,
    /// Time after which it expires.
    pub ttl: Duration,
}

/// A lock to release.
#[derive(Clone, Copy, Debug)]
pub struct HeldLock<'a> {
    /// The locked key.
    pub key: &'a str,
    /// The job that holds it; a lock held by another job is left alone.
    pub jid: &'a str,
}

/// Result of pushing one job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PushResult {
    /// Stored.
    Stored,
    /// Not stored, because this jid holds its lock.
    Locked(String),
}

/// What an owner claims.
#[derive(Clone, Debug)]
pub struct ClaimRequest<'a> {
    /// Queues, emptied in this order.
    pub queues: &'a [Arc<str>],
    /// Jobs at most (1 to 1,000).
    pub count: usize,
    /// Ticket of the first claimed job.
    pub first_ticket: u64,
}

/// A claimed job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimedJob {
    /// Its number in the owner's in-flight set.
    pub ticket: u64,
    /// The queue it came from; empty when it came from the schedule or the
    /// retry set ([`super::Store::claim_due`]).
    pub queue: Arc<str>,
    /// Its document, as it was stored.
    pub payload: Vec<u8>,
}

/// Result of [`super::Store::ack_and_claim`].
#[derive(Clone, Debug, Default)]
pub struct ClaimReply {
    /// The claimed jobs, in order.
    pub jobs: Vec<ClaimedJob>,
    /// Acknowledgements whose entry was gone.
    pub fenced: usize,
    /// All requested queues were empty or paused when the claim ended.
    pub drained: bool,
}

/// A job's request to its limiters.
#[derive(Clone, Copy, Debug)]
pub struct LimitRequest<'a> {
    /// Its ticket.
    pub ticket: u64,
    /// Its id.
    pub jid: &'a str,
    /// When it was first denied, or now (s): jobs that were denied earlier go before it.
    pub place: f64,
    /// Its limits, granted together or not at all.
    pub limits: &'a [Limit],
}

/// Result of the limiters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Grant {
    /// The job may start.
    Now,
    /// It waits, see [`Outcome::Wait`](crate::outcome::Outcome::Wait).
    Behind {
        /// The number of the limit that it waits for.
        limit: usize,
        /// When that limit admits it; `None` when it is not known when a slot is free.
        at: Option<f64>,
    },
}

/// Result of [`super::Store::move_due`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DueSummary {
    /// Entries taken out of the sets, malformed ones included.
    pub moved: usize,
    /// When the next entry of either set is due.
    pub next_at: Option<f64>,
    /// The longest time by which a moved entry was late (s).
    pub lag_max_s: f64,
}

/// What a process reports at each heartbeat.
#[derive(Clone, Debug)]
pub struct ProcessReport<'a> {
    /// `HOST:PID:NONCE`.
    pub identity: &'a str,
    /// Boot id, pid namespace, pid and start time: lets another process of the
    /// same machine see that this one is dead.
    pub process_key: &'a str,
    /// The process's description, JSON as in Sidekiq's `info`.
    pub info: &'a str,
    /// Threads it may run.
    pub concurrency: usize,
    /// Jobs running.
    pub busy: usize,
    /// It claims no more jobs.
    pub quiet: bool,
    /// Resident memory in KB.
    pub rss_kb: u64,
    /// Last round trip in µs.
    pub rtt_us: u64,
    /// The running jobs.
    pub work: &'a [RunningJob],
    /// Jobs ended since the last heartbeat that was written.
    pub processed: u64,
    /// Of these, failed.
    pub failed: u64,
    /// Now.
    pub now_s: f64,
}

/// A running job.
#[derive(Clone, Debug, PartialEq)]
pub struct RunningJob {
    /// Its thread, by a short name unique in the process.
    pub tid: String,
    /// Its queue.
    pub queue: Arc<str>,
    /// Its document.
    pub payload: Arc<[u8]>,
    /// When it began (s).
    pub run_at: i64,
}

/// Result of a heartbeat.
#[derive(Clone, Debug, Default)]
pub struct HeartbeatReply {
    /// The process was unknown: this is its first heartbeat, or it had been taken for dead.
    pub is_new: bool,
    /// The store's clock.
    pub now_s: f64,
    /// Processes that claim from the store.
    pub processes: usize,
    /// Those of them that have sent no heartbeat for a lease; only Redis counts them.
    pub silent: usize,
    /// Signals left for it, oldest first.
    pub signals: Vec<String>,
    /// It was written together with those of the same supervisor's other processes, which are sent at the same time.
    pub shared: bool,
    /// Another one of these processes looks for dead owners.
    pub follows: bool,
}

/// An owner of jobs in flight.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnerStatus {
    /// `HOST:PID:NONCE`.
    pub identity: String,
    /// See [`ProcessReport::process_key`]; empty when unknown.
    pub process_key: String,
    /// Age of its last heartbeat, by the store's clock.
    pub heartbeat_age: Duration,
    /// Its process has ended, as the kernel says: only of a file, whose users are all on one machine.
    pub ended: bool,
}

/// A new batch.
#[derive(Clone, Debug)]
pub struct NewBatch<'a> {
    /// Its id.
    pub bid: &'a str,
    /// The batch that it is nested in.
    pub parent: Option<&'a str>,
    /// The owner of jobs that will close it; empty for another process.
    pub owner: &'a str,
    /// For people.
    pub description: &'a str,
    /// `(event, queue, document)`: a job pushed at the event, which is
    /// `success`, `complete` or `death`.
    pub callbacks: &'a [(&'a str, &'a str, &'a [u8])],
    /// Time after which it expires.
    pub ttl: Duration,
    /// Now.
    pub now_s: f64,
}

/// The counts of a batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BatchStatus {
    /// Its id.
    pub bid: String,
    /// For people.
    pub description: String,
    /// The batch it is nested in.
    pub parent: Option<String>,
    /// When it was made.
    pub created_at: f64,
    /// All its jobs so far.
    pub total: u64,
    /// Jobs that have not succeeded.
    pub pending: u64,
    /// Jobs whose last run failed.
    pub failures: u64,
    /// Jids of these (at most 1,000).
    pub failed_jids: Vec<String>,
    /// Nested batches that were closed and have not succeeded.
    pub children_pending: u64,
    /// All jobs and nested batches ran at least once.
    pub complete: bool,
    /// All jobs and nested batches succeeded.
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

/// A queue as people see it.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueStatus {
    /// Its name.
    pub name: String,
    /// Jobs waiting.
    pub size: u64,
    /// Age of the next job (s), 0 when empty.
    pub latency_s: f64,
    /// Its jobs are not claimed.
    pub paused: bool,
}

/// A process, as it described itself.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessStatus {
    /// `HOST:PID:NONCE`.
    pub identity: String,
    /// JSON.
    pub info: String,
    /// Jobs running.
    pub busy: u64,
    /// It claims no more jobs.
    pub quiet: bool,
    /// Resident memory in KB.
    pub rss_kb: u64,
    /// Its last heartbeat (s).
    pub heartbeat_at: f64,
    /// Its running jobs, by thread.
    pub work: Vec<RunningJob>,
}

/// A list of jobs that do not run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum JobLocation {
    /// A queue.
    Queue(String),
    /// The schedule.
    Scheduled,
    /// The retry set.
    Retry,
    /// The dead set.
    Dead,
}

/// A job in a queue or a set.
#[derive(Clone, Debug, PartialEq)]
pub struct JobEntry {
    /// Its score (s); 0 in a queue.
    pub score: f64,
    /// Its row in SQLite, else 0.
    pub row: i64,
    /// Its document.
    pub payload: Vec<u8>,
}

/// Result of [`super::StoreWatch::arm`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Availability {
    /// One of the queues holds a job and is not paused.
    pub ready: bool,
    /// When the next scheduled job or retry is due.
    pub next_at: Option<f64>,
}

/// What ended a [`super::StoreWatch::wait`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreEvent {
    /// Something changed.
    Changed {
        /// Queues that got or lost a job, where known.
        queues: Vec<Arc<str>>,
        /// The schedule, the retry set, pauses or cancels changed, or it is not known what did.
        other: bool,
    },
    /// The time was up.
    Timeout,
    /// [`super::Interrupt::interrupt`] was called.
    Interrupted,
}
