//! The idle timer: garbage collection and trimming can be put off until the pool has
//! been idle for a while. The timer costs nothing while it is not set.

use crate::clock;
use crate::pool::Pool;
use crate::process::events::SupportEvent;
use crate::sync::atomic::AtomicU64;
use crate::sync::atomic::Ordering::{Acquire, Release};

/// When the pool is next checked for idleness.
#[derive(Default)]
pub(crate) struct IdleTimer {
    /// Required idle time (ns); 0 while the timer is not set.
    delay_ns: AtomicU64,
    /// When the pool is checked (ns of the clock).
    due_ns: AtomicU64,
}

impl Pool {
    /// Posts [`SupportEvent::Idle`] once nothing has run or waited for `delay_ns`.
    /// A call while the timer is set changes nothing.
    pub fn set_idle_timer(&self, delay_ns: u64) {
        if self.is_idle_timer_set() {
            return;
        }
        self.idle_timer.due_ns.store(clock::now_ns() + delay_ns, Release);
        self.idle_timer.delay_ns.store(delay_ns.max(1), Release);
        self.event_fd.notify();
    }

    /// Since when nothing runs and nothing waits (ns of the clock); `None` while
    /// something does.
    pub fn idle_since_ns(&self) -> Option<u64> {
        let state = self.state.lock();
        let idle = state.running == 0 && state.queue.is_empty();
        idle.then_some(state.last_finish_ns.max(state.last_take_ns))
    }

    /// Whether the idle timer is set.
    pub fn is_idle_timer_set(&self) -> bool {
        self.idle_timer.delay_ns.load(Acquire) != 0
    }

    pub(crate) fn idle_due_ns(&self) -> Option<u64> {
        self.is_idle_timer_set().then(|| self.idle_timer.due_ns.load(Acquire))
    }

    /// Posts the event if the timer is due and the pool was idle for long enough.
    pub(crate) fn post_idle_if_due(&self, now: u64) {
        if self.idle_due_ns().is_none_or(|due| now < due) {
            return;
        }
        let delay = self.idle_timer.delay_ns.load(Acquire);
        // While work runs, the pool cannot be idle for that long before then.
        let due = self.idle_since_ns().unwrap_or(now) + delay;
        if now < due {
            return self.idle_timer.due_ns.store(due, Release);
        }
        // Before the event, whose receiver may set the timer again.
        self.idle_timer.delay_ns.store(0, Release);
        self.events.post(SupportEvent::Idle);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::pool::queue::QueueLimits;
    use crate::pool::thread::Take;
    use crate::pool::PoolSettings;
    use crate::process::scoreboard::Scoreboard;
    use crate::work::testing::request;
    use crate::work::{Priority, Role};

    fn pool() -> Arc<Pool> {
        let scoreboard = Arc::new(Scoreboard::new(1).unwrap());
        let pool = Pool::new(PoolSettings::for_tests(1), scoreboard, false).unwrap();
        let limits = QueueLimits { count_max: 9, bytes_max: 9, age_max_ms: 0 };
        pool.register(Role::Web, Priority::Interactive, limits);
        pool
    }

    #[test]
    fn posts_once_after_the_idle_time() {
        let pool = pool();
        assert_eq!(pool.idle_due_ns(), None);
        pool.set_idle_timer(1_000_000);
        let due = pool.idle_due_ns().unwrap();
        pool.set_idle_timer(5);
        assert_eq!(pool.idle_due_ns(), Some(due), "the timer is set already");
        pool.post_idle_if_due(due - 1);
        assert_eq!(pool.events.poll(), None);
        pool.post_idle_if_due(due);
        assert_eq!(pool.events.poll(), Some(SupportEvent::Idle));
        assert_eq!(pool.idle_due_ns(), None);
    }

    #[test]
    fn work_in_between_restarts_the_idle_time() {
        let pool = pool();
        let thread = pool.enter();
        pool.set_idle_timer(1_000_000_000);
        let due = pool.idle_due_ns().unwrap();
        pool.enqueue(request(1)).ok().unwrap();
        assert!(matches!(thread.take(), Take::Work(_)));
        assert_eq!(pool.idle_since_ns(), None);
        assert!(matches!(thread.take(), Take::Wait));
        pool.post_idle_if_due(due);
        let later = pool.idle_due_ns().unwrap();
        assert!(later > due, "the time counts from when the last work finished");
        pool.enqueue(request(1)).ok().unwrap();
        pool.post_idle_if_due(later);
        assert_eq!(pool.events.poll(), None, "work waits");
        assert!(pool.idle_due_ns().unwrap() > later, "and the timer stays set");
    }
}
