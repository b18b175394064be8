//! Members of groups where the local log has its own way.

use std::time::{Duration, Instant};

use chaton_embedded::change_file::ChangeFile;

use super::*;
use crate::log::sqlite::file_watch;
use crate::log::sqlite::log_dir::CHANGES;
use crate::log::ErrorKind;

#[test]
fn a_topic_created_later_is_found() {
    let place = TempLog::new();
    let log = place.open(&|settings| settings.partitions = 3);
    let mut member = TestMember::join(&*log, &GroupSettings::for_tests("g", &["t"]));
    for _ in 0..3 {
        member.step(Duration::ZERO);
    }
    assert_eq!(member.errors.len(), 1, "reported once: {:?}", member.errors);
    assert_eq!(member.errors[0].kind, ErrorKind::UnknownTopic);
    fill(&*log, "t", 0, 0..5);
    member.read(5);
    assert_eq!(member.has.len(), 3);
}

#[test]
fn records_are_read_without_inotify_and_it_is_said_once() {
    let place = TempLog::new();
    let log = place.open(&|_| {});
    log.admin().unwrap().create(&new_topic("t", 1, &[])).unwrap();
    file_watch::USED_UP.set(true);
    let mut member = TestMember::join(&*log, &GroupSettings::for_tests("g", &["t"]));
    let mut reader = log.reader(&partition("t", 0), Position::Earliest).unwrap();
    member.has(1);
    let mut read = 0;
    for records in [5, 10] {
        member.fetch();
        fill(&*log, "t", 0, records - 5..records);
        until("the member is notified", || {
            member.step(MOMENT);
            member.member.was_notified() && member.fetch() > 0
        });
        assert_eq!(member.values.len(), records);
        until("the reader has read", || {
            let chunk = reader.next(LIMITS, MOMENT).unwrap();
            read += chunk.map_or(0, |chunk| chunk.len());
            read == records
        });
    }
    log.admin().unwrap().grow("t", 3).unwrap();
    member.has(3);
    assert_eq!(member.errors.len(), 1, "{:?}", member.errors);
    assert!(member.errors[0].message.contains("max_user_instances"), "{}", member.errors[0]);
    // It watches again as soon as an instance is left.
    file_watch::USED_UP.set(false);
    until("a wait that no poll ends", || {
        let began = Instant::now();
        member.step(Duration::from_secs(3));
        began.elapsed() >= Duration::from_secs(3)
    });
    assert_eq!(member.errors.len(), 1, "{:?}", member.errors);
}

#[test]
fn added_partitions_are_read() {
    let place = TempLog::new();
    let log = place.open(&|_| {});
    log.admin().unwrap().create(&new_topic("t", 1, &[])).unwrap();
    let mut member = TestMember::join(&*log, &GroupSettings::for_tests("g", &["t"]));
    member.has(1);
    log.admin().unwrap().grow("t", 4).unwrap();
    member.has(4);
    fill(&*log, "t", 3, 0..5);
    member.read(5);
}

#[test]
fn a_topic_that_was_created_again_is_read_from_its_start() {
    let place = TempLog::new();
    let log = place.open(&|_| {});
    let mut admin = log.admin().unwrap();
    admin.create(&new_topic("t", 1, &[])).unwrap();
    fill(&*log, "t", 0, 0..7);
    let mut member = TestMember::join(&*log, &GroupSettings::for_tests("g", &["t"]));
    member.read(7);
    admin.delete("t").unwrap();
    admin.create(&new_topic("t", 1, &[])).unwrap();
    fill(&*log, "t", 0, 7..10);
    member.read(10);
    assert_eq!(member.numbers(), (0..10).collect::<Vec<_>>());
}

#[test]
fn a_removed_member_learns_that_it_lost_its_partitions() {
    let place = TempLog::new();
    let log = place.open(&|_| {});
    log.admin().unwrap().create(&new_topic("t", 2, &[])).unwrap();
    let mut member = TestMember::join(&*log, &GroupSettings::for_tests("g", &["t"]));
    member.has(2);
    // Another member took it for dead.
    place.change("DELETE FROM groups");
    ChangeFile::open(&place.database(), CHANGES).unwrap().notify();
    let late = member.member.commit(&[commit("t", 0, 1, "")], true).unwrap_err();
    assert_eq!(late.kind, ErrorKind::Fenced);
    let mut events = Vec::new();
    until("it is lost", || {
        member.member.poll(&mut events);
        events.iter().any(|event| matches!(event, crate::log::MemberEvent::Lost(_)))
    });
    until("it has its place again", || {
        member.member.wait(MOMENT);
        member.member.poll(&mut events);
        events.iter().any(|event| matches!(event, crate::log::MemberEvent::Assigned(_)))
    });
    member.member.commit(&[commit("t", 0, 1, "")], true).unwrap();
}

#[test]
fn a_dropped_member_leaves_the_group() {
    let place = TempLog::new();
    let log = place.open(&|_| {});
    log.admin().unwrap().create(&new_topic("t", 2, &[])).unwrap();
    let group = GroupSettings::for_tests("g", &["t"]);
    let mut first = TestMember::join(&*log, &group);
    first.has(2);
    drop(first);
    assert!(log.admin().unwrap().groups().unwrap().is_empty(), "no members and no commits");
    TestMember::join(&*log, &group).has(2);
}

#[test]
fn many_partitions_need_few_descriptors() {
    let place = TempLog::new();
    let log = place.open(&|settings| settings.durable = false);
    log.admin().unwrap().create(&new_topic("t", 300, &[])).unwrap();
    let producer = log.producer().unwrap();
    let receipt = Arc::new(crate::receipt::Receipt::new(600));
    for number in 0..600 {
        let text = number.to_string();
        let to = crate::record::NewRecord {
            partition: Some(number % 300),
            ..record("t", text.as_bytes())
        };
        producer.send(&to, Some((&receipt, number as usize))).unwrap();
    }
    assert!(receipt.wait(PATIENCE));
    let mut member = TestMember::join(&*log, &GroupSettings::for_tests("g", &["t"]));
    member.read(600);
    assert_eq!(member.numbers(), (0..600).collect::<Vec<_>>());
    let here = place.path().canonicalize().unwrap();
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    let ours = open
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .filter(|path| path.starts_with(&here))
        .count();
    assert!(ours < 100, "{ours} files are open");
}

#[test]
fn an_idle_member_is_not_woken() {
    let place = TempLog::new();
    let log = place.open(&|_| {});
    log.admin().unwrap().create(&new_topic("t", 4, &[])).unwrap();
    let mut member = TestMember::join(&*log, &GroupSettings::for_tests("g", &["t"]));
    member.has(4);
    member.fetch();
    // Its own join notifies it once more at most.
    member.step(MOMENT);
    member.step(MOMENT);
    let began = std::time::Instant::now();
    member.step(MOMENT * 3);
    assert!(began.elapsed() >= MOMENT * 3);
    assert!(!member.member.was_notified());
    fill(&*log, "t", 0, 0..1);
    member.member.wait(PATIENCE);
    assert!(member.member.was_notified());
    member.notifier.notify();
    member.member.wait(PATIENCE);
    assert!(member.member.was_notified());
}

#[test]
fn a_failed_release_is_repeated() {
    let place = TempLog::new();
    let log = place.open(&|_| {});
    log.admin().unwrap().create(&new_topic("t", 4, &[])).unwrap();
    let group = GroupSettings::for_tests("g", &["t"]);
    let mut first = TestMember::join(&*log, &group);
    first.keeps = true;
    first.has(4);
    let mut second = TestMember::join(&*log, &group);
    second.step(MOMENT);
    first.has(2);
    let held = place.lock();
    let revoked = std::mem::take(&mut first.revoked);
    first.member.release(&revoked);
    drop(held);
    until("the other has them", || {
        first.step(MOMENT);
        second.step(MOMENT);
        second.has.len() == 2
    });
    assert_eq!(first.has.len(), 2);
}

#[test]
fn a_commit_past_the_end_is_reported_and_moved_to_the_end() {
    let place = TempLog::new();
    let log = place.open(&|_| {});
    log.admin().unwrap().create(&new_topic("t", 1, &[])).unwrap();
    fill(&*log, "t", 0, 0..5);
    let group = GroupSettings::for_tests("g", &["t"]);
    let mut member = TestMember::join(&*log, &group);
    member.has(1);
    member.member.commit(&[commit("t", 0, 99, "beyond")], true).unwrap();
    drop(member);
    let mut member = TestMember::join(&*log, &group);
    member.has(1);
    assert_eq!((member.has[0].committed, member.has[0].metadata.as_str()), (Some(5), ""));
    fill(&*log, "t", 0, 5..7);
    member.read(2);
    member.step(Duration::ZERO);
    assert_eq!(member.numbers(), [5, 6]);
    assert_eq!(member.errors.len(), 1, "reported once");
    assert!(member.errors[0].message.contains("99"), "{}", member.errors[0]);
}

#[test]
fn a_member_does_not_wait_long_for_the_lock_of_its_group() {
    let place = TempLog::new();
    let log = place.open(&|settings| settings.answer_timeout = Duration::from_millis(600_000));
    log.admin().unwrap().create(&new_topic("t", 2, &[])).unwrap();
    let mut member = TestMember::join(&*log, &GroupSettings::for_tests("g", &["t"]));
    member.has(2);
    let held = place.lock();
    member.member.commit(&[commit("t", 0, 0, "")], false).unwrap();
    member.step(MOMENT);
    assert_eq!(member.errors.len(), 1, "the commit failed: {:?}", member.errors);
    member.member.release(&[partition("t", 1)]);
    member.step(MOMENT);
    assert_eq!(member.errors.len(), 1, "not yet one: {:?}", member.errors);
    drop(held);
    member.has.retain(|one| one.partition.number != 1);
    member.has(2);
    member.member.commit(&[commit("t", 0, 0, "")], false).unwrap();
    member.step(MOMENT);
    assert_eq!(member.errors.len(), 1);
}

#[test]
fn a_lock_that_is_held_too_long_is_reported() {
    let place = TempLog::new();
    let log = place.open(&|settings| settings.answer_timeout = Duration::from_millis(300));
    log.admin().unwrap().create(&new_topic("t", 2, &[])).unwrap();
    let mut member = TestMember::join(&*log, &GroupSettings::for_tests("g", &["t"]));
    let held = place.lock();
    until("a report", || {
        member.step(MOMENT);
        !member.errors.is_empty()
    });
    assert!(member.errors[0].message.contains("stopped"), "{}", member.errors[0]);
    member.step(MOMENT);
    assert_eq!(member.errors.len(), 1, "once");
    drop(held);
    member.has(2);
}
