//! Due jobs, and jobs that are pushed once.

use super::harness::*;
use crate::document::Fields;
use crate::store::*;

/// Documents that are no JSON object with a queue.
const MALFORMED: [&[u8]; 7] = [
    b"no JSON",
    b"[1]",
    b"\"q\"",
    br#"{"class":"A","args":[]}"#,
    br#"{"class":"A","args":[],"queue":7}"#,
    br#"{"class":"A","args":[],"queue":""}"#,
    b"{\"queue\":\"q\",\"a\":\"\xff\"}",
];

pub(crate) fn due_jobs_move_in_the_order_of_their_times(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    let now = now_s();
    harness.put("q", &["waited"]);
    harness.put_in(&JobLocation::Retry, now - 3.0, &doc("q", "second"));
    harness.put_in(&JobLocation::Retry, now - 1.0, &doc("q", "fourth"));
    harness.put_at(now - 4.0, &doc("q", "first"));
    harness.put_at(now - 2.0, &doc("q", "third"));
    harness.put_at(now, &doc("r", "just now"));
    harness.put_at(now + 50.0, &doc("q", "not yet"));
    let due = harness.store.move_due(now, 100).unwrap();
    assert_eq!(due.moved, 5);
    assert!((due.lag_max_s - 4.0).abs() < 0.001, "{due:?}");
    assert!(due.next_at.is_some_and(|at| (at - now - 50.0).abs() < 0.001), "{due:?}");
    assert_eq!(harness.listed(&queue("q")), ["waited", "first", "second", "third", "fourth"]);
    assert_eq!(harness.listed(&queue("r")), ["just now"]);
    assert_eq!(harness.listed(&JobLocation::Scheduled), ["not yet"]);
    assert_eq!(harness.all(&JobLocation::Retry), []);
}

pub(crate) fn no_more_than_max_are_moved(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    let now = now_s();
    for (index, jid) in ["a", "b", "c", "d"].into_iter().enumerate() {
        harness.put_at(now - 10.0 + index as f64, &doc("q", jid));
    }
    harness.put_in(&JobLocation::Retry, now - 9.5, &doc("q", "retry"));
    let due = harness.store.move_due(now, 2).unwrap();
    assert_eq!(due.moved, 2);
    assert!(due.next_at.is_some_and(|at| (at - (now - 9.0)).abs() < 0.001), "{due:?}");
    assert_eq!(harness.listed(&queue("q")), ["a", "retry"]);
    assert_eq!(harness.store.move_due(now, 2).unwrap().moved, 2);
    assert_eq!(harness.store.move_due(now, 2).unwrap().moved, 1);
    assert_eq!(harness.listed(&queue("q")), ["a", "retry", "b", "c", "d"]);
}

pub(crate) fn the_next_due_time_is_returned(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    assert_eq!(harness.store.move_due(now_s(), 10).unwrap(), DueSummary::default());
    assert_eq!(
        harness.store.claim_due("me", 1, now_s(), 10).unwrap(),
        (vec![], DueSummary::default())
    );
    harness.put_at(1_900_000_500.0, &doc("q", "a"));
    harness.put_in(&JobLocation::Retry, 1_900_000_000.5, &doc("q", "b"));
    let expected = DueSummary { next_at: Some(1_900_000_000.5), ..DueSummary::default() };
    assert_eq!(harness.store.move_due(now_s(), 10).unwrap(), expected);
    assert_eq!(harness.store.claim_due("me", 1, now_s(), 10).unwrap(), (vec![], expected));
}

pub(crate) fn moving_changes_only_enqueued_at(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    let now = now_s();
    let odd = r#","odd":{"x" : [ ],"y":{}},"n":12345678901234567890123,"f":1.50,"u":"\u00e9é""#;
    let documents = [
        doc_with("q", "new", odd),
        doc_with("q", "old", &format!(r#","enqueued_at":1.25{odd}"#)),
        doc_with("q", "ms", &format!(r#","enqueued_at":1700000000000{odd},"retry_count":3"#)),
    ];
    for (index, payload) in documents.iter().enumerate() {
        harness.put_at(now - 10.0 + index as f64, payload);
    }
    assert_eq!(harness.store.move_due(now, 10).unwrap().moved, 3);
    for (entry, before) in harness.all(&queue("q")).iter().zip(&documents) {
        let mut after = Fields::parse(&entry.payload).unwrap();
        let stamp = after.number("enqueued_at").unwrap();
        assert!((stamp - now).abs() < 0.01, "format 7 has seconds: {stamp}");
        let mut before = Fields::parse(before).unwrap();
        before.remove("enqueued_at");
        after.remove("enqueued_at");
        let text = |fields: &Fields<'_>| String::from_utf8(fields.to_vec()).unwrap();
        assert_eq!(text(&after), text(&before));
        assert_eq!(after.get("enqueued_at"), None, "stamped once");
    }
}

pub(crate) fn malformed_documents_go_to_the_dead_set_unchanged(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    let now = now_s();
    for payload in MALFORMED {
        harness.put_at(now - 5.0, payload);
    }
    harness.put_in(&JobLocation::Retry, now - 6.0, b"{broken");
    harness.put_at(now - 1.0, &doc("q", "good"));
    while harness.store.move_due(now, 10).unwrap().moved > 0 {}
    assert_eq!(harness.listed(&queue("q")), ["good"]);
    assert_eq!(harness.all(&JobLocation::Scheduled), []);
    let mut dead: Vec<Vec<u8>> =
        harness.all(&JobLocation::Dead).into_iter().map(|entry| entry.payload).collect();
    let mut expected: Vec<Vec<u8>> = MALFORMED.iter().map(|payload| payload.to_vec()).collect();
    expected.push(b"{broken".to_vec());
    dead.sort();
    expected.sort();
    assert_eq!(dead, expected);
    assert!(harness.all(&JobLocation::Dead).iter().all(|entry| (entry.score - now).abs() < 0.01));
}

pub(crate) fn due_jobs_are_claimed_unchanged(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    let now = now_s();
    harness.put_at(now - 1.0, &doc_with("q", "c", r#","enqueued_at":1.5"#));
    harness.put_in(&JobLocation::Retry, now - 2.0, &doc("r", "b"));
    harness.put_at(now - 3.0, &doc("q", "a"));
    harness.put_at(now + 9.0, &doc("q", "later"));
    let (jobs, due) = harness.store.claim_due("me", 40, now, 2).unwrap();
    let claimed = |ticket, payload| ClaimedJob { ticket, queue: "".into(), payload };
    assert_eq!(jobs, [claimed(40, doc("q", "a")), claimed(41, doc("r", "b"))]);
    assert_eq!(due.moved, 2);
    assert!((due.lag_max_s - 3.0).abs() < 0.001, "{due:?}");
    assert!(due.next_at.is_some_and(|at| (at - (now - 1.0)).abs() < 0.001), "{due:?}");
    let (more, due) = harness.store.claim_due("me", 42, now, 2).unwrap();
    assert_eq!(more, [claimed(42, doc_with("q", "c", r#","enqueued_at":1.5"#))]);
    assert!(due.next_at.is_some_and(|at| (at - (now + 9.0)).abs() < 0.001), "{due:?}");
    let flying = harness.store.in_flight("me").unwrap();
    assert_eq!(flying, [jobs, more].concat());
    assert_eq!(harness.end("me", &[ack(40, "", Outcome::Ack)]), 0);
    assert_eq!(harness.store.in_flight("me").unwrap().len(), 2);
    assert_eq!(harness.end("me", &[ack(40, "", Outcome::Ack)]), 1, "fenced like the others");
}

pub(crate) fn claiming_due_jobs_moves_malformed_ones_to_the_dead_set(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    let now = now_s();
    for payload in MALFORMED {
        harness.put_at(now - 5.0, payload);
    }
    harness.put_at(now - 9.0, &doc("q", "a"));
    harness.put_at(now - 1.0, &doc("q", "b"));
    let mut jobs = vec![];
    loop {
        let first = 1 + jobs.len() as u64;
        let (some, due) = harness.store.claim_due("me", first, now, 100).unwrap();
        jobs.extend(some);
        if due.moved == 0 {
            break;
        }
    }
    let tickets: Vec<u64> = jobs.iter().map(|job| job.ticket).collect();
    assert_eq!((jids(&jobs), tickets), (vec!["a".into(), "b".into()], vec![1, 2]));
    assert_eq!(harness.all(&JobLocation::Dead).len(), MALFORMED.len());
    assert_eq!(harness.store.in_flight("me").unwrap(), jobs);
}

pub(crate) fn a_claimed_due_job_is_requeued_to_its_queue(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    let now = now_s();
    harness.put("r", &["waiting"]);
    harness.put_at(now - 2.0, &doc("r", "a"));
    harness.put_at(now - 1.0, &doc("r", "b"));
    assert_eq!(harness.store.claim_due("me", 1, now, 10).unwrap().0.len(), 2);
    let to_r = || Outcome::Requeue { payload: None, queue: Some("r".into()) };
    assert_eq!(harness.end("me", &[ack(2, "", to_r()), ack(1, "", to_r())]), 0);
    assert_eq!(harness.listed(&queue("r")), ["a", "b", "waiting"]);
}

pub(crate) fn a_key_pushes_once(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    let mut other = harness.factory.store();
    let payload = doc("q", "a");
    assert!(harness.store.push_once("tick:1", TIMEOUT, &job("q", &payload)).unwrap());
    assert!(!other.push_once("tick:1", TIMEOUT, &job("q", &payload)).unwrap());
    assert!(other.push_once("tick:2", TIMEOUT, &job("r", &payload)).unwrap());
    assert_eq!(harness.claim_all("me", "q"), ["a"]);
    assert!(!harness.store.push_once("tick:1", TIMEOUT, &job("q", &payload)).unwrap());
    assert_eq!((harness.all(&queue("q")).len(), harness.all(&queue("r")).len()), (0, 1));
    let lock = |jid| Some(NewLock { key: "k", jid, ttl: TIMEOUT });
    let locked = |jid| NewJob { lock: lock(jid), ..job("s", &payload) };
    assert!(other.push_once("tick:3", TIMEOUT, &locked("a")).unwrap());
    assert!(!other.push_once("tick:4", TIMEOUT, &locked("b")).unwrap(), "another job has the lock");
    assert_eq!(harness.all(&queue("s")).len(), 1);
}

pub(crate) fn a_key_pushes_again_after_its_expiry(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    let payload = doc("q", "a");
    let ttl = std::time::Duration::from_millis(30);
    assert!(harness.store.push_once("k", ttl, &job("q", &payload)).unwrap());
    until("the key ends", || harness.store.push_once("k", ttl, &job("q", &payload)).unwrap());
    assert_eq!(harness.all(&queue("q")).len(), 2);
}
