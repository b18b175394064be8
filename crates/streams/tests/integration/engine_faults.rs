//! The engine while partitions are revoked, the log fails and the queue is full.

use chaton_core::engine::Engine as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::engine_support::feed::Queue;
use crate::engine_support::memory::{partition, MemoryLog};
use crate::engine_support::{failed, offsets, route, settings, until, EngineHarness, LONG};
use chaton_streams::batch::{Batch, BatchKind, BatchOutcome, BatchVerdict};
use chaton_streams::engine::RouteSettings;
use chaton_streams::log::{ErrorKind, LogError, MemberEvent};

fn keyless(_: i64) -> String {
    String::new()
}

fn error(message: &str) -> LogError {
    LogError::new(ErrorKind::Unreachable, message)
}

fn harness(partitions: i32, count: i64) -> EngineHarness {
    let log = MemoryLog::new(partitions);
    (0..partitions).for_each(|number| log.write(number, count, keyless));
    EngineHarness::new(log, settings(vec![route("events")]))
}

#[test]
fn a_revoked_partition_is_drained_committed_and_released_in_this_order() {
    let harness = harness(2, 30);
    let (first, second) = (harness.batch(), harness.batch());
    let (first, second) =
        if first.partition().number == 0 { (first, second) } else { (second, first) };
    let both = vec![partition("events", 0), partition("events", 1)];
    harness.log.report(MemberEvent::Revoked(both.clone()));
    until("draining", || states(&harness) == ["draining", "draining"]);
    first.mark(4);
    first.finish(failed("Boom"));
    assert_eq!(harness.batch().kind(), BatchKind::Revoked);
    assert!(harness.log.state.lock().released.is_empty() && !second.is_revoked());
    second.finish(BatchOutcome::Done);
    until("the release", || harness.log.state.lock().released == both);
    assert_eq!((harness.committed(0), harness.committed(1)), (Some(5), Some(10)));
    let notice = harness.batch();
    assert_eq!((notice.kind(), notice.generation()), (BatchKind::Revoked, second.generation()));
    notice.finish(BatchOutcome::Done);
    // It is assigned again, at the committed offset.
    harness.log.report(MemberEvent::Assigned(vec![harness.log.assigned(0)]));
    let batch = harness.batch_of(5..15);
    assert!(batch.generation() > second.generation());
}

#[test]
fn a_drain_ends_after_half_of_the_poll_interval() {
    let log = MemoryLog::new(1);
    log.write(0, 30, keyless);
    let mut settings = settings(vec![route("events")]);
    settings.groups[0].group.max_poll_interval = Duration::from_millis(60);
    let harness = EngineHarness::new(log, settings);
    let batch = harness.batch_of(0..10);
    batch.mark(2);
    harness.log.report(MemberEvent::Revoked(vec![partition("events", 0)]));
    until("the release", || !harness.log.state.lock().released.is_empty());
    assert!(batch.is_revoked());
    batch.mark(7);
    assert_eq!(harness.committed(0), Some(3));
    // Batches of the next generation run beside those of this one.
    harness.log.report(MemberEvent::Assigned(vec![harness.log.assigned(0)]));
    let next = harness.batch_of(3..13);
    assert_eq!(batch.finish(BatchOutcome::Done), BatchVerdict::Dropped);
    let notice = harness.batch();
    assert_eq!((notice.kind(), notice.generation()), (BatchKind::Revoked, batch.generation()));
    notice.finish(BatchOutcome::Done);
    next.finish(BatchOutcome::Done);
    until("its own commit", || harness.committed(0) == Some(13));
}

#[test]
fn a_lost_partition_is_not_committed() {
    let harness = harness(1, 30);
    let batch = harness.batch_of(0..10);
    harness.log.report(MemberEvent::Lost(vec![partition("events", 0)]));
    until("revocation", || batch.is_revoked());
    assert_eq!(batch.finish(BatchOutcome::Done), BatchVerdict::Dropped);
    assert_eq!(harness.batch().kind(), BatchKind::Revoked);
    assert_eq!((harness.committed(0), harness.log.state.lock().released.len()), (None, 0));
}

#[test]
fn a_partition_that_is_lost_while_it_is_given_up_is_not_released_when_it_is_assigned_again() {
    let harness = harness(1, 30);
    let batch = harness.batch_of(0..10);
    harness.log.report(MemberEvent::Revoked(vec![partition("events", 0)]));
    until("draining", || states(&harness) == ["draining"]);
    // The next poll reports both.
    harness.log.report_all([
        MemberEvent::Lost(vec![partition("events", 0)]),
        MemberEvent::Assigned(vec![harness.log.assigned(0)]),
    ]);
    let is_records = |batch: &Arc<Batch>| batch.kind() == BatchKind::Records;
    let next = std::iter::from_fn(|| harness.queue.take(LONG)).find(is_records).unwrap();
    assert_eq!((offsets(&next)[0], batch.is_revoked()), (0, true));
    next.finish(BatchOutcome::Done);
    harness.batch_of(10..20).finish(BatchOutcome::Done);
    until("the commit", || harness.committed(0) == Some(20));
    assert_eq!(harness.log.state.lock().released, []);
}

#[test]
fn a_queued_batch_is_not_started_after_its_partition_was_revoked() {
    let harness = harness(1, 30);
    until("a batch", || harness.queue.len() == 1);
    harness.log.report(MemberEvent::Revoked(vec![partition("events", 0)]));
    until("the release", || !harness.log.state.lock().released.is_empty());
    // No consumer has had the partition: there is no notice.
    assert!(harness.queue.take(Duration::from_millis(5)).is_none());
    until("forgetting it", || harness.engine.stats().groups[0].partitions.is_empty());
}

#[test]
fn a_commit_that_fails_is_sent_again() {
    let harness = harness(1, 10);
    harness.log.state.lock().fail_commits = 3;
    harness.batch_of(0..10).finish(BatchOutcome::Done);
    until("the commit", || harness.committed(0) == Some(10));
    harness.log.state.lock().commits.clear();
    harness.log.report(MemberEvent::CommitFailed(error("not the coordinator")));
    until("the commit again", || harness.committed(0) == Some(10));
    let lines = harness.queue.lines();
    let count = |what: &str| lines.iter().filter(|line| line.contains(what)).count();
    assert_eq!(
        (count("committing: failed on purpose"), count("not the coordinator")),
        (1, 1),
        "{lines:?}"
    );
}

#[test]
fn an_unreachable_log_is_tried_again_and_logged_once() {
    let log = MemoryLog::new(1);
    log.write(0, 10, keyless);
    log.state.lock().fail_joins = 4;
    log.state.lock().fail_fetches = 3;
    let harness = EngineHarness::new(log, settings(vec![route("events")]));
    let batch = harness.batch_of(0..10);
    let group = harness.engine.stats().groups.remove(0);
    assert!(group.connected && group.trouble.is_none(), "{group:?}");
    batch.finish(BatchOutcome::Done);
    let lines = harness.queue.lines();
    assert_eq!(
        lines.iter().filter(|line| line.contains("cannot be joined")).count(),
        1,
        "{lines:?}"
    );
    assert_eq!(lines.iter().filter(|line| line.contains("fetching")).count(), 1, "{lines:?}");
}

#[test]
fn a_group_is_joined_again_after_a_fatal_error() {
    let harness = harness(1, 30);
    let batch = harness.batch_of(0..10);
    // A later fetch would show that the trouble is over.
    until("all", || harness.engine.stats().groups[0].partitions[0].position == 30);
    harness.log.state.lock().fail_joins = 1;
    harness.log.report(MemberEvent::Error(error("a broker is gone")));
    until("trouble", || harness.engine.stats().groups[0].trouble.is_some());
    harness.log.report(MemberEvent::Fatal(error("fenced for good")));
    until("revocation", || batch.is_revoked());
    assert_eq!(batch.finish(BatchOutcome::Done), BatchVerdict::Dropped);
    let mut kinds = [harness.batch(), harness.batch()];
    kinds.sort_by_key(|batch| batch.generation());
    assert_eq!(kinds[0].kind(), BatchKind::Revoked);
    assert_eq!(offsets(&kinds[1]), (0..10).collect::<Vec<_>>());
    assert_eq!((harness.log.state.lock().members, harness.engine.stats().totals.restarts), (2, 1));
}

#[test]
fn a_full_queue_loses_nothing() {
    let log = MemoryLog::new(6);
    (0..6).for_each(|number| log.write(number, 300, keyless));
    let harness = EngineHarness::with(log, settings(vec![route("events")]), Queue::new(1));
    // One has the room. Otherwise a fast consumer empties the queue before each batch that the engine submits, and
    // is far ahead in the partitions that were read first.
    until("five partitions that wait", || harness.engine.stats().totals.refused >= 5);
    let mut seen = [0; 6];
    // By partition: how many batches of each one came since its own last one.
    let mut passed = [[0; 6]; 6];
    while seen.iter().sum::<i64>() < 1_800 {
        let batch = harness.batch();
        let number = batch.partition().number as usize;
        assert_eq!(offsets(&batch)[0], seen[number]);
        seen[number] += batch.len() as i64;
        passed[number] = [0; 6];
        // No partition starves, however many came later. One that is read first may run the two batches of its chunk
        // while nothing of the others is there.
        for waiting in (0..6).filter(|other| *other != number && seen[*other] < 300) {
            passed[waiting][number] += 1;
            assert!(passed[waiting][number] <= 4, "{waiting} waits behind {number}: {seen:?}");
        }
        batch.finish(BatchOutcome::Done);
    }
    assert!(harness.engine.wait_idle(LONG));
}

#[test]
fn a_full_queue_wakes_nobody_while_it_is_full() {
    let log = MemoryLog::new(2);
    (0..2).for_each(|number| log.write(number, 500, keyless));
    let harness = EngineHarness::with(log, settings(vec![route("events")]), Queue::new(1));
    until("a refusal", || harness.engine.stats().totals.refused > 0);
    let ticks = Instant::now() + Duration::from_millis(1_500);
    let wakes = || harness.engine.stats().totals.wakes;
    until("a second without room", || Instant::now() > ticks);
    assert!(wakes() <= 20, "{}", wakes());
}

#[test]
fn an_abandoned_batch_is_handed_out_again() {
    let harness = harness(1, 10);
    let batch = harness.batch_of(0..10);
    batch.mark(3);
    batch.finish(BatchOutcome::Abandoned);
    batch.finish(BatchOutcome::Abandoned);
    assert_eq!(batch.finish(BatchOutcome::Done), BatchVerdict::Dropped);
    let again = harness.batch();
    assert_eq!((again.attempt(), offsets(&again)), (1, (4..10).collect()));
    again.finish(BatchOutcome::Done);
    until("the commit", || harness.committed(0) == Some(10));
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    let wrong: [(RouteSettings, &str); 3] = [
        (RouteSettings { batch: 0, ..route("events") }, "batch"),
        (RouteSettings { concurrency: 2, ..route("events") }, "order key"),
        (RouteSettings { attempts_max: Some(0), ..route("events") }, "attempts_max"),
    ];
    for (route, word) in wrong {
        let (log, queue) = (MemoryLog::new(1), Queue::new(1));
        let settings = settings(vec![route]);
        let error = crate::engine_support::start(settings, &log, queue).err().unwrap();
        assert!(error.kind == ErrorKind::Invalid && error.message.contains(word), "{error}");
    }
    let mut other = settings(vec![route("events")]);
    other.groups[0].group.topics.push("orders".into());
    let (log, queue) = (MemoryLog::new(1), Queue::new(1));
    assert!(crate::engine_support::start(other, &log, queue).is_err());
}

#[test]
fn a_detached_batch_keeps_the_calls_of_the_consumer() {
    let mut builder = chaton_streams::record::ChunkBuilder::default();
    (5..8).for_each(|offset| builder.push(offset, 0, None, None, []));
    let batch = Batch::detached(partition("events", 3), Arc::new(builder.finish()));
    assert_eq!((batch.len(), batch.end_offset(), batch.attempt()), (3, Some(8), 1));
    assert!(batch.may_start() && batch.may_start());
    batch.mark(6);
    batch.mark_one(7);
    batch.pause(Duration::from_secs(2));
    batch.finish(failed("Boom"));
    let calls = batch.calls();
    assert_eq!(calls.marked, [5, 6, 7]);
    assert_eq!(calls.requests.pause, Some(Duration::from_secs(2)));
    assert_eq!(calls.outcome, Some(failed("Boom")));
    assert!(!batch.is_open());
}

fn states(harness: &EngineHarness) -> Vec<&'static str> {
    let groups = harness.engine.stats().groups;
    groups[0].partitions.iter().map(|partition| partition.state).collect()
}
