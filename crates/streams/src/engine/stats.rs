//! Statistics of the engine.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

macro_rules! totals {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        #[derive(Default)]
        pub(super) struct StreamCounters { $(pub $name: AtomicU64,)* }

        /// Counts since the start.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
        pub struct Totals { $($(#[$doc])* pub $name: u64,)* }

        impl StreamCounters {
            pub fn read(&self) -> Totals {
                Totals { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

totals! {
    /// Records that are done.
    records,
    /// Batches handed out.
    batches,
    /// Batches that failed and are retried.
    retries,
    /// Records written to a dead-letter topic.
    dead_letters,
    /// Times that a record ended one worker too many.
    poisoned,
    /// Records skipped because they had expired.
    expired,
    /// Offsets that were lost, or removed by retention, before the group has read them.
    skipped,
    /// Commits sent to the log.
    commits,
    /// Transactions committed.
    transactions,
    /// Times that partitions were assigned, revoked or lost.
    rebalances,
    /// Chunks fetched.
    fetches,
    /// Batches that the queue had no room for at first.
    refused,
    /// Times that a group was joined again after a fatal error.
    restarts,
    /// Times that a group's thread woke up.
    wakes,
}

/// The engine at one moment.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Stats {
    /// It no longer fetches.
    pub quiet: bool,
    /// Counts since the start.
    pub totals: Totals,
    /// Each group.
    pub groups: Vec<GroupStats>,
}

/// A group at one moment.
#[derive(Clone, Debug, Default, Serialize)]
pub struct GroupStats {
    /// Its name.
    pub name: String,
    /// It is joined.
    pub connected: bool,
    /// What the log complains about.
    pub trouble: Option<String>,
    /// The partitions assigned to this process.
    pub partitions: Vec<PartitionStats>,
}

/// A partition at one moment.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PartitionStats {
    /// Its topic.
    pub topic: String,
    /// Its number.
    pub partition: i32,
    /// What it does: `fetching`, `running`, `retrying`, `paused`, `delayed`,
    /// `throttled`, `dead_lettering`, `seeking`, `draining`, `revoked`, `stopped`.
    pub state: &'static str,
    /// The first offset that was not fetched; -1 before the first fetch of a group that has
    /// committed nothing.
    pub position: i64,
    /// The last committed offset; -1: none.
    pub committed: i64,
    /// The first offset that is not written yet, as last reported by the log; -1: unknown.
    pub end: i64,
    /// Records between the first one that is not done and the end; -1: unknown.
    pub lag: i64,
    /// Batches in flight.
    pub running: usize,
    /// Records that are fetched and not handed out.
    pub ready: usize,
    /// The highest attempt among its key lanes.
    pub attempt: u32,
    /// Time until the next retry, in ms; 0: none.
    pub retry_in_ms: u64,
    /// It has stopped because the records from the first up to and without the second offset are
    /// gone.
    pub missing: Option<(i64, i64)>,
}
