//! What clients make a worker hold: answers that they do not take, and bodies that they do not end.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::task::Waker;

use rustix::process::{getrlimit, Resource};

use crate::config::Config;
use crate::limits::BudgetLimits;

/// A file of the spool counts as at least so much, however many descriptors the process may have.
const FILE_BYTES_MIN: u64 = 64 * 1024;
/// The part of the process's descriptors that files of the spool may take, as 1/n: the rest is for
/// connections, which have three quarters, and the application.
const DESCRIPTORS_PART: u64 = 8;
/// Less than this stays in memory: a file would not save much more than it costs.
pub(crate) const SPOOLED_BYTES_MIN: usize = 16 * 1024;

/// The budget of a worker.
pub(crate) struct Budget {
    config: Arc<Config>,
    limits: BudgetLimits,
    file_bytes_min: u64,
    memory: AtomicU64,
    spooled: AtomicU64,
    /// Requests and answers for which there was no room.
    refused: AtomicU64,
}

impl Budget {
    pub fn new(config: Arc<Config>) -> Self {
        let (mut limits, bodies) = (config.budget, config.limits.body_bytes_max.saturating_mul(4));
        limits.spool_bytes_max = limits.spool_bytes_max.max(bodies);
        let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let files = (descriptors / DESCRIPTORS_PART).max(1);
        let file_bytes_min = FILE_BYTES_MIN.max(limits.spool_bytes_max / files);
        let (memory, spooled) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { config, limits, file_bytes_min, memory, spooled, refused: AtomicU64::new(0) }
    }

    /// Bytes in memory, bytes in files, and how many had no room.
    pub fn totals(&self) -> (u64, u64, u64) {
        (self.memory.load(Relaxed), self.spooled.load(Relaxed), self.refused.load(Relaxed))
    }

    pub fn limits(&self) -> &BudgetLimits {
        &self.limits
    }

    pub fn count_refused(&self) {
        self.refused.fetch_add(1, Relaxed);
        self.config.own_counters().inspect(|counters| _ = counters.no_room.fetch_add(1, Relaxed));
    }

    /// Shows other processes what is held.
    pub fn publish(&self) {
        if let Some(slot) = self.config.own_gauges() {
            slot.held_bytes.store(self.memory.load(Relaxed), Relaxed);
            slot.spooled_bytes.store(self.spooled.load(Relaxed), Relaxed);
        }
    }

    /// Whether answers and bodies should go to files.
    pub fn is_short(&self) -> bool {
        self.memory.load(Relaxed) >= self.limits.memory_bytes_max / 2
    }

    /// Whether memory is used up, so that small ones have no room either.
    pub fn is_full(&self) -> bool {
        self.memory.load(Relaxed) >= self.limits.memory_bytes_max
    }
}

/// There is no room for an answer or a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoRoom;

/// The part of one connection.
pub(crate) struct ConnectionBudget {
    pub worker: Arc<Budget>,
    memory: AtomicU64,
    spooled: AtomicU64,
    /// Of an HTTP/2 connection's task, which takes requests again when there is memory. A connection
    /// of HTTP/1 has one request at a time, and no bound but the worker's.
    waker: Option<Waker>,
}

impl ConnectionBudget {
    pub fn new(worker: &Arc<Budget>, waker: Option<Waker>) -> Arc<Self> {
        let (memory, spooled) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Self { worker: Arc::clone(worker), memory, spooled, waker })
    }

    /// Whether it holds all the memory it may.
    pub fn is_full(&self) -> bool {
        self.waker.is_some()
            && self.memory.load(Relaxed) >= self.worker.limits.connection_memory_bytes_max
    }

    /// Whether output and bodies should go to files at once.
    pub fn is_short(&self) -> bool {
        self.is_full() || self.worker.is_short()
    }

    /// Whether so many bytes more fit into files; the connection then has no more than is free.
    pub fn can_spool(&self, bytes: u64) -> bool {
        let bytes = bytes.max(self.worker.file_bytes_min);
        let used = self.worker.spooled.load(Relaxed) + self.spooled.load(Relaxed);
        bytes <= self.worker.limits.spool_bytes_max.saturating_sub(used) / 2
    }
}

/// What one request or answer holds of a [`ConnectionBudget`]; dropped, it gives that back.
pub struct BudgetShare {
    budget: Arc<ConnectionBudget>,
    memory: u64,
    spooled: u64,
}

impl BudgetShare {
    pub(crate) fn new(budget: &Arc<ConnectionBudget>) -> Self {
        Self { budget: Arc::clone(budget), memory: 0, spooled: 0 }
    }

    pub(crate) fn budget(&self) -> &Arc<ConnectionBudget> {
        &self.budget
    }

    /// Whether it holds anything.
    pub(crate) fn is_charged(&self) -> bool {
        self.memory > 0 || self.spooled > 0
    }

    /// Holds so much from now on.
    pub(crate) fn set(&mut self, memory: usize, spooled: u64) {
        let memory = memory as u64;
        let file_bytes_min = self.budget.worker.file_bytes_min;
        let spooled = if spooled == 0 { 0 } else { spooled.max(file_bytes_min) };
        let (worker, connection) = (&self.budget.worker, &self.budget);
        if memory != self.memory {
            let (old, was_full) =
                (std::mem::replace(&mut self.memory, memory), connection.is_full());
            adjust(&worker.memory, old, memory);
            adjust(&connection.memory, old, memory);
            if was_full && !connection.is_full() {
                connection.waker.iter().for_each(Waker::wake_by_ref);
            }
        }
        if spooled != self.spooled {
            let old = std::mem::replace(&mut self.spooled, spooled);
            adjust(&worker.spooled, old, spooled);
            adjust(&connection.spooled, old, spooled);
        }
    }
}

/// The sum stays right whichever threads change it at the same time; a negative difference wraps.
fn adjust(sum: &AtomicU64, old: u64, new: u64) {
    sum.fetch_add(new.wrapping_sub(old), Relaxed);
}

impl Drop for BudgetShare {
    fn drop(&mut self) {
        self.set(0, 0);
    }
}

impl std::fmt::Debug for BudgetShare {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BudgetShare").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_has_as_much_of_the_spool_as_is_left() {
        let mut config = Config::for_tests(Vec::new());
        config.limits.body_bytes_max = 100 << 20;
        config.budget.spool_bytes_max = 0;
        let worker = Arc::new(Budget { file_bytes_min: 10, ..Budget::new(Arc::new(config)) });
        let connection = || ConnectionBudget::new(&worker, None);
        let (first, second) = (connection(), connection());
        let (mut one, mut two) = (BudgetShare::new(&first), BudgetShare::new(&second));
        assert!(first.can_spool(200 << 20) && !first.can_spool(201 << 20));
        one.set(0, 200 << 20);
        assert!(!first.can_spool(1) && second.can_spool(100 << 20) && !second.can_spool(101 << 20));
        two.set(7, 1);
        assert_eq!(worker.totals(), (7, (200 << 20) + 10, 0));
        drop((one, two));
        assert_eq!(worker.totals(), (0, 0, 0));
    }
}
