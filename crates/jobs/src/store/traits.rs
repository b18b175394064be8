//! What every store does: the traits that SQLite and Redis implement.

use std::sync::Arc;
use std::time::Duration;

use chaton_core::outbox::{Outlet, OwnedRecord};

use super::types::*;
use super::StoreError;
use crate::outcome::Ack;

/// Result of a store's call.
pub type Result<T> = std::result::Result<T, StoreError>;

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
    fn prepare(&mut self) -> Result<()> {
        Err(no_common_file())
    }

    /// Asks the limiters of claimed jobs. Each request is granted for all the
    /// limits it names or for none.
    fn acquire(
        &mut self,
        owner: &str,
        requests: &[LimitRequest<'_>],
        now_s: f64,
    ) -> Result<Vec<Grant>>;

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

    /// Answers what is asked beside the way of a job.
    fn query(&mut self, query: Query<'_>) -> Result<Answer>;

    /// Does what is told beside the way of a job.
    fn change(&mut self, change: Change<'_>) -> Result<Answer>;

    /// What is wrong with the settings of the server, as its last connection found them.
    fn warning(&self) -> Option<String> {
        None
    }

    /// How an application stores jobs in transactions of its own; `None` where it cannot.
    fn own_transactions(&mut self) -> Option<&mut dyn OwnTransactions> {
        None
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
    fn outbox(&self, records: &[OwnedRecord]) -> Result<String>;

    /// Wakes those that wait for jobs of these queues, or for rows of the outbox; after the COMMIT.
    fn announce(&mut self, queues: &[&str], outbox: bool) -> Result<()>;
}

/// Defines the answers, one for each type.
macro_rules! answers {
    ($($name:ident($type:ty),)*) => {
        /// What a store answers.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Answer {
            $(#[doc = concat!("`", stringify!($type), "`")] $name($type),)*
        }

        $(impl From<$type> for Answer {
            fn from(answer: $type) -> Self {
                Self::$name(answer)
            }
        }

        impl TryFrom<Answer> for $type {
            type Error = StoreError;

            fn try_from(answer: Answer) -> Result<Self> {
                match answer {
                    Answer::$name(answer) => Ok(answer),
                    other => Err(StoreError::refused(format!("{other:?} is another answer"))),
                }
            }
        })*
    };
}

answers! {
    Done(()),
    Yes(bool),
    Count(usize),
    Version(i64),
    Bytes((u64, u64)),
    Stats(Stats),
    Days(Vec<(u64, u64)>),
    Texts(Vec<String>),
    Owners(Vec<OwnerStatus>),
    Claimed(Vec<ClaimedJob>),
    Each(Vec<bool>),
    Fields(Vec<(String, Vec<u8>)>),
    Batch(Option<BatchStatus>),
    Batches(Vec<BatchStatus>),
    Queues(Vec<QueueStatus>),
    Processes(Vec<ProcessStatus>),
    Entries(Vec<JobEntry>),
    Found(Option<(JobLocation, JobEntry)>),
    Outbox(Option<OutboxStatus>),
}

/// Defines operations: `method, Name(argument: type, …) -> answer;`.
macro_rules! operations {
    (
        $(#[$attribute:meta])* $kind:ident, $call:ident {
            $($(#[$doc:meta])* $method:ident, $name:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug)]
        pub enum $kind<'a> {
            $($(#[$doc])* $name($($type),*),)*
        }

        impl dyn Store + '_ {
            $($(#[$doc])*
            ///
            /// # Errors
            /// Those of the store.
            #[allow(clippy::extra_unused_lifetimes)] // some have no references
            pub fn $method<'a>(&mut self, $($argument: $type),*) -> Result<$answer> {
                self.$call($kind::$name($($argument),*))?.try_into()
            })*
        }
    };
}

operations! {
    /// What a store is asked.
    Query, query {
        /// Every known owner, alive or dead, with the age of its last heartbeat by the store's own clock.
        owners, Owners() -> Vec<OwnerStatus>;
        /// The descriptions (JSON, as [`ProcessReport::info`]) of living processes that are no owners: Sidekiq's.
        sidekiq_processes, SidekiqProcesses() -> Vec<String>;
        /// The jobs that an owner has in flight, lowest ticket first.
        in_flight, InFlight(owner: &'a str) -> Vec<ClaimedJob>;
        /// Which of these jobs were cancelled.
        cancelled, Cancelled(jids: &'a [&'a str]) -> Vec<bool>;
        /// The fields of a small hash (`it-JID`: the cursor of an iterable job).
        load, Load(key: &'a str) -> Vec<(String, Vec<u8>)>;
        /// The counts of a batch; `None` when it is unknown or has expired.
        batch, Batch(bid: &'a str) -> Option<BatchStatus>;
        /// Batches that have not succeeded, so many at most, the latest ones first where all are known. For people: it
        /// may read many keys, and then stops at a bound.
        batches, Batches(max: usize) -> Vec<BatchStatus>;
        /// Whether the store can be used, at little cost.
        probe, Probe() -> ();
        /// Counters and sizes.
        stats, Stats() -> Stats;
        /// The counts (processed, failed) of days, `YYYY-MM-DD`. Only Redis keeps them.
        daily_counts, DailyCounts(days: &'a [String]) -> Vec<(u64, u64)>;
        /// All queues that ever were, with size, latency and pause.
        queues, Queues() -> Vec<QueueStatus>;
        /// The processes whose lease has not expired.
        processes, Processes() -> Vec<ProcessStatus>;
        /// A page of a queue, the next job to be claimed first, or of a set, lowest score first (the dead set: newest
        /// first): the place, how many are left out, and how many are wanted.
        list, List(from: &'a JobLocation, offset: usize, count: usize) -> Vec<JobEntry>;
        /// Finds a job by its jid. Reads every set and queue: slow on long queues.
        find, Find(jid: &'a str) -> Option<(JobLocation, JobEntry)>;
        /// The records that wait for a log; `None`: this store keeps none.
        outbox, Outbox() -> Option<OutboxStatus>;
        /// What a person should know about the server: missing rights, settings that hurt. Asked by `chaton check`.
        advice, Advice() -> Vec<String>;
    }
}

operations! {
    /// What a store is told.
    Change, change {
        /// Releases locks of unique jobs.
        unlock, Unlock(locks: &'a [HeldLock<'a>]) -> ();
        /// Forgets an owner after a clean exit or its recovery. Returns `false` and does nothing while the owner has
        /// jobs in flight.
        forget, Forget(owner: &'a str) -> bool;
        /// Pauses or resumes a queue.
        pause, Pause(queue: &'a str, paused: bool) -> ();
        /// Asks a job, running or not, to end cooperatively. Kept for a day.
        cancel, Cancel(jid: &'a str) -> ();
        /// Writes fields of a small hash, which then lives for so long.
        save, Save(key: &'a str, fields: &'a [(&'a str, &'a [u8])], ttl: Duration) -> ();
        /// Removes a small hash.
        remove_hash, RemoveHash(key: &'a str) -> ();
        /// Opens a batch, or replaces the callbacks of one that is still open.
        batch_open, BatchOpen(batch: &'a NewBatch<'a>) -> ();
        /// Closes a batch: all its jobs are pushed, its callbacks may fire, and from now on its parent waits for it.
        /// `false` when it is unknown, which may mean that [`Change::RemoveOpen`] has removed it.
        batch_close, BatchClose(bid: &'a str) -> bool;
        /// Removes this batch if it is still open; `None`: all open ones (1,000 at once) whose owner is gone, or
        /// that were opened a day ago. Their jobs run and belong to no batch. Returns what was removed: id,
        /// description and number of jobs.
        remove_open, RemoveOpen(bid: Option<&'a str>) -> Vec<BatchStatus>;
        /// Sets the counter `processed` or `failed` of [`Stats`] to 0.
        reset_counter, ResetCounter(name: &'a str) -> ();
        /// Removes one entry; `false` when it is no longer there. Its lock is released, and its batch counts it as
        /// dead.
        remove, Remove(from: &'a JobLocation, entry: &'a JobEntry) -> bool;
        /// Moves one entry to the back of its queue; `false` when it is gone. As in Sidekiq, `retry_count` is reduced
        /// by one for an entry of the retry set. An entry that is no document with a queue is refused and stays.
        enqueue_entry, Enqueue(from: &'a JobLocation, entry: &'a JobEntry, now_s: f64) -> bool;
        /// Moves one entry to the dead set; `false` when it is gone. Its lock is released, and its batch counts it as
        /// dead.
        kill, Kill(from: &'a JobLocation, entry: &'a JobEntry, now_s: f64) -> bool;
        /// Adds a job to a set; the time is when it is due, or when it died. Nothing else counts it. A queue is refused.
        add_entry, Add(to: &'a JobLocation, at: f64, payload: &'a [u8]) -> ();
        /// Gives an entry of a set another time; `false` when it is gone. A queue is refused.
        reschedule_entry, Reschedule(from: &'a JobLocation, entry: &'a JobEntry, at: f64) -> bool;
        /// Removes up to so many entries (0: all); returns how many.
        clear, Clear(from: &'a JobLocation, max: usize) -> usize;
        /// Leaves a signal (TSTP, TERM, TTIN) for a process's next heartbeat.
        signal, Signal(identity: &'a str, signal: &'a str) -> ();
        /// Makes the tables, or brings them up to date; returns their version.
        migrate, Migrate() -> i64;
        /// Gives the space of removed jobs back to the disk; returns the bytes of the file before and after. It
        /// refuses what would take long, unless it is forced.
        vacuum, Vacuum(force: bool) -> (u64, u64);
    }
}

impl dyn Store + '_ {
    /// Acknowledges jobs; returns how many entries were gone.
    ///
    /// # Errors
    /// Those of the store.
    pub fn ack(&mut self, owner: &str, acks: &[crate::outcome::Ack]) -> Result<usize> {
        Ok(self.ack_and_claim(owner, acks, None)?.fenced)
    }

    /// Claims jobs.
    ///
    /// # Errors
    /// Those of the store.
    pub fn claim(&mut self, owner: &str, request: &ClaimRequest<'_>) -> Result<ClaimReply> {
        self.ack_and_claim(owner, &[], Some(request))
    }
}

/// What a store without tables of its own says.
pub(super) fn no_tables<T>() -> Result<T> {
    Err(StoreError::refused("migrate: only a store in PostgreSQL has tables to make"))
}

/// What a store without a file says.
pub(super) fn no_file<T>() -> Result<T> {
    Err(StoreError::refused("vacuum: the store keeps its jobs in no file that could shrink"))
}

/// Entries removed in one transaction.
const CLEAR_STEP: usize = 1000;

/// Removes up to `max` entries (0: all) in steps, so that other writers are not held up; returns how many.
pub(super) fn in_steps(
    max: usize,
    mut remove: impl FnMut(usize) -> Result<usize>,
) -> Result<usize> {
    let max = if max == 0 { usize::MAX } else { max };
    let mut cleared = 0;
    loop {
        let step = CLEAR_STEP.min(max - cleared);
        let gone = remove(step)?;
        cleared += gone;
        if gone < step || cleared >= max {
            return Ok(cleared);
        }
    }
}
