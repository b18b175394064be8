//! Notices at once when no pool thread can run, on a Ruby whose GVL events name
//! their thread (CRuby 3.3 and later).
//!
//! Before 3.3 the scheduler notices a block by the threads' CPU clocks. The events do
//! not tell a thread that blocks from one that ends its time slice. So the tracker
//! counts the threads that hold or want the GVL, and wakes the next one only when none
//! is left: when a time slice ends, another thread is ready.
//!
//! The hook may run on a thread other than the one it is about, and without the GVL.
//! Of Ruby it only calls the read of a thread's slot.

use std::ffi::{c_uint, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, OnceLock, Weak};

use chaton_core::pool::Pool;

use crate::gvl_events::{add_hook, EventData, ThreadSlot, READY, SUSPENDED};
use crate::handle::generation;

/// The thread has nothing to do.
const PARKED: u8 = 0;
/// The thread holds the GVL or wants it.
const RUNNABLE: u8 = 1;
/// The thread is in the middle of its work and waits for something else.
const BLOCKED: u8 = 2;

/// The slot in which a Ruby thread keeps its [`TrackedThread`].
static SLOT: OnceLock<Option<ThreadSlot>> = OnceLock::new();

/// Counts the threads of a pool that hold the GVL or want it.
pub struct GvlTracker {
    runnable: AtomicUsize,
    pool: Weak<Pool>,
}

impl GvlTracker {
    /// `None` where Ruby's events do not name their thread. Call with the GVL.
    pub fn new(pool: &Arc<Pool>) -> Option<Arc<Self>> {
        SLOT.get_or_init(install).as_ref()?;
        Some(Arc::new(Self { runnable: AtomicUsize::new(0), pool: Arc::downgrade(pool) }))
    }

    /// Tracks the calling Ruby thread.
    pub fn enter(self: &Arc<Self>) -> Arc<TrackedThread> {
        let thread = Arc::new(TrackedThread {
            tracker: self.clone(),
            made_in: generation(),
            state: AtomicU8::new(PARKED),
        });
        bind(Arc::into_raw(thread.clone()));
        thread
    }

    /// Wakes a thread if work waits and no thread can run.
    pub fn wake_if_none_runs(&self) {
        if self.runnable.load(SeqCst) > 0 {
            return;
        }
        if let Some(pool) = self.pool.upgrade() {
            pool.blocked();
        }
    }
}

/// A pool thread with its state.
pub struct TrackedThread {
    tracker: Arc<GvlTracker>,
    made_in: u32,
    state: AtomicU8,
}

impl TrackedThread {
    /// The thread tries to take work or runs it.
    pub fn runs(&self) {
        if self.state.swap(RUNNABLE, SeqCst) != RUNNABLE {
            self.tracker.runnable.fetch_add(1, SeqCst);
        }
    }

    /// The thread is about to wait for work.
    pub fn parks(&self) {
        if self.state.swap(PARKED, SeqCst) == RUNNABLE {
            self.tracker.runnable.fetch_sub(1, SeqCst);
        }
        self.tracker.wake_if_none_runs();
    }

    /// The calling thread leaves the pool.
    pub fn leaves(&self) {
        self.parks();
        bind(ptr::null());
    }

    fn blocks(&self) {
        if self.state.compare_exchange(RUNNABLE, BLOCKED, SeqCst, SeqCst).is_ok() {
            self.tracker.runnable.fetch_sub(1, SeqCst);
            self.tracker.wake_if_none_runs();
        }
    }

    fn returns(&self) {
        if self.state.compare_exchange(BLOCKED, RUNNABLE, SeqCst, SeqCst).is_ok() {
            self.tracker.runnable.fetch_add(1, SeqCst);
        }
    }
}

/// Puts `tracked` into the calling thread's slot and drops what was there.
fn bind(tracked: *const TrackedThread) {
    let Some(Some(slot)) = SLOT.get() else { return };
    // SAFETY: the GVL is held, so the thread runs and no hook about it does;
    // what the slot held came from `Arc::into_raw`.
    unsafe {
        let thread = rb_sys::rb_thread_current();
        let before = slot.get(thread).cast::<TrackedThread>().cast_const();
        slot.set(thread, tracked.cast_mut().cast());
        if !before.is_null() {
            drop(Arc::from_raw(before));
        }
    }
}

fn install() -> Option<ThreadSlot> {
    let add = add_hook()?;
    let slot = ThreadSlot::new()?;
    // SAFETY: the GVL is held; the hook stays for good and needs no data.
    unsafe { add(happened, READY | SUSPENDED, ptr::null_mut()) };
    Some(slot)
}

unsafe extern "C" fn happened(event: c_uint, data: *const EventData, _: *mut c_void) {
    let Some(Some(slot)) = SLOT.get() else { return };
    // SAFETY: Ruby passes a live thread. Its slot is empty or holds a reference
    // that is dropped only while the thread runs.
    let thread = unsafe { slot.get((*data).thread).cast::<TrackedThread>().as_ref() };
    // A forked child has copies of the parent's threads and of locks that stay locked.
    let Some(thread) = thread.filter(|thread| thread.made_in == generation()) else { return };
    if event == SUSPENDED {
        thread.blocks();
    } else {
        thread.returns();
    }
}
