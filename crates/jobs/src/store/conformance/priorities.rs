//! The order of jobs within a queue. Redis tells priorities below 0, of 0 and above 0 apart.

use std::time::Duration;

use super::harness::*;
use crate::outcome::Wait;
use crate::store::*;

/// A job's document with this priority.
fn ranked(queue: &str, jid: &str, priority: i64) -> Vec<u8> {
    doc_with(queue, jid, &format!(r#","chaton":{{"priority":{priority}}}"#))
}

/// Documents `low`, `plain`, `high` of a queue, where `high` is due first.
fn three(queue: &str) -> [Vec<u8>; 3] {
    [ranked(queue, "low", 10), doc(queue, "plain"), ranked(queue, "high", -10)]
}

const IN_ORDER: [&str; 3] = ["high", "plain", "low"];

fn push(harness: &mut StoreHarness, queue: &str, payloads: &[Vec<u8>]) {
    let jobs: Vec<NewJob<'_>> = payloads.iter().map(|payload| job(queue, payload)).collect();
    assert_eq!(harness.store.push(&jobs).unwrap(), vec![PushResult::Stored; jobs.len()]);
}

pub(crate) fn smaller_priorities_are_claimed_first(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    push(&mut harness, "q", &three("q"));
    for (jid, priority) in [("low2", 10), ("plain2", 0), ("high2", -10)] {
        push(&mut harness, "q", &[ranked("q", jid, priority)]);
    }
    let all = ["high", "high2", "plain", "plain2", "low", "low2"];
    assert_eq!(harness.listed(&queue("q")), all);
    let pages = [(0, 3), (1, 2), (3, 2), (5, 9), (6, 1)].map(|(offset, count)| {
        let page = harness.store.list(&queue("q"), offset, count).unwrap();
        page.iter().map(|entry| jid_of(&entry.payload)).collect::<Vec<_>>()
    });
    let expected = [&all[0..3], &all[1..3], &all[3..5], &all[5..6], &all[6..6]];
    assert_eq!(pages.map(|page| page.join(" ")), expected.map(|page| page.join(" ")));
    let claimed: Vec<String> =
        (0..6).flat_map(|n| jids(&harness.claim("me", &["q"], 1, n).jobs)).collect();
    assert_eq!(claimed, all);
}

pub(crate) fn one_claim_goes_through_priorities_before_queues(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    push(&mut harness, "a", &three("a"));
    push(&mut harness, "b", &three("b"));
    let reply = harness.claim("me", &["b", "a"], 5, 1);
    assert_eq!(jids(&reply.jobs), ["high", "plain", "low", "high", "plain"]);
    let tickets: Vec<(u64, &str)> =
        reply.jobs.iter().map(|job| (job.ticket, &*job.queue)).collect();
    assert_eq!(tickets, [(1, "b"), (2, "b"), (3, "b"), (4, "a"), (5, "a")]);
    assert!(!reply.drained, "the low one of a is left");
    let reply = harness.claim("me", &["b", "a"], 2, 6);
    assert_eq!((jids(&reply.jobs), reply.drained), (vec!["low".to_string()], true));
}

pub(crate) fn a_queue_of_priorities_is_one_queue(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    let old = doc_with("q", "plain", r#","enqueued_at":1.0"#);
    let newer = doc_with(
        "q",
        "low",
        &format!(r#","enqueued_at":{:?},"chaton":{{"priority":1}}"#, now_s() - 50.0),
    );
    push(&mut harness, "q", &[newer, old]);
    let seen = |harness: &mut StoreHarness| {
        let queues = harness.store.queues().unwrap();
        assert_eq!(queues.len(), 1);
        assert_eq!(harness.store.stats().unwrap().enqueued, queues[0].size);
        (queues[0].size, queues[0].latency_s)
    };
    let (size, latency_s) = seen(&mut harness);
    assert_eq!(size, 2);
    assert!(latency_s > 1e6, "the next job is the one that waits since 1970: {latency_s}");
    assert_eq!(jids(&harness.claim("me", &["q"], 1, 1).jobs), ["plain"]);
    let (size, latency_s) = seen(&mut harness);
    assert!(size == 1 && (49.0..1000.0).contains(&latency_s), "{latency_s}");
    harness.store.pause("q", true).unwrap();
    push(&mut harness, "q", &three("q"));
    assert_eq!(harness.claim_all("me", "q"), [""; 0]);
    assert_eq!(seen(&mut harness).0, 4);
    harness.store.pause("q", false).unwrap();
    assert_eq!(harness.claim_all("me", "q"), ["high", "plain", "low", "low"]);
    assert_eq!(seen(&mut harness), (0, 0.0));
}

/// A way into the queue `q`.
type Way = fn(&mut StoreHarness, &[Vec<u8>; 3]);

const WAYS: [(&str, Way); 11] = [
    ("push", |harness, jobs| push(harness, "q", jobs)),
    ("push with a lock", locked),
    ("push to a batch", batched),
    ("tick", |harness, jobs| {
        for (key, payload) in ["1", "2", "3"].into_iter().zip(jobs) {
            let tick = job("q", payload);
            assert!(harness.store.push_once(key, Duration::from_secs(60), &tick).unwrap());
        }
    }),
    ("schedule", |harness, jobs| {
        jobs.iter().for_each(|payload| harness.put_at(1.0, payload));
        harness.store.move_due(now_s(), 10).unwrap();
    }),
    ("retry", |harness, jobs| due(harness, &JobLocation::Retry, jobs)),
    ("rescheduled", |harness, jobs| due(harness, &JobLocation::Scheduled, jobs)),
    ("dead, by hand", |harness, jobs| by_hand(harness, &JobLocation::Dead, jobs)),
    ("retry, by hand", |harness, jobs| by_hand(harness, &JobLocation::Retry, jobs)),
    ("requeued", requeued),
    ("due, claimed and requeued", |harness, jobs| {
        jobs.iter().for_each(|payload| harness.put_at(1.0, payload));
        let (claimed, _) = harness.store.claim_due("gone", 1, now_s(), 10).unwrap();
        let acks: Vec<Ack> = claimed.iter().map(|job| ack(job.ticket, "", back())).collect();
        assert_eq!(harness.end("gone", &acks), 0);
    }),
];

fn locked(harness: &mut StoreHarness, jobs: &[Vec<u8>; 3]) {
    for payload in jobs {
        let jid = jid_of(payload);
        let lock = NewLock { key: &jid, jid: &jid, ttl: Duration::from_secs(60) };
        let job = NewJob { lock: Some(lock), ..job("q", payload) };
        assert_eq!(harness.store.push(&[job]).unwrap(), [PushResult::Stored]);
    }
}

fn batched(harness: &mut StoreHarness, jobs: &[Vec<u8>; 3]) {
    let batch = NewBatch {
        bid: "b",
        parent: None,
        owner: "",
        description: "",
        callbacks: &[],
        ttl: Duration::from_secs(60),
        now_s: now_s(),
    };
    harness.store.batch_open(&batch).unwrap();
    let jobs = jobs.each_ref().map(|payload| NewJob { bid: Some("b"), ..job("q", payload) });
    harness.store.push(&jobs).unwrap();
}

fn due(harness: &mut StoreHarness, location: &JobLocation, jobs: &[Vec<u8>; 3]) {
    jobs.iter().for_each(|payload| harness.put_in(location, 1.0, payload));
    harness.store.move_due(now_s(), 10).unwrap();
}

fn by_hand(harness: &mut StoreHarness, location: &JobLocation, jobs: &[Vec<u8>; 3]) {
    jobs.iter().for_each(|payload| harness.put_in(location, 9e9, payload));
    for entry in harness.all(location) {
        assert!(harness.store.enqueue_entry(location, &entry, now_s()).unwrap());
    }
}

/// They go before those of the same priority that came meanwhile.
fn requeued(harness: &mut StoreHarness, jobs: &[Vec<u8>; 3]) {
    push(harness, "q", jobs);
    let claimed = harness.claim("gone", &["q"], 3, 1).jobs;
    let later = three("q").map(|payload| {
        let text = String::from_utf8(payload).unwrap();
        text.replace(r#""jid":""#, r#""jid":"later "#).into()
    });
    push(harness, "q", &later);
    let acks: Vec<Ack> = claimed.iter().map(|job| ack(job.ticket, "q", back())).collect();
    harness.end("gone", &acks);
    let listed = harness.listed(&queue("q"));
    assert_eq!(listed, ["high", "later high", "plain", "later plain", "low", "later low"]);
    for entry in harness.all(&queue("q")) {
        if jid_of(&entry.payload).starts_with("later") {
            assert!(harness.store.remove(&queue("q"), &entry).unwrap());
        }
    }
}

/// Each way into a queue leads to the place of the priority.
pub(crate) fn every_way_into_a_queue_keeps_the_order(fresh: OpenFresh<'_>) {
    for (name, way) in WAYS {
        for turned in [false, true] {
            let mut harness = StoreHarness::new(fresh);
            let mut jobs = three("q");
            if turned {
                jobs.reverse();
            }
            way(&mut harness, &jobs);
            assert_eq!(harness.listed(&queue("q")), IN_ORDER, "{name}");
            let sizes = harness.store.queues().unwrap();
            assert_eq!(sizes.iter().map(|queue| queue.size).sum::<u64>(), 3, "{name}");
            assert_eq!(harness.claim_all("me", "q"), IN_ORDER, "{name}");
        }
    }
}

pub(crate) fn jobs_of_any_priority_are_removed_killed_and_found(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    push(&mut harness, "q", &three("q"));
    push(
        &mut harness,
        "q",
        &["high2", "low2"].map(|jid| ranked("q", jid, if jid == "low2" { 9 } else { -10 })),
    );
    for jid in IN_ORDER {
        let (place, entry) = harness.store.find(jid).unwrap().unwrap();
        assert_eq!(place, queue("q"), "{jid}");
        if jid == "plain" {
            assert!(harness.store.kill(&place, &entry, now_s()).unwrap());
        } else {
            assert!(harness.store.remove(&place, &entry).unwrap());
        }
        assert!(!harness.store.remove(&place, &entry).unwrap(), "{jid} is gone");
    }
    assert_eq!(harness.listed(&queue("q")), ["high2", "low2"]);
    assert_eq!(harness.store.queues().unwrap()[0].size, 2);
    assert_eq!(harness.listed(&JobLocation::Dead), ["plain"]);
    push(&mut harness, "q", &three("q"));
    assert_eq!(harness.store.queues().unwrap()[0].size, 5);
    assert_eq!(harness.store.clear(&queue("q"), 3).unwrap(), 3);
    let left = harness.listed(&queue("q"));
    assert!(
        left.contains(&"low".into()) && left.contains(&"low2".into()) && left.len() == 2,
        "{left:?}"
    );
    assert_eq!(harness.store.clear(&queue("q"), 0).unwrap(), 2);
    assert_eq!(harness.store.stats().unwrap().enqueued, 0);
}

pub(crate) fn a_called_job_goes_to_the_front_of_its_priority(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    let limit = Limit { key: "k".into(), rule: LimitRule::Concurrent { max: 1, hold_s: 600.0 } };
    let mut push_limited = |jid: &str| {
        let limits = r#","chaton":{"limits":[{"key":"k","max":1}],"priority":7}"#;
        push(&mut harness, "q", &[doc_with("q", jid, limits)]);
    };
    push_limited("holds");
    push_limited("waits");
    let claimed = harness.claim("me", &["q"], 2, 1).jobs;
    let ask = |ticket, jid| LimitRequest {
        ticket,
        jid,
        place: now_s(),
        limits: std::slice::from_ref(&limit),
    };
    let grants = harness.store.acquire("me", &[ask(1, "holds"), ask(2, "waits")], now_s()).unwrap();
    assert_eq!(grants, [Grant::Now, DENIED]);
    let wait = Wait {
        at: now_s() + 600.0,
        payload: claimed[1].payload.clone(),
        behind: limit.clone(),
        jid: "waits".into(),
        place: now_s(),
        now_s: now_s(),
        is_new: true,
    };
    harness.end("me", &[ack(2, "q", Outcome::Wait(Box::new(wait)))]);
    push(&mut harness, "q", &three("q"));
    push(&mut harness, "q", &[ranked("q", "equal", 7)]);
    let effects = SideEffects {
        release: vec!["k".into()],
        jid: "holds".into(),
        now_s: now_s(),
        ..SideEffects::default()
    };
    harness.end("me", &[ack_with(1, "q", Outcome::Ack, effects)]);
    let listed = harness.listed(&queue("q"));
    let place = |jid: &str| listed.iter().position(|one| one == jid).unwrap();
    assert!(place("plain") < place("waits") && place("waits") < place("equal"), "{listed:?}");
}

pub(crate) fn jobs_of_any_priority_end_the_wait(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    for (jid, priority) in [("high", -1), ("low", 1)] {
        let mut watch = harness.factory.watch();
        let queues = names(&["q"]);
        assert!(!watch.arm(&queues).unwrap().ready, "{jid}");
        push(&mut harness, "q", &[ranked("q", jid, priority)]);
        let event = watch.wait(TIMEOUT).unwrap();
        assert!(matches!(event, StoreEvent::Changed { .. }), "{jid}: {event:?}");
        assert!(watch.arm(&queues).unwrap().ready, "{jid}");
        assert_eq!(harness.claim_all("me", "q"), [jid]);
    }
}

/// Each number has its place, where a store says so.
pub(crate) fn each_number_has_its_place(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    let all = [-999, -255, -254, -3, -2, -1, 0, 1, 2, 3, 254, 255, 999];
    for (round, step) in [5, 8, 2].into_iter().enumerate() {
        for n in 0..all.len() {
            let priority = all[n * step % all.len()];
            push(&mut harness, "q", &[ranked("q", &format!("{priority} {round}"), priority)]);
        }
    }
    assert_eq!(harness.store.queues().unwrap()[0].size, 3 * all.len() as u64);
    let listed = harness.listed(&queue("q"));
    let claimed: Vec<String> =
        (0..39).flat_map(|ticket| jids(&harness.claim("me", &["q"], 1, ticket).jobs)).collect();
    assert_eq!(claimed, listed);
    let of = |jid: &String| {
        let (priority, round) = jid.split_once(' ').unwrap();
        (priority.parse::<i64>().unwrap().clamp(-255, 255), round.to_string())
    };
    let order: Vec<_> = claimed.iter().map(of).collect();
    assert!(order.is_sorted(), "{order:?}");
}
