//! Reading outside of groups.

use std::time::Instant;

use super::fixture::*;
use crate::log::{ErrorKind, Limits, Position};
use crate::record::NewRecord;

/// Reading begins at the given position.
pub fn reading_begins_at_the_given_position(fixture: &dyn LogFixture) {
    let log = log(fixture);
    let topic = topic(&*log, 1);
    fill(&*log, &topic, 0, 0..10);
    let from = |position| read(&*log, &topic, 0, position, 1)[0].clone();
    assert_eq!(from(Position::Earliest), "0");
    assert_eq!(from(Position::Offset(7)), "7");
    let mut reader = log.reader(&partition(&topic, 0), Position::Latest).unwrap();
    assert!(reader.next(LIMITS, MOMENT).unwrap().is_none());
    fill(&*log, &topic, 0, 10..11);
    let mut seen = Vec::new();
    until("the new record", || {
        seen.extend(reader.next(LIMITS, MOMENT).unwrap().iter().flat_map(texts));
        !seen.is_empty()
    });
    assert_eq!(seen, ["10"]);
}

/// Reading begins at a time.
pub fn reading_begins_at_a_time(fixture: &dyn LogFixture) {
    let log = log(fixture);
    let topic = topic(&*log, 1);
    let producer = log.producer().unwrap();
    let base = 1_700_000_000_000;
    for number in 0..10i64 {
        let text = number.to_string();
        let timed = NewRecord {
            timestamp_ms: Some(base + number * 1000),
            ..record(&topic, text.as_bytes())
        };
        send(&*producer, &timed).unwrap();
    }
    let from = |ms| read(&*log, &topic, 0, Position::Time(ms), 1)[0].clone();
    assert_eq!(from(base - 5), "0");
    assert_eq!(from(base + 4000), "4");
    assert_eq!(from(base + 4001), "5");
    let mut reader = log.reader(&partition(&topic, 0), Position::Time(base + 9001)).unwrap();
    assert!(reader.next(LIMITS, MOMENT).unwrap().is_none());
}

/// Limits hold.
pub fn limits_hold(fixture: &dyn LogFixture) {
    let log = log(fixture);
    let topic = topic(&*log, 1);
    fill(&*log, &topic, 0, 0..100);
    for limits in [Limits { records: 7, bytes: 1 << 20 }, Limits { records: 100, bytes: 1 }] {
        let mut reader = log.reader(&partition(&topic, 0), Position::Earliest).unwrap();
        let mut values = Vec::new();
        until("all records", || {
            if let Some(chunk) = reader.next(limits, MOMENT).unwrap() {
                assert!(chunk.len() <= limits.records);
                assert!(limits.bytes > 1 || chunk.len() == 1, "{} records", chunk.len());
                values.extend(texts(&chunk));
            }
            values.len() >= 100
        });
        assert!(values.iter().enumerate().all(|(at, text)| *text == at.to_string()));
    }
}

/// A wait ends with a record.
pub fn a_wait_ends_with_a_record(fixture: &dyn LogFixture) {
    let log = log(fixture);
    let topic = topic(&*log, 1);
    let mut reader = log.reader(&partition(&topic, 0), Position::Earliest).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(move || reader.next(LIMITS, PATIENCE).unwrap());
        fill(&*log, &topic, 0, 0..1);
        assert_eq!(texts(&waiting.join().unwrap().unwrap()), ["0"]);
    });
}

/// A wait is interrupted.
pub fn a_wait_is_interrupted(fixture: &dyn LogFixture) {
    let log = log(fixture);
    let topic = topic(&*log, 1);
    let mut reader = log.reader(&partition(&topic, 0), Position::Earliest).unwrap();
    let interrupter = reader.interrupter();
    let began = Instant::now();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(move || reader.next(LIMITS, PATIENCE * 2).unwrap());
        interrupter.notify();
        assert!(waiting.join().unwrap().is_none());
    });
    assert!(began.elapsed() < PATIENCE);
}

/// A wait ends in time.
pub fn a_wait_ends_in_time(fixture: &dyn LogFixture) {
    let log = log(fixture);
    let topic = topic(&*log, 1);
    let mut reader = log.reader(&partition(&topic, 0), Position::Earliest).unwrap();
    let began = Instant::now();
    assert!(reader.next(LIMITS, MOMENT).unwrap().is_none());
    assert!(began.elapsed() >= MOMENT && began.elapsed() < PATIENCE);
}

/// An unknown partition is not read.
pub fn an_unknown_partition_is_not_read(fixture: &dyn LogFixture) {
    let log = log(fixture);
    let topic = topic(&*log, 1);
    for wrong in [partition(&name("nowhere"), 0), partition(&topic, 5)] {
        let read = log
            .reader(&wrong, Position::Earliest)
            .and_then(|mut reader| reader.next(LIMITS, PATIENCE));
        assert_eq!(read.err().map(|error| error.kind), Some(ErrorKind::UnknownTopic));
    }
}

/// A large record is read whole.
pub fn a_large_record_is_read_whole(fixture: &dyn LogFixture) {
    let log = log(fixture);
    let topic = topic(&*log, 1);
    let producer = log.producer().unwrap();
    let large: Vec<u8> = (0..900_000).map(|at| (at % 251) as u8).collect();
    for value in [&b"before"[..], &large, b"after"] {
        send(&*producer, &record(&topic, value)).unwrap();
    }
    let mut reader = log.reader(&partition(&topic, 0), Position::Earliest).unwrap();
    let mut lengths = Vec::new();
    until("three records", || {
        if let Some(chunk) = reader.next(Limits { records: 10, bytes: 1000 }, MOMENT).unwrap() {
            let value = |at| chunk.record(at).value().unwrap();
            lengths.extend((0..chunk.len()).map(|at| value(at).len()));
            assert!((0..chunk.len()).all(|at| value(at).len() < 1000 || value(at) == large));
        }
        lengths.len() >= 3
    });
    assert_eq!(lengths, [6, 900_000, 5]);
}
