//! Producing.

use std::sync::Arc;
use std::time::Duration;

use super::fixture::*;
use crate::log::{ErrorKind, Position};
use crate::receipt::Receipt;
use crate::record::NewRecord;

/// Records come back as they were sent.
pub fn records_come_back_as_they_were_sent(fixture: &dyn LogFixture) {
    let log = log(fixture);
    let topic = topic(&*log, 1);
    let producer = log.producer().unwrap();
    let all: Vec<u8> = (0..=255).collect();
    let headers: [(&[u8], Option<&[u8]>); 4] =
        [(b"a", Some(b"1")), (b"a", Some(&all)), (b"b", None), (b"c", Some(b""))];
    let full = NewRecord {
        key: Some(&all),
        headers: &headers,
        timestamp_ms: Some(1_700_000_000_123),
        ..record(&topic, &all)
    };
    let tombstone = NewRecord { key: Some(b""), value: None, ..record(&topic, b"") };
    for one in [full, tombstone, record(&topic, b"")] {
        send(&*producer, &one).unwrap();
    }
    let mut reader = log.reader(&partition(&topic, 0), Position::Earliest).unwrap();
    let mut chunks = Vec::new();
    until("three records", || {
        chunks.extend(reader.next(LIMITS, MOMENT).unwrap());
        chunks.iter().map(|chunk| chunk.len()).sum::<usize>() == 3
    });
    let read: Vec<_> =
        chunks.iter().flat_map(|chunk| (0..chunk.len()).map(|at| chunk.record(at))).collect();
    assert_eq!((read[0].key(), read[0].value()), (Some(&all[..]), Some(&all[..])));
    assert_eq!(read[0].timestamp_ms(), 1_700_000_000_123);
    assert_eq!(read[0].headers().collect::<Vec<_>>(), headers);
    assert_eq!((read[1].key(), read[1].value()), (Some(&b""[..]), None));
    assert_eq!((read[2].key(), read[2].value()), (None, Some(&b""[..])));
    assert!(read[2].timestamp_ms() > 1_700_000_000_123, "now is later");
    assert_eq!(read[2].headers().count(), 0);
    assert!(read[0].offset() < read[1].offset() && read[1].offset() < read[2].offset());
}

/// A receipt tells partition and offset.
pub fn a_receipt_tells_partition_and_offset(fixture: &dyn LogFixture) {
    let log = log(fixture);
    let topic = topic(&*log, 2);
    let producer = log.producer().unwrap();
    let to = |number| NewRecord { partition: Some(number), ..record(&topic, b"x") };
    let first = send(&*producer, &to(1)).unwrap();
    let second = send(&*producer, &to(1)).unwrap();
    assert_eq!((first.partition, first.offset, second.offset), (1, 0, 1));
    assert_eq!(send(&*producer, &to(0)).unwrap().offset, 0);
}

/// Keys go to the same partitions as in kafka.
pub fn keys_go_to_the_same_partitions_as_in_kafka(fixture: &dyn LogFixture) {
    let log = log(fixture);
    let topic = topic(&*log, 10);
    let producer = log.producer().unwrap();
    // (murmur2 & 0x7fffffff) % 10 of vectors that Kafka's own tests have.
    let hashes: [(&str, i32); 4] = [
        ("21", -973_932_308),
        ("foobar", -790_332_482),
        ("abc", 479_470_107),
        ("1", -1_993_445_489),
    ];
    for (key, hash) in hashes {
        let keyed = NewRecord { partition: None, key: Some(key.as_bytes()), ..record(&topic, b"") };
        let placed = send(&*producer, &keyed).unwrap();
        assert_eq!(placed.partition, (hash & 0x7fff_ffff) % 10, "{key}");
    }
}

/// Order is kept.
pub fn order_is_kept(fixture: &dyn LogFixture) {
    let log = log(fixture);
    let topic = topic(&*log, 1);
    fill(&*log, &topic, 0, 0..5000);
    let read = read(&*log, &topic, 0, Position::Earliest, 5000);
    assert!(read.iter().enumerate().all(|(at, text)| *text == at.to_string()));
}

/// A partition can be named.
pub fn a_partition_can_be_named(fixture: &dyn LogFixture) {
    let log = log(fixture);
    let topic = topic(&*log, 3);
    let producer = log.producer().unwrap();
    for number in 0..3 {
        let one = NewRecord { partition: Some(number), key: Some(b"k"), ..record(&topic, b"") };
        assert_eq!(send(&*producer, &one).unwrap().partition, number);
    }
}

/// An unknown partition is refused.
pub fn an_unknown_partition_is_refused(fixture: &dyn LogFixture) {
    let log = log(fixture);
    let topic = topic(&*log, 2);
    let producer = log.producer().unwrap();
    let wrong = NewRecord { partition: Some(7), ..record(&topic, b"") };
    assert_eq!(send(&*producer, &wrong).unwrap_err().kind, ErrorKind::UnknownTopic);
}

/// A record too large is refused.
pub fn a_record_too_large_is_refused(fixture: &dyn LogFixture) {
    let log = log(fixture);
    let topic = topic(&*log, 1);
    let producer = log.producer().unwrap();
    let large = vec![0; 3 << 20];
    let error = send(&*producer, &record(&topic, &large)).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
    send(&*producer, &record(&topic, b"small")).unwrap();
}

/// A full buffer is reported.
pub fn a_full_buffer_is_reported(fixture: &dyn LogFixture) {
    let log = fixture.open(&|settings| settings.produce_buffer_records = 20);
    let topic = topic(&*log, 1);
    let producer = log.producer().unwrap();
    let receipt = Arc::new(Receipt::new(2000));
    let mut full = 0;
    for index in 0..2000 {
        let text = index.to_string();
        while let Err(error) =
            producer.send(&record(&topic, text.as_bytes()), Some((&receipt, index)))
        {
            assert_eq!(error.kind, ErrorKind::Full, "{error}");
            full += 1;
            assert!(producer.wait_room(PATIENCE));
        }
        assert!(producer.buffered() <= 21);
    }
    assert!(full > 0, "2,000 records went through a buffer of 20 without a wait");
    assert!(receipt.wait(PATIENCE));
    assert_eq!(receipt.failed(), 0);
    assert_eq!(read(&*log, &topic, 0, Position::Earliest, 2000).len(), 2000);
}

/// A flush empties the buffer.
pub fn a_flush_empties_the_buffer(fixture: &dyn LogFixture) {
    let log = log(fixture);
    let topic = topic(&*log, 1);
    let producer = log.producer().unwrap();
    assert_eq!(producer.flush(Duration::ZERO), 0);
    let receipt = Arc::new(Receipt::new(100));
    for index in 0..100 {
        producer.send(&record(&topic, b"x"), Some((&receipt, index))).unwrap();
    }
    assert_eq!(producer.flush(PATIENCE), 0);
    assert_eq!(producer.buffered(), 0);
    assert!(receipt.is_done());
}

/// Many threads produce.
pub fn many_threads_produce(fixture: &dyn LogFixture) {
    let log = log(fixture);
    let topic = topic(&*log, 1);
    let producer = log.producer().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (producer, topic) = (&producer, &topic);
            scope.spawn(move || {
                let receipt = Arc::new(Receipt::new(250));
                for index in 0..250 {
                    let text = (thread * 250 + index).to_string();
                    let record = record(topic, text.as_bytes());
                    producer.send(&record, Some((&receipt, index))).unwrap();
                }
                assert!(receipt.wait(PATIENCE));
                assert_eq!(receipt.failures(), []);
            });
        }
    });
    let values = read(&*log, &topic, 0, Position::Earliest, 1000);
    let numbers: Vec<usize> = values.iter().map(|text| text.parse().unwrap()).collect();
    for thread in 0..4 {
        let own: Vec<_> = numbers.iter().filter(|number| *number / 250 == thread).collect();
        assert_eq!(own.len(), 250);
        assert!(own.is_sorted(), "each thread's records are in its order");
    }
}

/// A receipt is not needed.
pub fn a_receipt_is_not_needed(fixture: &dyn LogFixture) {
    let log = log(fixture);
    let topic = topic(&*log, 1);
    let producer = log.producer().unwrap();
    producer.send(&record(&topic, b"quiet"), None).unwrap();
    assert_eq!(read(&*log, &topic, 0, Position::Earliest, 1), ["quiet"]);
}
