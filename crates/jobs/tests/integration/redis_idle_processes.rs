//! Many idle processes: a job that is pushed costs few claims, and due jobs are moved by one process.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::redis_server::{job, push, TestRedis};
use chaton_core::engine::{Engine as _, Feed};
use chaton_jobs::engine::{Config, Engine, Job};
use chaton_jobs::outcome::Outcome;
use chaton_jobs::store::{open, NewJob, StoreOptions};
use parking_lot::Mutex;

/// Longest wait for a condition.
const WAIT: Duration = Duration::from_secs(120);
const PROCESSES: usize = 200;
const PUSHES: usize = 200;

/// Runs each job at once.
#[derive(Default)]
struct InstantFeed {
    ran: Mutex<usize>,
}

impl Feed<Job> for InstantFeed {
    fn submit(&self, job: Arc<Job>) -> Result<(), Arc<Job>> {
        job.start(0);
        job.finish(Outcome::Ack);
        *self.ran.lock() += 1;
        Ok(())
    }
    fn idle_threads(&self) -> usize {
        4
    }
}

fn config(store: StoreOptions) -> Config {
    Config {
        // None falls into the measured time.
        heartbeat: Duration::from_secs(300),
        // Longer than a busy machine delays a claim.
        claim_turn: Duration::from_secs(5),
        catch_up: Duration::ZERO,
        ..crate::redis_engine::config(store)
    }
}

/// 600 connections are more files than some systems allow at first.
fn raise_file_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls get a valid pointer.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        limit.rlim_cur = limit.rlim_max.min(8192);
        libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
    }
}

fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < WAIT, "{what}: waited too long");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_push_costs_at_most_two_claims_of_200_idle_processes() {
    raise_file_limit();
    let server = TestRedis::plain();
    let mut options = server.options();
    options.lease = Duration::from_secs(1200);
    options.answer_timeout = Duration::from_secs(30);
    let factory = open(&options).unwrap();
    let feed = Arc::new(InstantFeed::default());
    let start = |_| Engine::start(config(options.clone()), &factory, feed.clone()).unwrap();
    let engines: Vec<Engine> = (0..PROCESSES).map(start).collect();
    let all = |condition: &dyn Fn(&Engine) -> bool| engines.iter().all(condition);
    wait_for("the first claims", || all(&|engine| engine.stats().empty_claims >= 1));
    // A second one tells each how many they are.
    engines.iter().for_each(Engine::resume);
    wait_for("the second claims", || {
        all(&|engine| engine.stats().heartbeats >= 2 && engine.stats().empty_claims >= 2)
    });
    let calls = server.script_calls();
    let mut store = factory.store();
    for pushed in 1..=PUSHES {
        push(
            &mut *store,
            "q",
            &[format!("{{\"class\":\"A\",\"args\":[],\"jid\":\"{pushed}\",\"queue\":\"q\"}}")
                .as_bytes()],
        );
        wait_for("the job", || *feed.ran.lock() == pushed);
    }
    let claims = server.script_calls() - calls;
    println!("{claims} claims for {PUSHES} jobs");
    assert!(claims <= 2 * PUSHES, "{claims} claims for {PUSHES} jobs");
    engines.iter().for_each(|engine| engine.stop());
}

#[test]
fn due_jobs_are_read_by_one_process_at_a_time() {
    let server = TestRedis::plain();
    let mut store = server.store();
    let due = NewJob { at: Some(5.0), ..job("q", br#"{"queue":"q"}"#) };
    store.push(&[due]).unwrap();
    server.cli(&["SET", "chaton:mover", "1"]);
    let refused = store.move_due(10.0, 100).unwrap();
    assert_eq!((refused.moved, refused.next_at), (0, Some(11.0)), "another process moves them");
    assert_eq!(store.claim_due("me", 1, 10.0, 100).unwrap().0, []);
    server.cli(&["DEL", "chaton:mover"]);
    assert_eq!(store.move_due(10.0, 100).unwrap().moved, 1);
    assert_eq!(server.cli(&["EXISTS", "chaton:mover"]), "0");
}
