//! Batches.

use std::time::Duration;

use super::harness::*;
use crate::store::*;

/// An acknowledgement that updates a batch.
pub(crate) fn update(ticket: u64, bid: &str, jid: &str, what: BatchEvent) -> Ack {
    let outcome = match what {
        BatchEvent::Done => Outcome::Ack,
        BatchEvent::Failed => Outcome::Retry { at: now_s(), payload: doc("q", jid) },
        BatchEvent::Died => Outcome::Dead { payload: None, at: now_s() },
    };
    let step = BatchUpdate { bid: bid.into(), jid: jid.into(), event: what };
    ack_with(ticket, "q", outcome, SideEffects { batch: Some(step), ..SideEffects::default() })
}

/// Opens a batch that calls back to the queue `calls`: documents `BID EVENT`.
pub(crate) fn open(harness: &mut StoreHarness, bid: &str, parent: Option<&str>) {
    open_for(harness, bid, parent, "");
}

fn open_for(harness: &mut StoreHarness, bid: &str, parent: Option<&str>, owner: &str) {
    let events = ["success", "complete", "death"];
    let payloads = events.map(|event| format!("{bid} {event}").into_bytes());
    let callbacks: Vec<(&str, &str, &[u8])> =
        events.iter().zip(&payloads).map(|(event, doc)| (*event, "calls", &doc[..])).collect();
    let ttl = Duration::from_secs(3600);
    let description = &format!("for {bid}");
    let now_s = now_s();
    let new = NewBatch { bid, parent, owner, description, callbacks: &callbacks, ttl, now_s };
    harness.store.batch_open(&new).unwrap();
}

/// Pushes jobs of a batch.
pub(crate) fn fill(harness: &mut StoreHarness, bid: &str, jids: &[&str]) {
    for jid in jids {
        let payload = doc_with("q", jid, &format!(r#","bid":"{bid}""#));
        let new = NewJob { bid: Some(bid), ..job("q", &payload) };
        assert_eq!(harness.store.push(&[new]).unwrap(), [PushResult::Stored]);
    }
}

/// Takes out the pushed callbacks, sorted.
pub(crate) fn calls(harness: &mut StoreHarness) -> Vec<String> {
    let mut calls = harness.listed(&queue("calls"));
    harness.store.clear(&queue("calls"), 0).unwrap();
    calls.sort();
    calls
}

/// `(total, pending, failures, complete, success, dead)`.
pub(crate) fn counts(harness: &mut StoreHarness, bid: &str) -> (u64, u64, u64, bool, bool, bool) {
    let batch = harness.store.batch(bid).unwrap().unwrap();
    (batch.total, batch.pending, batch.failures, batch.complete, batch.success, batch.dead)
}

const NONE: [&str; 0] = [];

pub(crate) fn a_batch_counts_and_calls_back_once(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    open(&mut harness, "b", None);
    fill(&mut harness, "b", &["x", "y"]);
    harness.store.batch_close("b").unwrap();
    harness.claim("me", &["q"], 9, 1);
    assert_eq!(harness.end("me", &[update(1, "b", "x", BatchEvent::Done)]), 0);
    let status = harness.store.batch("b").unwrap().unwrap();
    let age_s = now_s() - status.created_at;
    assert!((0.0..TIMEOUT.as_secs_f64()).contains(&age_s), "{status:?}");
    let expected = BatchStatus {
        bid: "b".into(),
        description: "for b".into(),
        created_at: status.created_at,
        total: 2,
        pending: 1,
        ..BatchStatus::default()
    };
    assert_eq!(status, expected);
    assert_eq!(calls(&mut harness), NONE);
    harness.end("me", &[update(2, "b", "y", BatchEvent::Done)]);
    assert_eq!(counts(&mut harness, "b"), (2, 0, 0, true, true, false));
    assert_eq!(calls(&mut harness), ["b complete", "b success"]);
    assert_eq!(harness.end("me", &[update(2, "b", "y", BatchEvent::Done)]), 1);
    harness.store.batch_close("b").unwrap();
    assert_eq!(calls(&mut harness), NONE, "once");
}

pub(crate) fn callbacks_come_in_the_order_of_the_jobs_ends(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    for bid in ["a", "b", "c"] {
        open(&mut harness, bid, None);
        fill(&mut harness, bid, &[&format!("of-{bid}")]);
        harness.store.batch_close(bid).unwrap();
    }
    harness.claim("me", &["q"], 3, 1);
    let ends = [(2, "b"), (1, "a"), (3, "c")]
        .map(|(ticket, bid)| update(ticket, bid, &format!("of-{bid}"), BatchEvent::Done));
    assert_eq!(harness.end("me", &ends), 0);
    let expected =
        ["b complete", "b success", "a complete", "a success", "c complete", "c success"];
    assert_eq!(harness.listed(&queue("calls")), expected);
}

pub(crate) fn no_callback_fires_before_the_batch_is_closed(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    open(&mut harness, "b", None);
    fill(&mut harness, "b", &["x"]);
    harness.claim("me", &["q"], 9, 1);
    harness.end("me", &[update(1, "b", "x", BatchEvent::Done)]);
    assert_eq!(counts(&mut harness, "b"), (1, 0, 0, false, false, false));
    assert_eq!(calls(&mut harness), NONE);
    harness.store.batch_close("b").unwrap();
    assert_eq!(counts(&mut harness, "b"), (1, 0, 0, true, true, false));
    assert_eq!(calls(&mut harness), ["b complete", "b success"]);
}

pub(crate) fn an_empty_batch_succeeds_at_once(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    open(&mut harness, "b", None);
    assert_eq!(counts(&mut harness, "b"), (0, 0, 0, false, false, false));
    harness.store.batch_close("b").unwrap();
    assert_eq!(counts(&mut harness, "b"), (0, 0, 0, true, true, false));
    assert_eq!(calls(&mut harness), ["b complete", "b success"]);
}

pub(crate) fn complete_comes_before_success(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    open(&mut harness, "b", None);
    fill(&mut harness, "b", &["x", "y"]);
    harness.store.batch_close("b").unwrap();
    harness.claim("me", &["q"], 9, 1);
    harness.end("me", &[update(1, "b", "x", BatchEvent::Failed)]);
    assert_eq!(counts(&mut harness, "b"), (2, 2, 1, false, false, false));
    harness.end("me", &[update(2, "b", "y", BatchEvent::Done)]);
    assert_eq!(counts(&mut harness, "b"), (2, 1, 1, true, false, false));
    assert_eq!(harness.store.batch("b").unwrap().unwrap().failed_jids, ["x"]);
    assert_eq!(calls(&mut harness), ["b complete"]);
    // It fails twice and succeeds in the third run.
    for what in [BatchEvent::Failed, BatchEvent::Done] {
        harness.store.move_due(now_s() + 1.0, 9).unwrap();
        harness.claim("me", &["q"], 9, 1);
        assert_eq!(harness.end("me", &[update(1, "b", "x", what)]), 0);
        let failed = u64::from(what == BatchEvent::Failed);
        assert_eq!(counts(&mut harness, "b"), (2, failed, failed, true, failed == 0, false));
    }
    assert_eq!(calls(&mut harness), ["b success"]);
    assert_eq!(harness.store.batch("b").unwrap().unwrap().failed_jids, NONE);
}

pub(crate) fn the_death_callback_fires_once(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    open(&mut harness, "b", None);
    fill(&mut harness, "b", &["x", "y", "z"]);
    harness.claim("me", &["q"], 9, 1);
    harness.end("me", &[update(1, "b", "x", BatchEvent::Died)]);
    assert_eq!(counts(&mut harness, "b"), (3, 3, 1, false, false, true));
    assert_eq!(calls(&mut harness), ["b death"], "open or not");
    harness.store.batch_close("b").unwrap();
    harness.end("me", &[update(2, "b", "y", BatchEvent::Died)]);
    assert_eq!(calls(&mut harness), NONE);
    harness.end("me", &[update(3, "b", "z", BatchEvent::Done)]);
    assert_eq!(counts(&mut harness, "b"), (3, 2, 2, true, false, true));
    assert_eq!(calls(&mut harness), ["b complete"]);
}

pub(crate) fn a_dead_job_may_still_succeed(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    open(&mut harness, "b", None);
    fill(&mut harness, "b", &["x"]);
    harness.store.batch_close("b").unwrap();
    harness.claim("me", &["q"], 9, 1);
    harness.end("me", &[update(1, "b", "x", BatchEvent::Died)]);
    assert_eq!(calls(&mut harness), ["b complete", "b death"]);
    let dead = harness.all(&JobLocation::Dead);
    assert!(harness.store.enqueue_entry(&JobLocation::Dead, &dead[0], now_s()).unwrap());
    harness.claim("me", &["q"], 9, 2);
    assert_eq!(harness.end("me", &[update(2, "b", "x", BatchEvent::Done)]), 0);
    assert_eq!(counts(&mut harness, "b"), (1, 0, 0, true, true, true));
    assert_eq!(calls(&mut harness), ["b success"]);
}

pub(crate) fn an_unknown_batch_is_ignored(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    fill(&mut harness, "nobody", &["x"]);
    assert!(!harness.store.batch_close("nobody").unwrap());
    harness.claim("me", &["q"], 9, 1);
    assert_eq!(harness.end("me", &[update(1, "nobody", "x", BatchEvent::Done)]), 0);
    assert_eq!(harness.store.batch("nobody").unwrap(), None);
}

pub(crate) fn callbacks_can_be_replaced(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    open(&mut harness, "b", None);
    fill(&mut harness, "b", &["x"]);
    let twice: [(&str, &str, &[u8]); 3] =
        [("success", "calls", b"1"), ("death", "calls", b"\xff"), ("success", "calls", b"2")];
    let new = NewBatch {
        bid: "b",
        parent: None,
        owner: "",
        description: "other",
        callbacks: &twice,
        ttl: TIMEOUT,
        now_s: now_s(),
    };
    harness.store.batch_open(&new).unwrap();
    assert_eq!(counts(&mut harness, "b"), (1, 1, 0, false, false, false), "its jobs stay");
    harness.store.batch_close("b").unwrap();
    harness.claim("me", &["q"], 9, 1);
    harness.end("me", &[update(1, "b", "x", BatchEvent::Done)]);
    assert_eq!(calls(&mut harness), ["1", "2"]);
}

pub(crate) fn a_batch_expires(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    let new = NewBatch {
        bid: "b",
        parent: None,
        owner: "",
        description: "",
        callbacks: &[],
        ttl: Duration::from_millis(30),
        now_s: now_s(),
    };
    harness.store.batch_open(&new).unwrap();
    until("the batch is forgotten", || harness.store.batch("b").unwrap().is_none());
}

pub(crate) fn only_stored_jobs_count(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    open(&mut harness, "b", None);
    let payloads = ["x", "y", "z"].map(|jid| doc("q", jid));
    let lock = |jid| Some(NewLock { key: "k", jid, ttl: TIMEOUT });
    let of_b = |payload, lock, at| NewJob { bid: Some("b"), lock, at, ..job("q", payload) };
    let jobs = [
        of_b(&payloads[0], lock("x"), None),
        of_b(&payloads[1], lock("y"), None),
        of_b(&payloads[2], None, Some(now_s() + 99.0)),
    ];
    let answers = harness.store.push(&jobs).unwrap();
    assert_eq!(answers, [PushResult::Stored, PushResult::Locked("x".into()), PushResult::Stored]);
    assert_eq!(counts(&mut harness, "b"), (2, 2, 0, false, false, false));
}

/// Adds a job to its queue, as a due job is pushed: its batch counts it already.
fn put_copy(harness: &mut StoreHarness, bid: &str, jid: &str) {
    let payload = doc_with("q", jid, &format!(r#","bid":"{bid}""#));
    harness.store.push(&[job("q", &payload)]).unwrap();
}

pub(crate) fn copies_of_a_job_count_once(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    open(&mut harness, "b", None);
    fill(&mut harness, "b", &["x", "y"]);
    assert!(harness.store.batch_close("b").unwrap());
    for _ in 0..3 {
        put_copy(&mut harness, "b", "x");
    }
    assert_eq!(harness.claim("me", &["q"], 9, 1).jobs.len(), 5);
    harness.end("me", &[update(3, "b", "x", BatchEvent::Failed)]);
    assert_eq!(counts(&mut harness, "b"), (2, 2, 1, false, false, false));
    // One copy has succeeded: what becomes of the others changes nothing.
    harness.end("me", &[update(1, "b", "x", BatchEvent::Done)]);
    for (ticket, event) in [(4, BatchEvent::Done), (5, BatchEvent::Died)] {
        assert_eq!(harness.end("me", &[update(ticket, "b", "x", event)]), 0);
        assert_eq!(counts(&mut harness, "b"), (2, 1, 0, false, false, false));
    }
    assert_eq!(calls(&mut harness), NONE);
    harness.end("me", &[update(2, "b", "y", BatchEvent::Done)]);
    assert_eq!(counts(&mut harness, "b"), (2, 0, 0, true, true, false));
    assert_eq!(calls(&mut harness), ["b complete", "b success"]);
}

pub(crate) fn a_job_pushed_twice_is_one_job(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    open(&mut harness, "b", None);
    let payload = doc_with("q", "x", r#","bid":"b""#);
    let new = NewJob { bid: Some("b"), ..job("q", &payload) };
    harness.store.push(&[new, new]).unwrap();
    harness.store.push(&[new]).unwrap();
    assert_eq!(counts(&mut harness, "b"), (1, 1, 0, false, false, false));
    harness.store.batch_close("b").unwrap();
    harness.claim("me", &["q"], 9, 1);
    harness.end("me", &[update(2, "b", "x", BatchEvent::Done)]);
    assert_eq!(calls(&mut harness), ["b complete", "b success"]);
}

pub(crate) fn an_open_batch_is_removed(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    open(&mut harness, "b", None);
    fill(&mut harness, "b", &["x"]);
    let gone = harness.store.remove_open(Some("b")).unwrap();
    let gone: Vec<_> = gone.iter().map(|b| (&*b.bid, &*b.description, b.total)).collect();
    assert_eq!(gone, [("b", "for b", 1)]);
    assert_eq!(harness.store.batch("b").unwrap(), None);
    assert!(!harness.store.batch_close("b").unwrap());
    // Its job runs and belongs to no batch; a batch of the same id begins anew.
    open(&mut harness, "b", None);
    assert_eq!(counts(&mut harness, "b"), (0, 0, 0, false, false, false));
    harness.claim("me", &["q"], 9, 1);
    assert_eq!(harness.end("me", &[update(1, "b", "x", BatchEvent::Done)]), 0);
    assert!(harness.store.batch_close("b").unwrap());
    assert_eq!(harness.store.remove_open(Some("b")).unwrap(), [], "it is closed");
    assert_eq!(calls(&mut harness), ["b complete", "b success"]);
}

pub(crate) fn batches_of_owners_that_are_gone_are_removed(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    harness.put("q", &["x"]);
    harness.claim("alive", &["q"], 1, 1);
    for (bid, owner) in [("a", "alive"), ("b", "gone"), ("c", ""), ("d", "gone")] {
        open_for(&mut harness, bid, None, owner);
    }
    harness.store.batch_close("d").unwrap();
    let gone = harness.store.remove_open(None).unwrap();
    assert_eq!(gone.iter().map(|batch| &*batch.bid).collect::<Vec<_>>(), ["b"]);
    let known = ["a", "b", "c", "d"].map(|bid| harness.store.batch(bid).unwrap().is_some());
    assert_eq!(known, [true, false, true, true]);
    harness.end("alive", &[ack(1, "q", Outcome::Ack)]);
    harness.store.forget("alive").unwrap();
    assert_eq!(harness.store.remove_open(None).unwrap().len(), 1);
    assert_eq!(harness.store.remove_open(None).unwrap(), []);
}
