//! The pool: where engines put units and Ruby threads take them.
//!
//! The rule of the hand-over: a thread that finishes a unit tries the queue
//! again at once, still holding the GVL ([`PoolThread::take`]). Only an empty queue
//! makes it wait, outside the GVL ([`PoolThread::wait`]). A push wakes a parked
//! thread only while fewer than `width` are awake, so one thread at work is
//! left alone. What changes the width is `policy`; who looks is `scheduler`.

mod growth;
mod idle_timer;
mod interval;
pub mod policy;
pub mod probe;
pub mod queue;
mod sampler;
pub mod scheduler;
pub mod thread;
pub mod thread_record;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::clock;
use crate::event_fd::EventFd;
use crate::pool::idle_timer::IdleTimer;
use crate::pool::policy::Decision;
use crate::pool::queue::{QueueLimits, WorkQueue};
use crate::pool::thread::PoolThread;
use crate::pool::thread_record::{Running, ThreadRecord};
use crate::process::events::{SupportEvent, SupportEvents};
use crate::process::scoreboard::{Scoreboard, WorkerGauges};
use crate::work::{Label, Shed, Work};

/// Settings of a pool.
#[derive(Clone)]
pub struct PoolConfig {
    /// Threads that stay when nothing is to do.
    pub threads_min: usize,
    /// Threads there may ever be.
    pub threads_max: usize,
    /// Bounds, one class per engine.
    pub queue: Vec<QueueLimits>,
    /// A CPU clock that stands still this long while units wait is a block (ns).
    pub stall_ns: u64,
    /// Nothing taken for this long while units wait: ask the VM to yield (ns).
    pub preempt_ns: u64,
    /// A thread over the minimum that had nothing to do this long leaves (ns).
    pub thread_idle_ns: u64,
    /// Where the gauges go.
    pub scoreboard: Arc<Scoreboard>,
    /// This worker's slot on the scoreboard.
    pub slot: usize,
}

pub(crate) struct PoolState<W: Work> {
    pub queue: WorkQueue<W>,
    pub threads: Vec<Option<Arc<ThreadRecord<W::Label>>>>,
    /// Parked threads, the one that parked last at the end: its caches are warm.
    pub idle: Vec<usize>,
    /// Least number of parked threads since the last shrink.
    pub idle_low: usize,
    /// Executors that are not parked.
    pub awake: usize,
    /// Of these, woken or started and not yet at their first take.
    pub waking: usize,
    pub spawning: usize,
    pub width: usize,
    pub taken: u64,
    pub finished: u64,
    pub running: usize,
    pub last_take_ns: u64,
    /// When a unit last ended.
    pub last_end_ns: u64,
    /// When a parked thread was last woken.
    pub last_wake_ns: u64,
    /// Threads that shall leave at their next take.
    pub leaving: usize,
    pub closing: bool,
    pub wakes: u64,
}

impl<W: Work> PoolState<W> {
    pub fn alive(&self) -> usize {
        self.idle.len() + self.awake
    }

    /// Takes the parked thread that parked last and counts it as awake.
    pub fn wake_one(&mut self) -> Option<Arc<ThreadRecord<W::Label>>> {
        let index = self.idle.pop()?;
        self.idle_low = self.idle_low.min(self.idle.len());
        self.awake += 1;
        self.waking += 1;
        self.wakes += 1;
        self.last_wake_ns = clock::now_ns();
        self.threads[index].clone()
    }
}

/// Counters of a pool.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    /// Units waiting.
    pub waiting: usize,
    /// Age in ms of the oldest of them.
    pub oldest_age_ms: u64,
    /// Units being run.
    pub running: usize,
    /// Threads in the pool.
    pub threads: usize,
    /// Threads allowed to be awake.
    pub width: usize,
    /// Units taken since the start.
    pub taken: u64,
    /// Units finished since the start.
    pub finished: u64,
    /// Times a parked thread was woken.
    pub wakes: u64,
    /// Times the scheduler looked.
    pub looks: u64,
    /// Looks that found a stall.
    pub stalls: u64,
    /// Times the VM was asked to yield.
    pub preemptions: u64,
}

/// The pool. Shared by engines, threads and the scheduler.
pub struct Pool<W: Work> {
    pub(crate) config: PoolConfig,
    pub(crate) state: Mutex<PoolState<W>>,
    pub(crate) events: SupportEvents,
    pub(crate) event_fd: EventFd,
    /// The scheduler is looking; a push need not wake it.
    pub(crate) armed: AtomicBool,
    /// Who waits for idleness, and since when.
    pub(crate) idle_timer: IdleTimer,
    pub(crate) counters: crate::pool::scheduler::Counters,
}

impl<W: Work> Pool<W> {
    /// A pool without threads.
    ///
    /// # Errors
    /// When the operating system gives no event descriptor.
    pub fn new(config: PoolConfig) -> std::io::Result<Arc<Self>> {
        let state = PoolState {
            queue: WorkQueue::new(&config.queue),
            threads: Vec::new(),
            idle: Vec::new(),
            idle_low: 0,
            awake: 0,
            waking: 0,
            spawning: 0,
            width: 1,
            taken: 0,
            finished: 0,
            running: 0,
            last_take_ns: clock::now_ns(),
            last_end_ns: 0,
            last_wake_ns: 0,
            leaving: 0,
            closing: false,
            wakes: 0,
        };
        Ok(Arc::new(Self {
            config,
            state: Mutex::new(state),
            events: SupportEvents::default(),
            event_fd: EventFd::new()?,
            armed: AtomicBool::new(false),
            idle_timer: IdleTimer::default(),
            counters: crate::pool::scheduler::Counters::default(),
        }))
    }

    /// Puts a unit into a class and wakes a thread if one is wanted.
    ///
    /// # Errors
    /// Gives the unit back when the class is full or the pool is closed.
    pub fn push(&self, class: usize, work: W) -> Result<(), W> {
        self.enqueue(class, work)?;
        self.nudge();
        Ok(())
    }

    /// Puts a unit into a class; the caller calls [`Pool::nudge`] when it has
    /// put in all it has, so that a batch wakes a thread once.
    ///
    /// # Errors
    /// Gives the unit back when the class is full or the pool is closed.
    pub fn enqueue(&self, class: usize, work: W) -> Result<(), W> {
        let now = clock::now_ns();
        let mut state = self.state.lock();
        if state.closing {
            return Err(work);
        }
        state.queue.push(class, work, now)
    }

    /// Wakes a thread if units wait and fewer are awake than may be. That one
    /// wakes the next when it took a unit and more wait.
    pub fn nudge(&self) {
        let mut state = self.state.lock();
        if state.queue.is_empty() {
            return;
        }
        let woken = if state.awake < state.width { state.wake_one() } else { None };
        // A thread woken alone will take the unit. One of several may have to
        // wait for a hog to let go of the GVL.
        let look = woken.is_none() || state.awake > 1;
        self.publish(&state);
        drop(state);
        if let Some(thread) = woken {
            thread.unparker.unpark();
        }
        if look {
            self.arm();
        }
    }

    /// Registers the calling thread as an thread.
    pub fn enter(self: &Arc<Self>) -> PoolThread<W> {
        PoolThread::enter(self)
    }

    /// The events for the guardian.
    pub fn events(&self) -> &SupportEvents {
        &self.events
    }

    /// Reports a unit that runs past its time.
    pub fn report_late(&self, id: u64) {
        self.events.post(SupportEvent::Late(id, clock::now_ns()));
        self.event_fd.notify();
    }

    /// Nothing more is taken in; threads leave when the queue is empty.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.closing = true;
        let woken: Vec<_> = std::iter::from_fn(|| state.wake_one()).collect();
        drop(state);
        for thread in woken {
            thread.unparker.unpark();
        }
        self.event_fd.notify();
    }

    /// Takes every waiting unit out and sheds it as stopped; answers how many.
    pub fn release_waiting(&self) -> usize {
        let waiting = self.state.lock().queue.drain();
        let count = waiting.len();
        waiting.into_iter().for_each(|work| work.shed(Shed::Stopped));
        count
    }

    /// Takes every waiting unit of a class out, first in first, for the engine
    /// to dispose of: nothing is shed.
    pub fn take_waiting(&self, class: usize) -> Vec<W> {
        let mut state = self.state.lock();
        let waiting = state.queue.drain_class(class);
        self.publish(&state);
        waiting
    }

    /// Units waiting in a class.
    pub fn waiting_in(&self, class: usize) -> usize {
        self.state.lock().queue.len_of(class)
    }

    /// Threads that run no unit, those included that may still be started.
    pub fn idle_threads(&self) -> usize {
        self.config.threads_max.saturating_sub(self.state.lock().running)
    }

    /// Units that wait, and units that are being run.
    pub fn load(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.queue.len(), state.running)
    }

    /// Where this worker's gauges are.
    pub fn gauges(&self) -> &WorkerGauges {
        self.slot()
    }

    /// What every thread is running now.
    pub fn running(&self) -> Vec<Running> {
        let threads: Vec<_> = self.state.lock().threads.iter().flatten().cloned().collect();
        let now = clock::now_ns();
        let line = |thread: &Arc<ThreadRecord<W::Label>>| {
            let current = thread.current.lock();
            let current = current.as_ref()?;
            Some(Running {
                id: current.label.id(),
                what: current.label.describe(),
                age_ms: now.saturating_sub(current.since_ns) / 1_000_000,
                thread: thread.index,
                tid: thread.probe.tid(),
                cpu_ms: thread.probe.cpu_ns().unwrap_or(0) / 1_000_000,
                wait_channel: thread.probe.wait_channel(),
            })
        };
        threads.iter().filter_map(line).collect()
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
            looks: self.counters.looks.load(Ordering::Relaxed),
            stalls: self.counters.stalls.load(Ordering::Relaxed),
            preemptions: self.counters.preemptions.load(Ordering::Relaxed),
        }
    }

    /// A thread that holds work has blocked (a GVL event, CRuby 3.2+): wake the
    /// next at once instead of waiting for the scheduler to see it.
    pub fn blocked(&self) {
        let mut state = self.state.lock();
        if state.queue.is_empty() || state.waking > 0 {
            return;
        }
        // How far the pool may grow is for the scheduler to say.
        let may = state.awake < self.config.threads_max;
        let woken = if may { state.wake_one() } else { None };
        if woken.is_some() {
            state.width = state.width.max(state.awake);
        }
        drop(state);
        match woken {
            Some(thread) => thread.unparker.unpark(),
            None => self.arm(),
        }
    }

    /// A thread is wanted in place of one that left.
    pub(crate) fn replace_one(&self) {
        self.state.lock().spawning += 1;
        self.events.post(SupportEvent::Spawn(1));
    }

    /// That many threads are about to be started without having been asked for.
    pub fn expect(&self, count: usize) {
        self.state.lock().spawning += count;
    }

    /// Threads that were asked for could not be started.
    pub fn spawn_failed(&self, count: usize) {
        let mut state = self.state.lock();
        state.spawning = state.spawning.saturating_sub(count);
    }

    pub(crate) fn shed(&self, works: Vec<W>, why: Shed) {
        works.into_iter().for_each(|work| work.shed(why));
    }

    /// Sends away threads that were not needed since the last call; answers
    /// whether any over the minimum are left.
    pub(crate) fn shrink(&self) -> bool {
        let mut state = self.state.lock();
        // Those that are leaving already count as gone.
        let staying = state.alive().saturating_sub(state.leaving);
        let spare = staying.saturating_sub(self.config.threads_min);
        let unused = policy::unneeded(state.idle_low, staying, self.config.threads_min);
        let unused = unused.min(state.idle.len());
        state.leaving += unused;
        // The one parked longest goes first: its caches are the coldest.
        let leavers: Vec<_> = (0..unused)
            .filter_map(|_| {
                let index = state.idle.remove(0);
                state.awake += 1;
                state.waking += 1;
                state.threads[index].clone()
            })
            .collect();
        state.idle_low = state.idle.len();
        drop(state);
        for thread in leavers {
            thread.unparker.unpark();
        }
        spare > unused
    }

    /// Carries out a decision.
    pub(crate) fn apply(&self, decision: &Decision) {
        let mut state = self.state.lock();
        state.width = decision.width.max(1);
        let woken: Vec<_> = (0..decision.wake).map_while(|_| state.wake_one()).collect();
        state.spawning += decision.spawn;
        drop(state);
        for thread in woken {
            thread.unparker.unpark();
        }
        if decision.spawn > 0 {
            self.events.post(SupportEvent::Spawn(decision.spawn));
        }
    }

    /// Makes sure the scheduler looks while units wait.
    pub(crate) fn arm(&self) {
        // The load keeps the line shared while the scheduler looks anyway.
        if !self.armed.load(Ordering::Acquire) && !self.armed.swap(true, Ordering::AcqRel) {
            self.event_fd.notify();
        }
    }

    pub(crate) fn slot(&self) -> &WorkerGauges {
        self.config.scoreboard.slot(self.config.slot)
    }

    pub(crate) fn publish(&self, state: &PoolState<W>) {
        let slot = self.slot();
        // What siblings compare before they take a connection is the first class's
        // load: jobs claimed ahead wait in the store as well as here.
        slot.queued.store(state.queue.len_of(0) as u32, Ordering::Relaxed);
        slot.running.store(state.running as u32, Ordering::Relaxed);
        slot.finished_total.store(state.finished, Ordering::Relaxed);
    }
}
