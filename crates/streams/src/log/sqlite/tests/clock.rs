//! A wall clock that is set while the log is used, or while the machine is off.

use std::sync::atomic::Ordering;

use super::*;
use crate::log::MemberEvent;

const DAY_MS: i64 = 86_400_000;
const HOUR: Duration = Duration::from_secs(3_600);

/// A log that keeps records for an hour, with one partition.
fn log_of_an_hour(place: &TempLog) -> LocalLog {
    let mut settings = LogSettings::for_tests(&format!("log://{}", place.path().display()));
    settings.retention = Some(HOUR);
    let log = LocalLog::open(&settings).unwrap();
    log.admin().unwrap().create(&new_topic("t", 1, &[])).unwrap();
    log
}

/// Writes values, each in a batch of its own.
fn write(log: &LocalLog, values: std::ops::Range<usize>) {
    let producer = log.producer().unwrap();
    for value in values {
        send(&*producer, &record("t", value.to_string().as_bytes())).unwrap();
    }
}

/// Offsets from which on all is kept, and of what comes next.
fn kept(log: &LocalLog) -> (i64, i64) {
    let topic = log.admin().unwrap().topic("t").unwrap().unwrap();
    (topic.partitions[0].start, topic.partitions[0].end)
}

/// The first value that is read from a time on.
fn at(log: &LocalLog, time_ms: i64) -> Option<usize> {
    let mut reader = log.reader(&partition("t", 0), Position::Time(time_ms)).unwrap();
    let chunk = reader.next(LIMITS, Duration::ZERO).unwrap()?;
    texts(&chunk)[0].parse().ok()
}

#[test]
fn a_step_of_the_clock_removes_nothing_new_and_keeps_nothing_old() {
    for steps in [[DAY_MS, 0], [-DAY_MS, 0], [DAY_MS, -DAY_MS]] {
        let place = TempLog::new();
        let log = log_of_an_hour(&place);
        let mut member = TestMember::join(&log, &GroupSettings::for_tests("g", &["t"]));
        write(&log, 0..5);
        member.read(5);
        let began_ms = log.dir.now_ms();
        for (step_ms, first) in steps.into_iter().zip([5, 10]) {
            log.dir.step_ms.store(step_ms, Ordering::Relaxed);
            write(&log, first..first + 5);
            assert_eq!(kept(&log), (0, first as i64 + 5), "{steps:?}");
            member.read(first + 5);
            member.member.commit(&[commit("t", 0, first as i64 + 5, "")], true).unwrap();
        }
        assert_eq!(member.numbers(), (0..15).collect::<Vec<_>>());
        let mut events = Vec::new();
        member.member.poll(&mut events);
        let is_lost = |event: &MemberEvent| matches!(event, MemberEvent::Lost(_));
        assert!(!events.iter().any(is_lost) && member.errors.is_empty(), "it is still a member");
        // A later time is no earlier place.
        let times = [-2 * DAY_MS, -DAY_MS / 2, 0, DAY_MS / 2, 2 * DAY_MS];
        let places = times.map(|time_ms| at(&log, began_ms + time_ms).unwrap_or(usize::MAX));
        assert!(places.is_sorted() && places[0] == 0 && places[4] == usize::MAX, "{places:?}");
        // What has become old meanwhile goes, wherever the clock is.
        place.change("UPDATE record_batches SET written_ms=written_ms-3600000");
        write(&log, 15..16);
        assert_eq!(kept(&log), (15, 16), "{steps:?}");
    }
}

#[test]
fn a_clock_that_is_wrong_at_boot_removes_nothing_new_and_keeps_nothing_old() {
    // The clock as the machine boots and as it is set then, for each boot.
    for boots in [[(0, 0), (-DAY_MS, -DAY_MS), (0, 0)], [(-DAY_MS, 0), (0, 0), (-DAY_MS, 0)]] {
        let place = TempLog::new();
        let log = log_of_an_hour(&place);
        let boot = || place.change("UPDATE log_clock SET boot='another'");
        for ((at_boot_ms, then_ms), first) in boots.into_iter().zip([0, 2, 4]) {
            boot();
            for (step_ms, value) in [(at_boot_ms, first), (then_ms, first + 1)] {
                log.dir.step_ms.store(step_ms, Ordering::Relaxed);
                write(&log, value..value + 1);
                assert_eq!(kept(&log), (0, value as i64 + 1), "{boots:?}");
            }
        }
        // The machine was off for a day.
        boot();
        log.dir.step_ms.store(DAY_MS, Ordering::Relaxed);
        write(&log, 6..7);
        assert_eq!(kept(&log), (6, 7), "{boots:?}");
    }
}
