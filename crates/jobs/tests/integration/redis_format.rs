//! What Redis holds is what Sidekiq's clients, API and UI expect.

use std::time::Duration;

use crate::redis_server::{claim, job, push, settle, TestRedis};
use chaton_jobs::store::{open, Ack, JobLocation, NewJob, Outcome, ProcessReport, RunningJob};

const JOB: &str = r#"{"class":"A","args":[{},[],1.50,12345678901234567890],"jid":"j1","queue":"low","retry_count":2,"enqueued_at":1.5}"#;

fn report<'a>(work: &'a [RunningJob]) -> ProcessReport<'a> {
    ProcessReport {
        identity: "host:7:abc",
        process_key: "boot:ns:7:99",
        info: r#"{"hostname":"host"}"#,
        concurrency: 5,
        busy: 1,
        quiet: true,
        rss_kb: 1234,
        rtt_us: 88,
        work,
        processed: 7,
        failed: 2,
        now_s: 1_700_000_000.5,
    }
}

#[test]
fn pushes_as_sidekiq_does() {
    let server = TestRedis::plain();
    let mut store = server.store();
    let at = NewJob { at: Some(1_700_000_000.25), ..job("low", b"due") };
    store.push(&[job("low", b"a"), job("low", b"b"), job("high", b"c"), at]).unwrap();
    assert_eq!(server.cli(&["LRANGE", "queue:low", "0", "-1"]), "b\na");
    assert_eq!(server.cli(&["LRANGE", "queue:high", "0", "-1"]), "c");
    assert_eq!(server.cli(&["SORT", "queues", "ALPHA"]), "high\nlow");
    let schedule = server.cli(&["ZRANGE", "schedule", "0", "-1", "WITHSCORES"]);
    assert_eq!(schedule, "due\n1700000000.25");
}

#[test]
fn names_a_queue_with_its_first_job_and_again_after_it_was_removed() {
    let server = TestRedis::plain();
    let mut store = server.store();
    assert_eq!(server.cli(&["CONFIG", "RESETSTAT"]), "OK");
    for _ in 0..40 {
        store.push(&[job("low", b"a")]).unwrap();
    }
    let named = || server.cli(&["INFO", "commandstats"]).contains("cmdstat_sadd:calls=34,");
    assert!(named(), "until a push found 33 jobs");
    assert_eq!(server.cli(&["DEL", "queue:low", "queues"]), "2");
    store.push(&[job("low", b"e")]).unwrap();
    assert_eq!(server.cli(&["SMEMBERS", "queues"]), "low");
    assert_eq!(server.cli(&["LRANGE", "queue:low", "0", "-1"]), "e");
    store.push(&[job("high", b"f")]).unwrap();
    assert_eq!(server.cli(&["SORT", "queues", "ALPHA"]), "high\nlow");
}

#[test]
fn moves_due_jobs_and_keeps_their_bytes() {
    let server = TestRedis::plain();
    let mut store = server.store();
    let at = NewJob { at: Some(10.0), ..job("low", JOB.as_bytes()) };
    store.push(&[at, NewJob { at: Some(11.0), ..job("x", b"no json") }]).unwrap();
    store
        .push(&[NewJob { at: Some(99.5), ..at }, NewJob { at: Some(98.5), ..job("x", b"later") }])
        .unwrap();
    store.push(&[NewJob { at: Some(10.0), ..at }]).unwrap();
    let due = store.move_due(20.0, 10).unwrap();
    assert_eq!((due.moved, due.next_at, due.lag_max_s), (2, Some(98.5), 10.0));
    let stamped = JOB.replace("\"enqueued_at\":1.5", "\"enqueued_at\":20.0");
    assert_eq!(server.cli(&["LRANGE", "queue:low", "0", "-1"]), stamped);
    assert_eq!(server.cli(&["ZRANGE", "dead", "0", "-1"]), "no json");
}

#[test]
fn stamps_milliseconds_in_the_newest_format() {
    let server = TestRedis::plain();
    let mut options = server.options();
    options.format = 8;
    let mut store = open(&options).unwrap().store();
    store.push(&[NewJob { at: Some(10.0), ..job("low", JOB.as_bytes()) }]).unwrap();
    assert_eq!(store.move_due(1_700_000_000.25, 10).unwrap().moved, 1);
    assert!(server.cli(&["LINDEX", "queue:low", "0"]).contains("\"enqueued_at\":1700000000250}"));
}

#[test]
fn keeps_no_more_dead_than_asked() {
    let server = TestRedis::plain();
    let mut options = server.options();
    options.dead_max = 3;
    options.dead_age = Duration::from_secs(1000);
    let mut store = open(&options).unwrap().store();
    for n in 0..6u8 {
        push(&mut *store, "q", &[&[b'a' + n]]);
    }
    let turn = claim(&mut *store, "me", &["q"], 6, 1).unwrap();
    let acks: Vec<Ack> = turn
        .jobs
        .iter()
        .map(|job| {
            let at = 5000.0 + job.ticket as f64;
            settle(job, Outcome::Dead { payload: None, at })
        })
        .collect();
    store.ack_and_claim("me", &acks, None).unwrap();
    assert_eq!(server.cli(&["ZRANGE", "dead", "0", "-1"]), "d\ne\nf");
    push(&mut *store, "q", &[b"z"]);
    let turn = claim(&mut *store, "me", &["q"], 1, 9).unwrap();
    let late = settle(&turn.jobs[0], Outcome::Dead { payload: None, at: 6005.5 });
    store.ack_and_claim("me", &[late], None).unwrap();
    assert_eq!(server.cli(&["ZRANGE", "dead", "0", "-1"]), "f\nz");
}

#[test]
fn a_heartbeat_shows_a_process_and_its_work() {
    let server = TestRedis::plain();
    for (format, keys) in [(6, vec![":work", ":workers"]), (7, vec![":work"])] {
        server.cli(&["FLUSHALL"]);
        let mut options = server.options();
        options.format = format;
        let mut store = open(&options).unwrap().store();
        let work = [RunningJob {
            tid: "t1".into(),
            queue: "low".into(),
            payload: JOB.as_bytes().into(),
            run_at: 1_700_000_000,
        }];
        assert!(store.heartbeat(&report(&work)).unwrap().is_new);
        store.signal("host:7:abc", "TSTP").unwrap();
        store.signal("host:7:abc", "TERM").unwrap();
        let second = store.heartbeat(&report(&work)).unwrap();
        assert!(!second.is_new);
        assert_eq!(second.signals, ["TSTP", "TERM"]);
        assert_eq!(server.cli(&["SMEMBERS", "processes"]), "host:7:abc");
        let hash = ["HMGET", "host:7:abc", "info", "busy", "beat", "quiet", "rss", "rtt_us"];
        let expected = "{\"hostname\":\"host\"}\n1\n1700000000.5\ntrue\n1234\n88";
        assert_eq!(server.cli(&hash), expected);
        for key in &keys {
            let key = format!("host:7:abc{key}");
            assert!(server.cli(&["HGET", &key, "t1"]).contains("\"run_at\":1700000000"));
            assert!(server.cli(&["TTL", &key]).parse::<i64>().unwrap() > 50);
        }
        assert_eq!(server.cli(&["KEYS", "host:7:abc:*"]).lines().count(), keys.len());
        let counts = [
            "stat:processed",
            "stat:failed",
            "stat:processed:2023-11-14",
            "stat:failed:2023-11-14",
        ];
        let counts = counts.map(|key| server.cli(&["GET", key]));
        assert_eq!(counts, ["14", "4", "14", "4"]);
        let seen = &store.processes().unwrap()[0];
        assert_eq!((seen.busy, seen.quiet, seen.rss_kb), (1, true, 1234));
        assert_eq!(seen.work, work);
        store.heartbeat(&report(&[])).unwrap();
        assert!(store.processes().unwrap()[0].work.is_empty());
        let owner = &store.owners().unwrap()[0];
        assert_eq!((&*owner.identity, &*owner.process_key), ("host:7:abc", "boot:ns:7:99"));
        assert!(owner.heartbeat_age < Duration::from_secs(5));
        assert!(store.forget("host:7:abc").unwrap());
        assert_eq!(server.cli(&["KEYS", "host*"]), "");
        assert!(store.owners().unwrap().is_empty());
    }
}

#[test]
fn a_process_that_only_claimed_is_an_owner() {
    let server = TestRedis::plain();
    let mut store = server.store();
    push(&mut *store, "a:b%d", &[b"{}"]);
    let turn = claim(&mut *store, "host:8:def", &["a:b%d"], 1, 5).unwrap();
    assert_eq!(server.cli(&["HKEYS", "chaton:inflight:host:8:def"]), "5:a:b%d");
    assert_eq!(store.in_flight("host:8:def").unwrap(), turn.jobs);
    assert_eq!(store.owners().unwrap()[0].identity, "host:8:def");
    assert!(!store.forget("host:8:def").unwrap());
    assert!(
        store.heartbeat(&ProcessReport { identity: "host:8:def", ..report(&[]) }).unwrap().is_new
    );
}

#[test]
fn requeueing_reduces_the_retry_count() {
    let server = TestRedis::plain();
    let mut store = server.store();
    push(&mut *store, "low", &[JOB.as_bytes()]);
    let turn = claim(&mut *store, "me", &["low"], 1, 1).unwrap();
    let retry = Outcome::Retry { at: 77.0, payload: turn.jobs[0].payload.clone() };
    store.ack_and_claim("me", &[settle(&turn.jobs[0], retry)], None).unwrap();
    let (place, entry) = store.find("j1").unwrap().unwrap();
    assert_eq!((place.clone(), entry.score), (JobLocation::Retry, 77.0));
    assert!(store.enqueue_entry(&place, &entry, 30.0).unwrap());
    assert!(!store.enqueue_entry(&place, &entry, 30.0).unwrap());
    let stored = server.cli(&["LINDEX", "queue:low", "0"]);
    let expected = JOB
        .replace("\"retry_count\":2", "\"retry_count\":1")
        .replace("\"enqueued_at\":1.5", "\"enqueued_at\":30.0");
    assert_eq!(stored, expected);
}
