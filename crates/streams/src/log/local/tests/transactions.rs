//! Transactions whose writer died somewhere in between.

use std::fs;

use super::*;
use crate::log::conformance::fixture::*;
use crate::log::local::intents::{self, Intent, Part};
use crate::log::local::writer::Writer;
use crate::log::local::{frame, topics};
use crate::log::{ErrorKind, LogError};

/// A log with one record in each of two partitions, and a transaction that is
/// decided: two more in each, and a commit.
fn decided(place: &Temporary) -> (Arc<Place>, Arc<dyn RecordLog>, Intent) {
    let log = place.open(&|_| {});
    log.admin().unwrap().create(&new_topic("t", 2, &[])).unwrap();
    let settings = LogSettings::new(&format!("log://{}", place.path().display()));
    let local = Arc::new(Place::open(&settings).unwrap());
    let mut intent = Intent {
        group: "g".into(),
        commits: vec![commit("t", 0, 1, "noted")],
        parts: Vec::new(),
        frames: Vec::new(),
    };
    for number in 0..2 {
        fill(&*log, "t", number, 0..1);
        let mut frames = Vec::new();
        for (at, value) in [b"1", b"2"].into_iter().enumerate() {
            let record = record("t", value);
            let start = frames.len();
            frame::encode(&mut frames, &record, frame::size(&record), 0);
            frame::seal(&mut frames[start..], 1 + at as i64);
        }
        let bytes = frames.len();
        intent.parts.push(Part { topic: "t".into(), partition: number, first: 1, bytes });
        intent.frames.extend(frames);
    }
    fs::create_dir_all(local.group("g").join("members")).unwrap();
    intent.write(&local).unwrap();
    (local, log, intent)
}

/// All of it is there once, and what is written next comes after it.
fn check(log: &dyn RecordLog, place: &Place) {
    let producer = log.producer().unwrap();
    assert_eq!(send(&*producer, &record("t", b"3")).unwrap().offset, 3);
    for (number, wanted) in [(0, &["0", "1", "2", "3"][..]), (1, &["0", "1", "2"])] {
        assert_eq!(read(log, "t", number, Position::Earliest, wanted.len()), wanted);
    }
    assert_eq!(log.admin().unwrap().committed("g").unwrap(), [commit("t", 0, 1, "noted")]);
    assert_eq!(fs::read_dir(place.transactions()).unwrap().count(), 0);
}

#[test]
fn what_was_decided_is_done_by_the_next() {
    let place = Temporary::new();
    let (local, log, _) = decided(&place);
    check(&*log, &local);
}

#[test]
fn a_group_sees_it_before_it_goes_on() {
    let place = Temporary::new();
    let (local, log, _) = decided(&place);
    let mut member = TestMember::join(&*log, &GroupSettings::new("g", &["t"]));
    member.has(2);
    assert!(member.has.iter().any(|one| one.committed == Some(1) && one.metadata == "noted"));
    check(&*log, &local);
}

#[test]
fn what_is_done_is_not_done_again() {
    let place = Temporary::new();
    let (local, log, intent) = decided(&place);
    assert!(intents::apply(&local, &intent).unwrap());
    check(&*log, &local);
}

#[test]
fn what_is_half_done_is_finished() {
    // So many bytes of the second partition's records were written.
    for bytes in [0, 10, 37, 40, 74] {
        let place = Temporary::new();
        let (local, log, intent) = decided(&place);
        let rules = topics::get(&local, "t").unwrap().rules;
        let (one, two) = intent.frames.split_at(intent.parts[0].bytes);
        for (number, frames) in [(0, one), (1, &two[..bytes])] {
            let mut writer = Writer::open(&local.partition("t", number)).unwrap();
            writer.refresh(&rules).unwrap();
            writer.stage(frames, &rules).unwrap();
        }
        check(&*log, &local);
    }
}

#[test]
fn a_damaged_one_is_put_aside() {
    let place = Temporary::new();
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
fn one_that_cannot_be_taken_back_has_an_unknown_end() {
    let place = Temporary::new();
    let (local, _, intent) = decided(&place);
    let why = LogError::new(ErrorKind::Full, "no room");
    let path = intent.write(&local).unwrap();
    assert_eq!(intents::take_back(&local, &path, why.clone()), why);
    // What cannot be removed as a file is.
    fs::create_dir(&path).unwrap();
    let error = intents::take_back(&local, &path, why);
    assert_eq!(error.kind, ErrorKind::Unreachable);
    let path = path.to_str().unwrap();
    for part in ["no room", "unknown", path] {
        assert!(error.message.contains(part), "{error}");
    }
}
