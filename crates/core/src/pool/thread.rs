//! A Ruby thread's place at the pool.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::Arc;

use crossbeam_utils::sync::{Parker, Unparker};
use parking_lot::Mutex;

use crate::clock;
use crate::pool::probe::ThreadProbe;
use crate::pool::thread_record::{Current, ThreadRecord};
use crate::pool::{Pool, PoolState};
use crate::work::{Shed, Work};

/// After this long without giving others a turn, in ns, a thread that keeps
/// finding work lets those in that wait for the GVL in the middle of a unit.
const SLICE_NS: u64 = 2_000_000;
/// A thread that did not use the CPU for this much of its turn, in ns, blocked
/// in it: others had theirs, and one more change of the GVL would only cost.
const BLOCKED_NS: u64 = 500_000;

/// When a turn began, by the monotonic clock and by the thread's CPU clock.
#[derive(Clone, Copy)]
struct TimeSlice {
    wall_ns: u64,
    /// Read when the turn has lasted a while: most end before.
    cpu_ns: Option<u64>,
}

/// What [`PoolThread::take`] answers.
pub enum Take<W> {
    /// A unit to run.
    Work(W),
    /// Nothing to do: call [`PoolThread::wait`] without the GVL, then take again.
    Wait,
    /// Other threads are in the middle of a unit and had no turn for a while:
    /// let the VM switch threads, then take again.
    Yield,
    /// The thread is not needed any more and shall end.
    Leave,
}

/// The place of one thread. Not shared: only its thread takes and waits.
/// Dropping it, also when user code killed the thread, frees the place.
pub struct PoolThread<W: Work> {
    pool: Arc<Pool<W>>,
    thread: Arc<ThreadRecord<W::Label>>,
    parker: Parker,
    /// Counted in `PoolState::waking` until its first take after a wake.
    waking: Cell<bool>,
    /// This turn: it begins at the first take with the GVL after a wait or a
    /// yield. The time spent waiting for the GVL is not ours.
    turn: Cell<Option<TimeSlice>>,
    left: Cell<bool>,
}

impl<W: Work> PoolThread<W> {
    pub(crate) fn enter(pool: &Arc<Pool<W>>) -> Self {
        let parker = Parker::new();
        let mut state = pool.state.lock();
        let index = state.threads.iter().position(Option::is_none).unwrap_or_else(|| {
            state.threads.push(None);
            state.threads.len() - 1
        });
        let thread = Arc::new(ThreadRecord {
            index,
            probe: ThreadProbe::current(),
            unparker: parker.unparker().clone(),
            current: Mutex::new(None),
            parked: AtomicBool::new(false),
            cpu_seen_ns: AtomicU64::new(0),
        });
        state.threads[index] = Some(thread.clone());
        state.awake += 1;
        state.waking += 1;
        state.spawning = state.spawning.saturating_sub(1);
        pool.slot().threads.store(state.alive() as u32, Relaxed);
        drop(state);
        Self {
            pool: pool.clone(),
            thread,
            parker,
            waking: Cell::new(true),
            turn: Cell::new(None),
            left: Cell::new(false),
        }
    }

    /// Index of the thread, as in [`crate::pool::thread_record::Running::thread`].
    pub fn index(&self) -> usize {
        self.thread.index
    }

    /// The thread as others see it.
    pub fn thread(&self) -> &Arc<ThreadRecord<W::Label>> {
        &self.thread
    }

    /// Ends a [`PoolThread::wait`] from another thread.
    pub fn unparker(&self) -> Unparker {
        self.thread.unparker.clone()
    }

    /// Finishes the unit taken before, if any, and takes the next. Never blocks.
    pub fn take(&self) -> Take<W> {
        let done = self.thread.current.lock().take();
        let now = clock::now_ns();
        let mut old = Vec::new();
        let mut state = self.pool.state.lock();
        if done.is_some() {
            state.finished += 1;
            state.running -= 1;
            state.last_end_ns = now;
        }
        self.arrive(&mut state);
        let taken = self.next(&mut state, now, &mut old);
        let woken = match &taken {
            Take::Work(_) if !state.queue.is_empty() && state.awake < state.width => {
                state.wake_one()
            }
            _ => None,
        };
        // Units are left and nobody comes for them: somebody must look.
        let look = !state.queue.is_empty() && woken.is_none();
        self.pool.publish(&state);
        drop(state);
        if look {
            self.pool.arm();
        }
        if let Take::Work(work) = &taken {
            *self.thread.current.lock() = Some(Current { label: work.label(), since_ns: now });
        }
        if let Some(thread) = woken {
            thread.unparker.unpark();
        }
        drop(done);
        self.pool.shed(old, Shed::Old);
        taken
    }

    /// Blocks until there may be something to take. The caller has released
    /// the GVL. Returns early after [`PoolThread::unparker`] was used.
    pub fn wait(&self) {
        self.parker.park();
        self.turn.set(None);
    }

    /// Counts a thread that was woken, or started, as arrived.
    fn arrive(&self, state: &mut PoolState<W>) {
        let index = self.thread.index;
        self.thread.parked.store(false, Relaxed);
        if let Some(at) = state.idle.iter().position(|i| *i == index) {
            // Nobody woke it: it comes back from an interrupt.
            state.idle.remove(at);
            state.idle_low = state.idle_low.min(state.idle.len());
            state.awake += 1;
            self.waking.set(false);
        } else if self.waking.replace(false) {
            state.waking = state.waking.saturating_sub(1);
        }
    }

    fn next(&self, state: &mut PoolState<W>, now: u64, old: &mut Vec<W>) -> Take<W> {
        let others_at_work = state.running > 0 && !state.queue.is_empty();
        if self.slice_is_over(now) && others_at_work {
            self.turn.set(None);
            return Take::Yield;
        }
        let over_width = state.awake > state.width && state.awake > 1;
        if !over_width || state.closing {
            if let Some(work) = state.queue.pop(now, old) {
                state.taken += 1;
                state.running += 1;
                state.last_take_ns = now;
                self.pool.slot().taken_at_ms.store(now / 1_000_000, Relaxed);
                return Take::Work(work);
            }
        }
        if state.closing || state.leaving > 0 {
            state.leaving = state.leaving.saturating_sub(1);
            self.give_up(state);
            return Take::Leave;
        }
        state.idle.push(self.thread.index);
        self.thread.parked.store(true, Relaxed);
        state.awake -= 1;
        self.waking.set(true);
        Take::Wait
    }

    /// Whether this thread has used the CPU for a whole turn without a break.
    fn slice_is_over(&self, now: u64) -> bool {
        let turn = self.turn.get().unwrap_or(TimeSlice { wall_ns: now, cpu_ns: None });
        self.turn.set(Some(turn));
        let wall_ns = now.saturating_sub(turn.wall_ns);
        if wall_ns < SLICE_NS {
            return false;
        }
        let cpu = self.thread.probe.cpu_ns().unwrap_or(0);
        let over =
            turn.cpu_ns.is_some_and(|began| wall_ns < cpu.saturating_sub(began) + BLOCKED_NS);
        if !over {
            self.turn.set(Some(TimeSlice { wall_ns: now, cpu_ns: Some(cpu) }));
        }
        over
    }

    fn give_up(&self, state: &mut PoolState<W>) {
        self.left.set(true);
        if let Some(at) = state.idle.iter().position(|i| *i == self.thread.index) {
            state.idle.remove(at);
            state.idle_low = state.idle_low.min(state.idle.len());
        } else {
            state.awake -= 1;
            if self.waking.replace(false) {
                state.waking = state.waking.saturating_sub(1);
            }
        }
        state.threads[self.thread.index] = None;
        self.pool.slot().threads.store(state.alive() as u32, Relaxed);
    }
}

impl<W: Work> Drop for PoolThread<W> {
    fn drop(&mut self) {
        let unfinished = self.thread.current.lock().take();
        if self.left.get() {
            return;
        }
        let mut state = self.pool.state.lock();
        if unfinished.is_some() {
            state.running -= 1;
        }
        self.give_up(&mut state);
        // A wake that this thread took with it goes to another one.
        let wanted = !state.queue.is_empty() && state.awake < state.width;
        let woken = if wanted { state.wake_one() } else { None };
        let replace = !state.closing
            && woken.is_none()
            && (state.alive() < self.pool.config.threads_min || !state.queue.is_empty());
        self.pool.publish(&state);
        drop(state);
        if let Some(thread) = woken {
            thread.unparker.unpark();
        } else if replace {
            self.pool.replace_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::queue::QueueLimits;
    use crate::pool::scheduler::{Scheduler, SchedulerHooks};
    use crate::pool::PoolConfig;
    use crate::process::events::SupportEvent;
    use crate::process::scoreboard::Scoreboard;
    use crate::work::Label;
    use std::time::Duration;

    struct Unit(u64);
    impl Label for u64 {
        fn describe(&self) -> String {
            format!("unit {self}")
        }
        fn id(&self) -> u64 {
            *self
        }
    }
    impl Work for Unit {
        type Label = u64;
        fn bytes(&self) -> usize {
            1
        }
        fn label(&self) -> u64 {
            self.0
        }
        fn shed(self, _: Shed) {}
    }

    fn pool(threads_max: usize) -> Arc<Pool<Unit>> {
        Pool::new(PoolConfig {
            threads_min: 1,
            threads_max,
            queue: vec![QueueLimits { count_max: 100, bytes_max: 100, age_max_ms: 0 }],
            stall_ns: 200_000,
            preempt_ns: 5_000_000,
            thread_idle_ns: 1_000_000_000,
            scoreboard: Arc::new(Scoreboard::new(1).unwrap()),
            slot: 0,
        })
        .unwrap()
    }

    fn watch(pool: &Arc<Pool<Unit>>) -> Scheduler {
        let report = Box::new(|_: &str| {});
        let hooks = SchedulerHooks {
            preempt: None,
            report,
            channel: None,
            orphan_exit: Duration::from_secs(1),
        };
        Scheduler::start(pool, hooks).unwrap()
    }

    #[test]
    fn a_batch_that_woke_one_thread_is_looked_after_when_that_one_blocks() {
        let pool = pool(4);
        let scheduler = watch(&pool);
        let thread = pool.enter();
        assert!(matches!(thread.take(), Take::Wait));
        for id in 0..3 {
            assert!(pool.enqueue(0, Unit(id)).is_ok());
        }
        pool.nudge();
        thread.wait();
        assert!(matches!(thread.take(), Take::Work(Unit(0))));
        // This thread blocks, as in user code; the scheduler asks for another.
        assert!(pool.events().wait());
        assert!(matches!(pool.events().poll(), Some(SupportEvent::Spawn(_))));
        drop(scheduler);
    }

    /// Takes units with `between` before each while another thread is in the
    /// middle of one; answers whether a yield came among so many.
    fn yields_among(takes: usize, between: impl Fn(&PoolThread<Unit>)) -> bool {
        let pool = pool(2);
        let (other, thread) = (pool.enter(), pool.enter());
        pool.apply(&crate::pool::policy::Decision { width: 2, ..Default::default() });
        (0..2).for_each(|id| pool.enqueue(0, Unit(id)).ok().unwrap());
        assert!(matches!(other.take(), Take::Work(_)));
        (0..takes).any(|_| {
            pool.enqueue(0, Unit(9)).ok().unwrap();
            let take = thread.take();
            between(&thread);
            matches!(take, Take::Yield)
        })
    }

    #[test]
    fn a_thread_that_computes_lets_others_in() {
        let compute = |thread: &PoolThread<Unit>| {
            let until = thread.thread.probe.cpu_ns().unwrap() + SLICE_NS;
            while thread.thread.probe.cpu_ns().unwrap() < until {
                std::hint::black_box(0);
            }
        };
        assert!(yields_among(50, compute));
    }

    #[test]
    fn a_thread_that_blocks_by_itself_keeps_its_turn() {
        let block = |_: &PoolThread<Unit>| std::thread::sleep(Duration::from_nanos(2 * SLICE_NS));
        assert!(!yields_among(20, block));
    }

    #[test]
    fn a_seat_given_up_while_parked_or_woken_leaves_no_trace() {
        let pool = pool(4);
        let (first, second) = (pool.enter(), pool.enter());
        assert!(matches!(first.take(), Take::Wait));
        assert!(matches!(second.take(), Take::Wait));
        drop(first);
        pool.enqueue(0, Unit(1)).ok().unwrap();
        pool.nudge();
        drop(second);
        assert_eq!(pool.stats().threads, 0);
        assert_eq!(pool.events().poll(), Some(SupportEvent::Spawn(1)), "down to the minimum");
        let third = pool.enter();
        assert!(matches!(third.take(), Take::Work(Unit(1))));
    }

    #[test]
    fn shrinking_survives_threads_killed_while_parked() {
        let pool = pool(8);
        let mut threads: Vec<_> = (0..6).map(|_| pool.enter()).collect();
        assert!(threads.iter().all(|thread| matches!(thread.take(), Take::Wait)));
        pool.shrink();
        threads.truncate(2);
        pool.shrink();
        pool.shrink();
        assert!(pool.stats().threads <= 2);
    }

    #[test]
    fn a_closed_hub_lets_its_threads_leave_when_it_is_empty() {
        let pool = pool(2);
        let thread = pool.enter();
        pool.enqueue(0, Unit(1)).ok().unwrap();
        pool.close();
        assert!(pool.enqueue(0, Unit(2)).is_err());
        assert!(matches!(thread.take(), Take::Work(Unit(1))));
        assert!(matches!(thread.take(), Take::Leave));
    }
}
