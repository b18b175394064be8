//! The hub: where engines put units and Ruby threads take them.
//!
//! The rule of the hand-over: a thread that finishes a unit tries the queue
//! again at once, still holding the GVL ([`Seat::take`]). Only an empty queue
//! makes it wait, outside the GVL ([`Seat::wait`]). A push wakes a parked
//! thread only while fewer than `width` are awake, so one thread at work is
//! left alone. What changes the width is `policy`; who looks is `sentinel`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::board::{Board, Slot};
use crate::clock;
use crate::executor::{Executor, Running};
use crate::guard::{Event, Guard};
use crate::lanes::{LaneLimits, Lanes};
use crate::patience::Patience;
use crate::policy::{self, Decision};
use crate::seat::Seat;
use crate::wake::Alarm;
use crate::work::{Label, Shed, Work};

/// Settings of a hub.
#[derive(Clone)]
pub struct Options {
    /// Threads that stay when nothing is to do.
    pub threads_min: usize,
    /// Threads there may ever be.
    pub threads_max: usize,
    /// Bounds, one lane per engine.
    pub lanes: Vec<LaneLimits>,
    /// A CPU clock that stands still this long while units wait is a block (ns).
    pub stall_ns: u64,
    /// Nothing taken for this long while units wait: ask the VM to yield (ns).
    pub preempt_ns: u64,
    /// A thread over the minimum that had nothing to do this long leaves (ns).
    pub thread_idle_ns: u64,
    /// Where the gauges go.
    pub board: Arc<Board>,
    /// This worker's slot on the board.
    pub slot: usize,
}

pub(crate) struct State<W: Work> {
    pub lanes: Lanes<W>,
    pub executors: Vec<Option<Arc<Executor<W::Label>>>>,
    /// Parked executors, the one that parked last at the end: its caches are warm.
    pub idle: Vec<usize>,
    /// Least number of parked executors since the last shrink.
    pub idle_low: usize,
    /// Executors that are not parked.
    pub awake: usize,
    /// Of these, woken or started and not yet at their first take.
    pub coming: usize,
    pub spawning: usize,
    pub width: usize,
    pub taken: u64,
    pub finished: u64,
    pub running: usize,
    pub last_take_ns: u64,
    /// When a unit last ended.
    pub last_end_ns: u64,
    /// When a parked thread was last woken.
    pub last_rouse_ns: u64,
    /// Threads that shall leave at their next take.
    pub leaving: usize,
    pub closing: bool,
    pub wakes: u64,
}

impl<W: Work> State<W> {
    pub fn alive(&self) -> usize {
        self.idle.len() + self.awake
    }

    /// Takes the parked executor that parked last and counts it as awake.
    pub fn rouse(&mut self) -> Option<Arc<Executor<W::Label>>> {
        let index = self.idle.pop()?;
        self.idle_low = self.idle_low.min(self.idle.len());
        self.awake += 1;
        self.coming += 1;
        self.wakes += 1;
        self.last_rouse_ns = clock::now_ns();
        self.executors[index].clone()
    }
}

/// Counters of a hub.
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
    /// Times the sentinel looked.
    pub looks: u64,
    /// Looks that found a stall.
    pub stalls: u64,
    /// Times the VM was asked to yield.
    pub preemptions: u64,
}

/// The hub. Shared by engines, executors and the sentinel.
pub struct Hub<W: Work> {
    pub(crate) options: Options,
    pub(crate) state: Mutex<State<W>>,
    pub(crate) guard: Guard,
    pub(crate) alarm: Alarm,
    /// The sentinel is looking; a push need not wake it.
    pub(crate) armed: AtomicBool,
    /// Who waits for idleness, and since when.
    pub(crate) patience: Patience,
    pub(crate) counters: crate::sentinel::Counters,
}

impl<W: Work> Hub<W> {
    /// A hub without threads.
    ///
    /// # Errors
    /// When the operating system gives no event descriptor.
    pub fn new(options: Options) -> std::io::Result<Arc<Self>> {
        let state = State {
            lanes: Lanes::new(&options.lanes),
            executors: Vec::new(),
            idle: Vec::new(),
            idle_low: 0,
            awake: 0,
            coming: 0,
            spawning: 0,
            width: 1,
            taken: 0,
            finished: 0,
            running: 0,
            last_take_ns: clock::now_ns(),
            last_end_ns: 0,
            last_rouse_ns: 0,
            leaving: 0,
            closing: false,
            wakes: 0,
        };
        Ok(Arc::new(Self {
            options,
            state: Mutex::new(state),
            guard: Guard::default(),
            alarm: Alarm::new()?,
            armed: AtomicBool::new(false),
            patience: Patience::default(),
            counters: crate::sentinel::Counters::default(),
        }))
    }

    /// Puts a unit into a lane and wakes a thread if one is wanted.
    ///
    /// # Errors
    /// Gives the unit back when the lane is full or the hub is closed.
    pub fn push(&self, lane: usize, work: W) -> Result<(), W> {
        self.enqueue(lane, work)?;
        self.nudge();
        Ok(())
    }

    /// Puts a unit into a lane; the caller calls [`Hub::nudge`] when it has
    /// put in all it has, so that a batch wakes a thread once.
    ///
    /// # Errors
    /// Gives the unit back when the lane is full or the hub is closed.
    pub fn enqueue(&self, lane: usize, work: W) -> Result<(), W> {
        let now = clock::now_ns();
        let mut state = self.state.lock();
        if state.closing {
            return Err(work);
        }
        state.lanes.push(lane, work, now)
    }

    /// Wakes a thread if units wait and fewer are awake than may be. That one
    /// wakes the next when it took a unit and more wait.
    pub fn nudge(&self) {
        let mut state = self.state.lock();
        if state.lanes.is_empty() {
            return;
        }
        let roused = if state.awake < state.width { state.rouse() } else { None };
        // A thread woken alone will take the unit. One of several may have to
        // wait for a hog to let go of the GVL.
        let look = roused.is_none() || state.awake > 1;
        self.publish(&state);
        drop(state);
        if let Some(executor) = roused {
            executor.unparker.unpark();
        }
        if look {
            self.arm();
        }
    }

    /// Registers the calling thread as an executor.
    pub fn enter(self: &Arc<Self>) -> Seat<W> {
        Seat::enter(self)
    }

    /// The events for the guardian.
    pub fn guard(&self) -> &Guard {
        &self.guard
    }

    /// Reports a unit that runs past its time.
    pub fn report_late(&self, id: u64) {
        self.guard.post(Event::Late(id, clock::now_ns()));
        self.alarm.ring();
    }

    /// Nothing more is taken in; threads leave when the queue is empty.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.closing = true;
        let roused: Vec<_> = std::iter::from_fn(|| state.rouse()).collect();
        drop(state);
        for executor in roused {
            executor.unparker.unpark();
        }
        self.alarm.ring();
    }

    /// Takes every waiting unit out and sheds it as stopped; answers how many.
    pub fn release_waiting(&self) -> usize {
        let waiting = self.state.lock().lanes.drain();
        let count = waiting.len();
        waiting.into_iter().for_each(|work| work.shed(Shed::Stopped));
        count
    }

    /// Takes every waiting unit of a lane out, first in first, for the engine
    /// to dispose of: nothing is shed.
    pub fn take_waiting(&self, lane: usize) -> Vec<W> {
        let mut state = self.state.lock();
        let waiting = state.lanes.drain_lane(lane);
        self.publish(&state);
        waiting
    }

    /// Units waiting in a lane.
    pub fn waiting_in(&self, lane: usize) -> usize {
        self.state.lock().lanes.len_of(lane)
    }

    /// Threads that run no unit, those included that may still be started.
    pub fn idle_threads(&self) -> usize {
        self.options.threads_max.saturating_sub(self.state.lock().running)
    }

    /// Units that wait, and units that are being run.
    pub fn load(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.lanes.len(), state.running)
    }

    /// Where this worker's gauges are.
    pub fn board_slot(&self) -> &Slot {
        self.slot()
    }

    /// What every executor is running now.
    pub fn running(&self) -> Vec<Running> {
        let executors: Vec<_> = self.state.lock().executors.iter().flatten().cloned().collect();
        let now = clock::now_ns();
        let line = |executor: &Arc<Executor<W::Label>>| {
            let current = executor.current.lock();
            let current = current.as_ref()?;
            Some(Running {
                id: current.label.id(),
                what: current.label.describe(),
                age_ms: now.saturating_sub(current.since_ns) / 1_000_000,
                executor: executor.index,
                tid: executor.probe.tid(),
                cpu_ms: executor.probe.cpu_ns().unwrap_or(0) / 1_000_000,
                wait_channel: executor.probe.wait_channel(),
            })
        };
        executors.iter().filter_map(line).collect()
    }

    /// The counters now.
    pub fn stats(&self) -> Stats {
        let state = self.state.lock();
        Stats {
            waiting: state.lanes.len(),
            oldest_age_ms: state.lanes.oldest_age_ns(clock::now_ns()) / 1_000_000,
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
    /// next at once instead of waiting for the sentinel to see it.
    pub fn blocked(&self) {
        let mut state = self.state.lock();
        if state.lanes.is_empty() || state.coming > 0 {
            return;
        }
        // How far the pool may grow is for the sentinel to say.
        let may = state.awake < self.options.threads_max;
        let roused = if may { state.rouse() } else { None };
        if roused.is_some() {
            state.width = state.width.max(state.awake);
        }
        drop(state);
        match roused {
            Some(executor) => executor.unparker.unpark(),
            None => self.arm(),
        }
    }

    /// A thread is wanted in place of one that left.
    pub(crate) fn replace_one(&self) {
        self.state.lock().spawning += 1;
        self.guard.post(Event::Spawn(1));
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
        let spare = staying.saturating_sub(self.options.threads_min);
        let unused = policy::unneeded(state.idle_low, staying, self.options.threads_min);
        let unused = unused.min(state.idle.len());
        state.leaving += unused;
        // The one parked longest goes first: its caches are the coldest.
        let leavers: Vec<_> = (0..unused)
            .filter_map(|_| {
                let index = state.idle.remove(0);
                state.awake += 1;
                state.coming += 1;
                state.executors[index].clone()
            })
            .collect();
        state.idle_low = state.idle.len();
        drop(state);
        for executor in leavers {
            executor.unparker.unpark();
        }
        spare > unused
    }

    /// Carries out a decision.
    pub(crate) fn apply(&self, decision: &Decision) {
        let mut state = self.state.lock();
        state.width = decision.width.max(1);
        let roused: Vec<_> = (0..decision.wake).map_while(|_| state.rouse()).collect();
        state.spawning += decision.spawn;
        drop(state);
        for executor in roused {
            executor.unparker.unpark();
        }
        if decision.spawn > 0 {
            self.guard.post(Event::Spawn(decision.spawn));
        }
    }

    /// Makes sure the sentinel looks while units wait.
    pub(crate) fn arm(&self) {
        // The load keeps the line shared while the sentinel looks anyway.
        if !self.armed.load(Ordering::Acquire) && !self.armed.swap(true, Ordering::AcqRel) {
            self.alarm.ring();
        }
    }

    pub(crate) fn slot(&self) -> &Slot {
        self.options.board.slot(self.options.slot)
    }

    pub(crate) fn publish(&self, state: &State<W>) {
        let slot = self.slot();
        // What siblings compare before they take a connection is the first lane's
        // load: jobs claimed ahead wait in the store as well as here.
        slot.queued.store(state.lanes.len_of(0) as u32, Ordering::Relaxed);
        slot.running.store(state.running as u32, Ordering::Relaxed);
        slot.finished_total.store(state.finished, Ordering::Relaxed);
    }
}
