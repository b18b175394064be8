//! What the scheduler can see of the pool threads.
//!
//! CRuby 3.3 and later report which thread holds the GVL and which ones want it
//! ([`crate::pool::gvl_activity`]). On older ones the threads' CPU clocks are read from
//! outside ([`crate::pool::clock_activity`]).

use std::sync::Arc;

use crate::pool::policy::{Decision, Facts};
use crate::pool::state::PoolState;
use crate::pool::thread_record::ThreadRecord;

/// A requested thread is expected to take work within this time (ns).
pub const ARRIVAL_NS: u64 = 1_000_000;

/// Observes the threads.
pub(crate) trait Activity: Send {
    /// Fills in the facts about running and blocked threads, and returns the one that
    /// runs.
    fn observe(
        &mut self,
        state: &PoolState,
        facts: &mut Facts,
        now_ns: u64,
    ) -> Option<Arc<ThreadRecord>>;

    /// Time in ns until the next observation, when nothing notifies the scheduler sooner.
    /// `takes` is the number of units of work taken since the last one.
    fn pause_ns(&mut self, facts: &Facts, decision: &Decision, takes: u64) -> u64;
}
