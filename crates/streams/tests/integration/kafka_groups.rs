//! Members of groups on a real Kafka: many of them, lasting ones, slow ones,
//! and those of the newer protocol.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::kafka_support::Broker;
use chaton_streams::log::conformance::fixture::{
    commit, fill, name, partition, record, topic, until, TestMember, LIMITS, MOMENT,
};
use chaton_streams::log::{ErrorKind, MemberEvent, Partition, Position, RecordLog};
use chaton_streams::record::NewRecord;
use chaton_streams::settings::{GroupSettings, Protocol};

/// Of the topic that many members share.
const PARTITIONS: i32 = 8;

fn group(stem: &str, topic: &str, protocol: Protocol) -> GroupSettings {
    let mut group = GroupSettings::for_tests(&name(stem), &[topic]);
    group.protocol = protocol;
    group.session_timeout = Duration::from_millis(6_000);
    group
}

/// What members have done, in the order of their commits.
#[derive(Default)]
struct Done {
    seen: Mutex<Vec<(Partition, i64)>>,
    stop: AtomicBool,
}

/// A member that commits what it has read, chunk by chunk, until it has to stop.
fn work(log: &dyn RecordLog, group: &GroupSettings, done: &Done) {
    let mut member = TestMember::join(log, group);
    while !done.is_stopped() {
        member.step(MOMENT);
        for assigned in member.has.clone() {
            let partition = assigned.partition;
            while let Some(chunk) = member.member.fetch(&partition, LIMITS).unwrap() {
                let offsets = chunk.entries().iter().map(|entry| entry.offset);
                let last = chunk.entries()[chunk.len() - 1].offset;
                let taken = commit(&partition.topic, partition.number, last + 1, "");
                if member.member.commit(&[taken], true).is_err() {
                    // Not now, as others join: it is read again.
                    let first = Position::Offset(chunk.entries()[0].offset);
                    member.member.seek(&partition, first).unwrap();
                    break;
                }
                let mut seen = done.seen.lock().unwrap();
                seen.extend(offsets.map(|offset| (partition.clone(), offset)));
            }
        }
    }
    member.member.leave(Duration::from_secs(10));
}

/// Ends the other threads, also when this one panics.
struct Stop<'a>(&'a [Done]);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(Done::stop);
    }
}

impl Done {
    fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn count(&self) -> usize {
        self.seen.lock().unwrap().len()
    }

    /// Waits until this member has read so many more.
    fn moves(&self, by: usize) {
        let before = self.count();
        until("records are read", || {
            std::thread::sleep(Duration::from_millis(5));
            self.count() >= before + by
        });
    }
}

/// Sends records to all partitions until it has to stop.
fn pour(log: &dyn RecordLog, topic: &str, stop: &Done) -> usize {
    let producer = log.producer().unwrap();
    let mut sent = 0;
    while !stop.is_stopped() {
        for number in (0..PARTITIONS).cycle().take(PARTITIONS as usize * 5) {
            let one = record(topic, b"v");
            producer.send(&NewRecord { partition: Some(number), ..one }, None).unwrap();
            sent += 1;
        }
        producer.flush(Duration::from_secs(30));
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(producer.flush(Duration::from_secs(30)), 0);
    sent
}

/// Two members, then four, then one, while records come; each record is
/// committed, and by one member only. With `eof` the members hear of each end that they reach.
fn come_and_go(protocol: Protocol, eof: bool) {
    let log = crate::kafka_support::log();
    let topic = topic(&*log, PARTITIONS);
    let group = GroupSettings { eof, ..group("many", &topic, protocol) };
    let (log, topic, group) = (&*log, topic.as_str(), &group);
    let done: Vec<Done> = (0..5).map(|_| Done::default()).collect();
    let [flow, members @ ..] = &done[..] else { unreachable!() };
    let sent = std::thread::scope(|scope| {
        let _stop = Stop(&done);
        let start = |member| scope.spawn(move || work(log, group, member));
        let pouring = scope.spawn(move || pour(log, topic, flow));
        members[..2].iter().for_each(|member| drop(start(member)));
        members[..2].iter().for_each(|member| member.moves(50));
        members[2..].iter().for_each(|member| drop(start(member)));
        members.iter().for_each(|member| member.moves(50));
        members[1..].iter().for_each(Done::stop);
        members[0].moves(50);
        flow.stop();
        let sent = pouring.join().unwrap();
        until("all is read", || {
            std::thread::sleep(Duration::from_millis(10));
            members.iter().map(Done::count).sum::<usize>() >= sent
        });
        sent
    });
    let mut seen: Vec<_> =
        done.into_iter().flat_map(|done| done.seen.into_inner().unwrap()).collect();
    seen.sort();
    let each = sent as i64 / i64::from(PARTITIONS);
    let expected = (0..PARTITIONS).flat_map(|number| {
        let partition = partition(topic, number);
        (0..each).map(move |offset| (partition.clone(), offset))
    });
    let mut whole = seen.clone();
    whole.dedup();
    assert!(whole.iter().cloned().eq(expected), "{} of {sent}", whole.len());
    assert_eq!(seen.len(), whole.len(), "a record was committed by two members");
}

#[test]
fn members_come_and_go_under_load() {
    come_and_go(Protocol::Classic, false);
}

#[test]
fn members_of_the_consumer_protocol_come_and_go_under_load() {
    come_and_go(Protocol::Consumer, false);
}

#[test]
fn members_that_hear_of_ends_come_and_go_under_load() {
    come_and_go(Protocol::Classic, true);
}

#[test]
fn members_of_the_consumer_protocol_that_hear_of_ends_come_and_go_under_load() {
    come_and_go(Protocol::Consumer, true);
}

#[test]
fn a_static_member_returns_to_its_partitions() {
    let log = crate::kafka_support::log();
    let topic = topic(&*log, 4);
    let settings = group("lasting", &topic, Protocol::Classic);
    let named = |id: &str| GroupSettings { instance_id: Some(id.into()), ..settings.clone() };
    let mut one = TestMember::join(&*log, &named("one"));
    let mut two = TestMember::join(&*log, &named("two"));
    until("they share", || {
        one.step(MOMENT);
        two.step(MOMENT);
        one.has.len() == 2 && two.has.len() == 2
    });
    let mut had: Vec<_> = two.has.iter().map(|one| one.partition.clone()).collect();
    two.member.leave(Duration::from_secs(5));
    let mut two = TestMember::join(&*log, &named("two"));
    until("it is back", || {
        one.step(MOMENT);
        two.step(MOMENT);
        two.has.len() == 2
    });
    let mut has: Vec<_> = two.has.iter().map(|one| one.partition.clone()).collect();
    had.sort();
    has.sort();
    assert_eq!(has, had);
    assert_eq!(one.has.len(), 2, "the other member keeps its partitions");
}

#[test]
fn a_second_static_member_of_a_name_fences_the_first() {
    let log = crate::kafka_support::log();
    let topic = topic(&*log, 1);
    let mut settings = group("fenced", &topic, Protocol::Classic);
    settings.instance_id = Some("only".into());
    let mut one = TestMember::join(&*log, &settings);
    one.has(1);
    let mut two = TestMember::join(&*log, &settings);
    until("a report", || {
        one.step(MOMENT);
        two.step(MOMENT);
        one.errors.iter().any(|error| error.kind == ErrorKind::Fenced)
    });
    assert_eq!(one.errors.len(), 1, "{:?}", one.errors);
}

#[test]
fn a_member_that_polls_without_fetching_stays() {
    let log = crate::kafka_support::log();
    let topic = topic(&*log, 2);
    fill(&*log, &topic, 0, 0..10);
    let mut settings = group("slow", &topic, Protocol::Classic);
    settings.max_poll_interval = Duration::from_millis(3_000);
    settings.session_timeout = Duration::from_millis(3_000);
    let mut member = TestMember::join(&*log, &settings);
    member.read(5);
    // Three times as long as a member may be silent.
    let end = Instant::now() + Duration::from_millis(9_000);
    while Instant::now() < end {
        member.step(MOMENT);
    }
    assert_eq!((member.has.len(), member.errors.len()), (2, 0), "{:?}", member.errors);
    member.member.commit(&[commit(&topic, 0, 10, "")], true).unwrap();
}

#[test]
fn a_commit_of_a_removed_member_fails() {
    let log = crate::kafka_support::log();
    let topic = topic(&*log, 1);
    let mut settings = group("out", &topic, Protocol::Classic);
    settings.max_poll_interval = Duration::from_millis(1_000);
    settings.session_timeout = Duration::from_millis(1_000);
    let mut member = TestMember::join(&*log, &settings);
    member.has(1);
    let mut lost = false;
    until("it is put out", || {
        std::thread::sleep(Duration::from_millis(1_500));
        let mut events = Vec::new();
        member.member.poll(&mut events);
        // On a busy machine it may have come back by then, and be put out again.
        lost = matches!(events.last(), Some(MemberEvent::Lost(_)));
        lost
    });
    let error = member.member.commit(&[commit(&topic, 0, 1, "")], true).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Fenced, "{error}");
    assert_eq!(log.admin().unwrap().committed(&settings.name).unwrap(), []);
    member.has.clear();
    member.has(1);
}

#[test]
fn a_commit_before_the_assignment_fails() {
    let log = crate::kafka_support::log();
    let topic = topic(&*log, 1);
    let settings = group("early", &topic, Protocol::Classic);
    let event_fd = Arc::new(chaton_core::event_fd::EventFd::new().unwrap());
    let mut member = log.member(&settings, &event_fd).unwrap();
    // The group is empty, so that the broker itself would accept the commit.
    let error = member.commit(&[commit(&topic, 0, 1, "")], true).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Fenced, "{error}");
    member.commit(&[commit(&topic, 0, 1, "")], false).unwrap();
    let mut events = Vec::new();
    member.poll(&mut events);
    assert!(matches!(&events[..], [MemberEvent::CommitFailed(_)]), "{events:?}");
    assert_eq!(log.admin().unwrap().committed(&settings.name).unwrap(), []);
}

#[test]
fn a_broker_without_the_consumer_protocol_is_reported() {
    let broker = Broker::set("group.coordinator.rebalance.protocols=classic");
    let log = broker.log();
    let topic = topic(&*log, 1);
    let event_fd = Arc::new(chaton_core::event_fd::EventFd::new().unwrap());
    let mut member = log.member(&group("new", &topic, Protocol::Consumer), &event_fd).unwrap();
    let mut events = Vec::new();
    until("a report", || {
        member.wait(MOMENT);
        member.poll(&mut events);
        !events.is_empty()
    });
    let [MemberEvent::Fatal(error)] = &events[..] else { panic!("{events:?}") };
    assert_eq!(error.kind, ErrorKind::Refused);
    assert!(error.message.contains("older"), "{error}");
}
