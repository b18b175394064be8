//! Where jobs live: the trait that every store keeps, and what goes in and out.
//!
//! A claimed job is named by its owner (`HOST:PID:NONCE`) and a *ticket*, a
//! number that its owner gave it. Every later step names both and is a no-op
//! when that in-flight entry is gone: so an owner that was taken for dead
//! cannot undo what its successor did. That is the fence.
//!
//! All calls block the calling thread; none starts a thread.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

#[cfg(test)]
pub mod conformance;
pub mod memory;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "sqlite")]
pub mod sqlite;

mod error;
mod options;
mod types;

pub use crate::limit::{Limit, LimitRule};
pub use crate::outcome::{Ack, BatchEvent, BatchUpdate, Outcome, SideEffects};
pub use error::{Kind, StoreError};
pub use options::StoreOptions;
pub use types::*;

/// Result of a store's call.
pub type Result<T> = std::result::Result<T, StoreError>;

/// One connection to the place where jobs live. Not shared between threads:
/// each user opens its own by [`Kit::store`].
pub trait Store: Send {
    /// Appends jobs to their queues, or to the schedule when they have a time.
    /// All of one call or none is stored, locks apart: a job whose lock is held
    /// by another jid is left out and the holder's jid is its answer. Jobs of a batch count
    /// as pending in it.
    fn push(&mut self, jobs: &[NewJob<'_>]) -> Result<Vec<Pushed>>;

    /// Pushes the job unless `key` was used within `ttl`: for a cron tick, once
    /// across all processes. Answers whether this call pushed it.
    fn push_once(&mut self, key: &str, ttl: Duration, job: &NewJob<'_>) -> Result<bool>;

    /// Settles what has ended and claims what comes next, in one round trip.
    /// Claimed jobs are moved atomically into the owner's in-flight set, the
    /// first one under ticket `want.first_ticket`, the next under the one
    /// after it; an owner never uses a ticket twice. Paused queues give nothing. Settles of entries that are gone
    /// do nothing and are counted in [`Turn::fenced`].
    fn turn(&mut self, owner: &str, settles: &[Ack], want: Option<&Want<'_>>) -> Result<Turn>;

    /// Asks the limiters of claimed jobs, each all-or-nothing for the limits
    /// it names: granted, or when to ask again.
    fn acquire(&mut self, owner: &str, asks: &[Ask<'_>], now_s: f64) -> Result<Vec<Grant>>;

    /// Gives up the locks (unique jobs) that hold until a job starts.
    fn unlock(&mut self, locks: &[Held<'_>]) -> Result<()>;

    /// Moves due jobs, at most `max`, from the retry set and the schedule to
    /// the queue that each document names, `enqueued_at` stamped anew.
    /// Members that are no JSON object with a queue go to the dead set whole.
    fn move_due(&mut self, now_s: f64, max: usize) -> Result<Due>;

    /// The same into the in-flight set of `owner`, for client middleware to
    /// run before they are pushed. [`Turn::fenced`] is not used.
    fn claim_due(
        &mut self,
        owner: &str,
        first_ticket: u64,
        now_s: f64,
        max: usize,
    ) -> Result<(Vec<Claimed>, Due)>;

    /// A sign of life; writes what Sidekiq's API and UI show of a process.
    fn beat(&mut self, beat: &Beat<'_>) -> Result<Beaten>;

    /// Every owner that is known, living or dead, with the age of its last
    /// beat by the store's own clock.
    fn owners(&mut self) -> Result<Vec<OwnerSeen>>;

    /// What an owner has in flight, oldest ticket first.
    fn in_flight(&mut self, owner: &str) -> Result<Vec<Claimed>>;

    /// Forgets an owner (clean exit, or recovered). Refused (`false`) while
    /// it has jobs in flight.
    fn forget(&mut self, owner: &str) -> Result<bool>;

    /// Stops or resumes the claims of a queue.
    fn pause(&mut self, queue: &str, paused: bool) -> Result<()>;

    /// Asks for the cooperative end of a job, running or not; kept a day.
    fn cancel(&mut self, jid: &str) -> Result<()>;

    /// Which of these jobs were asked to end.
    fn cancelled(&mut self, jids: &[&str]) -> Result<Vec<bool>>;

    /// The fields of a small hash (`it-JID`: the cursor of an iterable job).
    fn load(&mut self, key: &str) -> Result<Vec<(String, Vec<u8>)>>;

    /// Writes fields of a small hash, which then lives for `ttl`.
    fn save(&mut self, key: &str, fields: &[(&str, &[u8])], ttl: Duration) -> Result<()>;

    /// Removes a small hash.
    fn remove_hash(&mut self, key: &str) -> Result<()>;

    /// Makes a batch, or replaces the callbacks of an open one.
    fn batch_open(&mut self, batch: &NewBatch<'_>) -> Result<()>;

    /// All jobs of the batch are pushed: callbacks may fire from now on.
    fn batch_close(&mut self, bid: &str) -> Result<()>;

    /// The counts of a batch; `None` when it is unknown or over for long.
    fn batch(&mut self, bid: &str) -> Result<Option<BatchStatus>>;

    /// Counters and sizes.
    fn stats(&mut self) -> Result<Stats>;

    /// All queues that ever were, with size, latency and pause.
    fn queues(&mut self) -> Result<Vec<QueueSeen>>;

    /// The living processes, as they described themselves.
    fn processes(&mut self) -> Result<Vec<ProcessSeen>>;

    /// A page of a place: a queue from its front (next to be claimed first),
    /// a set by score ascending (dead: newest first).
    fn list(&mut self, place: &Place, offset: usize, count: usize) -> Result<Vec<Entry>>;

    /// Where a job is. Looks at every place in turn: slow on long queues.
    fn find(&mut self, jid: &str) -> Result<Option<(Place, Entry)>>;

    /// Removes one entry; `false` when it is no longer there. Its lock is
    /// freed, and its batch told (as a death).
    fn remove(&mut self, place: &Place, entry: &Entry) -> Result<bool>;

    /// Moves one entry to the back of its queue now (`retry_count` less one
    /// from the retry set, as Sidekiq does); `false` when it is gone. What is no
    /// document has no queue to go to: refused, and left where it is.
    fn requeue(&mut self, place: &Place, entry: &Entry, now_s: f64) -> Result<bool>;

    /// Moves one entry to the dead set; `false` when it is gone. Its lock is
    /// freed, and its batch told (as a death).
    fn kill(&mut self, place: &Place, entry: &Entry, now_s: f64) -> Result<bool>;

    /// Removes up to `max` entries of a place; answers how many. 0: empty.
    fn clear(&mut self, place: &Place, max: usize) -> Result<usize>;

    /// Leaves a signal (TSTP, TERM, TTIN) for a process to find at its beat.
    fn signal(&mut self, identity: &str, signal: &str) -> Result<()>;

    /// Copies the store into a file, `(pages done, pages)` told on the way.
    /// Stores that have a tool of their own refuse and name it.
    fn backup(&mut self, path: &str, progress: &mut dyn FnMut(u64, u64)) -> Result<()>;
}

/// Waits for something to do. Owned by one thread.
pub trait Watch: Send {
    /// Says what is there now and makes sure that a change after this moment
    /// ends the next [`Watch::wait`].
    fn arm(&mut self, queues: &[Arc<str>]) -> Result<Armed>;

    /// Blocks until something changed since [`Watch::arm`], the time is up, or
    /// [`Interrupt::interrupt`] was called (kept when nobody waits).
    fn wait(&mut self, timeout: Duration) -> Result<Event>;

    /// How another thread ends a wait.
    fn interrupter(&self) -> Arc<dyn Interrupt>;
}

/// Ends a [`Watch::wait`] from another thread.
pub trait Interrupt: Send + Sync {
    /// Ends the wait that runs, or the next one.
    fn interrupt(&self);
}

/// Opens connections to one place.
pub trait Kit: Send + Sync {
    /// A connection of its own, not yet made: the first call connects, and a
    /// call after a failure connects again.
    fn store(&self) -> Box<dyn Store>;

    /// A watcher with a connection of its own.
    fn watch(&self) -> Box<dyn Watch>;

    /// The address, without its password.
    fn address(&self) -> &str;
}

/// The kit for an address: `memory://NAME`, `sqlite://PATH`,
/// `redis://…`, `rediss://…`, `unix://PATH?db=N` (a Redis socket).
///
/// # Errors
/// [`Kind::Refused`] naming what is wrong with the address or an option.
pub fn open(options: &StoreOptions) -> Result<Arc<dyn Kit>> {
    let scheme = options.url.split(':').next().unwrap_or_default();
    match scheme {
        "memory" => memory::kit(options),
        #[cfg(feature = "sqlite")]
        "sqlite" => sqlite::kit(options),
        #[cfg(feature = "redis")]
        "redis" | "rediss" | "unix" => redis::kit(options),
        _ => Err(StoreError::refused(format!(
            "store {:?}: unknown kind; use sqlite://PATH, redis://HOST:PORT/DB, rediss:// or unix://PATH",
            fmt_address(&options.url)
        ))),
    }
}

/// An address fit for a log: the password left out.
pub fn fmt_address(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_string() };
    match rest.rsplit_once('@') {
        Some((_, place)) => format!("{scheme}://***@{place}"),
        None => url.to_string(),
    }
}

impl fmt::Debug for dyn Kit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kit({})", self.address())
    }
}
