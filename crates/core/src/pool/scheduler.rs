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
use crate::pool::activity::{Activity, Reading};
use crate::pool::clock_activity::ClockActivity;
use crate::pool::gvl_activity::GvlActivity;
use crate::pool::policy::{decide, Decision, Facts, Rule, Tuning};
use crate::pool::{Pool, PoolState};
use crate::process::late_reports;
use crate::process::supervisor_watch::SupervisorWatch;
use crate::work::Role;

/// Observations of an empty queue before the scheduler sleeps again.
const EMPTY_OBSERVATIONS: u32 = 4;
/// Time of calm after which the width is reduced (ns). A starved pool after a
/// reduction doubles this time, up to the maximum, so that a steady load keeps the
/// width it needs. A reduction that starves nobody halves it again.
const NARROW_NS: u64 = 50_000_000;
const NARROW_NS_MAX: u64 = 1_600_000_000;

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
    /// Units of work that had finished when the pool last starved.
    finished: u64,
    starved_in_row: u32,
    empty_observations: u32,
    observed_ns: u64,
    calm_since_ns: u64,
    narrow_ns: u64,
    /// The width was reduced and the pool has not starved since.
    narrowed: bool,
    preempted_ns: u64,
    admitted_ns: u64,
    /// When threads were last woken or requested.
    widened_ns: u64,
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
            finished: 0,
            starved_in_row: 0,
            empty_observations: 0,
            observed_ns: now,
            calm_since_ns: now,
            narrow_ns: NARROW_NS,
            narrowed: false,
            preempted_ns: 0,
            admitted_ns: 0,
            widened_ns: 0,
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
        let observed = {
            let pool = self.pool.clone();
            let mut state = pool.state.lock();
            state.queue.expire_all(now, &mut expired);
            self.read(&mut state, elapsed_ns, now)
        };
        expired.into_iter().for_each(|work| work.release());
        let (facts, reading, takes, quantum_ns) = observed;
        if facts.waiting == 0 {
            self.observe_empty(&facts, elapsed_ns, now);
        } else {
            self.empty_observations = 0;
        }
        let tuning = Tuning {
            blocked_ns: self.pool.settings.blocked_ns,
            quantum_ns,
            narrow_ns: self.narrow_ns,
        };
        let decision = decide(&facts, &tuning);
        self.note(decision.rule, &facts, now);
        self.pool.slot().hogged.store(u32::from(decision.preempt), Relaxed);
        if decision.width != facts.width || decision.wake + decision.spawn > 0 {
            self.pool.apply(&decision);
            self.widened_ns = now;
        }
        if decision.preempt {
            self.preempt(&reading, now);
        }
        let facts = after(&facts, &decision);
        let due_ns = if decision.preempt { quantum_ns } else { quantum_ns - facts.turn_ns };
        self.pause_ns = self.activity.pause_ns(&facts, &decision, takes, due_ns);
    }

    /// Reads the pool under its lock: the facts, who runs, the units of work taken since
    /// the last observation, and the quantum of the running work.
    fn read(
        &mut self,
        state: &mut PoolState,
        elapsed_ns: u64,
        now: u64,
    ) -> (Facts, Reading, u64, u64) {
        self.pool.publish(state);
        let oldest_ns = state.queue.oldest_age_ns(now);
        self.pool.slot().queue_age_ms.store((oldest_ns / 1_000_000) as u32, Relaxed);
        let takes = state.taken - std::mem::replace(&mut self.taken, state.taken);
        if state.finished != self.finished {
            self.starved_in_row = 0;
        }
        let mut facts = Facts {
            waiting: state.queue.len(),
            interactive_waiting: state.queue.interactive_len() > 0,
            starved_in_row: self.starved_in_row + 1,
            since_take_ns: now.saturating_sub(state.last_take_ns.max(self.preempted_ns)),
            since_wake_ns: now.saturating_sub(state.last_wake_ns.max(self.preempted_ns)),
            since_admit_ns: now.saturating_sub(self.admitted_ns),
            calm_ns: now.saturating_sub(self.calm_since_ns),
            awake: state.awake,
            waking: state.waking,
            idle: state.idle.len(),
            spawning: state.spawning,
            width: state.width,
            max: self.pool.settings.threads_max,
            ..Facts::default()
        };
        let reading = self.activity.read(&state.threads, &facts, now);
        let woken_ago_ns = now.saturating_sub(state.last_wake_ns.max(self.widened_ns));
        let on_their_way = self.activity.on_their_way(&facts, woken_ago_ns);
        // Time was lost only if some work waited during all of it.
        if !on_their_way && oldest_ns >= reading.blocked_ns.min(elapsed_ns) {
            facts.blocked_ns = reading.blocked_ns;
        }
        facts.outsider_waiting = reading.outsider_waiting;
        let quantum_ns = self.quantum_ns(state, &reading, facts.interactive_waiting);
        if let Some(runner) = reading.runner.as_ref().filter(|runner| runner.has_work()) {
            let since_ns = runner.work_since_ns.load(Relaxed).max(self.preempted_ns);
            facts.turn_ns = self.activity.turn_ns(runner, since_ns, quantum_ns, now);
        }
        facts.one_is_quick = self.activity.one_is_quick(&state.threads, &facts, quantum_ns, now);
        (facts, reading, takes, quantum_ns)
    }

    /// The quantum of the running work; that of requests if it is shorter and one waits.
    fn quantum_ns(&self, state: &PoolState, reading: &Reading, interactive: bool) -> u64 {
        let least_ns = self.pool.settings.preempt_ns;
        let running = reading.runner.as_ref().and_then(|runner| runner.role());
        let of = |role| state.cpu_times.quantum_ns(role, least_ns);
        let own_ns = running.map_or(least_ns, of);
        if interactive {
            own_ns.min(of(Role::Web))
        } else {
            own_ns
        }
    }

    /// Keeps what the next decision compares with.
    fn note(&mut self, rule: Rule, facts: &Facts, now: u64) {
        match rule {
            Rule::None | Rule::Hogged => return,
            Rule::Starved => {
                self.pool.counters.stalls.fetch_add(1, Relaxed);
                (self.starved_in_row, self.finished) = (facts.starved_in_row, self.finished_now());
                if std::mem::take(&mut self.narrowed) {
                    self.narrow_ns = (self.narrow_ns * 2).min(NARROW_NS_MAX);
                }
            }
            Rule::Admitted => self.admitted_ns = now,
            Rule::Calm => {
                if std::mem::replace(&mut self.narrowed, true) {
                    self.narrow_ns = (self.narrow_ns / 2).max(NARROW_NS);
                }
            }
        }
        self.calm_since_ns = now;
    }

    fn finished_now(&self) -> u64 {
        self.pool.state.lock().finished
    }

    fn preempt(&mut self, reading: &Reading, now: u64) {
        self.preempted_ns = now;
        // Without events the runner is a guess: a thread that sleeps is left alone. Where
        // a thread outside the pool computes, there is no runner.
        let guessed = self.pool.gvl.is_none();
        let runner = reading.runner.as_ref();
        if guessed && !runner.is_some_and(|runner| runner.probe.is_runnable()) {
            return;
        }
        let tid = runner.map_or(0, |runner| runner.probe.tid());
        if self.hooks.preempt.as_ref().is_some_and(|preempt| preempt(tid)) {
            self.pool.counters.preemptions.fetch_add(1, Relaxed);
        }
    }

    fn observe_empty(&mut self, facts: &Facts, elapsed_ns: u64, now: u64) {
        self.starved_in_row = 0;
        // Time with nothing to do does not count as calm.
        self.calm_since_ns += elapsed_ns.min(now.saturating_sub(self.calm_since_ns));
        self.empty_observations += 1;
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

/// The facts after a decision was carried out.
fn after(facts: &Facts, decision: &Decision) -> Facts {
    Facts {
        waking: facts.waking + decision.wake,
        awake: facts.awake + decision.wake,
        spawning: facts.spawning + decision.spawn,
        ..*facts
    }
}
