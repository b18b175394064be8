//! Files that are removed or added from outside while the log is used.

use std::fs;

use super::*;
use crate::log::conformance::fixture::*;
use crate::log::local::partition_cursor::PartitionCursor;
use crate::log::local::partition_writer::PartitionWriter;
use crate::log::local::{record_frame, segment, topics};
use crate::log::{ErrorKind, Limits};

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
fn a_removed_log_is_created_again() {
    let place = TempLog::new();
    let root = place.path().join("log");
    let log =
        LocalLog::open(&LogSettings::for_tests(&format!("log://{}", root.display()))).unwrap();
    let producer = log.producer().unwrap();
    send(&*producer, &record("t", b"old")).unwrap();
    fs::remove_dir_all(&root).unwrap();
    assert_eq!(send(&*producer, &record("t", b"new")).unwrap().offset, 0);
    send(&*producer, &record("u", b"x")).unwrap();
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
    assert_eq!(log.admin().unwrap().topic("t").unwrap().unwrap().partitions[0].end, 2);
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
