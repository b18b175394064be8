//! Damaged, lost and foreign content: what is whole is served, the rest is named, and the log can be
//! written to.

use super::*;
use crate::log::sqlite::batches;
use crate::log::{ErrorKind, LogError};

/// A partition of three batches with the records 0 to 11, four in each.
fn written() -> (TempLog, Arc<dyn RecordLog>) {
    let place = TempLog::new();
    let log = place.open(&|_| {});
    log.admin().unwrap().create(&new_topic("t", 1, &[])).unwrap();
    for batch in 0..3 {
        write(&*log, 4 * batch..4 * batch + 4);
    }
    (place, log)
}

/// Writes the values as one batch.
fn write(log: &dyn RecordLog, values: std::ops::Range<usize>) {
    let record = |value: usize| crate::record::OwnedRecord {
        topic: "t".into(),
        partition: Some(0),
        value: Some(value.to_string().into_bytes()),
        ..Default::default()
    };
    let records: Vec<_> = values.map(record).collect();
    let mut transactor = log.transactional_producer("one").unwrap();
    transactor.transact(&records, "g", b"", &[], &|| true).unwrap();
}

/// All readable values, and the errors.
fn read_all(log: &dyn RecordLog, from: Position) -> (Vec<usize>, Vec<LogError>) {
    let mut reader = log.reader(&partition("t", 0), from).unwrap();
    let (mut values, mut errors) = (Vec::new(), Vec::new());
    loop {
        // Each error comes once, and reading goes on.
        match reader.next(LIMITS, Duration::ZERO) {
            Ok(Some(chunk)) => {
                values.extend(texts(&chunk).iter().map(|text| text.parse::<usize>().unwrap()));
            }
            Ok(None) => return (values, errors),
            Err(error) => errors.push(error),
        }
    }
}

/// Writes one more record, which is served after the others.
fn goes_on(log: &dyn RecordLog, before: &[usize]) {
    write(log, 12..13);
    let (after, _) = read_all(log, Position::Earliest);
    assert_eq!(after, [before, &[12]].concat());
}

#[test]
fn a_lost_or_damaged_batch_is_passed_over_and_named() {
    let flips: Vec<_> = (0..4 * 22).step_by(7).map(|at| (at, "its checksum")).collect();
    for (batch, lost) in [(0, 0..4), (1, 4..8), (2, 8..12)] {
        for (at, what) in flips.iter().copied().chain([(usize::MAX, "are not there")]) {
            let (place, log) = written();
            let id = batches::ids(1).start + 4 * batch;
            place.change(&match at {
                usize::MAX => format!("DELETE FROM record_batches WHERE id={id}"),
                // Another byte than before, which may be one of a time or a checksum.
                at => format!(
                    "UPDATE record_batches SET frames=CAST(substr(frames, 1, {at}) ||
                     iif(substr(frames, {at}+1, 1)=x'a5', x'5a', x'a5') || substr(frames, {at}+2) AS BLOB) WHERE id={id}"
                ),
            });
            let (values, errors) = read_all(&*log, Position::Earliest);
            let left: Vec<_> = (0..12).filter(|value| !lost.contains(value)).collect();
            assert_eq!((&values, errors.len()), (&left, 1), "{at} {errors:?}");
            assert_eq!(errors[0].kind, ErrorKind::Corrupt);
            let gone = format!("t/0: records {} to {} are gone", lost.start, lost.end - 1);
            let name = place.database().display().to_string();
            for part in [&gone, &name, what] {
                assert!(errors[0].message.contains(part), "{}", errors[0]);
            }
            goes_on(&*log, &left);
        }
    }
}

#[test]
fn a_member_is_told_of_lost_records() {
    let (place, log) = written();
    place.change(&format!("DELETE FROM record_batches WHERE id={}", batches::ids(1).start + 4));
    let mut member = TestMember::join(&*log, &GroupSettings::for_tests("g", &["t"]));
    member.read(8);
    let lost = &member.lost[0];
    assert_eq!((member.lost.len(), lost.from, lost.until), (1, 4, 8));
}

#[test]
fn positions_and_limits_within_batches_are_exact() {
    let (_place, log) = written();
    for offset in 0..12 {
        let (values, _) = read_all(&*log, Position::Offset(offset));
        assert_eq!(values, (offset as usize..12).collect::<Vec<_>>());
    }
    let mut reader = log.reader(&partition("t", 0), Position::Offset(1)).unwrap();
    let mut next = |records, bytes| {
        let limits = crate::log::Limits { records, bytes };
        texts(&reader.next(limits, Duration::ZERO).unwrap().unwrap())
    };
    assert_eq!(next(1, 1 << 20), ["1"]);
    assert_eq!(next(4, 1 << 20), ["2", "3", "4", "5"]);
    // A record has 21 bytes, and the first one is returned whole.
    assert_eq!(next(100, 10), ["6"]);
    assert_eq!(next(100, 50), ["7", "8"]);
    assert_eq!(next(100, 1 << 20), ["9", "10", "11"]);
}

#[test]
fn a_damaged_database_is_said_and_its_file_left_alone() {
    let (place, log) = written();
    drop(log);
    let bytes = std::fs::read(place.database()).unwrap();
    std::fs::remove_file(place.path().join("log.db-wal")).ok();
    let garbage = vec![0x5a; bytes.len().max(4096)];
    std::fs::write(place.database(), &garbage).unwrap();
    let log = place.open(&|_| {});
    let error = log.admin().unwrap().topics().unwrap_err();
    assert_eq!(error.kind, ErrorKind::Corrupt, "{error}");
    let error = send(&*log.producer().unwrap(), &record("t", b"x")).unwrap_err();
    assert!(error.message.contains("log.db") && error.message.contains("damaged"), "{error}");
    assert_eq!(std::fs::read(place.database()).unwrap(), garbage);
}
