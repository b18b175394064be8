//! The scheduler: the one thread that looks at the pool from outside.
//!
//! It sleeps until a push finds that nobody was woken for it. Then it looks
//! every `stall_ns` (0.2 ms), less often while threads make quick progress, nobody
//! is left to wake or jobs compute, and goes back to sleep when the queue has been
//! empty for a few looks. It also preempts hogs, sheds what grew too old, sends
//! unneeded threads away, answers the supervisor's pings and reports late units
//! that Ruby could not.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::Duration;

use crate::clock;
use crate::pool::growth::Growth;
use crate::pool::interval::{interval_factor, INTERVAL_FACTOR_MAX};
use crate::pool::policy::{decide, Readings, Tuning};
use crate::pool::sampler::ThreadSampler;
use crate::pool::thread_record::ThreadRecord;
use crate::pool::Pool;
use crate::process::channel::{ChannelMessage, SupervisorChannel};
use crate::process::events::SupportEvent;
use crate::work::{Shed, Work};

/// Looks at an empty queue before the scheduler sleeps again.
const EMPTY_LOOKS: u32 = 4;
/// Less than this share of one CPU is a block, at least this nearly all of it.
const UNUSED: f64 = 0.25;
const CPU_SATURATED: f64 = 0.875;
/// Time that a woken thread gets to take before its absence counts as a stall.
const ARRIVAL_NS: u64 = 1_000_000;
/// Time without a stall after which the width narrows. Narrowing that is
/// followed by a stall doubles it, up to the maximum: a steady load then keeps
/// the width it needs. Narrowing without one halves it again.
const NARROW_NS: u64 = 50_000_000;
const NARROW_NS_MAX: u64 = 1_600_000_000;
/// How long the guardian may take to fetch a report before Rust writes it.
pub const UNFETCHED_NS: u64 = 1_000_000_000;

/// What the scheduler counted.
#[derive(Default)]
pub struct Counters {
    /// Looks at the pool.
    pub looks: AtomicU64,
    /// Looks that found a stall.
    pub stalls: AtomicU64,
    /// Times the VM was asked to yield.
    pub preemptions: AtomicU64,
}

/// What the scheduler may call; all of it is safe from a thread without the GVL.
pub struct SchedulerHooks {
    /// Asks the VM to take the GVL from the running thread; `None` where the
    /// VM has no safe way.
    pub preempt: Option<Box<dyn Fn() + Send>>,
    /// Writes one line to the log.
    pub report: Box<dyn Fn(&str) + Send>,
    /// The line to the supervisor, when there is one.
    pub channel: Option<Arc<SupervisorChannel>>,
    /// Time after the supervisor's end at which the process leaves by force.
    pub orphan_exit: Duration,
}

/// The running scheduler. Dropping it stops and joins the thread.
pub struct Scheduler {
    stop: Arc<AtomicBool>,
    notify: Box<dyn Fn() + Send + Sync>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Scheduler {
    /// Starts the thread. It blocks every signal.
    ///
    /// # Errors
    /// When the operating system gives no thread.
    pub fn start<W: Work>(pool: &Arc<Pool<W>>, hooks: SchedulerHooks) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let watch = SchedulerLoop::new(pool.clone(), hooks, stop.clone());
        let thread = crate::thread::spawn("chaton-scheduler", move || watch.run())?;
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

/// What one look saw.
struct Observation<L> {
    readings: Readings,
    /// Threads that may be using the CPU.
    sample: Vec<Arc<ThreadRecord<L>>>,
    /// Units taken since the last look.
    takes: u64,
    /// Units finished since the start.
    finished: u64,
    /// Age in ns of the oldest waiting unit.
    oldest_ns: u64,
    /// Time in ns since a thread was last woken.
    rouse_age_ns: u64,
}

struct SchedulerLoop<W: Work> {
    pool: Arc<Pool<W>>,
    hooks: SchedulerHooks,
    stop: Arc<AtomicBool>,
    growth: Growth,
    interval_ns: u64,
    looked_ns: u64,
    taken: u64,
    empty_looks: u32,
    stalled_looks: u32,
    calm_since_ns: u64,
    narrow_ns: u64,
    /// The width narrowed and no stall has come since.
    narrowed: bool,
    preempted_ns: u64,
    guest_ns: u64,
    /// Of the CPU, of late: from 0 to 1.
    share: f64,
    shrink_at_ns: Option<u64>,
    orphan_at_ns: Option<u64>,
    sampler: ThreadSampler,
}

impl<W: Work> SchedulerLoop<W> {
    fn new(pool: Arc<Pool<W>>, hooks: SchedulerHooks, stop: Arc<AtomicBool>) -> Self {
        let now = clock::now_ns();
        Self {
            interval_ns: pool.config.stall_ns,
            growth: Growth::new(now),
            pool,
            hooks,
            stop,
            looked_ns: now,
            taken: 0,
            empty_looks: 0,
            stalled_looks: 0,
            calm_since_ns: now,
            narrow_ns: NARROW_NS,
            narrowed: false,
            preempted_ns: 0,
            guest_ns: 0,
            share: 0.0,
            shrink_at_ns: None,
            orphan_at_ns: None,
            sampler: ThreadSampler::default(),
        }
    }

    fn run(mut self) {
        while !self.stop.load(Ordering::Acquire) {
            let timeout = self.timeout();
            let (rung, received) = self.sleep(timeout);
            if rung {
                self.pool.event_fd.clear();
            }
            if received {
                self.receive();
            }
            if self.pool.armed.load(Ordering::Acquire) {
                self.look();
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
        let channel = match (&self.hooks.channel, self.orphan_at_ns) {
            (Some(channel), None) => channel.fd(),
            _ => -1,
        };
        let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut fds = [entry(self.pool.event_fd.fd()), entry(channel)];
        let timeout = timeout_ns.map(|ns| libc::timespec {
            tv_sec: (ns / 1_000_000_000) as libc::time_t,
            tv_nsec: (ns % 1_000_000_000) as libc::c_long,
        });
        let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: two entries and a timeout of ours, alive during the call.
        unsafe { libc::ppoll(fds.as_mut_ptr(), 2, timeout, std::ptr::null()) };
        (fds[0].revents != 0, fds[1].revents != 0)
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
            (self.hooks.report)(
                "a line of the supervisor could not be read: the jobs of a worker that died are \
                 recovered when its lease ends",
            );
        }
        if received.end {
            let idle_timer = self.hooks.orphan_exit.as_nanos() as u64;
            self.orphan_at_ns = Some(clock::now_ns() + idle_timer);
            self.pool.events.post(SupportEvent::Orphan);
        }
    }

    fn look(&mut self) {
        let now = clock::now_ns();
        self.pool.counters.looks.fetch_add(1, Relaxed);
        let elapsed = now.saturating_sub(self.looked_ns);
        self.looked_ns = now;
        let Observation { mut readings, sample, takes, finished, oldest_ns, rouse_age_ns } =
            self.read(now);
        if readings.waiting == 0 {
            self.nothing_waits(elapsed);
            return;
        }
        self.empty_looks = 0;
        let nobody_comes = readings.waking == 0 || rouse_age_ns >= ARRIVAL_NS;
        // Only a unit that waited all the time proves that the time was lost.
        let waited = oldest_ns >= elapsed;
        let used = self.cpu_used(&sample, elapsed);
        let lost = used < UNUSED && elapsed >= self.pool.config.stall_ns / 2;
        // A thread that lost its CPU to a neighbour has not blocked, and would use it.
        let wanted = (used < if readings.interactive_waiting { UNUSED } else { CPU_SATURATED })
            && sample.iter().any(|thread| thread.probe.is_runnable());
        readings.stalled = lost && !wanted && nobody_comes && waited;
        readings.cpu_saturated =
            !readings.interactive_waiting && self.is_cpu_saturated(used, wanted, elapsed);
        self.note_stall(readings.stalled, now);
        readings.stalled_looks = self.stalled_looks;
        readings.same_runner_ns = now.saturating_sub(self.sampler.runner_since_ns);
        readings.calm_ns = now.saturating_sub(self.calm_since_ns);
        let max = self.pool.config.threads_max;
        readings.max = self.growth.limit(now, finished, readings.awake, readings.stalled, max);
        let tuning = Tuning { preempt_ns: self.pool.config.preempt_ns, narrow_ns: self.narrow_ns };
        let decision = decide(&readings, &tuning);
        if decision.narrowed {
            self.calm_since_ns = now;
            if std::mem::replace(&mut self.narrowed, true) {
                self.narrow_ns = (self.narrow_ns / 2).max(NARROW_NS);
            }
        }
        if decision.admit_one && !readings.interactive_waiting {
            // It stays for a while: what waits behind it may be quick.
            (self.guest_ns, self.calm_since_ns) = (now, now);
        }
        self.pool.slot().hogged.store(u32::from(decision.preempt), Relaxed);
        if decision.width != readings.width || decision.wake + decision.spawn > 0 {
            self.pool.apply(&decision);
        }
        if decision.preempt {
            self.preempt(now);
        }
        self.pace(interval_factor(&readings, takes, self.pool.config.stall_ns, tuning.preempt_ns));
    }

    /// Readings under one lock, and the threads worth looking at.
    fn read(&mut self, now: u64) -> Observation<W::Label> {
        let mut old = Vec::new();
        let mut state = self.pool.state.lock();
        state.queue.expire_all(now, &mut old);
        self.pool.publish(&state);
        let oldest_ns = state.queue.oldest_age_ns(now);
        self.pool.slot().queue_age_ms.store((oldest_ns / 1_000_000) as u32, Relaxed);
        let takes = state.taken - self.taken;
        self.taken = state.taken;
        let readings = Readings {
            waiting: state.queue.len(),
            interactive_waiting: state.queue.len_of(0) > 0,
            since_admit_ns: now.saturating_sub(self.guest_ns),
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
        let rouse_age_ns = now.saturating_sub(state.last_wake_ns);
        drop(state);
        self.pool.shed(old, Shed::Old);
        Observation { readings, sample, takes, finished, oldest_ns, rouse_age_ns }
    }

    /// The share of one CPU that the sampled threads used since the last look.
    fn cpu_used(&mut self, sample: &[Arc<ThreadRecord<W::Label>>], elapsed_ns: u64) -> f64 {
        let mut used = 0;
        let (mut most, mut runner) = (0, self.sampler.last_runner);
        for thread in sample {
            let cpu = thread.cpu_since_last_look_ns().min(elapsed_ns);
            used += cpu;
            if cpu > most {
                (most, runner) = (cpu, thread.index);
            }
        }
        self.sampler.note(runner, most, used, self.looked_ns);
        used as f64 / elapsed_ns.max(1) as f64
    }

    /// Whether the CPU was used nearly all the time, or `wanted`, on the average
    /// of `preempt_ns` or so.
    fn is_cpu_saturated(&mut self, used: f64, wanted: bool, elapsed_ns: u64) -> bool {
        let share = if wanted || used >= CPU_SATURATED { 1.0 } else { used };
        let weight = elapsed_ns as f64 / self.pool.config.preempt_ns as f64;
        self.share += (share - self.share) * weight.min(1.0);
        self.share >= CPU_SATURATED
    }

    fn note_stall(&mut self, stalled: bool, now: u64) {
        if stalled {
            self.stalled_looks += 1;
            self.calm_since_ns = now;
            if std::mem::take(&mut self.narrowed) {
                self.narrow_ns = (self.narrow_ns * 2).min(NARROW_NS_MAX);
            }
            self.pool.counters.stalls.fetch_add(1, Relaxed);
        } else {
            self.stalled_looks = 0;
        }
    }

    fn preempt(&mut self, now: u64) {
        self.preempted_ns = now;
        if let Some(preempt) = &self.hooks.preempt {
            self.pool.counters.preemptions.fetch_add(1, Relaxed);
            preempt();
        }
    }

    fn pace(&mut self, factor_max: u64) {
        self.interval_ns = (self.interval_ns * 2).min(self.pool.config.stall_ns * factor_max);
    }

    fn nothing_waits(&mut self, elapsed_ns: u64) {
        self.stalled_looks = 0;
        // Time with nothing to do is not time that proves calm.
        self.calm_since_ns += elapsed_ns.min(clock::now_ns() - self.calm_since_ns);
        self.empty_looks += 1;
        self.pace(INTERVAL_FACTOR_MAX);
        if self.empty_looks < EMPTY_LOOKS {
            return;
        }
        self.empty_looks = 0;
        self.interval_ns = self.pool.config.stall_ns;
        self.pool.slot().hogged.store(0, Relaxed);
        self.pool.armed.store(false, Ordering::Release);
        // A push between the look and the store would find nobody looking.
        if !self.pool.state.lock().queue.is_empty() {
            self.pool.armed.store(true, Ordering::Release);
        }
    }

    /// What goes by the clock rather than by the queue.
    fn keep_time(&mut self) {
        let now = clock::now_ns();
        self.report_unheard();
        self.pool.end_idle_wait(now);
        if self.orphan_at_ns.is_some_and(|at| now >= at) {
            (self.hooks.report)(
                "supervisor is gone and this worker did not finish in time: leaving",
            );
            // SAFETY: ends the process at once, as intended.
            unsafe { libc::_exit(1) };
        }
        match self.shrink_at_ns {
            None => {
                let state = self.pool.state.lock();
                if state.alive() + state.spawning > self.pool.config.threads_min {
                    self.shrink_at_ns = Some(now + self.pool.config.thread_idle_ns);
                }
            }
            Some(at) if now >= at => {
                let more = self.pool.shrink();
                self.shrink_at_ns = more.then_some(now + self.pool.config.thread_idle_ns);
            }
            Some(_) => {}
        }
    }

    fn report_unheard(&self) {
        for id in self.pool.events.take_unfetched(UNFETCHED_NS) {
            let running = self.pool.running().into_iter().find(|running| running.id == id);
            let line = match running {
                Some(r) => format!(
                    "late: {} runs since {} ms in thread {} (tid {}); no backtrace, the GVL was not \
                     to be had within 1 s; CPU {} ms, sleeps in {}",
                    r.what,
                    r.age_ms,
                    r.thread,
                    r.tid,
                    r.cpu_ms,
                    r.wait_channel.as_deref().unwrap_or("nothing (it runs)"),
                ),
                None => format!("late: unit {id} ended before it could be reported"),
            };
            (self.hooks.report)(&line);
        }
    }
}
