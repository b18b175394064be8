//! The engine at its edges: offsets beyond the end of the log, a process that stops, and an idle
//! one.

use chaton_core::engine::Engine as _;
use std::sync::Arc;
use std::time::Duration;

use crate::engine_support::memory::MemoryLog;
use crate::engine_support::{offsets, route, settings, until, EngineHarness, LONG};
use chaton_streams::batch::{BatchKind, BatchOutcome};
use chaton_streams::engine::RouteSettings;
use chaton_streams::log::{Commit, MemberEvent, Position};
use chaton_streams::record::OwnedRecord;

fn keyless(_: i64) -> String {
    String::new()
}

fn log_of(partitions: i32, count: i64) -> Arc<MemoryLog> {
    let log = MemoryLog::new(partitions);
    (0..partitions).for_each(|number| log.write(number, count, keyless));
    log
}

fn harness(partitions: i32, count: i64) -> EngineHarness {
    EngineHarness::new(log_of(partitions, count), settings(vec![route("events")]))
}

/// All committed offsets, in order.
fn commit_offsets(log: &MemoryLog) -> Vec<i64> {
    let state = log.state.lock();
    state.commits.values().flatten().map(|commit| commit.offset).collect()
}

fn lines_of(harness: &EngineHarness, words: &str) -> usize {
    harness.queue.lines().iter().filter(|line| line.contains(words)).count()
}

#[test]
fn a_seek_past_the_end_skips_no_record_written_later() {
    let harness = harness(1, 10);
    let batch = harness.batch_of(0..10);
    batch.seek(Position::Offset(1_000));
    batch.finish(BatchOutcome::Done);
    until("the seek", || harness.engine.stats().groups[0].partitions[0].position == 1_000);
    harness.log.write(0, 5, keyless);
    harness.batch_of(10..15).finish(BatchOutcome::Done);
    until("the commit", || harness.committed(0) == Some(15));
    harness.end();
    assert!(
        commit_offsets(&harness.log).iter().all(|offset| *offset <= 15),
        "{:?}",
        commit_offsets(&harness.log)
    );
    assert_eq!(lines_of(&harness, "offset 1000"), 1, "{:?}", harness.queue.lines());
    harness.log.write(0, 5, keyless);
    let again = EngineHarness::new(harness.log.clone(), settings(vec![route("events")]));
    again.batch_of(15..20);
}

#[test]
fn a_commit_past_the_end_skips_no_record_written_later() {
    let log = log_of(1, 10);
    let commit = Commit {
        topic: "events".into(),
        partition: 0,
        offset: 500,
        // It lists 510 to 520 as done.
        metadata: "chaton:1:KK".into(),
    };
    log.state.lock().commits.insert(("events".into(), 0), vec![commit]);
    let harness = EngineHarness::new(log, settings(vec![route("events")]));
    until("the assignment", || harness.engine.stats().groups[0].partitions.len() == 1);
    harness.log.write(0, 5, keyless);
    harness.batch_of(10..15).finish(BatchOutcome::Done);
    until("the commit", || harness.committed(0) == Some(15));
    assert_eq!(lines_of(&harness, "offset 500"), 1, "{:?}", harness.queue.lines());
    // The metadata belonged to other records than these.
    harness.log.write(0, 510, keyless);
    let mut next = 15;
    while next < 525 {
        let batch = harness.batch();
        assert_eq!(offsets(&batch)[0], next);
        next += batch.len() as i64;
        batch.finish(BatchOutcome::Done);
    }
    until("the last commit", || harness.committed(0) == Some(525));
}

#[test]
fn a_commit_that_fails_before_a_seek_is_not_repeated_after_it() {
    let harness = harness(1, 10);
    harness.log.state.lock().fail_commits = 2;
    let batch = harness.batch_of(0..10);
    batch.seek(Position::Offset(1_000));
    batch.finish(BatchOutcome::Done);
    until("the seek", || harness.engine.stats().groups[0].partitions[0].position == 1_000);
    harness.end();
    assert!(
        commit_offsets(&harness.log).iter().all(|offset| *offset <= 10),
        "{:?}",
        commit_offsets(&harness.log)
    );
}

#[test]
fn a_batch_that_ends_during_a_commit_is_committed_before_the_stop() {
    let harness = harness(2, 10);
    let (first, second) = (harness.batch_of(0..10), harness.batch_of(0..10));
    harness.log.state.lock().hold_commits = true;
    first.finish(BatchOutcome::Done);
    until("a commit under way", || harness.log.state.lock().held_commits > 0);
    harness.engine.quiet();
    second.finish(BatchOutcome::Done);
    for _ in 0..2 {
        let notice = harness.batch();
        assert_eq!(notice.kind(), BatchKind::Shutdown);
        notice.finish(BatchOutcome::Done);
    }
    assert!(!harness.engine.wait_idle(Duration::from_millis(5)));
    harness.log.release();
    assert!(harness.engine.wait_idle(LONG));
    harness.engine.stop();
    assert_eq!((harness.committed(0), harness.committed(1)), (Some(10), Some(10)));
}

#[test]
fn a_commit_without_an_answer_is_sent_again_at_the_stop() {
    let harness = harness(1, 10);
    harness.batch_of(0..10).finish(BatchOutcome::Done);
    until("the commit", || harness.committed(0) == Some(10));
    assert!(harness.engine.wait_idle(LONG));
    // The log has not accepted it, and would report that too late.
    harness.log.state.lock().commits.clear();
    harness.end();
    assert_eq!(harness.committed(0), Some(10));
}

#[test]
fn partitions_are_released_before_the_process_ends() {
    let harness = harness(2, 10);
    let batches = [harness.batch_of(0..10), harness.batch_of(0..10)];
    harness.engine.quiet();
    for batch in &batches {
        batch.finish(BatchOutcome::Done);
    }
    let notices = [harness.batch(), harness.batch()];
    notices[0].finish(BatchOutcome::Done);
    assert!(!harness.engine.wait_idle(Duration::from_millis(5)));
    assert_eq!(harness.log.state.lock().left, 0);
    notices[1].finish(BatchOutcome::Done);
    until("leaving", || harness.log.state.lock().left == 1);
    assert_eq!((harness.committed(0), harness.committed(1)), (Some(10), Some(10)));
    assert!(!harness.engine.stats().groups[0].connected);
    assert!(harness.engine.wait_idle(LONG));
    harness.engine.stop();
    let state = harness.log.state.lock();
    assert_eq!((state.left, state.members), (1, 1), "it does not come back");
}

#[test]
fn a_partition_assigned_during_the_stop_does_not_delay_it() {
    for _ in 0..30 {
        let harness = harness(1, 10);
        let batch = harness.batch_of(0..10);
        harness.engine.quiet();
        let waiting = harness.engine.clone();
        let thread = std::thread::spawn(move || waiting.wait_idle(LONG));
        harness.log.write(1, 10, keyless);
        batch.finish(BatchOutcome::Done);
        harness.log.report(MemberEvent::Assigned(vec![harness.log.assigned(1)]));
        harness.batch().finish(BatchOutcome::Done);
        until("calm", || thread.is_finished());
        assert!(thread.join().unwrap());
        harness.engine.stop();
        assert_eq!(harness.committed(0), Some(10));
    }
}

#[test]
fn the_poll_of_each_second_fetches_nothing() {
    let harness = harness(50, 0);
    harness.log.write(3, 1, keyless);
    harness.batch_of([0]).finish(BatchOutcome::Done);
    until("the commit", || harness.committed(3) == Some(1));
    let mut seen = (0, 0);
    until("two ticks without a fetch", || {
        let state = harness.log.state.lock();
        if state.fetches != seen.0 {
            seen = (state.fetches, state.waits);
        }
        state.waits >= seen.1 + 2
    });
    let polls = harness.log.state.lock().waits;
    harness.log.write(7, 1, keyless);
    assert_eq!(harness.batch().partition().number, 7);
    assert!(harness.log.state.lock().waits <= polls + 2, "the event_fd has woken it");
}

#[test]
fn a_record_from_the_future_waits_no_longer_than_the_delay() {
    let log = MemoryLog::new(1);
    for timestamp_ms in [Some(i64::MAX), Some(1), Some(40_000_000_000_000)] {
        log.append("events", 0, OwnedRecord { timestamp_ms, ..OwnedRecord::default() });
    }
    let harness = EngineHarness::new(
        log,
        settings(vec![RouteSettings { delay: Duration::from_millis(60), ..route("events") }]),
    );
    harness.batch_of(0..3).finish(BatchOutcome::Done);
    let wakes = harness.engine.stats().totals.wakes;
    assert!(wakes <= 10, "{wakes}");
}
