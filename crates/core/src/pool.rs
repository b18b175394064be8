//! The pool: engines put work into its queue, Ruby threads take it out.
//!
//! A thread that finishes its work tries the queue again at once, still holding
//! the GVL ([`PoolThread::take`]). It waits, outside the GVL, only when the queue
//! is empty ([`PoolThread::wait`]). New work wakes a parked thread only while fewer
//! than `width` threads are awake, so that a single busy thread is not disturbed.
//! The `scheduler` changes the width as `policy` decides.

pub(crate) mod activity;
mod clock_activity;
mod cpu_meter;
pub mod gvl_activity;
mod history;
mod idle_timer;
pub mod policy;
mod quantum;
pub mod queue;
pub mod scheduler;
#[cfg(test)]
mod simulation;
mod state;
pub mod thread;
pub mod thread_record;

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock;
use crate::event_fd::EventFd;
use crate::pool::gvl_activity::GvlCounts;
use crate::pool::idle_timer::IdleTimer;
use crate::pool::policy::Decision;
use crate::pool::quantum::CpuTimes;
use crate::pool::queue::{QueueLimits, WorkQueue};
use crate::pool::state::PoolState;
use crate::pool::thread::PoolThread;
use crate::process::events::{SupportEvent, SupportEvents};
use crate::process::scoreboard::{Scoreboard, WorkerGauges};
use crate::settings::{millis_as_ns, seconds, seconds_as_ns};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::Mutex;
use crate::work::{Priority, Role, Running, Work};

/// Settings of a pool: the section `pool` of the document.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolSettings {
    /// Threads that stay when there is nothing to do.
    pub threads_min: usize,
    /// Threads at most.
    pub threads_max: usize,
    /// After this time without a pool thread that can run, another one is woken (ns).
    #[serde(rename = "blocked_ms", deserialize_with = "millis_as_ns")]
    pub blocked_ns: u64,
    /// Before CRuby 3.3: time between two readings of the threads' CPU clocks while work
    /// waits (ns).
    #[serde(rename = "stall_ms", deserialize_with = "millis_as_ns")]
    pub stall_ns: u64,
    /// The least CPU time after which running work makes place for waiting work (ns).
    #[serde(rename = "preempt_ms", deserialize_with = "millis_as_ns")]
    pub preempt_ns: u64,
    /// Whether the VM may be asked to yield.
    pub preempt: bool,
    /// Percent of the time with the GVL that jobs and batches get while requests wait too.
    pub background_share: u8,
    /// A thread above the minimum leaves after this long without work (ns).
    #[serde(rename = "thread_idle_s", deserialize_with = "seconds_as_ns")]
    pub thread_idle_ns: u64,
    /// This worker's slot on the scoreboard.
    pub slot: usize,
    /// Time between the supervisor's end and the forced exit of this process.
    #[serde(rename = "orphan_exit_s", deserialize_with = "seconds")]
    pub orphan_exit: Duration,
}

#[cfg(test)]
impl PoolSettings {
    pub(crate) fn for_tests(threads_max: usize) -> Self {
        Self {
            threads_min: 1,
            threads_max,
            blocked_ns: 100_000,
            stall_ns: 200_000,
            preempt_ns: 5_000_000,
            preempt: true,
            background_share: 10,
            thread_idle_ns: 1_000_000_000,
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
    /// Units of work taken since the start.
    pub taken: u64,
    /// Units of work finished since the start.
    pub finished: u64,
    /// Times a parked thread was woken.
    pub wakes: u64,
    /// Observations of the scheduler.
    pub observations: u64,
    /// Observations that found work waiting and no thread that could run.
    pub stalls: u64,
    /// Times the VM was asked to yield.
    pub preemptions: u64,
}

/// The pool. Shared by engines, threads and the scheduler.
pub struct Pool {
    pub(crate) settings: PoolSettings,
    scoreboard: Arc<Scoreboard>,
    pub(crate) state: Mutex<PoolState>,
    pub(crate) events: SupportEvents,
    pub(crate) event_fd: Arc<EventFd>,
    /// Who holds and wants the GVL, where CRuby reports it.
    pub(crate) gvl: Option<Arc<GvlCounts>>,
    /// The scheduler is observing, so new work need not notify it.
    pub(crate) armed: AtomicBool,
    pub(crate) idle_timer: IdleTimer,
    pub(crate) counters: crate::pool::scheduler::SchedulerCounters,
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
        let queue = WorkQueue::new(settings.background_share);
        let state = PoolState::new(queue, CpuTimes::new(settings.preempt_ns), clock::now_ns());
        Ok(Arc::new(Self {
            settings,
            scoreboard,
            state: Mutex::new(state),
            events: SupportEvents::default(),
            gvl: gvl_events.then(|| Arc::new(GvlCounts::new(event_fd.clone()))),
            event_fd,
            armed: AtomicBool::new(false),
            idle_timer: IdleTimer::default(),
            counters: crate::pool::scheduler::SchedulerCounters::default(),
        }))
    }

    /// What it was started with.
    pub fn settings(&self) -> &PoolSettings {
        &self.settings
    }

    /// Where the gauges are published.
    pub fn scoreboard(&self) -> &Arc<Scoreboard> {
        &self.scoreboard
    }

    /// Opens the queue for the engine of this role.
    pub fn register(&self, role: Role, priority: Priority, limits: QueueLimits) {
        self.state.lock().queue.register(role, priority, limits);
    }

    /// Where CRuby's GVL events are counted; `None` where it has none.
    pub fn gvl(&self) -> Option<&Arc<GvlCounts>> {
        self.gvl.as_ref()
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
        self.publish(&state);
        let alone = state.awake == 1;
        let room = state.awake + state.spawning < self.settings.threads_max;
        drop(state);
        if let Some(thread) = &woken {
            thread.unparker.unpark();
        } else if room && self.gvl.as_ref().is_some_and(|counts| counts.none_wants()) {
            // All threads have been blocked for a while, and the scheduler knows nothing
            // of the new work.
            self.armed.store(true, Ordering::Release);
            self.event_fd.notify();
        }
        // A thread that is awake alone will take the work. One of several may have to
        // wait for the GVL behind a computing thread.
        if woken.is_none() || !alone {
            self.arm();
        }
    }

    /// Adds the calling thread to the pool.
    pub fn enter(self: &Arc<Self>) -> PoolThread {
        PoolThread::enter(self)
    }

    /// The events for the support thread.
    pub fn events(&self) -> &SupportEvents {
        &self.events
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
        for thread in woken {
            thread.unparker.unpark();
        }
        self.event_fd.notify();
    }

    /// Removes and returns an engine's waiting work, oldest first.
    pub fn take_waiting(&self, role: Role) -> Vec<Arc<dyn Work>> {
        let mut state = self.state.lock();
        let waiting = state.queue.drain(role);
        self.publish(&state);
        waiting
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
        self.slot()
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
            taken: state.taken,
            finished: state.finished,
            wakes: state.wakes,
            observations: self.counters.observations.load(Ordering::Relaxed),
            stalls: self.counters.stalls.load(Ordering::Relaxed),
            preemptions: self.counters.preemptions.load(Ordering::Relaxed),
        }
    }

    /// Requests a thread in place of one that left.
    pub(crate) fn replace_one(&self) {
        self.state.lock().spawning += 1;
        self.events.post(SupportEvent::Spawn(1));
    }

    /// Announces `count` threads that are about to be started without a request.
    pub fn expect(&self, count: usize) {
        self.state.lock().spawning += count;
    }

    /// Reports that `count` requested threads could not be started.
    pub fn spawn_failed(&self, count: usize) {
        let mut state = self.state.lock();
        state.spawning = state.spawning.saturating_sub(count);
    }

    /// Ends threads that were not needed since the last call; returns whether any above
    /// the minimum are left.
    pub(crate) fn shrink(&self) -> bool {
        let (leavers, more) = self.state.lock().shrink(self.settings.threads_min);
        for thread in leavers {
            thread.unparker.unpark();
        }
        more
    }

    /// Carries out a decision.
    pub(crate) fn apply(&self, decision: &Decision) {
        let woken = self.state.lock().apply(decision, clock::now_ns());
        for thread in woken {
            thread.unparker.unpark();
        }
        if decision.spawn > 0 {
            self.events.post(SupportEvent::Spawn(decision.spawn));
        }
    }

    /// Makes the scheduler observe the pool while work waits.
    pub(crate) fn arm(&self) {
        // The load keeps the cache line shared while the scheduler observes anyway.
        if !self.armed.load(Ordering::Acquire) && !self.armed.swap(true, Ordering::AcqRel) {
            self.event_fd.notify();
        }
    }

    /// Lets the scheduler sleep until [`Pool::arm`], unless work waits.
    pub(crate) fn disarm(&self) {
        self.armed.store(false, Ordering::Release);
        // Work queued before the store did not notify the scheduler.
        if !self.state.lock().queue.is_empty() {
            self.armed.store(true, Ordering::Release);
        }
    }

    pub(crate) fn slot(&self) -> &WorkerGauges {
        self.scoreboard.slot(self.settings.slot)
    }

    pub(crate) fn publish_threads(&self, state: &PoolState) {
        self.slot().threads.store(state.alive() as u32, Ordering::Relaxed);
    }

    pub(crate) fn publish(&self, state: &PoolState) {
        if let Some(counts) = &self.gvl {
            let room = state.awake + state.spawning < self.settings.threads_max;
            counts.note_wakeable(room && !state.queue.is_empty());
        }
        let slot = self.slot();
        // Siblings compare this before they accept a connection. Jobs do not count:
        // those claimed ahead would otherwise wait in the store.
        slot.queued.store(state.queue.interactive_len() as u32, Ordering::Relaxed);
        slot.running.store(state.running as u32, Ordering::Relaxed);
        slot.finished_total.store(state.finished, Ordering::Relaxed);
    }
}
