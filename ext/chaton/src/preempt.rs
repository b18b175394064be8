//! Asks the VM to take the GVL from the thread that runs (a "preempter").
//!
//! CRuby lets a thread run for 100 ms before it switches to another one. While work
//! waits, the scheduler asks earlier, through a postponed job: the VM runs it at its
//! next safe point, and it only calls `rb_thread_schedule`.
//!
//! 3.3 and later have a call made for this. 3.3.0 runs such jobs on the main thread
//! (Bug #20197), so there is no preempter on it. Before 3.3, registering from a foreign
//! thread is a race: the index is raised before the function is written. The race is
//! harmless once all 1,000 slots hold our own no-op, because a slot that is read too
//! early then runs the no-op. Slots keep their function after a flush.

use std::ffi::{c_uint, c_void, CStr};
use std::ptr;

use magnus::{prelude::*, Error, Ruby};

use crate::gvl;

type Job = unsafe extern "C-unwind" fn(*mut c_void);
type Preregister = unsafe extern "C" fn(c_uint, Job, *mut c_void) -> c_uint;
type Trigger = unsafe extern "C" fn(c_uint);
type Register = unsafe extern "C" fn(c_uint, Job, *mut c_void) -> i32;

/// Size of the VM's buffer of postponed jobs before 3.3.
const SLOTS: usize = 1_000;

/// Profilers that register their own jobs in the same buffer.
const PROFILERS: [&str; 3] = ["StackProf", "Vernier", "Datadog"];

/// A function that any thread may call; `None` when this Ruby has no safe way.
///
/// # Errors
/// What Ruby raised while pending interrupts were handled.
pub fn preempter(ruby: &Ruby) -> Result<Option<Box<dyn Fn() + Send>>, Error> {
    let version: String = ruby.eval("RUBY_VERSION")?;
    if version == "3.3.0" {
        return Ok(None);
    }
    if let (Some(preregister), Some(trigger)) =
        (symbol(c"rb_postponed_job_preregister"), symbol(c"rb_postponed_job_trigger"))
    {
        // SAFETY: signatures of ruby/debug.h, 3.3 and later.
        let (preregister, trigger) = unsafe {
            (
                std::mem::transmute::<*mut c_void, Preregister>(preregister),
                std::mem::transmute::<*mut c_void, Trigger>(trigger),
            )
        };
        // SAFETY: called with the GVL; the job takes no data.
        let job = unsafe { preregister(0, let_others_run, ptr::null_mut()) };
        // SAFETY: triggering is made for any thread and for signal handlers.
        return Ok(Some(Box::new(move || unsafe { trigger(job) })));
    }
    let profiler = PROFILERS
        .iter()
        .any(|name| ruby.class_object().const_get::<_, magnus::Value>(*name).is_ok());
    match symbol(c"rb_postponed_job_register_one") {
        Some(register_one) if !profiler => fill_slots(register_one).map(Some),
        _ => Ok(None),
    }
}

fn fill_slots(register_one: *mut c_void) -> Result<Box<dyn Fn() + Send>, Error> {
    let Some(register) = symbol(c"rb_postponed_job_register") else {
        return Ok(Box::new(|| {}));
    };
    // SAFETY: signatures of ruby/debug.h before 3.3.
    let (register, register_one) = unsafe {
        (
            std::mem::transmute::<*mut c_void, Register>(register),
            std::mem::transmute::<*mut c_void, Register>(register_one),
        )
    };
    for _ in 0..SLOTS {
        // SAFETY: called with the GVL; returns 0 when the buffer is full.
        if unsafe { register(0, nothing, ptr::null_mut()) } == 0 {
            break;
        }
    }
    gvl::check_interrupts()?;
    // SAFETY: see the head of this file.
    Ok(Box::new(move || unsafe {
        register_one(0, let_others_run, ptr::null_mut());
    }))
}

unsafe extern "C-unwind" fn nothing(_: *mut c_void) {}

unsafe extern "C-unwind" fn let_others_run(_: *mut c_void) {
    // SAFETY: the VM runs jobs with the GVL held. What this raises passes
    // through a frame that owns nothing.
    unsafe { rb_sys::rb_thread_schedule() };
}

/// The address of a function of this Ruby, if it has it.
pub fn symbol(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: a C string; the process itself is searched.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}
