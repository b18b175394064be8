//! What is kept, and for how long; topics that change while they are used.

use std::time::Duration;

use super::*;
use crate::log::{ErrorKind, Limits, PartitionOffsets};
use crate::settings::DeclaredTopic;

fn state(log: &dyn RecordLog) -> PartitionOffsets {
    log.admin().unwrap().topic("t").unwrap().unwrap().partitions[0].clone()
}

fn numbers(values: std::ops::Range<usize>) -> Vec<String> {
    values.map(|value| value.to_string()).collect()
}

/// As if everything had been written an hour ago.
fn age(place: &TempLog) {
    place.change("UPDATE record_batches SET written_ms=written_ms-3600000");
}

/// Writes each value in a batch of its own.
fn write_one_by_one(log: &dyn RecordLog, values: std::ops::Range<usize>) {
    let producer = log.producer().unwrap();
    for value in values {
        send(&*producer, &record("t", value.to_string().as_bytes())).unwrap();
    }
}

#[test]
fn batches_over_the_size_limit_are_removed() {
    let place = TempLog::new();
    let log = place.open(&|_| {});
    let settings = [("retention.bytes", "600")];
    log.admin().unwrap().create(&new_topic("t", 1, &settings)).unwrap();
    write_one_by_one(&*log, 0..200);
    let kept = state(&*log);
    assert_eq!(kept.end, 200);
    assert!((170..198).contains(&kept.start), "{kept:?}");
    let values = read(&*log, "t", 0, Position::Earliest, (200 - kept.start) as usize);
    assert_eq!(values, numbers(kept.start as usize..200));
    // Asked for what is gone, it begins with what is kept.
    assert_eq!(read(&*log, "t", 0, Position::Offset(3), 1)[0], kept.start.to_string());
    assert_eq!(read(&*log, "t", 0, Position::Time(0), 1)[0], kept.start.to_string());
}

#[test]
fn a_reader_skips_expired_records() {
    let place = TempLog::new();
    let log = place.open(&|_| {});
    let settings = [("retention.bytes", "600")];
    log.admin().unwrap().create(&new_topic("t", 1, &settings)).unwrap();
    write_one_by_one(&*log, 0..20);
    let mut reader = log.reader(&partition("t", 0), Position::Earliest).unwrap();
    let few = Limits { records: 2, bytes: 1 << 20 };
    let first = texts(&reader.next(few, PATIENCE).unwrap().unwrap());
    assert_eq!(first, ["0", "1"]);
    write_one_by_one(&*log, 20..200);
    let mut values = Vec::new();
    until("the last record", || {
        // What was kept on purpose is no damage.
        values.extend(reader.next(LIMITS, MOMENT).unwrap().iter().flat_map(texts));
        values.last().is_some_and(|last| last == "199")
    });
    let start = state(&*log).start as usize;
    assert_eq!(values[values.len() - (200 - start)..], numbers(start..200));
}

#[test]
fn old_batches_are_removed_by_the_next_write() {
    let place = TempLog::new();
    let old =
        |settings: &mut LogSettings| settings.retention = Some(Duration::from_millis(600_000));
    let log = place.open(&old);
    log.admin().unwrap().create(&new_topic("t", 1, &[])).unwrap();
    write_one_by_one(&*log, 0..50);
    assert_eq!(state(&*log).start, 0);
    drop(log);
    age(&place);
    let log = place.open(&old);
    write_one_by_one(&*log, 50..51);
    let kept = state(&*log);
    assert_eq!((kept.start, kept.end), (50, 51), "all but the new one");
    assert_eq!(read(&*log, "t", 0, Position::Earliest, 1), ["50"]);
}

#[test]
fn nothing_is_removed_without_a_limit() {
    let place = TempLog::new();
    let log = place.open(&|_| {});
    log.admin().unwrap().create(&new_topic("t", 1, &[])).unwrap();
    write_one_by_one(&*log, 0..50);
    age(&place);
    write_one_by_one(&*place.open(&|_| {}), 50..51);
    assert_eq!(state(&*log).start, 0);
    // Writers use a setting that the topic gets later.
    let mut admin = log.admin().unwrap();
    admin.configure("t", &[("retention.ms".to_owned(), "600000".to_owned())].into()).unwrap();
    write_one_by_one(&*log, 51..52);
    assert!(state(&*log).start >= 40);
}

#[test]
fn a_producer_sees_a_topic_grow() {
    let place = TempLog::new();
    let log = place.open(&|_| {});
    log.admin().unwrap().create(&new_topic("t", 1, &[])).unwrap();
    let producer = log.producer().unwrap();
    send(&*producer, &record("t", b"x")).unwrap();
    log.admin().unwrap().grow("t", 3).unwrap();
    send(&*producer, &record("t", b"x")).unwrap();
    let last = crate::record::NewRecord { partition: Some(2), ..record("t", b"x") };
    assert_eq!(send(&*producer, &last).unwrap().partition, 2);
}

#[test]
fn a_producer_creates_a_deleted_topic_again() {
    let place = TempLog::new();
    let log = place.open(&|settings| settings.partitions = 2);
    let producer = log.producer().unwrap();
    send(&*producer, &record("t", b"old")).unwrap();
    assert_eq!(log.admin().unwrap().topic("t").unwrap().unwrap().partitions.len(), 2);
    log.admin().unwrap().delete("t").unwrap();
    assert_eq!(send(&*producer, &record("t", b"new")).unwrap().offset, 0);
    assert_eq!(read(&*log, "t", 0, Position::Earliest, 1), ["new"]);
}

#[test]
fn a_topic_is_created_again_with_as_many_partitions() {
    let place = TempLog::new();
    let log = place.open(&|settings| settings.partitions = 1);
    log.admin().unwrap().create(&new_topic("t", 3, &[])).unwrap();
    let producer = log.producer().unwrap();
    let last = crate::record::NewRecord { partition: Some(2), ..record("t", b"x") };
    send(&*producer, &last).unwrap();
    log.admin().unwrap().delete("t").unwrap();
    assert_eq!(send(&*producer, &last).unwrap().offset, 0);
    assert_eq!(log.admin().unwrap().topic("t").unwrap().unwrap().partitions.len(), 3);
}

#[test]
fn the_first_record_creates_a_topic_as_declared() {
    let place = TempLog::new();
    let log = place.open(&|settings| {
        let wide = DeclaredTopic { partitions: Some(7), ..Default::default() };
        settings.topics = [("wide".to_owned(), wide)].into();
    });
    let producer = log.producer().unwrap();
    for (topic, count) in [("wide", 7), ("other", 4)] {
        send(&*producer, &record(topic, b"x")).unwrap();
        assert_eq!(log.admin().unwrap().topic(topic).unwrap().unwrap().partitions.len(), count);
    }
}

#[test]
fn an_offset_past_the_end_cannot_be_committed() {
    let place = TempLog::new();
    let log = place.open(&|_| {});
    let mut admin = log.admin().unwrap();
    admin.create(&new_topic("t", 1, &[])).unwrap();
    write_one_by_one(&*log, 0..3);
    for offset in [-1, 4, i64::MAX] {
        let error = admin.set_committed("g", &[commit("t", 0, offset, "")]).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Invalid);
        assert!(error.message.contains("t/0"), "{error}");
    }
    assert_eq!(admin.committed("g").unwrap(), []);
    for offset in [0, 3] {
        admin.set_committed("g", &[commit("t", 0, offset, "")]).unwrap();
    }
}

#[test]
fn commits_are_deleted_with_their_topic() {
    let place = TempLog::new();
    let log = place.open(&|_| {});
    let mut admin = log.admin().unwrap();
    for topic in ["t", "u"] {
        admin.create(&new_topic(topic, 1, &[])).unwrap();
        fill(&*log, topic, 0, 0..3);
    }
    admin.set_committed("g", &[commit("t", 0, 2, ""), commit("u", 0, 1, "")]).unwrap();
    admin.delete("t").unwrap();
    assert_eq!(admin.committed("g").unwrap(), [commit("u", 0, 1, "")]);
}
