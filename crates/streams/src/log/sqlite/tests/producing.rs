//! The producer's buffer and its thread.

use std::time::Duration;

use super::*;
use crate::log::{ErrorKind, Producer};
use crate::receipt::Receipt;
use crate::record::NewRecord;

fn send_until_full(producer: &dyn Producer, value: &[u8]) -> (usize, String) {
    let mut sent = 0;
    loop {
        match producer.send(&record("t", value), None) {
            Ok(()) => sent += 1,
            Err(error) => {
                assert_eq!(error.kind, ErrorKind::Full);
                return (sent, error.message);
            }
        }
    }
}

#[test]
fn memory_is_bounded_by_bytes() {
    let place = TempLog::new();
    let log = place.open(&|settings| settings.produce_buffer_bytes = 100_000);
    log.admin().unwrap().create(&new_topic("t", 1, &[])).unwrap();
    let producer = log.producer().unwrap();
    let stop = place.lock();
    let (sent, message) = send_until_full(&*producer, &[b'v'; 1000]);
    assert!((90..110).contains(&sent), "{sent} records of 1,020 bytes");
    assert!(message.contains("buffer is full"), "{message}");
    assert!(!producer.wait_room(Duration::from_millis(1)));
    assert_eq!(producer.flush(Duration::from_millis(1)), sent);
    drop(stop);
    assert!(producer.wait_room(PATIENCE));
    assert_eq!(producer.flush(PATIENCE), 0);
    assert_eq!(read(&*log, "t", 0, Position::Earliest, sent).len(), sent);
}

#[test]
fn a_wait_for_room_is_interrupted() {
    let place = TempLog::new();
    let log = place.open(&|settings| settings.produce_buffer_records = 10);
    log.admin().unwrap().create(&new_topic("t", 1, &[])).unwrap();
    let producer = log.producer().unwrap();
    let _stop = place.lock();
    send_until_full(&*producer, b"v");
    std::thread::scope(|scope| {
        let room = scope.spawn(|| producer.wait_room(PATIENCE * 2));
        let flush = scope.spawn(|| producer.flush(PATIENCE * 2));
        while !room.is_finished() || !flush.is_finished() {
            producer.interrupt();
            std::thread::yield_now();
        }
        assert!(!room.join().unwrap());
        assert_eq!(flush.join().unwrap(), 10);
    });
}

#[test]
fn a_long_wait_for_another_writer_is_an_error() {
    let place = TempLog::new();
    let log = place.open(&|settings| settings.delivery_timeout = Duration::from_millis(50));
    log.admin().unwrap().create(&new_topic("t", 1, &[])).unwrap();
    let producer = log.producer().unwrap();
    let stop = place.lock();
    let error = send(&*producer, &record("t", b"v")).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unreachable);
    assert!(error.message.contains("stopped"), "{error}");
    drop(stop);
    assert_eq!(send(&*producer, &record("t", b"v")).unwrap().offset, 0);
}

#[test]
fn sent_records_are_written_after_the_producer_is_dropped() {
    let place = TempLog::new();
    let log = place.open(&|_| {});
    let producer = log.producer().unwrap();
    let receipt = Arc::new(Receipt::new(1000));
    for index in 0..1000 {
        producer.send(&record("t", b"v"), Some((&receipt, index))).unwrap();
    }
    drop(producer);
    assert!(receipt.wait(PATIENCE));
    assert_eq!(receipt.failed(), 0);
}

#[test]
fn records_without_a_key_go_to_all_partitions() {
    let place = TempLog::new();
    let log = place.open(&|settings| settings.partitions = 4);
    let producer = log.producer().unwrap();
    let keyless = NewRecord { partition: None, ..record("t", b"v") };
    let mut seen = [0; 4];
    for _ in 0..40 {
        seen[send(&*producer, &keyless).unwrap().partition as usize] += 1;
    }
    assert!(seen.iter().all(|count| *count >= 5), "{seen:?}");
}

#[test]
fn two_producers_write_one_partition_by_turns() {
    let place = TempLog::new();
    let log = place.open(&|_| {});
    log.admin().unwrap().create(&new_topic("t", 1, &[])).unwrap();
    let producers = [log.producer().unwrap(), place.open(&|_| {}).producer().unwrap()];
    std::thread::scope(|scope| {
        for (at, producer) in producers.iter().enumerate() {
            scope.spawn(move || {
                for number in 0..300 {
                    let text = (at * 300 + number).to_string();
                    send(&**producer, &record("t", text.as_bytes())).unwrap();
                }
            });
        }
    });
    let values = read(&*log, "t", 0, Position::Earliest, 600);
    let numbers: Vec<usize> = values.iter().map(|text| text.parse().unwrap()).collect();
    for at in 0..2 {
        let own: Vec<_> = numbers.iter().filter(|number| **number / 300 == at).collect();
        assert!(own.len() == 300 && own.is_sorted());
    }
}

#[test]
fn sent_records_are_written_when_the_lock_is_free_again() {
    let place = TempLog::new();
    let log = place.open(&|_| {});
    log.admin().unwrap().create(&new_topic("t", 2, &[])).unwrap();
    let producer = log.producer().unwrap();
    let stop = place.lock();
    let receipt = Arc::new(Receipt::new(20));
    for number in 0..20 {
        let value = number.to_string();
        let to = NewRecord { partition: Some(number % 2), ..record("t", value.as_bytes()) };
        producer.send(&to, Some((&receipt, number as usize))).unwrap();
    }
    assert!(!receipt.wait(MOMENT * 5), "it waits longer than for one try");
    drop(stop);
    assert!(receipt.wait(PATIENCE) && receipt.failed() == 0);
    let even: Vec<_> = (0..20).step_by(2).map(|number| number.to_string()).collect();
    assert_eq!(read(&*log, "t", 0, Position::Earliest, 10), even);
}

#[test]
fn sqlites_log_is_copied_into_the_file_meanwhile() {
    const MIB: u64 = 1 << 20;
    let place = TempLog::new();
    let log = place.open(&|settings| settings.durable = false);
    log.admin().unwrap().create(&new_topic("t", 1, &[])).unwrap();
    let producer = log.producer().unwrap();
    let value = vec![7; MIB as usize / 2];
    let path = chaton_embedded::with_suffix(&place.database(), "-wal");
    let mut longest = 0;
    for _ in 0..320 {
        while producer.send(&record("t", &value), None).is_err() {
            assert!(producer.wait_room(PATIENCE));
        }
        longest = longest.max(std::fs::metadata(&path).unwrap().len());
    }
    assert_eq!(producer.flush(PATIENCE), 0);
    assert!(longest < 110 * MIB, "{} of 160 MiB", longest / MIB);
}

/// A reader that does not end its read, as one that was stopped: SQLite's log has a bound, and who waits is told why.
#[test]
fn producers_wait_while_a_reader_keeps_sqlites_log() {
    const MIB: u64 = 1 << 20;
    let place = TempLog::new();
    let log = place.open(&|settings| settings.durable = false);
    let hasty = place.open(&|settings| settings.delivery_timeout = MOMENT);
    log.admin().unwrap().create(&new_topic("t", 1, &[])).unwrap();
    let reader = rusqlite::Connection::open(place.database()).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM topics").unwrap();
    let producer = log.producer().unwrap();
    let value = vec![7; MIB as usize / 2];
    let mut sent = 0;
    while producer.send(&record("t", &value), None).is_ok() || producer.wait_room(MOMENT * 10) {
        sent += 1;
        assert!(sent < 1_000, "it is bounded");
    }
    let path = chaton_embedded::with_suffix(&place.database(), "-wal");
    let longest = std::fs::metadata(&path).unwrap().len();
    assert!((256 * MIB..272 * MIB).contains(&longest), "{} MiB", longest / MIB);
    let said = log.delivery_errors().next(PATIENCE).remove(0);
    assert_eq!((said.records, said.error.kind), (0, ErrorKind::Unreachable));
    assert!(said.error.message.contains("reading all the time"), "{}", said.error);
    let error = send(&*hasty.producer().unwrap(), &record("t", b"x")).unwrap_err();
    assert!(error.message.contains("has been reading all the time"), "{error}");
    reader.execute_batch("COMMIT").unwrap();
    assert_eq!(producer.flush(PATIENCE), 0);
    send(&*hasty.producer().unwrap(), &record("t", b"x")).unwrap();
    assert!(std::fs::metadata(&path).unwrap().len() < 272 * MIB);
}
