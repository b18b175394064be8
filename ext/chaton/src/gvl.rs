//! The one place where the GVL is released.
//!
//! `rb_thread_call_without_gvl2` never raises, so no Rust frame is jumped
//! over; it may return without having run the work. Interrupts are then
//! handled by [`check_interrupts`], inside `rb_protect`.

use std::ffi::c_void;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::ptr;
use std::time::{Duration, Instant};

use magnus::rb_sys::protect;
use magnus::Error;
use rb_sys::Qnil;

type Unblock<'a> = &'a (dyn Fn() + Sync);

struct Call<F, R> {
    work: Option<F>,
    answer: Option<std::thread::Result<R>>,
}

/// Runs `work` without the GVL. `unblock` is called from another thread when Ruby wants this one
/// back and must make `work` return soon; a call before `work` has begun to wait must not be lost.
///
/// Answers `None` when Ruby wanted the thread before the work began. A panic
/// in `work` goes on in the caller, with the GVL held.
pub fn without_gvl<F, R>(work: F, unblock: Unblock<'_>) -> Option<R>
where
    F: FnOnce() -> R,
{
    let mut unblock = unblock;
    release(work, Some(end_wait), (&raw mut unblock).cast())
}

/// As [`without_gvl`], for work that cannot be ended from outside and takes a
/// bounded time: Ruby then starts no thread of its own to end it with, which
/// CRuby 3.1 does in a process with one thread, at ten times the cost.
#[cfg(any(feature = "jobs", feature = "streams"))]
pub fn without_gvl_to_the_end<F, R>(work: F) -> Option<R>
where
    F: FnOnce() -> R,
{
    release(work, None, ptr::null_mut())
}

/// Waits in `wait`, which is told for how long, until it answers true; false
/// when the time is up. `unblock` ends one wait.
///
/// # Errors
/// What Ruby has for this thread, see [`check_interrupts`].
pub fn wait_for(
    timeout: Duration,
    wait: impl Fn(Duration) -> bool,
    unblock: Unblock<'_>,
) -> Result<bool, Error> {
    let until = Instant::now() + timeout;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let done = without_gvl(|| wait(left), unblock) == Some(true);
        check_interrupts()?;
        if done || Instant::now() >= until {
            return Ok(done);
        }
    }
}

/// Runs `work`, which takes a bounded time, whatever Ruby wants meanwhile.
///
/// # Errors
/// What Ruby has for this thread, before the work has begun.
pub fn run_whole(work: impl Fn()) -> Result<(), Error> {
    while without_gvl(&work, &|| {}).is_none() {
        check_interrupts()?;
    }
    Ok(())
}

fn release<F, R>(
    work: F,
    unblock: Option<unsafe extern "C" fn(*mut c_void)>,
    data: *mut c_void,
) -> Option<R>
where
    F: FnOnce() -> R,
{
    let mut call = Call { work: Some(work), answer: None };
    // SAFETY: both pointers are to locals of this frame or the caller's, which outlive the call;
    // `run` and `end_wait` get exactly the types they cast to and let no panic out.
    unsafe {
        rb_sys::rb_thread_call_without_gvl2(
            Some(run::<F, R>),
            (&raw mut call).cast(),
            unblock,
            data,
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

/// Runs `work` with the GVL, called by a thread that [`without_gvl`] let go without it. `work` must
/// not raise: what it calls of Ruby is protected. Answers `None` when it panicked.
#[cfg(feature = "jobs")]
pub fn with_gvl<F, R>(work: F) -> Option<R>
where
    F: FnOnce() -> R,
{
    let mut call = Call { work: Some(work), answer: None };
    // SAFETY: this is a Ruby thread without the GVL, as the caller says; the
    // pointer is to a local that outlives the call, of the type `run` casts to.
    unsafe {
        rb_sys::rb_thread_call_with_gvl(Some(run::<F, R>), (&raw mut call).cast());
    }
    call.answer?.ok()
}

/// Lets Ruby handle what is pending for this thread: signals, `Thread#raise`, `Thread#kill`.
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
