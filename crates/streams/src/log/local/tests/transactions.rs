//! Transactions whose writer died somewhere in between.

use std::fs;

use super::*;
use crate::log::conformance::fixture::*;
use crate::log::local::partition_writer::PartitionWriter;
use crate::log::local::txn_log::{self, TxnEntry, TxnPartition};
use crate::log::local::{record_frame, topics};
use crate::log::{ErrorKind, LogError};

/// A log with one record in each of two partitions, and a transaction that is
/// decided: two more in each, and a commit.
fn decided(place: &TempLog) -> (Arc<LogDir>, Arc<dyn RecordLog>, TxnEntry) {
    let log = place.open(&|_| {});
    log.admin().unwrap().create(&new_topic("t", 2, &[])).unwrap();
    let settings = LogSettings::for_tests(&format!("log://{}", place.path().display()));
    let local = Arc::new(LogDir::open(&settings).unwrap());
    let mut txn = TxnEntry {
        group: "g".into(),
        commits: vec![commit("t", 0, 1, "noted")],
        partitions: Vec::new(),
        frames: Vec::new(),
    };
    for number in 0..2 {
        fill(&*log, "t", number, 0..1);
        let mut frames = Vec::new();
        for (at, value) in [b"1", b"2"].into_iter().enumerate() {
            let record = record("t", value);
            let start = frames.len();
            record_frame::encode(&mut frames, &record, record_frame::size(&record), 0);
            record_frame::seal(&mut frames[start..], 1 + at as i64);
        }
        let bytes = frames.len();
        txn.partitions.push(TxnPartition { topic: "t".into(), partition: number, first: 1, bytes });
        txn.frames.extend(frames);
    }
    fs::create_dir_all(local.group("g").join("members")).unwrap();
    txn.prepare(&local).unwrap();
    (local, log, txn)
}

/// All of it is there once, and what is written next comes after it.
fn check(log: &dyn RecordLog, place: &LogDir) {
    let producer = log.producer().unwrap();
    assert_eq!(send(&*producer, &record("t", b"3")).unwrap().offset, 3);
    for (number, wanted) in [(0, &["0", "1", "2", "3"][..]), (1, &["0", "1", "2"])] {
        assert_eq!(read(log, "t", number, Position::Earliest, wanted.len()), wanted);
    }
    assert_eq!(log.admin().unwrap().committed("g").unwrap(), [commit("t", 0, 1, "noted")]);
    assert_eq!(fs::read_dir(place.transactions()).unwrap().count(), 0);
}

#[test]
fn the_next_writer_completes_a_prepared_transaction() {
    let place = TempLog::new();
    let (local, log, _) = decided(&place);
    check(&*log, &local);
}

#[test]
fn a_group_sees_a_prepared_transaction_first() {
    let place = TempLog::new();
    let (local, log, _) = decided(&place);
    let mut member = TestMember::join(&*log, &GroupSettings::for_tests("g", &["t"]));
    member.has(2);
    assert!(member.has.iter().any(|one| one.committed == Some(1) && one.metadata == "noted"));
    check(&*log, &local);
}

#[test]
fn an_applied_transaction_is_not_applied_again() {
    let place = TempLog::new();
    let (local, log, txn) = decided(&place);
    assert!(txn_log::apply(&local, &txn).unwrap());
    check(&*log, &local);
}

#[test]
fn a_half_applied_transaction_is_completed() {
    // So many bytes of the second partition's records were written.
    for bytes in [0, 10, 37, 40, 74] {
        let place = TempLog::new();
        let (local, log, txn) = decided(&place);
        let config = topics::get(&local, "t").unwrap().config;
        let (one, two) = txn.frames.split_at(txn.partitions[0].bytes);
        for (number, frames) in [(0, one), (1, &two[..bytes])] {
            let mut writer = PartitionWriter::open(&local.partition("t", number)).unwrap();
            writer.refresh(&config).unwrap();
            writer.stage(frames, &config).unwrap();
        }
        check(&*log, &local);
    }
}

#[test]
fn a_damaged_transaction_is_moved_aside() {
    let place = TempLog::new();
    let (local, log, _) = decided(&place);
    let path = fs::read_dir(local.transactions()).unwrap().next().unwrap().unwrap().path();
    let mut bytes = fs::read(&path).unwrap();
    bytes[30] ^= 1;
    fs::write(&path, bytes).unwrap();
    assert_eq!(send(&*log.producer().unwrap(), &record("t", b"1")).unwrap().offset, 1);
    let left = fs::read_dir(local.transactions()).unwrap().next().unwrap().unwrap().path();
    assert_eq!(left.extension().unwrap(), "damaged");
}

#[test]
fn a_transaction_that_cannot_be_aborted_has_an_unknown_outcome() {
    let place = TempLog::new();
    let (local, _, txn) = decided(&place);
    let why = LogError::new(ErrorKind::Full, "no room");
    let path = txn.prepare(&local).unwrap();
    assert_eq!(txn_log::abort(&local, &path, why.clone()), why);
    // What cannot be removed as a file is.
    fs::create_dir(&path).unwrap();
    let error = txn_log::abort(&local, &path, why);
    assert_eq!(error.kind, ErrorKind::Unreachable);
    let path = path.to_str().unwrap();
    for part in ["no room", "unknown", path] {
        assert!(error.message.contains(part), "{error}");
    }
}
