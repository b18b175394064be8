//! Places, as people and tools look at them.

use super::harness::*;
use crate::store::*;

/// Jobs settled in one call.
const CHUNK: usize = 250;
/// The default bounds of the dead set.
pub(crate) const DEAD_MAX: usize = 10_000;
pub(crate) const DEAD_AGE_S: f64 = 180.0 * 24.0 * 3600.0;

pub(crate) fn jobs_are_listed_by_pages(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    harness.put("q", &["a", "b", "c", "d", "e"]);
    let now = now_s();
    for (location, at) in
        [(JobLocation::Scheduled, 100.0), (JobLocation::Retry, 200.0), (JobLocation::Dead, 0.0)]
    {
        for jid in ["c", "a", "e", "b", "d"] {
            let step = f64::from(jid.as_bytes()[0] - b'a');
            harness.put_in(&location, now + at + step, &doc("q", jid));
        }
    }
    for location in [queue("q"), JobLocation::Scheduled, JobLocation::Retry, JobLocation::Dead] {
        let mut page = |offset, count| -> Vec<String> {
            let entries = harness.store.list(&location, offset, count).unwrap();
            entries.iter().map(|entry| jid_of(&entry.payload)).collect()
        };
        let newest_first = location == JobLocation::Dead;
        let order =
            if newest_first { ["e", "d", "c", "b", "a"] } else { ["a", "b", "c", "d", "e"] };
        assert_eq!(page(0, 2), order[..2], "{location:?}");
        assert_eq!(page(2, 2), order[2..4], "{location:?}");
        assert_eq!(page(4, 2), order[4..], "{location:?}");
        assert_eq!((page(5, 2).len(), page(0, 0).len(), page(99, 1).len()), (0, 0, 0));
        assert_eq!(page(0, 100), order, "{location:?}");
    }
    assert_eq!(harness.all(&queue("never seen")), []);
    assert!(harness.all(&queue("q")).iter().all(|entry| entry.score == 0.0));
}

pub(crate) fn a_job_is_found_wherever_it_is(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    let now = now_s();
    for location in
        [queue("q"), queue("r"), JobLocation::Scheduled, JobLocation::Retry, JobLocation::Dead]
    {
        let name = format!("{location:?}");
        let jids = [format!("{name}1"), format!("{name}2")].map(|jid| jid.replace('"', ""));
        for jid in &jids {
            match &location {
                JobLocation::Queue(queue) => harness.put(queue, &[jid]),
                set => harness.put_in(set, now + 5.5, &doc("q", jid)),
            }
        }
        let (found, entry) = harness.store.find(&jids[1]).unwrap().unwrap();
        assert_eq!((&found, jid_of(&entry.payload)), (&location, jids[1].clone()));
        let set = !matches!(location, JobLocation::Queue(_));
        assert!((entry.score - if set { now + 5.5 } else { 0.0 }).abs() < 0.001);
        assert!(harness.store.remove(&found, &entry).unwrap());
        assert_eq!(harness.store.find(&jids[1]).unwrap(), None);
        assert!(harness.store.find(&jids[0]).unwrap().is_some());
    }
    harness.store.push(&[job("q", b"no JSON, but jid Queue")]).unwrap();
    for jid in ["Queue", "1", "", "%"] {
        assert_eq!(harness.store.find(jid).unwrap(), None, "a part of a jid is none");
    }
}

pub(crate) fn queues_and_sets_are_cleared(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    let now = now_s();
    let places = [queue("q"), JobLocation::Scheduled, JobLocation::Retry, JobLocation::Dead];
    for location in &places {
        for jid in ["a", "b", "c", "d", "e"] {
            match location {
                JobLocation::Queue(queue) => harness.put(queue, &[jid]),
                set => harness.put_in(set, now, &doc("q", jid)),
            }
        }
    }
    for location in &places {
        assert_eq!(harness.store.clear(location, 2).unwrap(), 2, "{location:?}");
        assert_eq!(harness.all(location).len(), 3, "{location:?}");
        assert_eq!(harness.store.clear(location, 99).unwrap(), 3, "{location:?}");
        assert_eq!(harness.store.clear(location, 0).unwrap(), 0, "{location:?}");
    }
    harness.put("q", &["a", "b", "c"]);
    harness.put("r", &["d"]);
    assert_eq!(harness.store.clear(&queue("q"), 0).unwrap(), 3);
    assert_eq!(harness.listed(&queue("r")), ["d"], "not asked");
}

pub(crate) fn clearing_releases_locks(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    let payload = doc_with("q", "a", r#","chaton":{"lock":"k"}"#);
    let lock = |jid| Some(NewLock { key: "k", jid, ttl: TIMEOUT });
    for at in [None, Some(now_s())] {
        let new = NewJob { at, lock: lock("a"), ..job("q", &payload) };
        assert_eq!(harness.store.push(&[new]).unwrap(), [PushResult::Stored]);
        let location = if at.is_some() { JobLocation::Scheduled } else { queue("q") };
        assert_eq!(harness.store.clear(&location, 0).unwrap(), 1);
        let next = NewJob { lock: lock("b"), ..job("r", &payload) };
        assert_eq!(harness.store.push(&[next]).unwrap(), [PushResult::Stored]);
        harness.store.unlock(&[HeldLock { key: "k", jid: "b" }]).unwrap();
    }
}

/// Buries jobs `first` to `last` at that time, the later the newer.
pub(crate) fn add_dead(harness: &mut StoreHarness, first: usize, last: usize, at: f64) {
    let all: Vec<usize> = (first..last).collect();
    for chunk in all.chunks(CHUNK) {
        let payloads: Vec<Vec<u8>> = chunk.iter().map(|n| doc("q", &format!("j{n}"))).collect();
        let jobs: Vec<NewJob<'_>> = payloads.iter().map(|payload| job("q", payload)).collect();
        harness.store.push(&jobs).unwrap();
        let claimed = harness.claim("me", &["q"], CHUNK, 1).jobs;
        assert_eq!(claimed.len(), chunk.len());
        let end = |(job, n): (&ClaimedJob, &usize)| {
            ack(job.ticket, "q", Outcome::Dead { payload: None, at: at + *n as f64 / 1000.0 })
        };
        let ends: Vec<Ack> = claimed.iter().zip(chunk).map(end).collect();
        assert_eq!(harness.end("me", &ends), 0);
    }
}

pub(crate) fn the_dead_set_is_limited_in_size(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    add_dead(&mut harness, 0, DEAD_MAX + 5, now_s() - 100.0);
    assert_eq!(harness.store.stats().unwrap().dead, DEAD_MAX as u64);
    let oldest = harness.store.list(&JobLocation::Dead, DEAD_MAX - 1, 10).unwrap();
    assert_eq!(oldest.iter().map(|entry| jid_of(&entry.payload)).collect::<Vec<_>>(), ["j5"]);
    harness.put("q", &["killed"]);
    let entry = harness.all(&queue("q")).remove(0);
    assert!(harness.store.kill(&queue("q"), &entry, now_s()).unwrap());
    assert_eq!(harness.store.stats().unwrap().dead, DEAD_MAX as u64, "by hand too");
    assert_eq!(harness.store.find("j5").unwrap(), None);
}

pub(crate) fn the_dead_set_is_limited_in_age(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    let now = now_s();
    add_dead(&mut harness, 0, 2, now - DEAD_AGE_S - 3600.0);
    add_dead(&mut harness, 2, 4, now - DEAD_AGE_S + 3600.0);
    assert_eq!(harness.all(&JobLocation::Dead).len(), 4, "not too old for each other");
    add_dead(&mut harness, 4, 5, now);
    assert_eq!(harness.listed(&JobLocation::Dead), ["j4", "j3", "j2"]);
}

pub(crate) fn sizes_are_counted(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    assert_eq!(harness.store.stats().unwrap(), Stats::default());
    harness.put("q", &["a", "b", "c", "d", "e", "f"]);
    harness.put("r", &["g"]);
    harness.put_at(now_s() + 9.0, &doc("q", "h"));
    harness.claim("me", &["q"], 3, 1);
    harness.claim("you", &["q"], 1, 1);
    let at = now_s();
    harness.end("me", &[ack(1, "q", Outcome::Retry { at, payload: doc("q", "a") })]);
    harness.end("you", &[ack(1, "q", Outcome::Dead { at, payload: None })]);
    let expected =
        Stats { enqueued: 3, scheduled: 1, retries: 1, dead: 1, in_flight: 2, ..Stats::default() };
    assert_eq!(harness.store.stats().unwrap(), expected);
}

pub(crate) fn queues_are_described(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    assert_eq!(harness.store.queues().unwrap(), []);
    let now = now_s();
    let old = [
        ("old", format!(r#","enqueued_at":{:?}"#, now - 100.0)),
        ("ms", format!(r#","enqueued_at":{}"#, ((now - 100.0) * 1000.0) as i64)),
    ];
    for (name, stamp) in &old {
        let first = doc_with(name, "a", stamp);
        let second = doc_with(name, "b", &format!(r#","enqueued_at":{now:?}"#));
        harness.store.push(&[job(name, &first), job(name, &second)]).unwrap();
    }
    harness.put("empty", &["a"]);
    assert_eq!(harness.claim_all("me", "empty"), ["a"]);
    harness.put("stopped", &["a", "b", "c"]);
    harness.store.pause("stopped", true).unwrap();
    let mut seen = harness.store.queues().unwrap();
    seen.sort_by(|a, b| a.name.cmp(&b.name));
    let short: Vec<_> = seen.iter().map(|q| (&*q.name, q.size, q.paused)).collect();
    let expected = [("empty", 0, false), ("ms", 2, false), ("old", 2, false), ("stopped", 3, true)];
    assert_eq!(short, expected);
    assert_eq!(seen[0].latency_s, 0.0);
    for queue in &seen[1..3] {
        assert!((99.0..99.0 + TIMEOUT.as_secs_f64()).contains(&queue.latency_s), "{queue:?}");
    }
    harness.store.pause("stopped", false).unwrap();
    assert!(harness.store.queues().unwrap().iter().all(|queue| !queue.paused));
}
