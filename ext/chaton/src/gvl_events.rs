//! Ruby's events about the GVL (`ruby/thread.h`), looked up by name: CRuby 3.1 has
//! none, 3.2 has events that do not name their thread, 3.3 and later have all.

use std::ffi::{c_int, c_uint, c_void};

use magnus::rb_sys::protect;
use rb_sys::VALUE;

use crate::symbol::symbol;

/// The thread wants the GVL.
pub const READY: c_uint = 1 << 1;
/// The thread has got the GVL.
pub const RESUMED: c_uint = 1 << 2;
/// The thread has given up the GVL.
pub const SUSPENDED: c_uint = 1 << 3;
/// The thread has ended, which gives up the GVL too.
pub const EXITED: c_uint = 1 << 4;

/// `rb_internal_thread_event_data_t` of 3.3; 3.2 passes no data.
#[repr(C)]
pub struct EventData {
    pub thread: VALUE,
}

pub type Callback = unsafe extern "C" fn(c_uint, *const EventData, *mut c_void);
pub type AddHook = unsafe extern "C" fn(Callback, c_uint, *mut c_void) -> *mut c_void;
type CreateKey = unsafe extern "C" fn() -> c_int;
type GetThreadData = unsafe extern "C" fn(VALUE, c_int) -> *mut c_void;
type SetThreadData = unsafe extern "C" fn(VALUE, c_int, *mut c_void);

/// The function that adds a hook; `None` before CRuby 3.2.
pub fn add_hook() -> Option<AddHook> {
    let found = symbol(c"rb_internal_thread_add_event_hook")?;
    // SAFETY: the signature of ruby/thread.h, 3.2 and later.
    Some(unsafe { std::mem::transmute::<*mut c_void, AddHook>(found) })
}

/// A slot for one pointer in every Ruby thread (CRuby 3.3 and later).
pub struct ThreadSlot {
    key: c_int,
    get: GetThreadData,
    set: SetThreadData,
}

impl ThreadSlot {
    /// `None` before CRuby 3.3, or when all slots are in use. Call with the GVL.
    pub fn new() -> Option<Self> {
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
        Some(Self { key, get, set })
    }

    /// Reads the thread's slot; null while nothing was stored.
    ///
    /// # Safety
    /// `thread` must be a live Ruby thread.
    pub unsafe fn get(&self, thread: VALUE) -> *mut c_void {
        // SAFETY: as the caller promises.
        unsafe { (self.get)(thread, self.key) }
    }

    /// Stores into the thread's slot.
    ///
    /// # Safety
    /// `thread` must be a live Ruby thread.
    pub unsafe fn set(&self, thread: VALUE, data: *mut c_void) {
        // SAFETY: as the caller promises.
        unsafe { (self.set)(thread, self.key, data) }
    }
}
