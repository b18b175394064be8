//! The engine on the local log, with real files and several members.

use chaton_core::engine::Engine as _;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::engine_support::feed::Queue;
use crate::engine_support::{failed, offsets, route, settings, until, LONG};
use chaton_streams::batch::{BatchKind, BatchOutcome};
use chaton_streams::engine::{Engine, EngineSettings, OnGap, RecordOrder, RouteSettings};
use chaton_streams::log::{self, Commit, NewTopic, Producer, RecordLog};
use chaton_streams::receipt::Receipt;
use chaton_streams::record::OwnedRecord;
use chaton_streams::settings::LogSettings;
use rusqlite::Connection;

/// A folder with a log, and a producer.
struct Place {
    folder: tempfile::TempDir,
    log: Arc<dyn RecordLog>,
    producer: Arc<dyn Producer>,
}

impl Place {
    fn new(partitions: i32) -> Self {
        Self::with_settings(partitions, BTreeMap::new())
    }

    fn with_settings(partitions: i32, settings: BTreeMap<String, String>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let log = open(folder.path());
        let topic = |name: &str| NewTopic {
            name: name.into(),
            partitions: Some(partitions),
            replication: None,
            settings: settings.clone(),
        };
        log.admin().unwrap().create(&topic("events")).unwrap();
        let producer = log.producer().unwrap();
        Self { folder, log, producer }
    }

    /// Writes this many records, one key for every ten, and at most ten in a batch.
    fn write(&self, count: usize) {
        for first in (0..count).step_by(10) {
            let last = count.min(first + 10);
            let receipt = Arc::new(Receipt::new(last - first));
            for n in first..last {
                let (key, value) =
                    (Some((n % 10).to_string().into_bytes()), Some(n.to_string().into()));
                let record =
                    OwnedRecord { topic: "events".into(), key, value, ..OwnedRecord::default() };
                record.with(|it| self.producer.send(it, Some((&receipt, n - first)))).unwrap();
            }
            assert!(receipt.wait(LONG) && receipt.failed() == 0, "{:?}", receipt.failures());
        }
    }

    /// The batches of the partition: id, first offset and last offset.
    fn batches(&self) -> Vec<(i64, i64, i64)> {
        let conn = Connection::open(self.folder.path().join("log.db")).unwrap();
        let mut rows = conn.prepare("SELECT id, count FROM record_batches ORDER BY id").unwrap();
        let rows = rows.query_map([], |row| {
            let (id, count): (i64, i64) = (row.get(0)?, row.get(1)?);
            let first = id & ((1 << 42) - 1);
            Ok((id, first, first + count - 1))
        });
        rows.unwrap().map(Result::unwrap).collect()
    }

    /// Changes a batch from outside; returns its first and its last offset.
    fn damage(&self, batch: (i64, i64, i64), sql: &str) -> (i64, i64) {
        let conn = Connection::open(self.folder.path().join("log.db")).unwrap();
        conn.busy_timeout(LONG).unwrap();
        assert_eq!(conn.execute(sql, [batch.0]).unwrap(), 1);
        (batch.1, batch.2)
    }

    /// Another engine on the same log, like another process.
    fn engine(&self, settings: EngineSettings) -> (Engine, Arc<Queue>) {
        let (log, queue) = (open(self.folder.path()), Queue::new(100));
        let producing = log.clone();
        let producer = Arc::new(move || producing.producer());
        (Engine::start(settings, log, producer, queue.clone()).unwrap(), queue)
    }

    fn committed(&self) -> i64 {
        let list = self.log.admin().unwrap().committed("app").unwrap();
        list.iter().filter(|commit| commit.topic == "events").map(|commit| commit.offset).sum()
    }
}

fn open(folder: &std::path::Path) -> Arc<dyn RecordLog> {
    let mut settings = LogSettings::for_tests(&format!("log://{}", folder.display()));
    settings.durable = false;
    log::open(&settings).unwrap()
}

/// Finishes batches with this many records, or until the queue is closed; returns how many there
/// were.
fn run(queue: &Queue, most: usize) -> usize {
    let mut count = 0;
    while count < most {
        let Some(batch) = queue.take(LONG) else { break };
        count += batch.len();
        batch.finish(BatchOutcome::Done);
    }
    count
}

fn end(engine: &Engine, queue: &Queue) {
    engine.quiet();
    while let Some(batch) = queue.take(Duration::from_millis(20)) {
        assert_ne!(batch.kind(), BatchKind::Records);
        batch.finish(BatchOutcome::Done);
    }
    assert!(engine.wait_idle(LONG));
    engine.stop();
}

#[test]
fn all_records_are_read_and_committed_once() {
    let place = Place::new(3);
    place.write(1_000);
    let (engine, queue) = place.engine(settings(vec![route("events")]));
    assert_eq!(run(&queue, 1_000), 1_000);
    place.write(500);
    assert_eq!(run(&queue, 500), 500);
    until("the commits", || place.committed() == 1_500);
    end(&engine, &queue);
    assert!(engine.stats().totals.wakes < 1_500, "{:?}", engine.stats().totals);
    let (engine, queue) = place.engine(settings(vec![route("events")]));
    place.write(100);
    assert_eq!(run(&queue, 100), 100);
    end(&engine, &queue);
    assert_eq!(place.committed(), 1_600);
}

/// About 30 records are kept.
fn short_retention() -> BTreeMap<String, String> {
    [("retention.bytes".to_owned(), "700".to_owned())].into()
}

#[test]
fn records_that_retention_removed_before_they_were_read_are_reported_and_counted() {
    let place = Place::with_settings(1, short_retention());
    place.write(10);
    let (engine, queue) = place.engine(settings(vec![route("events")]));
    assert_eq!(run(&queue, 10), 10);
    until("the commits", || place.committed() == 10);
    end(&engine, &queue);
    assert_eq!(engine.stats().totals.skipped, 0);
    place.write(200);
    let (engine, queue) = place.engine(settings(vec![route("events")]));
    let mut read = Vec::new();
    while read.last() != Some(&209) {
        let batch = queue.take(LONG).unwrap();
        read.extend(offsets(&batch));
        batch.finish(BatchOutcome::Done);
    }
    end(&engine, &queue);
    let first = read[0];
    assert!(first > 10, "{first}");
    assert_eq!(engine.stats().totals.skipped, first as u64 - 10);
    let line = format!("events/0: offsets 10 to {} ({}) were removed", first - 1, first - 10);
    assert!(queue.lines().iter().any(|warned| warned.contains(&line)), "{:?}", queue.lines());
}

#[test]
fn a_running_consumer_slower_than_retention_reads_the_rest_in_order() {
    let place = Place::with_settings(1, short_retention());
    place.write(10);
    let (engine, queue) = place.engine(settings(vec![route("events")]));
    let (mut read, mut written) = (Vec::new(), 10);
    while read.last() != Some(&(written - 1)) {
        let batch = queue.take(LONG).unwrap();
        if written < 1_010 {
            // More is written while it runs than is kept.
            place.write(100);
            written += 100;
        }
        read.extend(offsets(&batch));
        batch.finish(BatchOutcome::Done);
    }
    until("the commits", || place.committed() == written);
    end(&engine, &queue);
    assert!(read.windows(2).all(|pair| pair[0] < pair[1]), "{read:?}");
    let gone = written as usize - read.len();
    assert!(gone > 0, "retention was not faster");
    assert_eq!(engine.stats().totals.skipped, gone as u64);
    let warned = queue.lines();
    let warned = warned.iter().filter(|line| line.contains("were removed by retention"));
    assert!(warned.count() > 0);
}

#[test]
fn a_partition_stops_at_removed_records_until_its_offset_is_set() {
    let place = Place::with_settings(1, short_retention());
    let start = || {
        let stops = RouteSettings { on_gap: OnGap::Stop, ..route("events") };
        place.engine(settings(vec![stops]))
    };
    place.write(10);
    let (engine, queue) = start();
    assert_eq!(run(&queue, 10), 10);
    until("the commits", || place.committed() == 10);
    end(&engine, &queue);
    place.write(200);
    let (engine, queue) = start();
    let stats = || engine.stats().groups.remove(0);
    until("the stop", || stats().partitions.iter().any(|one| one.state == "stopped"));
    let mut admin = place.log.admin().unwrap();
    let first = admin.topic("events").unwrap().unwrap().partitions[0].start;
    assert!(first > 10, "{first}");
    let line = format!("events/0: offsets 10 to {} ({}) were removed", first - 1, first - 10);
    assert!(queue.lines().iter().any(|warned| warned.contains(&line)), "{:?}", queue.lines());
    let trouble = format!("events/0 has stopped: offsets 10 to {} were removed", first - 1);
    assert!(stats().trouble.is_some_and(|shown| shown.starts_with(&trouble)));
    assert_eq!(stats().partitions[0].lag, 210 - first);
    assert_eq!((queue.len(), engine.stats().totals.skipped), (0, 0));
    end(&engine, &queue);
    assert_eq!(place.committed(), 10);
    let commit =
        Commit { topic: "events".into(), partition: 0, offset: first, metadata: String::new() };
    admin.set_committed("app", &[commit]).unwrap();
    let (engine, queue) = start();
    let batch = queue.take(LONG).unwrap();
    assert_eq!(offsets(&batch)[0], first);
    batch.finish(BatchOutcome::Done);
    run(&queue, 210 - first as usize - batch.len());
    until("the commits", || place.committed() == 210);
    end(&engine, &queue);
}

/// Ways to lose the records of a batch.
const LOSSES: [&str; 3] = [
    "DELETE FROM record_batches WHERE id=?1",
    "UPDATE record_batches SET crc=crc+1 WHERE id=?1",
    "UPDATE record_batches SET frames=x'ffff' WHERE id=?1",
];

#[test]
fn a_partition_stops_at_lost_and_damaged_records() {
    for lose in LOSSES {
        let place = Place::new(1);
        place.write(100);
        let (first, last) = place.damage(place.batches()[2], lose);
        let stops = RouteSettings { on_gap: OnGap::Stop, ..route("events") };
        let (engine, queue) = place.engine(settings(vec![stops]));
        assert_eq!(run(&queue, first as usize), first as usize);
        let stats = || engine.stats().groups.remove(0);
        until("the stop", || stats().partitions.iter().any(|one| one.state == "stopped"));
        until("the commit", || place.committed() == first);
        let commits = || place.log.admin().unwrap().committed("app").unwrap();
        let shown = format!(":stopped:{first}-{last}");
        until("the mark", || commits()[0].metadata.ends_with(&shown));
        let found = stats();
        assert_eq!(found.partitions[0].missing, Some((first, last + 1)));
        assert_eq!(found.partitions[0].lag, 99 - last);
        assert!(found.trouble.unwrap().contains("are gone: /"));
        end(&engine, &queue);
        assert_eq!((queue.len(), place.committed()), (0, first));
        let lines = queue.lines();
        let line = format!("events/0: offsets {first} to {last} ({}) are gone", last - first + 1);
        assert!(lines.iter().any(|it| it.contains(&line) && it.contains("it stops")), "{lines:?}");
        assert!(!lines.iter().any(|it| it.contains("trying again")), "{lines:?}");
    }
}

#[test]
fn a_group_that_goes_on_says_which_records_are_gone() {
    for lose in LOSSES {
        let place = Place::new(1);
        place.write(100);
        let (first, last) = place.damage(place.batches()[2], lose);
        let lost = last - first + 1;
        let (engine, queue) = place.engine(settings(vec![route("events")]));
        assert_eq!(run(&queue, 100 - lost as usize), 100 - lost as usize);
        until("the commits", || place.committed() == 100);
        end(&engine, &queue);
        assert_eq!(engine.stats().totals.skipped, lost as u64);
        let lines = queue.lines();
        let line = format!("events/0: offsets {first} to {last} ({lost}) are gone");
        let next = format!("it continues at {}", last + 1);
        assert!(lines.iter().any(|it| it.contains(&line) && it.contains(&next)), "{lines:?}");
        assert!(!lines.iter().any(|it| it.contains("trying again")), "{lines:?}");
    }
}

#[test]
fn records_that_are_lost_at_the_end_are_passed_over_at_once() {
    let place = Place::new(1);
    place.write(100);
    let (engine, queue) =
        place.engine(EngineSettings { begins_held: true, ..settings(vec![route("events")]) });
    // The end of the partition is still known.
    let (first, _) = place.damage(*place.batches().last().unwrap(), LOSSES[0]);
    engine.resume();
    assert_eq!(run(&queue, first as usize), first as usize);
    until("the commits", || place.committed() == 100);
    assert_eq!(engine.stats().groups[0].partitions[0].lag, 0);
    end(&engine, &queue);
}

#[test]
fn two_members_share_partitions_and_take_over() {
    let place = Place::new(4);
    let (first, first_queue) = place.engine(settings(vec![route("events")]));
    until("all partitions", || partitions(&first) == 4);
    let (second, second_queue) = place.engine(settings(vec![route("events")]));
    until("half of them", || partitions(&first) == 2 && partitions(&second) == 2);
    place.write(400);
    let run = |queue: Arc<Queue>| std::thread::spawn(move || run(&queue, usize::MAX));
    let (one, two) = (run(first_queue.clone()), run(second_queue.clone()));
    until("the commits", || place.committed() == 400);
    second.quiet();
    assert!(second.wait_idle(LONG));
    second.stop();
    until("all partitions again", || partitions(&first) == 4);
    place.write(400);
    until("the commits", || place.committed() == 800);
    first.quiet();
    assert!(first.wait_idle(LONG));
    first.stop();
    first_queue.close();
    second_queue.close();
    assert_eq!(one.join().unwrap() + two.join().unwrap(), 800);
}

#[test]
fn a_drained_group_is_left_while_another_still_runs() {
    let place = Place::new(2);
    place.write(20);
    let mut both = settings(vec![route("events")]);
    both.groups.extend(settings(vec![route("events")]).groups);
    both.groups[1].group.name = "slow".into();
    let (engine, queue) = place.engine(both);
    let mut slow = Vec::new();
    let mut done = 0;
    while done < 20 || slow.len() < 2 {
        let batch = queue.take(LONG).unwrap();
        if batch.route() == 1 {
            slow.push(batch);
        } else {
            done += batch.len();
            batch.finish(BatchOutcome::Done);
        }
    }
    engine.quiet();
    for _ in 0..2 {
        let notice = queue.take(LONG).unwrap();
        assert_eq!((notice.kind(), notice.route()), (BatchKind::Shutdown, 0));
        notice.finish(BatchOutcome::Done);
    }
    let members = |name: &str| {
        let groups = place.log.admin().unwrap().groups().unwrap();
        groups.iter().find(|group| group.name == name).map_or(0, |group| group.members.len())
    };
    until("leaving", || members("app") == 0);
    assert_eq!((place.committed(), members("slow")), (20, 1));
    slow.iter().for_each(|batch| drop(batch.finish(BatchOutcome::Done)));
    end(&engine, &queue);
    assert_eq!(members("slow"), 0);
}

fn partitions(engine: &Engine) -> usize {
    let group = engine.stats().groups.remove(0);
    group.partitions.iter().filter(|partition| partition.state != "revoked").count()
}

#[test]
fn a_dead_letter_and_a_transaction_are_written_to_the_same_log() {
    let place = Place::new(1);
    place.write(30);
    let by_key = RouteSettings {
        order: RecordOrder::Key,
        concurrency: 3,
        attempts_max: Some(1),
        dead_letter: Some("events.dead".into()),
        transactional: true,
        ..route("events")
    };
    let (engine, queue) = place.engine(settings(vec![by_key]));
    let mut done = 0;
    while done < 29 {
        let batch = queue.take(LONG).unwrap();
        if offsets(&batch).contains(&7) {
            batch.finish(failed("Poison"));
            continue;
        }
        let last = *offsets(&batch).last().unwrap();
        let copy = |_: &i64| OwnedRecord { topic: "copies".into(), ..OwnedRecord::default() };
        batch.transact(offsets(&batch).iter().map(copy).collect(), Some(last)).unwrap();
        done += batch.len();
        batch.finish(BatchOutcome::Done);
    }
    until("the commits", || place.committed() == 30);
    end(&engine, &queue);
    let mut admin = place.log.admin().unwrap();
    let count = |topic: Option<log::TopicDescription>| -> i64 {
        topic.unwrap().partitions.iter().map(|partition| partition.end - partition.start).sum()
    };
    assert_eq!(count(admin.topic("copies").unwrap()), 29);
    assert_eq!(count(admin.topic("events.dead").unwrap()), 1);
}
