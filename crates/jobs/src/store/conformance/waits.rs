//! Waits that end when something changes, and not before.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::harness::*;
use crate::store::*;

/// A wait in which nothing happens.
const SHORT: Duration = Duration::from_millis(50);

fn arm(watch: &mut dyn StoreWatch) -> Availability {
    watch.arm(&names(&["q", "r"])).unwrap()
}

/// The event that ends a wait while another connection makes `change`.
fn ended_by(harness: &mut StoreHarness, change: impl FnOnce(&mut dyn Store)) -> StoreEvent {
    let mut watch = harness.factory.watch();
    let (armed, is_armed) = mpsc::channel();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(move || {
            arm(&mut *watch);
            armed.send(()).unwrap();
            let began = Instant::now();
            let event = watch.wait(TIMEOUT).unwrap();
            assert!(began.elapsed() < TIMEOUT / 2, "it was not the change that ended it");
            event
        });
        is_armed.recv().unwrap();
        change(&mut *harness.store);
        waiter.join().unwrap()
    })
}

fn assert_other(event: StoreEvent) {
    assert!(matches!(event, StoreEvent::Changed { other: true, .. }), "{event:?}");
}

/// Asserts that the event names the queue, or says that anything may have changed.
fn assert_queue(event: StoreEvent, name: &str) {
    let StoreEvent::Changed { queues, other } = &event else { panic!("{event:?}") };
    let named = queues.iter().any(|queue| &**queue == name);
    assert!(named || *other && queues.is_empty(), "{event:?}");
}

pub(crate) fn arm_returns_what_is_available(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    let mut watch = harness.factory.watch();
    assert_eq!(arm(&mut *watch), Availability::default());
    assert_eq!(watch.arm(&[]).unwrap(), Availability::default());
    harness.put("elsewhere", &["a"]);
    assert!(!arm(&mut *watch).ready);
    harness.put("r", &["b"]);
    assert!(arm(&mut *watch).ready);
    harness.store.pause("r", true).unwrap();
    assert!(!arm(&mut *watch).ready, "paused is as good as empty");
    harness.put("q", &["c"]);
    assert!(arm(&mut *watch).ready);
    harness.put_at(1_900_000_500.5, &doc("q", "d"));
    assert_eq!(arm(&mut *watch).next_at, Some(1_900_000_500.5));
    harness.put_in(&JobLocation::Retry, 1_900_000_400.5, &doc("q", "e"));
    assert_eq!(arm(&mut *watch).next_at, Some(1_900_000_400.5));
    harness.store.clear(&JobLocation::Retry, 0).unwrap();
    harness.claim_all("me", "q");
    let armed = arm(&mut *watch);
    assert_eq!(armed, Availability { ready: false, next_at: Some(1_900_000_500.5) });
}

pub(crate) fn a_push_ends_the_wait(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    let payload = doc("r", "a");
    let event = ended_by(&mut harness, |store| {
        store.push(&[job("r", &payload)]).unwrap();
    });
    assert_queue(event, "r");
    // Also when the queue was known before.
    harness.claim_all("me", "r");
    let event = ended_by(&mut harness, |store| {
        store.push_once("tick", TIMEOUT, &job("r", &payload)).unwrap();
    });
    assert_queue(event, "r");
}

pub(crate) fn a_push_between_arm_and_wait_counts(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    let mut watch = harness.factory.watch();
    for round in 0..20 {
        arm(&mut *watch);
        harness.put("q", &["a"]);
        let began = Instant::now();
        assert_queue(watch.wait(TIMEOUT).unwrap(), "q");
        assert!(began.elapsed() < TIMEOUT / 2, "round {round}");
    }
}

pub(crate) fn the_schedule_ends_the_wait(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    let payload = doc("q", "a");
    for at in [1_900_000_500.5, 1_900_000_400.5] {
        let event = ended_by(&mut harness, |store| {
            let new = NewJob { at: Some(at), ..job("q", &payload) };
            store.push(&[new]).unwrap();
        });
        assert_other(event);
        assert_eq!(arm(&mut *harness.factory.watch()).next_at, Some(at));
    }
}

pub(crate) fn a_cancel_ends_the_wait(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    assert_other(ended_by(&mut harness, |store| store.cancel("a").unwrap()));
    assert_other(ended_by(&mut harness, |store| store.cancel("b").unwrap()));
}

pub(crate) fn a_resumed_queue_ends_the_wait(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    harness.put("q", &["a"]);
    harness.store.pause("q", true).unwrap();
    assert_other(ended_by(&mut harness, |store| store.pause("q", false).unwrap()));
    assert!(arm(&mut *harness.factory.watch()).ready);
}

pub(crate) fn a_requeued_job_ends_the_wait(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    harness.put("q", &["a", "b"]);
    harness.claim("me", &["q"], 2, 1);
    let event = ended_by(&mut harness, |store| {
        store.ack_and_claim("me", &[ack(1, "q", back())], None).unwrap();
    });
    assert_queue(event, "q");
    harness.claim("me", &["q"], 1, 3);
    let at = now_s() + 500.0;
    let event = ended_by(&mut harness, |store| {
        let retry = Outcome::Retry { at, payload: doc("q", "b") };
        store.ack_and_claim("me", &[ack(2, "q", retry)], None).unwrap();
    });
    assert_other(event);
    assert!((arm(&mut *harness.factory.watch()).next_at.unwrap() - at).abs() < 0.001);
    let event = ended_by(&mut harness, |store| {
        assert_eq!(store.move_due(at + 1.0, 10).unwrap().moved, 1);
    });
    assert!(matches!(event, StoreEvent::Changed { .. }), "{event:?}");
}

pub(crate) fn an_interrupt_ends_the_wait(fresh: OpenFresh<'_>) {
    let harness = StoreHarness::new(fresh);
    let mut watch = harness.factory.watch();
    let interrupt = watch.interrupter();
    let (armed, is_armed) = mpsc::channel();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(move || {
            arm(&mut *watch);
            armed.send(()).unwrap();
            watch.wait(TIMEOUT).unwrap()
        });
        is_armed.recv().unwrap();
        interrupt.interrupt();
        assert_eq!(waiter.join().unwrap(), StoreEvent::Interrupted);
    });
}

pub(crate) fn an_interrupt_is_kept_for_the_next_wait(fresh: OpenFresh<'_>) {
    let harness = StoreHarness::new(fresh);
    let (mut watch, mut other) = (harness.factory.watch(), harness.factory.watch());
    let interrupt = watch.interrupter();
    interrupt.interrupt();
    interrupt.interrupt();
    arm(&mut *watch);
    arm(&mut *other);
    assert_eq!(watch.wait(TIMEOUT).unwrap(), StoreEvent::Interrupted);
    arm(&mut *watch);
    assert_eq!(watch.wait(SHORT).unwrap(), StoreEvent::Timeout, "one wait");
    assert_eq!(other.wait(SHORT).unwrap(), StoreEvent::Timeout, "one watcher");
}

pub(crate) fn the_timeout_ends_the_wait(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    harness.put("q", &["a"]);
    let mut watch = harness.factory.watch();
    for timeout in [SHORT, Duration::ZERO, SHORT] {
        arm(&mut *watch);
        let began = Instant::now();
        assert_eq!(watch.wait(timeout).unwrap(), StoreEvent::Timeout);
        // Descriptors wait whole milliseconds.
        assert!(began.elapsed() + Duration::from_millis(1) >= timeout);
    }
}
