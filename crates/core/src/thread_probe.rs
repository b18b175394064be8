//! Observes a thread from outside: its CPU clock and its state in the
//! kernel.
//!
//! The CPU clock of a Ruby thread stands still while the thread waits for IO. On
//! a CRuby without GVL events (3.1) the scheduler sees a block by that.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

/// Reads a thread's CPU clock and state without its help.
pub struct ThreadProbe {
    tid: i32,
    clock: libc::clockid_t,
    /// Opened when it is first read.
    stat: OnceLock<Option<File>>,
    wait_channel: OnceLock<Option<File>>,
}

impl ThreadProbe {
    /// A probe of the calling thread.
    pub fn current() -> Self {
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        let mut clock: libc::clockid_t = 0;
        // SAFETY: the calling thread exists; `clock` is ours.
        unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &mut clock) };
        Self { tid, clock, stat: OnceLock::new(), wait_channel: OnceLock::new() }
    }

    /// The kernel's id of the thread.
    pub fn tid(&self) -> i32 {
        self.tid
    }

    /// CPU time in ns that the thread has used; `None` after its end.
    pub fn cpu_ns(&self) -> Option<u64> {
        let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `at` is ours; for a thread that has ended this is an error.
        let failed = unsafe { libc::clock_gettime(self.clock, &mut at) } != 0;
        (!failed).then(|| at.tv_sec as u64 * 1_000_000_000 + at.tv_nsec as u64)
    }

    /// Whether the thread is on a CPU or waits for one. The CPU clock of a thread
    /// that lost its CPU to another process stands still, but it has not blocked.
    pub fn is_runnable(&self) -> bool {
        self.state() == Some(b'R')
    }

    /// Whether it is in an uninterruptible sleep.
    pub fn waits_for_disk(&self) -> bool {
        self.state() == Some(b'D')
    }

    /// The letter of proc_pid_stat(5).
    fn state(&self) -> Option<u8> {
        let open = || File::open(format!("/proc/self/task/{}/stat", self.tid)).ok();
        let stat = self.stat.get_or_init(open).as_ref()?;
        let mut buf = [0u8; 128];
        let n = stat.read_at(&mut buf, 0).ok()?;
        // "tid (name) S ...": the name may contain parentheses, so the last one counts.
        let line = &buf[..n];
        let end = line.iter().rposition(|b| *b == b')')?;
        line.get(end + 2).copied()
    }

    /// The kernel function in which the thread sleeps, if the kernel shows it.
    pub fn wait_channel(&self) -> Option<String> {
        let open = || File::open(format!("/proc/self/task/{}/wchan", self.tid)).ok();
        let mut buf = [0u8; 128];
        let n = self.wait_channel.get_or_init(open).as_ref()?.read_at(&mut buf, 0).ok()?;
        let text = std::str::from_utf8(&buf[..n]).ok()?.trim();
        (!text.is_empty() && text != "0").then(|| text.to_owned())
    }

    /// Whether code in C sleeps for a time, as the busy handler of SQLite does; it has not given up the GVL. Ruby itself
    /// sleeps in `futex` and `ppoll`.
    pub fn sleeps_in_c(&self) -> bool {
        self.wait_channel().is_some_and(|channel| channel.contains("nanosleep"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_computing_thread_is_runnable_and_its_clock_advances() {
        let probe = ThreadProbe::current();
        let before = probe.cpu_ns().unwrap();
        let mut sum = 0u64;
        while probe.cpu_ns().unwrap() < before + 1_000_000 {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(probe.is_runnable());
    }

    #[test]
    fn a_sleep_of_code_in_c_is_told_from_a_wait() {
        let (tx, rx) = std::sync::mpsc::channel();
        let sleeper = std::thread::spawn(move || {
            tx.send(ThreadProbe::current()).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(200));
        });
        let probe = rx.recv().unwrap();
        let sees = || probe.wait_channel().is_some_and(|channel| channel.contains("nanosleep"));
        while !sees() && !sleeper.is_finished() {
            std::thread::yield_now();
        }
        assert!(probe.sleeps_in_c(), "{:?}", probe.wait_channel());
        sleeper.join().unwrap();
        assert!(!ThreadProbe::current().sleeps_in_c());
    }

    #[test]
    fn the_clock_of_a_waiting_thread_stands_still() {
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
