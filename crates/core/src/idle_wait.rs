//! Waiting, with a deadline, until an engine has nothing left to do.

use std::time::{Duration, Instant};

use crate::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use crate::sync::{Condvar, Mutex};

/// A wait for a condition whose state lives elsewhere. While no thread waits,
/// [`IdleWait::changed`] costs one atomic load.
#[derive(Default)]
pub struct IdleWait {
    waiters: AtomicUsize,
    interrupted: Mutex<bool>,
    changed: Condvar,
}

impl IdleWait {
    /// Call after a change that may have made the condition true, without holding a
    /// lock that the condition takes.
    pub fn changed(&self) {
        if self.waiters.load(SeqCst) > 0 {
            let _held = self.interrupted.lock();
            self.changed.notify_all();
        }
    }

    /// Waits until `is_idle` returns true; `false` when `timeout` has passed or
    /// the wait was interrupted first.
    pub fn wait(&self, timeout: Duration, is_idle: impl Fn() -> bool) -> bool {
        let until = Instant::now() + timeout;
        // Counted before the first check, so that no change in between is missed.
        self.waiters.fetch_add(1, SeqCst);
        let mut interrupted = self.interrupted.lock();
        let idle = loop {
            if is_idle() {
                break true;
            }
            if std::mem::take(&mut *interrupted) || Instant::now() >= until {
                break false;
            }
            self.changed.wait_until(&mut interrupted, until);
        };
        drop(interrupted);
        self.waiters.fetch_sub(1, SeqCst);
        idle
    }

    /// Ends a wait early; kept for the next one when no thread waits.
    pub fn interrupt(&self) {
        *self.interrupted.lock() = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn a_change_ends_the_wait() {
        let (wait, idle) = (IdleWait::default(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| wait.wait(LONG, || idle.load(SeqCst)));
            idle.store(true, SeqCst);
            wait.changed();
            assert!(waiter.join().unwrap());
        });
    }

    #[test]
    fn an_interrupt_before_the_wait_counts_once() {
        let wait = IdleWait::default();
        wait.interrupt();
        assert!(!wait.wait(LONG, || false));
        assert!(!wait.wait(Duration::from_millis(1), || false), "the deadline ends this one");
        assert!(wait.wait(Duration::ZERO, || true));
    }
}
