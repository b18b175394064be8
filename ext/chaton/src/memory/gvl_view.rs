//! How long units of work wait for the GVL and hold it (CRuby 3.2 and later).
//!
//! The events run on the native thread that they are about, so what a thread
//! measures is its own. They may run without the GVL: no Ruby is called.

use std::cell::Cell;
use std::ffi::{c_uint, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::OnceLock;

use chaton_core::clock;

use super::tracer_hooks;
use crate::preempt::symbol;

type Callback = unsafe extern "C" fn(c_uint, *const c_void, *mut c_void);
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
    /// Since when the thread waits, or holds.
    static SINCE: Cell<u64> = const { Cell::new(0) };
    static WAITING: Cell<u64> = const { Cell::new(0) };
    static HOLDING: Cell<u64> = const { Cell::new(0) };
}

static ON: AtomicBool = AtomicBool::new(false);

/// Whether this Ruby tells.
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

/// Measures from the next unit on, or no more.
pub fn measure(on: bool) {
    static ADDED: AtomicBool = AtomicBool::new(false);
    let Some(add) = hook() else { return };
    if on && !ADDED.swap(true, Relaxed) {
        // SAFETY: with the GVL; the hook stays for good and needs no data.
        unsafe { add(happened, READY | RESUMED | SUSPENDED, ptr::null_mut()) };
    }
    ON.store(on, Relaxed);
}

/// A unit begins on the calling thread.
pub fn unit_begins() {
    if ON.load(Relaxed) {
        let now = clock::now_ns();
        BEGAN.set(now);
        SINCE.set(now);
        WAITING.set(0);
        HOLDING.set(0);
    }
}

/// It has ended: `label` says what it was.
pub fn unit_ends(label: impl FnOnce() -> String) {
    let began = BEGAN.replace(0);
    if began == 0 {
        return;
    }
    let now = clock::now_ns();
    let holding = HOLDING.get() + now.saturating_sub(SINCE.get());
    tracer_hooks::record_unit(label, WAITING.get(), holding, now.saturating_sub(began));
}

unsafe extern "C" fn happened(event: c_uint, _: *const c_void, _: *mut c_void) {
    if BEGAN.get() == 0 {
        return;
    }
    let now = clock::now_ns();
    let elapsed = now.saturating_sub(SINCE.replace(now));
    match event {
        RESUMED => WAITING.set(WAITING.get() + elapsed),
        SUSPENDED => HOLDING.set(HOLDING.get() + elapsed),
        // From here on it waits; until here it did something else.
        _ => {}
    }
}
