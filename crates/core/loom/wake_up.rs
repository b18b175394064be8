//! The queue, the parked threads and the scheduler's notification.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::Arc;

use loom::thread::{spawn, JoinHandle};

use super::{busy, enqueue, model, parked, pool, wake_another};
use crate::pool::thread::{PoolThread, Take};
use crate::pool::{unpark, Pool};
use crate::sync::atomic::Ordering::Acquire;
use crate::work::testing::request;

/// Counts finished work. Not one of loom's atomics: it adds no steps to a model.
type Count = Arc<AtomicUsize>;

/// Runs a thread of the pool until it leaves; the last of `all` units closes the pool.
fn run(pool: &Arc<Pool>, thread: PoolThread, ran: &Count, all: usize) -> JoinHandle<()> {
    let (pool, ran) = (pool.clone(), ran.clone());
    spawn(move || loop {
        match thread.take() {
            Take::Work(_) => {
                if ran.fetch_add(1, Relaxed) + 1 == all {
                    pool.close();
                }
            }
            Take::Wait => thread.wait(),
            Take::Yield => unreachable!("the clock stands still"),
            Take::Leave => break,
        }
    })
}

/// Fails unless every thread was counted out as it was counted in.
fn assert_empty(pool: &Pool) {
    let state = pool.state.lock();
    assert_eq!((state.alive(), state.waking(), state.running, state.queue.len()), (0, 0, 0, 0));
    assert_eq!(state.totals.taken, state.totals.finished);
    assert!(state.threads.iter().all(Option::is_none));
}

#[test]
fn no_work_is_left_in_the_queue() {
    for width in 1..=2 {
        model(move || {
            let (pool, ran) = (pool(false), Count::default());
            pool.state.lock().width = width;
            let threads = [pool.enter(), pool.enter()].map(|thread| run(&pool, thread, &ran, 2));
            for id in 0..2 {
                enqueue(&pool, id);
                pool.wake_thread();
            }
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!(ran.load(Relaxed), 2);
            assert_empty(&pool);
        });
    }
}

#[test]
fn a_thread_that_is_killed_passes_its_wake_on() {
    model(|| {
        let (pool, ran) = (pool(false), Count::default());
        let (other, killed) = (parked(&pool), parked(&pool));
        let other = run(&pool, other, &ran, 1);
        let unparker = killed.unparker();
        let killed = spawn(move || {
            killed.wait();
            drop(killed);
        });
        enqueue(&pool, 1);
        pool.wake_thread();
        unparker.unpark();
        killed.join().unwrap();
        other.join().unwrap();
        assert_empty(&pool);
    });
}

#[test]
fn an_interrupt_beside_a_wake_leaves_the_counts_right() {
    model(|| {
        let (pool, ran) = (pool(false), Count::default());
        let thread = parked(&pool);
        let unparker = thread.unparker();
        let thread = run(&pool, thread, &ran, 2);
        let interrupt = spawn(move || unparker.unpark());
        for id in 0..2 {
            enqueue(&pool, id);
            pool.wake_thread();
        }
        thread.join().unwrap();
        interrupt.join().unwrap();
        assert_empty(&pool);
    });
}

#[test]
fn accepted_work_is_run_before_a_closed_pool_is_left() {
    model(|| {
        let (pool, ran) = (pool(false), Count::default());
        let thread = parked(&pool);
        let thread = run(&pool, thread, &ran, usize::MAX);
        let closer = {
            let pool = pool.clone();
            spawn(move || pool.close())
        };
        let accepted = pool.enqueue(request(1)).is_ok();
        pool.wake_thread();
        closer.join().unwrap();
        thread.join().unwrap();
        assert_eq!(ran.load(Relaxed), usize::from(accepted));
        assert_empty(&pool);
    });
}

#[test]
fn work_that_comes_while_a_thread_is_no_longer_needed_is_taken() {
    model(|| {
        let (pool, ran) = (pool(false), Count::default());
        let threads = [parked(&pool), parked(&pool)];
        let threads = threads.map(|thread| run(&pool, thread, &ran, 1));
        let shrinker = {
            let pool = pool.clone();
            spawn(move || pool.shrink(1 << 60))
        };
        enqueue(&pool, 1);
        pool.wake_thread();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        shrinker.join().unwrap();
        assert_empty(&pool);
    });
}

#[test]
fn a_scheduler_that_goes_to_sleep_notices_new_work() {
    model(|| {
        let (pool, ran) = (pool(false), Count::default());
        let busy = busy(&pool, 1);
        let idle = parked(&pool);
        let idle = run(&pool, idle, &ran, 1);
        pool.arm();
        pool.event_fd.clear();
        let scheduler = {
            let pool = pool.clone();
            spawn(move || {
                pool.disarm(&pool.state.lock());
                if !pool.armed.load(Acquire) {
                    pool.event_fd.wait();
                }
                assert!(pool.armed.load(Acquire));
                unpark(pool.state.lock().apply(&wake_another(), 0));
            })
        };
        enqueue(&pool, 2);
        pool.wake_thread();
        idle.join().unwrap();
        scheduler.join().unwrap();
        drop(busy);
        assert_eq!(ran.load(Relaxed), 1);
    });
}
