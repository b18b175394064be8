//! What jobs behind a limit cost.

use crate::postgres_server::TestPostgres;
use crate::redis_engine::start;
use crate::redis_server::{push, TestRedis};
use chaton_core::engine::Engine as _;
use chaton_jobs::store::{open, StoreOptions};

const JOBS: usize = 1000;

/// Runs jobs behind a limit of one at once; returns the round trips of acknowledgements and claims for each job.
fn round_trips(options: &StoreOptions) -> f64 {
    let limit = r#""chaton":{"limits":[{"key":"api","max":1,"hold":600}]}"#;
    let document =
        |jid| format!(r#"{{"class":"A","args":[],"jid":"j{jid:04}","queue":"q",{limit}}}"#);
    let documents: Vec<String> = (0..JOBS).map(document).collect();
    let jobs: Vec<&[u8]> = documents.iter().map(String::as_bytes).collect();
    push(&mut *open(options).unwrap().store(), "q", &jobs);
    let (engine, feed) = start(options.clone());
    feed.wait_for("all jobs", || feed.ran() == JOBS);
    let each = engine.stats().round_trips as f64 / JOBS as f64;
    engine.stop();
    println!("{each} round trips a job");
    each
}

// One call claims a job and writes the end of the last one, one asks the limiter. All jobs go into the line first, many at
// once.

#[test]
fn a_job_behind_a_limit_costs_two_calls_of_scripts() {
    let server = TestRedis::plain();
    assert!(round_trips(&server.options()) < 1.1);
    let each = server.script_calls() as f64 / JOBS as f64;
    println!("{each} calls a job");
    assert!(each < 2.2, "{each} calls a job");
}

#[test]
fn a_job_behind_a_limit_costs_two_transactions() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", dir.path().join("jobs.db").display());
    assert!(round_trips(&StoreOptions::for_tests(url)) < 1.1);
}

#[test]
fn a_job_behind_a_limit_costs_two_calls() {
    let server = TestPostgres::shared();
    let url = server.url(&server.database());
    assert!(round_trips(&StoreOptions::for_tests(url)) < 1.1);
}
