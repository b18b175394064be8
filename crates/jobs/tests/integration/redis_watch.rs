//! The watch: a change ends the wait at once, and waiting costs nothing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::redis_server::{claim, push, TestRedis, WAIT};
use chaton_jobs::store::{open, NewJob, StoreErrorKind, StoreEvent, StoreWatch};

fn queues() -> [Arc<str>; 2] {
    ["high".into(), "low".into()]
}

fn changed(event: StoreEvent) -> (Vec<String>, bool) {
    match event {
        StoreEvent::Changed { queues, other } => {
            (queues.iter().map(|q| q.to_string()).collect(), other)
        }
        other => panic!("{other:?}"),
    }
}

/// Arms until all earlier changes are reported.
fn arm_settled(watch: &mut dyn StoreWatch) {
    watch.arm(&queues()).unwrap();
    while watch.wait(Duration::ZERO).unwrap() != StoreEvent::Timeout {
        watch.arm(&queues()).unwrap();
    }
}

#[test]
fn returns_what_is_available_and_what_changes() {
    let server = TestRedis::plain();
    let factory = server.factory();
    let (mut store, mut watch) = (factory.store(), factory.watch());
    // Never armed.
    assert_eq!(changed(watch.wait(WAIT).unwrap()), (vec![], true));
    let armed = watch.arm(&queues()).unwrap();
    assert_eq!((armed.ready, armed.next_at), (false, None));
    assert_eq!(watch.wait(Duration::from_millis(30)).unwrap(), StoreEvent::Timeout);
    push(&mut *store, "low", &[b"1"]);
    assert_eq!(changed(watch.wait(WAIT).unwrap()), (vec!["low".into()], false));
    assert!(watch.arm(&queues()).unwrap().ready);
    claim(&mut *store, "me", &["low"], 1, 1).unwrap();
    assert_eq!(changed(watch.wait(WAIT).unwrap()), (vec!["low".into()], false));
    assert!(!watch.arm(&queues()).unwrap().ready);
    // A queue that is not watched.
    push(&mut *store, "other", &[b"1"]);
    assert_eq!(watch.wait(Duration::from_millis(30)).unwrap(), StoreEvent::Timeout);
    let later = NewJob { queue: "low", payload: b"{}", at: Some(5.5), lock: None, bid: None };
    store.push(&[later]).unwrap();
    assert_eq!(changed(watch.wait(WAIT).unwrap()), (vec![], true));
    assert_eq!(watch.arm(&queues()).unwrap().next_at, Some(5.5));
}

#[test]
fn pauses_cancels_and_a_flush_end_the_wait() {
    let server = TestRedis::plain();
    let factory = server.factory();
    let (mut store, mut watch) = (factory.store(), factory.watch());
    push(&mut *store, "low", &[b"1"]);
    arm_settled(&mut *watch);
    store.pause("low", true).unwrap();
    assert_eq!(changed(watch.wait(WAIT).unwrap()), (vec![], true));
    assert!(!watch.arm(&queues()).unwrap().ready);
    store.pause("low", false).unwrap();
    assert_eq!(changed(watch.wait(WAIT).unwrap()), (vec![], true));
    assert!(watch.arm(&queues()).unwrap().ready);
    store.cancel("jid").unwrap();
    assert_eq!(changed(watch.wait(WAIT).unwrap()), (vec![], true));
    assert_eq!(store.cancelled(&["no", "jid"]).unwrap(), [false, true]);
    arm_settled(&mut *watch);
    server.cli(&["FLUSHALL"]);
    assert!(changed(watch.wait(WAIT).unwrap()).1);
}

#[test]
fn an_interrupt_ends_the_wait_also_before_it_begins() {
    let server = TestRedis::plain();
    let mut watch = server.factory().watch();
    let interrupt = watch.interrupter();
    interrupt.interrupt();
    arm_after_interrupt(&mut *watch);
    std::thread::scope(|scope| {
        scope.spawn(|| interrupt.interrupt());
        assert_eq!(watch.wait(WAIT).unwrap(), StoreEvent::Interrupted);
    });
    assert_eq!(watch.wait(Duration::from_millis(10)).unwrap(), StoreEvent::Timeout);
}

fn arm_after_interrupt(watch: &mut dyn StoreWatch) {
    watch.arm(&queues()).unwrap();
    assert_eq!(watch.wait(WAIT).unwrap(), StoreEvent::Interrupted);
}

#[test]
fn a_push_ends_the_wait_within_milliseconds() {
    let server = TestRedis::plain();
    let factory = server.factory();
    let (mut store, mut watch) = (factory.store(), factory.watch());
    let mut delays = Vec::new();
    for n in 0..50u64 {
        arm_settled(&mut *watch);
        let (pushed, reported) = std::thread::scope(|scope| {
            let store = &mut store;
            let pusher = scope.spawn(move || {
                let began = Instant::now();
                push(&mut **store, "low", &[b"1"]);
                began
            });
            assert_eq!(changed(watch.wait(WAIT).unwrap()).0, ["low"]);
            (pusher.join().unwrap(), Instant::now())
        });
        delays.push(reported.saturating_duration_since(pushed));
        claim(&mut *store, "me", &["low"], 1, n).unwrap();
    }
    delays.sort_unstable();
    // The median: a shared machine may delay any single one.
    assert!(delays[25] < Duration::from_millis(5), "{delays:?}");
}

#[test]
fn a_lost_server_is_an_error_and_is_found_again() {
    let mut server = TestRedis::plain();
    let mut options = server.options();
    options.answer_timeout = Duration::from_millis(300);
    let factory = open(&options).unwrap();
    let mut watch = factory.watch();
    arm_settled(&mut *watch);
    server.kill();
    let error = watch.wait(WAIT).unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
    assert_eq!(watch.arm(&queues()).unwrap_err().kind, StoreErrorKind::Unavailable);
    server.restart();
    arm_settled(&mut *watch);
    push(&mut *factory.store(), "high", &[b"1"]);
    assert_eq!(changed(watch.wait(WAIT).unwrap()).0, ["high"]);
    // A hanging server gets a PING after a while and is given up.
    arm_settled(&mut *watch);
    server.pause();
    let began = Instant::now();
    let error = watch.wait(Duration::from_secs(60)).unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    server.resume();
}

#[test]
fn waiting_costs_nothing() {
    let server = TestRedis::plain();
    let mut watch = server.factory().watch();
    arm_settled(&mut *watch);
    let before = commands(&server);
    assert_eq!(watch.wait(Duration::from_secs(2)).unwrap(), StoreEvent::Timeout);
    // INFO itself is one command.
    assert!(commands(&server) - before <= 1);
}

fn commands(server: &TestRedis) -> u64 {
    let stats = server.cli(&["INFO", "stats"]);
    let line = stats.lines().find_map(|l| l.strip_prefix("total_commands_processed:"));
    line.unwrap().trim().parse().unwrap()
}
