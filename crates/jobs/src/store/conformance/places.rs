//! Places, as people and tools look at them.

use super::bench::*;
use crate::store::*;

/// Jobs settled in one call.
const CHUNK: usize = 1000;
/// The default bounds of the dead set.
const DEAD_MAX: usize = 10_000;
const DEAD_AGE_S: f64 = 180.0 * 24.0 * 3600.0;

pub(crate) fn a_place_is_listed_by_pages(fresh: Fresh<'_>) {
    let mut desk = Desk::new(fresh);
    desk.put("q", &["a", "b", "c", "d", "e"]);
    let now = now_s();
    for (place, at) in
        [(JobLocation::Scheduled, 100.0), (JobLocation::Retry, 200.0), (JobLocation::Dead, 0.0)]
    {
        for jid in ["c", "a", "e", "b", "d"] {
            let step = f64::from(jid.as_bytes()[0] - b'a');
            desk.put_in(&place, now + at + step, &doc("q", jid));
        }
    }
    for place in [queue("q"), JobLocation::Scheduled, JobLocation::Retry, JobLocation::Dead] {
        let mut page = |offset, count| -> Vec<String> {
            let entries = desk.store.list(&place, offset, count).unwrap();
            entries.iter().map(|entry| jid_of(&entry.payload)).collect()
        };
        let newest_first = place == JobLocation::Dead;
        let order =
            if newest_first { ["e", "d", "c", "b", "a"] } else { ["a", "b", "c", "d", "e"] };
        assert_eq!(page(0, 2), order[..2], "{place:?}");
        assert_eq!(page(2, 2), order[2..4], "{place:?}");
        assert_eq!(page(4, 2), order[4..], "{place:?}");
        assert_eq!((page(5, 2).len(), page(0, 0).len(), page(99, 1).len()), (0, 0, 0));
        assert_eq!(page(0, 100), order, "{place:?}");
    }
    assert_eq!(desk.all(&queue("never seen")), []);
    assert!(desk.all(&queue("q")).iter().all(|entry| entry.score == 0.0));
}

pub(crate) fn a_job_is_found_wherever_it_is(fresh: Fresh<'_>) {
    let mut desk = Desk::new(fresh);
    let now = now_s();
    for place in
        [queue("q"), queue("r"), JobLocation::Scheduled, JobLocation::Retry, JobLocation::Dead]
    {
        let name = format!("{place:?}");
        let jids = [format!("{name}1"), format!("{name}2")].map(|jid| jid.replace('"', ""));
        for jid in &jids {
            match &place {
                JobLocation::Queue(queue) => desk.put(queue, &[jid]),
                set => desk.put_in(set, now + 5.5, &doc("q", jid)),
            }
        }
        let (found, entry) = desk.store.find(&jids[1]).unwrap().unwrap();
        assert_eq!((&found, jid_of(&entry.payload)), (&place, jids[1].clone()));
        let set = !matches!(place, JobLocation::Queue(_));
        assert!((entry.score - if set { now + 5.5 } else { 0.0 }).abs() < 0.001);
        assert!(desk.store.remove(&found, &entry).unwrap());
        assert_eq!(desk.store.find(&jids[1]).unwrap(), None);
        assert!(desk.store.find(&jids[0]).unwrap().is_some());
    }
    desk.store.push(&[job("q", b"no JSON, but jid Queue")]).unwrap();
    for jid in ["Queue", "1", "", "%"] {
        assert_eq!(desk.store.find(jid).unwrap(), None, "a part of a jid is none");
    }
}

pub(crate) fn places_are_cleared(fresh: Fresh<'_>) {
    let mut desk = Desk::new(fresh);
    let now = now_s();
    let places = [queue("q"), JobLocation::Scheduled, JobLocation::Retry, JobLocation::Dead];
    for place in &places {
        for jid in ["a", "b", "c", "d", "e"] {
            match place {
                JobLocation::Queue(queue) => desk.put(queue, &[jid]),
                set => desk.put_in(set, now, &doc("q", jid)),
            }
        }
    }
    for place in &places {
        assert_eq!(desk.store.clear(place, 2).unwrap(), 2, "{place:?}");
        assert_eq!(desk.all(place).len(), 3, "{place:?}");
        assert_eq!(desk.store.clear(place, 99).unwrap(), 3, "{place:?}");
        assert_eq!(desk.store.clear(place, 0).unwrap(), 0, "{place:?}");
    }
    desk.put("q", &["a", "b", "c"]);
    desk.put("r", &["d"]);
    assert_eq!(desk.store.clear(&queue("q"), 0).unwrap(), 3);
    assert_eq!(desk.listed(&queue("r")), ["d"], "not asked");
}

pub(crate) fn clearing_frees_locks(fresh: Fresh<'_>) {
    let mut desk = Desk::new(fresh);
    let payload = doc_with("q", "a", r#","chaton":{"lock":"k"}"#);
    let lock = |jid| Some(NewLock { key: "k", jid, ttl: PATIENCE });
    for at in [None, Some(now_s())] {
        let new = NewJob { at, lock: lock("a"), ..job("q", &payload) };
        assert_eq!(desk.store.push(&[new]).unwrap(), [PushResult::Stored]);
        let place = if at.is_some() { JobLocation::Scheduled } else { queue("q") };
        assert_eq!(desk.store.clear(&place, 0).unwrap(), 1);
        let next = NewJob { lock: lock("b"), ..job("r", &payload) };
        assert_eq!(desk.store.push(&[next]).unwrap(), [PushResult::Stored]);
        desk.store.unlock(&[HeldLock { key: "k", jid: "b" }]).unwrap();
    }
}

/// Buries jobs `first` to `last` at that time, the later the newer.
fn bury(desk: &mut Desk, first: usize, last: usize, at: f64) {
    let all: Vec<usize> = (first..last).collect();
    for chunk in all.chunks(CHUNK) {
        let payloads: Vec<Vec<u8>> = chunk.iter().map(|n| doc("q", &format!("j{n}"))).collect();
        let jobs: Vec<NewJob<'_>> = payloads.iter().map(|payload| job("q", payload)).collect();
        desk.store.push(&jobs).unwrap();
        let claimed = desk.claim("me", &["q"], CHUNK, 1).jobs;
        assert_eq!(claimed.len(), chunk.len());
        let end = |(job, n): (&ClaimedJob, &usize)| {
            settle(job.ticket, "q", Outcome::Dead { payload: None, at: at + *n as f64 / 1000.0 })
        };
        let ends: Vec<Ack> = claimed.iter().zip(chunk).map(end).collect();
        assert_eq!(desk.end("me", &ends), 0);
    }
}

pub(crate) fn the_dead_set_has_a_size(fresh: Fresh<'_>) {
    let mut desk = Desk::new(fresh);
    bury(&mut desk, 0, DEAD_MAX + 5, now_s() - 100.0);
    assert_eq!(desk.store.stats().unwrap().dead, DEAD_MAX as u64);
    let oldest = desk.store.list(&JobLocation::Dead, DEAD_MAX - 1, 10).unwrap();
    assert_eq!(oldest.iter().map(|entry| jid_of(&entry.payload)).collect::<Vec<_>>(), ["j5"]);
    desk.put("q", &["killed"]);
    let entry = desk.all(&queue("q")).remove(0);
    assert!(desk.store.kill(&queue("q"), &entry, now_s()).unwrap());
    assert_eq!(desk.store.stats().unwrap().dead, DEAD_MAX as u64, "by hand too");
    assert_eq!(desk.store.find("j5").unwrap(), None);
}

pub(crate) fn the_dead_set_forgets(fresh: Fresh<'_>) {
    let mut desk = Desk::new(fresh);
    let now = now_s();
    bury(&mut desk, 0, 2, now - DEAD_AGE_S - 3600.0);
    bury(&mut desk, 2, 4, now - DEAD_AGE_S + 3600.0);
    assert_eq!(desk.all(&JobLocation::Dead).len(), 4, "not too old for each other");
    bury(&mut desk, 4, 5, now);
    assert_eq!(desk.listed(&JobLocation::Dead), ["j4", "j3", "j2"]);
}

pub(crate) fn sizes_are_counted(fresh: Fresh<'_>) {
    let mut desk = Desk::new(fresh);
    assert_eq!(desk.store.stats().unwrap(), Stats::default());
    desk.put("q", &["a", "b", "c", "d", "e", "f"]);
    desk.put("r", &["g"]);
    desk.put_at(now_s() + 9.0, &doc("q", "h"));
    desk.claim("me", &["q"], 3, 1);
    desk.claim("you", &["q"], 1, 1);
    let at = now_s();
    desk.end("me", &[settle(1, "q", Outcome::Retry { at, payload: doc("q", "a") })]);
    desk.end("you", &[settle(1, "q", Outcome::Dead { at, payload: None })]);
    let expected =
        Stats { enqueued: 3, scheduled: 1, retries: 1, dead: 1, in_flight: 2, ..Stats::default() };
    assert_eq!(desk.store.stats().unwrap(), expected);
}

pub(crate) fn queues_are_described(fresh: Fresh<'_>) {
    let mut desk = Desk::new(fresh);
    assert_eq!(desk.store.queues().unwrap(), []);
    let now = now_s();
    let old = [
        ("old", format!(r#","enqueued_at":{:?}"#, now - 100.0)),
        ("ms", format!(r#","enqueued_at":{}"#, ((now - 100.0) * 1000.0) as i64)),
    ];
    for (name, stamp) in &old {
        let first = doc_with(name, "a", stamp);
        let second = doc_with(name, "b", &format!(r#","enqueued_at":{now:?}"#));
        desk.store.push(&[job(name, &first), job(name, &second)]).unwrap();
    }
    desk.put("empty", &["a"]);
    assert_eq!(desk.claim_all("me", "empty"), ["a"]);
    desk.put("stopped", &["a", "b", "c"]);
    desk.store.pause("stopped", true).unwrap();
    let mut seen = desk.store.queues().unwrap();
    seen.sort_by(|a, b| a.name.cmp(&b.name));
    let short: Vec<_> = seen.iter().map(|q| (&*q.name, q.size, q.paused)).collect();
    let expected = [("empty", 0, false), ("ms", 2, false), ("old", 2, false), ("stopped", 3, true)];
    assert_eq!(short, expected);
    assert_eq!(seen[0].latency_s, 0.0);
    for queue in &seen[1..3] {
        assert!((99.0..99.0 + PATIENCE.as_secs_f64()).contains(&queue.latency_s), "{queue:?}");
    }
    desk.store.pause("stopped", false).unwrap();
    assert!(desk.store.queues().unwrap().iter().all(|queue| !queue.paused));
}
