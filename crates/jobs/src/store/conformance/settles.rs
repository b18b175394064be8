//! How a claimed job ends, and what happens when it is no longer one's own.

use super::bench::*;
use crate::store::*;

pub(crate) fn each_outcome_goes_to_its_place(fresh: Fresh<'_>) {
    let mut desk = Desk::new(fresh);
    desk.put("q", &["done", "retry", "later", "discarded", "dead", "dead2", "held"]);
    assert_eq!(desk.claim("me", &["q"], 10, 1).jobs.len(), 7);
    let now = now_s();
    let ends = [
        settle(1, "q", Outcome::Ack),
        settle(2, "q", Outcome::Retry { at: now + 20.5, payload: b"new retry".to_vec() }),
        settle(3, "q", Outcome::Reschedule { at: now + 30.0 }),
        settle(4, "q", Outcome::Discard),
        settle(5, "q", Outcome::Dead { payload: None, at: now }),
        settle(6, "q", Outcome::Dead { payload: Some(b"new dead".to_vec()), at: now + 1.0 }),
    ];
    assert_eq!(desk.end("me", &ends), 0);
    let seen = |entries: Vec<JobEntry>| -> Vec<(i64, Vec<u8>)> {
        let ms = |entry: &JobEntry| ((entry.score - now) * 1000.0).round() as i64;
        entries.into_iter().map(|entry| (ms(&entry), entry.payload)).collect()
    };
    let (retry, scheduled) = (desk.all(&JobLocation::Retry), desk.all(&JobLocation::Scheduled));
    assert_eq!(seen(retry), [(20_500, b"new retry".to_vec())]);
    assert_eq!(seen(scheduled), [(30_000, doc("q", "later"))]);
    let dead = desk.all(&JobLocation::Dead);
    assert_eq!(seen(dead), [(1000, b"new dead".to_vec()), (0, doc("q", "dead"))]);
    assert_eq!(jids(&desk.store.in_flight("me").unwrap()), ["held"]);
    assert_eq!(desk.all(&queue("q")), []);
}

pub(crate) fn back_is_the_front_in_the_old_order(fresh: Fresh<'_>) {
    let mut desk = Desk::new(fresh);
    desk.put("q", &["a", "b", "c", "d", "e"]);
    desk.claim("me", &["q"], 4, 8);
    let changed = doc_with("q", "b", r#","deaths":1"#);
    let ends = [
        settle(10, "q", back()),
        settle(8, "q", back()),
        settle(11, "q", Outcome::Ack),
        settle(9, "q", Outcome::Requeue { payload: Some(changed.clone()), queue: None }),
    ];
    assert_eq!(desk.end("me", &ends), 0);
    assert_eq!(desk.listed(&queue("q")), ["a", "b", "c", "e"]);
    assert_eq!(desk.all(&queue("q"))[1].payload, changed);
    assert_eq!(desk.claim_all("me", "q"), ["a", "b", "c", "e"]);
}

pub(crate) fn back_goes_to_the_queue_it_came_from(fresh: Fresh<'_>) {
    let mut desk = Desk::new(fresh);
    desk.put("q", &["a", "b"]);
    desk.put("r", &["c", "d"]);
    desk.claim("me", &["q", "r"], 4, 1);
    let ends = [(1, "q"), (2, "q"), (3, "r"), (4, "r")].map(|(n, queue)| settle(n, queue, back()));
    assert_eq!(desk.end("me", &ends), 0);
    assert_eq!(desk.listed(&queue("q")), ["a", "b"]);
    assert_eq!(desk.listed(&queue("r")), ["c", "d"]);
}

pub(crate) fn a_settle_comes_before_the_claim(fresh: Fresh<'_>) {
    let mut desk = Desk::new(fresh);
    desk.put("q", &["a", "b", "c"]);
    desk.claim("me", &["q"], 2, 1);
    let queues = names(&["q"]);
    let want = ClaimRequest { queues: &queues, count: 2, first_ticket: 3 };
    let ends = [settle(1, "q", Outcome::Ack), settle(2, "q", back())];
    let turn = desk.store.ack_and_claim("me", &ends, Some(&want)).unwrap();
    assert_eq!(jids(&turn.jobs), ["b", "c"]);
    assert_eq!(turn.jobs.iter().map(|job| job.ticket).collect::<Vec<_>>(), [3, 4]);
}

pub(crate) fn what_is_gone_is_counted_and_left_alone(fresh: Fresh<'_>) {
    let mut desk = Desk::new(fresh);
    desk.put("q", &["a"]);
    desk.claim("me", &["q"], 1, 1);
    assert_eq!(desk.end("me", &[settle(1, "q", Outcome::Ack)]), 0);
    let (at, payload) = (now_s(), doc("q", "a"));
    let late = [
        settle(1, "q", Outcome::Ack),
        settle(1, "q", Outcome::Retry { at, payload: payload.clone() }),
        settle(1, "q", Outcome::Reschedule { at }),
        settle(1, "q", Outcome::Dead { payload: Some(payload.clone()), at }),
        settle(1, "q", Outcome::Requeue { payload: Some(payload), queue: None }),
        settle(77, "q", back()),
    ];
    assert_eq!(desk.end("me", &late), 6);
    for place in [queue("q"), JobLocation::Retry, JobLocation::Scheduled, JobLocation::Dead] {
        assert_eq!(desk.all(&place), [], "{place:?}");
    }
}

pub(crate) fn a_settle_for_another_owner_does_nothing(fresh: Fresh<'_>) {
    let mut desk = Desk::new(fresh);
    desk.put("q", &["a"]);
    desk.claim("me", &["q"], 1, 1);
    assert_eq!(desk.end("you", &[settle(1, "q", Outcome::Ack)]), 1);
    assert_eq!(desk.store.in_flight("me").unwrap().len(), 1);
    // Another connection may speak for the owner: so it is recovered.
    let mut other = desk.factory.store();
    assert_eq!(other.ack_and_claim("me", &[settle(1, "q", back())], None).unwrap().fenced, 0);
    assert_eq!(desk.end("me", &[settle(1, "q", Outcome::Ack)]), 1, "taken over");
    assert_eq!(desk.listed(&queue("q")), ["a"]);
}

pub(crate) fn a_fenced_settle_sets_nothing_free(fresh: Fresh<'_>) {
    let mut desk = Desk::new(fresh);
    let payload = doc("q", "a");
    let lock = NewLock { key: "k", jid: "a", ttl: PATIENCE };
    let batch = NewBatch {
        bid: "b",
        parent: None,
        description: "",
        callbacks: &[],
        ttl: PATIENCE,
        now_s: now_s(),
    };
    desk.store.batch_open(&batch).unwrap();
    let new = NewJob { lock: Some(lock), bid: Some("b"), ..job("q", &payload) };
    desk.store.push(&[new]).unwrap();
    let limit =
        Limit { key: "slots".into(), rule: LimitRule::Concurrent { max: 1, hold_s: 3600.0 } };
    let limits = [limit];
    let ask = |desk: &mut Desk, ticket| {
        let asks = [LimitRequest { ticket, limits: &limits }];
        desk.store.acquire("me", &asks, now_s()).unwrap()[0]
    };
    assert_eq!(ask(&mut desk, 5), Grant::Now);
    let effects = SideEffects {
        unlock: Some(("k".into(), "a".into())),
        release: vec!["slots".into()],
        batch: Some(BatchUpdate { bid: "b".into(), jid: "a".into(), event: BatchEvent::Done }),
    };
    assert_eq!(desk.end("me", &[settle_with(5, "q", Outcome::Ack, effects)]), 1);
    assert_eq!(ask(&mut desk, 6), Grant::At(None));
    assert_eq!(desk.store.batch("b").unwrap().unwrap().pending, 1);
    let again = NewJob { lock: Some(NewLock { jid: "z", ..lock }), ..job("q", &payload) };
    assert_eq!(desk.store.push(&[again]).unwrap(), [PushResult::Locked("a".into())]);
}
