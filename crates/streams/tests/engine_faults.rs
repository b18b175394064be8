//! The engine while partitions move, the log fails and the queue is full.

mod engine_support;

use std::sync::Arc;
use std::time::Duration;

use chaton_streams::batch::{Batch, BatchKind, BatchOutcome, BatchVerdict};
use chaton_streams::engine::RouteSettings;
use chaton_streams::log::{ErrorKind, LogError, MemberEvent};
use engine_support::memory::{partition, MemoryLog};
use engine_support::sink::Queue;
use engine_support::{failed, offsets, route, settings, until, Bench, LONG};

fn keyless(_: i64) -> String {
    String::new()
}

fn error(message: &str) -> LogError {
    LogError::new(ErrorKind::Unreachable, message)
}

fn bench(partitions: i32, count: i64) -> Bench {
    let log = MemoryLog::new(partitions);
    (0..partitions).for_each(|number| log.write(number, count, keyless));
    Bench::new(log, settings(vec![route("events")]))
}

#[test]
fn a_revoked_partition_is_drained_committed_and_released_in_this_order() {
    let bench = bench(2, 30);
    let (first, second) = (bench.batch(), bench.batch());
    let (first, second) =
        if first.partition().number == 0 { (first, second) } else { (second, first) };
    let both = vec![partition("events", 0), partition("events", 1)];
    bench.log.tell(MemberEvent::Revoked(both.clone()));
    until("draining", || states(&bench) == ["draining", "draining"]);
    first.mark(4);
    first.finish(failed("Boom"));
    assert_eq!(bench.batch().kind(), BatchKind::Revoked);
    assert!(bench.log.state.lock().released.is_empty() && !second.is_revoked());
    second.finish(BatchOutcome::Done);
    until("the release", || bench.log.state.lock().released == both);
    assert_eq!((bench.committed(0), bench.committed(1)), (Some(5), Some(10)));
    let notice = bench.batch();
    assert_eq!((notice.kind(), notice.generation()), (BatchKind::Revoked, second.generation()));
    notice.finish(BatchOutcome::Done);
    // It comes back, as another generation, where it stood.
    bench.log.tell(MemberEvent::Assigned(vec![bench.log.assigned(0)]));
    let batch = bench.batch_of(5..15);
    assert!(batch.generation() > second.generation());
}

#[test]
fn a_drain_ends_after_half_of_the_poll_interval() {
    let log = MemoryLog::new(1);
    log.write(0, 30, keyless);
    let mut settings = settings(vec![route("events")]);
    settings.groups[0].group.max_poll_interval_ms = 60;
    let bench = Bench::new(log, settings);
    let batch = bench.batch_of(0..10);
    batch.mark(2);
    bench.log.tell(MemberEvent::Revoked(vec![partition("events", 0)]));
    until("the release", || !bench.log.state.lock().released.is_empty());
    assert!(batch.is_revoked());
    batch.mark(7);
    assert_eq!(bench.committed(0), Some(3));
    // The next generation runs beside what still runs of this one.
    bench.log.tell(MemberEvent::Assigned(vec![bench.log.assigned(0)]));
    let next = bench.batch_of(3..13);
    assert_eq!(batch.finish(BatchOutcome::Done), BatchVerdict::Dropped);
    let notice = bench.batch();
    assert_eq!((notice.kind(), notice.generation()), (BatchKind::Revoked, batch.generation()));
    notice.finish(BatchOutcome::Done);
    next.finish(BatchOutcome::Done);
    until("its own commit", || bench.committed(0) == Some(13));
}

#[test]
fn a_lost_partition_is_not_committed() {
    let bench = bench(1, 30);
    let batch = bench.batch_of(0..10);
    bench.log.tell(MemberEvent::Lost(vec![partition("events", 0)]));
    until("revocation", || batch.is_revoked());
    assert_eq!(batch.finish(BatchOutcome::Done), BatchVerdict::Dropped);
    assert_eq!(bench.batch().kind(), BatchKind::Revoked);
    assert_eq!((bench.committed(0), bench.log.state.lock().released.len()), (None, 0));
}

#[test]
fn a_batch_that_waits_in_the_queue_is_not_started_once_its_partition_is_gone() {
    let bench = bench(1, 30);
    until("a batch", || bench.queue.len() == 1);
    bench.log.tell(MemberEvent::Revoked(vec![partition("events", 0)]));
    until("the release", || !bench.log.state.lock().released.is_empty());
    // No consumer has seen the partition: nobody needs to be told.
    assert!(bench.queue.take(Duration::from_millis(5)).is_none());
    until("forgetting it", || bench.engine.stats().groups[0].partitions.is_empty());
}

#[test]
fn a_commit_that_fails_is_said_again() {
    let bench = bench(1, 10);
    bench.log.state.lock().fail_commits = 3;
    bench.batch_of(0..10).finish(BatchOutcome::Done);
    until("the commit", || bench.committed(0) == Some(10));
    bench.log.state.lock().commits.clear();
    bench.log.tell(MemberEvent::CommitFailed(error("not the coordinator")));
    until("the commit again", || bench.committed(0) == Some(10));
    let lines = bench.queue.lines();
    let told = |what: &str| lines.iter().filter(|line| line.contains(what)).count();
    assert_eq!(
        (told("committing: told to fail"), told("not the coordinator")),
        (1, 1),
        "{lines:?}"
    );
}

#[test]
fn a_log_that_cannot_be_reached_is_tried_again_and_told_once() {
    let log = MemoryLog::new(1);
    log.write(0, 10, keyless);
    log.state.lock().fail_joins = 4;
    log.state.lock().fail_fetches = 3;
    let bench = Bench::new(log, settings(vec![route("events")]));
    let batch = bench.batch_of(0..10);
    let group = bench.engine.stats().groups.remove(0);
    assert!(group.connected && group.trouble.is_none(), "{group:?}");
    batch.finish(BatchOutcome::Done);
    let lines = bench.queue.lines();
    assert_eq!(lines.iter().filter(|line| line.contains("joining")).count(), 1, "{lines:?}");
    assert_eq!(lines.iter().filter(|line| line.contains("fetching")).count(), 1, "{lines:?}");
}

#[test]
fn a_member_that_cannot_go_on_is_made_anew() {
    let bench = bench(1, 30);
    let batch = bench.batch_of(0..10);
    // What is fetched later would show that the trouble is over.
    until("all", || bench.engine.stats().groups[0].partitions[0].position == 30);
    bench.log.state.lock().fail_joins = 1;
    bench.log.tell(MemberEvent::Trouble(error("a broker is gone")));
    until("trouble", || bench.engine.stats().groups[0].trouble.is_some());
    bench.log.tell(MemberEvent::Fatal(error("fenced for good")));
    until("revocation", || batch.is_revoked());
    assert_eq!(batch.finish(BatchOutcome::Done), BatchVerdict::Dropped);
    let mut kinds = [bench.batch(), bench.batch()];
    kinds.sort_by_key(|batch| batch.generation());
    assert_eq!(kinds[0].kind(), BatchKind::Revoked);
    assert_eq!(offsets(&kinds[1]), (0..10).collect::<Vec<_>>());
    assert_eq!((bench.log.state.lock().members, bench.engine.stats().totals.restarts), (2, 1));
}

#[test]
fn a_queue_that_is_full_loses_nothing() {
    let log = MemoryLog::new(6);
    (0..6).for_each(|number| log.write(number, 300, keyless));
    let bench = Bench::with(log, settings(vec![route("events")]), Queue::new(1));
    let mut seen = [0; 6];
    let mut done = 0;
    while done < 1_800 {
        let batch = bench.batch();
        let number = batch.partition().number as usize;
        assert_eq!(offsets(&batch)[0], seen[number]);
        seen[number] += batch.len() as i64;
        done += batch.len();
        // Nobody starves, however many have come later.
        let (least, most) = (seen.iter().min().unwrap(), seen.iter().max().unwrap());
        assert!(most - least <= 100, "{seen:?}");
        batch.finish(BatchOutcome::Done);
    }
    assert!(bench.engine.stats().totals.refused > 0);
    assert!(bench.engine.wait_idle(LONG));
}

#[test]
fn a_batch_that_is_dropped_by_its_thread_is_given_again() {
    let bench = bench(1, 10);
    let batch = bench.batch_of(0..10);
    batch.mark(3);
    batch.finish(BatchOutcome::Abandoned);
    batch.finish(BatchOutcome::Abandoned);
    assert_eq!(batch.finish(BatchOutcome::Done), BatchVerdict::Dropped);
    let again = bench.batch();
    assert_eq!((again.attempt(), offsets(&again)), (1, (4..10).collect()));
    again.finish(BatchOutcome::Done);
    until("the commit", || bench.committed(0) == Some(10));
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
        let error = engine_support::start(settings, &log, queue).err().unwrap();
        assert!(error.kind == ErrorKind::Invalid && error.message.contains(word), "{error}");
    }
    let mut other = settings(vec![route("events")]);
    other.groups[0].group.topics.push("orders".into());
    let (log, queue) = (MemoryLog::new(1), Queue::new(1));
    assert!(engine_support::start(other, &log, queue).is_err());
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

fn states(bench: &Bench) -> Vec<&'static str> {
    let groups = bench.engine.stats().groups;
    groups[0].partitions.iter().map(|partition| partition.state).collect()
}
