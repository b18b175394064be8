//! SASL and TLS, with the right credentials and the wrong ones.

use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::{Duration, Instant};

use crate::kafka_support::{Broker, SecureListeners};
use chaton_streams::log::conformance::fixture::{
    fill, read, record, topic, until, TestMember, MOMENT,
};
use chaton_streams::log::{open, ErrorKind, LogError, MemberEvent, Position, RecordLog};
use chaton_streams::receipt::Receipt;
use chaton_streams::settings::{GroupSettings, LogSettings};

static SECURED: LazyLock<(String, SecureListeners)> = LazyLock::new(|| {
    let (broker, ports) = Broker::secured();
    let ca_file = broker.ca_file();
    crate::kafka_support::keep(broker);
    (ca_file, ports)
});

/// A log with credentials, or with one of them wrong.
fn with(scheme: &str, port: u16, change: impl FnOnce(&mut LogSettings)) -> Arc<dyn RecordLog> {
    let mut settings = LogSettings::for_tests(&format!("{scheme}://127.0.0.1:{port}"));
    settings.answer_timeout = Duration::from_millis(5_000);
    change(&mut settings);
    open(&settings).unwrap()
}

fn user(settings: &mut LogSettings, password: &str, mechanism: Option<&str>) {
    settings.username = Some("chaton".into());
    settings.password = Some(password.into());
    settings.mechanism = mechanism.map(str::to_owned);
}

fn round_trip(log: &dyn RecordLog) {
    let topic = topic(log, 1);
    fill(log, &topic, 0, 0..3);
    assert_eq!(read(log, &topic, 0, Position::Earliest, 3), ["0", "1", "2"]);
}

/// The first events of a member, and those of the next seconds.
fn reported(log: &dyn RecordLog) -> Vec<MemberEvent> {
    let event_fd = Arc::new(chaton_core::event_fd::EventFd::new().unwrap());
    let mut member =
        log.member(&GroupSettings::for_tests("reported", &["none"]), &event_fd).unwrap();
    let mut events = Vec::new();
    let mut again = |events: &mut Vec<MemberEvent>| {
        member.wait(MOMENT);
        member.poll(events);
    };
    until("a report", || {
        again(&mut events);
        !events.is_empty()
    });
    let end = Instant::now() + Duration::from_secs(3);
    while Instant::now() < end {
        again(&mut events);
    }
    events
}

/// Checks that every client of the log refuses to work, each with this in its message.
fn refused(log: &dyn RecordLog, hint: &str) {
    let check = |error: &LogError| {
        assert_eq!(error.kind, ErrorKind::Refused, "{error}");
        assert!(error.message.contains(hint), "{error}");
        assert!(!error.message.contains("wrong-word"), "{error}");
    };
    let events = reported(log);
    let [MemberEvent::Fatal(error)] = &events[..] else { panic!("{events:?}") };
    check(error);
    check(&log.admin().unwrap().topics().unwrap_err());
    let producer = log.producer().unwrap();
    let receipt = Arc::new(Receipt::new(1));
    producer.send(&record("none", b"v"), Some((&receipt, 0))).unwrap();
    // Long before the time for delivery is up.
    assert!(receipt.wait(Duration::from_secs(20)));
    check(&receipt.failures()[0].1);
}

#[test]
fn each_mechanism_accepts_the_password() {
    let (_, ports) = &*SECURED;
    for mechanism in [None, Some("PLAIN"), Some("SCRAM-SHA-256"), Some("SCRAM-SHA-512")] {
        round_trip(&*with("kafka", ports.sasl, |settings| user(settings, "secret", mechanism)));
    }
}

#[test]
fn a_wrong_password_is_reported_once() {
    let (_, ports) = &*SECURED;
    for mechanism in ["PLAIN", "SCRAM-SHA-512"] {
        let log = with("kafka", ports.sasl, |settings| {
            user(settings, "wrong-word", Some(mechanism));
        });
        refused(&*log, "check username");
    }
}

/// An address in front of a listener of the broker. It closes connections while it is shut.
struct Gate {
    port: u16,
    open: Arc<AtomicBool>,
    connections: Arc<AtomicUsize>,
}

impl Gate {
    fn new(target: u16, is_open: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let open = Arc::new(AtomicBool::new(is_open));
        let connections = Arc::new(AtomicUsize::new(0));
        let gate = Self { port, open: open.clone(), connections: connections.clone() };
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                connections.fetch_add(1, Ordering::SeqCst);
                if open.load(Ordering::SeqCst) {
                    forward(client, TcpStream::connect(("127.0.0.1", target)).unwrap());
                }
            }
        });
        gate
    }
}

fn forward(client: TcpStream, server: TcpStream) {
    let pairs = [(client.try_clone().unwrap(), server.try_clone().unwrap()), (server, client)];
    for (mut from, mut to) in pairs {
        thread::spawn(move || {
            let _ = io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Both);
        });
    }
}

/// Two addresses of the log: one refuses the credentials, the other one is shut. Returns also their
/// gates, in this order, and a topic.
fn half_refused() -> (Arc<dyn RecordLog>, Gate, Gate, String) {
    let (ca_file, ports) = &*SECURED;
    let credentials = |settings: &mut LogSettings| {
        settings.tls_ca_file = Some(ca_file.clone());
        user(settings, "secret", Some("PLAIN"));
        settings.refused_timeout = Duration::from_millis(60_000);
    };
    let topic = topic(&*with("kafka+ssl", ports.both, credentials), 1);
    // This listener knows no SASL.
    let (bad, good) = (Gate::new(ports.tls, true), Gate::new(ports.both, false));
    let log = with("kafka+ssl", bad.port, |settings| {
        credentials(settings);
        settings.broker.push_str(&format!(",127.0.0.1:{}", good.port));
    });
    (log, bad, good, topic)
}

/// Another connection is tried only after the one before was refused.
const REFUSED: usize = 3;

#[test]
fn records_wait_for_another_broker_when_one_refuses_the_credentials() {
    let (log, bad, good, topic) = half_refused();
    let producer = log.producer().unwrap();
    let receipt = Arc::new(Receipt::new(1));
    producer.send(&record(&topic, b"v"), Some((&receipt, 0))).unwrap();
    until("a broker refuses", || {
        receipt.wait(MOMENT) || bad.connections.load(Ordering::SeqCst) >= REFUSED
    });
    assert_eq!(receipt.failures(), []);
    good.open.store(true, Ordering::SeqCst);
    assert!(receipt.wait(Duration::from_secs(60)));
    assert_eq!(receipt.failures(), []);
}

#[test]
fn a_member_waits_for_another_broker_when_one_refuses_the_credentials() {
    let (log, bad, good, topic) = half_refused();
    let mut member = TestMember::join(&*log, &GroupSettings::for_tests(&topic, &[&topic]));
    until("a broker refuses", || {
        member.step(MOMENT);
        bad.connections.load(Ordering::SeqCst) >= REFUSED
    });
    assert!(member.errors.is_empty(), "{:?}", member.errors);
    good.open.store(true, Ordering::SeqCst);
    until("it is reported", || {
        member.step(MOMENT);
        !member.errors.is_empty()
    });
    assert!(member.errors[0].message.contains("others accept it"), "{:?}", member.errors);
    fill(&*log, &topic, 0, 0..3);
    member.read(3);
}

#[test]
fn tls_works_with_the_right_authority() {
    let (ca_file, ports) = &*SECURED;
    let authority = |settings: &mut LogSettings| settings.tls_ca_file = Some(ca_file.clone());
    round_trip(&*with("kafka+ssl", ports.tls, authority));
    round_trip(&*with("kafka+ssl", ports.both, |settings| {
        authority(settings);
        user(settings, "secret", Some("SCRAM-SHA-512"));
    }));
}

#[test]
fn an_untrusted_authority_is_reported_once() {
    let (_, ports) = &*SECURED;
    refused(&*with("kafka+ssl", ports.tls, |_| {}), "tls_ca_file");
}

#[test]
fn a_listener_of_another_kind_is_reported() {
    let (_, ports) = &*SECURED;
    let log = with("kafka", ports.tls, |_| {});
    let events = reported(&*log);
    let [MemberEvent::Error(error)] = &events[..] else { panic!("{events:?}") };
    assert_eq!(error.kind, ErrorKind::Unreachable);
    assert!(error.message.contains("may want TLS"), "{error}");
}
