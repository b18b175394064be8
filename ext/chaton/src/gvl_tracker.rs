//! Sees at once when no pool thread can run, where Ruby has GVL events that name
//! their thread (CRuby 3.3 and later).
//!
//! Before 3.3 the scheduler sees a block by the threads' CPU clocks. A thread that only gives up
//! its time slice is reported like one that blocks. So the threads that want the GVL are counted,
//! and the next one is woken only when the last one goes: a yield happens while another thread is
//! ready, a block of the last thread does not.
//!
//! The hook may run on another thread than the one it is about, and without
//! the GVL: it calls no Ruby but a read of a thread's slot.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, OnceLock, Weak};

use chaton_core::pool::Pool;
use magnus::rb_sys::protect;
use rb_sys::VALUE;

use crate::handle::generation;
use crate::preempt::symbol;

/// `RUBY_INTERNAL_THREAD_EVENT_READY`: the thread wants the GVL.
const READY: c_uint = 1 << 1;
/// `RUBY_INTERNAL_THREAD_EVENT_SUSPENDED`: the thread gives up the GVL.
const SUSPENDED: c_uint = 1 << 3;

/// The thread has nothing to do.
const PARKED: u8 = 0;
/// The thread holds the GVL or wants it.
const RUNNABLE: u8 = 1;
/// The thread is in the middle of its work and waits for something else.
const BLOCKED: u8 = 2;

/// `rb_internal_thread_event_data_t` of 3.3.
#[repr(C)]
struct EventData {
    thread: VALUE,
}

type Callback = unsafe extern "C" fn(c_uint, *const EventData, *mut c_void);
type AddHook = unsafe extern "C" fn(Callback, c_uint, *mut c_void) -> *mut c_void;
type CreateKey = unsafe extern "C" fn() -> c_int;
type Get = unsafe extern "C" fn(VALUE, c_int) -> *mut c_void;
type Set = unsafe extern "C" fn(VALUE, c_int, *mut c_void);

/// Ruby's functions, and the slot in which a thread keeps its [`TrackedThread`].
struct Api {
    key: c_int,
    get: Get,
    set: Set,
}

static API: OnceLock<Option<Api>> = OnceLock::new();

/// Counts the threads of a pool that hold the GVL or want it.
pub struct GvlTracker {
    runnable: AtomicUsize,
    pool: Weak<Pool>,
}

impl GvlTracker {
    /// `None` where Ruby's events do not name their thread. Call with the GVL.
    pub fn new(pool: &Arc<Pool>) -> Option<Arc<Self>> {
        API.get_or_init(install).as_ref()?;
        Some(Arc::new(Self { runnable: AtomicUsize::new(0), pool: Arc::downgrade(pool) }))
    }

    /// The calling Ruby thread joins.
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

/// One pool thread and its state.
pub struct TrackedThread {
    tracker: Arc<GvlTracker>,
    made_in: u32,
    state: AtomicU8,
}

impl TrackedThread {
    /// The thread looks for work or does it.
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
    let Some(Some(api)) = API.get() else { return };
    // SAFETY: the GVL is held, so the thread runs and no hook about it does;
    // what the slot held came from `Arc::into_raw`.
    unsafe {
        let thread = rb_sys::rb_thread_current();
        let before = (api.get)(thread, api.key).cast::<TrackedThread>().cast_const();
        (api.set)(thread, api.key, tracked.cast_mut().cast());
        if !before.is_null() {
            drop(Arc::from_raw(before));
        }
    }
}

fn install() -> Option<Api> {
    let add = symbol(c"rb_internal_thread_add_event_hook")?;
    let create = symbol(c"rb_internal_thread_specific_key_create")?;
    let get = symbol(c"rb_internal_thread_specific_get")?;
    let set = symbol(c"rb_internal_thread_specific_set")?;
    // SAFETY: signatures of ruby/thread.h, 3.3 and later.
    let (add, create, get, set) = unsafe {
        (
            std::mem::transmute::<*mut c_void, AddHook>(add),
            std::mem::transmute::<*mut c_void, CreateKey>(create),
            std::mem::transmute::<*mut c_void, Get>(get),
            std::mem::transmute::<*mut c_void, Set>(set),
        )
    };
    let mut key = 0;
    // SAFETY: raises when all keys are taken, over a frame that owns nothing.
    protect(|| unsafe {
        key = create();
        rb_sys::Qnil as VALUE
    })
    .ok()?;
    // SAFETY: the GVL is held; the hook stays for good and needs no data.
    unsafe { add(happened, READY | SUSPENDED, ptr::null_mut()) };
    Some(Api { key, get, set })
}

unsafe extern "C" fn happened(event: c_uint, data: *const EventData, _: *mut c_void) {
    let Some(Some(api)) = API.get() else { return };
    // SAFETY: Ruby passes a live thread. Its slot is empty or holds a reference
    // that is dropped only while the thread runs.
    let thread = unsafe { (api.get)((*data).thread, api.key).cast::<TrackedThread>().as_ref() };
    // A forked child has a copy of it, and of locks that nobody will open.
    let Some(thread) = thread.filter(|thread| thread.made_in == generation()) else { return };
    if event == SUSPENDED {
        thread.blocks();
    } else {
        thread.returns();
    }
}
