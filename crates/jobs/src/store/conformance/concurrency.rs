//! Concurrent users, each with its own connection.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use super::batches::{calls, counts, open, update};
use super::harness::*;
use crate::store::*;

/// Jobs of the large claim.
const MANY: usize = 10_000;
/// Threads that claim.
const THREADS: usize = 8;

fn put_many(harness: &mut StoreHarness, queue: &str, count: usize) {
    let payloads: Vec<Vec<u8>> = (0..count).map(|n| doc(queue, &format!("j{n}"))).collect();
    let jobs: Vec<NewJob<'_>> = payloads.iter().map(|payload| job(queue, payload)).collect();
    for chunk in jobs.chunks(1000) {
        harness.store.push(chunk).unwrap();
    }
}

/// Claims in batches, each call acknowledging the batch before, until nothing
/// comes and `over` is true. Returns the jids and the size of each claim.
fn claim_until(
    factory: &Arc<dyn StoreFactory>,
    owner: &str,
    count: usize,
    over: impl Fn() -> bool,
) -> (Vec<String>, Vec<usize>) {
    let mut store = factory.store();
    let queues = names(&["q", "r"]);
    let (mut got, mut sizes, mut ends) = (vec![], vec![], vec![]);
    let mut first_ticket = 1;
    loop {
        // Before the claim, which must see all that was pushed until then.
        let last = over();
        let want = ClaimRequest { queues: &queues, count, first_ticket };
        let turn = store.ack_and_claim(owner, &ends, Some(&want)).unwrap();
        assert_eq!(turn.fenced, 0);
        first_ticket += turn.jobs.len() as u64;
        ends = turn.jobs.iter().map(|job| ack(job.ticket, &job.queue, Outcome::Ack)).collect();
        got.extend(jids(&turn.jobs));
        if !turn.jobs.is_empty() {
            sizes.push(turn.jobs.len());
        } else if last {
            return (got, sizes);
        } else {
            std::thread::yield_now();
        }
    }
}

fn assert_each_once(all: &[String], expected: usize) {
    let different: HashSet<&String> = all.iter().collect();
    assert_eq!((different.len(), all.len()), (expected, expected));
}

pub(crate) fn eight_claim_each_job_once(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    put_many(&mut harness, "q", MANY);
    let factory = harness.factory.clone();
    let got = in_threads(THREADS, |n| claim_until(&factory, &format!("owner{n}"), 50, || true).0);
    assert_each_once(&got.concat(), MANY);
    let left = harness.store.stats().unwrap();
    assert_eq!((left.enqueued, left.in_flight), (0, 0));
}

pub(crate) fn a_push_is_atomic(fresh: OpenFresh<'_>) {
    const PUSHES: usize = 20;
    const EACH: usize = 25;
    let harness = StoreHarness::new(fresh);
    let factory = harness.factory.clone();
    let pushing = AtomicUsize::new(2);
    let results = in_threads(3, |n| {
        if n == 2 {
            return claim_until(&factory, "me", 1000, || pushing.load(Ordering::SeqCst) == 0);
        }
        let mut store = factory.store();
        for push in 0..PUSHES {
            let payloads: Vec<Vec<u8>> =
                (0..EACH).map(|index| doc("q", &format!("{n}-{push}-{index}"))).collect();
            // The queue that is claimed last is filled first.
            let place = |index: usize| if index.is_multiple_of(3) { "r" } else { "q" };
            let jobs: Vec<NewJob<'_>> =
                payloads.iter().enumerate().map(|(index, doc)| job(place(index), doc)).collect();
            store.push(&jobs).unwrap();
        }
        pushing.fetch_sub(1, Ordering::SeqCst);
        (vec![], vec![])
    });
    let (got, sizes) = &results[2];
    assert_each_once(got, 2 * PUSHES * EACH);
    assert!(sizes.iter().all(|size| size % EACH == 0), "a part of a push: {sizes:?}");
}

pub(crate) fn pushers_and_claimers_at_once(fresh: OpenFresh<'_>) {
    const EACH: usize = 200;
    let mut harness = StoreHarness::new(fresh);
    let factory = harness.factory.clone();
    let pushing = AtomicUsize::new(4);
    let got = in_threads(8, |n| {
        if n >= 4 {
            let over = || pushing.load(Ordering::SeqCst) == 0;
            return claim_until(&factory, &format!("owner{n}"), 7, over).0;
        }
        let mut store = factory.store();
        for index in 0..EACH {
            let queue = if index % 2 == 0 { "q" } else { "r" };
            let payload = doc(queue, &format!("{n}-{index}"));
            store.push(&[job(queue, &payload)]).unwrap();
        }
        pushing.fetch_sub(1, Ordering::SeqCst);
        vec![]
    });
    assert_each_once(&got.concat(), 4 * EACH);
    assert_eq!(harness.store.stats().unwrap().in_flight, 0);
}

pub(crate) fn concurrent_recoveries_requeue_each_job_once(fresh: OpenFresh<'_>) {
    const JOBS: usize = 250;
    let mut harness = StoreHarness::new(fresh);
    put_many(&mut harness, "q", JOBS);
    assert_eq!(harness.claim("dead", &["q"], JOBS, 1).jobs.len(), JOBS);
    let factory = harness.factory.clone();
    let fenced = in_threads(4, |_| {
        let mut store = factory.store();
        let jobs = store.in_flight("dead").unwrap();
        let ends: Vec<Ack> = jobs.iter().map(|job| ack(job.ticket, &job.queue, back())).collect();
        let mut fenced = 0;
        for chunk in ends.chunks(20) {
            fenced += store.ack("dead", chunk).unwrap();
        }
        ends.len() - fenced
    });
    assert_eq!(fenced.iter().sum::<usize>(), JOBS, "settled by one each");
    assert_each_once(&harness.listed(&queue("q")), JOBS);
    assert!(harness.store.forget("dead").unwrap());
}

pub(crate) fn due_jobs_are_moved_once(fresh: OpenFresh<'_>) {
    const JOBS: usize = 600;
    let mut harness = StoreHarness::new(fresh);
    let now = now_s();
    let payloads: Vec<Vec<u8>> = (0..JOBS).map(|n| doc("q", &format!("j{n}"))).collect();
    let due = |payload| NewJob { at: Some(now - 1.0), ..job("q", payload) };
    let jobs: Vec<NewJob<'_>> = payloads.iter().map(|payload| due(payload)).collect();
    harness.store.push(&jobs).unwrap();
    let factory = harness.factory.clone();
    let moved = in_threads(4, |n| {
        let mut store = factory.store();
        let owner = format!("owner{n}");
        let (mut moved, mut claimed) = (0, vec![]);
        while store.stats().unwrap().scheduled > 0 {
            if n % 2 == 0 {
                moved += store.move_due(now, 17).unwrap().moved;
            } else {
                let first = 1 + claimed.len() as u64;
                claimed.extend(store.claim_due(&owner, first, now, 17).unwrap().0);
            }
        }
        assert_eq!(store.in_flight(&owner).unwrap(), claimed);
        (moved, jids(&claimed))
    });
    let mut all = harness.listed(&queue("q"));
    assert_eq!(moved.iter().map(|one| one.0).sum::<usize>(), all.len());
    moved.into_iter().for_each(|one| all.extend(one.1));
    assert_each_once(&all, JOBS);
}

pub(crate) fn a_tick_is_pushed_by_one(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    let factory = harness.factory.clone();
    for tick in 0..20 {
        let key = format!("cron:{tick}");
        let pushed = in_threads(4, |n| {
            let payload = doc("q", &format!("{tick}-{n}"));
            factory.store().push_once(&key, TIMEOUT, &job("q", &payload)).unwrap()
        });
        assert_eq!(pushed.into_iter().filter(|pushed| *pushed).count(), 1);
    }
    assert_eq!(harness.all(&queue("q")).len(), 20);
}

pub(crate) fn a_lock_has_one_holder(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    let factory = harness.factory.clone();
    for round in 0..20 {
        let key = format!("k{round}");
        let answers = in_threads(4, |n| {
            let jid = format!("{round}-{n}");
            let payload = doc("q", &jid);
            let lock = NewLock { key: &key, jid: &jid, ttl: TIMEOUT };
            factory
                .store()
                .push(&[NewJob { lock: Some(lock), ..job("q", &payload) }])
                .unwrap()
                .remove(0)
        });
        let winner = jid_of(&harness.all(&queue("q"))[round].payload);
        let stored = answers.iter().filter(|answer| **answer == PushResult::Stored).count();
        let held = answers.iter().filter(|answer| **answer == PushResult::Locked(winner.clone()));
        assert_eq!((stored, held.count()), (1, 3), "{answers:?}");
    }
}

pub(crate) fn a_batch_ends_once(fresh: OpenFresh<'_>) {
    const EACH: usize = 50;
    let mut harness = StoreHarness::new(fresh);
    open(&mut harness, "b", None);
    let factory = harness.factory.clone();
    in_threads(4, |n| {
        let mut store = factory.store();
        for index in 0..EACH {
            let jid = format!("{n}-{index}");
            let payload = doc("q", &jid);
            let new = NewJob { bid: Some("b"), ..job("q", &payload) };
            store.push(&[new]).unwrap();
        }
    });
    harness.store.batch_close("b").unwrap();
    assert_eq!(harness.claim("me", &["q"], 1000, 1).jobs.len(), 4 * EACH);
    let jobs = harness.store.in_flight("me").unwrap();
    let share = |n: usize| jobs.iter().skip(n).step_by(4);
    in_threads(4, |n| {
        let mut store = factory.store();
        for one in share(n) {
            let end = update(one.ticket, "b", &jid_of(&one.payload), BatchEvent::Done);
            assert_eq!(store.ack("me", &[end]).unwrap(), 0);
        }
    });
    let total = 4 * EACH as u64;
    assert_eq!(counts(&mut harness, "b"), (total, 0, 0, true, true, false));
    assert_eq!(calls(&mut harness), ["b complete", "b success"]);
}

pub(crate) fn limits_hold_under_concurrency(fresh: OpenFresh<'_>) {
    let harness = StoreHarness::new(fresh);
    let now = now_s();
    let factory = harness.factory.clone();
    let limits = [
        Limit { key: "w".into(), rule: LimitRule::Window { max: 30, per_s: 600.0 } },
        Limit { key: "c".into(), rule: LimitRule::Concurrent { max: 20, hold_s: 600.0 } },
        Limit { key: "b".into(), rule: LimitRule::Bucket { max: 25, per_s: 600.0 } },
    ];
    let granted = in_threads(4, |n| {
        let mut store = factory.store();
        let owner = format!("owner{n}");
        let mut ask = |ticket| {
            let asks = [request(ticket, &limits)];
            store.acquire(&owner, &asks, now).unwrap()[0] == Grant::Now
        };
        (0..20).filter(|ticket| ask(*ticket)).count()
    });
    assert_eq!(granted.iter().sum::<usize>(), 20);
}
