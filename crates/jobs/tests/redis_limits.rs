//! What jobs behind a limit cost.

#![cfg(feature = "redis")]

mod redis_engine;
mod redis_server;

use chaton_core::engine::Engine as _;
use redis_engine::start;
use redis_server::{push, TestRedis};

const JOBS: usize = 1000;

#[test]
fn a_job_behind_a_limit_costs_two_calls_of_scripts() {
    let server = TestRedis::plain();
    let limit = r#""chaton":{"limits":[{"key":"api","max":1,"hold":600}]}"#;
    let document =
        |jid| format!(r#"{{"class":"A","args":[],"jid":"j{jid:04}","queue":"q",{limit}}}"#);
    let documents: Vec<String> = (0..JOBS).map(document).collect();
    let jobs: Vec<&[u8]> = documents.iter().map(String::as_bytes).collect();
    push(&mut *server.store(), "q", &jobs);
    let calls = server.script_calls();
    let (engine, feed) = start(server.options());
    feed.wait_for("all jobs", || feed.ran() == JOBS);
    // One claims it and writes the end of the last one, one asks the limiter. All go into the line first, many at once.
    let each = (server.script_calls() - calls) as f64 / JOBS as f64;
    println!("{each} calls a job");
    assert!(each < 2.2, "{each} calls a job");
    engine.stop();
}
