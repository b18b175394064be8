//! The one place where the GVL is released.
//!
//! `rb_thread_call_without_gvl2` never raises, so no Rust frame is jumped
//! over; it may return without having run the work. Interrupts are then
//! handled by [`check_interrupts`], inside `rb_protect`.

use std::ffi::c_void;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::ptr;

use magnus::rb_sys::protect;
use magnus::Error;
use rb_sys::Qnil;

type Unblock<'a> = &'a (dyn Fn() + Sync);

struct Call<F, R> {
    work: Option<F>,
    answer: Option<std::thread::Result<R>>,
}

/// Runs `work` without the GVL. `unblock` is called from another thread when
/// Ruby wants this one back and must make `work` return soon; a call before
/// `work` has begun to wait must not be lost.
///
/// Answers `None` when Ruby wanted the thread before the work began. A panic
/// in `work` goes on in the caller, with the GVL held.
pub fn without_gvl<F, R>(work: F, unblock: Unblock<'_>) -> Option<R>
where
    F: FnOnce() -> R,
{
    let mut call = Call { work: Some(work), answer: None };
    let mut unblock = unblock;
    // SAFETY: both pointers are to locals that outlive the call; `run` and
    // `end_wait` get exactly the types they cast to and let no panic out.
    unsafe {
        rb_sys::rb_thread_call_without_gvl2(
            Some(run::<F, R>),
            (&raw mut call).cast(),
            Some(end_wait),
            (&raw mut unblock).cast(),
        );
    }
    match call.answer? {
        Ok(answer) => Some(answer),
        Err(panic) => resume_unwind(panic),
    }
}

unsafe extern "C" fn run<F, R>(data: *mut c_void) -> *mut c_void
where
    F: FnOnce() -> R,
{
    // SAFETY: `without_gvl` passes its own `Call`.
    let call = unsafe { &mut *data.cast::<Call<F, R>>() };
    if let Some(work) = call.work.take() {
        call.answer = Some(catch_unwind(AssertUnwindSafe(work)));
    }
    ptr::null_mut()
}

unsafe extern "C" fn end_wait(data: *mut c_void) {
    // SAFETY: `without_gvl` passes its own reference.
    let unblock = unsafe { *data.cast::<Unblock<'_>>() };
    let _ = catch_unwind(AssertUnwindSafe(unblock));
}

/// Lets Ruby handle what is pending for this thread: signals, `Thread#raise`,
/// `Thread#kill`.
///
/// # Errors
/// Whatever Ruby raised or threw, to be passed on as it is.
pub fn check_interrupts() -> Result<(), Error> {
    protect(|| {
        // SAFETY: the caller holds the GVL; no owned Rust value is in this frame.
        unsafe { rb_sys::rb_thread_check_ints() };
        Qnil as rb_sys::VALUE
    })
    .map(drop)
}
