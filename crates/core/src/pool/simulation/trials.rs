//! Arrivals, lengths and shares of IO that the pool must manage.

use super::*;

fn computing(ms: u64) -> Unit {
    vec![(ms * MS, 0)]
}

#[test]
fn bursts_of_long_waits_all_begin_at_once() {
    for (count, seconds) in [(24, 1), (60, 6), (200, 30), (500, 10)] {
        let mut pool = SimulatedPool::new(512);
        (0..count).for_each(|client| pool.submit(client, vec![(US * 100, seconds * 1_000 * MS)]));
        while pool.begun < count {
            pool.step();
        }
        assert!(pool.now <= 100 * MS, "{count}: {} ms", pool.now / MS);
    }
}

/// Each begins with a short wait, so all of them block at once.
#[test]
fn common_requests_that_arrive_together_get_the_threads_that_they_need() {
    for (cpu, wait, parts) in [(MS, 2 * MS, 3), (180 * US, MS, 1), (230 * US, MS / 2, 10)] {
        for mut pool in [SimulatedPool::new(64), SimulatedPool::with_clocks(64)] {
            let mut unit = vec![(20 * US, wait)];
            unit.resize(parts, (cpu, wait));
            unit.push((cpu, 0));
            pool.serve(100, 500, |_| unit.clone());
            let (threads, unused) = (pool.threads.len(), 500 * MS - pool.used[0]);
            assert!(threads <= 20, "{parts} waits: {threads} threads");
            // Clocks show a block later, and short waits are over before.
            let bound = if pool.clocks.is_some() { 300 * MS } else { 10 * MS };
            assert!(unused <= bound, "{parts} waits: {} ms", unused / MS);
        }
    }
}

#[test]
fn a_short_request_passes_any_number_of_waiting_ones() {
    let mut pool = SimulatedPool::new(512);
    let mut waits = Vec::new();
    for tick in 0..400 {
        pool.submit(2 * tick, vec![(100 * US, 6_000 * MS)]);
        let (began, at) = (pool.begun + pool.state.queue.len(), pool.now);
        pool.submit(2 * tick + 1, computing(1));
        while pool.begun <= began {
            pool.step();
        }
        waits.push(pool.now - at);
        (0..100).for_each(|_| pool.step());
    }
    assert!(*waits.iter().max().unwrap() <= 20 * MS, "{waits:?}");
}

#[test]
fn no_work_waits_while_nothing_can_run() {
    let mut random = fastrand::Rng::with_seed(7);
    for case in 0..60 {
        let (cpu, io) = (random.u64(1..40) * 100 * US, random.u64(0..40) * 100 * US);
        let (clients, parts) = (random.usize(1..120), random.usize(1..6));
        let mut pool = SimulatedPool::new(64);
        pool.serve(clients, 400, |_| (0..parts).map(|_| (cpu, io)).collect());
        let bound = BLOCKED + ARRIVAL + 3 * STEP;
        assert!(pool.lost_max <= bound, "{case}: {} µs", pool.lost_max / US);
        assert!(pool.finished > 0, "{case}");
    }
}

#[test]
fn equal_work_is_never_interrupted_and_the_width_returns_to_one() {
    for ms in [1, 5, 20, 30] {
        for clients in [10, 100] {
            let mut pool = SimulatedPool::new(32);
            pool.serve(clients, 3_000, |_| computing(ms));
            let before = pool.preemptions;
            pool.serve(0, 3_000, |_| computing(ms));
            assert_eq!(pool.preemptions, before, "{ms} ms");
            assert_eq!(pool.state.width, 1, "{ms} ms");
        }
    }
}

#[test]
fn the_width_of_a_burst_does_not_stay() {
    let mut pool = SimulatedPool::new(512);
    (0..60).for_each(|client| pool.submit(client, vec![(100 * US, 1_000 * MS)]));
    while pool.finished < 60 {
        pool.step();
    }
    pool.done.clear();
    assert!(pool.state.width >= 60);
    // The pauses between two reductions have become long while the width was needed.
    pool.serve(10, 6_000, |_| vec![(100 * US, 0)]);
    assert!(pool.state.width <= 2, "{}", pool.state.width);
}

/// Pages that write to a log: now and then such a write takes longer than the time after
/// which a pool counts as starved.
#[test]
fn rare_blocks_do_not_keep_the_pool_wide() {
    let mut random = fastrand::Rng::with_seed(3);
    let mut pool = SimulatedPool::new(5);
    let widths: Vec<usize> = (0..400)
        .map(|_| {
            pool.serve(10, 100, |_| {
                let write = if random.u8(0..40) == 0 { 300 * US } else { 20 * US };
                vec![(1_300 * US, write), (1_300 * US, 20 * US), (5 * MS, 0)]
            });
            pool.state.width
        })
        .collect();
    let mean = widths.iter().sum::<usize>() as f64 / widths.len() as f64;
    assert!(mean <= 1.3, "{mean}: {widths:?}");
}

#[test]
fn short_work_passes_hogs() {
    let mut pool = SimulatedPool::new(32);
    pool.serve(12, 5_000, |client| if client < 2 { computing(300) } else { vec![(100 * US, 0)] });
    assert!(pool.finished > 5_000, "{}", pool.finished);
}

#[test]
fn mixes_reach_the_same_quantum_from_either_side() {
    for share in 1..10 {
        let quanta: Vec<u64> = [US, 200 * MS]
            .map(|past| {
                let mut random = fastrand::Rng::with_seed(share);
                let mut pool = SimulatedPool::new(32);
                pool.state.cpu_times.record(Role::Web, past, 100);
                let mix = |_| computing(if random.u64(0..10) < share { 1 } else { 40 });
                pool.serve(20, 40_000, mix);
                pool.quantum()
            })
            .to_vec();
        assert_eq!(quanta[0], quanta[1], "{share} of 10 are short");
    }
}

/// Requests of `cpu_us` that always wait, beside `jobs` jobs of `job_ms`; returns the share
/// of the jobs in percent.
fn share_of_jobs(mut pool: SimulatedPool, cpu_us: u64, jobs: usize, job_ms: u64) -> f64 {
    let request = move || vec![(cpu_us * US, 0)];
    (0..20).for_each(|client| pool.submit(client, request()));
    (20..20 + jobs).for_each(|client| pool.submit_to(Role::Jobs, client, computing(job_ms)));
    while pool.now < 20_000 * MS {
        pool.step();
        for client in std::mem::take(&mut pool.done) {
            match client {
                0..20 => pool.submit(client, request()),
                _ => pool.submit_to(Role::Jobs, client, computing(job_ms)),
            }
        }
    }
    let [web, jobs, _] = pool.used;
    100.0 * jobs as f64 / (web + jobs) as f64
}

#[test]
fn jobs_get_their_share_beside_requests_that_always_wait() {
    for (cpu_us, jobs, job_ms) in [
        (100, 1, 1),
        (100, 20, 1),
        (100, 20, 20),
        (100, 4, 300),
        (1_000, 4, 300),
        (5_000, 10, 5),
        (5_000, 4, 300),
    ] {
        for pool in [SimulatedPool::new(8), SimulatedPool::with_clocks(8)] {
            let clocks = pool.clocks.is_some();
            let share = share_of_jobs(pool, cpu_us, jobs, job_ms);
            let case = format!("{cpu_us} us, {jobs} jobs of {job_ms} ms, clocks {clocks}");
            // Long jobs that have begun are not held back, so they get a little more.
            assert!((9.0..16.0).contains(&share), "{case}: {share:.1} %");
        }
    }
}

#[test]
fn the_clocks_show_a_block_soon_whatever_arrives() {
    let mut random = fastrand::Rng::with_seed(11);
    let (mut lost, mut observations) = (0, 0);
    for case in 0..60 {
        let (cpu, io) = (random.u64(1..40) * 50 * US, random.u64(0..40) * 100 * US);
        let (clients, parts) = (random.usize(1..120), random.usize(1..6));
        let mut pool = SimulatedPool::with_clocks(64);
        pool.serve(clients, 400, |_| (0..parts).map(|_| (cpu, io)).collect());
        lost += pool.lost_sum;
        observations += pool.observations;
        let bound = 8 * STALL + ARRIVAL + 3 * STEP;
        assert!(pool.lost_max <= bound, "{case}: {} us", pool.lost_max / US);
        assert!(pool.finished > 0, "{case}");
    }
    // Reading twice as often halves the loss and doubles the readings.
    let all = 60 * 400 * MS;
    assert!(lost < all / 6, "{} ms", lost / MS);
    assert!(observations < (all / STALL / 2) as usize, "{observations}");
}

#[test]
fn the_clocks_are_read_rarely_while_work_is_quick() {
    let mut pool = SimulatedPool::with_clocks(64);
    pool.serve(100, 1_000, |_| vec![(25 * US, 0)]);
    assert!(pool.observations < 800, "{}", pool.observations);
}

/// The mean number of jobs that have begun and not ended, of 40 that always wait and wait 5 ms in their midst.
fn jobs_at_once(mut pool: SimulatedPool, mut cpu: impl FnMut() -> u64) -> f64 {
    let mut submit = |pool: &mut SimulatedPool, client| {
        let half = cpu() / 2;
        pool.submit_to(Role::Jobs, client, vec![(half, 5 * MS), (half, 0)]);
    };
    (0..40).for_each(|client| submit(&mut pool, client));
    let (mut sum, mut steps) = (0, 0.0);
    while pool.now < 20_000 * MS {
        pool.step();
        std::mem::take(&mut pool.done).into_iter().for_each(|client| submit(&mut pool, client));
        if pool.now > 5_000 * MS {
            sum += pool.begun - pool.finished;
            steps += 1.0;
        }
    }
    assert!(pool.used[1] > 19_000 * MS, "idle for {} ms", (pool.now - pool.used[1]) / MS);
    sum as f64 / steps
}

/// Documents of which each order of magnitude is as frequent as the others, and a mix of short and long work: each that
/// has begun holds its memory until it ends.
#[test]
fn few_jobs_are_at_work_at_once_though_some_are_long() {
    for clocks in [false, true] {
        let pool = || if clocks { SimulatedPool::with_clocks(25) } else { SimulatedPool::new(25) };
        let mut random = fastrand::Rng::with_seed(7);
        let documents = jobs_at_once(pool(), || (300.0 * 80f64.powf(random.f64())) as u64 * US);
        let mix = jobs_at_once(pool(), || if random.u64(0..10) < 7 { MS } else { 60 * MS });
        assert!(documents <= 12.0 && mix <= 12.0, "clocks {clocks}: {documents:.1}, {mix:.1}");
    }
}

/// Latencies in ns of four clients that each think for so long between two requests of
/// 50 µs, beside four jobs of 300 ms; and the time of the jobs.
fn latencies_beside_jobs(mut pool: SimulatedPool, think: u64) -> (Vec<u64>, u64) {
    let request = || vec![(50 * US, 0)];
    let (mut sent, mut waits, mut thinking) = ([0; 4], Vec::new(), Vec::new());
    (0..4).for_each(|client| pool.submit(client, request()));
    (4..8).for_each(|client| pool.submit_to(Role::Jobs, client, computing(300)));
    while pool.now < 5_000 * MS {
        pool.step();
        for client in std::mem::take(&mut pool.done) {
            if client >= 4 {
                pool.submit_to(Role::Jobs, client, computing(300));
                continue;
            }
            waits.push(pool.now - sent[client]);
            sent[client] = pool.now + think;
            thinking.push(client);
        }
        let (ready, rest) = thinking.into_iter().partition(|client| sent[*client] <= pool.now);
        thinking = rest;
        let ready: Vec<usize> = ready;
        ready.into_iter().for_each(|client| pool.submit(client, request()));
    }
    waits.sort_unstable();
    (waits, pool.used[1])
}

#[test]
fn requests_pass_jobs_that_take_turns() {
    for think in [500 * US, 2 * MS, 20 * MS] {
        for pool in [SimulatedPool::new(8), SimulatedPool::with_clocks(8)] {
            let clocks = pool.clocks.is_some();
            let (waits, jobs) = latencies_beside_jobs(pool, think);
            let p99 = waits[waits.len() * 99 / 100];
            let bound = if clocks { 40 } else { 12 };
            assert!(p99 <= bound * MS, "{think} ns, clocks {clocks}: {} us", p99 / US);
            assert!(jobs > 4_500 * MS, "{think} ns, clocks {clocks}: {} ms", jobs / MS);
        }
    }
}
