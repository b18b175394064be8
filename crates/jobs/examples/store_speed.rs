//! Measures the speed of a store: `cargo run --release -p chaton-jobs --example
//! store_speed [URL] [JOBS]`. Pushes jobs, then claims and acknowledges them in
//! calls of several sizes, and prints rates.

use std::sync::Arc;
use std::time::Instant;

use chaton_jobs::store::{open, Ack, ClaimRequest, NewJob, Outcome, Store, StoreOptions};

/// Jobs in one push.
const BULK: usize = 1000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let folder = std::env::temp_dir().join(format!("store-speed-{}", std::process::id()));
    let url = words.next().unwrap_or_else(|| format!("sqlite://{}/jobs.db", folder.display()));
    let jobs: usize = words.next().map_or(Ok(100_000), |word| word.parse())?;
    let factory = open(&StoreOptions::new(url))?;
    println!("{}", factory.address());
    let mut store = factory.store();
    for batch in [1000, 100, 10, 1] {
        let count = (jobs / (1000 / batch).min(100)).max(batch);
        push(&mut *store, count)?;
        drain(&mut *store, count, batch)?;
    }
    single(&mut *store)?;
    let _ = std::fs::remove_dir_all(folder);
    Ok(())
}

fn document(number: usize) -> Vec<u8> {
    format!(
        r#"{{"retry":true,"queue":"default","class":"NoOpJob","args":[{number}],"jid":"{number:024x}","created_at":1700000000.123456,"enqueued_at":1700000000.123456}}"#
    )
    .into_bytes()
}

fn new(payload: &[u8]) -> NewJob<'_> {
    NewJob { queue: "default", payload, at: None, lock: None, bid: None }
}

fn push(store: &mut dyn Store, count: usize) -> Result<(), Box<dyn std::error::Error>> {
    let documents: Vec<Vec<u8>> = (0..count).map(document).collect();
    let began = Instant::now();
    for some in documents.chunks(BULK) {
        store.push(&some.iter().map(|payload| new(payload)).collect::<Vec<_>>())?;
    }
    print_rate(&format!("push by {BULK}"), count, began);
    Ok(())
}

fn drain(
    store: &mut dyn Store,
    count: usize,
    batch: usize,
) -> Result<(), Box<dyn std::error::Error>> {
    let queues: [Arc<str>; 1] = ["default".into()];
    let (mut ticket, mut seen, mut calls) = (1, 0, 0);
    let mut acks: Vec<Ack> = Vec::new();
    let began = Instant::now();
    while seen < count || !acks.is_empty() {
        let request = ClaimRequest { queues: &queues, count: batch, first_ticket: ticket };
        let answer = store.ack_and_claim("speed:1:x", &acks, Some(&request))?;
        ticket += batch as u64;
        calls += 1;
        seen += answer.jobs.len();
        let done = |ticket, queue| Ack { ticket, queue, outcome: Outcome::Ack, effects: None };
        acks = answer.jobs.into_iter().map(|job| done(job.ticket, job.queue)).collect();
    }
    print_rate(&format!("claim and acknowledge by {batch} ({calls} calls)"), count, began);
    Ok(())
}

fn single(store: &mut dyn Store) -> Result<(), Box<dyn std::error::Error>> {
    let documents: Vec<Vec<u8>> = (0..BULK).map(document).collect();
    let began = Instant::now();
    for payload in &documents {
        store.push(&[new(payload)])?;
    }
    print_rate("push one by one", BULK, began);
    Ok(())
}

fn print_rate(what: &str, count: usize, began: Instant) {
    let took_s = began.elapsed().as_secs_f64();
    println!("{what:40} {count:8} in {took_s:7.3} s {:10.0}/s", count as f64 / took_s);
}
