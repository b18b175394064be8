//! The only place where the GVL is released.
//!
//! `rb_thread_call_without_gvl2` never raises, so it cannot jump over a Rust frame. It
//! may return without having run the work. The caller then handles interrupts with
//! [`check_interrupts`], which runs inside `rb_protect`.

use std::ffi::c_void;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::ptr;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use magnus::rb_sys::protect;
use magnus::Error;
use rb_sys::Qnil;

use crate::symbol::symbol;

type Unblock<'a> = &'a (dyn Fn() + Sync);

struct Call<F, R> {
    work: Option<F>,
    answer: Option<std::thread::Result<R>>,
}

/// Runs `work` without the GVL. Ruby calls `unblock` on another thread to interrupt
/// this one; it must make `work` return soon, even when it is called before `work` has
/// begun to wait.
///
/// Returns `None` when Ruby interrupted the thread before the work began. A panic in
/// `work` continues in the caller, with the GVL held.
pub fn without_gvl<F, R>(work: F, unblock: Unblock<'_>) -> Option<R>
where
    F: FnOnce() -> R,
{
    let mut unblock = unblock;
    release(work, Some(end_wait), (&raw mut unblock).cast())
}

/// Like [`without_gvl`], for work that takes a bounded time and cannot be interrupted.
/// CRuby 3.1 would otherwise start a thread to interrupt it in a process that has only
/// one, at ten times the cost.
pub fn without_gvl_to_the_end<F, R>(work: F) -> Option<R>
where
    F: FnOnce() -> R,
{
    release(work, None, ptr::null_mut())
}

/// Calls `wait` with the time that is left until it returns true; false when the time
/// is up. `unblock` ends one call.
///
/// # Errors
/// See [`check_interrupts`].
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

/// Runs `work`, which takes a bounded time, to its end.
///
/// # Errors
/// What [`check_interrupts`] raises before the work has begun.
pub fn run_whole(work: impl Fn()) -> Result<(), Error> {
    while without_gvl(&work, &|| {}).is_none() {
        check_interrupts()?;
    }
    Ok(())
}

/// Time without the GVL in which a thread that waits for it takes it, before CRuby 3.3.
const HAND_OVER: Duration = Duration::from_micros(100);

/// Lets the threads that wait for the GVL run. It handles no interrupts; with one
/// pending it does nothing.
///
/// From 3.3 on, the thread that has waited longest gets the GVL when it is released.
/// Before, it is only woken, and the releasing thread would take the GVL back first. So
/// it stays away until the other one has had time to take it.
pub fn let_others_run() {
    static FAIR: OnceLock<bool> = OnceLock::new();
    let fair = *FAIR.get_or_init(|| symbol(c"rb_postponed_job_trigger").is_some());
    release(
        || {
            if !fair {
                std::thread::sleep(HAND_OVER)
            }
        },
        None,
        ptr::null_mut(),
    );
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

/// Runs `work` with the GVL, on a thread that runs within [`without_gvl`]. `work` must
/// not raise: its calls of Ruby are protected. Returns `None` when it panicked.
pub fn with_gvl<F, R>(work: F) -> Option<R>
where
    F: FnOnce() -> R,
{
    let mut call = Call { work: Some(work), answer: None };
    // SAFETY: this is a Ruby thread without the GVL, as the caller promises; the
    // pointer is to a local that outlives the call, of the type `run` casts to.
    unsafe {
        rb_sys::rb_thread_call_with_gvl(Some(run::<F, R>), (&raw mut call).cast());
    }
    call.answer?.ok()
}

/// Lets Ruby handle pending signals, `Thread#raise` and `Thread#kill` of this thread.
///
/// # Errors
/// What Ruby raised or threw; the caller passes it on unchanged.
pub fn check_interrupts() -> Result<(), Error> {
    protect(|| {
        // SAFETY: the caller holds the GVL; no owned Rust value is in this frame.
        unsafe { rb_sys::rb_thread_check_ints() };
        Qnil as rb_sys::VALUE
    })
    .map(drop)
}
