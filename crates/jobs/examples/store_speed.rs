//! How fast a store is by itself: `store_speed URL [JOBS]`.

use std::sync::Arc;
use std::time::Instant;

use chaton_jobs::store::{self, NewJob, Outcome, Settle, StoreOptions, Want};

fn main() {
    let mut args = std::env::args().skip(1);
    let url = args.next().expect("usage: store_speed URL [JOBS]");
    let jobs: usize = args.next().map_or(100_000, |n| n.parse().expect("JOBS is a number"));
    let kit = store::open(&StoreOptions::new(url)).expect("the store");
    let mut store = kit.store();
    let payloads: Vec<String> = (0..jobs)
        .map(|n| {
            format!(
                r#"{{"retry":true,"queue":"speed","class":"NoopJob","args":[{n}],"jid":"{n:024x}","created_at":1700000000.123,"enqueued_at":1700000000.123}}"#
            )
        })
        .collect();
    let new: Vec<NewJob<'_>> = payloads
        .iter()
        .map(|p| NewJob { queue: "speed", payload: p.as_bytes(), at: None, lock: None, bid: None })
        .collect();
    let began = Instant::now();
    for chunk in new.chunks(1000) {
        store.push(chunk).expect("push");
    }
    println!("push by 1000:   {:>9.0} jobs/s", jobs as f64 / began.elapsed().as_secs_f64());
    for batch in [1000, 100, 10, 1] {
        let limit = (jobs / 4).min(batch * 500);
        turns(&mut *store, batch, limit);
    }
}

fn turns(store: &mut dyn store::Store, batch: usize, jobs: usize) {
    let queues: Vec<Arc<str>> = vec!["speed".into()];
    let mut settles: Vec<Settle> = vec![];
    let (mut ticket, mut done) = (1 + batch as u64 * 1_000_000_000, 0);
    let began = Instant::now();
    while done < jobs {
        let want = Want { queues: &queues, count: batch, first_ticket: ticket };
        ticket += batch as u64;
        let turn = store.turn("speed:1:1", &settles, Some(&want)).expect("turn");
        if turn.jobs.is_empty() {
            break;
        }
        done += turn.jobs.len();
        let settle = |job: store::Claimed| Settle {
            ticket: job.ticket,
            queue: job.queue,
            outcome: Outcome::Done,
            effects: None,
        };
        settles = turn.jobs.into_iter().map(settle).collect();
    }
    store.turn("speed:1:1", &settles, None).expect("turn");
    let rate = done as f64 / began.elapsed().as_secs_f64();
    println!("claim and acknowledge by {batch:>4}: {rate:>9.0} jobs/s");
}
