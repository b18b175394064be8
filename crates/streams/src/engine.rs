//! The engine: one thread per consumer group that polls its member for ever,
//! whatever user code does, and hands batches to a [`Sink`].

mod cell;
mod ending;
mod settings;
mod sink;
mod stats;
mod turn;

use std::sync::Arc;
use std::time::Duration;

use crate::log::{self, Log, Producer};

pub use ending::{Ending, Kind, Outcome, Verdict};
pub use settings::{EngineSettings, GroupRoutes, Order, RouteSettings, Throttle};
pub use sink::Sink;
pub use stats::{GroupStats, PartitionStats, Stats, Totals};
pub use turn::Turn;

/// Makes the producer, or gives the one that the process has.
pub type ProducerMaker = Arc<dyn Fn() -> log::Result<Arc<dyn Producer>> + Send + Sync>;

/// What an engine works with.
#[derive(Clone)]
pub struct Tools {
    /// Where the records are.
    pub log: Arc<dyn Log>,
    /// Writes dead letters; asked for when the first one is due.
    pub producer: ProducerMaker,
}

/// A running engine. Clones are the same engine.
#[derive(Clone)]
pub struct Engine {
    _sink: Arc<dyn Sink>,
}

impl Engine {
    /// Starts a thread per group. A log that cannot be reached now is tried
    /// again.
    ///
    /// # Errors
    /// `Invalid` for settings that contradict each other; no thread to be had.
    pub fn start(settings: EngineSettings, tools: Tools, sink: Arc<dyn Sink>) -> log::Result<Self> {
        let _ = (settings, tools);
        Ok(Self { _sink: sink })
    }

    /// Fetches no more. What no thread has taken is dropped uncommitted; after
    /// its last turn each partition is given [`Kind::Shutdown`].
    pub fn quiet(&self) {}

    /// Waits until no turn is out and every ending is committed; false when
    /// time is up or [`Engine::interrupt_wait`] was called.
    pub fn wait_idle(&self, _timeout: Duration) -> bool {
        true
    }

    /// Ends a [`Engine::wait_idle`] early.
    pub fn interrupt_wait(&self) {}

    /// What still runs is revoked: its marks and its end are dropped. Answers
    /// how many turns that were.
    pub fn give_up(&self) -> usize {
        0
    }

    /// Commits, leaves the groups and joins the threads; what still runs is
    /// given up. Bounded in time.
    pub fn stop(&self) {}

    /// The engine now.
    pub fn stats(&self) -> Stats {
        Stats::default()
    }
}
