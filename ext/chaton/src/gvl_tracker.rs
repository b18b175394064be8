//! Tells the pool which threads hold or want the GVL, on a Ruby whose GVL events name
//! their thread (CRuby 3.3 and later).
//!
//! The hook may run on a thread other than the one it is about, and without the GVL.
//! Of Ruby it only calls the read of a thread's slot.

use std::cell::Cell;
use std::ffi::{c_uint, c_void};
use std::ptr;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicPtr, AtomicU32};
use std::sync::{Arc, OnceLock};

use chaton_core::pool::gvl_activity::GvlCounts;
use chaton_core::pool::thread_record::ThreadRecord;
use chaton_core::pool::Pool;

use crate::gvl_events::{add_hook, EventData, ThreadSlot, EXITED, READY, RESUMED, SUSPENDED};
use crate::handle::generation;
use crate::symbol::symbol;

/// The slot in which a Ruby thread keeps its [`TrackedThread`].
static SLOT: OnceLock<Option<ThreadSlot>> = OnceLock::new();
/// The counts of the newest pool, for threads outside of pools, and the process that
/// made it. The counts are leaked: a hook may read them at any time.
static OUTSIDERS: AtomicPtr<GvlCounts> = AtomicPtr::new(ptr::null_mut());
static MADE_IN: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// What the slot of the Ruby thread on this native thread holds.
    static CURRENT: Cell<*const TrackedThread> = const { Cell::new(ptr::null()) };
}

/// Whether this Ruby's events name their thread. Call with the GVL.
pub fn is_available() -> bool {
    SLOT.get_or_init(install).is_some()
}

/// Counts the threads outside of `pool` for it.
pub fn track_outsiders(pool: &Pool) {
    if let Some(counts) = &pool.gvl {
        MADE_IN.store(generation(), Relaxed);
        OUTSIDERS.store(Arc::into_raw(counts.clone()).cast_mut(), SeqCst);
    }
}

/// A pool thread in the slot of its Ruby thread.
pub struct TrackedThread {
    counts: Arc<GvlCounts>,
    record: Arc<ThreadRecord>,
    made_in: u32,
}

impl TrackedThread {
    /// Tracks the calling Ruby thread, which holds the GVL; `None` where the pool has no
    /// events.
    pub fn enter(pool: &Pool, record: &Arc<ThreadRecord>) -> Option<Arc<Self>> {
        let counts = pool.gvl.clone()?;
        let thread = Arc::new(Self { counts, record: record.clone(), made_in: generation() });
        thread.counts.resumed(&thread.record);
        bind(Arc::into_raw(thread.clone()));
        Some(thread)
    }

    /// The calling thread leaves the pool. Ruby may use its native thread again.
    pub fn leaves(&self) {
        bind(ptr::null());
        self.is_gone();
    }

    /// The thread has ended, perhaps without leaving.
    pub fn is_gone(&self) {
        self.counts.suspended(&self.record);
        self.counts.free(&self.record);
    }
}

/// Whether threads may be bound to one core: `before_start.c` is preloaded, and frees them before they start a thread or a
/// program, which would inherit the core.
pub fn may_bind() -> bool {
    let Some(before_start) = symbol(c"chaton_before_start") else { return false };
    // SAFETY: this variable of before_start.c, to which only this value is ever written.
    unsafe {
        (*before_start.cast::<AtomicPtr<c_void>>()).store(free_current as *mut c_void, SeqCst)
    };
    true
}

/// The calling native thread, if it is of a pool, may run on all cores of the process until it next wants the GVL.
extern "C" fn free_current() {
    // Without a value while a thread ends. What it points to is released by this thread only.
    let thread = CURRENT.try_with(Cell::get).unwrap_or(ptr::null());
    // SAFETY: null, or held by the slot of the Ruby thread that runs here.
    let Some(thread) = (unsafe { thread.as_ref() }) else { return };
    if thread.made_in == generation() {
        thread.counts.free(&thread.record);
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
        CURRENT.set(tracked);
        if !before.is_null() {
            drop(Arc::from_raw(before));
        }
    }
}

fn install() -> Option<ThreadSlot> {
    let add = add_hook()?;
    let slot = ThreadSlot::new()?;
    // SAFETY: the GVL is held; the hook stays for good and needs no data.
    unsafe { add(happened, READY | RESUMED | SUSPENDED | EXITED, ptr::null_mut()) };
    Some(slot)
}

unsafe extern "C" fn happened(event: c_uint, data: *const EventData, _: *mut c_void) {
    let Some(Some(slot)) = SLOT.get() else { return };
    // SAFETY: Ruby passes a live thread. Its slot is empty or holds a reference
    // that is dropped only while the thread runs.
    let thread = unsafe { slot.get((*data).thread).cast::<TrackedThread>().as_ref() };
    let Some(thread) = thread else { return outsider(event) };
    // A forked child has copies of the parent's threads and of locks that stay locked.
    if thread.made_in != generation() {
        return;
    }
    match event {
        READY => thread.counts.ready(&thread.record),
        RESUMED => thread.counts.resumed(&thread.record),
        SUSPENDED => thread.counts.suspended(&thread.record),
        _ => thread.is_gone(),
    }
}

fn outsider(event: c_uint) {
    // SAFETY: null or leaked.
    let Some(counts) = (unsafe { OUTSIDERS.load(SeqCst).as_ref() }) else { return };
    if MADE_IN.load(Relaxed) != generation() {
        return;
    }
    match event {
        READY => counts.outsider_ready(),
        RESUMED => counts.outsider_resumed(),
        _ => counts.outsider_suspended(),
    }
}
