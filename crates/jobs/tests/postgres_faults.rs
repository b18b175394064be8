//! What becomes of jobs when PostgreSQL is killed, is away, is full of connections or refuses.

#![cfg(all(feature = "redis", feature = "postgres"))]

mod postgres_server;
mod redis_engine;

use std::collections::HashSet;
use std::time::{Duration, Instant};

use chaton_core::engine::Engine as _;
use chaton_jobs::store::{open, NewJob, StoreErrorKind, StoreOptions};
use postgres_server::TestPostgres;
use redis_engine::{push_one, start, Pusher};

/// Kills of the server in one run, and in that of a night.
const KILLS: [u32; 2] = [3, 50];

fn options(server: &TestPostgres, database: &str) -> StoreOptions {
    StoreOptions::for_tests(server.url(database))
}

#[test]
fn no_job_is_lost_when_the_server_is_killed_under_load() {
    let mut server = TestPostgres::start(&[]);
    let database = server.database();
    let options = options(&server, &database);
    let (engine, feed) = start(options.clone());
    let kills = KILLS[usize::from(std::env::var_os("CHATON_SOAK").is_some())];
    Pusher::during(&options, &feed, |pusher| {
        for _ in 0..kills {
            let before = pusher.stored();
            feed.wait_for("pushes go on", || pusher.stored() > before + 50);
            server.crash();
        }
    });
    println!("{} jobs ran through {kills} kills of the server", feed.ran());
    engine.stop();
}

#[test]
fn an_engine_that_starts_without_a_server_runs_jobs_once_it_is_there() {
    let mut server = TestPostgres::start(&[]);
    let database = server.database();
    let options = options(&server, &database);
    push_one(&mut *open(&options).unwrap().store(), "a", None).unwrap();
    server.stop();
    let (engine, feed) = start(options.clone());
    feed.wait_for("a line about the server", || feed.lines_with("postgres") > 0);
    server.start_again();
    feed.wait_for("the job", || feed.ran() == 1);
    engine.stop();
}

#[test]
fn revoked_rights_are_named_and_come_back() {
    let server = TestPostgres::shared();
    let database = server.database();
    open(&options(server, &database)).unwrap().store().stats().unwrap();
    let sql = |text: &str| server.psql(&database, text).unwrap();
    sql("CREATE ROLE app LOGIN; GRANT USAGE ON SCHEMA chaton TO app");
    sql("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA chaton TO app");
    sql("GRANT USAGE ON ALL SEQUENCES IN SCHEMA chaton TO app");
    let url = server.url(&database).replace("postgres@", "app@");
    let mut store = open(&StoreOptions::for_tests(url)).unwrap().store();
    push_one(&mut *store, "a", None).unwrap();
    assert!(store.advice().unwrap().iter().all(|line| !line.contains("rights")));
    sql("REVOKE INSERT ON chaton.jobs FROM app");
    let error = store
        .push(&[NewJob { queue: "q", payload: b"{}", at: None, lock: None, bid: None }])
        .unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Refused);
    assert!(
        error.message.contains("permission denied") && error.message.contains("chaton check"),
        "{error}"
    );
    let advice = store.advice().unwrap();
    assert!(advice.iter().any(|line| line.contains("INSERT on chaton.jobs")), "{advice:?}");
    sql("GRANT INSERT ON chaton.jobs TO app");
    push_one(&mut *store, "b", None).unwrap();
}

#[test]
fn processes_of_two_releases_use_the_same_tables() {
    let server = TestPostgres::shared();
    let database = server.database();
    let mut one = open(&options(server, &database)).unwrap().store();
    push_one(&mut *one, "a", None).unwrap();
    // As a later release leaves them.
    server
        .psql(
            &database,
            "UPDATE chaton.version SET number=99; ALTER TABLE chaton.jobs ADD COLUMN later int",
        )
        .unwrap();
    let mut again = open(&options(server, &database)).unwrap().store();
    push_one(&mut *again, "b", None).unwrap();
    assert_eq!(again.stats().unwrap().enqueued, 2);
    assert_eq!(server.psql(&database, "SELECT number FROM chaton.version").unwrap(), "99");
}

#[test]
fn many_processes_make_the_tables_at_once() {
    let server = TestPostgres::shared();
    let database = server.database();
    std::thread::scope(|scope| {
        for number in 0..8 {
            let options = options(server, &database);
            scope.spawn(move || {
                push_one(&mut *open(&options).unwrap().store(), &number.to_string(), None).unwrap();
            });
        }
    });
    assert_eq!(server.psql(&database, "SELECT count(*) FROM chaton.jobs").unwrap(), "8");
}

/// How fast an idle engine starts jobs, and how many connections and statements it has meanwhile.
#[test]
fn an_idle_engine_has_two_connections_and_starts_a_job_at_once() {
    let server = TestPostgres::shared();
    let database = server.database();
    let options = options(server, &database);
    let (engine, feed) = start(options.clone());
    let mut store = open(&options).unwrap().store();
    let mut times = Vec::new();
    for number in 0..100 {
        let began = Instant::now();
        push_one(&mut *store, &number.to_string(), None).unwrap();
        while feed.ran() <= number {
            assert!(began.elapsed() < Duration::from_secs(20), "job {number} does not start");
            std::thread::sleep(Duration::from_micros(50));
        }
        times.push(began.elapsed());
    }
    times.sort_unstable();
    println!("push to start: median {:?}, p99 {:?}", times[50], times[98]);
    assert!(times[50] < Duration::from_millis(200), "it does not listen: {times:?}");
    drop(store);
    let own = format!("SELECT count(*) FROM pg_stat_activity WHERE datname='{database}'");
    let began = Instant::now();
    // One listens, one is for all else; those of busy moments are closed after a while.
    while server.psql("postgres", &own).unwrap().parse::<u32>().unwrap() > 2 + 1 {
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", server.psql("postgres", &own));
        std::thread::sleep(Duration::from_millis(100));
    }
    engine.stop();
}

#[test]
fn a_burst_of_jobs_runs_once_each() {
    let server = TestPostgres::shared();
    let options = options(server, &server.database());
    let mut store = open(&options).unwrap().store();
    let documents: Vec<String> = (0..20_000)
        .map(|n| format!(r#"{{"class":"A","args":[],"jid":"{n}","queue":"q"}}"#))
        .collect();
    let jobs: Vec<NewJob<'_>> = documents
        .iter()
        .map(|one| NewJob { queue: "q", payload: one.as_bytes(), at: None, lock: None, bid: None })
        .collect();
    let began = Instant::now();
    jobs.chunks(1000).for_each(|some| drop(store.push(some).unwrap()));
    let pushed = began.elapsed();
    let began = Instant::now();
    let (engine, feed) = start(options.clone());
    feed.wait_for("all jobs", || feed.ran() == documents.len());
    let drained = began.elapsed();
    engine.stop();
    let rate = |time: Duration| documents.len() as f64 / time.as_secs_f64();
    println!("pushed by 1,000: {:.0}/s, drained: {:.0}/s", rate(pushed), rate(drained));
    let ran: HashSet<String> = feed.ran.lock().clone();
    assert_eq!(ran.len(), documents.len());
    assert_eq!(store.stats().unwrap().in_flight, 0);
}
