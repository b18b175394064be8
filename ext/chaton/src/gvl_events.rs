//! Sees a pool thread block at once, where Ruby tells (GVL events, 3.2+).
//!
//! Before 3.2 the sentinel sees it by the thread's CPU clock. The hook runs on
//! the thread that gives up the GVL, without it: it calls no Ruby.

use std::cell::{Cell, RefCell};
use std::ffi::{c_uint, c_void};
use std::ptr;
use std::sync::{Arc, Once, Weak};

use chaton_core::hub::Hub;

use crate::preempt::symbol;
use crate::unit::Unit;

/// `RUBY_INTERNAL_THREAD_EVENT_SUSPENDED`.
const SUSPENDED: c_uint = 1 << 3;

type Callback = unsafe extern "C" fn(c_uint, *const c_void, *mut c_void);
type AddHook = unsafe extern "C" fn(Callback, c_uint, *mut c_void) -> *mut c_void;

static INSTALL: Once = Once::new();

thread_local! {
    /// The hub this thread takes from; empty for threads that are not ours.
    static HUB: RefCell<Weak<Hub<Unit>>> = const { RefCell::new(Weak::new()) };
    /// Whether the thread runs a unit, as opposed to waiting for one.
    static AT_WORK: Cell<bool> = const { Cell::new(false) };
}

/// Installs the hook once, if this Ruby has GVL events; answers whether it has.
pub fn install() -> bool {
    let Some(add) = symbol(c"rb_internal_thread_add_event_hook") else { return false };
    INSTALL.call_once(|| {
        // SAFETY: signature of ruby/thread.h, 3.2 and later; no data is passed.
        unsafe {
            let add = std::mem::transmute::<*mut c_void, AddHook>(add);
            add(suspended, SUSPENDED, ptr::null_mut());
        }
    });
    true
}

/// The calling thread takes its units from this hub.
pub fn enter(hub: &Arc<Hub<Unit>>) {
    HUB.set(Arc::downgrade(hub));
}

/// Whether the calling thread runs a unit from now on.
pub fn at_work(yes: bool) {
    AT_WORK.set(yes);
}

unsafe extern "C" fn suspended(_: c_uint, _: *const c_void, _: *mut c_void) {
    if !AT_WORK.try_with(Cell::get).unwrap_or(false) {
        return;
    }
    if let Ok(Some(hub)) = HUB.try_with(|hub| hub.borrow().upgrade()) {
        hub.blocked();
    }
}
