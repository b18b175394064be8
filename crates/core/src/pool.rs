//! The pool: engines put work into its queue, Ruby threads take it out.
//!
//! A thread that finishes its work tries the queue again at once, still holding
//! the GVL ([`PoolThread::take`]). It waits, outside the GVL, only when the queue
//! is empty ([`PoolThread::wait`]). New work wakes a parked thread only while fewer
//! than `width` threads are awake, so that a single busy thread is not disturbed.
//! The `scheduler` changes the width as `policy` decides.

mod affinity;
mod back_off;
mod clock_activity;
pub mod gvl_activity;
pub(crate) mod observer;
pub mod policy;
mod quantum;
pub mod queue;
pub mod scheduler;
#[cfg(test)]
mod simulation;
mod state;
pub mod thread;
pub mod thread_record;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock;
use crate::event_fd::EventFd;
use crate::pool::gvl_activity::GvlCounts;
use crate::pool::quantum::CpuTimes;
use crate::pool::queue::{QueueLimits, WorkQueue};
use crate::pool::state::{PoolState, PoolTotals};
use crate::pool::thread_record::ThreadRecord;
use crate::process::counters::WorkCounters;
use crate::process::events::{SupportEvent, SupportEvents};
use crate::process::scoreboard::{OwnGauges, Scoreboard, WorkerGauges};
use crate::settings::{millis, seconds};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::Mutex;
use crate::work::{Role, Running, Work};

/// Settings of a pool: the section `pool` of the document.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolSettings {
    /// Threads that stay when there is nothing to do.
    pub threads_min: usize,
    /// Threads at most.
    pub threads_max: usize,
    /// After this time without a pool thread that can run, another one is woken.
    #[serde(rename = "blocked_ms", deserialize_with = "millis")]
    pub blocked: Duration,
    /// Before CRuby 3.3: time between two readings of the threads' CPU clocks while work
    /// waits.
    #[serde(rename = "stall_ms", deserialize_with = "millis")]
    pub stall: Duration,
    /// The least CPU time after which running work makes place for waiting work.
    #[serde(rename = "preempt_ms", deserialize_with = "millis")]
    pub quantum_min: Duration,
    /// Whether the VM may be asked to yield.
    pub preempt: bool,
    /// Percent of the time with the GVL that jobs and batches get while requests wait too.
    pub background_share: u8,
    /// A thread above the minimum leaves after this long without work.
    #[serde(rename = "thread_idle_s", deserialize_with = "seconds")]
    pub thread_idle: Duration,
    /// Whether it is counted how long work waits for the GVL, where CRuby reports that.
    pub gvl_wait: bool,
    /// Whether threads that take turns at the GVL may be bound to one core, where CRuby reports that.
    pub cpu_affinity: bool,
    /// This worker's slot on the scoreboard.
    pub slot: usize,
    /// Time between the supervisor's end and the forced exit of this process.
    #[serde(rename = "orphan_exit_s", deserialize_with = "seconds")]
    pub orphan_exit: Duration,
}

/// The pool's clocks count nanoseconds.
pub(crate) fn ns(time: Duration) -> u64 {
    time.as_nanos() as u64
}

#[cfg(test)]
impl PoolSettings {
    pub(crate) fn for_tests(threads_max: usize) -> Self {
        Self {
            threads_min: 1,
            threads_max,
            blocked: Duration::from_micros(100),
            stall: Duration::from_micros(200),
            quantum_min: Duration::from_millis(5),
            preempt: true,
            background_share: 10,
            thread_idle: Duration::from_secs(1),
            gvl_wait: false,
            cpu_affinity: false,
            slot: 0,
            orphan_exit: Duration::from_secs(1),
        }
    }
}

/// The counters of a pool.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Stats {
    /// Units of work that wait.
    pub waiting: usize,
    /// Age in ms of the oldest of them.
    pub oldest_age_ms: u64,
    /// Units of work being run.
    pub running: usize,
    /// Threads in the pool.
    pub threads: usize,
    /// Threads that may be awake.
    pub width: usize,
    /// What was counted since the start.
    #[serde(flatten)]
    pub totals: PoolTotals,
}

/// The pool. Shared by engines, threads and the scheduler.
pub struct Pool {
    /// What it was started with.
    pub settings: PoolSettings,
    /// Where the gauges are published.
    pub scoreboard: Arc<Scoreboard>,
    /// The events for the support thread.
    pub events: SupportEvents,
    /// Who holds and wants the GVL; `None` where CRuby does not report it.
    pub gvl: Option<Arc<GvlCounts>>,
    pub(crate) state: Mutex<PoolState>,
    pub(crate) event_fd: Arc<EventFd>,
    /// The scheduler is observing, so new work need not notify it.
    pub(crate) armed: AtomicBool,
    /// After this time without work (ns), the support thread gets an event; 0 for never.
    idle_timer_ns: AtomicU64,
    /// See [`Pool::on_idle_thread`].
    pub(crate) idle_told: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

/// Ends the waits of these threads.
pub(crate) fn unpark(threads: impl IntoIterator<Item = Arc<ThreadRecord>>) {
    threads.into_iter().for_each(|thread| thread.unparker.unpark());
}

impl Pool {
    /// A pool without threads, whose gauges are published on this scoreboard.
    /// `gvl_events` says whether [`Pool::gvl`] is fed with CRuby's events.
    ///
    /// # Errors
    /// When the operating system gives no event descriptor.
    pub fn new(
        settings: PoolSettings,
        scoreboard: Arc<Scoreboard>,
        gvl_events: bool,
    ) -> std::io::Result<Arc<Self>> {
        let event_fd = Arc::new(EventFd::new()?);
        scoreboard.slot(settings.slot).counted.store(1, Ordering::Relaxed);
        let queue = WorkQueue::new(settings.background_share);
        let gvl = gvl_events.then(|| {
            let gauges = OwnGauges::new(scoreboard.clone(), settings.slot);
            Arc::new(GvlCounts::new(event_fd.clone(), &settings, gauges))
        });
        let state = PoolState::new(queue, CpuTimes::new(ns(settings.quantum_min)), clock::now_ns());
        Ok(Arc::new(Self {
            settings,
            scoreboard,
            events: SupportEvents::default(),
            gvl,
            state: Mutex::new(state),
            event_fd,
            armed: AtomicBool::new(false),
            idle_timer_ns: AtomicU64::new(0),
            idle_told: OnceLock::new(),
        }))
    }

    /// Opens the queue for the engine of this role.
    pub fn register(&self, role: Role, limits: QueueLimits) {
        self.state.lock().queue.register(role, limits);
    }

    /// Puts work into the queue. The caller calls [`Pool::wake_thread`] when it has put
    /// in all it has, so that a batch wakes a thread once.
    ///
    /// # Errors
    /// Gives the work back when its engine's part of the queue is full, or the
    /// pool is closed.
    pub fn enqueue(&self, work: Arc<dyn Work>) -> Result<(), Arc<dyn Work>> {
        let now = clock::now_ns();
        let mut state = self.state.lock();
        if state.closing {
            return Err(work);
        }
        state.queue.push(work, now)
    }

    /// Wakes a thread if work waits and fewer than `width` threads are awake. That
    /// thread wakes the next one when it has taken work and more waits.
    pub fn wake_thread(&self) {
        let mut state = self.state.lock();
        if state.queue.is_empty() {
            return;
        }
        let woken = state.wake_for_work(clock::now_ns);
        let alone = state.awake == 1;
        let wakeable = self.publish(&state);
        drop(state);
        // A thread that is awake alone will take the work. One of several may have to
        // wait for the GVL behind a computing thread.
        let observe = woken.is_none() || !alone;
        if woken.is_some() {
            unpark(woken);
        } else if wakeable && self.gvl.as_ref().is_some_and(|counts| counts.none_wants()) {
            // All threads have been blocked for a while, and the scheduler knows nothing
            // of the new work.
            self.armed.store(true, Ordering::Release);
            self.event_fd.notify();
        }
        if observe {
            self.arm();
        }
    }

    /// Asks the support thread to report work that runs past its time.
    pub fn report_late(&self, role: Role, id: u64) {
        self.events.post(SupportEvent::Late(role, id, clock::now_ns()));
        self.event_fd.notify();
    }

    /// Closes the queue; threads leave when it is empty.
    pub fn close(&self) {
        let now = clock::now_ns();
        let mut state = self.state.lock();
        state.closing = true;
        let woken: Vec<_> = std::iter::from_fn(|| state.wake_one(now)).collect();
        drop(state);
        unpark(woken);
        self.event_fd.notify();
    }

    /// Removes and returns an engine's waiting work, oldest first.
    pub fn take_waiting(&self, role: Role) -> Vec<Arc<dyn Work>> {
        let mut state = self.state.lock();
        let waiting = state.queue.drain(role);
        self.publish(&state);
        waiting
    }

    /// Has `told` called by each thread whose work has ended and that finds none; one engine of a pool may ask for it.
    pub fn on_idle_thread(&self, told: Box<dyn Fn() + Send + Sync>) {
        // A second engine of this role is that of a test.
        let _ = self.idle_told.set(told);
    }

    /// Threads that run nothing, including those that may still be started. Where all of
    /// them run requests, one counts: a job must wait in the queue to get its share.
    pub fn idle_threads(&self) -> usize {
        let state = self.state.lock();
        let idle = self.settings.threads_max.saturating_sub(state.running);
        idle.max(usize::from(state.running_background == 0))
    }

    /// Units of work that wait, and units that are being run.
    pub fn load(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.queue.len(), state.running)
    }

    /// This worker's gauges.
    pub fn gauges(&self) -> &WorkerGauges {
        self.scoreboard.slot(self.settings.slot)
    }

    /// What the workers of its slot have done.
    pub fn counters(&self) -> &WorkCounters {
        self.scoreboard.counters(self.settings.slot)
    }

    /// The work that every thread is running now.
    pub fn running(&self) -> Vec<Running> {
        let threads: Vec<_> = self.state.lock().records().cloned().collect();
        let now = clock::now_ns();
        threads.iter().filter_map(|thread| thread.running(now)).collect()
    }

    /// The counters now.
    pub fn stats(&self) -> Stats {
        let state = self.state.lock();
        Stats {
            waiting: state.queue.len(),
            oldest_age_ms: state.queue.oldest_age_ns(clock::now_ns()) / 1_000_000,
            running: state.running,
            threads: state.alive(),
            width: state.width,
            totals: state.totals,
        }
    }

    /// Announces `count` threads that are about to be started without a request.
    pub fn expect(&self, count: usize) {
        self.state.lock().spawning += count;
    }

    /// Reports that `count` requested threads could not be started.
    pub fn spawn_failed(&self, count: usize) {
        self.state.lock().refuse(count, clock::now_ns());
    }

    /// Ends the threads above the minimum that have been parked for too long. Returns when
    /// to look again (ns of the clock); `None` while no thread is above the minimum.
    pub(crate) fn shrink(&self, now_ns: u64) -> Option<u64> {
        let (min, idle_ns) = (self.settings.threads_min, ns(self.settings.thread_idle));
        let mut state = self.state.lock();
        if state.alive() + state.spawning <= min {
            return None;
        }
        let leavers = state.shrink(min, now_ns.saturating_sub(idle_ns));
        if !leavers.is_empty() {
            self.publish_threads(&state);
        }
        let above = state.alive() + state.spawning > min;
        // One that has been parked for longer is needed for the minimum.
        let next_ns = state.idle.first().map(|(_, since_ns)| since_ns + idle_ns);
        let next_ns = next_ns.filter(|at_ns| *at_ns > now_ns).unwrap_or(now_ns + idle_ns);
        drop(state);
        unpark(leavers);
        above.then_some(next_ns)
    }

    /// Frees threads that are bound to a core and need others. Returns when to call this again.
    pub(crate) fn free_cores(&self, now_ns: u64) -> Option<u64> {
        let affinity = self.gvl.as_ref()?.affinity();
        affinity.is_due().then(|| affinity.look(self.state.lock().records(), now_ns)).flatten()
    }

    /// Posts [`SupportEvent::Idle`] once nothing has run or waited for `idle_ns`.
    /// A call while the timer is set changes nothing.
    pub fn set_idle_timer(&self, idle_ns: u64) {
        if !self.is_idle_timer_set() {
            self.idle_timer_ns.store(idle_ns.max(1), Ordering::Release);
            self.event_fd.notify();
        }
    }

    /// Whether the idle timer is set. A timer that is not set costs nothing.
    pub fn is_idle_timer_set(&self) -> bool {
        self.idle_timer_ns.load(Ordering::Acquire) != 0
    }

    /// Since when nothing runs and nothing waits (ns of the clock); `None` while
    /// something does.
    pub fn idle_since_ns(&self) -> Option<u64> {
        let state = self.state.lock();
        let idle = state.running == 0 && state.queue.is_empty();
        idle.then_some(state.last_finish_ns.max(state.last_take_ns))
    }

    /// Posts the event if the pool has been idle for long enough. Returns when to look
    /// again (ns of the clock); `None` while the timer is not set.
    pub(crate) fn post_idle_if_due(&self, now_ns: u64) -> Option<u64> {
        let idle_ns = self.idle_timer_ns.load(Ordering::Acquire);
        if idle_ns == 0 {
            return None;
        }
        // While work runs, the pool cannot be idle for that long before then.
        let due_ns = self.idle_since_ns().unwrap_or(now_ns) + idle_ns;
        if now_ns < due_ns {
            return Some(due_ns);
        }
        // Before the event, whose receiver may set the timer again.
        self.idle_timer_ns.store(0, Ordering::Release);
        self.events.post(SupportEvent::Idle);
        None
    }

    /// Makes the scheduler observe the pool while work waits.
    pub(crate) fn arm(&self) {
        // The load keeps the cache line shared while the scheduler observes anyway.
        if !self.armed.load(Ordering::Acquire) && !self.armed.swap(true, Ordering::AcqRel) {
            self.event_fd.notify();
        }
    }

    /// Lets the scheduler sleep until [`Pool::arm`], unless work waits. The lock is held:
    /// work that comes later arms it.
    pub(crate) fn disarm(&self, state: &PoolState) {
        if state.queue.is_empty() {
            self.armed.store(false, Ordering::Release);
        }
    }

    pub(crate) fn publish_threads(&self, state: &PoolState) {
        self.gauges().threads.store(state.alive() as u32, Ordering::Relaxed);
    }

    /// Publishes the gauges. Returns whether work waits and a thread is left that may be
    /// woken or started for it.
    pub(crate) fn publish(&self, state: &PoolState) -> bool {
        let room = state.awake + state.spawning < self.settings.threads_max;
        let wakeable = room && !state.queue.is_empty();
        if let Some(counts) = &self.gvl {
            counts.note_wakeable(wakeable);
        }
        let gauges = self.gauges();
        // Siblings compare this before they accept a connection. Jobs do not count:
        // those claimed ahead would otherwise wait in the store.
        gauges.queued.store(state.queue.interactive_len() as u32, Ordering::Relaxed);
        gauges.running.store(state.running as u32, Ordering::Relaxed);
        gauges.finished_total.store(state.totals.finished, Ordering::Relaxed);
        wakeable
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::thread::Take;
    use crate::work::testing::request;

    fn pool() -> Arc<Pool> {
        let scoreboard = Arc::new(Scoreboard::new(1).unwrap());
        let pool = Pool::new(PoolSettings::for_tests(1), scoreboard, false).unwrap();
        let limits = QueueLimits { count_max: 9, bytes_max: 9, age_max: Duration::ZERO };
        pool.register(Role::Web, limits);
        pool
    }

    #[test]
    fn threads_leave_after_their_idle_time_those_parked_longest_first() {
        let mut state = PoolState::new(WorkQueue::new(10), CpuTimes::new(0), 0);
        for parked_at in [10, 20, 30, 40] {
            let unparker = crate::sync::Parker::new().unparker().clone();
            let thread = state.enter(|index| Arc::new(ThreadRecord::current(index, unparker)));
            assert!(matches!(state.take(thread.index, parked_at, &mut vec![]), Take::Wait));
        }
        let woken = state.wake_one(50).unwrap();
        assert_eq!(woken.index, 3, "the one that parked last");
        for (parked_until, left) in [(9, vec![]), (20, vec![0, 1]), (99, vec![2])] {
            let leavers = state.shrink(1, parked_until);
            let indexes: Vec<_> = leavers.iter().map(|thread| thread.index).collect();
            assert_eq!(indexes, left, "{parked_until}");
        }
        assert_eq!((state.alive(), state.awake), (1, 1), "the minimum stays");
    }

    #[test]
    fn the_idle_timer_posts_once_after_the_idle_time() {
        let pool = pool();
        assert_eq!(pool.post_idle_if_due(0), None);
        pool.set_idle_timer(1_000_000);
        let due = pool.post_idle_if_due(0).unwrap();
        pool.set_idle_timer(5);
        assert_eq!(pool.post_idle_if_due(0), Some(due), "the timer is set already");
        assert_eq!(pool.post_idle_if_due(due - 1), Some(due));
        assert_eq!(pool.events.poll(), None);
        assert_eq!(pool.post_idle_if_due(due), None);
        assert_eq!(pool.events.poll(), Some(SupportEvent::Idle));
        assert!(!pool.is_idle_timer_set());
    }

    #[test]
    fn work_in_between_restarts_the_idle_time() {
        let pool = pool();
        let thread = pool.enter();
        pool.set_idle_timer(1_000_000_000);
        let due = pool.post_idle_if_due(0).unwrap();
        pool.enqueue(request(1)).ok().unwrap();
        assert!(matches!(thread.take(), Take::Work(_)));
        assert_eq!(pool.idle_since_ns(), None);
        assert!(matches!(thread.take(), Take::Wait));
        let later = pool.post_idle_if_due(due).unwrap();
        assert!(later > due, "the time counts from when the last work finished");
        pool.enqueue(request(1)).ok().unwrap();
        assert!(pool.post_idle_if_due(later).unwrap() > later, "work waits, the timer stays set");
        assert_eq!(pool.events.poll(), None);
    }
}
