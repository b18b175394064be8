//! The whole engine on a log in memory: batches, retries, dead letters, delays and stops.

use chaton_core::engine::Engine as _;
use chaton_core::process::scoreboard::{OwnGauges, Scoreboard};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::engine_support::memory::MemoryLog;
use crate::engine_support::{failed, offsets, route, settings, until, EngineHarness, LONG};
use chaton_streams::batch::{BatchKind, BatchOutcome, BatchVerdict};
use chaton_streams::engine::{EngineSettings, RecordOrder, RouteSettings, Throttle};
use chaton_streams::log::{Assignment, ErrorKind, MemberEvent, Position};
use chaton_streams::record::OwnedRecord;

fn keyless(_: i64) -> String {
    String::new()
}

#[test]
fn records_are_read_and_committed_in_order() {
    let log = MemoryLog::new(1);
    log.write(0, 25, keyless);
    let harness = EngineHarness::new(log, settings(vec![route("events")]));
    assert_eq!(harness.batch_of(0..10).finish(BatchOutcome::Done), BatchVerdict::Done);
    let second = harness.batch_of(10..20);
    assert_eq!((second.route(), second.lane(), second.attempt()), (0, 0, 1));
    assert_eq!(second.describe(), "events/0 @10-19");
    assert_eq!(second.end_offset(), Some(25));
    until("the first commit", || harness.committed(0) == Some(10));
    second.finish(BatchOutcome::Done);
    harness.batch_of(20..25).finish(BatchOutcome::Done);
    assert!(harness.engine.wait_idle(LONG));
    until("the last commit", || harness.committed(0) == Some(25));
    harness.log.write(0, 1, keyless);
    harness.batch_of([25]).finish(BatchOutcome::Done);
    let stats = harness.engine.stats();
    assert_eq!((stats.totals.records, stats.totals.batches), (26, 4));
    let group = &stats.groups[0];
    assert!(group.connected && group.trouble.is_none());
    assert_eq!((group.partitions[0].end, group.partitions[0].lag), (26, 0));
    harness.end();
    assert_eq!((harness.committed(0), harness.log.state.lock().left), (Some(26), 1));
}

#[test]
fn a_failed_batch_is_retried_while_other_partitions_go_on() {
    let log = MemoryLog::new(2);
    log.write(0, 5, keyless);
    log.write(1, 5, keyless);
    let slow = RouteSettings {
        backoff: Duration::from_millis(60_000),
        backoff_max: Duration::from_millis(60_000),
        ..route("events")
    };
    let harness = EngineHarness::new(log, settings(vec![slow]));
    let first = harness.batch();
    first.mark(1);
    let verdict = first.finish(failed("Boom"));
    assert!(matches!(verdict, BatchVerdict::Retry { attempt: 2, .. }));
    let number = first.partition().number;
    let other = harness.batch();
    assert_ne!(other.partition().number, number);
    other.finish(BatchOutcome::Done);
    until("its commit", || harness.committed(number) == Some(2));
    let stats = harness.engine.stats();
    let waiting = stats.groups[0].partitions.iter().find(|p| p.partition == number).unwrap();
    assert_eq!((waiting.state, waiting.attempt, waiting.ready), ("retrying", 2, 3));
    assert!(waiting.retry_in_ms > 1_000);
    harness.end();
    assert_eq!((harness.committed(number), harness.committed(1 - number)), (Some(2), Some(5)));
}

#[test]
fn a_poison_record_becomes_an_unchanged_dead_letter() {
    let log = MemoryLog::new(1);
    log.write(0, 2, keyless);
    let headers = vec![(b"h\xff".to_vec(), Some(vec![0, 255])), (b"h\xff".to_vec(), None)];
    let (key, value) = (Some(vec![0, 200]), Some(vec![255, 0, 10]));
    let poison = OwnedRecord { key, value, headers, ..OwnedRecord::default() };
    log.append("events", 0, poison.clone());
    log.write(0, 2, keyless);
    log.state.lock().fail_sends = 2;
    let dead_letter = Some("events.dead".into());
    let route = RouteSettings { attempts_max: Some(2), dead_letter, ..route("events") };
    let harness = EngineHarness::new(log, settings(vec![route]));
    harness.batch_of(0..5).finish(failed("First"));
    let isolated = harness.batch_of(0..5).finish(failed("Second"));
    assert!(matches!(isolated, BatchVerdict::Isolated { .. }));
    for offset in 0..2 {
        let batch = harness.batch_of([offset]);
        assert!(batch.isolated());
        batch.finish(BatchOutcome::Done);
    }
    let verdict = harness.batch_of([2]).finish(failed("Third"));
    assert_eq!(verdict, BatchVerdict::DeadLetter { topic: "events.dead".into() });
    harness.batch_of([3]).finish(BatchOutcome::Done);
    harness.batch_of([4]).finish(BatchOutcome::Done);
    assert!(harness.engine.wait_idle(LONG));
    let letters = harness.log.written("events.dead");
    assert_eq!(letters.len(), 1);
    let letter = &letters[0];
    assert_eq!((&letter.key, &letter.value), (&poison.key, &poison.value));
    assert_eq!(letter.headers[..2], poison.headers);
    let text = |name: &str| {
        let found = letter.headers.iter().find(|header| header.0 == name.as_bytes());
        String::from_utf8(found.unwrap().1.clone().unwrap()).unwrap()
    };
    assert_eq!(text("source_topic"), "events");
    assert_eq!((text("source_partition"), text("source_offset")), ("0".into(), "2".into()));
    assert_eq!(text("source_consumer_group"), "app");
    assert_eq!((text("source_attempts"), text("error_class")), ("3".into(), "Third".into()));
    assert_eq!(text("error_message"), "on purpose");
    assert!(text("failed_at").ends_with('Z'));
    assert_eq!(harness.engine.stats().totals.dead_letters, 1);
    let count = harness.queue.lines().iter().filter(|line| line.contains("events.dead")).count();
    assert_eq!(count, 1, "logged once for all attempts");
}

#[test]
fn delayed_records_are_handed_out_when_due() {
    let log = MemoryLog::new(1);
    log.write(0, 30, keyless);
    let began = Instant::now();
    let throttle = Some(Throttle { records: 10, per: Duration::from_millis(40) });
    let route = RouteSettings { delay: Duration::from_millis(60), throttle, ..route("events") };
    let harness = EngineHarness::new(log, settings(vec![route]));
    harness.batch().finish(BatchOutcome::Done);
    assert!(began.elapsed() >= Duration::from_millis(59), "{:?}", began.elapsed());
    let mut count = 10;
    while count < 30 {
        let batch = harness.batch();
        count += batch.len();
        batch.finish(BatchOutcome::Done);
    }
    assert!(began.elapsed() >= Duration::from_millis(130), "{:?}", began.elapsed());
    // Waiting takes only a few wake-ups.
    let wakes = harness.engine.stats().totals.wakes;
    assert!(wakes <= 20, "{wakes}");
}

#[test]
fn expired_records_are_skipped() {
    let log = MemoryLog::new(1);
    for n in 0..10 {
        let timestamp_ms = (n % 2 == 0).then_some(1_000);
        log.append("events", 0, OwnedRecord { timestamp_ms, ..OwnedRecord::default() });
    }
    let route = RouteSettings { expires: Some(Duration::from_millis(60_000)), ..route("events") };
    let harness = EngineHarness::new(log, settings(vec![route]));
    harness.batch_of([1, 3, 5, 7, 9]).finish(BatchOutcome::Done);
    until("the commit", || harness.committed(0) == Some(10));
    assert_eq!(harness.engine.stats().totals.expired, 5);
}

#[test]
fn a_consumer_pauses_and_seeks() {
    let log = MemoryLog::new(1);
    log.write(0, 40, keyless);
    log.state.lock().fail_seeks = 1;
    let harness = EngineHarness::new(log, settings(vec![route("events")]));
    let batch = harness.batch_of(0..10);
    batch.seek(Position::Offset(35));
    batch.pause(Duration::from_millis(30));
    let began = Instant::now();
    batch.finish(BatchOutcome::Done);
    harness.batch_of(35..40).finish(BatchOutcome::Done);
    assert!(began.elapsed() >= Duration::from_millis(30));
    until("the commit", || harness.committed(0) == Some(40));
    harness.log.write(0, 1, keyless);
    let batch = harness.batch_of([40]);
    batch.seek(Position::Earliest);
    batch.finish(BatchOutcome::Done);
    harness.batch_of(0..10).finish(BatchOutcome::Done);
    until("going back", || harness.committed(0) == Some(10));
    harness.batch_of(10..20);
}

#[test]
fn the_metrics_show_the_lag_and_its_age_until_all_is_done() {
    let log = MemoryLog::new(1);
    let old = OwnedRecord { timestamp_ms: Some(1_000), ..OwnedRecord::default() };
    log.append("events", 0, old);
    log.write(0, 4, keyless);
    let gauges = OwnGauges::new(Arc::new(Scoreboard::new(1).unwrap()), 0);
    let topic = &gauges.counters().topics[0];
    let settings = settings(vec![route("events")]);
    let settings = EngineSettings { gauges: Some(gauges.clone()), ..settings };
    let harness = EngineHarness::new(log, settings);
    let batch = harness.batch_of(0..5);
    let shown = || (topic.lag.load(Relaxed), topic.oldest_ms.load(Relaxed));
    until("the age of the first record", || shown() == (5, 1_000));
    assert_eq!(topic.rebalances.load(Relaxed), 1);
    batch.mark(0);
    until("the age of the second record", || shown().0 == 4 && shown().1 > 1_000_000);
    batch.finish(BatchOutcome::Done);
    // The group's thread has nothing to do but to show it.
    until("the end of the lag", || shown() == (0, 0));
    harness.end();
}

#[test]
fn only_marks_count_with_manual_offsets() {
    let log = MemoryLog::new(1);
    log.write(0, 30, keyless);
    let route = RouteSettings { manual: true, ..route("events") };
    let harness = EngineHarness::new(log, settings(vec![route]));
    harness.batch_of(0..10).finish(BatchOutcome::Done);
    let second = harness.batch_of(10..20);
    second.mark_one(12);
    until("a note", || harness.committed(0) == Some(0));
    assert!(harness.log.committed("app", 0).unwrap().metadata.starts_with("chaton:1:"));
    second.mark(10);
    until("both", || harness.committed(0) == Some(11));
    second.mark(11);
    until("all three", || harness.committed(0) == Some(13));
    second.finish(BatchOutcome::Done);
    harness.batch_of(20..30).finish(BatchOutcome::Done);
    harness.end();
    assert_eq!(harness.committed(0), Some(13));
}

#[test]
fn the_end_of_a_partition_is_reported_after_its_records() {
    let log = MemoryLog::new(1);
    log.write(0, 3, keyless);
    let mut settings = settings(vec![route("events")]);
    settings.notify_eof(&[0]);
    let harness = EngineHarness::new(log, settings);
    harness.batch_of(0..3).finish(BatchOutcome::Done);
    let end = harness.batch();
    assert_eq!((end.kind(), end.len()), (BatchKind::End, 0));
    end.finish(BatchOutcome::Done);
    harness.log.write(0, 1, keyless);
    harness.batch_of([3]).finish(BatchOutcome::Done);
    assert_eq!(harness.batch().kind(), BatchKind::End);
}

#[test]
fn each_partition_gets_a_notice_when_the_process_stops() {
    let log = MemoryLog::new(2);
    log.write(0, 30, keyless);
    log.write(1, 30, keyless);
    let harness = EngineHarness::new(log, settings(vec![route("events")]));
    let first = harness.batch_of(0..10);
    let number = first.partition().number;
    until("the other's batch", || harness.queue.len() == 1);
    harness.engine.quiet();
    assert_eq!(harness.queue.len(), 0, "batches that no thread has taken are dropped");
    assert!(!harness.engine.wait_idle(Duration::from_millis(5)));
    first.finish(BatchOutcome::Done);
    let notice = harness.batch();
    assert_eq!((notice.kind(), notice.partition().number), (BatchKind::Shutdown, number));
    assert!(!harness.engine.wait_idle(Duration::from_millis(5)));
    notice.finish(BatchOutcome::Done);
    assert!(harness.engine.wait_idle(LONG));
    assert_eq!((harness.committed(number), harness.committed(1 - number)), (Some(10), None));
    harness.engine.stop();
    assert!(harness.queue.take(Duration::ZERO).is_none());
}

#[test]
fn a_batch_that_is_given_up_does_not_count() {
    let log = MemoryLog::new(1);
    log.write(0, 10, keyless);
    let harness = EngineHarness::new(log, settings(vec![route("events")]));
    let batch = harness.batch_of(0..10);
    batch.mark(2);
    harness.engine.quiet();
    let waiting = harness.engine.clone();
    let thread = std::thread::spawn(move || waiting.wait_idle(LONG));
    while !thread.is_finished() {
        harness.engine.interrupt_wait();
        std::thread::yield_now();
    }
    assert!(!thread.join().unwrap());
    assert!(!batch.is_revoked());
    assert_eq!(harness.engine.give_up().running.len(), 1);
    assert!(batch.is_revoked() && batch.is_open());
    batch.mark(5);
    harness.engine.stop();
    assert_eq!(batch.finish(BatchOutcome::Done), BatchVerdict::Dropped);
    assert_eq!(harness.committed(0), Some(3));
}

#[test]
fn a_transaction_writes_and_commits() {
    let log = MemoryLog::new(1);
    log.write(0, 20, keyless);
    log.state.lock().fail_transactions = 1;
    let route = RouteSettings { transactional: true, ..route("events") };
    let harness = EngineHarness::new(log, settings(vec![route]));
    let batch = harness.batch_of(0..10);
    let record =
        || OwnedRecord { topic: "out".into(), value: Some(b"v".into()), ..OwnedRecord::default() };
    assert!(batch.transact(vec![record()], Some(3)).is_err());
    assert_eq!((harness.committed(0), harness.log.written("out").len()), (None, 0));
    batch.transact(vec![record()], Some(3)).unwrap();
    assert_eq!((harness.committed(0), harness.log.written("out").len()), (Some(4), 1));
    batch.mark(5);
    until("a commit of its own", || harness.committed(0) == Some(6));
    batch.transact(vec![], Some(9)).unwrap();
    assert_eq!(harness.committed(0), Some(10));
    batch.finish(BatchOutcome::Done);
    assert!(batch.transact(vec![], Some(9)).is_err());
    harness.batch_of(10..20).finish(BatchOutcome::Abandoned);
    let again = harness.batch_of(10..20);
    assert_eq!(again.attempt(), 1);
    let ids = harness.log.state.lock().transactors.clone();
    assert_eq!(ids.len(), 1, "the same producer goes on after the failure");
    assert!(ids[0].starts_with("app-events-"), "{ids:?}");
}

#[test]
fn a_restart_skips_records_done_beyond_the_head() {
    let log = MemoryLog::new(1);
    log.write(0, 40, |n| format!("key{}", n % 5));
    let by_key = || RouteSettings {
        order: RecordOrder::Key,
        concurrency: 3,
        backoff: Duration::from_millis(60_000),
        backoff_max: Duration::from_millis(60_000),
        ..route("events")
    };
    let harness = EngineHarness::new(log.clone(), settings(vec![by_key()]));
    let mut done = Vec::new();
    let mut stuck = None;
    // One lane fails at once; the others finish.
    while done.len() < 40 - stuck.map_or(0, |lane| count(&log, lane)) || stuck.is_none() {
        let batch = harness.batch();
        if *stuck.get_or_insert(batch.lane()) == batch.lane() {
            batch.finish(failed("Stuck"));
        } else {
            done.extend(offsets(&batch));
            batch.finish(BatchOutcome::Done);
        }
    }
    harness.end();
    let harness = EngineHarness::new(log.clone(), settings(vec![by_key()]));
    while done.len() < 40 {
        let batch = harness.batch();
        done.extend(offsets(&batch));
        batch.finish(BatchOutcome::Done);
    }
    done.sort_unstable();
    assert_eq!(done, (0..40).collect::<Vec<_>>());
    harness.end();
    assert_eq!(harness.committed(0), Some(40));
}

/// How many records this lane of three gets.
fn count(log: &MemoryLog, lane: usize) -> usize {
    let keys = log.written("events").into_iter().filter_map(|record| record.key);
    keys.filter(|key| crc32c::crc32c(key) as usize % 3 == lane).count()
}

#[test]
fn the_offset_at_which_a_group_begins_is_committed_before_any_record() {
    let log = MemoryLog::new(1);
    log.write(0, 7, keyless);
    {
        let mut state = log.state.lock();
        (state.assigns, state.fail_commits) = (false, 1);
    }
    let harness = EngineHarness::new(log.clone(), settings(vec![route("events")]));
    let assignment =
        Assignment { committed: Some(7), metadata: ";3".into(), is_first: true, ..log.assigned(0) };
    log.report(MemberEvent::Assigned(vec![assignment]));
    until("the commit", || harness.committed(0) == Some(7));
    assert_eq!(log.committed("app", 0).unwrap().metadata, ";3");
    log.write(0, 2, keyless);
    harness.batch_of(7..9).finish(BatchOutcome::Done);
    until("the next commit", || harness.committed(0) == Some(9));
    assert_eq!(log.committed("app", 0).unwrap().metadata, ";3");
    harness.end();
}

#[test]
fn a_transaction_whose_end_is_unknown_is_not_repeated_before_the_log_knows() {
    let log = MemoryLog::new(1);
    log.write(0, 20, keyless);
    log.state.lock().lose_answer = true;
    let route = RouteSettings { transactional: true, ..route("events") };
    let harness = EngineHarness::new(log, settings(vec![route]));
    let batch = harness.batch_of(0..10);
    let record = OwnedRecord { topic: "out".into(), ..OwnedRecord::default() };
    let error = batch.transact(vec![record.clone()], Some(9)).unwrap_err();
    assert_eq!((error.kind, batch.is_revoked()), (ErrorKind::Unknown, true));
    assert_eq!(batch.finish(failed("LogFenced")), BatchVerdict::Dropped);
    // The group is joined anew, and goes on behind what was committed.
    let notice = harness.batch();
    assert_eq!(notice.kind(), BatchKind::Revoked);
    notice.finish(BatchOutcome::Done);
    harness.batch_of(10..20).transact(vec![record], Some(19)).unwrap();
    assert_eq!(harness.log.written("out").len(), 2);
    assert_eq!(harness.log.state.lock().members, 2);
}

#[test]
fn a_transaction_that_began_before_its_partition_was_lost_commits_nothing_afterwards() {
    let log = MemoryLog::new(1);
    log.write(0, 10, keyless);
    let route = RouteSettings { transactional: true, ..route("events") };
    let harness = EngineHarness::new(log.clone(), settings(vec![route]));
    let batch = harness.batch_of(0..10);
    log.state.lock().hold_transactors = true;
    let records = vec![OwnedRecord { topic: "out".into(), ..OwnedRecord::default() }];
    let late = batch.clone();
    let thread = std::thread::spawn(move || late.transact(records, Some(9)));
    until("a producer that is being made", || log.state.lock().transactors.len() == 1);
    // Others had the partition meanwhile, and it comes back.
    log.lose(0);
    until("the loss", || batch.is_revoked());
    until("the new assignment", || harness.engine.stats().groups[0].partitions.len() == 2);
    log.release();
    assert_eq!(thread.join().unwrap().unwrap_err().kind, ErrorKind::Fenced);
    assert_eq!((log.written("out").len(), harness.committed(0)), (0, None));
}

#[test]
fn a_dead_letter_that_is_too_large_is_written_with_less_of_its_record() {
    let log = MemoryLog::new(1);
    let value = |bytes: usize| OwnedRecord {
        key: Some(b"k".to_vec()),
        value: Some(vec![b'v'; bytes]),
        headers: vec![(b"h".to_vec(), Some(b"own".to_vec()))],
        ..OwnedRecord::default()
    };
    // The message of 5,000 letters does not fit with the first, and nothing with the second.
    for bytes in [1_000, 9_000, 0] {
        log.append("events", 0, value(bytes));
    }
    log.state.lock().record_bytes_max = Some(2_000);
    let dead_letter = Some("events.dead".into());
    let route = RouteSettings { attempts_max: Some(1), dead_letter, batch: 1, ..route("events") };
    let harness = EngineHarness::new(log, settings(vec![route]));
    for offset in 0..2 {
        let (class, message) = ("Boom".into(), "x".repeat(5_000));
        harness.batch_of([offset]).finish(BatchOutcome::Failed { class, message });
    }
    harness.batch_of([2]).finish(BatchOutcome::Done);
    until("the commit", || harness.committed(0) == Some(3));
    let letters = harness.log.written("events.dead");
    let header = |letter: &OwnedRecord, name: &str| {
        let found = letter.headers.iter().find(|header| header.0 == name.as_bytes());
        found.map(|header| String::from_utf8(header.1.clone().unwrap()).unwrap())
    };
    let sizes = letters.iter().map(|one| one.value.as_ref().map(Vec::len)).collect::<Vec<_>>();
    assert_eq!(sizes, [Some(1_000), None]);
    for (letter, (own, omitted)) in letters.iter().zip([(Some("own"), None), (None, Some("9000"))])
    {
        assert_eq!(letter.key.as_deref(), Some(&b"k"[..]));
        assert_eq!(header(letter, "error_message").unwrap().len(), 200);
        assert_eq!(header(letter, "h").as_deref(), own);
        assert_eq!(header(letter, "source_value_bytes").as_deref(), omitted);
    }
    assert_eq!(header(&letters[1], "source_offset").as_deref(), Some("1"));
}

#[test]
fn a_batch_that_runs_for_too_long_is_told_of_at_growing_intervals() {
    let log = MemoryLog::new(1);
    log.write(0, 20, keyless);
    let gauges = OwnGauges::new(Arc::new(Scoreboard::new(1).unwrap()), 0);
    let mut settings = settings(vec![route("events")]);
    settings.gauges = Some(gauges.clone());
    // A look in each second: the first one that finds it running, one after the bound, and one after twice the time.
    settings.groups[0].group.max_poll_interval = Duration::from_millis(900);
    let harness = EngineHarness::new(log, settings);
    let overdue = || gauges.counters().topics[0].overdue.load(Relaxed);
    let batch = harness.batch_of(0..10);
    let told = || harness.queue.lines();
    until("two lines", || told().len() == 2);
    let expected = "streams: group app: events/0 @0-9 has been running for 1 s";
    assert!(told()[0].starts_with(expected), "{:?}", told());
    assert!(told()[1].contains("for 2 s") || told()[1].contains("for 1 s"), "{:?}", told());
    assert_eq!(overdue(), 1);
    batch.finish(BatchOutcome::Done);
    harness.batch_of(10..20).finish(BatchOutcome::Done);
    until("the gauge goes back", || overdue() == 0);
    assert_eq!(told().len(), 2);
}

#[test]
fn offsets_without_a_record_at_the_end_are_committed() {
    let log = MemoryLog::new(1);
    log.write(0, 10, keyless);
    log.state.lock().gaps.insert(("events".into(), 0), 2);
    let harness = EngineHarness::new(log, settings(vec![route("events")]));
    harness.batch_of(0..10).finish(BatchOutcome::Done);
    until("the commit", || harness.committed(0) == Some(12));
    harness.log.write(0, 1, keyless);
    harness.batch_of([12]).finish(BatchOutcome::Done);
    until("the next commit", || harness.committed(0) == Some(13));
    harness.end();
}

#[test]
fn offsets_without_a_record_are_committed_that_are_read_right_before_a_wait() {
    let log = MemoryLog::new(2);
    log.write(0, 3, keyless);
    let harness = EngineHarness::new(
        log.clone(),
        settings(vec![RouteSettings { batch: 1, ..route("events") }]),
    );
    let batch = harness.batch_of([0]);
    // All is fetched, and so much is ready that nobody asks the log for more.
    until("two ready records", || harness.engine.stats().groups[0].partitions[0].ready == 2);
    log.add_gap(0, 3);
    // The group's thread has passed the partition and is held up at the other one.
    log.state.lock().hold_fetches = Some(1);
    batch.mark(0);
    until("a fetch under way", || log.state.lock().held_fetches > 0);
    batch.finish(BatchOutcome::Done);
    harness.batch_of([1]).finish(BatchOutcome::Done);
    harness.batch_of([2]).finish(BatchOutcome::Done);
    // It commits the records, reads what follows them, and waits.
    log.release();
    until("the commit", || harness.committed(0) == Some(6));
}
