//! Engines on a server that lost its last writes (it starts again with an older file), or that has other
//! users.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::redis_server::{push, TestRedis};
use chaton_core::engine::{Engine as _, Feed};
use chaton_jobs::cron::{Cron, CronRecord};
use chaton_jobs::engine::{Config, Engine, Job};
use chaton_jobs::outcome::Outcome;
use chaton_jobs::store::{open, ClaimedJob, JobLocation, NewJob, Store, StoreOptions};
use parking_lot::Mutex;

/// Longest wait for a condition.
const WAIT: Duration = Duration::from_secs(60);
/// A retry is due after the test.
const LATER: f64 = 4e9;

/// Starts each job at once; the test ends it.
#[derive(Default)]
struct OpenJobs {
    running: Mutex<Vec<Arc<Job>>>,
    begun: Mutex<Vec<String>>,
    lines: Mutex<Vec<String>>,
}

impl OpenJobs {
    fn end(&self, jid: &str, outcome: impl FnOnce(&Job) -> Outcome) {
        let mut running = self.running.lock();
        let at = running.iter().position(|job| job.document().jid() == jid).unwrap();
        let job = running.remove(at);
        assert!(job.finish(outcome(&job)));
    }

    fn begun(&self, jid: &str) -> usize {
        self.begun.lock().iter().filter(|begun| *begun == jid).count()
    }
}

impl Feed<Job> for OpenJobs {
    fn submit(&self, job: Arc<Job>) -> Result<(), Arc<Job>> {
        job.start(0);
        self.begun.lock().push(job.document().jid().to_string());
        self.running.lock().push(job);
        Ok(())
    }
    fn idle_threads(&self) -> usize {
        4
    }
    fn warn(&self, line: &str) {
        self.lines.lock().push(line.to_string());
    }
}

fn start(store: StoreOptions) -> (Engine, Arc<OpenJobs>) {
    start_with(store, vec![])
}

fn start_with(store: StoreOptions, crons: Vec<Cron>) -> (Engine, Arc<OpenJobs>) {
    let config = Config {
        heartbeat: Duration::from_millis(500),
        retry_max: Duration::from_millis(500),
        crons,
        ..crate::redis_engine::config(store)
    };
    let feed = Arc::new(OpenJobs::default());
    let factory = open(&config.store).unwrap();
    (Engine::start(config, &factory, feed.clone()).unwrap(), feed)
}

fn wait_for(feed: &OpenJobs, what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        let lines = feed.lines.lock();
        assert!(began.elapsed() < WAIT, "{what}: waited too long; {lines:#?}");
        drop(lines);
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn add(store: &mut dyn Store, jid: &str) {
    let payload = format!(r#"{{"class":"A","args":[],"jid":"{jid}","queue":"q"}}"#);
    push(store, "q", &[payload.as_bytes()]);
}

/// The jids in the in-flight set of an owner, sorted; empty while the server is away.
fn in_flight(store: &mut dyn Store, owner: &str) -> Vec<String> {
    let jid = |payload: &[u8]| {
        let text = String::from_utf8_lossy(payload).into_owned();
        text.split("\"jid\":\"").nth(1).unwrap().split('"').next().unwrap().to_string()
    };
    let jobs = store.in_flight(owner).unwrap_or_default();
    let mut jids: Vec<String> = jobs.iter().map(|job| jid(&job.payload)).collect();
    jids.sort();
    jids
}

fn retry(job: &Job) -> Outcome {
    Outcome::Retry { at: LATER, payload: job.document().payload().to_vec() }
}

#[test]
fn after_an_older_file_no_ended_job_stays_in_flight_and_no_retry_is_lost() {
    let mut server = TestRedis::plain();
    let mut store = server.store();
    let (engine, feed) = start(server.options());
    let owner = engine.identity().to_string();
    for jid in ["acknowledged", "retried", "running"] {
        add(&mut *store, jid);
    }
    wait_for(&feed, "three jobs", || feed.running.lock().len() == 3);
    assert_eq!(server.cli(&["SAVE"]), "OK");
    feed.end("acknowledged", |_| Outcome::Ack);
    feed.end("retried", retry);
    wait_for(&feed, "their outcomes", || in_flight(&mut *store, &owner) == ["running"]);
    add(&mut *store, "newer");
    wait_for(&feed, "the newer job", || feed.begun("newer") == 1);
    server.kill();
    server.restart();
    // Its retry is lost, so it runs again; the newer job's push is lost, but it runs here.
    let expected = ["newer", "retried", "running"];
    wait_for(&feed, "the comparison", || in_flight(&mut *store, &owner) == expected);
    wait_for(&feed, "the second run", || feed.begun("retried") == 2);
    feed.end("newer", retry);
    feed.end("retried", |_| Outcome::Ack);
    feed.end("running", |_| Outcome::Ack);
    wait_for(&feed, "all outcomes", || in_flight(&mut *store, &owner).is_empty());
    assert_eq!(store.list(&JobLocation::Retry, 0, 9).unwrap().len(), 1, "the retry of the newer");
    engine.stop();
    let (next, after) = start(server.options());
    add(&mut *store, "last");
    wait_for(&after, "the last job", || after.begun("last") == 1);
    assert_eq!(*after.begun.lock(), ["last"]);
    assert_eq!(feed.begun("acknowledged") + feed.begun("running"), 2);
    assert_eq!(store.stats().unwrap().in_flight, 1);
    after.end("last", |_| Outcome::Ack);
    next.stop();
}

#[test]
fn a_stop_right_after_an_older_file_leaves_no_ended_job() {
    let mut server = TestRedis::plain();
    let mut store = server.store();
    let (engine, feed) = start(server.options());
    add(&mut *store, "a");
    wait_for(&feed, "the job", || feed.running.lock().len() == 1);
    assert_eq!(server.cli(&["SAVE"]), "OK");
    feed.end("a", |_| Outcome::Ack);
    wait_for(&feed, "its outcome", || in_flight(&mut *store, engine.identity()).is_empty());
    server.kill();
    server.restart();
    engine.stop();
    let stats = store.stats().unwrap();
    assert_eq!((stats.in_flight, stats.enqueued), (0, 0));
}

#[test]
fn a_cron_tick_that_was_missed_runs_once_after_boot() {
    let server = TestRedis::plain();
    let mut store = server.store();
    let minutes = chaton_core::clock::wall_s() as u64 / 60;
    let (minute, hour) = (minutes % 60, minutes / 60 % 24);
    let head = r#"{"class":"A","args":[],"queue":"q""#;
    let schedule = format!("{minute} {hour} * * *");
    let cron = || vec![Cron::new("daily", &schedule, "UTC", "q", head).unwrap()];
    let (new, feed) = start_with(server.options(), cron());
    wait_for(&feed, "the entry", || !store.load("chaton:cron:").unwrap().is_empty());
    new.stop();
    assert_eq!(feed.begun.lock().len(), 0, "a new entry begins now");
    let record = serde_json::to_vec(&CronRecord::new(&cron()[0], 0.0, 0)).unwrap();
    store.save("chaton:cron:", &[("daily", &record)], WAIT).unwrap();
    let (first, feed) = start_with(server.options(), cron());
    wait_for(&feed, "the missed tick", || feed.begun.lock().len() == 1);
    first.stop();
    assert_eq!(feed.lines.lock().iter().filter(|line| line.contains("no process ran")).count(), 1);
    assert_eq!(store.clear(&JobLocation::Queue("q".into()), 0).unwrap(), 1);
    let (second, feed) = start_with(server.options(), cron());
    add(&mut *store, "last");
    wait_for(&feed, "a later job", || feed.begun("last") == 1);
    second.stop();
    assert_eq!(feed.begun.lock().len(), 1);
}

#[test]
fn ticks_of_a_clock_that_was_ahead_are_forgotten() {
    let server = TestRedis::plain();
    let mut store = server.store();
    let head = r#"{"class":"A","args":[],"queue":"q""#;
    let cron = Cron::new("tick", "* * * * * *", "UTC", "q", head).unwrap();
    let (record, now_s) = (CronRecord::new(&cron, 0.0, 0), chaton_core::clock::wall_s());
    let hour = Duration::from_secs(3600);
    for ahead in 0..3600 {
        let key = record.tick_key("", "tick", now_s + f64::from(ahead));
        let job = NewJob { queue: "ahead", payload: b"{}", at: None, lock: None, bid: None };
        assert!(store.push_once(&key, hour, &job).unwrap());
    }
    let (record, last) = (serde_json::to_vec(&record).unwrap(), format!("{:.0}", now_s + 3599.0));
    let fields: [(&str, &[u8]); 2] = [("tick", &record), ("tick last", last.as_bytes())];
    store.save("chaton:cron:", &fields, hour).unwrap();
    let (engine, feed) = start_with(server.options(), vec![cron]);
    wait_for(&feed, "two ticks", || feed.begun.lock().len() >= 2);
    engine.stop();
    let lines = feed.lines.lock();
    assert_eq!(lines.iter().filter(|line| line.contains("the clock was ahead")).count(), 1);
}

#[test]
fn a_sidekiq_process_on_the_same_queues_is_warned_of_once() {
    let server = TestRedis::plain();
    let info = r#"{"identity":"host:1:abc","queues":["other","q"]}"#;
    server.cli(&["SADD", "processes", "host:1:abc", "host:2:gone"]);
    server.cli(&["HSET", "host:1:abc", "info", info]);
    let mut options = server.options();
    options.lease = Duration::from_secs(2);
    let (engine, feed) = start(options);
    let warnings = || feed.lines.lock().iter().filter(|line| line.contains("host:1:abc")).count();
    wait_for(&feed, "the warning", || warnings() == 1);
    let heartbeats = engine.stats().heartbeats;
    wait_for(&feed, "more heartbeats", || engine.stats().heartbeats > heartbeats + 3);
    assert_eq!(warnings(), 1, "and not of itself");
    engine.stop();
}

#[test]
fn a_queue_that_nobody_works_on_is_named_once() {
    let server = TestRedis::plain();
    push(&mut *server.store(), "nobodys", &[b"{}", b"{}"]);
    push(&mut *server.store(), "theirs", &[b"{}"]);
    server.cli(&["SADD", "processes", "host:1:abc"]);
    server.cli(&["HSET", "host:1:abc", "info", r#"{"queues":["theirs"]}"#, "beat", "4e9"]);
    let mut options = server.options();
    options.lease = Duration::from_secs(2);
    let (engine, feed) = start(options);
    let named = |queue: &str| {
        feed.lines
            .lock()
            .iter()
            .filter(|line| line.contains("no live") && line.contains(queue))
            .count()
    };
    wait_for(&feed, "the warning", || named(": nobodys (2);") == 1);
    let heartbeats = engine.stats().heartbeats;
    wait_for(&feed, "more heartbeats", || engine.stats().heartbeats > heartbeats + 3);
    assert_eq!((named("nobodys"), named("theirs")), (1, 0));
    engine.stop();
}

#[test]
fn jobs_that_will_be_claimed_are_not_put_back_in_flight() {
    let server = TestRedis::plain();
    let mut store = server.store();
    push(&mut *store, "q", &[b"waits", b"failed"]);
    let claimed = crate::redis_server::claim(&mut *store, "other", &["q"], 2, 1).unwrap();
    let failed = Outcome::Retry { at: LATER, payload: b"failed".to_vec() };
    let acks = [(0, Outcome::requeue()), (1, failed)];
    let acks = acks.map(|(at, outcome)| crate::redis_server::settle(&claimed.jobs[at], outcome));
    assert_eq!(store.ack("other", &acks).unwrap(), 0);
    let in_hand = |ticket, payload: &[u8]| ClaimedJob {
        ticket,
        queue: "q".into(),
        payload: payload.to_vec(),
    };
    let jobs = [in_hand(1, b"waits"), in_hand(2, b"failed"), in_hand(3, b"lost")];
    assert_eq!(store.restore("me", &jobs).unwrap(), 1);
    assert_eq!(store.in_flight("me").unwrap(), [in_hand(3, b"lost")]);
    assert_eq!(store.restore("me", &jobs).unwrap(), 0, "it is there");
}

#[test]
fn an_owner_that_cannot_be_reclaimed_holds_up_nobody() {
    let server = TestRedis::plain();
    let options = StoreOptions { lease: Duration::from_secs(1), ..server.options() };
    let mut store = open(&options).unwrap().store();
    // The dead owners: the in-flight set of the first is a key of another type.
    server.cli(&["SET", "chaton:inflight:a:1:broken", "x"]);
    server.cli(&["ZADD", "chaton:owners", "1", "a:1:broken"]);
    push(&mut *store, "q", &[br#"{"class":"A","args":[],"jid":"orphan","queue":"q"}"#]);
    crate::redis_server::claim(&mut *store, "b:2:dead", &["q"], 1, 1).unwrap();
    server.cli(&["ZADD", "chaton:owners", "2", "b:2:dead"]);
    let cron =
        Cron::new("tick", "* * * * * *", "UTC", "q", r#"{"class":"A","args":[],"queue":"q""#);
    let (engine, feed) = start_with(options, vec![cron.unwrap()]);
    wait_for(&feed, "the other owner's job", || feed.begun("orphan") == 1);
    crate::redis_engine::push_one(&mut *store, "due", Some(1.0)).unwrap();
    wait_for(&feed, "a due job", || feed.begun("due") == 1);
    let ticks = feed.begun.lock().len();
    wait_for(&feed, "the next tick", || feed.begun.lock().len() > ticks);
    assert!(feed.lines.lock().iter().any(|line| line.contains("reclaiming jobs: ")));
    assert!(engine.stats().holds_lease);
    engine.stop();
}
