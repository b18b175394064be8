//! An thread: one Ruby thread of the pool, as Rust sees it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crossbeam_utils::sync::Unparker;
use parking_lot::Mutex;

use crate::pool::probe::ThreadProbe;

/// A unit that an thread is running.
pub struct Current<L> {
    /// What it is.
    pub label: L,
    /// When it was taken, in ns of the clock.
    pub since_ns: u64,
}

/// One thread. Shared by its own thread, the pool and the scheduler.
pub struct ThreadRecord<L> {
    /// Place in the pool's list, and the thread's name in logs.
    pub index: usize,
    /// Reads the thread from outside.
    pub probe: ThreadProbe,
    /// Ends the thread's wait. A wake given before the wait is kept.
    pub unparker: Unparker,
    /// What it runs now.
    pub current: Mutex<Option<Current<L>>>,
    /// Whether it waits for work.
    pub parked: AtomicBool,
    /// CPU clock in ns at the scheduler's last look.
    pub cpu_seen_ns: AtomicU64,
}

impl<L> ThreadRecord<L> {
    /// CPU time in ns used since the last call, 0 for a thread that stood still.
    pub fn cpu_since_last_look_ns(&self) -> u64 {
        let Some(now) = self.probe.cpu_ns() else { return 0 };
        now.saturating_sub(self.cpu_seen_ns.swap(now, Relaxed))
    }
}

/// One line of the list of what is running.
#[derive(Clone, Debug)]
pub struct Running {
    /// The unit's number.
    pub id: u64,
    /// What it is, as `GET /orders`.
    pub what: String,
    /// How long it has been running, in ms.
    pub age_ms: u64,
    /// The thread's index.
    pub thread: usize,
    /// The kernel's id of the thread.
    pub tid: i32,
    /// CPU time in ms the thread has used in its life.
    pub cpu_ms: u64,
    /// Where in the kernel it sleeps, when it does and the kernel tells.
    pub wait_channel: Option<String>,
}
