//! Asks the VM to take the GVL from the thread that computes (a "preempter").
//!
//! CRuby lets a thread run for 100 ms before it switches to another one. While work
//! waits, the scheduler asks earlier, through a postponed job: the VM runs it at its
//! next safe point, and it lets the threads that wait for the GVL run. The job must not
//! handle interrupts: the VM drops what a postponed job raises, so a `Timeout` would be
//! lost.
//!
//! CRuby 3.3 and later have a call for this that any thread may make. 3.3.0 runs such
//! jobs on the main thread (Bug #20197), so there is no preempter on it.
//!
//! Before 3.3, registering a job without the GVL is a race (ruby/ruby#8856): the index is
//! raised before the function is written. So the scheduler sends the computing thread a
//! signal, and its handler registers the job. The handler cannot be sure that its thread
//! has the GVL: it may have lost it a moment ago. The race is then harmless because all
//! 1,000 slots of the VM's buffer hold functions of ours that need no data: a slot that
//! is read too early runs one of them. The signal is SIGURG, as in Go's runtime: it is
//! ignored by default, so it does no harm where it is not expected.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;
use std::sync::OnceLock;

use magnus::{prelude::*, Error, Ruby};

use crate::gvl;
use crate::symbol::symbol;

type Job = unsafe extern "C-unwind" fn(*mut c_void);
type Preregister = unsafe extern "C" fn(c_uint, Job, *mut c_void) -> c_uint;
type Trigger = unsafe extern "C" fn(c_uint);
type Register = unsafe extern "C" fn(c_uint, Job, *mut c_void) -> c_int;
type HasGvl = unsafe extern "C" fn() -> c_int;

/// Size of the VM's buffer of postponed jobs before 3.3.
const SLOTS: usize = 1_000;

/// Profilers that register jobs of their own, from any thread.
const PROFILERS: [&str; 3] = ["StackProf", "Vernier", "Datadog"];

/// Takes the kernel's id of the thread that computes; returns whether the VM was asked.
/// Any thread may call it.
pub type Preempter = Box<dyn Fn(i32) -> bool + Send>;

/// The preempter; `None` when this Ruby has no safe way.
///
/// # Errors
/// What Ruby raised while pending interrupts were handled.
pub fn preempter(ruby: &Ruby) -> Result<Option<Preempter>, Error> {
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
        let job = unsafe { preregister(0, hand_over, ptr::null_mut()) };
        return Ok(Some(Box::new(move |_| {
            // SAFETY: triggering is made for any thread and for signal handlers.
            unsafe { trigger(job) };
            true
        })));
    }
    let profiler = PROFILERS
        .iter()
        .any(|name| ruby.class_object().const_get::<_, magnus::Value>(*name).is_ok());
    if profiler || !SIGNAL.get_or_init(Signal::find).as_ref().is_some_and(Signal::install) {
        return Ok(None);
    }
    gvl::check_interrupts()?;
    Ok(Some(Box::new(signal_thread)))
}

/// What the signal handler calls, found before it is installed.
struct Signal {
    register: Register,
    register_one: Register,
    has_gvl: HasGvl,
}

static SIGNAL: OnceLock<Option<Signal>> = OnceLock::new();

impl Signal {
    fn find() -> Option<Self> {
        let register = symbol(c"rb_postponed_job_register")?;
        let register_one = symbol(c"rb_postponed_job_register_one")?;
        let has_gvl = symbol(c"ruby_thread_has_gvl_p")?;
        // SAFETY: signatures of ruby/debug.h and thread.c before 3.3.
        Some(unsafe {
            Self {
                register: std::mem::transmute::<*mut c_void, Register>(register),
                register_one: std::mem::transmute::<*mut c_void, Register>(register_one),
                has_gvl: std::mem::transmute::<*mut c_void, HasGvl>(has_gvl),
            }
        })
    }

    /// Installs the handler unless the application has one; false when it has.
    fn install(&self) -> bool {
        if handler() == on_signal as *const () as usize {
            return true;
        }
        if ![libc::SIG_DFL, libc::SIG_IGN].contains(&handler()) {
            return false;
        }
        for _ in 0..SLOTS {
            // SAFETY: called with the GVL; returns 0 when the buffer is full.
            if unsafe { (self.register)(0, nothing, ptr::null_mut()) } == 0 {
                break;
            }
        }
        // SAFETY: the handler has the signature that SA_SIGINFO asks for.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_signal as *const () as usize;
            action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK | libc::SA_SIGINFO;
            libc::sigaction(libc::SIGURG, &action, ptr::null_mut()) == 0
        }
    }
}

/// The present handler of the signal.
fn handler() -> usize {
    // SAFETY: reads into our own struct.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGURG, ptr::null(), &mut action);
        action.sa_sigaction
    }
}

fn signal_thread(tid: i32) -> bool {
    // An application that traps the signal gets none of ours.
    handler() == on_signal as *const () as usize
        // SAFETY: a thread that has ended makes this an error.
        && unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, libc::SIGURG) } == 0
}

extern "C" fn on_signal(_: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    let Some(Some(signal)) = SIGNAL.get() else { return };
    // SAFETY: the kernel passes a valid `info`. A signal of another process is not ours.
    // Both functions may be called in a signal handler.
    unsafe {
        if (*info).si_code == libc::SI_TKILL
            && (*info).si_pid() == libc::getpid()
            && (signal.has_gvl)() != 0
        {
            (signal.register_one)(0, hand_over, ptr::null_mut());
        }
    }
}

unsafe extern "C-unwind" fn nothing(_: *mut c_void) {}

unsafe extern "C-unwind" fn hand_over(_: *mut c_void) {
    gvl::let_others_run();
}
