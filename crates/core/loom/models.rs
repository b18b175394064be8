//! Models of the pool. Loom runs each with every order of the threads' steps, and fails
//! where a thread waits for ever.

mod gvl_events;
mod support;
mod wake_up;

use std::sync::Arc;
use std::time::Duration;

use crate::pool::policy::Decision;
use crate::pool::queue::QueueLimits;
use crate::pool::thread::{PoolThread, Take};
use crate::pool::{Pool, PoolSettings};
use crate::process::scoreboard::Scoreboard;
use crate::work::testing::request;
use crate::work::Role;

/// Switches between threads at most, besides those where a thread waits or ends.
/// LOOM_MAX_PREEMPTIONS sets another number.
const PREEMPTIONS_MAX: usize = 3;

fn model(body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(PREEMPTIONS_MAX);
    builder.max_branches = 10_000;
    builder.check(body);
}

fn pool(gvl_events: bool) -> Arc<Pool> {
    let scoreboard = Arc::new(Scoreboard::new(1).unwrap());
    let pool = Pool::new(PoolSettings::for_tests(2), scoreboard, gvl_events).unwrap();
    let limits = QueueLimits { count_max: 9, bytes_max: 9, age_max: Duration::ZERO };
    pool.register(Role::Web, limits);
    pool
}

fn enqueue(pool: &Pool, id: u64) {
    assert!(pool.enqueue(request(id)).is_ok());
}

/// A thread that has found nothing to do. It waits at its next step.
fn parked(pool: &Arc<Pool>) -> PoolThread {
    let thread = pool.enter();
    assert!(matches!(thread.take(), Take::Wait));
    thread
}

/// A thread that runs work with this number and stays in it.
fn busy(pool: &Arc<Pool>, id: u64) -> PoolThread {
    let thread = pool.enter();
    enqueue(pool, id);
    assert!(matches!(thread.take(), Take::Work(work) if work.id() == id));
    thread
}

/// What the scheduler decides when it finds work and no thread that can run.
fn wake_another() -> Decision {
    Decision { width: 2, wake: 1, ..Decision::default() }
}
