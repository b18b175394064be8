//! The engine at its edges: offsets that are beyond the end of the log, a
//! process that ends, and one that has nothing to do.

mod engine_support;

use std::sync::Arc;
use std::time::Duration;

use chaton_streams::batch::{BatchKind, BatchOutcome};
use chaton_streams::engine::RouteSettings;
use chaton_streams::log::{Commit, MemberEvent, Position};
use chaton_streams::record::OwnedRecord;
use engine_support::memory::MemoryLog;
use engine_support::{offsets, route, settings, until, Bench, LONG};

fn keyless(_: i64) -> String {
    String::new()
}

fn log_of(partitions: i32, count: i64) -> Arc<MemoryLog> {
    let log = MemoryLog::new(partitions);
    (0..partitions).for_each(|number| log.write(number, count, keyless));
    log
}

fn bench(partitions: i32, count: i64) -> Bench {
    Bench::new(log_of(partitions, count), settings(vec![route("events")]))
}

/// All that was committed, in order.
fn said(log: &MemoryLog) -> Vec<i64> {
    let state = log.state.lock();
    state.commits.values().flatten().map(|commit| commit.offset).collect()
}

fn lines_of(bench: &Bench, words: &str) -> usize {
    bench.queue.lines().iter().filter(|line| line.contains(words)).count()
}

#[test]
fn a_seek_past_the_end_skips_nothing_that_is_written_later() {
    let bench = bench(1, 10);
    let batch = bench.batch_of(0..10);
    batch.seek(Position::Offset(1_000));
    batch.finish(BatchOutcome::Done);
    until("the seek", || bench.engine.stats().groups[0].partitions[0].position == 1_000);
    bench.log.write(0, 5, keyless);
    bench.batch_of(10..15).finish(BatchOutcome::Done);
    until("the commit", || bench.committed(0) == Some(15));
    bench.end();
    assert!(said(&bench.log).iter().all(|offset| *offset <= 15), "{:?}", said(&bench.log));
    assert_eq!(lines_of(&bench, "offset 1000"), 1, "{:?}", bench.queue.lines());
    bench.log.write(0, 5, keyless);
    let again = Bench::new(bench.log.clone(), settings(vec![route("events")]));
    again.batch_of(15..20);
}

#[test]
fn a_commit_past_the_end_skips_nothing_that_is_written_later() {
    let log = log_of(1, 10);
    let commit = Commit {
        topic: "events".into(),
        partition: 0,
        offset: 500,
        // 510 to 520 are done, it says.
        metadata: "chaton:1:KK".into(),
    };
    log.state.lock().commits.insert(("events".into(), 0), vec![commit]);
    let bench = Bench::new(log, settings(vec![route("events")]));
    until("the assignment", || bench.engine.stats().groups[0].partitions.len() == 1);
    bench.log.write(0, 5, keyless);
    bench.batch_of(10..15).finish(BatchOutcome::Done);
    until("the commit", || bench.committed(0) == Some(15));
    assert_eq!(lines_of(&bench, "offset 500"), 1, "{:?}", bench.queue.lines());
    // What the note says is of other records than these.
    bench.log.write(0, 510, keyless);
    let mut next = 15;
    while next < 525 {
        let batch = bench.batch();
        assert_eq!(offsets(&batch)[0], next);
        next += batch.len() as i64;
        batch.finish(BatchOutcome::Done);
    }
    until("the last commit", || bench.committed(0) == Some(525));
}

#[test]
fn a_commit_that_fails_before_a_seek_says_nothing_of_where_it_goes() {
    let bench = bench(1, 10);
    bench.log.state.lock().fail_commits = 2;
    let batch = bench.batch_of(0..10);
    batch.seek(Position::Offset(1_000));
    batch.finish(BatchOutcome::Done);
    until("the seek", || bench.engine.stats().groups[0].partitions[0].position == 1_000);
    bench.end();
    assert!(said(&bench.log).iter().all(|offset| *offset <= 10), "{:?}", said(&bench.log));
}

#[test]
fn a_batch_that_ends_while_a_commit_is_under_way_is_committed_before_the_end() {
    let bench = bench(2, 10);
    let (first, second) = (bench.batch_of(0..10), bench.batch_of(0..10));
    bench.log.state.lock().hold_commits = true;
    first.finish(BatchOutcome::Done);
    until("a commit under way", || bench.log.state.lock().held_commits > 0);
    bench.engine.quiet();
    second.finish(BatchOutcome::Done);
    for _ in 0..2 {
        let notice = bench.batch();
        assert_eq!(notice.kind(), BatchKind::Shutdown);
        notice.finish(BatchOutcome::Done);
    }
    assert!(!bench.engine.wait_idle(Duration::from_millis(5)));
    bench.log.let_commits_go();
    assert!(bench.engine.wait_idle(LONG));
    bench.engine.stop();
    assert_eq!((bench.committed(0), bench.committed(1)), (Some(10), Some(10)));
}

#[test]
fn what_was_said_without_an_answer_is_said_again_at_the_end() {
    let bench = bench(1, 10);
    bench.batch_of(0..10).finish(BatchOutcome::Done);
    until("the commit", || bench.committed(0) == Some(10));
    assert!(bench.engine.wait_idle(LONG));
    // The log has not taken it, and nobody will hear of that in time.
    bench.log.state.lock().commits.clear();
    bench.end();
    assert_eq!(bench.committed(0), Some(10));
}

#[test]
fn partitions_are_given_to_others_before_the_process_ends() {
    let bench = bench(2, 10);
    let batches = [bench.batch_of(0..10), bench.batch_of(0..10)];
    bench.engine.quiet();
    for batch in &batches {
        batch.finish(BatchOutcome::Done);
    }
    let notices = [bench.batch(), bench.batch()];
    notices[0].finish(BatchOutcome::Done);
    assert!(!bench.engine.wait_idle(Duration::from_millis(5)));
    assert_eq!(bench.log.state.lock().left, 0);
    notices[1].finish(BatchOutcome::Done);
    until("leaving", || bench.log.state.lock().left == 1);
    assert_eq!((bench.committed(0), bench.committed(1)), (Some(10), Some(10)));
    assert!(!bench.engine.stats().groups[0].connected);
    assert!(bench.engine.wait_idle(LONG));
    bench.engine.stop();
    let state = bench.log.state.lock();
    assert_eq!((state.left, state.members), (1, 1), "it does not come back");
}

#[test]
fn a_partition_that_comes_while_the_process_ends_holds_nothing_up() {
    for _ in 0..30 {
        let bench = bench(1, 10);
        let batch = bench.batch_of(0..10);
        bench.engine.quiet();
        let waiting = bench.engine.clone();
        let thread = std::thread::spawn(move || waiting.wait_idle(LONG));
        bench.log.write(1, 10, keyless);
        batch.finish(BatchOutcome::Done);
        bench.log.tell(MemberEvent::Assigned(vec![bench.log.assigned(1)]));
        bench.batch().finish(BatchOutcome::Done);
        until("calm", || thread.is_finished());
        assert!(thread.join().unwrap());
        bench.engine.stop();
        assert_eq!(bench.committed(0), Some(10));
    }
}

#[test]
fn a_tick_of_the_clock_fetches_nothing() {
    let bench = bench(50, 0);
    bench.log.write(3, 1, keyless);
    bench.batch_of([0]).finish(BatchOutcome::Done);
    until("the commit", || bench.committed(3) == Some(1));
    let mut seen = (0, 0);
    until("two ticks without a fetch", || {
        let state = bench.log.state.lock();
        if state.fetches != seen.0 {
            seen = (state.fetches, state.waits);
        }
        state.waits >= seen.1 + 2
    });
    let polls = bench.log.state.lock().waits;
    bench.log.write(7, 1, keyless);
    assert_eq!(bench.batch().partition().number, 7);
    assert!(bench.log.state.lock().waits <= polls + 2, "the event_fd has woken it");
}

#[test]
fn a_record_of_the_far_future_waits_no_longer_than_the_delay() {
    let log = MemoryLog::new(1);
    for timestamp_ms in [Some(i64::MAX), Some(1), Some(40_000_000_000_000)] {
        log.append("events", 0, OwnedRecord { timestamp_ms, ..OwnedRecord::default() });
    }
    let bench = Bench::new(log, settings(vec![RouteSettings { delay_ms: 60, ..route("events") }]));
    bench.batch_of(0..3).finish(BatchOutcome::Done);
    let wakes = bench.engine.stats().totals.wakes;
    assert!(wakes <= 10, "{wakes}");
}
