//! Unique jobs.

use std::time::Duration;

use super::bench::*;
use crate::store::*;

fn locked<'a>(payload: &'a [u8], key: &'a str, jid: &'a str) -> NewJob<'a> {
    let lock = NewLock { key, jid, ttl: Duration::from_secs(3600) };
    NewJob { lock: Some(lock), ..job("q", payload) }
}

/// Tries to take a lock; who holds it.
fn holder(desk: &mut Desk, key: &str, jid: &str) -> Option<String> {
    let payload = doc("q", jid);
    match desk.store.push(&[locked(&payload, key, jid)]).unwrap().remove(0) {
        PushResult::Stored => None,
        PushResult::Locked(holder) => Some(holder),
    }
}

pub(crate) fn a_held_lock_keeps_only_its_own_job_out(fresh: Fresh<'_>) {
    let mut desk = Desk::new(fresh);
    assert_eq!(holder(&mut desk, "k", "a"), None);
    let payloads = ["b", "c", "d"].map(|jid| doc("q", jid));
    let jobs =
        [job("q", &payloads[0]), locked(&payloads[1], "k", "c"), locked(&payloads[2], "k2", "d")];
    let answers = desk.factory.store().push(&jobs).unwrap();
    assert_eq!(answers, [PushResult::Stored, PushResult::Locked("a".into()), PushResult::Stored]);
    assert_eq!(desk.listed(&queue("q")), ["a", "b", "d"]);
    // Claimed or not, it is held until it is given up.
    desk.claim_all("me", "q");
    assert_eq!(holder(&mut desk, "k", "e").as_deref(), Some("a"));
}

pub(crate) fn a_lock_works_within_one_push(fresh: Fresh<'_>) {
    let mut desk = Desk::new(fresh);
    let payloads = ["a", "b"].map(|jid| doc("q", jid));
    let jobs = [locked(&payloads[0], "k", "a"), locked(&payloads[1], "k", "b")];
    let answers = desk.store.push(&jobs).unwrap();
    assert_eq!(answers, [PushResult::Stored, PushResult::Locked("a".into())]);
    assert_eq!(desk.listed(&queue("q")), ["a"]);
}

pub(crate) fn only_its_holder_gives_a_lock_up(fresh: Fresh<'_>) {
    let mut desk = Desk::new(fresh);
    holder(&mut desk, "k", "a");
    let others = [HeldLock { key: "k", jid: "b" }, HeldLock { key: "unknown", jid: "a" }];
    desk.store.unlock(&others).unwrap();
    desk.store.unlock(&[]).unwrap();
    assert_eq!(holder(&mut desk, "k", "b").as_deref(), Some("a"));
    desk.factory.store().unlock(&[HeldLock { key: "k", jid: "a" }]).unwrap();
    assert_eq!(holder(&mut desk, "k", "b"), None);
    assert_eq!(holder(&mut desk, "k", "c").as_deref(), Some("b"));
}

pub(crate) fn a_settle_gives_a_lock_up(fresh: Fresh<'_>) {
    let mut desk = Desk::new(fresh);
    holder(&mut desk, "k", "a");
    holder(&mut desk, "k2", "b");
    desk.claim("me", &["q"], 2, 1);
    let unlock = |key: &str, jid: &str| SideEffects {
        unlock: Some((key.into(), jid.into())),
        ..SideEffects::default()
    };
    let retry = Outcome::Retry { at: now_s() + 99.0, payload: doc("q", "b") };
    let ends = [settle_with(1, "q", Outcome::Ack, unlock("k", "a")), settle(2, "q", retry)];
    assert_eq!(desk.end("me", &ends), 0);
    assert_eq!(holder(&mut desk, "k", "c"), None);
    assert_eq!(holder(&mut desk, "k2", "d").as_deref(), Some("b"), "a retry keeps its lock");
    // Somebody else's lock by now.
    desk.claim("me", &["q"], 1, 3);
    desk.end("me", &[settle_with(3, "q", Outcome::Ack, unlock("k", "a"))]);
    assert_eq!(holder(&mut desk, "k", "d").as_deref(), Some("c"));
}

pub(crate) fn a_lock_ends_by_itself(fresh: Fresh<'_>) {
    let mut desk = Desk::new(fresh);
    let payload = doc("q", "a");
    let ttl = Duration::from_millis(30);
    let brief = NewJob { lock: Some(NewLock { key: "k", jid: "a", ttl }), ..job("q", &payload) };
    assert_eq!(desk.store.push(&[brief]).unwrap(), [PushResult::Stored]);
    until("the lock ends", || holder(&mut desk, "k", "b").is_none());
    // The first one's end comes too late to free the second one's lock.
    desk.store.unlock(&[HeldLock { key: "k", jid: "a" }]).unwrap();
    assert_eq!(holder(&mut desk, "k", "c").as_deref(), Some("b"));
}

pub(crate) fn a_job_is_not_held_up_by_its_own_lock(fresh: Fresh<'_>) {
    let mut desk = Desk::new(fresh);
    assert_eq!(holder(&mut desk, "k", "a"), None);
    // It became due, was claimed, and client middleware pushes it again.
    assert_eq!(holder(&mut desk, "k", "a"), None);
    assert_eq!(holder(&mut desk, "k", "b").as_deref(), Some("a"));
}

pub(crate) fn a_scheduled_job_holds_its_lock(fresh: Fresh<'_>) {
    let mut desk = Desk::new(fresh);
    let payload = doc("q", "a");
    let new = NewJob { at: Some(now_s() - 1.0), ..locked(&payload, "k", "a") };
    assert_eq!(desk.store.push(&[new]).unwrap(), [PushResult::Stored]);
    assert_eq!(holder(&mut desk, "k", "b").as_deref(), Some("a"));
    assert_eq!(desk.store.move_due(now_s(), 10).unwrap().moved, 1);
    assert_eq!(holder(&mut desk, "k", "b").as_deref(), Some("a"));
    assert_eq!(desk.listed(&queue("q")), ["a"]);
}
