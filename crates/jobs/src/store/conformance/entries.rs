//! Removing, requeueing and killing single entries.

use super::batches::{calls, counts, fill, open};
use super::harness::*;
use super::lists::{add_dead, DEAD_AGE_S, DEAD_MAX};
use crate::document::Fields;
use crate::store::*;

fn places() -> [JobLocation; 4] {
    [queue("q"), JobLocation::Scheduled, JobLocation::Retry, JobLocation::Dead]
}

/// Adds three jobs and returns the entry of the middle one.
fn middle(harness: &mut StoreHarness, location: &JobLocation) -> JobEntry {
    for (index, jid) in ["a", "b", "c"].into_iter().enumerate() {
        match location {
            JobLocation::Queue(queue) => harness.put(queue, &[jid]),
            set => harness.put_in(set, now_s() + index as f64, &doc("q", jid)),
        }
    }
    harness.all(location).remove(1)
}

fn rest(location: &JobLocation) -> [&'static str; 2] {
    if *location == JobLocation::Dead {
        ["c", "a"]
    } else {
        ["a", "c"]
    }
}

pub(crate) fn an_entry_is_removed_once(fresh: OpenFresh<'_>) {
    for location in places() {
        let mut harness = StoreHarness::new(fresh);
        let entry = middle(&mut harness, &location);
        assert!(harness.store.remove(&location, &entry).unwrap(), "{location:?}");
        assert!(!harness.store.remove(&location, &entry).unwrap(), "{location:?}");
        assert_eq!(harness.listed(&location), rest(&location));
    }
}

/// Removes the only two jobs of a batch, one of which holds a lock.
fn given_up(fresh: OpenFresh<'_>, take: impl Fn(&mut dyn Store, &JobEntry) -> bool) {
    let mut harness = StoreHarness::new(fresh);
    open(&mut harness, "b", None);
    fill(&mut harness, "b", &["x"]);
    let payload = doc_with("q", "y", r#","bid":"b","chaton":{"lock":"k","until":"success"}"#);
    let lock = |jid| Some(NewLock { key: "k", jid, ttl: TIMEOUT });
    let new = NewJob { lock: lock("y"), bid: Some("b"), ..job("q", &payload) };
    harness.store.push(&[new]).unwrap();
    harness.store.batch_close("b").unwrap();
    for entry in harness.all(&queue("q")) {
        assert!(take(&mut *harness.store, &entry));
    }
    assert_eq!(counts(&mut harness, "b"), (2, 2, 2, true, false, true));
    assert_eq!(calls(&mut harness), ["b complete", "b death"]);
    let next = NewJob { lock: lock("z"), ..job("q", &payload) };
    assert_eq!(harness.store.push(&[next]).unwrap(), [PushResult::Stored]);
}

pub(crate) fn removing_releases_the_lock_and_updates_the_batch(fresh: OpenFresh<'_>) {
    given_up(fresh, |store, entry| store.remove(&queue("q"), entry).unwrap());
}

pub(crate) fn killing_releases_the_lock_and_updates_the_batch(fresh: OpenFresh<'_>) {
    given_up(fresh, |store, entry| store.kill(&queue("q"), entry, now_s()).unwrap());
}

pub(crate) fn requeueing_releases_nothing(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    open(&mut harness, "b", None);
    let payload = doc_with("q", "y", r#","bid":"b","chaton":{"lock":"k"}"#);
    let lock = |jid| Some(NewLock { key: "k", jid, ttl: TIMEOUT });
    let new = NewJob { lock: lock("y"), bid: Some("b"), ..job("q", &payload) };
    harness.store.push(&[NewJob { at: Some(now_s()), ..new }]).unwrap();
    let entry = harness.all(&JobLocation::Scheduled).remove(0);
    assert!(harness.store.enqueue_entry(&JobLocation::Scheduled, &entry, now_s()).unwrap());
    assert_eq!(counts(&mut harness, "b"), (1, 1, 0, false, false, false));
    let next = NewJob { lock: lock("z"), ..new };
    assert_eq!(harness.store.push(&[next]).unwrap(), [PushResult::Locked("y".into())]);
}

pub(crate) fn an_entry_is_requeued_once(fresh: OpenFresh<'_>) {
    let now = now_s();
    for location in places() {
        let mut harness = StoreHarness::new(fresh);
        let entry = middle(&mut harness, &location);
        harness.put("q", &["last"]);
        assert!(harness.store.enqueue_entry(&location, &entry, now).unwrap(), "{location:?}");
        let queued = harness.all(&queue("q"));
        let moved = queued.last().unwrap();
        assert_eq!(jid_of(&moved.payload), "b", "{location:?}: at the back");
        let mut fields = Fields::parse(&moved.payload).unwrap();
        assert!((fields.number("enqueued_at").unwrap() - now).abs() < 0.01, "{location:?}");
        fields.remove("enqueued_at");
        assert_eq!(fields.to_vec(), doc("q", "b"), "{location:?}");
        if !matches!(location, JobLocation::Queue(_)) {
            assert_eq!(harness.listed(&location), rest(&location));
        }
        assert!(!harness.store.enqueue_entry(&location, &entry, now).unwrap(), "{location:?}");
        assert_eq!(harness.all(&queue("q")).len(), queued.len(), "{location:?}");
    }
}

pub(crate) fn a_retry_is_requeued_with_one_try_less(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    let now = now_s();
    let with = |count: i64| {
        doc_with("r", "a", &format!(r#","retry_count":{count},"error_message":"x","n":1.50"#))
    };
    let cases = [
        (JobLocation::Retry, 3, 2),
        (JobLocation::Retry, 0, -1),
        (JobLocation::Scheduled, 3, 3),
        (JobLocation::Dead, 3, 3),
    ];
    for (ticket, (location, before, after)) in (1..).zip(cases) {
        harness.put_in(&location, now, &with(before));
        let entry = harness.all(&location).remove(0);
        assert!(harness.store.enqueue_entry(&location, &entry, now).unwrap());
        let moved = harness.claim("me", &["r"], 1, ticket).jobs.remove(0).payload;
        let mut fields = Fields::parse(&moved).unwrap();
        fields.remove("enqueued_at");
        assert_eq!(String::from_utf8(fields.to_vec()), String::from_utf8(with(after)));
    }
}

pub(crate) fn a_missing_entry_cannot_be_requeued(fresh: OpenFresh<'_>) {
    for location in places() {
        let mut harness = StoreHarness::new(fresh);
        let entry = middle(&mut harness, &location);
        assert!(harness.store.remove(&location, &entry).unwrap());
        assert!(!harness.store.enqueue_entry(&location, &entry, now_s()).unwrap(), "{location:?}");
        assert!(!harness.store.kill(&location, &entry, now_s()).unwrap(), "{location:?}");
        assert_eq!(harness.store.find("b").unwrap(), None);
    }
}

pub(crate) fn an_entry_is_killed_once(fresh: OpenFresh<'_>) {
    let at = now_s() + 60.0;
    for location in [queue("q"), JobLocation::Scheduled, JobLocation::Retry] {
        let mut harness = StoreHarness::new(fresh);
        let entry = middle(&mut harness, &location);
        assert!(harness.store.kill(&location, &entry, at).unwrap(), "{location:?}");
        assert!(!harness.store.kill(&location, &entry, at).unwrap(), "{location:?}");
        assert_eq!(harness.listed(&location), rest(&location));
        let dead = harness.all(&JobLocation::Dead);
        assert_eq!(dead.len(), 1, "{location:?}");
        assert_eq!(dead[0].payload, entry.payload, "whole");
        assert!((dead[0].score - at).abs() < 0.001, "{location:?}");
    }
}

pub(crate) fn one_of_equal_jobs_is_removed(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    harness.put("q", &["same", "same", "same"]);
    let entry = harness.all(&queue("q")).remove(1);
    assert!(harness.store.remove(&queue("q"), &entry).unwrap());
    assert_eq!(harness.listed(&queue("q")), ["same", "same"]);
}

pub(crate) fn an_entry_is_added_to_a_set(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    let at = now_s() + 60.0;
    for location in [JobLocation::Scheduled, JobLocation::Retry, JobLocation::Dead] {
        harness.store.add_entry(&location, at, &doc("q", "a")).unwrap();
        let added = harness.all(&location);
        assert_eq!(added.len(), 1, "{location:?}");
        assert_eq!(added[0].payload, doc("q", "a"));
        assert!((added[0].score - at).abs() < 0.001, "{location:?}");
    }
    let refused = harness.store.add_entry(&queue("q"), at, &doc("q", "a")).unwrap_err();
    assert!(refused.to_string().contains("have no time"), "{refused}");
}

pub(crate) fn an_added_entry_limits_the_dead_set(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    let now = now_s();
    add_dead(&mut harness, 0, DEAD_MAX, now - 100.0);
    harness.store.add_entry(&JobLocation::Dead, now, &doc("q", "new")).unwrap();
    assert_eq!(harness.store.stats().unwrap().dead, DEAD_MAX as u64);
    assert_eq!(harness.store.find("j0").unwrap(), None, "the oldest one made room");
    harness.store.add_entry(&JobLocation::Dead, now + DEAD_AGE_S + 1.0, &doc("q", "late")).unwrap();
    assert_eq!(harness.listed(&JobLocation::Dead), ["late"], "the others are too old for it");
}

pub(crate) fn an_entry_gets_another_time(fresh: OpenFresh<'_>) {
    for location in [JobLocation::Scheduled, JobLocation::Retry, JobLocation::Dead] {
        let mut harness = StoreHarness::new(fresh);
        let entry = middle(&mut harness, &location);
        let at = now_s() + 600.0;
        assert!(harness.store.reschedule_entry(&location, &entry, at).unwrap(), "{location:?}");
        let (_, moved) = harness.store.find("b").unwrap().unwrap();
        assert!((moved.score - at).abs() < 0.001, "{location:?}");
        assert_eq!(harness.all(&location).len(), 3, "{location:?}");
        assert!(harness.store.reschedule_entry(&location, &moved, at).unwrap(), "the same time");
        assert!(harness.store.remove(&location, &moved).unwrap());
        assert!(!harness.store.reschedule_entry(&location, &entry, at).unwrap(), "{location:?}");
        assert_eq!(harness.listed(&location), rest(&location));
    }
}
