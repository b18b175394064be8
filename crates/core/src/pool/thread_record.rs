//! One Ruby thread of the pool, as Rust sees it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::Arc;

use crossbeam_utils::sync::Unparker;
use parking_lot::Mutex;
use serde::Serialize;

use crate::pool::probe::ThreadProbe;
use crate::work::Work;

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
    /// Whether it waits for work.
    pub parked: AtomicBool,
    /// CPU clock in ns when the scheduler last read it.
    pub cpu_read_ns: AtomicU64,
}

impl ThreadRecord {
    /// A record of the calling thread.
    pub fn current(index: usize, unparker: Unparker) -> Self {
        Self {
            index,
            probe: ThreadProbe::current(),
            unparker,
            current: Mutex::new(None),
            parked: AtomicBool::new(false),
            cpu_read_ns: AtomicU64::new(0),
        }
    }

    /// CPU time in ns used since the last call.
    pub fn cpu_since_last_read_ns(&self) -> u64 {
        let Some(now) = self.probe.cpu_ns() else { return 0 };
        now.saturating_sub(self.cpu_read_ns.swap(now, Relaxed))
    }

    /// The work that the thread runs; `None` while it runs nothing.
    pub fn running(&self, now_ns: u64) -> Option<Running> {
        let current = self.current.lock();
        let (work, since_ns) = current.as_ref()?;
        Some(Running {
            role: work.role().name(),
            id: work.id(),
            what: work.describe(),
            age_ms: now_ns.saturating_sub(*since_ns) / 1_000_000,
            thread: self.index,
            tid: self.probe.tid(),
            cpu_ms: self.probe.cpu_ns().unwrap_or(0) / 1_000_000,
            wait_channel: self.probe.wait_channel(),
        })
    }
}

/// One entry of the list of what is running.
#[derive(Clone, Debug, Serialize)]
pub struct Running {
    /// The engine it belongs to: `web`, `jobs` or `streams`.
    pub role: &'static str,
    /// Its number, unique within its engine.
    pub id: u64,
    /// A short description for people, such as `GET /orders`.
    pub what: String,
    /// How long it has been running, in ms.
    pub age_ms: u64,
    /// The thread's index.
    pub thread: usize,
    /// The kernel's id of the thread.
    pub tid: i32,
    /// CPU time in ms that the thread has used since it started.
    pub cpu_ms: u64,
    /// The kernel function in which it sleeps, if the kernel shows it.
    pub wait_channel: Option<String>,
}
