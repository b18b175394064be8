//! What is left after a crash or of damaged files: all that is whole is
//! served, the rest is named, and the log can be written to.

use std::fs;
use std::path::PathBuf;

use super::*;
use crate::log::conformance::fixture::*;
use crate::log::local::partition_cursor::PartitionCursor;
use crate::log::local::{files, high_watermark, offset_index, record_frame, segment};
use crate::log::{ErrorKind, LogError};

/// Records of the segments that are damaged.
const RECORDS: usize = 12;
/// A segment of four records: 36 and at most 2 bytes each.
const SEGMENT_BYTES: &str = "184";

/// A partition with records 0 to 11 in three segments, and its files.
struct DamagedPartition {
    place: TempLog,
    files: Vec<(PathBuf, Vec<u8>)>,
}

/// What the head says when the log is opened again.
#[derive(Clone, Copy, Debug, PartialEq)]
enum StoredWatermark {
    /// The same boot of the machine.
    Kept,
    /// Another one.
    Older,
    Nothing,
}

impl DamagedPartition {
    fn new() -> Self {
        let place = TempLog::in_memory();
        let log = log_of(&place);
        let new = new_topic("t", 1, &[("segment.bytes", SEGMENT_BYTES)]);
        log.admin().unwrap().create(&new).unwrap();
        fill(&*log, "t", 0, 0..RECORDS);
        let folder = place.path().join("topics/t/0");
        assert_eq!(segment::list(&folder).unwrap(), [0, 4, 8]);
        let names = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        let files = names.map(|path| (path.clone(), fs::read(path).unwrap())).collect();
        Self { place, files }
    }

    fn folder(&self) -> PathBuf {
        self.place.path().join("topics/t/0")
    }

    fn segment(&self, base: i64) -> (PathBuf, Vec<u8>) {
        let path = segment::path(&self.folder(), base);
        self.files.iter().find(|(other, _)| *other == path).cloned().unwrap()
    }

    /// All files as they were.
    fn restore(&self, stored: StoredWatermark) {
        for entry in fs::read_dir(self.folder()).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
        for (path, bytes) in &self.files {
            fs::write(path, bytes).unwrap();
        }
        let path = high_watermark::path(&self.folder());
        match stored {
            StoredWatermark::Kept => {}
            StoredWatermark::Nothing => fs::remove_file(path).unwrap(),
            StoredWatermark::Older => {
                let file = files::open_or_create(&path).unwrap();
                let watermark = high_watermark::read(&file).unwrap().unwrap();
                high_watermark::write(
                    &file,
                    &high_watermark::HighWatermark { boot: 1, ..watermark },
                )
                .unwrap();
            }
        }
    }

    /// All readable records, and the errors.
    fn read(&self) -> (Vec<String>, Vec<LogError>) {
        let settings = LogSettings::for_tests(&format!("log://{}", self.place.path().display()));
        let place = Arc::new(LogDir::open(&settings).unwrap());
        let mut cursor =
            PartitionCursor::open(&place, &partition("t", 0), Position::Earliest).unwrap();
        let (mut values, mut errors) = (Vec::new(), Vec::new());
        loop {
            let chunk = cursor.fetch(LIMITS).unwrap();
            let lost = cursor.take_lost();
            errors.extend(lost.map(|lost| LogError::new(ErrorKind::Corrupt, lost.why)));
            errors.append(&mut cursor.damage);
            let Some(chunk) = chunk else { return (values, errors) };
            values.extend(texts(&chunk));
        }
    }

    /// Writes one more record, which is served after the others.
    fn goes_on(&self, before: &[String], what: &str) -> i64 {
        let log = log_of(&self.place);
        let placed = send(&*log.producer().unwrap(), &record("t", b"new")).unwrap();
        let (after, _) = self.read();
        assert_eq!(
            (&after[..after.len() - 1], after.last().unwrap().as_str()),
            (before, "new"),
            "{what}"
        );
        placed.offset
    }
}

fn log_of(place: &TempLog) -> Arc<dyn RecordLog> {
    place.open(&|settings| settings.durable = false)
}

fn names(values: &[String]) -> Vec<usize> {
    values.iter().map(|text| text.parse().unwrap()).collect()
}

/// Where each record of a segment begins, and where the last ends.
fn starts(bytes: &[u8]) -> Vec<usize> {
    let mut starts = vec![segment::HEADER as usize];
    while *starts.last().unwrap() < bytes.len() {
        let at = *starts.last().unwrap();
        starts.push(at + record_frame::len_of(&bytes[at..]));
    }
    starts
}

#[test]
fn a_truncation_at_any_byte_leaves_complete_records() {
    let damaged = DamagedPartition::new();
    let (path, bytes) = damaged.segment(8);
    let starts = starts(&bytes);
    for stored in [StoredWatermark::Kept, StoredWatermark::Older, StoredWatermark::Nothing] {
        for cut in 0..bytes.len() {
            let what = format!("cut at {cut}, {stored:?}");
            damaged.restore(stored);
            fs::write(&path, &bytes[..cut]).unwrap();
            let (values, errors) = damaged.read();
            let whole = 8 + starts.iter().skip(1).filter(|end| **end <= cut).count();
            assert_eq!(names(&values), (0..whole).collect::<Vec<_>>(), "{what}");
            assert!(errors.iter().all(|error| error.kind == ErrorKind::Corrupt), "{what}");
            let writes = cut % 5 == 0 || starts.contains(&cut);
            if stored != StoredWatermark::Nothing {
                // Twelve were acknowledged: the loss is reported, and their offsets are not used again.
                assert!(!errors.is_empty(), "{what}");
                assert!(!writes || damaged.goes_on(&values, &what) == 12, "{what}");
            } else if cut >= segment::HEADER as usize {
                assert!(errors.is_empty(), "{what}: {errors:?}");
                assert!(!writes || damaged.goes_on(&values, &what) == whole as i64, "{what}");
            }
        }
    }
}

#[test]
fn complete_records_behind_the_watermark_are_kept() {
    let damaged = DamagedPartition::new();
    let (path, bytes) = damaged.segment(8);
    let starts = starts(&bytes);
    // Killed in the middle of writing: the head tells of two of four.
    let watermark = high_watermark::HighWatermark {
        boot: files::boot_id(),
        end: 10,
        base: 8,
        pos: starts[2] as u64,
        newest_ms: 0,
        indexed: segment::HEADER,
    };
    for cut in starts[2]..=bytes.len() {
        damaged.restore(StoredWatermark::Kept);
        high_watermark::write(
            &files::open_or_create(&high_watermark::path(&damaged.folder())).unwrap(),
            &watermark,
        )
        .unwrap();
        fs::write(&path, &bytes[..cut]).unwrap();
        let (values, errors) = damaged.read();
        assert_eq!(
            (values.len(), errors.len()),
            (10, 0),
            "readers see the records below the stored watermark"
        );
        let whole = 8 + starts.iter().skip(1).filter(|end| **end <= cut).count();
        let all: Vec<_> = (0..whole).map(|value| value.to_string()).collect();
        assert_eq!(damaged.goes_on(&all, &format!("cut at {cut}")), whole as i64);
    }
}

#[test]
fn a_flipped_byte_damages_one_record() {
    let damaged = DamagedPartition::new();
    for base in [0, 4, 8] {
        let (path, bytes) = damaged.segment(base);
        let starts = starts(&bytes);
        for at in 0..bytes.len() {
            for stored in [StoredWatermark::Kept, StoredWatermark::Nothing] {
                let what = format!("byte {at} of segment {base}, {stored:?}");
                damaged.restore(stored);
                let mut bad = bytes.clone();
                bad[at] ^= 0x41;
                fs::write(&path, &bad).unwrap();
                let (values, errors) = damaged.read();
                let hit = starts.iter().skip(1).position(|end| at < *end).unwrap();
                let in_header = at < segment::HEADER as usize;
                let lost = (!in_header).then_some(base as usize + hit);
                let left: Vec<_> = (0..RECORDS).filter(|number| Some(*number) != lost).collect();
                assert_eq!(names(&values), left, "{what}");
                // The last record of all is a torn one as far as a reader can know.
                let torn = base == 8 && lost == Some(11) && stored == StoredWatermark::Nothing;
                let padding = (28..32).contains(&at);
                assert_eq!(errors.is_empty(), torn || padding, "{what}: {errors:?}");
                let name = path.display().to_string();
                let named = |error: &LogError| {
                    error.kind == ErrorKind::Corrupt && error.message.contains(&name)
                };
                assert!(errors.iter().all(named), "{what}: {errors:?}");
                if at % 13 == 0 {
                    damaged.goes_on(&values, &what);
                }
            }
        }
    }
}

#[test]
fn foreign_files_are_left_alone() {
    let damaged = DamagedPartition::new();
    let folder = damaged.folder();
    for stored in [StoredWatermark::Kept, StoredWatermark::Nothing] {
        for content in [&b""[..], b"not a segment", &[0; 5000], &[0xff; 5000]] {
            for name in ["00000000000000000006.log", "00000000000000000020.log"] {
                damaged.restore(stored);
                let foreign = folder.join(name);
                fs::write(&foreign, content).unwrap();
                fs::write(folder.join("README"), "hello").unwrap();
                let (values, errors) = damaged.read();
                assert_eq!(names(&values), (0..RECORDS).collect::<Vec<_>>(), "{name} {stored:?}");
                // A file behind the stored watermark is not read.
                let seen = stored == StoredWatermark::Nothing || name.ends_with("6.log");
                assert_eq!(errors.iter().any(|e| e.message.contains(name)), seen, "{errors:?}");
                damaged.goes_on(&values, name);
                assert_eq!(fs::read(&foreign).unwrap(), content);
                assert_eq!(fs::read(folder.join("README")).unwrap(), b"hello");
            }
        }
    }
}

#[test]
fn a_missing_segment_is_reported() {
    let damaged = DamagedPartition::new();
    damaged.restore(StoredWatermark::Kept);
    fs::remove_file(damaged.segment(4).0).unwrap();
    let log = log_of(&damaged.place);
    let mut reader = log.reader(&partition("t", 0), Position::Earliest).unwrap();
    let (mut values, mut errors) = (Vec::new(), Vec::new());
    loop {
        // Reported once; reading continues.
        match reader.next(LIMITS, Duration::ZERO) {
            Ok(Some(chunk)) => values.extend(texts(&chunk)),
            Ok(None) => break,
            Err(error) => errors.push(error),
        }
    }
    assert_eq!(names(&values), [0, 1, 2, 3, 8, 9, 10, 11]);
    assert_eq!(errors.len(), 1);
    assert!(errors[0].message.contains("records 4 to 7 are gone"), "{}", errors[0]);
}

#[test]
fn a_damaged_watermark_is_rebuilt() {
    let damaged = DamagedPartition::new();
    let path = high_watermark::path(&damaged.folder());
    let whole = fs::read(&path).unwrap();
    for at in 0..whole.len() {
        damaged.restore(StoredWatermark::Kept);
        let mut bad = whole.clone();
        bad[at] ^= 0x10;
        fs::write(&path, &bad).unwrap();
        let (values, errors) = damaged.read();
        assert_eq!((values.len(), errors.len()), (RECORDS, 0), "byte {at}");
        assert_eq!(damaged.goes_on(&values, "head"), 12);
    }
}

#[test]
fn damaged_acknowledged_records_are_saved() {
    let damaged = DamagedPartition::new();
    damaged.restore(StoredWatermark::Older);
    let (path, bytes) = damaged.segment(8);
    let start = starts(&bytes)[3];
    let mut bad = bytes.clone();
    bad[start + 20] ^= 1;
    fs::write(&path, &bad).unwrap();
    let (values, errors) = damaged.read();
    assert_eq!((values.len(), errors.len()), (RECORDS - 1, 1));
    let beside = files::with_suffix(&path, &format!(".{start}.damaged"));
    assert_eq!(fs::read(beside).unwrap(), bad[start..]);
}

#[test]
fn a_wrong_index_does_not_mislead_readers() {
    let place = TempLog::in_memory();
    let log = log_of(&place);
    log.admin().unwrap().create(&new_topic("t", 1, &[])).unwrap();
    let producer = log.producer().unwrap();
    let value = [b'v'; 1000];
    for number in 0..1000 {
        let one =
            crate::record::NewRecord { timestamp_ms: Some(number * 10), ..record("t", &value) };
        producer.send(&one, None).unwrap();
    }
    assert_eq!(producer.flush(PATIENCE), 0);
    let path = segment::index_path(&place.path().join("topics/t/0"), 0);
    let entries = offset_index::load(&path, u64::MAX);
    assert!(entries.len() > 10, "{} entries", entries.len());
    let first = |from| {
        let mut reader = log_of(&place).reader(&partition("t", 0), from).unwrap();
        let chunk = reader.next(LIMITS, PATIENCE).unwrap().unwrap();
        chunk.record(0).offset()
    };
    let check = || {
        for number in [0, 1, 63, 500, 777, 999] {
            assert_eq!(first(Position::Offset(number)), number);
            assert_eq!(first(Position::Time(number * 10)), number);
            assert_eq!(first(Position::Time(number * 10 - 9)), number);
        }
    };
    check();
    let shifted: Vec<_> = entries
        .iter()
        .map(|entry| offset_index::IndexEntry { pos: entry.pos + 5, ..*entry })
        .collect();
    fs::remove_file(&path).unwrap();
    check();
    offset_index::append(&mut offset_index::open(&path, u64::MAX).unwrap(), &shifted).unwrap();
    check();
    fs::write(&path, vec![7; 999]).unwrap();
    check();
}
