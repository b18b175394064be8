//! The tracker against a plain set of offsets.

use std::collections::BTreeSet;

use super::*;
use fastrand::Rng;

fn entry(offset: i64) -> RecordLayout {
    let span = crate::record::Span::NULL;
    RecordLayout {
        offset,
        timestamp_ms: -1,
        key: span,
        value: span,
        headers_start: 0,
        headers_len: 0,
    }
}

#[test]
fn the_head_moves_over_gaps_between_records() {
    let entries: Vec<RecordLayout> = [5, 9, 10, 20].into_iter().map(entry).collect();
    let mut tracker = Tracker::new(Some(2));
    assert_eq!(tracker.head(), Some(2));
    tracker.fetched(5, 21);
    assert_eq!(tracker.head(), Some(5));
    let mut ranges = Vec::new();
    for (pick, head) in [(0, 9), (1, 10), (2, 20), (3, 21)] {
        ranges_of(&entries, &[pick], &mut ranges);
        tracker.done(&ranges);
        assert_eq!(tracker.head(), Some(head));
    }
    tracker.fetched(30, 31);
    assert_eq!(tracker.head(), Some(30));
    assert_eq!(tracker.metadata(), "");
}

#[test]
fn records_done_beyond_the_head_are_read_back() {
    let mut tracker = Tracker::new(None);
    assert_eq!(tracker.head(), None);
    tracker.fetched(100, 200);
    tracker.done(&[(110, 120), (150, 160), (190, 200)]);
    let note = tracker.metadata();
    assert!(note.starts_with("chaton:1:"), "{note}");
    assert_eq!(metadata::decode(100, &note), [(110, 120), (150, 160), (190, 200)]);
}

#[test]
fn metadata_of_other_programs_is_ignored() {
    for note in
        ["", "NULL", "chaton:1:A", "chaton:1:AA", "chaton:1:B", "chaton:1:B!", "chaton:2:BB"]
    {
        assert_eq!(metadata::decode(0, note), [], "{note}");
    }
    let endless = format!("chaton:1:{}", "_".repeat(40));
    assert_eq!(metadata::decode(0, &endless), []);
    assert_eq!(metadata::decode(i64::MAX - 1, "chaton:1:CC"), []);
}

#[test]
fn records_are_done_again_when_the_log_goes_back() {
    let mut tracker = Tracker::new(Some(0));
    tracker.fetched(0, 10);
    tracker.done(&[(2, 8)]);
    tracker.fetched(4, 6);
    assert!(tracker.is_undone(5) && !tracker.is_undone(7));
    tracker.fetched(20, 30);
    tracker.done(&[(0, 10)]);
    assert_eq!(tracker.head(), Some(20));
}

#[test]
fn the_position_of_a_seek_is_not_committed_before_a_fetch() {
    let mut tracker = Tracker::asked(Some(1_000));
    assert_eq!((tracker.head(), tracker.position()), (None, Some(1_000)));
    assert!(tracker.fetched(10, 20));
    tracker.done(&[(10, 20)]);
    assert_eq!((tracker.head(), tracker.position()), (Some(20), Some(20)));
    let mut tracker = Tracker::asked(Some(5));
    assert!(!tracker.fetched(7, 9), "a gap does not mean that the log went back");
    assert_eq!(tracker.head(), Some(7));
}

/// Random gaps, and records that finish in a random order.
#[test]
fn the_tracker_agrees_with_a_set() {
    for seed in 1..300 {
        let mut random = Rng::with_seed(seed * 7_919);
        let mut tracker = Tracker::new(Some(0));
        let (mut offsets, mut done) = (Vec::new(), BTreeSet::new());
        let mut next = 0i64;
        for _ in 0..random.u64(..8) + 1 {
            let mut entries = Vec::new();
            for _ in 0..random.u64(..60) + 1 {
                next += if random.u64(..4) == 0 { random.u64(..5) as i64 } else { 0 };
                entries.push(entry(next));
                next += 1;
            }
            tracker.fetched(entries[0].offset, next);
            offsets.extend(entries.iter().map(|entry| entry.offset));
            let mut ranges = Vec::new();
            for _ in 0..random.u64(..4) {
                let odds = random.u64(..10);
                let picks: Vec<u32> =
                    (0..entries.len() as u32).filter(|_| random.u64(..10) < odds).collect();
                ranges_of(&entries, &picks, &mut ranges);
                tracker.done(&ranges);
                done.extend(picks.iter().map(|pick| entries[*pick as usize].offset));
            }
            check(&tracker, &offsets, &done);
        }
        let all = [(0, next)];
        tracker.done(&all);
        assert_eq!((tracker.head(), tracker.metadata().as_str()), (Some(next), ""));
    }
}

fn check(tracker: &Tracker, offsets: &[i64], done: &BTreeSet<i64>) {
    let first = offsets.iter().find(|offset| !done.contains(offset)).copied();
    // After the last record the head is its offset plus one.
    assert_eq!(tracker.head(), first.or(offsets.last().map(|last| last + 1)));
    for offset in offsets {
        assert_eq!(tracker.is_undone(*offset), !done.contains(offset), "{offset}");
    }
    let read = metadata::decode(tracker.head().unwrap(), &tracker.metadata());
    for offset in offsets.iter().filter(|offset| first.is_some_and(|first| **offset >= first)) {
        let noted = read.iter().any(|range| (range.0..range.1).contains(offset));
        assert_eq!(noted, done.contains(offset), "{offset} in {read:?}");
    }
}

/// The worst case: every second record of very many is done.
#[test]
fn metadata_is_never_too_long_and_never_lists_too_much() {
    let mut tracker = Tracker::new(Some(0));
    let mut end = 0;
    while tracker.fits() {
        tracker.fetched(end, end + 100);
        let every_second: Vec<OffsetRange> =
            (0..50).map(|i| (end + 2 * i + 1, end + 2 * i + 2)).collect();
        tracker.done(&every_second);
        end += 100;
    }
    assert!(end > 2_000, "{end}");
    assert!(metadata::decode(0, &tracker.metadata()).len() as i64 == end / 2);
    // Records in flight finish in the worst order, too.
    tracker.fetched(end, end + 4_000);
    tracker.done(&(0..2_000).map(|i| (end + 2 * i + 1, end + 2 * i + 2)).collect::<Vec<_>>());
    let note = tracker.metadata();
    assert!(note.len() <= 4_096);
    let read = metadata::decode(0, &note);
    assert!(read.iter().all(|range| range.1 == range.0 + 1 && range.0 % 2 == 1));
}

#[test]
fn offsets_without_a_record_are_done_once_the_log_is_read_up_to_them() {
    let mut tracker = Tracker::new(None);
    assert!(!tracker.read_up_to(0), "an empty partition has nothing to commit");
    tracker.fetched(0, 3);
    assert!(!tracker.read_up_to(4), "the head is the first record");
    tracker.done(&[(0, 3)]);
    assert_eq!((tracker.head(), tracker.position()), (Some(4), Some(4)));
    assert!(tracker.read_up_to(6) && !tracker.read_up_to(6) && !tracker.read_up_to(5));
    assert_eq!((tracker.head(), tracker.metadata()), (Some(6), String::new()));
    // Only markers, as of a transaction that was aborted.
    let mut tracker = Tracker::new(None);
    assert!(tracker.read_up_to(2));
    assert_eq!(tracker.head(), Some(2));
    // The position of a seek stays, wherever the end is.
    let mut tracker = Tracker::asked(Some(5));
    assert!(!tracker.read_up_to(9));
    assert_eq!(tracker.position(), Some(5));
}
