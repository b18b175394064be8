//! Random interleavings of push, claim, start, end, crash, reclaim, lost replies
//! and due jobs. At any moment a job that has not ended is in the store.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::flaky_store::FlakyStore;
use super::stepped_engine::{config, factory, jids, push, queue, SteppedEngine};
use crate::engine::job::Job;
use crate::engine::orphans::WorkerDeath;
use crate::outcome::Outcome;
use crate::store::{JobLocation, Store, StoreFactory};
use fastrand::Rng;

/// Steps of one run.
const STEPS: usize = 400;
/// Runs, each with a seed of its own: fewer in bin/test than in bin/soak.
fn seeds() -> u64 {
    if std::env::var_os("CHATON_SOAK").is_some() {
        150
    } else {
        50
    }
}

struct Simulation {
    factory: Arc<dyn StoreFactory>,
    store: Box<dyn Store>,
    engines: Vec<(SteppedEngine, Vec<Arc<Job>>)>,
    /// Engines that crashed and are not reclaimed yet.
    crashed: Vec<WorkerDeath>,
    random: Rng,
    pushed: usize,
    ended: HashSet<String>,
    ends: HashMap<String, usize>,
    seed: u64,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let factory = factory(&format!("interleavings-{seed}"));
        let mut world = Self {
            store: factory.store(),
            factory,
            engines: vec![],
            crashed: vec![],
            random: Rng::with_seed(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15)),
            pushed: 0,
            ended: HashSet::new(),
            ends: HashMap::new(),
            seed,
        };
        world.add_engine();
        world.add_engine();
        world
    }

    fn add_engine(&mut self) {
        let flaky = FlakyStore::over(self.factory.store(), self.random.u64(..));
        let engine = SteppedEngine::with_store(
            Box::new(flaky),
            &self.factory,
            config(),
            self.random.u64(..),
        );
        self.engines.push((engine, vec![]));
    }

    fn pick(&mut self, of: usize) -> usize {
        (self.random.u64(..) % of.max(1) as u64) as usize
    }

    fn step(&mut self) {
        let index = self.pick(self.engines.len());
        match self.pick(20) {
            0..=4 => self.push(),
            5..=8 => {
                self.engines[index].0.fetch();
            }
            9..=12 => {
                let (engine, running) = &mut self.engines[index];
                running.extend(engine.start_one());
            }
            13..=16 => self.end_one(index),
            17 => {
                let engine = &mut self.engines[index].0;
                engine.state.chores.lock().due = Some(Some(0.0));
                engine.maintenance.round();
            }
            18 => self.crash(index),
            _ => self.recover(index),
        }
    }

    fn push(&mut self) {
        let jid = format!("j{}", self.pushed);
        self.pushed += 1;
        let at = (self.pick(4) == 0).then_some(1.0);
        let queue = ["high", "low"][self.pick(2)];
        push(&mut *self.store, queue, &jid, "", at);
    }

    fn end_one(&mut self, index: usize) {
        if self.engines[index].1.is_empty() {
            return;
        }
        let one = self.pick(self.engines[index].1.len());
        let job = self.engines[index].1.swap_remove(one);
        let payload = job.document().payload().to_vec();
        let ending = match self.pick(8) {
            0 => Outcome::Retry { at: 1.0, payload },
            1 => Outcome::Dead { at: 1.0, payload: None },
            2 => Outcome::Discard,
            3 => Outcome::reschedule(1.0),
            4 => Outcome::requeue(),
            _ => Outcome::Ack,
        };
        let over = matches!(ending, Outcome::Ack | Outcome::Discard | Outcome::Dead { .. });
        let jid = job.document().jid().to_string();
        if over {
            // Noted before the end: after it the job may be gone.
            self.ended.insert(jid.clone());
            *self.ends.entry(jid).or_default() += 1;
        }
        job.finish(ending);
        assert!(!job.finish(Outcome::Ack));
    }

    fn crash(&mut self, index: usize) {
        let (engine, running) = self.engines.swap_remove(index);
        let cause = (self.pick(2) == 0).then(|| "SIGKILL".to_string());
        self.crashed.push(WorkerDeath {
            identity: engine.state.identity.name.clone(),
            cause,
            tickets: running.iter().map(|job| job.ticket()).collect(),
        });
        self.add_engine();
    }

    fn recover(&mut self, index: usize) {
        let Some(death) = self.crashed.pop() else { return };
        let again = self.pick(2) == 0;
        let engine = &mut self.engines[index].0;
        engine.state.add_death(death.clone());
        engine.maintenance.round();
        if again {
            // Twice: the supervisor reports it, and the lease runs out.
            engine.state.add_death(death);
            engine.maintenance.round();
        }
    }

    fn stored(&mut self) -> HashSet<String> {
        let places = [
            queue("high"),
            queue("low"),
            JobLocation::Scheduled,
            JobLocation::Retry,
            JobLocation::Dead,
        ];
        let mut all: Vec<String> =
            places.iter().flat_map(|place| jids(&mut *self.store, place)).collect();
        for owner in self.store.owners().unwrap() {
            for job in self.store.in_flight(&owner.identity).unwrap() {
                all.extend(crate::document::Fields::parse(&job.payload).unwrap().text("jid"));
            }
        }
        let count = all.len();
        let set: HashSet<String> = all.into_iter().collect();
        assert_eq!(count, set.len(), "seed {}: a job is in two places", self.seed);
        set
    }

    fn check(&mut self) {
        let stored = self.stored();
        for jid in (0..self.pushed).map(|n| format!("j{n}")) {
            let known = stored.contains(&jid) || self.ended.contains(&jid);
            assert!(known, "seed {}: {jid} is lost", self.seed);
        }
    }

    /// Reclaims every crashed engine and runs all jobs to their end.
    fn finish(&mut self) {
        for _ in 0..200 {
            self.recover(0);
            let engine = &mut self.engines[0].0;
            engine.state.chores.lock().due = Some(Some(0.0));
            engine.maintenance.round();
            for (engine, running) in &mut self.engines {
                engine.fetch();
                running.extend(engine.start_one());
                for job in running.drain(..) {
                    self.ended.insert(job.document().jid().to_string());
                    job.finish(Outcome::Ack);
                }
            }
        }
        self.check();
        let stats = self.store.stats().unwrap();
        let left = (stats.enqueued, stats.in_flight, stats.scheduled, stats.retries);
        assert_eq!(left, (0, 0, 0, 0), "seed {}", self.seed);
    }
}

#[test]
fn no_job_is_lost_in_any_interleaving() {
    for seed in 1..=seeds() {
        let mut world = Simulation::new(seed);
        for step in 0..STEPS {
            world.step();
            if step % 20 == 0 {
                world.check();
            }
        }
        world.finish();
    }
}
