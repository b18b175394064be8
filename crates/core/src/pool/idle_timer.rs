//! Waiting for idleness: some work, collecting and trimming, is put off until
//! nothing has been run or waited for a while. Nobody is woken for it while
//! nobody asks.

use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Release},
};

use crate::clock;
use crate::pool::Pool;
use crate::process::events::SupportEvent;
use crate::work::Work;

/// Who asked to be told, and when it is looked whether it is so.
#[derive(Default)]
pub(crate) struct IdleTimer {
    /// Time without work that was asked for (ns); 0 while nobody asks.
    delay_ns: AtomicU64,
    /// When it is looked (ns of the clock).
    due_ns: AtomicU64,
}

impl<W: Work> Pool<W> {
    /// Posts [`SupportEvent::Idle`] once nothing has run or waited for `delay_ns`. A call
    /// while one is pending changes nothing.
    pub fn ask_idle(&self, delay_ns: u64) {
        if self.is_idle_asked() {
            return;
        }
        self.idle_timer.due_ns.store(clock::now_ns() + delay_ns, Release);
        self.idle_timer.delay_ns.store(delay_ns.max(1), Release);
        self.event_fd.notify();
    }

    /// Whether nothing runs and nothing waits, and since when (ns of the clock).
    pub fn idle_since_ns(&self) -> Option<u64> {
        let state = self.state.lock();
        let idle = state.running == 0 && state.queue.is_empty();
        idle.then_some(state.last_end_ns.max(state.last_take_ns))
    }

    /// Whether somebody asked and has not been told yet.
    pub fn is_idle_asked(&self) -> bool {
        self.idle_timer.delay_ns.load(Acquire) != 0
    }

    pub(crate) fn idle_due_ns(&self) -> Option<u64> {
        self.is_idle_asked().then(|| self.idle_timer.due_ns.load(Acquire))
    }

    /// Looks, when it is time to.
    pub(crate) fn end_idle_wait(&self, now: u64) {
        if self.idle_due_ns().is_none_or(|due| now < due) {
            return;
        }
        let delay = self.idle_timer.delay_ns.load(Acquire);
        // While something runs it is not idle before that long from now.
        let due = self.idle_since_ns().unwrap_or(now) + delay;
        if now < due {
            return self.idle_timer.due_ns.store(due, Release);
        }
        self.events.post(SupportEvent::Idle);
        self.idle_timer.delay_ns.store(0, Release);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::pool::queue::QueueLimits;
    use crate::pool::thread::Take;
    use crate::pool::PoolConfig;
    use crate::process::scoreboard::Scoreboard;
    use crate::work::{Label, Shed};

    struct Unit;

    impl Label for Unit {
        fn describe(&self) -> String {
            String::new()
        }

        fn id(&self) -> u64 {
            0
        }
    }

    impl Work for Unit {
        type Label = Self;

        fn bytes(&self) -> usize {
            0
        }

        fn label(&self) -> Self {
            Self
        }

        fn shed(self, _: Shed) {}
    }

    fn pool() -> Arc<Pool<Unit>> {
        Pool::new(PoolConfig {
            threads_min: 1,
            threads_max: 1,
            queue: vec![QueueLimits { count_max: 9, bytes_max: 9, age_max_ms: 0 }],
            stall_ns: 200_000,
            preempt_ns: 5_000_000,
            thread_idle_ns: 1_000_000_000,
            scoreboard: Arc::new(Scoreboard::new(1).unwrap()),
            slot: 0,
        })
        .unwrap()
    }

    #[test]
    fn is_told_once_after_that_long_without_work() {
        let pool = pool();
        assert_eq!(pool.idle_due_ns(), None);
        pool.ask_idle(1_000_000);
        let due = pool.idle_due_ns().unwrap();
        pool.ask_idle(5);
        assert_eq!(pool.idle_due_ns(), Some(due), "one question at a time");
        pool.end_idle_wait(due - 1);
        assert_eq!(pool.events.poll(), None);
        pool.end_idle_wait(due);
        assert_eq!(pool.events.poll(), Some(SupportEvent::Idle));
        assert_eq!(pool.idle_due_ns(), None);
    }

    #[test]
    fn work_in_between_begins_the_wait_again() {
        let pool = pool();
        let thread = pool.enter();
        pool.ask_idle(1_000_000_000);
        let due = pool.idle_due_ns().unwrap();
        pool.push(0, Unit).ok().unwrap();
        assert!(matches!(thread.take(), Take::Work(_)));
        assert_eq!(pool.idle_since_ns(), None);
        assert!(matches!(thread.take(), Take::Wait));
        pool.end_idle_wait(due);
        let later = pool.idle_due_ns().unwrap();
        assert!(later > due, "the time counts from the last unit's end");
        pool.push(0, Unit).ok().unwrap();
        pool.end_idle_wait(later);
        assert_eq!(pool.events.poll(), None, "a unit waits");
        assert!(pool.idle_due_ns().unwrap() > later, "and the question stands");
    }
}
