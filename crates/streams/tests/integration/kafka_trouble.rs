//! Brokers that are not there, that go away, that do not know us.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::kafka_support::{free_ports, Broker};
use chaton_streams::log::conformance::fixture::{
    commit, fill, new_topic, partition, record, topic, until, TestMember, LIMITS, MOMENT,
};
use chaton_streams::log::{open, ErrorKind, LogError, MemberEvent, Position, RecordLog};
use chaton_streams::receipt::Receipt;
use chaton_streams::settings::{GroupSettings, LogSettings};

/// Long enough for a second report of the same cause to come.
const A_WHILE: Duration = Duration::from_secs(4);

fn unreachable() -> Arc<dyn RecordLog> {
    let mut settings = LogSettings::for_tests(&format!("kafka://127.0.0.1:{}", free_ports(1)[0]));
    settings.answer_timeout = Duration::from_millis(2_000);
    settings.delivery_timeout = Duration::from_millis(1_500);
    open(&settings).unwrap()
}

/// The port of a server that knows itself when it is asked first, and later no broker, as one that
/// starts anew.
fn forgets_brokers() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let knows = Arc::new(AtomicBool::new(true));
    thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let knows = Arc::clone(&knows);
            thread::spawn(move || while answer(&mut client, port, &knows).is_ok() {});
        }
    });
    port
}

/// Answers the requests ApiVersions (18) 0 and Metadata (3) 1, which are all that it says it knows
/// (<https://kafka.apache.org/protocol>).
fn answer(client: &mut TcpStream, port: u16, knows: &AtomicBool) -> io::Result<()> {
    const UNSUPPORTED_VERSION: i16 = 35;
    let mut len = [0; 4];
    client.read_exact(&mut len)?;
    let mut request = vec![0; u32::from_be_bytes(len) as usize];
    client.read_exact(&mut request)?;
    let mut response = request[4..8].to_vec();
    let mut put = |bytes: &[u8]| response.extend(bytes);
    match (request[1], request[3]) {
        (3, _) if knows.swap(false, Ordering::SeqCst) => {
            // One broker with its number, host, port and no rack.
            put(&1_i32.to_be_bytes());
            put(&0_i32.to_be_bytes());
            put(b"\0\x09127.0.0.1");
            put(&i32::from(port).to_be_bytes());
            put(&(-1_i16).to_be_bytes());
            // It is the controller. No topics.
            put(&[0; 8]);
        }
        // No brokers, no controller, no topics.
        (3, _) => [0_i32, -1, 0].iter().for_each(|number| put(&number.to_be_bytes())),
        (_, version) => {
            let error = if version == 0 { 0 } else { UNSUPPORTED_VERSION };
            // Two entries: the request, its lowest and its highest version.
            let fields = [error, 0, 2, 3, 1, 1, 18, 0, 0];
            fields.iter().for_each(|number| put(&number.to_be_bytes()));
        }
    }
    client.write_all(&u32::try_from(response.len()).unwrap().to_be_bytes())?;
    client.write_all(&response)
}

/// The events of a member during a while.
fn reported(log: &dyn RecordLog) -> Vec<MemberEvent> {
    let event_fd = Arc::new(chaton_core::event_fd::EventFd::new().unwrap());
    let mut member =
        log.member(&GroupSettings::for_tests("reported", &["none"]), &event_fd).unwrap();
    let mut events = Vec::new();
    let until = Instant::now() + A_WHILE;
    while Instant::now() < until {
        member.wait(MOMENT);
        member.poll(&mut events);
    }
    events
}

/// Why a record was not written.
fn failure(log: &dyn RecordLog, topic: &str) -> LogError {
    let producer = log.producer().unwrap();
    let receipt = Arc::new(Receipt::new(1));
    producer.send(&record(topic, b"v"), Some((&receipt, 0))).unwrap();
    assert!(receipt.wait(Duration::from_secs(20)));
    receipt.failures().pop().expect("it has failed").1
}

#[test]
fn an_unreachable_broker_is_reported_once() {
    let log = unreachable();
    let events = reported(&*log);
    let [MemberEvent::Error(error)] = &events[..] else { panic!("{events:?}") };
    assert_eq!(error.kind, ErrorKind::Unreachable);
    for part in [log.address(), "refused", "check the address"] {
        assert!(error.message.contains(part), "{error}");
    }
}

// librdkafka's DescribeCluster ends the process when it gets such an answer.
#[test]
fn a_broker_that_knows_no_broker_gives_an_error() {
    let mut settings = LogSettings::for_tests(&format!("kafka://127.0.0.1:{}", forgets_brokers()));
    settings.answer_timeout = Duration::from_millis(1_000);
    let mut admin = open(&settings).unwrap().admin().unwrap();
    let error = admin.topics().unwrap_err();
    assert!(error.message.contains("the list of topics"), "{error}");
}

#[test]
fn every_client_reports_an_unreachable_broker() {
    let log = unreachable();
    let error = failure(&*log, "none");
    assert_eq!(error.kind, ErrorKind::Unreachable);
    assert!(error.message.contains("refused"), "{error}");
    let mut admin = log.admin().unwrap();
    for error in [admin.topics().unwrap_err(), admin.committed("g").unwrap_err()] {
        assert_eq!(error.kind, ErrorKind::Unreachable);
        assert!(error.message.contains("refused"), "{error}");
    }
    let error = log.reader(&partition("none", 0), Position::Earliest).err().unwrap();
    assert_eq!(error.kind, ErrorKind::Unreachable, "{error}");
    let mut transactor = log.transactional_producer("t").unwrap();
    let error = transactor.transact(&[], "g", b"", &[], &|| true).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unreachable, "{error}");
}

#[test]
fn an_unresolvable_host_is_reported() {
    let mut settings = LogSettings::for_tests("kafka://no-such-host.invalid:9092");
    settings.answer_timeout = Duration::from_millis(2_000);
    let log = open(&settings).unwrap();
    let error = log.admin().unwrap().topics().unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unreachable);
    assert!(error.message.contains("no-such-host.invalid"), "{error}");
}

#[test]
fn a_topic_created_later_is_reported_and_then_read() {
    let log = crate::kafka_support::log();
    let name = chaton_streams::log::conformance::fixture::name("late");
    let mut member = TestMember::join(&*log, &GroupSettings::for_tests(&name, &[&name]));
    until("the topic is missed", || {
        member.step(MOMENT);
        !member.errors.is_empty()
    });
    assert_eq!(member.errors[0].kind, ErrorKind::UnknownTopic);
    assert!(member.errors[0].message.contains(&name), "{:?}", member.errors);
    log.admin().unwrap().create(&new_topic(&name, 1, &[])).unwrap();
    fill(&*log, &name, 0, 0..5);
    member.read(5);
    assert_eq!(member.errors.len(), 1, "{:?}", member.errors);
}

#[test]
fn an_unknown_topic_fails_its_records() {
    let name = chaton_streams::log::conformance::fixture::name("none");
    let error = failure(&*crate::kafka_support::log(), &name);
    assert_eq!(error.kind, ErrorKind::UnknownTopic);
    assert!(error.message.contains(&name), "{error}");
}

#[test]
fn all_clients_continue_after_the_broker_restarts() {
    let broker = Broker::start();
    let log = broker.log();
    let topic = topic(&*log, 2);
    let group = GroupSettings::for_tests("survivors", &[&topic]);
    let mut member = TestMember::join(&*log, &group);
    let producer = log.producer().unwrap();
    let receipt = Arc::new(Receipt::new(3000));
    let send = |values: std::ops::Range<usize>| {
        for value in values {
            let text = value.to_string();
            let mut one = record(&topic, text.as_bytes());
            one.partition = Some((value % 2) as i32);
            producer.send(&one, Some((&receipt, value))).unwrap();
        }
    };
    send(0..1000);
    member.read(1000);
    broker.kill();
    send(1000..2000);
    until("the broker is missed", || {
        member.step(MOMENT);
        !member.errors.is_empty()
    });
    broker.again();
    send(2000..3000);
    member.read(3000);
    assert!(receipt.wait(Duration::from_secs(60)));
    assert_eq!(receipt.failures(), []);
    let mut numbers = member.numbers();
    numbers.dedup();
    assert_eq!(numbers, (0..3000).collect::<Vec<_>>());
    member.has(2);
    until("a commit is taken", || {
        member.step(MOMENT);
        member.member.commit(&[commit(&topic, 0, 1500, "")], true).is_ok()
    });
    assert_eq!(log.admin().unwrap().committed("survivors").unwrap()[0].offset, 1500);
    let outages = member.errors.iter().filter(|one| one.message.contains("no broker answers"));
    assert_eq!(outages.count(), 1, "{:?}", member.errors);
}

#[test]
fn a_member_knows_the_first_record_that_was_not_removed() {
    let broker = Broker::start();
    let log = broker.log();
    let topic = topic(&*log, 1);
    fill(&*log, &topic, 0, 0..10);
    log.admin().unwrap().set_committed("slow", &[commit(&topic, 0, 3, "")]).unwrap();
    broker.delete_records(&topic, 6);
    let mut member = TestMember::join(&*log, &GroupSettings::for_tests("slow", &[&topic]));
    member.read(4);
    assert_eq!(member.has[0].committed, Some(3));
    assert_eq!(member.numbers(), [6, 7, 8, 9]);
    assert_eq!(member.member.start_offset(&partition(&topic, 0)), Some(6));
}

#[test]
fn all_clients_continue_after_a_pause_of_the_broker() {
    let broker = Broker::start();
    let log = broker.log();
    let topic = topic(&*log, 1);
    fill(&*log, &topic, 0, 0..10);
    let mut member = TestMember::join(&*log, &GroupSettings::for_tests("paused", &[&topic]));
    member.read(10);
    broker.pause();
    let producer = log.producer().unwrap();
    let receipt = Arc::new(Receipt::new(1));
    producer.send(&record(&topic, b"10"), Some((&receipt, 0))).unwrap();
    let until = Instant::now() + A_WHILE;
    while Instant::now() < until {
        member.step(MOMENT);
        assert!(member.member.fetch(&partition(&topic, 0), LIMITS).unwrap().is_none());
    }
    broker.resume();
    member.read(11);
    assert!(receipt.wait(Duration::from_secs(30)));
    assert_eq!(receipt.failures(), []);
}
