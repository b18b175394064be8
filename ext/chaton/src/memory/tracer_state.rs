//! The state that a tracer shares with its hooks, and which tracer's hooks are on.

use std::cell::UnsafeCell;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use chaton_core::clock;
use chaton_memory::profile::{gvl_times::GvlTimes, Limits, Profile};
use magnus::Ruby;
use parking_lot::{Condvar, Mutex};
use rb_sys::VALUE;

use super::gc_stat::{GcStat, Stats};
use crate::handle::generation;

/// Labels of work that are kept apart.
const LABELS_MAX: usize = 512;

/// The tracer whose hooks are on. A tracer deactivates itself before it is freed.
static ACTIVE: AtomicPtr<TracerState> = AtomicPtr::new(ptr::null_mut());

/// Used with the GVL only, but for waiting and waking.
pub struct TracerState {
    pub(super) profile: Mutex<Profile>,
    pub(super) made_in: u32,
    pub(super) every: u32,
    pub(super) weight: f64,
    /// Objects until the next sample.
    pub(super) left: AtomicU32,
    pub(super) random: AtomicU64,
    pub(super) frames: UnsafeCell<Vec<VALUE>>,
    pub(super) lines: UnsafeCell<Vec<i32>>,
    pub(super) gvl_times: Mutex<GvlTimes>,
    /// Counters of collections, and their values when they were last read.
    pub(super) stats: Stats,
    pub(super) major: GcStat,
    pub(super) count_seen: AtomicU64,
    pub(super) majors_seen: AtomicU64,
    running: Mutex<bool>,
    changed: Condvar,
}

// SAFETY: the two buffers are used by the allocation hook alone, which runs with the GVL.
unsafe impl Sync for TracerState {}
// SAFETY: as above.
unsafe impl Send for TracerState {}

impl TracerState {
    /// Samples one object in `every`; a sample counts for `weight` objects.
    pub(super) fn new(ruby: &Ruby, limits: Limits, every: u32, weight: f64) -> Self {
        let stats = Stats::find(ruby);
        let major = GcStat::find(ruby, &["major_gc_count"]);
        Self {
            made_in: generation(),
            every,
            weight,
            left: AtomicU32::new(every),
            random: AtomicU64::new(clock::now_ns() | 1),
            frames: UnsafeCell::new(vec![0; limits.depth_max]),
            lines: UnsafeCell::new(vec![0; limits.depth_max]),
            profile: Mutex::new(Profile::new(limits)),
            gvl_times: Mutex::new(GvlTimes::new(LABELS_MAX)),
            count_seen: AtomicU64::new(stats.count.read()),
            majors_seen: AtomicU64::new(major.read()),
            stats,
            major,
            running: Mutex::new(false),
            changed: Condvar::new(),
        }
    }

    /// Waits, without the GVL, until the time has passed or the tracer stops.
    pub(super) fn wait(&self, time: Duration) {
        let mut running = self.running.lock();
        if *running {
            self.changed.wait_for(&mut running, time);
        }
    }

    pub(super) fn is_running(&self) -> bool {
        *self.running.lock()
    }

    pub(super) fn set_running(&self, on: bool) {
        *self.running.lock() = on;
        self.changed.notify_all();
    }

    pub(super) fn wake(&self) {
        let _running = self.running.lock();
        self.changed.notify_all();
    }

    /// Whether the tracer belongs to this process. After a fork the child's copy of
    /// its locks may be held for ever.
    pub(super) fn is_ours(&self) -> bool {
        self.made_in == generation()
    }
}

/// The active tracer. Call with the GVL; it lives at least until the GVL is released.
pub(super) fn active() -> Option<&'static TracerState> {
    // SAFETY: changed with the GVL only, and cleared before the tracer is freed.
    unsafe { ACTIVE.load(Relaxed).as_ref() }
}

/// Makes the tracer the active one; false when another one of this process is.
pub(super) fn activate(tracing: &TracerState) -> bool {
    let free = active().is_none_or(|other| !other.is_ours());
    if free {
        ACTIVE.store(ptr::from_ref(tracing).cast_mut(), Relaxed);
    }
    free
}

/// Deactivates the tracer if it is the active one. Call with the GVL, so that no hook is running.
pub(super) fn deactivate(tracing: &TracerState) {
    let own = ptr::from_ref(tracing).cast_mut();
    let _ = ACTIVE.compare_exchange(own, ptr::null_mut(), Relaxed, Relaxed);
}

/// Records how long a unit of work waited for the GVL, if a tracer is active.
pub(super) fn record_work(label: impl FnOnce() -> String, waiting: u64, holding: u64, total: u64) {
    if let Some(tracing) = active() {
        tracing.gvl_times.lock().record(&label(), waiting, holding, total);
    }
}
