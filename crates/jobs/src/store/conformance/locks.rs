//! Unique jobs.

use std::time::Duration;

use super::harness::*;
use crate::store::*;

fn locked<'a>(payload: &'a [u8], key: &'a str, jid: &'a str) -> NewJob<'a> {
    let lock = NewLock { key, jid, ttl: Duration::from_secs(3600) };
    NewJob { lock: Some(lock), ..job("q", payload) }
}

/// Tries to take a lock; returns its holder.
fn holder(harness: &mut StoreHarness, key: &str, jid: &str) -> Option<String> {
    let payload = doc("q", jid);
    match harness.store.push(&[locked(&payload, key, jid)]).unwrap().remove(0) {
        PushResult::Stored => None,
        PushResult::Locked(holder) => Some(holder),
    }
}

pub(crate) fn a_held_lock_rejects_only_its_own_job(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    assert_eq!(holder(&mut harness, "k", "a"), None);
    let payloads = ["b", "c", "d"].map(|jid| doc("q", jid));
    let jobs =
        [job("q", &payloads[0]), locked(&payloads[1], "k", "c"), locked(&payloads[2], "k2", "d")];
    let answers = harness.factory.store().push(&jobs).unwrap();
    assert_eq!(answers, [PushResult::Stored, PushResult::Locked("a".into()), PushResult::Stored]);
    assert_eq!(harness.listed(&queue("q")), ["a", "b", "d"]);
    // Claimed or not, it is held until it is released.
    harness.claim_all("me", "q");
    assert_eq!(holder(&mut harness, "k", "e").as_deref(), Some("a"));
}

pub(crate) fn a_lock_works_within_one_push(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    let payloads = ["a", "b"].map(|jid| doc("q", jid));
    let jobs = [locked(&payloads[0], "k", "a"), locked(&payloads[1], "k", "b")];
    let answers = harness.store.push(&jobs).unwrap();
    assert_eq!(answers, [PushResult::Stored, PushResult::Locked("a".into())]);
    assert_eq!(harness.listed(&queue("q")), ["a"]);
}

pub(crate) fn only_its_holder_releases_a_lock(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    holder(&mut harness, "k", "a");
    let others = [HeldLock { key: "k", jid: "b" }, HeldLock { key: "unknown", jid: "a" }];
    harness.store.unlock(&others).unwrap();
    harness.store.unlock(&[]).unwrap();
    assert_eq!(holder(&mut harness, "k", "b").as_deref(), Some("a"));
    harness.factory.store().unlock(&[HeldLock { key: "k", jid: "a" }]).unwrap();
    assert_eq!(holder(&mut harness, "k", "b"), None);
    assert_eq!(holder(&mut harness, "k", "c").as_deref(), Some("b"));
}

pub(crate) fn an_ack_releases_a_lock(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    holder(&mut harness, "k", "a");
    holder(&mut harness, "k2", "b");
    harness.claim("me", &["q"], 2, 1);
    let unlock = |key: &str, jid: &str| SideEffects {
        unlock: Some((key.into(), jid.into())),
        ..SideEffects::default()
    };
    let retry = Outcome::Retry { at: now_s() + 99.0, payload: doc("q", "b") };
    let ends = [ack_with(1, "q", Outcome::Ack, unlock("k", "a")), ack(2, "q", retry)];
    assert_eq!(harness.end("me", &ends), 0);
    assert_eq!(holder(&mut harness, "k", "c"), None);
    assert_eq!(holder(&mut harness, "k2", "d").as_deref(), Some("b"), "a retry keeps its lock");
    // The lock belongs to another job by now.
    harness.claim("me", &["q"], 1, 3);
    harness.end("me", &[ack_with(3, "q", Outcome::Ack, unlock("k", "a"))]);
    assert_eq!(holder(&mut harness, "k", "d").as_deref(), Some("c"));
}

pub(crate) fn a_lock_expires(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    let payload = doc("q", "a");
    let ttl = Duration::from_millis(30);
    let brief = NewJob { lock: Some(NewLock { key: "k", jid: "a", ttl }), ..job("q", &payload) };
    assert_eq!(harness.store.push(&[brief]).unwrap(), [PushResult::Stored]);
    until("the lock ends", || holder(&mut harness, "k", "b").is_none());
    // The first job can no longer release the lock of the second.
    harness.store.unlock(&[HeldLock { key: "k", jid: "a" }]).unwrap();
    assert_eq!(holder(&mut harness, "k", "c").as_deref(), Some("b"));
}

pub(crate) fn a_job_is_not_rejected_by_its_own_lock(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    assert_eq!(holder(&mut harness, "k", "a"), None);
    // It became due and was claimed, and client middleware pushes it again.
    assert_eq!(holder(&mut harness, "k", "a"), None);
    assert_eq!(holder(&mut harness, "k", "b").as_deref(), Some("a"));
}

pub(crate) fn a_scheduled_job_holds_its_lock(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    let payload = doc("q", "a");
    let new = NewJob { at: Some(now_s() - 1.0), ..locked(&payload, "k", "a") };
    assert_eq!(harness.store.push(&[new]).unwrap(), [PushResult::Stored]);
    assert_eq!(holder(&mut harness, "k", "b").as_deref(), Some("a"));
    assert_eq!(harness.store.move_due(now_s(), 10).unwrap().moved, 1);
    assert_eq!(holder(&mut harness, "k", "b").as_deref(), Some("a"));
    assert_eq!(harness.listed(&queue("q")), ["a"]);
}
