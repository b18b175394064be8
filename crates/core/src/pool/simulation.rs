//! A simulation of a pool under one GVL: its state, its observations and its decisions,
//! which are the real ones, are tried with many arrivals, lengths and shares of IO in a few
//! milliseconds.
//!
//! Time passes in steps of [`STEP`]. CRuby's part is a queue of threads that want the
//! GVL, and a time slice of 100 ms. The scheduler observes in every step, as with GVL
//! events, or as often as the clocks are read.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::sync::Parker;

use crate::pool::clock_activity::ClockActivity;
use crate::pool::observer::{Activity, Observer};
use crate::pool::policy::{Decision, Facts};
use crate::pool::quantum::CpuTimes;
use crate::pool::queue::{QueueLimits, WorkQueue};
use crate::pool::state::{PoolState, Take};
use crate::pool::thread_record::ThreadRecord;
use crate::work::testing::work;
use crate::work::Role;

mod trials;

const US: u64 = 1_000;
const MS: u64 = 1_000 * US;
const STEP: u64 = 50 * US;
const BLOCKED: u64 = 100 * US;
const STALL: u64 = 200 * US;
const LEAST: u64 = 4 * MS;
const ARRIVAL: u64 = 50 * US;

/// Work as (CPU time, then waiting time) in ns.
type Unit = Vec<(u64, u64)>;

#[derive(Clone, Copy, PartialEq)]
enum SimulatedThread {
    Parked,
    /// Woken or started; it wants the GVL from then on.
    Coming(u64),
    Wants,
    Runs,
    /// Waits for something else until then.
    Waits(u64),
}

struct SimulatedWork {
    role: Role,
    unit: Unit,
    at: usize,
    left: u64,
    used: u64,
    client: usize,
}

struct SimulatedPool {
    now: u64,
    max: usize,
    state: PoolState,
    observer: Observer,
    threads: Vec<SimulatedThread>,
    records: Vec<Arc<ThreadRecord>>,
    work: Vec<Option<SimulatedWork>>,
    /// Threads that want the GVL.
    fifo: VecDeque<usize>,
    /// Work that waits, by number.
    units: HashMap<u64, SimulatedWork>,
    turn: u64,
    blocked: u64,
    /// Times that work went on after a wait; with clocks, readings at which it did.
    returns: u64,
    /// With clocks: how the next reading is timed, when it is due, and the CPU time used
    /// since the last one.
    clocks: Option<ClockActivity>,
    observe_at: u64,
    observed: u64,
    ran: u64,
    taken: u64,
    observations: usize,
    begun: usize,
    finished: usize,
    preemptions: usize,
    /// CPU time of each engine's work.
    used: [u64; 3],
    /// The longest time in a row for which work waited, nothing could run, and a thread
    /// was left to wake; and the sum of such times.
    lost: u64,
    lost_max: u64,
    lost_sum: u64,
    /// Clients whose unit has ended.
    done: Vec<usize>,
}

impl SimulatedPool {
    fn new(max: usize) -> Self {
        let mut queue = WorkQueue::new(10);
        let limits = QueueLimits { count_max: 9_999, bytes_max: 9_999, age_max: Duration::ZERO };
        queue.register(Role::Web, limits);
        queue.register(Role::Jobs, limits);
        let mut pool = Self {
            now: 0,
            max,
            state: PoolState::new(queue, CpuTimes::new(LEAST), 0),
            observer: Observer::new(max, BLOCKED, 0),
            threads: Vec::new(),
            records: Vec::new(),
            work: Vec::new(),
            fifo: VecDeque::new(),
            units: HashMap::new(),
            turn: 0,
            blocked: 0,
            returns: 0,
            clocks: None,
            observe_at: 0,
            observed: 0,
            ran: 0,
            taken: 0,
            observations: 0,
            begun: 0,
            finished: 0,
            preemptions: 0,
            used: [0; 3],
            lost: 0,
            lost_max: 0,
            lost_sum: 0,
            done: Vec::new(),
        };
        pool.spawn();
        pool
    }

    /// Before CRuby 3.3.
    fn with_clocks(max: usize) -> Self {
        Self { clocks: Some(ClockActivity::new(STALL, 0)), ..Self::new(max) }
    }

    fn can_run(&self) -> bool {
        let can_run =
            |t: &SimulatedThread| matches!(t, SimulatedThread::Wants | SimulatedThread::Runs);
        self.threads.iter().any(can_run)
    }

    fn spawn(&mut self) {
        let unparker = Parker::new().unparker().clone();
        let record = self.state.enter(|index| Arc::new(ThreadRecord::current(index, unparker)));
        self.records.push(record);
        self.threads.push(SimulatedThread::Coming(self.now + ARRIVAL));
        self.work.push(None);
    }

    fn woken(&mut self, records: impl IntoIterator<Item = Arc<ThreadRecord>>) {
        for record in records {
            self.threads[record.index] = SimulatedThread::Coming(self.now + ARRIVAL);
        }
    }

    fn submit(&mut self, client: usize, unit: Unit) {
        self.submit_to(Role::Web, client, unit);
    }

    fn submit_to(&mut self, role: Role, client: usize, unit: Unit) {
        let id = client as u64;
        assert!(self.state.queue.push(work(role, id, 1), self.now).is_ok());
        let left = unit[0].0;
        self.units.insert(id, SimulatedWork { role, unit, at: 0, left, used: 0, client });
        let now = self.now;
        let woken = self.state.wake_for_work(|| now);
        self.woken(woken);
    }

    fn step(&mut self) {
        self.now += STEP;
        for index in 0..self.threads.len() {
            if matches!(self.threads[index], SimulatedThread::Coming(at) | SimulatedThread::Waits(at) if at <= self.now)
            {
                self.threads[index] = SimulatedThread::Wants;
                self.fifo.push_back(index);
                self.returns += u64::from(self.clocks.is_none() && self.work[index].is_some());
            }
        }
        let mut left = STEP;
        while left > 0 {
            let Some(index) = self.holder() else { break };
            left -= self.run(index, left);
        }
        self.ran += STEP - left;
        let room = self.state.awake + self.state.spawning < self.max;
        let lost = !self.state.queue.is_empty() && !self.can_run() && room;
        self.lost = if lost { self.lost + STEP } else { 0 };
        self.lost_sum += if lost { STEP } else { 0 };
        self.lost_max = self.lost_max.max(self.lost);
        self.blocked = if self.can_run() || left < STEP { 0 } else { self.blocked + STEP };
        if self.now >= self.observe_at {
            self.observe();
        }
    }

    fn holder(&mut self) -> Option<usize> {
        let holder = self.threads.iter().position(|thread| *thread == SimulatedThread::Runs);
        holder.or_else(|| {
            let next = self.fifo.pop_front()?;
            self.threads[next] = SimulatedThread::Runs;
            self.turn = 0;
            Some(next)
        })
    }

    /// Lets the holder of the GVL run for at most `left`; returns the time it used.
    fn run(&mut self, index: usize, left: u64) -> u64 {
        let Some(work) = &mut self.work[index] else {
            self.take(index);
            return 0;
        };
        let used = left.min(work.left);
        work.left -= used;
        work.used += used;
        self.turn += used;
        self.used[work.role as usize] += used;
        if work.left > 0 {
            if self.turn >= 100 * MS {
                self.switch(index);
            }
            return used;
        }
        let waits = work.unit[work.at].1;
        work.at += 1;
        if let Some((cpu, _)) = work.unit.get(work.at) {
            work.left = *cpu;
        } else {
            self.state.cpu_times.record(work.role, work.used, 1);
            self.state.finish(work.role, self.now);
            self.finished += 1;
            self.done.push(work.client);
            self.work[index] = None;
        }
        if waits > 0 {
            self.threads[index] = SimulatedThread::Waits(self.now + waits);
        }
        used
    }

    fn take(&mut self, index: usize) {
        let request_wants =
            |index: &usize| self.work[*index].as_ref().is_none_or(|work| work.role == Role::Web);
        let wanted = self.fifo.iter().any(request_wants) || !self.state.requests_go_first();
        if self.turn >= 2 * MS && !self.fifo.is_empty() && wanted {
            return self.switch(index);
        }
        match self.state.take(index, self.now, &mut vec![]) {
            Take::Work(work) => {
                self.work[index] = self.units.remove(&work.id());
                self.records[index].run(Some((work, self.now)));
                self.begun += 1;
                let now = self.now;
                let woken = self.state.wake_for_work(|| now);
                self.woken(woken);
            }
            _ => self.threads[index] = SimulatedThread::Parked,
        }
    }

    fn switch(&mut self, index: usize) {
        self.turn = 0;
        if !self.fifo.is_empty() {
            self.threads[index] = SimulatedThread::Wants;
            self.fifo.push_back(index);
        }
    }

    fn quantum(&self) -> u64 {
        self.state.quantum_ns(Some(Role::Web))
    }

    fn observe(&mut self) {
        self.observations += 1;
        let elapsed = self.now - std::mem::replace(&mut self.observed, self.now);
        let runner = self.threads.iter().position(|thread| *thread == SimulatedThread::Runs);
        let can_run = self.can_run();
        let unused = std::mem::take(&mut self.ran) * 4 < elapsed && !can_run;
        let at_work =
            self.threads.iter().zip(&self.work).filter(|(thread, _)| {
                matches!(thread, SimulatedThread::Wants | SimulatedThread::Runs)
            });
        let mut seen = SimulatedActivity {
            runner: runner.map(|index| self.records[index].clone()),
            running: runner.and_then(|index| self.work[index].as_ref()),
            turn: self.turn,
            blocked: if self.clocks.is_none() { self.blocked } else { elapsed * u64::from(unused) },
            used: at_work.filter_map(|(_, work)| Some(work.as_ref()?.used)).collect(),
            returns: self.returns,
            unused,
            takes: self.state.totals.taken - self.taken,
            clocks: &mut self.clocks,
        };
        self.taken = self.state.totals.taken;
        let observed = self.observer.observe(&mut self.state, &mut seen, self.now);
        self.returns = seen.returns;
        self.woken(observed.woken);
        (0..observed.decision.spawn).for_each(|_| self.spawn());
        if let (true, Some(index)) = (observed.decision.switches(), runner) {
            self.preemptions += 1;
            self.switch(index);
        }
        self.observe_at = self.now + observed.pause_ns;
    }

    /// Runs clients that each submit their next unit when the last one has ended.
    fn serve(&mut self, clients: usize, ms: u64, mut unit: impl FnMut(usize) -> Unit) {
        (0..clients).for_each(|client| self.submit(client, unit(client)));
        let until = self.now + ms * MS;
        while self.now < until {
            self.step();
            for client in std::mem::take(&mut self.done) {
                self.submit(client, unit(client));
            }
        }
    }
}

/// What the scheduler sees of the simulated threads.
struct SimulatedActivity<'a> {
    runner: Option<Arc<ThreadRecord>>,
    running: Option<&'a SimulatedWork>,
    turn: u64,
    blocked: u64,
    /// CPU time of the work of each thread that can run.
    used: Vec<u64>,
    returns: u64,
    /// With clocks: hardly any CPU time was used, and the units of work taken meanwhile.
    unused: bool,
    takes: u64,
    clocks: &'a mut Option<ClockActivity>,
}

impl Activity for SimulatedActivity<'_> {
    fn observe(
        &mut self,
        state: &PoolState,
        facts: &mut Facts,
        now: u64,
    ) -> Option<Arc<ThreadRecord>> {
        let role = self.running.map(|work| work.role);
        facts.blocked_ns = if facts.waking > 0 { 0 } else { self.blocked };
        if let Some(clocks) = self.clocks {
            clocks.takes = self.takes;
            self.returns += u64::from(!self.unused && self.takes == 0 && facts.waking == 0);
            facts.quantum_ns = state.quantum_ns(role);
            facts.one_is_quick =
                now - state.last_take_ns.max(state.last_switch_ns) < facts.quantum_ns;
        } else {
            facts.quantum_ns = state.exact_quantum_ns(role);
            facts.one_is_quick = self.used.iter().any(|used| *used < facts.quantum_ns);
        }
        facts.turn_ns =
            self.running.map_or(0, |work| work.used.min(self.turn).min(facts.quantum_ns));
        facts.progress += self.returns;
        self.runner.clone()
    }

    fn sleeper(&self, _state: &PoolState) -> Option<Arc<ThreadRecord>> {
        None
    }

    fn pause_ns(&mut self, facts: &Facts, made: &Decision) -> u64 {
        self.clocks.as_mut().map_or(0, |clocks| clocks.pause_ns(facts, made))
    }
}
