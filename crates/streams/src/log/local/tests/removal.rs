//! Files that are removed or added from outside while the log is used.

use std::fs;

use super::*;
use crate::log::conformance::fixture::*;
use crate::log::local::partition_cursor::PartitionCursor;
use crate::log::local::partition_writer::PartitionWriter;
use crate::log::local::{files, record_frame, segment, topics};
use crate::log::{ErrorKind, Limits, LogError};

fn local(place: &TempLog) -> Arc<LogDir> {
    let settings = LogSettings::for_tests(&format!("log://{}", place.path().display()));
    Arc::new(LogDir::open(&settings).unwrap())
}

#[test]
fn a_removed_partition_starts_again() {
    let place = TempLog::new();
    let log = place.open(&|_| {});
    log.admin().unwrap().create(&new_topic("t", 1, &[])).unwrap();
    let producer = log.producer().unwrap();
    let mut member = TestMember::join(&*log, &GroupSettings::for_tests("g", &["t"]));
    let folder = place.path().join("topics/t/0");
    let ways: [&dyn Fn(); 3] = [
        &|| fs::remove_dir_all(&folder).unwrap(),
        &|| fs::rename(&folder, place.path().join("aside")).unwrap(),
        &|| {
            fs::remove_dir_all(&folder).unwrap();
            fs::create_dir(&folder).unwrap();
        },
    ];
    for (round, remove) in ways.iter().enumerate() {
        let text = round.to_string();
        assert_eq!(send(&*producer, &record("t", text.as_bytes())).unwrap().offset, 0);
        assert_eq!(read(&*log, "t", 0, Position::Earliest, 1), [text]);
        member.read(round + 1);
        remove();
    }
    assert_eq!(send(&*producer, &record("t", b"3")).unwrap().offset, 0);
    assert_eq!(read(&*log, "t", 0, Position::Earliest, 1), ["3"]);
}

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
    fs::remove_dir_all(root.join("transactions")).unwrap();
    assert_eq!(send(&*producer, &record("t", b"newer")).unwrap().offset, 1);
}

#[test]
fn a_file_of_an_impossible_offset_is_left_alone() {
    let place = TempLog::new();
    let log = place.open(&|_| {});
    log.admin().unwrap().create(&new_topic("t", 1, &[])).unwrap();
    fill(&*log, "t", 0, 0..2);
    let foreign = segment::path(&place.path().join("topics/t/0"), i64::MAX);
    fs::write(&foreign, "foreign").unwrap();
    let sent = send(&*place.open(&|_| {}).producer().unwrap(), &record("t", b"2")).unwrap();
    assert_eq!(sent.offset, 2);
    let mut cursor =
        PartitionCursor::open(&local(&place), &partition("t", 0), Position::Earliest).unwrap();
    assert_eq!(texts(&cursor.fetch(LIMITS).unwrap().unwrap()), ["0", "1", "2"]);
    assert_eq!((cursor.damage.len(), cursor.damage[0].kind), (1, ErrorKind::Corrupt));
    assert!(cursor.damage[0].message.contains(foreign.to_str().unwrap()));
    assert_eq!(fs::read(foreign).unwrap(), b"foreign");
}

#[test]
fn records_of_a_killed_writer_are_recovered() {
    let place = TempLog::new();
    let log = place.open(&|_| {});
    log.admin().unwrap().create(&new_topic("t", 1, &[])).unwrap();
    fill(&*log, "t", 0, 0..1);
    let local = local(&place);
    let leave = |value: &[u8], offset| {
        let mut frames = Vec::new();
        let record = record("t", value);
        record_frame::encode(&mut frames, &record, record_frame::size(&record), 0);
        record_frame::seal(&mut frames, offset);
        let config = topics::get(&local, "t").unwrap().config;
        let mut writer = PartitionWriter::open(&local.partition("t", 0)).unwrap();
        writer.refresh(&config).unwrap();
        writer.stage(&frames, &config).unwrap();
    };
    leave(b"1", 1);
    files::tests::take_notes();
    assert_eq!(log.admin().unwrap().topic("t").unwrap().unwrap().partitions[0].end, 2);
    let segment = "synced 00000000000000000000.log";
    assert_eq!(files::tests::take_notes(), [segment, "synced 0"], "before readers see them");
    leave(b"2", 2);
    assert_eq!(read(&*log, "t", 0, Position::Earliest, 3), ["0", "1", "2"]);
    leave(b"3", 3);
    let mut reader = log.reader(&partition("t", 0), Position::Latest).unwrap();
    assert!(reader.next(LIMITS, Duration::ZERO).unwrap().is_none(), "it begins behind it");
}

#[test]
fn a_cursor_keeps_its_position_when_its_files_are_closed() {
    let place = TempLog::new();
    let log = place.open(&|_| {});
    log.admin().unwrap().create(&new_topic("t", 1, &[])).unwrap();
    fill(&*log, "t", 0, 0..20);
    let mut cursor =
        PartitionCursor::open(&local(&place), &partition("t", 0), Position::Earliest).unwrap();
    let few = Limits { records: 5, bytes: 1 << 20 };
    assert_eq!(texts(&cursor.fetch(few).unwrap().unwrap()).len(), 5);
    cursor.close_files();
    // It would come over this if it looked for its place again.
    let path = segment::path(&place.path().join("topics/t/0"), 0);
    let mut bytes = fs::read(&path).unwrap();
    bytes[..100].fill(0);
    fs::write(&path, bytes).unwrap();
    assert_eq!(texts(&cursor.fetch(few).unwrap().unwrap()), ["5", "6", "7", "8", "9"]);
    assert_eq!(cursor.damage, []);
    // Elsewhere is elsewhere.
    cursor.close_files();
    cursor.seek(Position::Offset(18)).unwrap();
    assert_eq!(texts(&cursor.fetch(few).unwrap().unwrap()), ["18", "19"]);
}
