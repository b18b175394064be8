//! Limiters. The caller passes the time, which may be in any century.

use super::harness::*;
use crate::store::*;

/// Tolerance of times (s).
const TOLERANCE: f64 = 1e-4;

fn at_once(key: &str, max: u32) -> Limit {
    Limit { key: key.into(), rule: LimitRule::Concurrent { max, hold_s: 600.0 } }
}

fn window(key: &str, max: u32, per_s: f64) -> Limit {
    Limit { key: key.into(), rule: LimitRule::Window { max, per_s } }
}

fn bucket(key: &str, max: u32, per_s: f64) -> Limit {
    Limit { key: key.into(), rule: LimitRule::Bucket { max, per_s } }
}

fn ask(harness: &mut StoreHarness, ticket: u64, limits: &[Limit], now: f64) -> Grant {
    let answers = harness.store.acquire("me", &[request(ticket, limits)], now).unwrap();
    assert_eq!(answers.len(), 1);
    answers[0]
}

/// Refused until then.
fn assert_at(grant: Grant, expected: f64) {
    let near =
        matches!(grant, Grant::Behind { at: Some(at), .. } if (at - expected).abs() < TOLERANCE);
    assert!(near, "{grant:?} is not {expected}");
}

fn release(ticket: u64, key: &str, outcome: Outcome) -> Ack {
    let effects = SideEffects { release: vec![key.into()], ..SideEffects::default() };
    ack_with(ticket, "q", outcome, effects)
}

pub(crate) fn a_job_without_limits_is_granted(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    assert_eq!(harness.store.acquire("me", &[], 1000.0).unwrap(), []);
    assert_eq!(ask(&mut harness, 1, &[], 1000.0), Grant::Now);
}

pub(crate) fn a_concurrency_limit_holds(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    harness.put("q", &["a", "b", "c", "d"]);
    harness.claim("me", &["q"], 4, 1);
    let limits = [at_once("api", 2)];
    let asks = [1, 2, 3, 4].map(|ticket| request(ticket, &limits));
    let now = now_s();
    let grants = harness.store.acquire("me", &asks, now).unwrap();
    assert_eq!(grants, [Grant::Now, Grant::Now, DENIED, DENIED]);
    harness.end("me", &[release(2, "api", Outcome::Ack)]);
    let grants = harness.store.acquire("me", &asks[2..], now).unwrap();
    assert_eq!(grants, [Grant::Now, DENIED]);
    // An acknowledgement without a release keeps the slot.
    harness.end("me", &[ack(1, "q", Outcome::Ack)]);
    assert_eq!(ask(&mut harness, 4, &limits, now), DENIED);
    let retry = Outcome::Retry { at: now, payload: doc("q", "c") };
    harness.end("me", &[release(3, "api", retry)]);
    assert_eq!(ask(&mut harness, 4, &limits, now), Grant::Now);
}

pub(crate) fn a_slot_belongs_to_owner_and_ticket(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    harness.put("q", &["a", "b"]);
    harness.claim("me", &["q"], 1, 1);
    harness.claim("you", &["q"], 1, 1);
    let limits = [at_once("api", 1)];
    let now = now_s();
    assert_eq!(ask(&mut harness, 1, &limits, now), Grant::Now);
    assert_eq!(ask(&mut harness, 1, &limits, now), Grant::Now, "it has it already");
    let asks = [request(1, &limits)];
    assert_eq!(harness.store.acquire("you", &asks, now).unwrap(), [DENIED]);
    harness.end("you", &[release(1, "api", back())]);
    assert_eq!(ask(&mut harness, 2, &limits, now), DENIED, "it was not theirs to free");
    harness.end("me", &[release(1, "api", back())]);
    assert_eq!(harness.store.acquire("you", &asks, now).unwrap(), [Grant::Now]);
}

pub(crate) fn recovering_an_owner_releases_its_slots(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    harness.put("q", &["a"]);
    let limits = [at_once("api", 1)];
    let asks = [request(9, &limits)];
    harness.claim("dead", &["q"], 1, 9);
    assert_eq!(harness.store.acquire("dead", &asks, now_s()).unwrap(), [Grant::Now]);
    let left = harness.store.in_flight("dead").unwrap();
    harness.end("dead", &[release(left[0].ticket, "api", back())]);
    assert!(harness.store.forget("dead").unwrap());
    assert_eq!(ask(&mut harness, 1, &limits, now_s()), Grant::Now);
}

pub(crate) fn a_slot_expires(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    let limits = [at_once("api", 1)];
    let now = now_s();
    assert_eq!(ask(&mut harness, 1, &limits, now), Grant::Now);
    assert_eq!(ask(&mut harness, 2, &limits, now + 599.0), DENIED);
    assert_eq!(ask(&mut harness, 2, &limits, now + 601.0), Grant::Now);
    assert_eq!(ask(&mut harness, 3, &limits, now + 601.0), DENIED);
}

pub(crate) fn a_window_slides(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    let limits = [window("mail", 3, 100.0)];
    let t = 1_700_000_000.0;
    for (ticket, start) in [(1, 0.0), (2, 10.0), (3, 20.0)] {
        assert_eq!(ask(&mut harness, ticket, &limits, t + start), Grant::Now);
    }
    assert_at(ask(&mut harness, 4, &limits, t + 30.0), t + 100.0);
    assert_at(ask(&mut harness, 4, &limits, t + 99.5), t + 100.0);
    assert_eq!(ask(&mut harness, 4, &limits, t + 100.0), Grant::Now, "as was promised");
    assert_at(ask(&mut harness, 5, &limits, t + 100.5), t + 110.0);
    assert_eq!(ask(&mut harness, 5, &limits, t + 125.0), Grant::Now);
    assert_eq!(ask(&mut harness, 6, &limits, t + 125.0), Grant::Now);
    assert_at(ask(&mut harness, 7, &limits, t + 125.0), t + 200.0);
}

pub(crate) fn a_bucket_refills_evenly(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    let limits = [bucket("api", 4, 100.0)];
    let t = 1_700_000_000.0;
    for ticket in 1..=4 {
        assert_eq!(ask(&mut harness, ticket, &limits, t), Grant::Now);
    }
    assert_at(ask(&mut harness, 5, &limits, t), t + 25.0);
    assert_at(ask(&mut harness, 5, &limits, t + 10.0), t + 25.0);
    assert_eq!(ask(&mut harness, 5, &limits, t + 25.0), Grant::Now, "as was promised");
    assert_at(ask(&mut harness, 6, &limits, t + 30.0), t + 50.0);
    // Two and a half tokens by now.
    assert_eq!(ask(&mut harness, 6, &limits, t + 87.5), Grant::Now);
    assert_eq!(ask(&mut harness, 7, &limits, t + 87.5), Grant::Now);
    assert_at(ask(&mut harness, 8, &limits, t + 87.5), t + 100.0);
    // Never more than full.
    let grants = [9, 10, 11, 12].map(|ticket| ask(&mut harness, ticket, &limits, t + 5000.0));
    assert_eq!(grants, [Grant::Now; 4]);
    assert_at(ask(&mut harness, 13, &limits, t + 5000.0), t + 5025.0);
}

pub(crate) fn limits_are_granted_together_or_not_at_all(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    let now = now_s();
    let (slot, start, drop) = (at_once("s", 1), window("w", 1, 100.0), bucket("b", 1, 100.0));
    assert_eq!(ask(&mut harness, 1, std::slice::from_ref(&start), now), Grant::Now);
    for (ticket, limits) in [
        (2, [slot.clone(), drop.clone(), start.clone()]),
        (3, [start.clone(), drop.clone(), slot.clone()]),
    ] {
        assert_at(ask(&mut harness, ticket, &limits, now), now + 100.0);
    }
    assert_eq!(ask(&mut harness, 4, &[slot, drop.clone()], now), Grant::Now, "nothing was taken");
    let limits = [at_once("s", 1), window("w2", 1, 100.0)];
    assert!(matches!(ask(&mut harness, 5, &limits, now), Grant::Behind { .. }));
    assert_eq!(ask(&mut harness, 6, &limits[1..], now), Grant::Now, "nor here");
}

pub(crate) fn the_latest_of_known_times_counts(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    let now = now_s();
    let limits = [window("a", 1, 100.0), window("b", 1, 200.0), bucket("c", 1, 50.0)];
    assert_eq!(ask(&mut harness, 1, &limits, now), Grant::Now);
    assert_at(ask(&mut harness, 2, &limits, now), now + 200.0);
    let other_way: Vec<Limit> = limits.iter().rev().cloned().collect();
    assert_at(ask(&mut harness, 3, &other_way, now), now + 200.0);
    assert_eq!(ask(&mut harness, 4, &limits, now + 200.0), Grant::Now);
}

pub(crate) fn keys_are_independent(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    let now = now_s();
    for (ticket, key) in [(1, "a"), (2, "a:b"), (3, "b"), (4, "A")] {
        let limits = [at_once(key, 1)];
        assert_eq!(ask(&mut harness, ticket, &limits, now), Grant::Now, "{key}");
    }
    assert_eq!(ask(&mut harness, 5, &[at_once("b", 1)], now), DENIED);
}
