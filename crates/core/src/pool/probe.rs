//! Observes a pool thread from outside: its CPU clock and its state in the
//! kernel.
//!
//! A Ruby thread that waits for IO stops its CPU clock. That is how a CRuby
//! without GVL events (3.1) shows that it blocked; see `policy`.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::clock;

/// What can be read about a thread from outside, without its help.
pub struct ThreadProbe {
    tid: libc::pid_t,
    clock: libc::clockid_t,
    stat: Option<File>,
}

impl ThreadProbe {
    /// A probe of the calling thread.
    pub fn current() -> Self {
        // SAFETY: gettid has no preconditions.
        let tid = unsafe { libc::gettid() };
        let mut clock: libc::clockid_t = 0;
        // SAFETY: the calling thread exists; `clock` is ours.
        unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &mut clock) };
        Self { tid, clock, stat: File::open(format!("/proc/self/task/{tid}/stat")).ok() }
    }

    /// The kernel's id of the thread.
    pub fn tid(&self) -> i32 {
        self.tid
    }

    /// CPU time in ns the thread has used, `None` once it is gone.
    pub fn cpu_ns(&self) -> Option<u64> {
        clock::read_ns(self.clock)
    }

    /// Whether the kernel would run the thread: it is on a CPU or waits for
    /// one. A thread that lost its CPU to a neighbour stands still, too, but
    /// has not blocked.
    pub fn is_runnable(&self) -> bool {
        let Some(stat) = &self.stat else { return false };
        let mut buf = [0u8; 128];
        let Ok(n) = stat.read_at(&mut buf, 0) else { return false };
        // "tid (name) S ...": the name may hold anything, so look from its last ')'.
        let line = &buf[..n];
        let Some(end) = line.iter().rposition(|b| *b == b')') else { return false };
        line.get(end + 2) == Some(&b'R')
    }

    /// The kernel function the thread sleeps in, where the kernel tells it.
    pub fn wait_channel(&self) -> Option<String> {
        let text = std::fs::read_to_string(format!("/proc/self/task/{}/wchan", self.tid)).ok()?;
        let text = text.trim();
        (!text.is_empty() && text != "0").then(|| text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_works_advances_and_is_runnable() {
        let probe = ThreadProbe::current();
        let before = probe.cpu_ns().unwrap();
        let mut sum = 0u64;
        while probe.cpu_ns().unwrap() < before + 1_000_000 {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(probe.is_runnable());
    }

    #[test]
    fn a_thread_that_waits_is_seen_standing_still() {
        let (tx, rx) = std::sync::mpsc::channel();
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            tx.send(ThreadProbe::current()).unwrap();
            let _ = wait.recv();
        });
        let probe = rx.recv().unwrap();
        while probe.is_runnable() {
            std::thread::yield_now();
        }
        let at = probe.cpu_ns().unwrap();
        assert_eq!(probe.cpu_ns().unwrap(), at);
        go.send(()).unwrap();
        thread.join().unwrap();
    }
}
