//! Files that are removed or added from outside while the log is used.

use std::fs;

use super::*;
use crate::log::{ErrorKind, LogError};

#[test]
fn a_log_that_is_only_looked_at_is_not_created() {
    let place = TempLog::new();
    let root = place.path().join("log");
    let log =
        LocalLog::open(&LogSettings::for_tests(&format!("log://{}", root.display()))).unwrap();
    let mut admin = log.admin().unwrap();
    assert!(admin.topics().unwrap().is_empty() && admin.groups().unwrap().is_empty());
    assert!(admin.topic("t").unwrap().is_none() && admin.committed("g").unwrap().is_empty());
    let error = log.reader(&partition("t", 0), Position::Earliest).err().unwrap();
    assert_eq!(error.kind, ErrorKind::UnknownTopic);
    assert!(!root.exists());
}

#[test]
fn a_removed_log_is_not_written_to_until_it_is_there_again() {
    let place = TempLog::new();
    let root = place.path().join("log");
    let log =
        LocalLog::open(&LogSettings::for_tests(&format!("log://{}", root.display()))).unwrap();
    let producer = log.producer().unwrap();
    send(&*producer, &record("t", b"old")).unwrap();
    let mut member = TestMember::join(&log, &GroupSettings::for_tests("g", &["t"]));
    member.read(1);
    let mut reader = log.reader(&partition("t", 0), Position::Latest).unwrap();
    let aside = place.path().join("aside");
    let gone = |error: &LogError| {
        error.kind == ErrorKind::Unreachable && error.message.contains("was removed or moved")
    };
    fs::rename(&root, &aside).unwrap();
    for topic in ["t", "u"] {
        assert!(gone(&send(&*producer, &record(topic, b"lost")).unwrap_err()));
    }
    assert!(gone(&reader.next(LIMITS, Duration::ZERO).unwrap_err()));
    until("the member says it", || {
        member.step(MOMENT);
        member.errors.iter().any(gone)
    });
    let settings = GroupSettings::for_tests("g", &["t"]);
    let notifier = Arc::new(EventFd::new().unwrap());
    assert!(gone(&log.member(&settings, &notifier).err().unwrap()));
    assert!(!root.exists());
    // It is put back.
    fs::rename(&aside, &root).unwrap();
    assert_eq!(send(&*producer, &record("t", b"again")).unwrap().offset, 1);
    let mut member = TestMember::join(&log, &settings);
    // Another one takes its place.
    fs::remove_dir_all(&root).unwrap();
    fs::create_dir(&root).unwrap();
    assert_eq!(send(&*producer, &record("t", b"new")).unwrap().offset, 0);
    send(&*producer, &record("u", b"x")).unwrap();
    until("the member says it", || {
        member.step(MOMENT);
        member.errors.iter().any(|error| error.message.contains("was replaced"))
    });
    let mut member = TestMember::join(&log, &settings);
    member.read(1);
    assert_eq!(member.values[0].2, "new");
    assert_eq!(read(&log, "t", 0, Position::Earliest, 1), ["new"]);
    assert_eq!(send(&*producer, &record("t", b"newer")).unwrap().offset, 1);
}
