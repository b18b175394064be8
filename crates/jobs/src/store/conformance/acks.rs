//! How a claimed job ends, and what happens when it is no longer one's own.

use super::harness::*;
use crate::store::*;

pub(crate) fn each_outcome_stores_the_job_in_its_list(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    harness.put("q", &["done", "retry", "later", "discarded", "dead", "dead2", "held"]);
    assert_eq!(harness.claim("me", &["q"], 10, 1).jobs.len(), 7);
    let now = now_s();
    let ends = [
        ack(1, "q", Outcome::Ack),
        ack(2, "q", Outcome::Retry { at: now + 20.5, payload: b"new retry".to_vec() }),
        ack(3, "q", Outcome::Reschedule { payload: Some(b"new later".to_vec()), at: now + 30.0 }),
        ack(4, "q", Outcome::Discard),
        ack(5, "q", Outcome::Dead { payload: None, at: now }),
        ack(6, "q", Outcome::Dead { payload: Some(b"new dead".to_vec()), at: now + 1.0 }),
    ];
    assert_eq!(harness.end("me", &ends), 0);
    let seen = |entries: Vec<JobEntry>| -> Vec<(i64, Vec<u8>)> {
        let ms = |entry: &JobEntry| ((entry.score - now) * 1000.0).round() as i64;
        entries.into_iter().map(|entry| (ms(&entry), entry.payload)).collect()
    };
    let (retry, scheduled) =
        (harness.all(&JobLocation::Retry), harness.all(&JobLocation::Scheduled));
    assert_eq!(seen(retry), [(20_500, b"new retry".to_vec())]);
    assert_eq!(seen(scheduled), [(30_000, b"new later".to_vec())]);
    let dead = harness.all(&JobLocation::Dead);
    assert_eq!(seen(dead), [(1000, b"new dead".to_vec()), (0, doc("q", "dead"))]);
    assert_eq!(jids(&harness.store.in_flight("me").unwrap()), ["held"]);
    assert_eq!(harness.all(&queue("q")), []);
}

pub(crate) fn requeued_jobs_are_first_in_their_old_order(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    harness.put("q", &["a", "b", "c", "d", "e"]);
    harness.claim("me", &["q"], 4, 8);
    let changed = doc_with("q", "b", r#","deaths":1"#);
    let ends = [
        ack(10, "q", back()),
        ack(8, "q", back()),
        ack(11, "q", Outcome::Ack),
        ack(9, "q", Outcome::Requeue { payload: Some(changed.clone()), queue: None }),
    ];
    assert_eq!(harness.end("me", &ends), 0);
    assert_eq!(harness.listed(&queue("q")), ["a", "b", "c", "e"]);
    assert_eq!(harness.all(&queue("q"))[1].payload, changed);
    assert_eq!(harness.claim_all("me", "q"), ["a", "b", "c", "e"]);
}

pub(crate) fn a_requeued_job_returns_to_its_queue(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    harness.put("q", &["a", "b"]);
    harness.put("r", &["c", "d"]);
    harness.claim("me", &["q", "r"], 4, 1);
    let ends = [(1, "q"), (2, "q"), (3, "r"), (4, "r")].map(|(n, queue)| ack(n, queue, back()));
    assert_eq!(harness.end("me", &ends), 0);
    assert_eq!(harness.listed(&queue("q")), ["a", "b"]);
    assert_eq!(harness.listed(&queue("r")), ["c", "d"]);
}

pub(crate) fn acks_come_before_the_claim(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    harness.put("q", &["a", "b", "c"]);
    harness.claim("me", &["q"], 2, 1);
    let queues = names(&["q"]);
    let want = ClaimRequest { queues: &queues, count: 2, first_ticket: 3 };
    let ends = [ack(1, "q", Outcome::Ack), ack(2, "q", back())];
    let turn = harness.store.ack_and_claim("me", &ends, Some(&want)).unwrap();
    assert_eq!(jids(&turn.jobs), ["b", "c"]);
    assert_eq!(turn.jobs.iter().map(|job| job.ticket).collect::<Vec<_>>(), [3, 4]);
}

pub(crate) fn acks_of_missing_entries_are_counted_as_fenced(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    harness.put("q", &["a"]);
    harness.claim("me", &["q"], 1, 1);
    assert_eq!(harness.end("me", &[ack(1, "q", Outcome::Ack)]), 0);
    let (at, payload) = (now_s(), doc("q", "a"));
    let late = [
        ack(1, "q", Outcome::Ack),
        ack(1, "q", Outcome::Retry { at, payload: payload.clone() }),
        ack(1, "q", Outcome::reschedule(at)),
        ack(1, "q", Outcome::Dead { payload: Some(payload.clone()), at }),
        ack(1, "q", Outcome::Requeue { payload: Some(payload), queue: None }),
        ack(77, "q", back()),
    ];
    assert_eq!(harness.end("me", &late), 6);
    for location in [queue("q"), JobLocation::Retry, JobLocation::Scheduled, JobLocation::Dead] {
        assert_eq!(harness.all(&location), [], "{location:?}");
    }
}

pub(crate) fn an_ack_for_another_owner_does_nothing(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    harness.put("q", &["a"]);
    harness.claim("me", &["q"], 1, 1);
    assert_eq!(harness.end("you", &[ack(1, "q", Outcome::Ack)]), 1);
    assert_eq!(harness.store.in_flight("me").unwrap().len(), 1);
    // Another connection may acknowledge for the owner: this is its recovery.
    let mut other = harness.factory.store();
    assert_eq!(other.ack_and_claim("me", &[ack(1, "q", back())], None).unwrap().fenced, 0);
    assert_eq!(harness.end("me", &[ack(1, "q", Outcome::Ack)]), 1, "taken over");
    assert_eq!(harness.listed(&queue("q")), ["a"]);
}

pub(crate) fn a_fenced_ack_releases_nothing(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    let payload = doc("q", "a");
    let lock = NewLock { key: "k", jid: "a", ttl: TIMEOUT };
    let batch = NewBatch {
        bid: "b",
        parent: None,
        owner: "",
        description: "",
        callbacks: &[],
        ttl: TIMEOUT,
        now_s: now_s(),
    };
    harness.store.batch_open(&batch).unwrap();
    let new = NewJob { lock: Some(lock), bid: Some("b"), ..job("q", &payload) };
    harness.store.push(&[new]).unwrap();
    let limit =
        Limit { key: "slots".into(), rule: LimitRule::Concurrent { max: 1, hold_s: 3600.0 } };
    let limits = [limit];
    let ask = |harness: &mut StoreHarness, ticket| {
        let asks = [request(ticket, &limits)];
        harness.store.acquire("me", &asks, now_s()).unwrap()[0]
    };
    assert_eq!(ask(&mut harness, 5), Grant::Now);
    let effects = SideEffects {
        unlock: Some(("k".into(), "a".into())),
        release: vec!["slots".into()],
        jid: "a".into(),
        now_s: now_s(),
        batch: Some(BatchUpdate { bid: "b".into(), jid: "a".into(), event: BatchEvent::Done }),
    };
    assert_eq!(harness.end("me", &[ack_with(5, "q", Outcome::Ack, effects)]), 1);
    assert_eq!(ask(&mut harness, 6), DENIED);
    assert_eq!(harness.store.batch("b").unwrap().unwrap().pending, 1);
    let again = NewJob { lock: Some(NewLock { jid: "z", ..lock }), ..job("q", &payload) };
    assert_eq!(harness.store.push(&[again]).unwrap(), [PushResult::Locked("a".into())]);
}
