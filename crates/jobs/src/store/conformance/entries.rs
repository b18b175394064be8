//! Single entries, removed, requeued and killed by hand.

use super::batches::{calls, counts, fill, open};
use super::bench::*;
use crate::document::Fields;
use crate::store::*;

fn places() -> [JobLocation; 4] {
    [queue("q"), JobLocation::Scheduled, JobLocation::Retry, JobLocation::Dead]
}

/// Three jobs in each place; the middle one's entry.
fn middle(desk: &mut Desk, place: &JobLocation) -> JobEntry {
    for (index, jid) in ["a", "b", "c"].into_iter().enumerate() {
        match place {
            JobLocation::Queue(queue) => desk.put(queue, &[jid]),
            set => desk.put_in(set, now_s() + index as f64, &doc("q", jid)),
        }
    }
    desk.all(place).remove(1)
}

fn rest(place: &JobLocation) -> [&'static str; 2] {
    if *place == JobLocation::Dead {
        ["c", "a"]
    } else {
        ["a", "c"]
    }
}

pub(crate) fn an_entry_is_removed_once(fresh: Fresh<'_>) {
    for place in places() {
        let mut desk = Desk::new(fresh);
        let entry = middle(&mut desk, &place);
        assert!(desk.store.remove(&place, &entry).unwrap(), "{place:?}");
        assert!(!desk.store.remove(&place, &entry).unwrap(), "{place:?}");
        assert_eq!(desk.listed(&place), rest(&place));
    }
}

/// Takes away the only two jobs of a batch, one of which holds a lock.
fn given_up(fresh: Fresh<'_>, take: impl Fn(&mut dyn Store, &JobEntry) -> bool) {
    let mut desk = Desk::new(fresh);
    open(&mut desk, "b", None);
    fill(&mut desk, "b", &["x"]);
    let payload = doc_with("q", "y", r#","bid":"b","chaton":{"lock":"k","until":"success"}"#);
    let lock = |jid| Some(NewLock { key: "k", jid, ttl: PATIENCE });
    let new = NewJob { lock: lock("y"), bid: Some("b"), ..job("q", &payload) };
    desk.store.push(&[new]).unwrap();
    desk.store.batch_close("b").unwrap();
    for entry in desk.all(&queue("q")) {
        assert!(take(&mut *desk.store, &entry));
    }
    assert_eq!(counts(&mut desk, "b"), (2, 2, 2, true, false, true));
    assert_eq!(calls(&mut desk), ["b complete", "b death"]);
    let next = NewJob { lock: lock("z"), ..job("q", &payload) };
    assert_eq!(desk.store.push(&[next]).unwrap(), [PushResult::Stored]);
}

pub(crate) fn removing_frees_the_lock_and_tells_the_batch(fresh: Fresh<'_>) {
    given_up(fresh, |store, entry| store.remove(&queue("q"), entry).unwrap());
}

pub(crate) fn killing_frees_the_lock_and_tells_the_batch(fresh: Fresh<'_>) {
    given_up(fresh, |store, entry| store.kill(&queue("q"), entry, now_s()).unwrap());
}

pub(crate) fn requeueing_frees_nothing(fresh: Fresh<'_>) {
    let mut desk = Desk::new(fresh);
    open(&mut desk, "b", None);
    let payload = doc_with("q", "y", r#","bid":"b","chaton":{"lock":"k"}"#);
    let lock = |jid| Some(NewLock { key: "k", jid, ttl: PATIENCE });
    let new = NewJob { lock: lock("y"), bid: Some("b"), ..job("q", &payload) };
    desk.store.push(&[NewJob { at: Some(now_s()), ..new }]).unwrap();
    let entry = desk.all(&JobLocation::Scheduled).remove(0);
    assert!(desk.store.requeue(&JobLocation::Scheduled, &entry, now_s()).unwrap());
    assert_eq!(counts(&mut desk, "b"), (1, 1, 0, false, false, false));
    let next = NewJob { lock: lock("z"), ..new };
    assert_eq!(desk.store.push(&[next]).unwrap(), [PushResult::Locked("y".into())]);
}

pub(crate) fn an_entry_is_requeued_once(fresh: Fresh<'_>) {
    let now = now_s();
    for place in places() {
        let mut desk = Desk::new(fresh);
        let entry = middle(&mut desk, &place);
        desk.put("q", &["last"]);
        assert!(desk.store.requeue(&place, &entry, now).unwrap(), "{place:?}");
        let queued = desk.all(&queue("q"));
        let moved = queued.last().unwrap();
        assert_eq!(jid_of(&moved.payload), "b", "{place:?}: at the back");
        let mut fields = Fields::parse(&moved.payload).unwrap();
        assert!((fields.number("enqueued_at").unwrap() - now).abs() < 0.01, "{place:?}");
        fields.remove("enqueued_at");
        assert_eq!(fields.to_vec(), doc("q", "b"), "{place:?}");
        if !matches!(place, JobLocation::Queue(_)) {
            assert_eq!(desk.listed(&place), rest(&place));
        }
        assert!(!desk.store.requeue(&place, &entry, now).unwrap(), "{place:?}");
        assert_eq!(desk.all(&queue("q")).len(), queued.len(), "{place:?}");
    }
}

pub(crate) fn a_retry_is_requeued_with_one_try_less(fresh: Fresh<'_>) {
    let mut desk = Desk::new(fresh);
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
    for (ticket, (place, before, after)) in (1..).zip(cases) {
        desk.put_in(&place, now, &with(before));
        let entry = desk.all(&place).remove(0);
        assert!(desk.store.requeue(&place, &entry, now).unwrap());
        let moved = desk.claim("me", &["r"], 1, ticket).jobs.remove(0).payload;
        let mut fields = Fields::parse(&moved).unwrap();
        fields.remove("enqueued_at");
        assert_eq!(String::from_utf8(fields.to_vec()), String::from_utf8(with(after)));
    }
}

pub(crate) fn what_is_gone_cannot_be_requeued(fresh: Fresh<'_>) {
    for place in places() {
        let mut desk = Desk::new(fresh);
        let entry = middle(&mut desk, &place);
        assert!(desk.store.remove(&place, &entry).unwrap());
        assert!(!desk.store.requeue(&place, &entry, now_s()).unwrap(), "{place:?}");
        assert!(!desk.store.kill(&place, &entry, now_s()).unwrap(), "{place:?}");
        assert_eq!(desk.store.find("b").unwrap(), None);
    }
}

pub(crate) fn an_entry_is_killed_once(fresh: Fresh<'_>) {
    let at = now_s() + 60.0;
    for place in [queue("q"), JobLocation::Scheduled, JobLocation::Retry] {
        let mut desk = Desk::new(fresh);
        let entry = middle(&mut desk, &place);
        assert!(desk.store.kill(&place, &entry, at).unwrap(), "{place:?}");
        assert!(!desk.store.kill(&place, &entry, at).unwrap(), "{place:?}");
        assert_eq!(desk.listed(&place), rest(&place));
        let dead = desk.all(&JobLocation::Dead);
        assert_eq!(dead.len(), 1, "{place:?}");
        assert_eq!(dead[0].payload, entry.payload, "whole");
        assert!((dead[0].score - at).abs() < 0.001, "{place:?}");
    }
}

pub(crate) fn of_equal_jobs_one_goes(fresh: Fresh<'_>) {
    let mut desk = Desk::new(fresh);
    desk.put("q", &["same", "same", "same"]);
    let entry = desk.all(&queue("q")).remove(1);
    assert!(desk.store.remove(&queue("q"), &entry).unwrap());
    assert_eq!(desk.listed(&queue("q")), ["same", "same"]);
}
