//! Threads, random failures and rebalances: order within a key, every record at least once, and no
//! commit ahead of what is done.

use chaton_core::engine::Engine as _;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

use crate::engine_support::feed::Queue;
use crate::engine_support::memory::{partition, MemoryLog};
use crate::engine_support::{failed, offsets, route, settings, until, EngineHarness, LONG};
use chaton_streams::batch::{Batch, BatchKind, BatchOutcome, BatchVerdict};
use chaton_streams::engine::{RecordOrder, RouteSettings};
use chaton_streams::log::MemberEvent;
use parking_lot::Mutex;

/// Partition, generation and key.
type Place = (i32, u64, Vec<u8>);

/// What the threads have done.
#[derive(Default)]
struct Work {
    /// Per partition: the offsets done, noted before the engine gets the outcome.
    done: Mutex<BTreeMap<i32, BTreeSet<i64>>>,
    /// The same per generation.
    ended: Mutex<BTreeSet<(i32, u64, i64)>>,
    /// Per partition, generation and lane: the running batches.
    running: Mutex<BTreeSet<(i32, u64, usize)>>,
    /// Per partition and key: the last offset started in this generation.
    begun: Mutex<BTreeMap<Place, i64>>,
    draws: AtomicU64,
}

impl Work {
    /// A pseudo-random number.
    fn draw(&self, bound: u64) -> u64 {
        let n = self.draws.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let n = n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        ((n ^ (n >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 33) % bound.max(1)
    }

    fn run(&self, batch: &Batch) {
        if batch.kind() != BatchKind::Records {
            batch.finish(BatchOutcome::Done);
            return;
        }
        let number = batch.partition().number;
        let own = (number, batch.generation(), batch.lane());
        assert!(self.running.lock().insert(own), "two batches of a lane at once");
        let own_offsets = offsets(batch);
        for (index, offset) in own_offsets.iter().enumerate() {
            self.begin(batch, index, *offset);
        }
        if self.draw(16) == 0 {
            std::thread::sleep(Duration::from_micros(300));
        }
        assert!(self.running.lock().remove(&own));
        match self.draw(8) {
            0 => {
                batch.finish(failed("Random"));
            }
            1 => {
                let last = self.draw(own_offsets.len() as u64) as usize;
                self.note(batch, &own_offsets[..=last]);
                batch.mark(own_offsets[last]);
                batch.finish(failed("Half"));
            }
            2 => {
                batch.finish(BatchOutcome::Abandoned);
            }
            _ => {
                self.note(batch, &own_offsets);
                batch.finish(BatchOutcome::Done);
            }
        }
    }

    /// Within a generation the records of a key come in order; a repeated record is the first one
    /// that was not done.
    fn begin(&self, batch: &Batch, index: usize, offset: i64) {
        let record = batch.chunk().record(batch.picks()[index] as usize);
        let key = record.key().unwrap_or_default().to_vec();
        let place = (batch.partition().number, batch.generation(), key);
        let mut begun = self.begun.lock();
        let last = begun.insert(place, offset);
        if last.is_some_and(|last| last >= offset) && !batch.is_revoked() {
            let own = (batch.partition().number, batch.generation(), offset);
            assert!(index > 0 || !self.ended.lock().contains(&own), "{offset} again");
        }
    }

    fn note(&self, batch: &Batch, offsets: &[i64]) {
        let (number, generation) = (batch.partition().number, batch.generation());
        self.ended.lock().extend(offsets.iter().map(|offset| (number, generation, *offset)));
        self.done.lock().entry(number).or_default().extend(offsets);
    }

    fn count(&self) -> usize {
        self.done.lock().values().map(|done| done.len()).sum()
    }
}

fn start_threads(
    count: usize,
    queue: &Arc<Queue>,
    work: &Arc<Work>,
) -> Vec<std::thread::JoinHandle<()>> {
    let run = |(queue, work): (Arc<Queue>, Arc<Work>)| {
        std::thread::spawn(move || {
            while let Some(batch) = queue.take(LONG) {
                work.run(&batch);
            }
        })
    };
    (0..count).map(|_| run((queue.clone(), work.clone()))).collect()
}

fn check_commits(log: &MemoryLog, work: &Work) {
    // Reads the commits first, because the offsets done only grow.
    let commits = log.state.lock().commits.clone();
    let done = work.done.lock();
    for ((_, number), list) in commits {
        for commit in list {
            let done = done.get(&number);
            let all = (0..commit.offset).all(|offset| done.is_some_and(|d| d.contains(&offset)));
            assert!(all, "partition {number}: {commit:?} is ahead of what is done");
        }
    }
}

fn run_to_the_end(route: RouteSettings, partitions: i32, count: i64, moves: bool) {
    let log = MemoryLog::new(partitions);
    (0..partitions).for_each(|number| log.write(number, count, |n| format!("key{}", n * 7 % 23)));
    let queue = Queue::new(3);
    let harness = EngineHarness::with(log.clone(), settings(vec![route]), queue.clone());
    let work = Arc::new(Work::default());
    let threads = start_threads(4, &queue, &work);
    let stop = Arc::new(AtomicBool::new(false));
    until("partitions", || {
        harness.engine.stats().groups[0].partitions.len() == partitions as usize
    });
    let mover = moves.then(|| {
        let (log, stop) = (log.clone(), stop.clone());
        std::thread::spawn(move || move_partitions(&log, &stop))
    });
    let all = (partitions as i64 * count) as usize;
    until("all records", || work.count() == all);
    stop.store(true, Ordering::Relaxed);
    mover.into_iter().for_each(|mover| mover.join().unwrap());
    until("all commits", || (0..partitions).all(|number| harness.committed(number) == Some(count)));
    check_commits(&log, &work);
    harness.engine.quiet();
    assert!(harness.engine.wait_idle(LONG));
    harness.engine.stop();
    queue.close();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Revokes and assigns partitions.
fn move_partitions(log: &MemoryLog, stop: &AtomicBool) {
    let mut round = 0;
    while !stop.load(Ordering::Relaxed) {
        let own = vec![partition("events", round % 2)];
        round += 1;
        let released = log.state.lock().released.len();
        if round % 3 == 0 {
            log.report(MemberEvent::Lost(own));
        } else {
            log.report(MemberEvent::Revoked(own));
            until("the release", || log.state.lock().released.len() > released);
        }
        log.report(MemberEvent::Assigned(vec![log.assigned((round - 1) % 2)]));
    }
}

#[test]
fn a_partition_stays_in_order_with_random_failures() {
    run_to_the_end(route("events"), 3, 2_000, false);
}

#[test]
fn keys_stay_in_order_with_random_failures() {
    let route = RouteSettings { order: RecordOrder::Key, concurrency: 4, ..route("events") };
    run_to_the_end(route, 2, 2_000, false);
}

#[test]
fn keys_stay_in_order_during_rebalances() {
    let route = RouteSettings { order: RecordOrder::Key, concurrency: 3, ..route("events") };
    run_to_the_end(route, 2, 2_000, true);
}

#[test]
fn outcomes_after_a_stop_are_dropped() {
    let log = MemoryLog::new(1);
    log.write(0, 10, |_| String::new());
    let harness = EngineHarness::new(log, settings(vec![route("events")]));
    let batch = harness.batch();
    harness.engine.stop();
    harness.engine.stop();
    assert_eq!(batch.finish(BatchOutcome::Done), BatchVerdict::Dropped);
}
