//! A simulation of a pool under one GVL: the policy is tried with many arrivals, lengths
//! and shares of IO, from any state, in a few milliseconds.
//!
//! Time passes in steps of [`STEP`]. CRuby's part is a queue of threads that want the
//! GVL, and a time slice of 100 ms.

use std::collections::VecDeque;

use crate::pool::policy::{decide, Facts, Rule, Tuning};
use crate::pool::quantum::CpuTimes;
use crate::work::Role;

const US: u64 = 1_000;
const MS: u64 = 1_000 * US;
const STEP: u64 = 50 * US;
const BLOCKED: u64 = 100 * US;
const LEAST: u64 = 4 * MS;
const ARRIVAL: u64 = 50 * US;
const NARROW: u64 = 50 * MS;

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
    unit: Unit,
    at: usize,
    left: u64,
    used: u64,
    client: usize,
}

#[derive(Default)]
struct SimulatedPool {
    now: u64,
    max: usize,
    threads: Vec<SimulatedThread>,
    work: Vec<Option<SimulatedWork>>,
    fifo: VecDeque<usize>,
    queue: VecDeque<(usize, Unit)>,
    width: usize,
    turn: u64,
    blocked: u64,
    row: u32,
    calm_since: u64,
    last_take: u64,
    last_wake: u64,
    times: CpuTimes,
    begun: usize,
    finished: usize,
    finished_at_starving: usize,
    preemptions: usize,
    /// The longest time in a row for which work waited, nothing could run, and a thread
    /// was left to wake.
    lost: u64,
    lost_max: u64,
    /// Clients whose unit has ended.
    done: Vec<usize>,
}

impl SimulatedPool {
    fn new(max: usize) -> Self {
        Self {
            max,
            width: 1,
            threads: vec![SimulatedThread::Parked],
            work: vec![None],
            ..Self::default()
        }
    }

    fn awake(&self) -> usize {
        self.threads.iter().filter(|thread| **thread != SimulatedThread::Parked).count()
    }

    fn coming(&self) -> usize {
        self.threads.iter().filter(|thread| matches!(thread, SimulatedThread::Coming(_))).count()
    }

    fn can_run(&self) -> bool {
        self.threads
            .iter()
            .any(|thread| matches!(thread, SimulatedThread::Wants | SimulatedThread::Runs))
    }

    fn wake(&mut self) {
        self.last_wake = self.now;
        let at = SimulatedThread::Coming(self.now + ARRIVAL);
        match self.threads.iter().position(|thread| *thread == SimulatedThread::Parked) {
            Some(index) => self.threads[index] = at,
            None => {
                self.threads.push(at);
                self.work.push(None);
            }
        }
    }

    fn submit(&mut self, client: usize, unit: Unit) {
        self.queue.push_back((client, unit));
        if self.awake() < self.width {
            self.wake();
        }
    }

    fn step(&mut self) {
        self.now += STEP;
        for index in 0..self.threads.len() {
            if matches!(self.threads[index], SimulatedThread::Coming(at) | SimulatedThread::Waits(at) if at <= self.now)
            {
                self.threads[index] = SimulatedThread::Wants;
                self.fifo.push_back(index);
            }
        }
        let mut left = STEP;
        while left > 0 {
            let Some(index) = self.holder() else { break };
            left -= self.run(index, left);
        }
        let lost = !self.queue.is_empty() && !self.can_run() && self.awake() < self.max;
        self.lost = if lost { self.lost + STEP } else { 0 };
        self.lost_max = self.lost_max.max(self.lost);
        self.blocked = if self.can_run() { 0 } else { self.blocked + STEP };
        self.decide();
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
            self.times.record(Role::Web, work.used, 1);
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
        if self.turn >= 2 * MS && !self.fifo.is_empty() {
            return self.switch(index);
        }
        let over = self.awake() > self.width && self.awake() > 1;
        let Some((client, unit)) = (if over { None } else { self.queue.pop_front() }) else {
            self.threads[index] = SimulatedThread::Parked;
            return;
        };
        let left = unit[0].0;
        self.work[index] = Some(SimulatedWork { unit, at: 0, left, used: 0, client });
        self.begun += 1;
        self.last_take = self.now;
        if !self.queue.is_empty() && self.awake() < self.width {
            self.wake();
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
        self.times.quantum_ns(Role::Web, LEAST)
    }

    fn decide(&mut self) {
        let quantum = self.quantum();
        if self.finished != self.finished_at_starving {
            self.row = 0;
        }
        let running = self.threads.iter().position(|thread| *thread == SimulatedThread::Runs);
        let quick = self.threads.iter().zip(&self.work).any(|(thread, work)| {
            matches!(thread, SimulatedThread::Wants | SimulatedThread::Runs)
                && work.as_ref().is_some_and(|work| work.used < quantum)
        });
        let facts = Facts {
            waiting: self.queue.len(),
            interactive_waiting: !self.queue.is_empty(),
            blocked_ns: if self.coming() > 0 { 0 } else { self.blocked },
            starved_in_row: self.row + 1,
            turn_ns: running
                .and_then(|index| self.work[index].as_ref())
                .map_or(0, |work| work.used.min(self.turn)),
            one_is_quick: quick,
            since_take_ns: self.now - self.last_take,
            since_wake_ns: self.now - self.last_wake,
            calm_ns: self.now - self.calm_since,
            awake: self.awake(),
            waking: self.coming(),
            idle: self.threads.len() - self.awake(),
            width: self.width,
            max: self.max,
            ..Facts::default()
        };
        let tuning = Tuning { blocked_ns: BLOCKED, quantum_ns: quantum, narrow_ns: NARROW };
        let decision = decide(&facts, &tuning);
        self.width = decision.width;
        (0..decision.wake + decision.spawn).for_each(|_| self.wake());
        if decision.rule == Rule::Starved {
            (self.row, self.finished_at_starving) = (facts.starved_in_row, self.finished);
        }
        if matches!(decision.rule, Rule::Starved | Rule::Admitted | Rule::Calm) {
            self.calm_since = self.now;
        }
        if let (true, Some(index)) = (decision.preempt, running) {
            self.preemptions += 1;
            self.switch(index);
        }
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

fn computing(ms: u64) -> Unit {
    vec![(ms * MS, 0)]
}

#[test]
fn bursts_of_long_waits_all_begin_at_once() {
    for (count, seconds) in [(24, 1), (60, 6), (200, 30), (500, 10)] {
        let mut pool = SimulatedPool::new(512);
        (0..count).for_each(|client| pool.submit(client, vec![(US * 100, seconds * 1_000 * MS)]));
        while pool.begun < count {
            pool.step();
        }
        assert!(pool.now <= 100 * MS, "{count}: {} ms", pool.now / MS);
    }
}

#[test]
fn a_short_request_passes_any_number_of_waiting_ones() {
    let mut pool = SimulatedPool::new(512);
    let mut waits = Vec::new();
    for tick in 0..400 {
        pool.submit(tick, vec![(100 * US, 6_000 * MS)]);
        let (began, at) = (pool.begun + pool.queue.len(), pool.now);
        pool.submit(1_000 + tick, computing(1));
        while pool.begun <= began {
            pool.step();
        }
        waits.push(pool.now - at);
        (0..100).for_each(|_| pool.step());
    }
    assert!(*waits.iter().max().unwrap() <= 20 * MS, "{waits:?}");
}

#[test]
fn no_work_waits_while_nothing_can_run() {
    let mut random = fastrand::Rng::with_seed(7);
    for case in 0..60 {
        let (cpu, io) = (random.u64(1..40) * 100 * US, random.u64(0..40) * 100 * US);
        let (clients, parts) = (random.usize(1..120), random.usize(1..6));
        let mut pool = SimulatedPool::new(64);
        pool.serve(clients, 400, |_| (0..parts).map(|_| (cpu, io)).collect());
        let bound = BLOCKED + ARRIVAL + 3 * STEP;
        assert!(pool.lost_max <= bound, "{case}: {} µs", pool.lost_max / US);
        assert!(pool.finished > 0, "{case}");
    }
}

#[test]
fn equal_work_is_never_interrupted_and_the_width_returns_to_one() {
    for ms in [1, 5, 20, 30] {
        for clients in [10, 100] {
            let mut pool = SimulatedPool::new(32);
            pool.serve(clients, 3_000, |_| computing(ms));
            let before = pool.preemptions;
            pool.serve(0, 3_000, |_| computing(ms));
            assert_eq!(pool.preemptions, before, "{ms} ms");
            assert_eq!(pool.width, 1, "{ms} ms");
        }
    }
}

#[test]
fn the_width_of_a_burst_does_not_stay() {
    let mut pool = SimulatedPool::new(512);
    (0..60).for_each(|client| pool.submit(client, vec![(100 * US, 1_000 * MS)]));
    while pool.finished < 60 {
        pool.step();
    }
    pool.done.clear();
    assert!(pool.width >= 60);
    pool.serve(10, 3_000, |_| vec![(100 * US, 0)]);
    assert!(pool.width <= 2, "{}", pool.width);
}

#[test]
fn short_work_passes_hogs() {
    let mut pool = SimulatedPool::new(32);
    pool.serve(12, 5_000, |client| if client < 2 { computing(300) } else { vec![(100 * US, 0)] });
    assert!(pool.finished > 5_000, "{}", pool.finished);
}

#[test]
fn mixes_reach_the_same_quantum_from_either_side() {
    for share in 1..10 {
        let quanta: Vec<u64> = [US, 200 * MS]
            .map(|past| {
                let mut random = fastrand::Rng::with_seed(share);
                let mut pool = SimulatedPool::new(32);
                pool.times.record(Role::Web, past, 100);
                let mix = |_| computing(if random.u64(0..10) < share { 1 } else { 40 });
                pool.serve(20, 40_000, mix);
                pool.quantum()
            })
            .to_vec();
        assert_eq!(quanta[0], quanta[1], "{share} of 10 are short");
    }
}
