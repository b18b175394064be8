//! One Ruby thread of the pool, as Rust sees it.

use std::sync::Arc;

use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use crate::sync::{Mutex, Unparker};
use crate::thread_probe::ThreadProbe;
use crate::work::{Role, Running, Work};

/// One thread. Shared by the thread itself, the pool and the scheduler.
pub struct ThreadRecord {
    /// Index in the pool's list, also the thread's name in logs.
    pub index: usize,
    /// Reads the thread from outside.
    pub probe: ThreadProbe,
    /// Ends the thread's wait. A wake before the wait is kept.
    pub unparker: Unparker,
    /// The work it runs now, and since when (ns of the clock).
    pub current: Mutex<Option<(Arc<dyn Work>, u64)>>,
    /// Since when it runs its work (ns of the clock); 0 while it runs none.
    pub work_since_ns: AtomicU64,
    /// CRuby 3.3 and later: how long it held the GVL for its work, until it last gave it
    /// up (ns).
    pub used_ns: AtomicU64,
    /// CRuby 3.3 and later: whether it holds or wants the GVL.
    pub can_run: AtomicBool,
    /// CRuby 3.3 and later: since when it holds the GVL (ns of the clock); 0 while it does
    /// not.
    pub held_since_ns: AtomicU64,
    /// CRuby 3.3 and later: when it last gave the GVL up (ns of the clock).
    pub released_ns: AtomicU64,
    /// CRuby 3.3 and later, where [`GvlCounts`](super::gvl_activity::GvlCounts) times waits: since when it
    /// waits for the GVL (ns of the clock); 0 while it does not.
    pub ready_since_ns: AtomicU64,
    /// The same: how long its work has waited for the GVL (ns).
    pub gvl_wait_ns: AtomicU64,
    /// Its CPU clock when the time of its work was last read, before the work that it runs (ns).
    pub metered_ns: AtomicU64,
    /// By how much the width has grown for jobs or batches that began beside the work that it runs.
    pub places: AtomicUsize,
    /// CRuby 3.3 and later: the core to which it is bound, if it is.
    pub(crate) core: Mutex<Option<usize>>,
    /// The same: how often it has given up the GVL, and its CPU clock then, if that was read (ns); else 0.
    pub(crate) suspensions: AtomicU64,
    pub(crate) apart_since_ns: AtomicU64,
    /// The same: since when it was without the GVL when the scheduler last looked at it (ns of the clock), and its CPU clock at
    /// the first look of that time (ns).
    pub(crate) away_since_ns: AtomicU64,
    pub(crate) away_cpu_ns: AtomicU64,
    /// Before CRuby 3.3: its CPU clock when the scheduler last read it (ns).
    cpu_read_ns: AtomicU64,
}

impl ThreadRecord {
    /// A record of the calling thread.
    pub fn current(index: usize, unparker: Unparker) -> Self {
        Self {
            index,
            probe: ThreadProbe::current(),
            unparker,
            current: Mutex::new(None),
            work_since_ns: AtomicU64::new(0),
            used_ns: AtomicU64::new(0),
            can_run: AtomicBool::new(false),
            held_since_ns: AtomicU64::new(0),
            released_ns: AtomicU64::new(0),
            ready_since_ns: AtomicU64::new(0),
            gvl_wait_ns: AtomicU64::new(0),
            metered_ns: AtomicU64::new(0),
            places: AtomicUsize::new(0),
            core: Mutex::new(None),
            suspensions: AtomicU64::new(0),
            apart_since_ns: AtomicU64::new(0),
            away_since_ns: AtomicU64::new(0),
            away_cpu_ns: AtomicU64::new(0),
            cpu_read_ns: AtomicU64::new(0),
        }
    }

    /// Sets the work that the thread runs now, if any.
    pub fn run(&self, work: Option<(Arc<dyn Work>, u64)>) -> Option<(Arc<dyn Work>, u64)> {
        self.work_since_ns.store(work.as_ref().map_or(0, |(_, since)| *since), Relaxed);
        self.used_ns.store(0, Relaxed);
        self.gvl_wait_ns.store(0, Relaxed);
        std::mem::replace(&mut *self.current.lock(), work)
    }

    /// How long it has held the GVL for its work (ns); 0 while it does not.
    pub fn held_ns(&self, now_ns: u64) -> u64 {
        match self.held_since_ns.load(Relaxed) {
            0 => 0,
            since => now_ns.saturating_sub(since.max(self.work_since_ns.load(Relaxed))),
        }
    }

    /// Whether it holds the GVL.
    pub fn holds_gvl(&self) -> bool {
        self.held_since_ns.load(Relaxed) != 0
    }

    /// How long it has held the GVL for its work so far (ns).
    pub fn used_ns(&self, now_ns: u64) -> u64 {
        self.used_ns.load(Relaxed) + self.held_ns(now_ns)
    }

    /// CPU time in ns used since the last call.
    pub fn cpu_since_last_read_ns(&self) -> u64 {
        let Some(now) = self.probe.cpu_ns() else { return 0 };
        now.saturating_sub(self.cpu_read_ns.swap(now, Relaxed))
    }

    /// Whether it runs work.
    pub fn has_work(&self) -> bool {
        self.work_since_ns.load(Relaxed) != 0
    }

    /// The engine of the work that it runs.
    pub fn role(&self) -> Option<Role> {
        self.current.lock().as_ref().map(|(work, _)| work.role())
    }

    /// The work that the thread runs; `None` while it runs nothing.
    pub fn running(&self, now_ns: u64) -> Option<Running> {
        let current = self.current.lock();
        let (work, since_ns) = current.as_ref().filter(|(work, _)| !work.is_left_out())?;
        Some(Running {
            role: work.role().name(),
            id: work.id(),
            what: work.describe(),
            context: work.log_context().into_iter().collect(),
            age_ms: now_ns.saturating_sub(*since_ns) / 1_000_000,
            thread: self.index,
            tid: self.probe.tid(),
            cpu_ms: self.probe.cpu_ns().unwrap_or(0) / 1_000_000,
            wait_channel: self.probe.wait_channel(),
        })
    }
}
