//! Measures how long units of work wait for the GVL and hold it (CRuby 3.2 and later).
//!
//! The event READY (a thread wants the GVL) may run on the thread that wakes the other
//! one: from 3.3 on it names the thread, and the time is stored in thread-specific
//! data. The other events run on the thread they are about. Events may run without the
//! GVL, so the hook calls nothing of Ruby but the access to that data.

use std::cell::Cell;
use std::ffi::{c_int, c_uint, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::OnceLock;

use chaton_core::clock;
use magnus::rb_sys::protect;
use rb_sys::VALUE;

use super::tracer_state;
use crate::preempt::symbol;

/// `rb_internal_thread_event_data_t` of 3.3; 3.2 passes nothing.
#[repr(C)]
struct EventData {
    thread: VALUE,
}

type Callback = unsafe extern "C" fn(c_uint, *const EventData, *mut c_void);
type CreateKey = unsafe extern "C" fn() -> c_int;
type GetThreadData = unsafe extern "C" fn(VALUE, c_int) -> *mut c_void;
type SetThreadData = unsafe extern "C" fn(VALUE, c_int, *mut c_void);
type AddHook = unsafe extern "C" fn(Callback, c_uint, *mut c_void) -> *mut c_void;

/// The thread wants the GVL.
const READY: c_uint = 1 << 1;
/// The thread has got it.
const RESUMED: c_uint = 1 << 2;
/// The thread has given it up.
const SUSPENDED: c_uint = 1 << 3;

thread_local! {
    /// When this unit began (ns of the clock); 0 outside of one.
    static BEGAN: Cell<u64> = const { Cell::new(0) };
    /// Since when the thread has waited for the GVL, or has held it.
    static SINCE: Cell<u64> = const { Cell::new(0) };
    static WAITING: Cell<u64> = const { Cell::new(0) };
    static HOLDING: Cell<u64> = const { Cell::new(0) };
}

static ON: AtomicBool = AtomicBool::new(false);

/// Whether this Ruby has these events.
pub fn is_available() -> bool {
    hook().is_some()
}

fn hook() -> Option<AddHook> {
    static FOUND: OnceLock<Option<AddHook>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let found = symbol(c"rb_internal_thread_add_event_hook")?;
        // SAFETY: the signature of ruby/thread.h, 3.2 and later.
        Some(unsafe { std::mem::transmute::<*mut c_void, AddHook>(found) })
    })
}

/// Thread-specific data that holds the time of a thread's latest READY (3.3 and later).
struct ThreadTimes {
    key: c_int,
    get: GetThreadData,
    set: SetThreadData,
}

static SLOT: OnceLock<Option<ThreadTimes>> = OnceLock::new();

fn slot() -> Option<ThreadTimes> {
    let create = symbol(c"rb_internal_thread_specific_key_create")?;
    let get = symbol(c"rb_internal_thread_specific_get")?;
    let set = symbol(c"rb_internal_thread_specific_set")?;
    // SAFETY: signatures of ruby/thread.h, 3.3 and later.
    let (create, get, set) = unsafe {
        (
            std::mem::transmute::<*mut c_void, CreateKey>(create),
            std::mem::transmute::<*mut c_void, GetThreadData>(get),
            std::mem::transmute::<*mut c_void, SetThreadData>(set),
        )
    };
    let mut key = 0;
    // SAFETY: raises when all keys are taken, over a frame that owns nothing.
    protect(|| unsafe {
        key = create();
        rb_sys::Qnil as VALUE
    })
    .ok()?;
    Some(ThreadTimes { key, get, set })
}

/// Switches measuring on, from the next unit, or off.
pub fn measure(on: bool) {
    static ADDED: AtomicBool = AtomicBool::new(false);
    let Some(add) = hook() else { return };
    if on && !ADDED.swap(true, Relaxed) {
        SLOT.get_or_init(slot);
        // SAFETY: with the GVL; the hook stays for good and needs no data.
        unsafe { add(happened, READY | RESUMED | SUSPENDED, ptr::null_mut()) };
    }
    ON.store(on, Relaxed);
}

/// Call when a unit begins on the calling thread.
pub fn unit_begins() {
    if ON.load(Relaxed) {
        let now = clock::now_ns();
        BEGAN.set(now);
        SINCE.set(now);
        WAITING.set(0);
        HOLDING.set(0);
    }
}

/// Call when the unit has ended; its times are summed up by `label`.
pub fn unit_ends(label: impl FnOnce() -> String) {
    let began = BEGAN.replace(0);
    if began == 0 {
        return;
    }
    let now = clock::now_ns();
    let holding = HOLDING.get() + now.saturating_sub(SINCE.get());
    tracer_state::record_work(label, WAITING.get(), holding, now.saturating_sub(began));
}

unsafe extern "C" fn happened(event: c_uint, data: *const EventData, _: *mut c_void) {
    let now = clock::now_ns();
    if !ON.load(Relaxed) {
        return;
    }
    if let (READY, Some(Some(slot))) = (event, SLOT.get()) {
        // SAFETY: Ruby passes a live thread; the data is a number, not a pointer.
        unsafe { (slot.set)((*data).thread, slot.key, now as *mut c_void) };
        return;
    }
    if BEGAN.get() == 0 {
        return;
    }
    let since = SINCE.replace(now);
    match event {
        RESUMED => {
            let ready = SLOT.get().and_then(Option::as_ref).map_or(since, |slot| {
                // SAFETY: as above.
                unsafe { (slot.get)((*data).thread, slot.key) as u64 }
            });
            WAITING.set(WAITING.get() + now.saturating_sub(ready.max(since)));
        }
        SUSPENDED => HOLDING.set(HOLDING.get() + now.saturating_sub(since)),
        // READY without thread-specific data: the wait begins here.
        _ => {}
    }
}
