//! Measures the speed and the CPU time of the Redis store: `cargo run --release
//! --example redis_speed -p chaton-jobs -- [ADDRESS] [JOBS]`. The database
//! that the address names is filled and emptied.

use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use chaton_jobs::store::{
    open, Ack, ClaimRequest, ClaimedJob, JobLocation, NewJob, Outcome, Result, Store, StoreError,
    StoreFactory, StoreOptions,
};

/// Jobs in one push or claim.
const BATCH: usize = 1000;
/// Pushes that a watch waits for.
const LATENCIES: usize = 500;
const QUEUE: &str = "speed";

fn main() -> std::result::Result<(), StoreError> {
    let mut args = std::env::args().skip(1);
    let url = args.next().unwrap_or_else(|| "redis://127.0.0.1:6379/15".into());
    let jobs = args.next().and_then(|n| n.parse().ok()).unwrap_or(100_000usize);
    let factory = open(&StoreOptions::new(url))?;
    println!("{}: {jobs} jobs", factory.address());
    let mut store = factory.store();
    store.clear(&JobLocation::Queue(QUEUE.into()), 0)?;
    for owner in ["speed:1:abc", "speed:2:abc"] {
        let left = store.in_flight(owner)?;
        store.ack_and_claim(owner, &left.iter().map(done).collect::<Vec<_>>(), None)?;
    }
    for round in 1..=3 {
        println!("round {round}");
        push(&mut *store, jobs, BATCH)?;
        claims(&mut *store, jobs, BATCH)?;
        push(&mut *store, jobs / 20, 1)?;
        claims(&mut *store, jobs / 20, 1)?;
        push(&mut *store, jobs, BATCH)?;
        claims(&mut *store, jobs, 100)?;
        latency(&*factory, &mut *store)?;
    }
    Ok(())
}

/// Time from the start of a push to the end of a wait in another thread.
fn latency(factory: &dyn StoreFactory, store: &mut dyn Store) -> Result<()> {
    let queues: [Arc<str>; 1] = [QUEUE.into()];
    let mut watch = factory.watch();
    let (armed, told) = (Barrier::new(2), Barrier::new(2));
    let mut delays = std::thread::scope(|scope| {
        let (armed, told) = (&armed, &told);
        let watcher = scope.spawn(move || {
            let mut ends = Vec::with_capacity(LATENCIES);
            for _ in 0..LATENCIES {
                while watch.arm(&[QUEUE.into()])?.ready {}
                armed.wait();
                watch.wait(Duration::from_secs(5))?;
                ends.push(Instant::now());
                told.wait();
            }
            Ok::<_, StoreError>(ends)
        });
        let mut begins = Vec::with_capacity(LATENCIES);
        for ticket in 0..LATENCIES as u64 {
            armed.wait();
            // The watch needs a moment from the barrier to its wait.
            std::thread::sleep(Duration::from_millis(1));
            begins.push(Instant::now());
            store.push(&[NewJob {
                queue: QUEUE,
                payload: b"{}",
                at: None,
                lock: None,
                bid: None,
            }])?;
            told.wait();
            let request = ClaimRequest { queues: &queues, count: 1, first_ticket: ticket };
            store.claim("speed:2:abc", &request)?;
        }
        let ends = watcher.join().unwrap_or_else(|e| std::panic::resume_unwind(e))?;
        Ok::<_, StoreError>(ends.iter().zip(&begins).map(|(e, b)| *e - *b).collect::<Vec<_>>())
    })?;
    delays.sort_unstable();
    let at = |part: f64| delays[((delays.len() - 1) as f64 * part) as usize].as_micros();
    println!("  push to watcher: median {} µs, p99 {} µs, worst {} µs", at(0.5), at(0.99), at(1.0));
    Ok(())
}

fn push(store: &mut dyn Store, jobs: usize, batch: usize) -> Result<()> {
    let documents: Vec<Vec<u8>> = (0..jobs).map(document).collect();
    let jobs: Vec<NewJob<'_>> = documents
        .iter()
        .map(|payload| NewJob { queue: QUEUE, payload, at: None, lock: None, bid: None })
        .collect();
    measure(&format!("push by {batch}"), jobs.len(), || {
        for some in jobs.chunks(batch) {
            store.push(some)?;
        }
        Ok(())
    })
}

fn claims(store: &mut dyn Store, jobs: usize, batch: usize) -> Result<()> {
    let queues: [Arc<str>; 1] = [QUEUE.into()];
    let (mut acks, mut ticket) = (Vec::new(), 1);
    measure(&format!("claim by {batch}"), jobs, || {
        let mut got = 0;
        loop {
            let request = ClaimRequest { queues: &queues, count: batch, first_ticket: ticket };
            let reply = store.ack_and_claim("speed:1:abc", &acks, Some(&request))?;
            acks.clear();
            got += reply.jobs.len();
            if reply.jobs.is_empty() {
                assert_eq!(got, jobs);
                return Ok(());
            }
            ticket += reply.jobs.len() as u64;
            acks.extend(reply.jobs.iter().map(done));
        }
    })
}

fn done(job: &ClaimedJob) -> Ack {
    Ack { ticket: job.ticket, queue: job.queue.clone(), outcome: Outcome::Ack, effects: None }
}

fn document(n: usize) -> Vec<u8> {
    format!(
        "{{\"retry\":true,\"queue\":\"speed\",\"class\":\"NoopJob\",\"args\":[{n}],\
         \"jid\":\"{:016x}{n:08x}\",\"created_at\":1700000000.123,\"enqueued_at\":1700000000.123}}",
        // Spread like random jids: Lua's hash reads only some letters.
        (n as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    )
    .into_bytes()
}

fn measure(what: &str, jobs: usize, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let (began, cpu) = (Instant::now(), cpu_s());
    work()?;
    let (taken, cpu) = (began.elapsed().as_secs_f64(), cpu_s() - cpu);
    println!(
        "  {what:<14} {:>9.0} jobs/s  {:>6.2} µs of our CPU a job",
        jobs as f64 / taken,
        cpu * 1e6 / jobs as f64
    );
    Ok(())
}

/// CPU time of this process, seconds.
fn cpu_s() -> f64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` has room for one rusage.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}
