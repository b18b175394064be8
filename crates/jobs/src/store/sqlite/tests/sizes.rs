//! Sizes of queues are computed from the rows at their ends and from the holes between.

use fastrand::Rng;

use super::temporary;
use crate::outcome::{Ack, Outcome};
use crate::store::payload::priority_of;
use crate::store::*;

/// Steps of the test.
const STEPS: usize = 3000;

fn queue() -> JobLocation {
    JobLocation::Queue("q".into())
}

/// Does one thing of those that add or remove rows.
fn step(store: &mut dyn Store, random: &mut Rng, ticket: &mut u64, number: usize) {
    let priority = [-2, 0, 0, 0, 3][random.usize(..5)];
    let payload = format!(
        r#"{{"class":"A","args":[],"jid":"{number}","queue":"q","chaton":{{"priority":{priority}}}}}"#
    )
    .into_bytes();
    let job = NewJob { queue: "q", payload: &payload, at: None, lock: None, bid: None };
    let entries = store.list(&queue(), 0, 1000).unwrap();
    let entry = (!entries.is_empty()).then(|| entries[random.usize(..entries.len())].clone());
    match random.u8(..9) {
        0 | 1 => drop(store.push(&vec![job; random.usize(1..4)]).unwrap()),
        2 | 3 => {
            let request = ClaimRequest {
                queues: &["q".into()],
                count: random.usize(1..4),
                first_ticket: *ticket,
            };
            let jobs = store.claim("o", &request).unwrap().jobs;
            *ticket += jobs.len() as u64;
            let back = random.bool();
            let outcome = || if back { Outcome::requeue() } else { Outcome::Ack };
            let ack = |job: &ClaimedJob| {
                let (ticket, queue) = (job.ticket, job.queue.clone());
                Ack { ticket, queue, outcome: outcome(), effects: None }
            };
            store.ack("o", &jobs.iter().map(ack).collect::<Vec<_>>()).unwrap();
        }
        4 | 5 => drop(entry.map(|entry| store.remove(&queue(), &entry).unwrap())),
        6 => drop(entry.map(|entry| store.kill(&queue(), &entry, 1.0).unwrap())),
        7 => drop(entry.map(|entry| store.enqueue_entry(&queue(), &entry, 1.0).unwrap())),
        _ => drop(number.is_multiple_of(50).then(|| store.clear(&queue(), 3).unwrap())),
    }
}

#[test]
fn sizes_are_right_after_removals_in_the_middle() {
    let fresh = temporary();
    let mut store = fresh.store();
    let (mut random, mut ticket) = (Rng::with_seed(7), 1);
    let mut longest = 0;
    for number in 0..STEPS {
        step(&mut *store, &mut random, &mut ticket, number);
        let jobs = store.list(&queue(), 0, 1000).unwrap();
        assert!(jobs.is_sorted_by_key(|job| priority_of(&job.payload)), "after step {number}");
        let there = jobs.len() as u64;
        assert_eq!(store.stats().unwrap().enqueued, there, "after step {number}");
        let sizes: Vec<_> = store.queues().unwrap().iter().map(|queue| queue.size).collect();
        assert!(sizes.iter().all(|size| *size == there), "{sizes:?} after step {number}");
        longest = longest.max(there);
    }
    assert!(longest > 5, "the queue was always nearly empty: {longest}");
}
