//! A Ruby thread's handle of the pool: takes work and waits for it.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use crate::clock;
use crate::pool::quantum::CpuMeter;
use crate::pool::state::PoolState;
pub use crate::pool::state::Take;
use crate::pool::thread_record::ThreadRecord;
use crate::pool::{unpark, Pool};
use crate::process::events::SupportEvent;
use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::{Parker, Unparker};
use crate::work::Role;

/// A thread that takes work without a pause yields the GVL after this long (ns) to
/// threads that wait for it.
const SLICE_NS: u64 = 2_000_000;
/// Without GVL events nobody knows which threads wait: a thread that has computed for this long (ns) yields to threads
/// outside the pool. To others at work it yields then in any case, because it may have slept with the GVL, as SQLite does
/// while it writes: later the VM would take the GVL from it, perhaps inside a transaction.
const LONG_SLICE_NS: u64 = 20_000_000;
/// A thread that did not use the CPU for this much of its time slice (ns) has blocked
/// in it. Other threads have run meanwhile, so it need not yield.
const BLOCKED_NS: u64 = 500_000;

/// When a time slice began, by the monotonic clock and by the thread's CPU clock.
#[derive(Clone, Copy)]
struct TimeSlice {
    /// When the thread last waited or yielded.
    since_ns: u64,
    wall_ns: u64,
    /// Read only when the slice has lasted a while.
    cpu_ns: Option<u64>,
}

/// Not shared: only its own thread takes and waits. Dropping it removes the thread
/// from the pool, also when user code killed the thread.
pub struct PoolThread {
    pool: Arc<Pool>,
    thread: Arc<ThreadRecord>,
    parker: Parker,
    /// The work it runs: its engine and since when; `None` if it was skipped.
    current: Cell<Option<(Role, Option<u64>)>>,
    /// Begins at the first take with the GVL after a wait or a yield, so that
    /// the time spent waiting for the GVL does not count.
    slice: Cell<Option<TimeSlice>>,
    meter: RefCell<CpuMeter>,
}

impl Pool {
    /// Adds the calling thread to the pool.
    pub fn enter(self: &Arc<Self>) -> PoolThread {
        let parker = Parker::new();
        let unparker = parker.unparker().clone();
        let mut state = self.state.lock();
        let thread = state.enter(|index| Arc::new(ThreadRecord::current(index, unparker)));
        self.publish_threads(&state);
        let (pool, current, slice) = (self.clone(), Cell::default(), Cell::default());
        PoolThread { pool, thread, parker, current, slice, meter: RefCell::default() }
    }
}

impl PoolThread {
    /// Index of the thread, as in [`crate::work::Running::thread`].
    pub fn index(&self) -> usize {
        self.thread.index
    }

    /// The record of this thread that the pool and the scheduler share.
    pub fn thread(&self) -> &Arc<ThreadRecord> {
        &self.thread
    }

    /// Ends a [`PoolThread::wait`] from another thread.
    pub fn unparker(&self) -> Unparker {
        self.thread.unparker.clone()
    }

    /// Counts the work taken before, if any, as finished and takes the next.
    /// Never blocks.
    pub fn take(&self) -> Take {
        let now = clock::now_ns();
        if let Some(counts) = self.pool.gvl.as_ref().filter(|_| !self.thread.holds_gvl()) {
            // The caller has the GVL. CRuby tells nothing when a wait ends because an interrupt came before it
            // (`thread_sched_to_waiting_until_wakeup` in thread_pthread.c).
            counts.resumed(&self.thread);
        }
        let mut expired = Vec::new();
        let mut state = self.pool.state.lock();
        if !state.has(&self.thread) {
            // It was parked for too long.
            return Take::Leave;
        }
        let ended = self.current.take();
        if let Some((role, since_ns)) = ended {
            state.finish(role, now);
            if let Some(since_ns) = since_ns {
                let cpu_ns = || self.thread.probe.cpu_ns().unwrap_or(0);
                let times = &mut state.cpu_times;
                let mut meter = self.meter.borrow_mut();
                meter.ended(times, role, since_ns, now, cpu_ns);
                self.thread.metered_ns.store(meter.cpu_ns, Relaxed);
                drop(meter);
                self.count_gvl_wait(role);
            }
        }
        let taken = if self.must_yield(&state, now) {
            // A new slice begins, even if the VM does not switch.
            self.thread.held_since_ns.store(now, Relaxed);
            self.slice.set(None);
            Take::Yield
        } else {
            state.take(self.thread.index, now, &mut expired)
        };
        let (mut woken, mut work) = (None, None);
        match &taken {
            Take::Work(taken) => {
                woken = state.wake_for_work(|| now);
                work = Some((taken.clone(), now));
                self.pool.gauges().taken_at_ms.store(now / 1_000_000, Relaxed);
            }
            Take::Leave => self.pool.publish_threads(&state),
            Take::Wait | Take::Yield => {}
        }
        // Work is left. A thread that is woken for it waits behind this one, which may
        // compute for long: the scheduler must observe.
        let arm = !state.queue.is_empty();
        self.pool.publish(&state);
        drop(state);
        if arm {
            self.pool.arm();
        }
        self.current.set(work.as_ref().map(|(work, since_ns)| (work.role(), Some(*since_ns))));
        drop(self.thread.run(work));
        unpark(woken);
        expired.into_iter().for_each(|work| work.release());
        if ended.is_some() && !matches!(taken, Take::Work(_)) {
            self.pool.idle_told.get().into_iter().for_each(|told| told());
        }
        taken
    }

    /// The work taken last is not run. It takes no time, which says nothing about the load:
    /// a crowd of clients that gave up must not make the rest look long.
    pub fn skip(&self) {
        self.current.set(self.current.get().map(|(role, _)| (role, None)));
    }

    /// Counts how long the work that has ended has waited for the GVL. The pool's lock is held.
    fn count_gvl_wait(&self, role: Role) {
        let Some(true) = self.pool.gvl.as_ref().map(|counts| counts.times_waits()) else { return };
        let waited_ns = self.thread.gvl_wait_ns.load(Relaxed);
        self.pool.counters().waits[role as usize].gvl_wait.add_alone(waited_ns);
    }

    /// Blocks until there may be something to take. The caller has released
    /// the GVL. Returns early after [`PoolThread::unparker`] was used.
    pub fn wait(&self) {
        self.parker.park();
        self.slice.set(None);
    }

    /// Whether threads that wait for the GVL get it before this one takes work. Where the
    /// next work is a request, jobs and batches wait until their share is due.
    fn must_yield(&self, state: &PoolState, now: u64) -> bool {
        let slice =
            self.slice.get().unwrap_or(TimeSlice { since_ns: now, wall_ns: now, cpu_ns: None });
        self.slice.set(Some(slice));
        let wall_ns = now.saturating_sub(slice.wall_ns);
        let request_next = state.requests_go_first();
        if let Some(counts) = &self.pool.gvl {
            // The time in which the work itself blocked counts too. Otherwise a thread
            // that waits for a lock gets the GVL only then, while the lock is held.
            return wall_ns >= SLICE_NS
                && counts.others_want()
                && (!request_next || counts.outsiders_want() || self.request_wants(state));
        }
        let background = if request_next { state.running_background } else { 0 };
        let others_at_work = state.running > background && !state.queue.is_empty();
        if others_at_work && now.saturating_sub(slice.since_ns) >= LONG_SLICE_NS {
            return true;
        }
        let slice_ns = if others_at_work { SLICE_NS } else { LONG_SLICE_NS };
        if wall_ns < slice_ns || (background > 0 && !others_at_work) {
            return false;
        }
        // Whether this thread has used the CPU for the whole slice without blocking.
        let cpu_ns = self.thread.probe.cpu_ns().unwrap_or(0);
        let began = slice.cpu_ns;
        let over = began.is_some_and(|began| wall_ns < cpu_ns.saturating_sub(began) + BLOCKED_NS);
        if !over {
            self.slice.set(Some(TimeSlice { wall_ns: now, cpu_ns: Some(cpu_ns), ..slice }));
        }
        over
    }

    /// Whether a thread that runs a request, or is about to take work, wants the GVL.
    fn request_wants(&self, state: &PoolState) -> bool {
        let others = state.records().filter(|thread| thread.index != self.thread.index);
        let mut wanting = others.filter(|thread| thread.can_run.load(Relaxed));
        wanting.any(|thread| thread.role().is_none_or(Role::is_interactive))
    }
}

impl Drop for PoolThread {
    fn drop(&mut self) {
        let unfinished = self.thread.run(None);
        let mut state = self.pool.state.lock();
        if !state.has(&self.thread) {
            return;
        }
        if let Some((role, _)) = self.current.take() {
            state.finish(role, clock::now_ns());
        }
        state.leave(self.thread.index);
        // If this thread was woken for work, another one is woken in its place.
        let woken = state.wake_for_work(clock::now_ns);
        let left = !state.queue.is_empty();
        let few = state.alive() + state.spawning < self.pool.settings.threads_min;
        if !state.closing && (few || left && woken.is_none()) {
            state.spawning += 1;
            self.pool.events.post(SupportEvent::Spawn(1));
        }
        self.pool.publish(&state);
        self.pool.publish_threads(&state);
        drop(state);
        if left {
            self.pool.arm();
        }
        unpark(woken);
        if let Some((work, _)) = unfinished {
            work.abandon();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::queue::QueueLimits;
    use crate::pool::scheduler::{Scheduler, SchedulerHooks};
    use crate::pool::{ns, PoolSettings};
    use crate::process::scoreboard::Scoreboard;
    use crate::process::supervisor_watch::SupervisorWatch;
    use crate::work::testing::request;
    use std::time::{Duration, Instant};

    fn pool(threads_max: usize) -> Arc<Pool> {
        pool_with(threads_max, false)
    }

    fn pool_with(threads_max: usize, gvl_events: bool) -> Arc<Pool> {
        let scoreboard = Arc::new(Scoreboard::new(1).unwrap());
        let settings = PoolSettings { gvl_wait: true, ..PoolSettings::for_tests(threads_max) };
        let pool = Pool::new(settings, scoreboard, gvl_events).unwrap();
        let limits = QueueLimits { count_max: 100, bytes_max: 100, age_max: Duration::ZERO };
        pool.register(Role::Web, limits);
        pool
    }

    fn start_scheduler(pool: &Arc<Pool>) -> Scheduler {
        let supervisor = SupervisorWatch::new(None, Duration::from_secs(1));
        let hooks = SchedulerHooks { preempt: None, supervisor };
        Scheduler::start(pool, hooks).unwrap()
    }

    #[test]
    fn another_thread_is_started_when_the_one_woken_for_a_batch_blocks() {
        let pool = pool(4);
        let scheduler = start_scheduler(&pool);
        let thread = pool.enter();
        assert!(matches!(thread.take(), Take::Wait));
        for id in 0..3 {
            assert!(pool.enqueue(request(id)).is_ok());
        }
        pool.wake_thread();
        thread.wait();
        assert!(matches!(thread.take(), Take::Work(work) if work.id() == 0));
        // This thread blocks as user code would; the scheduler requests another one.
        assert!(pool.events.wait());
        assert!(matches!(pool.events.poll(), Some(SupportEvent::Spawn(_))));
        drop(scheduler);
    }

    #[test]
    fn skipped_work_does_not_shorten_the_quantum() {
        let pool = pool(1);
        pool.state.lock().cpu_times.record(Role::Web, 20_000_000, 10);
        let quantum_ns = || pool.state.lock().quantum_ns(Some(Role::Web));
        let before = quantum_ns();
        let thread = pool.enter();
        let until = clock::now_ns() + 10_000_000;
        while clock::now_ns() < until {
            assert!(pool.enqueue(request(0)).is_ok());
            assert!(matches!(thread.take(), Take::Work(_)));
            thread.skip();
        }
        assert!(matches!(thread.take(), Take::Wait));
        assert_eq!(quantum_ns(), before);
    }

    #[test]
    fn the_scheduler_observes_when_a_batch_begins_although_another_thread_was_woken_for_it() {
        let pool = pool(4);
        pool.state.lock().width = 4;
        let threads = [pool.enter(), pool.enter()];
        assert!(threads.iter().all(|thread| matches!(thread.take(), Take::Wait)));
        (0..3).for_each(|id| pool.enqueue(request(id)).ok().unwrap());
        pool.wake_thread();
        assert!(!pool.armed.load(Relaxed), "the thread that was woken alone takes the work");
        threads[1].wait();
        assert!(matches!(threads[1].take(), Take::Work(_)));
        assert_eq!(pool.state.lock().waking(), 1);
        assert!(pool.armed.load(Relaxed), "the work may compute, and nothing else arrives");
    }

    /// Takes work and calls `between` after each take, while another thread is in the
    /// middle of its work; returns whether one of the takes was a yield.
    fn yields_among(takes: usize, between: impl Fn(&PoolThread)) -> bool {
        yields_in(&pool(2), takes, between)
    }

    fn yields_in(pool: &Arc<Pool>, takes: usize, between: impl Fn(&PoolThread)) -> bool {
        let (other, thread) = (pool.enter(), pool.enter());
        if let Some(counts) = &pool.gvl {
            counts.ready(&other.thread);
        }
        pool.state.lock().width = 2;
        (0..2).for_each(|id| pool.enqueue(request(id)).ok().unwrap());
        assert!(matches!(other.take(), Take::Work(_)));
        (0..takes).any(|_| {
            pool.enqueue(request(9)).ok().unwrap();
            let take = thread.take();
            between(&thread);
            matches!(take, Take::Yield)
        })
    }

    #[test]
    fn a_thread_that_computes_yields() {
        let compute = |thread: &PoolThread| {
            let until = thread.thread.probe.cpu_ns().unwrap() + SLICE_NS;
            while thread.thread.probe.cpu_ns().unwrap() < until {
                std::hint::black_box(0);
            }
        };
        assert!(yields_among(50, compute));
    }

    #[test]
    fn a_thread_that_blocks_by_itself_yields_later() {
        let block = |_: &PoolThread| std::thread::sleep(Duration::from_nanos(2 * SLICE_NS));
        let began = Instant::now();
        // Beside others the sleeps take longer, up to the long slice.
        assert!(!yields_among(3, block) || began.elapsed() >= Duration::from_nanos(LONG_SLICE_NS));
        assert!(yields_among(20, block), "it may have slept with the GVL");
    }

    #[test]
    fn a_thread_whose_work_blocks_yields_to_a_thread_that_wants_the_gvl() {
        let pool = pool_with(2, true);
        let counts = pool.gvl.clone().unwrap();
        let block = |thread: &PoolThread| {
            counts.suspended(&thread.thread);
            std::thread::sleep(Duration::from_nanos(SLICE_NS / 2));
            counts.resumed(&thread.thread);
        };
        assert!(yields_in(&pool, 50, block));
    }

    #[test]
    fn the_time_that_work_waits_for_the_gvl_is_counted_by_role() {
        for gvl_events in [true, false] {
            let pool = pool_with(2, gvl_events);
            let thread = pool.enter();
            for id in 0..2 {
                pool.enqueue(request(id)).ok().unwrap();
                assert!(matches!(thread.take(), Take::Work(_)));
                if let Some(counts) = &pool.gvl {
                    counts.ready(&thread.thread);
                    thread.thread.ready_since_ns.fetch_sub(3_000_000_000, Relaxed);
                    counts.resumed(&thread.thread);
                }
            }
            assert!(matches!(thread.take(), Take::Wait));
            let mut found = [(); 3].map(|()| crate::process::counters::TimeTotals::default());
            let waits = pool.counters().waits.iter().zip(&mut found);
            waits.for_each(|(one, totals)| one.gvl_wait.sum_into(totals));
            let counts = found.each_ref().map(|totals| totals.count());
            assert_eq!(counts, if gvl_events { [2, 0, 0] } else { [0; 3] });
            assert!(!gvl_events || found[0].sum_ns >= 6_000_000_000, "{found:?}");
        }
    }

    #[test]
    fn a_thread_that_takes_has_the_gvl_whatever_the_events_said() {
        let pool = pool_with(2, true);
        let (counts, thread) = (pool.gvl.clone().unwrap(), pool.enter());
        counts.resumed(&thread.thread);
        counts.suspended(&thread.thread);
        assert!(counts.none_wants());
        assert!(matches!(thread.take(), Take::Wait));
        assert!(!counts.none_wants() && thread.thread.holds_gvl());
    }

    #[test]
    fn a_thread_may_leave_while_it_is_parked_or_woken() {
        let pool = pool(4);
        let (first, second) = (pool.enter(), pool.enter());
        assert!(matches!(first.take(), Take::Wait));
        assert!(matches!(second.take(), Take::Wait));
        drop(first);
        pool.enqueue(request(1)).ok().unwrap();
        pool.wake_thread();
        drop(second);
        assert_eq!(pool.stats().threads, 0);
        assert_eq!(
            pool.events.poll(),
            Some(SupportEvent::Spawn(1)),
            "a thread is requested to keep the minimum"
        );
        let third = pool.enter();
        assert!(matches!(third.take(), Take::Work(work) if work.id() == 1));
    }

    #[test]
    fn the_minimum_stays_where_a_thread_leaves_while_work_waits() {
        let settings = PoolSettings { threads_min: 2, ..PoolSettings::for_tests(2) };
        let pool = Pool::new(settings, Arc::new(Scoreboard::new(1).unwrap()), false).unwrap();
        let limits = QueueLimits { count_max: 100, bytes_max: 100, age_max: Duration::ZERO };
        pool.register(Role::Web, limits);
        let (parked, killed) = (pool.enter(), pool.enter());
        assert!(matches!(parked.take(), Take::Wait));
        (0..2).for_each(|id| pool.enqueue(request(id)).ok().unwrap());
        assert!(matches!(killed.take(), Take::Work(work) if work.id() == 0));
        drop(killed);
        assert_eq!(pool.events.poll(), Some(SupportEvent::Spawn(1)));
        assert!(matches!(parked.take(), Take::Work(work) if work.id() == 1), "it was woken");
        drop(parked);
        assert_eq!(pool.events.poll(), Some(SupportEvent::Spawn(1)));
        assert_eq!(pool.events.poll(), None);
    }

    #[test]
    fn work_is_abandoned_when_its_thread_ends() {
        let pool = pool(2);
        let (killed, left) = (pool.enter(), pool.enter());
        let works = [request(1), request(2)];
        for work in &works {
            pool.enqueue(work.clone()).ok().unwrap();
        }
        drop(killed);
        assert!(matches!(left.take(), Take::Work(_)));
        assert!(matches!(left.take(), Take::Work(_)));
        assert!(works
            .iter()
            .all(|work| !work.abandoned.load(std::sync::atomic::Ordering::Acquire)));
        drop(left);
        let abandoned = works.map(|work| work.abandoned.load(std::sync::atomic::Ordering::Acquire));
        assert_eq!(abandoned, [false, true], "the first one was finished by the second take");
        assert_eq!(pool.stats().running, 0);
    }

    #[test]
    fn threads_may_be_killed_while_parked_and_the_pool_still_shrinks() {
        let pool = pool(8);
        let mut threads: Vec<_> = (0..6).map(|_| pool.enter()).collect();
        assert!(threads.iter().all(|thread| matches!(thread.take(), Take::Wait)));
        threads.truncate(2);
        pool.shrink(clock::now_ns() + ns(pool.settings.thread_idle));
        assert_eq!(pool.stats().threads, 1, "the minimum stays");
        let left = threads.iter().filter(|thread| matches!(thread.take(), Take::Leave)).count();
        assert_eq!(left, 1);
    }

    #[test]
    fn a_closed_pool_lets_its_threads_leave_when_it_is_empty() {
        let pool = pool(2);
        let thread = pool.enter();
        pool.enqueue(request(1)).ok().unwrap();
        pool.close();
        assert!(pool.enqueue(request(2)).is_err());
        assert!(matches!(thread.take(), Take::Work(work) if work.id() == 1));
        assert!(matches!(thread.take(), Take::Leave));
    }
}
