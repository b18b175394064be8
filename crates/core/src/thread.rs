//! Rust threads: each has a name and blocks every signal, so that signals reach
//! only Ruby's threads.

use std::io;
use std::mem::MaybeUninit;
use std::thread::{Builder, JoinHandle};

/// Starts a thread that blocks every signal.
///
/// # Errors
/// When the operating system gives no thread.
pub fn spawn<F>(name: &str, body: F) -> io::Result<JoinHandle<()>>
where
    F: FnOnce() + Send + 'static,
{
    // A new thread inherits the mask, so no signal can reach it even at its start.
    let before = block_all();
    let thread = Builder::new().name(name.to_owned()).spawn(body);
    restore(&before);
    thread
}

fn block_all() -> libc::sigset_t {
    let mut all = MaybeUninit::uninit();
    let mut before = MaybeUninit::uninit();
    // SAFETY: both sets are ours and filled by the calls.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        before.assume_init()
    }
}

fn restore(mask: &libc::sigset_t) {
    // SAFETY: a set filled by `block_all`.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, std::ptr::null_mut()) };
}
