//! What the engine tells of itself.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

macro_rules! totals {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        #[derive(Default)]
        pub(super) struct Counters { $(pub $name: AtomicU64,)* }

        /// Counted since the start.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
        pub struct Totals { $($(#[$doc])* pub $name: u64,)* }

        impl Counters {
            pub fn read(&self) -> Totals {
                Totals { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

totals! {
    /// Records handed out and done.
    records,
    /// Batches handed out.
    batches,
    /// Batches that failed and were to be tried again.
    retries,
    /// Records written to a dead-letter topic.
    dead_letters,
    /// Records too old to be handed out.
    expired,
    /// Commits said to the log.
    commits,
    /// Transactions committed.
    transactions,
    /// Times a member got or gave partitions.
    rebalances,
    /// Chunks fetched.
    fetches,
    /// Turns that the sink had no room for at first.
    refused,
    /// Members made anew after they could not go on.
    restarts,
    /// Times a group's thread woke.
    wakes,
}

/// The engine at one moment.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Stats {
    /// It fetches no more.
    pub quiet: bool,
    /// Counters.
    pub totals: Totals,
    /// Each group.
    pub groups: Vec<GroupStats>,
}

/// A group at one moment.
#[derive(Clone, Debug, Default, Serialize)]
pub struct GroupStats {
    /// Its name.
    pub name: String,
    /// Its member takes part.
    pub connected: bool,
    /// What is wrong.
    pub trouble: Option<String>,
    /// What its member has got.
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
    /// `throttled`, `dead_lettering`, `seeking`, `draining`, `revoked`.
    pub state: &'static str,
    /// The first offset that has not been fetched; -1 before the first fetch
    /// where the group has committed nothing.
    pub position: i64,
    /// How far the group has come, as last committed; -1: nowhere.
    pub committed: i64,
    /// The first offset not written yet, as last heard; -1 before that.
    pub end: i64,
    /// Records between what is done and the end; -1 while that is not known.
    pub lag: i64,
    /// Turns that are out.
    pub running: usize,
    /// Records fetched and not handed out.
    pub ready: usize,
    /// The highest attempt among its strands.
    pub attempt: u32,
    /// When it tries again, in ms; 0: it does not wait.
    pub retry_in_ms: u64,
}
