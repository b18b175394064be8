//! The scheduler: one Rust thread that watches the pool from outside.
//!
//! It sleeps until work is queued and no thread is woken for it. Then it observes the
//! pool, as often as [`crate::pool::activity`] needs to see threads block or compute,
//! and carries out what [`crate::pool::policy`] decides. After a few observations of an
//! empty queue it sleeps again. It also releases work that is too old, ends unneeded
//! threads, answers the supervisor's pings and writes the reports that Ruby could not
//! write.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;

use rustix::event::{poll, PollFd, PollFlags, Timespec};

use crate::clock;
use crate::pool::activity::Activity;
use crate::pool::clock_activity::ClockActivity;
use crate::pool::gvl_activity::GvlActivity;
use crate::pool::history::History;
use crate::pool::policy::{Facts, Rule};
use crate::pool::state::PoolState;
use crate::pool::thread_record::ThreadRecord;
use crate::pool::Pool;
use crate::process::late_reports;
use crate::process::supervisor_watch::SupervisorWatch;

/// Observations of an empty queue before the scheduler sleeps again.
const EMPTY_OBSERVATIONS: u32 = 4;
/// One observation charges no more than this (ns): the scheduler may have slept before.
const CHARGE_NS_MAX: u64 = 10_000_000;

/// The scheduler's counters, see [`crate::pool::Stats`].
#[derive(Default)]
pub(crate) struct SchedulerCounters {
    pub observations: AtomicU64,
    pub stalls: AtomicU64,
    pub preemptions: AtomicU64,
}

/// What the scheduler uses besides the pool. All of it is safe without the GVL.
pub struct SchedulerHooks {
    /// Asks the VM to take the GVL from the thread with this kernel's id, which computes;
    /// returns whether it was asked. `None` when this Ruby has no safe way.
    pub preempt: Option<Box<dyn Fn(i32) -> bool + Send>>,
    /// The connection to the supervisor, which the scheduler's thread reads.
    pub supervisor: SupervisorWatch,
}

/// The running scheduler. Dropping it stops and joins the thread.
pub struct Scheduler {
    stop: Arc<AtomicBool>,
    notify: Box<dyn Fn() + Send + Sync>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Scheduler {
    /// Starts the thread, which blocks every signal.
    ///
    /// # Errors
    /// When the operating system gives no thread.
    pub fn start(pool: &Arc<Pool>, hooks: SchedulerHooks) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let scheduler = SchedulerLoop::new(pool.clone(), hooks, stop.clone());
        let thread = crate::thread::spawn("chaton-sched", move || scheduler.run())?;
        let pool = pool.clone();
        Ok(Self { stop, notify: Box::new(move || pool.event_fd.notify()), thread: Some(thread) })
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        (self.notify)();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct SchedulerLoop {
    pool: Arc<Pool>,
    hooks: SchedulerHooks,
    stop: Arc<AtomicBool>,
    activity: Box<dyn Activity>,
    pause_ns: u64,
    taken: u64,
    empty_observations: u32,
    observed_ns: u64,
    history: History,
    shrink_at_ns: Option<u64>,
}

impl SchedulerLoop {
    fn new(pool: Arc<Pool>, hooks: SchedulerHooks, stop: Arc<AtomicBool>) -> Self {
        let now = clock::now_ns();
        let activity: Box<dyn Activity> = match &pool.gvl {
            Some(counts) => Box::new(GvlActivity::new(counts.clone(), pool.settings.blocked_ns)),
            None => Box::new(ClockActivity::new(pool.settings.stall_ns, now)),
        };
        Self {
            pause_ns: pool.settings.stall_ns,
            activity,
            pool,
            hooks,
            stop,
            taken: 0,
            empty_observations: 0,
            observed_ns: now,
            history: History::new(now),
            shrink_at_ns: None,
        }
    }

    fn run(mut self) {
        while !self.stop.load(Ordering::Acquire) {
            let timeout = self.timeout();
            let (notified, received) = self.sleep(timeout);
            if notified {
                self.pool.event_fd.clear();
                if self.pool.gvl.as_ref().is_some_and(|counts| counts.compete()) {
                    self.pool.armed.store(true, Ordering::Release);
                }
            }
            if received {
                self.hooks.supervisor.receive(&self.pool.events);
            }
            if self.pool.armed.load(Ordering::Acquire) {
                self.observe();
            }
            self.keep_time();
        }
    }

    /// Time in ns until something is due; `None` while nothing is.
    fn timeout(&self) -> Option<u64> {
        if self.pool.armed.load(Ordering::Acquire) {
            return Some(self.pause_ns);
        }
        let now = clock::now_ns();
        let late_report = late_reports::due_ns(&self.pool.events);
        let exit = self.hooks.supervisor.exit_at_ns();
        let due = [self.shrink_at_ns, exit, late_report, self.pool.idle_due_ns()];
        due.into_iter().flatten().min().map(|at| at.saturating_sub(now))
    }

    fn sleep(&self, timeout_ns: Option<u64>) -> (bool, bool) {
        let event_fd = PollFd::new(&self.pool.event_fd, PollFlags::IN);
        let timeout = timeout_ns.map(|ns| Timespec {
            tv_sec: (ns / 1_000_000_000) as i64,
            tv_nsec: (ns % 1_000_000_000) as i64,
        });
        // An interrupted wait counts as one that ended early: nothing is ready.
        match self.hooks.supervisor.channel() {
            Some(channel) => {
                let mut fds = [event_fd, PollFd::new(channel, PollFlags::IN)];
                let _ = poll(&mut fds, timeout.as_ref());
                (!fds[0].revents().is_empty(), !fds[1].revents().is_empty())
            }
            None => {
                let mut fds = [event_fd];
                let _ = poll(&mut fds, timeout.as_ref());
                (!fds[0].revents().is_empty(), false)
            }
        }
    }

    fn observe(&mut self) {
        let now = clock::now_ns();
        self.pool.counters.observations.fetch_add(1, Relaxed);
        let elapsed_ns = now.saturating_sub(std::mem::replace(&mut self.observed_ns, now));
        let mut expired = Vec::new();
        let pool = self.pool.clone();
        let mut state = pool.state.lock();
        state.queue.expire_all(now, &mut expired);
        let (facts, runner) = self.read(&mut state, elapsed_ns, now);
        let takes = state.taken - std::mem::replace(&mut self.taken, state.taken);
        drop(state);
        expired.into_iter().for_each(|work| work.release());
        self.count_empty(&facts);
        let decision = self.history.decide(&facts, elapsed_ns, now);
        self.pool.slot().hogged.store(u32::from(decision.preempt), Relaxed);
        if decision.rule == Rule::Starved {
            self.pool.counters.stalls.fetch_add(1, Relaxed);
        }
        if decision.width != facts.width || decision.wake + decision.spawn > 0 {
            self.pool.apply(&decision);
        }
        if decision.preempt {
            self.preempt(runner.as_deref());
        }
        self.pause_ns = self.activity.pause_ns(&facts.after(&decision), &decision, takes);
    }

    /// Reads the pool under its lock: the facts, and the thread that runs.
    fn read(
        &mut self,
        state: &mut PoolState,
        elapsed_ns: u64,
        now: u64,
    ) -> (Facts, Option<Arc<ThreadRecord>>) {
        self.pool.publish(state);
        let oldest_ns = state.queue.oldest_age_ns(now);
        self.pool.slot().queue_age_ms.store((oldest_ns / 1_000_000) as u32, Relaxed);
        let mut facts = self.history.facts(state, now);
        facts.max = self.pool.settings.threads_max;
        facts.starved_after_ns = self.pool.settings.blocked_ns;
        let runner = self.activity.observe(state, &mut facts, now);
        // Time was lost only if some work waited during all of it.
        if oldest_ns < facts.blocked_ns.min(elapsed_ns) {
            facts.blocked_ns = 0;
        }
        if let Some(role) = runner.as_ref().and_then(|runner| runner.role()) {
            state.charge(state.queue.priority(role), elapsed_ns.min(CHARGE_NS_MAX));
        }
        (facts, runner)
    }

    fn preempt(&mut self, runner: Option<&ThreadRecord>) {
        // Without events the runner is a guess: a thread that sleeps is left alone. Where
        // a thread outside the pool computes, there is no runner.
        let guessed = self.pool.gvl.is_none();
        if guessed && !runner.is_some_and(|runner| runner.probe.is_runnable()) {
            return;
        }
        let tid = runner.map_or(0, |runner| runner.probe.tid());
        if self.hooks.preempt.as_ref().is_some_and(|preempt| preempt(tid)) {
            self.pool.counters.preemptions.fetch_add(1, Relaxed);
        }
    }

    /// Stops observing after a few observations of an empty queue.
    fn count_empty(&mut self, facts: &Facts) {
        self.empty_observations = if facts.waiting == 0 { self.empty_observations + 1 } else { 0 };
        if self.empty_observations < EMPTY_OBSERVATIONS || facts.outsider_waiting {
            return;
        }
        self.empty_observations = 0;
        self.pool.disarm();
    }

    /// Does what is due by the clock.
    fn keep_time(&mut self) {
        let now = clock::now_ns();
        late_reports::log_unfetched(&self.pool.events, || self.pool.running());
        self.pool.post_idle_if_due(now);
        self.hooks.supervisor.exit_if_due(now);
        match self.shrink_at_ns {
            None => {
                let state = self.pool.state.lock();
                if state.alive() + state.spawning > self.pool.settings.threads_min {
                    self.shrink_at_ns = Some(now + self.pool.settings.thread_idle_ns);
                }
            }
            Some(at) if now >= at => {
                let more = self.pool.shrink();
                self.shrink_at_ns = more.then_some(now + self.pool.settings.thread_idle_ns);
            }
            Some(_) => {}
        }
    }
}
