//! The counts of threads that hold or want the GVL, and what the scheduler learns of them.

use std::sync::Arc;

use loom::thread::spawn;

use super::{busy, enqueue, model, pool};
use crate::pool::gvl_activity::{GvlActivity, GvlCounts};
use crate::pool::observer::Activity;
use crate::pool::policy::{Decision, Facts};
use crate::pool::Pool;

/// The time for which the scheduler sleeps when it sees a thread that can run; for so
/// long it relies on a notification.
const LONG_NS: u64 = 10_000_000;

fn counts(pool: &Pool) -> Arc<GvlCounts> {
    pool.gvl.clone().unwrap()
}

/// The pause after an observation with one busy thread and one unit of work that waits.
fn pause_ns(pool: &Pool) -> u64 {
    let waits = Facts { waiting: 1, awake: 1, width: 1, max: 2, ..Facts::default() };
    let starved_after_ns = pool.settings.blocked.as_nanos() as u64;
    let facts = Facts { quantum_ns: u64::MAX, starved_after_ns, ..waits };
    GvlActivity::new(counts(pool)).pause_ns(&facts, &Decision::default())
}

#[test]
fn the_scheduler_notices_that_the_last_thread_blocked() {
    model(|| {
        let pool = pool(true);
        let counts = counts(&pool);
        let thread = busy(&pool, 1);
        counts.resumed(thread.thread());
        enqueue(&pool, 2);
        let record = thread.thread().clone();
        let runner = spawn(move || counts.suspended(&record));
        pool.publish(&pool.state.lock());
        if pause_ns(&pool) == LONG_NS {
            pool.event_fd.wait();
        }
        runner.join().unwrap();
    });
}

#[test]
fn work_that_comes_while_the_last_thread_blocks_is_noticed() {
    model(|| {
        let pool = pool(true);
        let counts = counts(&pool);
        let thread = busy(&pool, 1);
        counts.resumed(thread.thread());
        // The scheduler observes already, and sleeps for long.
        pool.arm();
        assert_eq!(pause_ns(&pool), LONG_NS);
        pool.event_fd.clear();
        let record = thread.thread().clone();
        let runner = spawn(move || counts.suspended(&record));
        enqueue(&pool, 2);
        pool.wake_thread();
        pool.event_fd.wait();
        runner.join().unwrap();
    });
}

#[test]
fn the_scheduler_notices_a_thread_outside_the_pool_that_competes() {
    model(|| {
        let pool = pool(true);
        let (counts, thread) = (counts(&pool), pool.enter());
        // An earlier notification was taken: the next one must be asked for.
        counts.resumed(thread.thread());
        counts.outsider_ready();
        counts.suspended(thread.thread());
        counts.outsider_resumed();
        counts.outsider_suspended();
        assert!(pool.event_fd.clear());
        let outsider = {
            let counts = counts.clone();
            spawn(move || {
                counts.outsider_ready();
                counts.outsider_resumed();
            })
        };
        let record = thread.thread().clone();
        let own = {
            let counts = counts.clone();
            spawn(move || counts.ready(&record))
        };
        if !counts.compete() {
            pool.event_fd.wait();
            pool.event_fd.clear();
        }
        outsider.join().unwrap();
        own.join().unwrap();
        assert!(counts.compete());
    });
}
