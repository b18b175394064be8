//! What every store does: the traits that SQLite and Redis implement.

use std::sync::Arc;
use std::time::Duration;

use chaton_core::outbox::{OutboxRecord, Outlet};

use super::error::StoreError;
use super::types::*;
use crate::outcome::Ack;

/// Result of a store's call.
pub type Result<T> = std::result::Result<T, StoreError>;

#[cfg(feature = "sqlite")]
fn no_common_file() -> StoreError {
    StoreError::refused("this store has no transactions with the log of records")
}

/// One connection to a store of jobs. Not shared between threads: each user
/// opens its own by [`StoreFactory::store`].
///
/// A claimed job is named by its owner (`HOST:PID:NONCE`) and a *ticket*, a number that its owner
/// gave it. Every later call names both and does nothing when that in-flight entry is gone. This is
/// the fence: an owner that was taken for dead cannot undo what its successor did.
///
/// All calls block the calling thread; none starts a thread.
pub trait Store: Send {
    /// Appends jobs to their queues, or to the schedule when they have a time. All jobs of one call
    /// are stored or none, except that a job whose lock is held by another jid is left out and
    /// refused with the holder's jid. Jobs of a batch are pending in it until one with their jid has succeeded.
    fn push(&mut self, jobs: &[NewJob<'_>]) -> Result<Vec<PushResult>>;

    /// Pushes the job unless `key` was used within `ttl`, so that a cron tick is enqueued once across
    /// all processes. Returns whether it was pushed: a held lock refuses it as in [`Store::push`].
    fn push_once(&mut self, key: &str, ttl: Duration, job: &NewJob<'_>) -> Result<bool>;

    /// Acknowledges jobs that ended and claims new ones, in one round trip. Claimed jobs move
    /// atomically into the owner's in-flight set, under tickets counted up from
    /// `request.first_ticket`; an owner never uses a ticket twice. Paused queues give nothing. An
    /// acknowledgement whose entry is gone does nothing and is counted in [`ClaimReply::fenced`].
    fn ack_and_claim(
        &mut self,
        owner: &str,
        acks: &[Ack],
        request: Option<&ClaimRequest<'_>>,
    ) -> Result<ClaimReply>;

    /// Acknowledges one job, pushes jobs without locks and batches, and lets another engine write, in one transaction.
    ///
    /// # Errors
    /// `Refused` by a store that cannot, or for an entry that is gone; else that of the store or of the other
    /// engine. Nothing is written then.
    #[cfg(feature = "sqlite")]
    fn commit(
        &mut self,
        _owner: &str,
        _ack: &Ack,
        _jobs: &[NewJob<'_>],
        _also: Option<&dyn chaton_embedded::Enlisted>,
    ) -> Result<()> {
        Err(no_common_file())
    }

    /// Makes the tables that another engine writes jobs to by a transaction of its own.
    ///
    /// # Errors
    /// `Refused` by a store that cannot; else that of the store.
    #[cfg(feature = "sqlite")]
    fn prepare(&mut self) -> Result<()> {
        Err(no_common_file())
    }

    /// Acknowledges jobs; returns how many entries were gone.
    fn ack(&mut self, owner: &str, acks: &[Ack]) -> Result<usize> {
        Ok(self.ack_and_claim(owner, acks, None)?.fenced)
    }

    /// Claims jobs.
    fn claim(&mut self, owner: &str, request: &ClaimRequest<'_>) -> Result<ClaimReply> {
        self.ack_and_claim(owner, &[], Some(request))
    }

    /// Asks the limiters of claimed jobs. Each request is granted for all the
    /// limits it names or for none.
    fn acquire(
        &mut self,
        owner: &str,
        requests: &[LimitRequest<'_>],
        now_s: f64,
    ) -> Result<Vec<Grant>>;

    /// Releases locks of unique jobs.
    fn unlock(&mut self, locks: &[HeldLock<'_>]) -> Result<()>;

    /// Moves at most `max` due jobs from the retry set and the schedule to the
    /// queue that each document names, with a new `enqueued_at`. Members that
    /// are no JSON object with a queue go to the dead set unchanged.
    fn move_due(&mut self, now_s: f64, max: usize) -> Result<DueSummary>;

    /// Moves due jobs into the in-flight set of `owner` instead, so that client
    /// middleware runs before they are pushed.
    fn claim_due(
        &mut self,
        owner: &str,
        first_ticket: u64,
        now_s: f64,
        max: usize,
    ) -> Result<(Vec<ClaimedJob>, DueSummary)>;

    /// Renews the process's lease and writes what Sidekiq's API and UI show of a process.
    fn heartbeat(&mut self, report: &ProcessReport<'_>) -> Result<HeartbeatReply>;

    /// Every known owner, alive or dead, with the age of its last heartbeat by
    /// the store's own clock.
    fn owners(&mut self) -> Result<Vec<OwnerStatus>>;

    /// The descriptions (JSON, as [`ProcessReport::info`]) of living processes that are no owners: Sidekiq's.
    fn sidekiq_processes(&mut self) -> Result<Vec<String>> {
        Ok(vec![])
    }

    /// The jobs that an owner has in flight, lowest ticket first.
    fn in_flight(&mut self, owner: &str) -> Result<Vec<ClaimedJob>>;

    /// Forgets an owner after a clean exit or its recovery. Returns `false` and
    /// does nothing while the owner has jobs in flight.
    fn forget(&mut self, owner: &str) -> Result<bool>;

    /// Connects, if it is not connected.
    fn connect(&mut self) -> Result<()> {
        Ok(())
    }

    /// How many connections were made. Behind a new one the store may have lost its last writes. A file
    /// loses none.
    fn connections(&self) -> u64 {
        0
    }

    /// Puts jobs that an owner has in hand back into its in-flight set where the store has lost them.
    /// A job that is at the front of its queue or in a set is left there, since it will be claimed; PostgreSQL takes
    /// it out of the queue. Called behind a new connection, also without jobs. Returns how many were put back.
    fn restore(&mut self, _owner: &str, _jobs: &[ClaimedJob]) -> Result<usize> {
        Ok(0)
    }

    /// Pauses or resumes a queue.
    fn pause(&mut self, queue: &str, paused: bool) -> Result<()>;

    /// Asks a job, running or not, to end cooperatively. Kept for a day.
    fn cancel(&mut self, jid: &str) -> Result<()>;

    /// Which of these jobs were cancelled.
    fn cancelled(&mut self, jids: &[&str]) -> Result<Vec<bool>>;

    /// The fields of a small hash (`it-JID`: the cursor of an iterable job).
    fn load(&mut self, key: &str) -> Result<Vec<(String, Vec<u8>)>>;

    /// Writes fields of a small hash, which then lives for `ttl`.
    fn save(&mut self, key: &str, fields: &[(&str, &[u8])], ttl: Duration) -> Result<()>;

    /// Removes a small hash.
    fn remove_hash(&mut self, key: &str) -> Result<()>;

    /// Opens a batch, or replaces the callbacks of one that is still open.
    fn batch_open(&mut self, batch: &NewBatch<'_>) -> Result<()>;

    /// Closes a batch: all its jobs are pushed, its callbacks may fire, and from now on its parent waits for it.
    /// `false` when it is unknown, which may mean that [`Store::remove_open`] has removed it.
    fn batch_close(&mut self, bid: &str) -> Result<bool>;

    /// Removes the batch `bid` if it is still open; `None`: all open ones (1,000 at once) whose owner is gone, or
    /// that were opened a day ago. Their jobs run and belong to no batch. Returns what was removed: id,
    /// description and number of jobs.
    fn remove_open(&mut self, bid: Option<&str>) -> Result<Vec<BatchStatus>>;

    /// The counts of a batch; `None` when it is unknown or has expired.
    fn batch(&mut self, bid: &str) -> Result<Option<BatchStatus>>;

    /// Batches that have not succeeded, `max` at most, the latest ones first where all are known. For people: it may
    /// read many keys, and then stops at a bound.
    fn batches(&mut self, _max: usize) -> Result<Vec<BatchStatus>> {
        Ok(vec![])
    }

    /// Whether the store can be used, at little cost.
    fn probe(&mut self) -> Result<()> {
        self.stats().map(drop)
    }

    /// Counters and sizes.
    fn stats(&mut self) -> Result<Stats>;

    /// Sets the counter `processed` or `failed` of [`Stats`] to 0.
    fn reset_counter(&mut self, name: &str) -> Result<()>;

    /// The counts (processed, failed) of days, `YYYY-MM-DD`. Only Redis keeps them.
    fn daily_counts(&mut self, days: &[String]) -> Result<Vec<(u64, u64)>> {
        Ok(vec![(0, 0); days.len()])
    }

    /// All queues that ever were, with size, latency and pause.
    fn queues(&mut self) -> Result<Vec<QueueStatus>>;

    /// The processes whose lease has not expired.
    fn processes(&mut self) -> Result<Vec<ProcessStatus>>;

    /// A page of a queue, the next job to be claimed first, or of a set, lowest
    /// score first (the dead set: newest first).
    fn list(&mut self, from: &JobLocation, offset: usize, count: usize) -> Result<Vec<JobEntry>>;

    /// Finds a job by its jid. Reads every set and queue: slow on long queues.
    fn find(&mut self, jid: &str) -> Result<Option<(JobLocation, JobEntry)>>;

    /// Removes one entry; `false` when it is no longer there. Its lock is
    /// released, and its batch counts it as dead.
    fn remove(&mut self, from: &JobLocation, entry: &JobEntry) -> Result<bool>;

    /// Moves one entry to the back of its queue; `false` when it is gone. As in
    /// Sidekiq, `retry_count` is reduced by one for an entry of the retry set.
    /// An entry that is no document with a queue is refused and stays.
    fn enqueue_entry(&mut self, from: &JobLocation, entry: &JobEntry, now_s: f64) -> Result<bool>;

    /// Moves one entry to the dead set; `false` when it is gone. Its lock is
    /// released, and its batch counts it as dead.
    fn kill(&mut self, from: &JobLocation, entry: &JobEntry, now_s: f64) -> Result<bool>;

    /// Adds a job to a set; `at` is when it is due, or when it died. Nothing else counts it. A queue is refused.
    fn add_entry(&mut self, to: &JobLocation, at: f64, payload: &[u8]) -> Result<()>;

    /// Gives an entry of a set another time; `false` when it is gone. A queue is refused.
    fn reschedule_entry(&mut self, from: &JobLocation, entry: &JobEntry, at: f64) -> Result<bool>;

    /// Removes up to `max` entries (0: all); returns how many.
    fn clear(&mut self, from: &JobLocation, max: usize) -> Result<usize>;

    /// Leaves a signal (TSTP, TERM, TTIN) for a process's next heartbeat.
    fn signal(&mut self, identity: &str, signal: &str) -> Result<()>;

    /// What is wrong with the settings of the server, as its last connection found them.
    fn warning(&self) -> Option<String> {
        None
    }

    /// How an application stores jobs in transactions of its own; `None` where it cannot.
    fn own_transactions(&mut self) -> Option<&mut dyn OwnTransactions> {
        None
    }

    /// The records that wait for a log; `None`: this store keeps none.
    fn outbox(&mut self) -> Result<Option<OutboxStatus>> {
        Ok(None)
    }

    /// What a person should know about the server: missing rights, settings that hurt. Asked by `chaton check`.
    fn advice(&mut self) -> Result<Vec<String>> {
        Ok(vec![])
    }

    /// Makes the tables, or brings them up to date; returns their version.
    fn migrate(&mut self) -> Result<i64> {
        Err(StoreError::refused("migrate: only a store in PostgreSQL has tables to make"))
    }

    /// Gives the space of removed jobs back to the disk; returns the bytes of the file before and after. It
    /// refuses what would take long, unless `force` is set.
    fn vacuum(&mut self, _force: bool) -> Result<(u64, u64)> {
        Err(StoreError::refused("vacuum: the store keeps its jobs in no file that could shrink"))
    }

    /// Copies the store into a file and calls `progress(pages done, pages)` on
    /// the way. Stores that have a tool of their own refuse and name it.
    fn backup(&mut self, path: &str, progress: &mut dyn FnMut(u64, u64)) -> Result<()>;
}

/// Waits until a store has something to do. Owned by one thread.
pub trait StoreWatch: Send {
    /// Returns what is there now and makes sure that a change after this moment
    /// ends the next [`StoreWatch::wait`].
    fn arm(&mut self, queues: &[Arc<str>]) -> Result<Availability>;

    /// Takes the turn to claim the jobs that [`StoreWatch::arm`] found. Many idle processes learn of a job at
    /// once: the first one claims it, the others wait until a claim has ended the turn, or `timeout` has.
    fn take_turn(&mut self, _timeout: Duration) -> Result<bool> {
        Ok(true)
    }

    /// Blocks until something changed since [`StoreWatch::arm`], the time is up, or
    /// [`Interrupt::interrupt`] was called, which also ends a wait that begins later.
    fn wait(&mut self, timeout: Duration) -> Result<StoreEvent>;

    /// How another thread ends a wait.
    fn interrupter(&self) -> Arc<dyn Interrupt>;
}

/// Ends a [`StoreWatch::wait`] from another thread.
pub trait Interrupt: Send + Sync {
    /// Ends the running wait, or the next one.
    fn interrupt(&self);
}

/// Opens connections to one store.
pub trait StoreFactory: Send + Sync {
    /// A new connection. It connects at its first call, and again at the call
    /// that follows a failure.
    fn store(&self) -> Box<dyn Store>;

    /// A watch with a connection of its own.
    fn watch(&self) -> Box<dyn StoreWatch>;

    /// The address, without its password.
    fn address(&self) -> &str;

    /// Starts a thread that hands what transactions of the application have stored by [`OwnTransactions::outbox`] to a
    /// log, while no other process does. Returns what stops it and waits for its end; `None`: there is no such thing in
    /// this store.
    ///
    /// # Errors
    /// When there is no thread.
    fn relay(&self, _outlet: Box<dyn Outlet>) -> Result<Option<Box<dyn FnOnce() + Send>>> {
        Ok(None)
    }
}

impl std::fmt::Debug for dyn StoreFactory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StoreFactory({})", self.address())
    }
}

/// What an application runs in a transaction of its own, on its own connection to the store's database, so that jobs
/// are stored by its COMMIT.
pub trait OwnTransactions {
    /// A query that has no parameters, and its answer on the store's own connection. A connection with another answer,
    /// or none, is to another database or may not store jobs.
    fn database(&mut self) -> Result<(&'static str, Option<String>)>;

    /// The statement that stores these jobs, without their locks and batches. Queues that are new are stored already:
    /// a row that others store, too, would make them wait for the application's transaction.
    fn push(&mut self, jobs: &[NewJob<'_>]) -> Result<String>;

    /// The same without a call to the server; `None`: a queue may be new.
    fn push_known(&self, jobs: &[NewJob<'_>]) -> Option<String>;

    /// The query that takes a lock. Its answer is NULL, or the job that holds it, which is empty if it is not known.
    fn lock(&self, lock: &NewLock<'_>) -> String;

    /// The query that ends a claimed job, as the transaction's last one. No row: the job is not that owner's any more,
    /// and the transaction has to be rolled back. The job is to be acknowledged after the COMMIT; whatever else becomes
    /// of it, its process's death or another outcome, is taken for that.
    fn end(&self, owner: &str, ticket: u64) -> String;

    /// Whether [`OwnTransactions::end`] was committed; waits for a transaction that is still open. `None`: the job
    /// is not the owner's any more.
    fn has_ended(&mut self, owner: &str, ticket: u64) -> Result<Option<bool>>;

    /// The statement that stores records for [`StoreFactory::relay`].
    ///
    /// # Errors
    /// `Refused` where there can be no relay.
    fn outbox(&self, records: &[OutboxRecord]) -> Result<String>;

    /// Wakes those that wait for jobs of these queues, or for rows of the outbox; after the COMMIT.
    fn announce(&mut self, queues: &[&str], outbox: bool) -> Result<()>;
}
