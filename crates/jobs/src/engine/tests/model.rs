//! A state machine of engine and store: random steps of clients, engines, people and accidents on a real store, against
//! a model. The store in memory gets the same calls and has to give the same replies. At the end each job is done at least
//! once, or dead with its reason; each callback was called once; and no lock, slot, count or key is left over.
//!
//! One fixed seed runs with the other tests. With `CHATON_MODEL_SECONDS` more are tried for so long, from
//! `CHATON_MODEL_SEED` on (else a fresh one). A seed that failed becomes a test with a name, by its steps, which the
//! failure prints.

mod deaths;
mod ledger;
mod pushes;
#[path = "../../../tests/redis_server/mod.rs"]
mod redis_server;
mod runs;
mod shrink;
mod steps;
mod stores;
mod twin;
mod world;

use std::io::Write;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use steps::{steps, Op, Step};
use stores::RealStore;
use world::World;

/// Steps of one seed.
const STEPS: usize = 300;
/// The seed that every run begins with.
const FIXED_SEED: u64 = 1;

/// Runs steps on an empty store; returns what was done, and the message of the failure.
fn run(store: &Mutex<RealStore>, steps: &[Step]) -> Result<(), String> {
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    let name = format!("model-{}", RUNS.fetch_add(1, Ordering::Relaxed));
    let mut real = store.lock();
    let mut log = vec![];
    let result = catch_unwind(AssertUnwindSafe(|| {
        let mut world = World::new(&mut real, &name);
        let ended = catch_unwind(AssertUnwindSafe(|| {
            for (index, step) in steps.iter().enumerate() {
                world.step(index, *step);
            }
            world.finish();
        }));
        log = std::mem::take(&mut world.log);
        ended
    }));
    let Err(panic) = result.and_then(|ended| ended) else { return Ok(()) };
    // The server may be full.
    real.fill(false);
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()));
    Err(format!("{}\n{}", log.join("\n"), text.unwrap_or_default()))
}

/// Tries seeds for some time. A failure is shown by the fewest steps that fail.
fn explore(real: RealStore, kind: &str) {
    let store = Mutex::new(real);
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let time = number("CHATON_MODEL_SECONDS").map(Duration::from_secs);
    let fresh = number("CHATON_MODEL_SEED").unwrap_or_else(|| fastrand::u64(..1 << 40));
    let _ = writeln!(std::io::stderr(), "model on {kind}: CHATON_MODEL_SEED={fresh}");
    let (began, mut tried) = (Instant::now(), 0);
    for seed in std::iter::once(FIXED_SEED).chain(fresh..) {
        let drawn = steps(seed, STEPS);
        if run(&store, &drawn).is_err() {
            let fewest = shrink::shrink(drawn, |some| run(&store, some).is_err());
            let report = run(&store, &fewest).err().unwrap_or_else(|| "it passed again".into());
            panic!("CHATON_MODEL_SEED={seed} on {kind}: {fewest:?}\n{report}");
        }
        tried += 1;
        if time.is_none_or(|time| began.elapsed() > time) {
            break;
        }
    }
    let _ = writeln!(std::io::stderr(), "model on {kind}: {tried} seeds");
}

#[test]
fn jobs_on_sqlite_behave_as_the_model() {
    explore(RealStore::sqlite(), "sqlite");
}

#[test]
fn jobs_on_redis_behave_as_the_model() {
    explore(RealStore::redis(), "redis");
}

/// Runs steps that failed once on both kinds of stores.
fn run_again(steps: &[Step]) {
    for real in [RealStore::sqlite(), RealStore::redis()] {
        if let Err(report) = run(&Mutex::new(real), steps) {
            panic!("{report}");
        }
    }
}

#[test]
fn one_look_reclaims_the_jobs_of_several_dead_processes() {
    run_again(&[
        Step(Op::Tick, 3414182691),
        Step(Op::Kill, 1864399125),
        Step(Op::Fetch, 1365554175),
        Step(Op::Kill, 3611710743),
        Step(Op::Fetch, 3936699785),
        Step(Op::Kill, 2450693412),
        Step(Op::Fetch, 2685769236),
        Step(Op::Fetch, 2612308951),
        Step(Op::Kill, 109147854),
    ]);
}

#[test]
fn a_rate_is_the_same_for_processes_with_different_clocks() {
    run_again(&[
        Step(Op::Push, 1259471784),
        Step(Op::Expiring, 1961040112),
        Step(Op::KillInAck, 243293942),
        Step(Op::Bulk, 2034753139),
        Step(Op::Limited, 1825249463),
        Step(Op::Recover, 4069836095),
        Step(Op::Fetch, 2450747973),
        Step(Op::Kill, 108610846),
        Step(Op::Recover, 2215929130),
        Step(Op::Fetch, 3715246889),
        Step(Op::Limited, 2637419731),
        Step(Op::Maintain, 673663912),
        Step(Op::Fetch, 3745982595),
    ]);
}

#[test]
fn nothing_is_left_of_a_line_whose_last_job_has_started() {
    run_again(&[
        Step(Op::Limited, 2174539175),
        Step(Op::Limited, 3745392212),
        Step(Op::Fetch, 1837183937),
        Step(Op::Fetch, 160198056),
        Step(Op::KillInAck, 2211197630),
    ]);
}
