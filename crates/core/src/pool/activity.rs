//! What the scheduler can see of the pool threads.
//!
//! CRuby 3.3 and later report which thread holds the GVL and which ones want it
//! ([`crate::pool::gvl_activity`]). On older ones the threads' CPU clocks are read from
//! outside ([`crate::pool::clock_activity`]).

use std::sync::Arc;

use crate::pool::policy::{Decision, Facts};
use crate::pool::thread_record::ThreadRecord;

/// A requested thread is expected to take work within this time (ns).
pub const ARRIVAL_NS: u64 = 1_000_000;

/// What the threads do at one moment.
#[derive(Clone, Default)]
pub struct Reading {
    /// Time in ns for which no pool thread has held or wanted the GVL; 0 while one does.
    pub blocked_ns: u64,
    /// The thread that runs.
    pub runner: Option<Arc<ThreadRecord>>,
    /// Whether a thread outside the pool wants the GVL.
    pub outsider_waiting: bool,
}

/// Reads the threads. It also keeps [`ThreadRecord::used_ns`] of the threads that hold
/// work up to date.
pub trait Activity: Send {
    /// Reads them now.
    fn read(
        &mut self,
        threads: &[Option<Arc<ThreadRecord>>],
        facts: &Facts,
        now_ns: u64,
    ) -> Reading;

    /// Whether threads were woken or requested and have not taken work yet. Until they
    /// have, the pool is not starved.
    fn on_their_way(&self, facts: &Facts, woken_ago_ns: u64) -> bool;

    /// CPU time in ns that the runner has used for its work since it last got the GVL
    /// or `since_ns` (of the clock), at most `quantum_ns`.
    fn turn_ns(
        &mut self,
        runner: &ThreadRecord,
        since_ns: u64,
        quantum_ns: u64,
        now_ns: u64,
    ) -> u64;

    /// Whether an awake thread will end its work soon, because that has used less than
    /// the quantum so far.
    fn one_is_quick(
        &self,
        threads: &[Option<Arc<ThreadRecord>>],
        facts: &Facts,
        quantum_ns: u64,
        now_ns: u64,
    ) -> bool;

    /// Time in ns until the next reading, when nothing notifies the scheduler sooner.
    /// `due_ns` is the time until the quantum of the running work is used up.
    fn pause_ns(&mut self, facts: &Facts, decision: &Decision, takes: u64, due_ns: u64) -> u64;
}
