//! The scheduler: one Rust thread that watches the pool from outside.
//!
//! It sleeps until work is queued and no thread is woken for it. Then it observes the
//! pool, as often as [`crate::pool::observer::Activity`] needs to see threads block or compute,
//! and carries out what [`crate::pool::policy`] decides. After a few observations of an
//! empty queue it sleeps again. It also releases work that is too old, ends unneeded
//! threads, looks at threads that are bound to a core ([`crate::pool::affinity`]), answers
//! the supervisor's pings and writes the reports that Ruby could not write.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use rustix::event::{poll, PollFd, PollFlags, Timespec};

use crate::clock;
use crate::pool::clock_activity::ClockActivity;
use crate::pool::gvl_activity::GvlActivity;
use crate::pool::observer::{Activity, Observer};
use crate::pool::thread_record::ThreadRecord;
use crate::pool::{ns, unpark, Pool};
use crate::process::events::SupportEvent;
use crate::process::late_reports;
use crate::process::supervisor_watch::SupervisorWatch;

/// Observations of an empty queue before the scheduler sleeps again.
const EMPTY_OBSERVATIONS: u32 = 4;

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
    pool: Arc<Pool>,
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
        Ok(Self { stop, pool: pool.clone(), thread: Some(thread) })
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.pool.event_fd.notify();
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
    observer: Observer,
    pause_ns: u64,
    empty_observations: u32,
}

impl SchedulerLoop {
    fn new(pool: Arc<Pool>, hooks: SchedulerHooks, stop: Arc<AtomicBool>) -> Self {
        let (now, settings) = (clock::now_ns(), &pool.settings);
        let activity: Box<dyn Activity> = match &pool.gvl {
            Some(counts) => Box::new(GvlActivity::new(counts.clone())),
            None => Box::new(ClockActivity::new(ns(settings.stall), now)),
        };
        let observer = Observer::new(settings.threads_max, ns(settings.blocked), now);
        let pause_ns = ns(settings.stall);
        Self { pool, hooks, stop, activity, observer, pause_ns, empty_observations: 0 }
    }

    fn run(mut self) {
        while !self.stop.load(Ordering::Acquire) {
            let due_ns = self.keep_time();
            let (notified, received) = self.sleep(due_ns);
            if notified {
                self.pool.event_fd.clear();
                if self.pool.gvl.as_ref().is_some_and(|gvl| gvl.compete()) {
                    self.pool.armed.store(true, Ordering::Release);
                }
            }
            if received {
                self.hooks.supervisor.receive(&self.pool.events);
            }
            if self.pool.armed.load(Ordering::Acquire) {
                self.observe();
            }
        }
    }

    /// Does what is due by the clock; returns the time in ns until something is due again,
    /// `None` while nothing will be.
    fn keep_time(&self) -> Option<u64> {
        let (pool, supervisor, now) = (&self.pool, &self.hooks.supervisor, clock::now_ns());
        late_reports::log_unfetched(&pool.events, || pool.running());
        supervisor.exit_if_due(now);
        let (shrink, idle) = (pool.shrink(now), pool.post_idle_if_due(now));
        let cores = pool.free_cores(now);
        let observe = pool.armed.load(Ordering::Acquire).then(|| now + self.pause_ns);
        let due = [
            shrink,
            idle,
            cores,
            observe,
            supervisor.exit_at_ns(),
            late_reports::due_ns(&pool.events),
        ];
        due.into_iter().flatten().min().map(|at| at.saturating_sub(now))
    }

    /// Waits for a notification or a message; returns whether each has come.
    fn sleep(&self, timeout_ns: Option<u64>) -> (bool, bool) {
        let timeout = timeout_ns.map(|ns| Timespec {
            tv_sec: (ns / 1_000_000_000) as i64,
            tv_nsec: (ns % 1_000_000_000) as i64,
        });
        let event_fd = PollFd::new(&self.pool.event_fd, PollFlags::IN);
        let channel = self.hooks.supervisor.channel();
        // Without a supervisor the first descriptor stands in for its channel.
        let second = channel.map_or(event_fd.clone(), |fd| PollFd::new(fd, PollFlags::IN));
        let mut fds = [event_fd, second];
        // An interrupted wait counts as one that ended early: nothing is ready.
        let _ = poll(&mut fds, timeout.as_ref());
        let [notified, received] = fds.map(|fd| !fd.revents().is_empty());
        (notified, received && channel.is_some())
    }

    fn observe(&mut self) {
        let now = clock::now_ns();
        let (mut expired, gauges) = (Vec::new(), self.pool.gauges());
        let mut state = self.pool.state.lock();
        state.queue.expire(now, &mut expired);
        self.pool.publish(&state);
        let queue_age_ms = state.queue.oldest_age_ns(now) / 1_000_000;
        let seen = self.observer.observe(&mut state, &mut *self.activity, now);
        self.empty_observations = if seen.is_empty { self.empty_observations + 1 } else { 0 };
        if self.empty_observations >= EMPTY_OBSERVATIONS {
            self.empty_observations = 0;
            self.pool.disarm(&state);
        }
        drop(state);
        gauges.queue_age_ms.store(queue_age_ms as u32, Ordering::Relaxed);
        gauges.hogged.store(u32::from(seen.decision.switches()), Ordering::Relaxed);
        expired.into_iter().for_each(|work| work.release());
        unpark(seen.woken);
        if seen.decision.spawn > 0 {
            self.pool.events.post(SupportEvent::Spawn(seen.decision.spawn));
        }
        if seen.decision.switches() {
            self.preempt(seen.runner.as_deref());
        }
        self.pause_ns = seen.pause_ns;
    }

    fn preempt(&self, runner: Option<&ThreadRecord>) {
        // Without events the runner is a guess: a thread that sleeps is left alone. Where
        // a thread outside the pool computes, there is no runner.
        let guessed = self.pool.gvl.is_none();
        if guessed && !runner.is_some_and(|runner| runner.probe.is_runnable()) {
            return;
        }
        let tid = runner.map_or(0, |runner| runner.probe.tid());
        if self.hooks.preempt.as_ref().is_some_and(|preempt| preempt(tid)) {
            self.pool.state.lock().totals.preemptions += 1;
        }
    }
}
