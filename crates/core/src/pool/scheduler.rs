//! The scheduler: one Rust thread that watches the pool from outside.
//!
//! It sleeps until work is queued and no thread is woken for it. Then it observes
//! the pool every `stall_ns` (0.2 ms), less often while threads make quick progress,
//! all threads are awake or jobs compute. After a few observations of an empty queue
//! it sleeps again. It also preempts threads that keep the CPU, releases work that is
//! too old, ends unneeded threads, answers the supervisor's pings and writes the
//! reports that Ruby could not write.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{poll, PollFd, PollFlags, Timespec};

use crate::pool::growth::Growth;
use crate::pool::interval::{interval_factor, INTERVAL_FACTOR_MAX};
use crate::pool::policy::{decide, Readings, Tuning};
use crate::pool::sampler::ThreadSampler;
use crate::pool::thread_record::{Running, ThreadRecord};
use crate::pool::Pool;
use crate::process::channel::{ChannelMessage, SupervisorChannel};
use crate::process::events::SupportEvent;
use crate::{clock, log};

/// Observations of an empty queue before the scheduler sleeps again.
const EMPTY_OBSERVATIONS: u32 = 4;
/// Threads that use less than this share of one CPU together count as blocked.
const UNUSED: f64 = 0.25;
/// From this share of one CPU on it counts as saturated.
const CPU_SATURATED: f64 = 0.875;
/// Stalls are ignored while a woken thread has not taken work, for this long at most (ns).
const ARRIVAL_NS: u64 = 1_000_000;
/// Time without a stall after which the width is reduced (ns). A stall after a
/// reduction doubles this time, up to the maximum, so that a steady load keeps the
/// width it needs. A reduction that causes no stall halves it again.
const NARROW_NS: u64 = 50_000_000;
const NARROW_NS_MAX: u64 = 1_600_000_000;
/// Time after which Rust writes a report that the support thread has not fetched (ns).
pub const UNFETCHED_NS: u64 = 1_000_000_000;

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
    /// `None` when this Ruby has no safe way.
    pub preempt: Option<Box<dyn Fn(i32) + Send>>,
    /// The connection to the supervisor, when there is one.
    pub channel: Option<Arc<SupervisorChannel>>,
    /// Time after the supervisor's end at which the process exits by force.
    pub orphan_exit: Duration,
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

/// What one observation read.
struct Observation {
    readings: Readings,
    /// Threads that may be using the CPU.
    sample: Vec<Arc<ThreadRecord>>,
    /// Units of work taken since the last observation.
    takes: u64,
    /// Units of work finished since the start.
    finished: u64,
    /// Age in ns of the oldest waiting work.
    oldest_ns: u64,
    /// Time in ns since a thread was last woken.
    since_wake_ns: u64,
}

struct SchedulerLoop {
    pool: Arc<Pool>,
    hooks: SchedulerHooks,
    stop: Arc<AtomicBool>,
    growth: Growth,
    interval_ns: u64,
    observed_ns: u64,
    taken: u64,
    empty_observations: u32,
    stalls_in_row: u32,
    calm_since_ns: u64,
    narrow_ns: u64,
    /// The width was reduced and no stall has followed.
    narrowed: bool,
    preempted_ns: u64,
    admitted_ns: u64,
    /// Recent average share of one CPU in use, from 0 to 1.
    cpu_share: f64,
    shrink_at_ns: Option<u64>,
    orphan_at_ns: Option<u64>,
    sampler: ThreadSampler,
}

impl SchedulerLoop {
    fn new(pool: Arc<Pool>, hooks: SchedulerHooks, stop: Arc<AtomicBool>) -> Self {
        let now = clock::now_ns();
        Self {
            interval_ns: pool.settings.stall_ns,
            growth: Growth::new(now),
            pool,
            hooks,
            stop,
            observed_ns: now,
            taken: 0,
            empty_observations: 0,
            stalls_in_row: 0,
            calm_since_ns: now,
            narrow_ns: NARROW_NS,
            narrowed: false,
            preempted_ns: 0,
            admitted_ns: 0,
            cpu_share: 0.0,
            shrink_at_ns: None,
            orphan_at_ns: None,
            sampler: ThreadSampler::default(),
        }
    }

    fn run(mut self) {
        while !self.stop.load(Ordering::Acquire) {
            let timeout = self.timeout();
            let (notified, received) = self.sleep(timeout);
            if notified {
                self.pool.event_fd.clear();
            }
            if received {
                self.receive();
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
            return Some(self.interval_ns);
        }
        let now = clock::now_ns();
        let unfetched = self.pool.events.next_unfetched_ns(UNFETCHED_NS);
        let due = [self.shrink_at_ns, self.orphan_at_ns, unfetched, self.pool.idle_due_ns()];
        due.into_iter().flatten().min().map(|at| at.saturating_sub(now))
    }

    fn sleep(&self, timeout_ns: Option<u64>) -> (bool, bool) {
        let event_fd = PollFd::new(&self.pool.event_fd, PollFlags::IN);
        let timeout = timeout_ns.map(|ns| Timespec {
            tv_sec: (ns / 1_000_000_000) as i64,
            tv_nsec: (ns % 1_000_000_000) as i64,
        });
        // An interrupted wait counts as one that ended early: nothing is ready.
        match (&self.hooks.channel, self.orphan_at_ns) {
            (Some(channel), None) => {
                let mut fds = [event_fd, PollFd::new(&**channel, PollFlags::IN)];
                let _ = poll(&mut fds, timeout.as_ref());
                (!fds[0].revents().is_empty(), !fds[1].revents().is_empty())
            }
            _ => {
                let mut fds = [event_fd];
                let _ = poll(&mut fds, timeout.as_ref());
                (!fds[0].revents().is_empty(), false)
            }
        }
    }

    fn receive(&mut self) {
        let Some(channel) = &self.hooks.channel else { return };
        let received = channel.receive();
        if received.ping {
            self.pool.events.post(SupportEvent::Ping);
        }
        for line in received.lines {
            self.pool.events.post(match line {
                ChannelMessage::Recover(text) => SupportEvent::Recover(text),
                ChannelMessage::Order(text) => SupportEvent::Order(text),
            });
        }
        if received.lost > 0 {
            log::warn(
                "a message from the supervisor could not be read: the jobs of a worker that died are \
                 recovered when its lease ends",
            );
        }
        if received.end {
            let grace_ns = self.hooks.orphan_exit.as_nanos() as u64;
            self.orphan_at_ns = Some(clock::now_ns() + grace_ns);
            self.pool.events.post(SupportEvent::Orphan);
        }
    }

    fn observe(&mut self) {
        let now = clock::now_ns();
        self.pool.counters.observations.fetch_add(1, Relaxed);
        let elapsed = now.saturating_sub(self.observed_ns);
        self.observed_ns = now;
        let Observation { mut readings, sample, takes, finished, oldest_ns, since_wake_ns } =
            self.read(now);
        if readings.waiting == 0 {
            self.observe_empty(elapsed);
            return;
        }
        self.empty_observations = 0;
        let none_on_its_way = readings.waking == 0 || since_wake_ns >= ARRIVAL_NS;
        // Time was lost only if some work waited during all of it.
        let waited = oldest_ns >= elapsed;
        let used = self.cpu_used(&sample, elapsed);
        let lost = used < UNUSED && elapsed >= self.pool.settings.stall_ns / 2;
        // A runnable thread has not blocked: it lost its CPU to another process.
        let wanted = (used < if readings.interactive_waiting { UNUSED } else { CPU_SATURATED })
            && sample.iter().any(|thread| thread.probe.is_runnable());
        readings.stalled = lost && !wanted && none_on_its_way && waited;
        readings.cpu_saturated =
            !readings.interactive_waiting && self.is_cpu_saturated(used, wanted, elapsed);
        self.note_stall(readings.stalled, now);
        readings.stalls_in_row = self.stalls_in_row;
        readings.same_runner_ns = now.saturating_sub(self.sampler.runner_since_ns);
        readings.calm_ns = now.saturating_sub(self.calm_since_ns);
        let max = self.pool.settings.threads_max;
        readings.max = self.growth.limit(now, finished, readings.awake, readings.stalled, max);
        let tuning =
            Tuning { preempt_ns: self.pool.settings.preempt_ns, narrow_ns: self.narrow_ns };
        let decision = decide(&readings, &tuning);
        if decision.narrowed {
            self.calm_since_ns = now;
            if std::mem::replace(&mut self.narrowed, true) {
                self.narrow_ns = (self.narrow_ns / 2).max(NARROW_NS);
            }
        }
        if decision.admit_one && !readings.interactive_waiting {
            // The width stays for a while: the work that waits next may be quick.
            (self.admitted_ns, self.calm_since_ns) = (now, now);
        }
        self.pool.slot().hogged.store(u32::from(decision.preempt), Relaxed);
        if decision.width != readings.width || decision.wake + decision.spawn > 0 {
            self.pool.apply(&decision);
        }
        if decision.preempt {
            self.preempt(now);
        }
        self.slow_down(interval_factor(
            &readings,
            takes,
            self.pool.settings.stall_ns,
            tuning.preempt_ns,
        ));
    }

    /// Reads the pool under one lock and picks the threads to examine.
    fn read(&mut self, now: u64) -> Observation {
        let mut expired = Vec::new();
        let mut state = self.pool.state.lock();
        state.queue.expire_all(now, &mut expired);
        self.pool.publish(&state);
        let oldest_ns = state.queue.oldest_age_ns(now);
        self.pool.slot().queue_age_ms.store((oldest_ns / 1_000_000) as u32, Relaxed);
        let takes = state.taken - self.taken;
        self.taken = state.taken;
        let readings = Readings {
            waiting: state.queue.len(),
            interactive_waiting: state.queue.interactive_len() > 0,
            since_admit_ns: now.saturating_sub(self.admitted_ns),
            since_take_ns: now.saturating_sub(state.last_take_ns.max(self.preempted_ns)),
            awake: state.awake,
            waking: state.waking,
            idle: state.idle.len(),
            spawning: state.spawning,
            width: state.width,
            ..Readings::default()
        };
        let sample =
            if readings.waiting > 0 { self.sampler.pick(&state.threads) } else { Vec::new() };
        let finished = state.finished;
        let since_wake_ns = now.saturating_sub(state.last_wake_ns);
        drop(state);
        expired.into_iter().for_each(|work| work.release());
        Observation { readings, sample, takes, finished, oldest_ns, since_wake_ns }
    }

    /// The share of one CPU that the sampled threads used since the last observation.
    fn cpu_used(&mut self, sample: &[Arc<ThreadRecord>], elapsed_ns: u64) -> f64 {
        let mut used = 0;
        let (mut most, mut runner) = (0, self.sampler.last_runner);
        for thread in sample {
            let cpu = thread.cpu_since_last_read_ns().min(elapsed_ns);
            used += cpu;
            if cpu > most {
                (most, runner) = (cpu, thread.index);
            }
        }
        self.sampler.note(runner, most, used, self.observed_ns);
        used as f64 / elapsed_ns.max(1) as f64
    }

    /// Whether the CPU was used, or `wanted`, nearly all the time, averaged over
    /// about `preempt_ns`.
    fn is_cpu_saturated(&mut self, used: f64, wanted: bool, elapsed_ns: u64) -> bool {
        let share = if wanted || used >= CPU_SATURATED { 1.0 } else { used };
        let weight = elapsed_ns as f64 / self.pool.settings.preempt_ns as f64;
        self.cpu_share += (share - self.cpu_share) * weight.min(1.0);
        self.cpu_share >= CPU_SATURATED
    }

    fn note_stall(&mut self, stalled: bool, now: u64) {
        if stalled {
            self.stalls_in_row += 1;
            self.calm_since_ns = now;
            if std::mem::take(&mut self.narrowed) {
                self.narrow_ns = (self.narrow_ns * 2).min(NARROW_NS_MAX);
            }
            self.pool.counters.stalls.fetch_add(1, Relaxed);
        } else {
            self.stalls_in_row = 0;
        }
    }

    fn preempt(&mut self, now: u64) {
        self.preempted_ns = now;
        let runner = self.pool.thread(self.sampler.last_runner);
        if let (Some(preempt), Some(runner)) = (&self.hooks.preempt, runner) {
            self.pool.counters.preemptions.fetch_add(1, Relaxed);
            preempt(runner.probe.tid());
        }
    }

    fn slow_down(&mut self, factor_max: u64) {
        self.interval_ns = (self.interval_ns * 2).min(self.pool.settings.stall_ns * factor_max);
    }

    fn observe_empty(&mut self, elapsed_ns: u64) {
        self.stalls_in_row = 0;
        // Time with nothing to do does not count as time without a stall.
        self.calm_since_ns += elapsed_ns.min(clock::now_ns() - self.calm_since_ns);
        self.empty_observations += 1;
        self.slow_down(INTERVAL_FACTOR_MAX);
        if self.empty_observations < EMPTY_OBSERVATIONS {
            return;
        }
        self.empty_observations = 0;
        self.interval_ns = self.pool.settings.stall_ns;
        self.pool.slot().hogged.store(0, Relaxed);
        self.pool.armed.store(false, Ordering::Release);
        // Work queued before the store did not notify the scheduler.
        if !self.pool.state.lock().queue.is_empty() {
            self.pool.armed.store(true, Ordering::Release);
        }
    }

    /// Does what is due by the clock.
    fn keep_time(&mut self) {
        let now = clock::now_ns();
        self.report_unfetched();
        self.pool.post_idle_if_due(now);
        if self.orphan_at_ns.is_some_and(|at| now >= at) {
            log::warn("the supervisor is gone and this worker did not finish in time: exiting");
            // SAFETY: ends the process at once, as intended.
            unsafe { libc::_exit(1) };
        }
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

    fn report_unfetched(&self) {
        for (role, id) in self.pool.events.take_unfetched(UNFETCHED_NS) {
            let found = |running: &Running| running.id == id && running.role == role.name();
            let running = self.pool.running().into_iter().find(found);
            let line = match running {
                Some(r) => format!(
                    "late: {} has been running for {} ms in thread {} (tid {}); no backtrace, because \
                     the GVL was not free within 1 s; CPU {} ms, sleeps in {}",
                    r.what,
                    r.age_ms,
                    r.thread,
                    r.tid,
                    r.cpu_ms,
                    r.wait_channel.as_deref().unwrap_or("nothing (it runs)"),
                ),
                None => format!("late: request {id} ended before it could be reported"),
            };
            log::warn(&line);
        }
    }
}
