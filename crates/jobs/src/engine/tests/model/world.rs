//! The world of a run: engines on one store, what clients and people do, and the steps in their order.

use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

use chaton_core::clock::wall_s;
use chaton_core::process::scoreboard::{OwnGauges, Scoreboard};
use fastrand::Rng;
use parking_lot::Mutex;

use super::ledger::{Ledger, Present};
use super::steps::{Op, Step};
use super::stores::RealStore;
use super::twin::{Control, Fault, TwinFactory};
use crate::cron::Cron;
use crate::engine::job::Job;
use crate::engine::tests::stepped_engine::{config, SteppedEngine};
use crate::engine::{Config, WorkerDeath};
use crate::store::{self, JobLocation, Store, StoreErrorKind, StoreFactory, StoreOptions};

/// Engines at a time.
const ENGINES: usize = 3;
/// Steps between two looks at the whole store.
const LOOK_EVERY: usize = 7;
/// How far the clock goes in a step (s): longer than the waits of this model.
const TICK_S: f64 = 61.0;
/// The longest steps of the clock (s). Those back are short enough for the rounds at the end.
const STEP_AHEAD_S: f64 = 10_000.0;
const STEP_BACK_S: f64 = 600.0;
/// How far the model's clock is ahead when it begins (s): whatever is set back, it shows no time at which the stores, whose
/// own clocks stand still meanwhile, have forgotten what was taken from a rate.
const BEGINS_AHEAD_S: f64 = 100_000.0;
/// Formats of Sidekiq that processes write: times in seconds, and in milliseconds.
const FORMATS: [u8; 2] = [7, 8];
/// Rounds in which everything has to come to its end.
const ROUNDS_MAX: usize = 400;

/// An engine, and the jobs that it runs.
pub struct Node {
    pub engine: SteppedEngine,
    pub running: Vec<Arc<Job>>,
    /// What it shares with its supervisor.
    pub gauges: OwnGauges,
}

impl Node {
    pub fn identity(&self) -> String {
        self.engine.state.identity.name.clone()
    }

    /// Whether a job may have been given to another process, because the lease ran out.
    pub fn has_lost(&self, job: &Job) -> bool {
        let from = self.engine.state.leased_from.load(Ordering::SeqCst);
        !self.engine.state.holds_lease() || job.ticket() < from
    }
}

/// A process that died. `gone`: nobody reports it.
pub struct DeadProcess {
    pub death: WorkerDeath,
    pub gone: bool,
}

pub struct World<'a> {
    pub real: &'a mut RealStore,
    /// Of processes that write each of the formats.
    pub factories: [Arc<TwinFactory>; 2],
    pub control: Arc<Mutex<Control>>,
    /// The connection of clients and people.
    pub store: Box<dyn Store>,
    pub oracle: Box<dyn Store>,
    pub nodes: Vec<Node>,
    pub dead: Vec<DeadProcess>,
    pub ledger: Ledger,
    pub random: Rng,
    pub names: usize,
    /// What was done, for the report.
    pub log: Vec<String>,
}

impl<'a> World<'a> {
    pub fn new(real: &'a mut RealStore, name: &str) -> Self {
        let control = Arc::<Mutex<Control>>::default();
        control.lock().ahead_s = BEGINS_AHEAD_S;
        let opened = real.fresh(FORMATS).into_iter().zip(FORMATS);
        let mut factories = opened.map(|(real, format)| {
            let options = StoreOptions::for_tests(format!("memory://{name}"));
            let oracle = store::open(&StoreOptions { format, ..options }).unwrap();
            Arc::new(TwinFactory { real, oracle, control: control.clone() })
        });
        let factories = [(); 2].map(|()| factories.next().unwrap());
        let (store, oracle) = (factories[0].person(), factories[0].oracle.store());
        let mut world = Self {
            real,
            factories,
            control,
            store,
            oracle,
            nodes: vec![],
            dead: vec![],
            ledger: Ledger::default(),
            random: Rng::with_seed(0),
            names: 0,
            log: vec![],
        };
        while world.nodes.len() < ENGINES {
            world.add_node();
        }
        world
    }

    pub fn now_s(&self) -> f64 {
        wall_s() + self.control.lock().ahead_s
    }

    /// A name that nothing else has.
    pub fn name(&mut self, kind: &str) -> String {
        self.names += 1;
        format!("{kind}{}", self.names)
    }

    pub fn note(&mut self, line: String) {
        self.log.push(line);
    }

    /// Starts a process. Every other one has client middleware, every third one writes the newer format.
    pub fn add_node(&mut self) {
        let identity = self.name("host:1:n");
        let newer = usize::from(self.names.is_multiple_of(3));
        let gauges = OwnGauges::new(Arc::new(Scoreboard::new(1).unwrap()), 0);
        let settings = Config {
            store: StoreOptions { format: FORMATS[newer], ..config().store },
            supervised: true,
            gauges: Some(gauges.clone()),
            // All of what may wait is claimed, and goes back never only because the test is slow.
            prefetch: Duration::from_secs(60),
            prefetch_max: 4,
            claim_due: self.names.is_multiple_of(2),
            crons: vec![cron()],
            ..config()
        };
        let factory: Arc<dyn StoreFactory> = self.factories[newer].clone();
        let engine = SteppedEngine::named(&identity, &factory, settings, self.now_s());
        self.note(format!("{identity} begins"));
        self.nodes.push(Node { engine, running: vec![], gauges });
    }

    /// One of the engines.
    pub fn pick(&mut self) -> usize {
        self.random.usize(..self.nodes.len())
    }

    /// Does a step.
    pub fn step(&mut self, index: usize, Step(op, number): Step) {
        self.random = Rng::with_seed(u64::from(number));
        self.note(format!("{index}: {op:?}"));
        self.apply(op);
        self.absorb();
        self.check_limits();
        if index.is_multiple_of(LOOK_EVERY) {
            self.look();
        }
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Push
            | Op::Bulk
            | Op::In
            | Op::Unique
            | Op::Limited
            | Op::Expiring
            | Op::Deadline
            | Op::Suspect => {
                self.push(op);
            }
            Op::BatchOpen => self.open_batch(None),
            Op::BatchFill => self.fill_batch(),
            Op::BatchClose => self.close_batch(),
            Op::Nest => self.nest(),
            Op::Fetch => self.fetch(),
            Op::Start => self.start(),
            Op::End
            | Op::Raise
            | Op::Discard
            | Op::Snooze
            | Op::Interrupt
            | Op::MiddlewareStops => {
                self.end_one(op);
            }
            Op::Maintain => {
                let node = self.pick();
                self.maintain(node);
            }
            Op::Tick => self.set_clock(TICK_S),
            Op::ClockStep => {
                let by_s = [-STEP_BACK_S, STEP_AHEAD_S][self.random.usize(..2)];
                let share = self.random.f64();
                self.set_clock(by_s * share);
            }
            Op::Pause => {
                let queue = ["high", "low"][self.random.usize(..2)];
                let paused = self.random.bool();
                if let Err(error) = self.store.pause(queue, paused) {
                    assert_eq!(error.kind, StoreErrorKind::Full, "{error}");
                }
            }
            Op::Cancel => self.cancel(),
            Op::Person => self.touch_entry(),
            Op::Shutdown => self.shutdown(true),
            Op::Signal => self.shutdown(false),
            Op::Kill => self.kill(),
            Op::KillInAck => self.kill_in_ack(),
            Op::Recover => self.recover(),
            Op::Stall => self.stall(),
            Op::RequestLost => self.control.lock().fault = Some(Fault::RequestLost),
            Op::ReplyLost => self.control.lock().fault = Some(Fault::ReplyLost),
            Op::Restart => self.control.lock().restarted |= self.real.restart(),
            Op::Failover => self.fail_over(),
            Op::Full => {
                let full = self.random.bool();
                self.fill(full);
            }
        }
    }

    /// Sets the clock of the store, which all engines know at once: clocks that differ are no subject here.
    fn set_clock(&mut self, by_s: f64) {
        self.control.lock().ahead_s += by_s;
        let (now_s, boot_ns) = (self.now_s(), chaton_core::clock::boot_ns());
        let passed_ns = (by_s.max(0.0) * 1e9) as u64;
        for node in &self.nodes {
            node.engine.state.note_clock(now_s, boot_ns, boot_ns);
            let mut hand = node.engine.state.hand.write();
            for suspect in &mut hand.suspects {
                suspect.until_ns = suspect.until_ns.saturating_sub(passed_ns);
            }
        }
    }

    /// For some calls of engines the server is no primary. It has lost nothing when it is one again.
    fn fail_over(&mut self) {
        if !self.real.set_replica(true) {
            return;
        }
        self.control.lock().restarted = true;
        for _ in 0..1 + self.random.usize(..4) {
            let node = self.pick();
            if self.random.bool() {
                self.nodes[node].engine.fetch();
            } else {
                self.maintain(node);
            }
        }
        self.real.set_replica(false);
    }

    fn fill(&mut self, full: bool) {
        let by_server = self.real.fill(full);
        let mut control = self.control.lock();
        // A server that is full now may have been asked by a call whose connection was cut.
        control.full = by_server && full;
        control.refuses = full && !by_server;
    }

    fn fetch(&mut self) {
        let node = self.pick();
        self.nodes[node].engine.fetch();
    }

    /// A round of the maintenance thread, with a heartbeat, that looks for due jobs.
    pub fn maintain(&mut self, node: usize) {
        let engine = &mut self.nodes[node].engine;
        let mut chores = engine.state.chores.lock();
        (chores.heartbeat, chores.due, chores.cancels) = (true, Some(Some(0.0)), true);
        drop(chores);
        engine.maintenance.round();
    }

    /// Takes in what happened in the store.
    pub fn absorb(&mut self) {
        let events = std::mem::take(&mut self.control.lock().events);
        self.ledger.absorb(events);
    }

    /// Compares the whole store with the model.
    pub fn look(&mut self) {
        self.absorb();
        for place in [JobLocation::Scheduled, JobLocation::Retry, JobLocation::Dead] {
            self.store.list(&place, 0, 10_000).unwrap();
        }
        self.store.stats().unwrap();
        for bid in self.ledger.batches.keys() {
            self.store.batch(bid).unwrap();
        }
        let present = Present::read(&mut *self.oracle);
        self.ledger.check_presence(&present);
        self.ledger.check_locks(&present);
        let control = self.control.lock();
        let twice = control.ticks.iter().find(|(_, count)| **count > 1);
        assert!(twice.is_none(), "a tick was pushed twice: {twice:?}");
    }

    /// Brings everything to its end, and looks whether something is left over.
    pub fn finish(&mut self) {
        self.note("the end".into());
        self.fill(false);
        self.control.lock().fault = None;
        for queue in ["high", "low"] {
            self.store.pause(queue, false).unwrap();
        }
        self.close_all_batches();
        let (mut rounds, mut drained) = (0, false);
        // One round more: lines forget what is gone from the schedule at their next look.
        while !drained || !self.is_drained() {
            drained = self.is_drained();
            rounds += 1;
            let waiting = self.store.list(&JobLocation::Scheduled, 0, 10).unwrap();
            assert!(rounds < ROUNDS_MAX, "jobs never end: {waiting:?}");
            self.set_clock(TICK_S);
            self.recover();
            (0..self.nodes.len()).for_each(|node| self.run_all(node));
            self.absorb();
        }
        self.look();
        while let Some(node) = self.nodes.pop() {
            node.gauges.note_stop(false);
            self.stop(node, true);
        }
        self.look();
        self.ledger.check_end(&Present::read(&mut *self.oracle));
        let left = self.real.leftovers();
        assert!(left.is_empty(), "left over: {left:#?}");
    }

    fn is_drained(&mut self) -> bool {
        let stats = self.store.stats().unwrap();
        let waiting = stats.enqueued + stats.scheduled + stats.retries + stats.in_flight;
        waiting == 0 && self.dead.is_empty()
    }
}

/// A job each minute.
fn cron() -> Cron {
    Cron::new("minute", "* * * * *", "UTC", "low", r#"{"class":"C","args":[],"queue":"low""#)
        .unwrap()
}
