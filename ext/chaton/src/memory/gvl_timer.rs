//! Measures how long units of work wait for the GVL and hold it (CRuby 3.2 and later).
//!
//! The event READY (a thread wants the GVL) may run on the thread that wakes the other
//! one: from 3.3 on it names the thread, and the time is stored in thread-specific
//! data. The other events run on the thread they are about. Events may run without the
//! GVL, so the hook calls nothing of Ruby but the access to that data.

use std::cell::Cell;
use std::ffi::{c_uint, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::OnceLock;

use chaton_core::clock;

use super::tracer_state;
use crate::gvl_events::{add_hook, EventData, ThreadSlot, READY, RESUMED, SUSPENDED};

thread_local! {
    /// When this work began (ns of the clock); 0 outside of one.
    static BEGAN: Cell<u64> = const { Cell::new(0) };
    /// Since when the thread has waited for the GVL, or has held it.
    static SINCE: Cell<u64> = const { Cell::new(0) };
    static WAITING: Cell<u64> = const { Cell::new(0) };
    static HOLDING: Cell<u64> = const { Cell::new(0) };
}

static ON: AtomicBool = AtomicBool::new(false);

/// Whether this Ruby has these events.
pub fn is_available() -> bool {
    add_hook().is_some()
}

/// The slot that holds the time of a thread's latest READY.
static SLOT: OnceLock<Option<ThreadSlot>> = OnceLock::new();

/// Switches measuring on, from the next unit of work, or off.
pub fn measure(on: bool) {
    static ADDED: AtomicBool = AtomicBool::new(false);
    let Some(add) = add_hook() else { return };
    if on && !ADDED.swap(true, Relaxed) {
        SLOT.get_or_init(ThreadSlot::new);
        // SAFETY: with the GVL; the hook stays for good and needs no data.
        unsafe { add(happened, READY | RESUMED | SUSPENDED, ptr::null_mut()) };
    }
    ON.store(on, Relaxed);
}

/// Call when work begins on the calling thread.
pub fn work_begins() {
    if ON.load(Relaxed) {
        let now = clock::now_ns();
        BEGAN.set(now);
        SINCE.set(now);
        WAITING.set(0);
        HOLDING.set(0);
    }
}

/// Call when the unit has ended; its times are summed up by `label`.
pub fn work_ends(label: impl FnOnce() -> String) {
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
        unsafe { slot.set((*data).thread, now as *mut c_void) };
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
                unsafe { slot.get((*data).thread) as u64 }
            });
            WAITING.set(WAITING.get() + now.saturating_sub(ready.max(since)));
        }
        SUSPENDED => HOLDING.set(HOLDING.get() + now.saturating_sub(since)),
        // READY without thread-specific data: the wait begins here.
        _ => {}
    }
}
