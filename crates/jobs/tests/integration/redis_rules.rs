//! Locks, limits, batches and ticks on a real server.

use std::time::Duration;

use crate::redis_server::{claim, done, job, push, settle, TestRedis};
use chaton_jobs::store::{
    Ack, BatchEvent, BatchUpdate, ClaimedJob, Grant, HeldLock, JobLocation, Limit, LimitRequest,
    LimitRule, NewBatch, NewJob, NewLock, Outcome, PushResult, SideEffects, Store,
};

const TTL: Duration = Duration::from_secs(100);
const X: &[u8] = b"{\"jid\":\"x\"}";
const Y: &[u8] = b"{\"jid\":\"y\"}";
const Z: &[u8] = b"{\"jid\":\"z\"}";

fn locked<'a>(key: &'a str, jid: &'a str) -> NewJob<'a> {
    NewJob { lock: Some(NewLock { key, jid, ttl: TTL }), ..job("q", jid.as_bytes()) }
}

fn limit(key: &str, rule: LimitRule) -> Limit {
    Limit { key: key.into(), rule }
}

fn ask(store: &mut dyn Store, ticket: u64, limits: &[Limit], now_s: f64) -> Grant {
    store.acquire("me", &[LimitRequest { ticket, jid: "", place: 0.0, limits }], now_s).unwrap()[0]
}

fn step(store: &mut dyn Store, job: &ClaimedJob, bid: &str, what: BatchEvent) {
    let text = String::from_utf8(job.payload.clone()).unwrap();
    let jid = text.strip_prefix("{\"jid\":\"").and_then(|rest| rest.strip_suffix("\"}")).unwrap();
    let jid = jid.to_string();
    let batch = Some(BatchUpdate { bid: bid.into(), jid, event: what });
    let effects = Some(Box::new(SideEffects { batch, ..SideEffects::default() }));
    let outcome = match what {
        BatchEvent::Failed => Outcome::Retry { at: 1.0, payload: job.payload.clone() },
        _ => Outcome::Ack,
    };
    let settle = Ack { effects, outcome, ..done(job) };
    assert_eq!(store.ack("me", &[settle]).unwrap(), 0);
}

fn batch<'a>(bid: &'a str, parent: Option<&'a str>) -> NewBatch<'a> {
    let callbacks: &[(&str, &str, &[u8])] = match bid {
        "outer" => &[("success", "cb", b"outer success"), ("complete", "cb", b"outer complete")],
        _ => &[
            ("success", "cb", b"success"),
            ("complete", "cb", b"complete"),
            ("death", "cb", b"death"),
        ],
    };
    NewBatch { bid, parent, owner: "", description: "for people", callbacks, ttl: TTL, now_s: 5.5 }
}

fn fired(store: &mut dyn Store) -> Vec<String> {
    let turn = claim(store, "callbacks", &["cb"], 100, 1).unwrap();
    turn.jobs.into_iter().map(|job| String::from_utf8(job.payload).unwrap()).collect()
}

#[test]
fn a_lock_admits_one_job_and_ends_with_it() {
    let server = TestRedis::plain();
    let mut store = server.store();
    let pushed = store.push(&[locked("k", "a"), locked("k", "b"), locked("l", "c")]).unwrap();
    assert_eq!(pushed, [PushResult::Stored, PushResult::Locked("a".into()), PushResult::Stored]);
    store.unlock(&[HeldLock { key: "k", jid: "b" }]).unwrap();
    assert_eq!(store.push(&[locked("k", "b")]).unwrap(), [PushResult::Locked("a".into())]);
    assert!(server.cli(&["PTTL", "chaton:lock:k"]).parse::<u64>().unwrap() > 90_000);
    let turn = claim(&mut *store, "me", &["q"], 1, 1).unwrap();
    let unlock = Some(("k".into(), "a".into()));
    let effects = Some(Box::new(SideEffects { unlock, ..SideEffects::default() }));
    let end = Ack { effects, ..done(&turn.jobs[0]) };
    // An owner taken for dead releases nothing any more.
    assert_eq!(store.ack("gone", std::slice::from_ref(&end)).unwrap(), 1);
    assert_eq!(store.push(&[locked("k", "b")]).unwrap(), [PushResult::Locked("a".into())]);
    assert_eq!(store.ack("me", &[end]).unwrap(), 0);
    assert_eq!(store.push(&[locked("k", "b")]).unwrap(), [PushResult::Stored]);
}

#[test]
fn a_tick_is_pushed_once() {
    let server = TestRedis::plain();
    let factory = server.factory();
    let pushed = (0..4).filter(|_| factory.store().push_once("t1", TTL, &job("q", b"{}")).unwrap());
    assert_eq!(pushed.count(), 1);
    assert!(factory.store().push_once("t2", TTL, &job("q", b"{}")).unwrap());
    assert_eq!(server.cli(&["LLEN", "queue:q"]), "2");
}

#[test]
fn slots_are_held_until_they_are_released_or_too_old() {
    let server = TestRedis::plain();
    let mut store = server.store();
    let two = [limit("k", LimitRule::Concurrent { max: 2, hold_s: 10.0 })];
    push(&mut *store, "q", &[b"a", b"b", b"c"]);
    let turn = claim(&mut *store, "me", &["q"], 3, 1).unwrap();
    let grants: Vec<Grant> = (1..=3).map(|ticket| ask(&mut *store, ticket, &two, 100.0)).collect();
    assert_eq!(grants, [Grant::Now, Grant::Now, Grant::Behind { limit: 0, at: None }]);
    // A holder that asks again is not counted twice.
    assert_eq!(ask(&mut *store, 1, &two, 100.0), Grant::Now);
    let effects =
        Some(Box::new(SideEffects { release: vec!["k".into()], ..SideEffects::default() }));
    let end = Ack { effects, ..done(&turn.jobs[0]) };
    store.ack_and_claim("me", &[end], None).unwrap();
    assert_eq!(ask(&mut *store, 3, &two, 101.0), Grant::Now);
    assert_eq!(ask(&mut *store, 4, &two, 101.0), Grant::Behind { limit: 0, at: None });
    assert_eq!(ask(&mut *store, 4, &two, 110.5), Grant::Now);
}

#[test]
fn windows_slide_and_buckets_refill() {
    let server = TestRedis::plain();
    let mut store = server.store();
    let window = [limit("w", LimitRule::Window { max: 2, per_s: 10.0 })];
    assert_eq!(ask(&mut *store, 1, &window, 100.0), Grant::Now);
    assert_eq!(ask(&mut *store, 2, &window, 104.0), Grant::Now);
    assert_eq!(ask(&mut *store, 3, &window, 105.0), Grant::Behind { limit: 0, at: Some(110.0) });
    assert_eq!(ask(&mut *store, 3, &window, 110.5), Grant::Now);
    assert_eq!(ask(&mut *store, 4, &window, 111.0), Grant::Behind { limit: 0, at: Some(114.0) });
    let bucket = [limit("b", LimitRule::Bucket { max: 2, per_s: 10.0 })];
    assert_eq!(ask(&mut *store, 1, &bucket, 100.0), Grant::Now);
    assert_eq!(ask(&mut *store, 2, &bucket, 100.0), Grant::Now);
    assert_eq!(ask(&mut *store, 3, &bucket, 101.0), Grant::Behind { limit: 0, at: Some(105.0) });
    assert_eq!(ask(&mut *store, 3, &bucket, 105.0), Grant::Now);
    // All or none: the bucket has a token, the window is full.
    let both = [bucket[0].clone(), window[0].clone()];
    assert_eq!(ask(&mut *store, 5, &both, 112.0), Grant::Behind { limit: 1, at: Some(114.0) });
    assert_eq!(ask(&mut *store, 6, &bucket, 112.0), Grant::Now);
    assert!(server.cli(&["PTTL", "chaton:window:w"]).parse::<u64>().unwrap() > 0);
}

#[test]
fn a_batch_calls_back_once_for_each_event() {
    let server = TestRedis::plain();
    let mut store = server.store();
    store.batch_open(&batch("b", None)).unwrap();
    let jobs = [X, Y, Z].map(|payload| NewJob { bid: Some("b"), ..job("q", payload) });
    store.push(&jobs).unwrap();
    let turn = claim(&mut *store, "me", &["q"], 3, 1).unwrap();
    step(&mut *store, &turn.jobs[0], "b", BatchEvent::Done);
    store.batch_close("b").unwrap();
    step(&mut *store, &turn.jobs[1], "b", BatchEvent::Failed);
    assert!(fired(&mut *store).is_empty());
    step(&mut *store, &turn.jobs[2], "b", BatchEvent::Died);
    assert_eq!(fired(&mut *store), ["death", "complete"]);
    let status = store.batch("b").unwrap().unwrap();
    assert_eq!((status.total, status.pending, status.failures), (3, 2, 2));
    assert_eq!(status.failed_jids, ["y", "z"]);
    assert!(status.complete && status.dead && !status.success);
    assert_eq!((status.created_at, &*status.description), (5.5, "for people"));
    push(&mut *store, "q", &[Y, Z]);
    let turn = claim(&mut *store, "me", &["q"], 2, 9).unwrap();
    step(&mut *store, &turn.jobs[0], "b", BatchEvent::Done);
    step(&mut *store, &turn.jobs[1], "b", BatchEvent::Done);
    assert_eq!(fired(&mut *store), ["success"]);
    let status = store.batch("b").unwrap().unwrap();
    assert_eq!((status.pending, status.failures, status.success), (0, 0, true));
    assert_eq!(store.batch("none").unwrap(), None);
}

#[test]
fn an_outer_batch_waits_for_the_inner_one() {
    let server = TestRedis::plain();
    let mut store = server.store();
    store.batch_open(&batch("outer", None)).unwrap();
    store.batch_open(&batch("inner", Some("outer"))).unwrap();
    store.push(&[NewJob { bid: Some("inner"), ..job("q", X) }]).unwrap();
    store.batch_close("inner").unwrap();
    store.batch_close("outer").unwrap();
    assert_eq!(store.batch("outer").unwrap().unwrap().children_pending, 1);
    let turn = claim(&mut *store, "me", &["q"], 1, 1).unwrap();
    step(&mut *store, &turn.jobs[0], "inner", BatchEvent::Failed);
    assert_eq!(fired(&mut *store), ["complete", "outer complete"]);
    assert_eq!(store.move_due(5.0, 5).unwrap().moved, 1);
    push(&mut *store, "q", &[X]);
    let turn = claim(&mut *store, "me", &["q"], 1, 2).unwrap();
    step(&mut *store, &turn.jobs[0], "inner", BatchEvent::Done);
    assert_eq!(fired(&mut *store), ["success", "outer success"]);
    // A batch without jobs succeeds as soon as it is closed.
    store.batch_open(&batch("none", None)).unwrap();
    store.batch_close("none").unwrap();
    assert_eq!(fired(&mut *store), ["complete", "success"]);
}

#[test]
fn batches_of_an_older_version_end_with_its_counts() {
    let server = TestRedis::plain();
    let mut store = server.store();
    // As an older version opened them and pushed a job: it counted, and listed nothing.
    let written = "total 1 pending 1 children 0 running 0 created_at 1.5 description old";
    for (key, more) in [("up", "total 0 pending 0 children 1 running 1"), ("in", "parent up")] {
        let fields: Vec<&str> = written.split(' ').chain(more.split(' ')).collect();
        server.cli(&[&["HSET", &format!("chaton:batch:{key}")], &fields[..]].concat());
        server.cli(&["PEXPIRE", &format!("chaton:batch:{key}"), "100000"]);
        server.cli(&["RPUSH", &format!("chaton:batch:{key}:calls"), "success", "cb", key]);
    }
    push(&mut *store, "q", &[X]);
    store.push(&[NewJob { bid: Some("in"), ..job("q", Y) }]).unwrap();
    assert!(store.batch_close("in").unwrap() && store.batch_close("up").unwrap());
    // It added another job while the deploy went on.
    server.cli(&["HINCRBY", "chaton:batch:in", "total", "1"]);
    server.cli(&["HINCRBY", "chaton:batch:in", "pending", "1"]);
    push(&mut *store, "q", &[Z, Y]);
    let turn = claim(&mut *store, "me", &["q"], 9, 1).unwrap();
    for (index, pending) in [(1, 2), (0, 1), (2, 0)] {
        assert!(fired(&mut *store).is_empty());
        step(&mut *store, &turn.jobs[index], "in", BatchEvent::Done);
        assert_eq!(store.batch("in").unwrap().unwrap().pending, pending);
    }
    step(&mut *store, &turn.jobs[3], "in", BatchEvent::Done);
    assert_eq!(store.batch("in").unwrap().unwrap().pending, 0, "a copy");
    assert_eq!(fired(&mut *store), ["in", "up"]);
}

#[test]
fn a_removed_job_releases_its_lock_and_updates_its_batch() {
    let server = TestRedis::plain();
    let mut store = server.store();
    store.batch_open(&batch("b", None)).unwrap();
    let payload =
        br#"{"class":"A","args":[],"jid":"j","queue":"q","bid":"b","chaton":{"lock":"k"}}"#;
    let lock = Some(NewLock { key: "k", jid: "j", ttl: TTL });
    let new = NewJob { lock, bid: Some("b"), ..job("q", payload) };
    let queue = JobLocation::Queue("q".into());
    for clear in [false, true] {
        assert_eq!(store.push(&[new]).unwrap(), [PushResult::Stored]);
        if clear {
            assert_eq!(store.clear(&queue, 0).unwrap(), 1);
        } else {
            let entry = store.list(&queue, 0, 9).unwrap().remove(0);
            assert!(store.remove(&queue, &entry).unwrap());
            assert!(!store.remove(&queue, &entry).unwrap());
        }
        assert_eq!(server.cli(&["EXISTS", "chaton:lock:k"]), "0");
    }
    let status = store.batch("b").unwrap().unwrap();
    assert_eq!((status.failures, status.dead), (1, true));
    assert_eq!(fired(&mut *store), ["death"]);
}

/// A document for a queue.
fn doc(queue: &str, jid: &str, more: &str) -> Vec<u8> {
    format!(r#"{{"class":"A","args":[],"jid":"{jid}","queue":"{queue}"{more}}}"#).into_bytes()
}

#[test]
fn a_job_whose_queue_is_a_key_of_another_type_harms_only_itself() {
    let server = TestRedis::plain();
    let mut store = server.store();
    let lock = Some(NewLock { key: "k", jid: "bad", ttl: TTL });
    let bad = doc("evil", "bad", r#","chaton":{"lock":"k"}"#);
    let good = doc("q", "good", "");
    store.push(&[NewJob { at: Some(1.0), lock, ..job("evil", &bad) }]).unwrap();
    store.push(&[NewJob { at: Some(2.0), ..job("q", &good) }]).unwrap();
    push(&mut *store, "evil", &[b"claimed", b"waits"]);
    let claimed = claim(&mut *store, "me", &["evil"], 1, 1).unwrap().jobs;
    server.cli(&["SET", "queue:evil", "the application's own"]);
    assert_eq!(store.move_due(5.0, 9).unwrap().moved, 2);
    let dead = store.list(&JobLocation::Dead, 0, 9).unwrap();
    assert!(String::from_utf8_lossy(&dead[0].payload).contains(r#""jid":"bad""#));
    assert_eq!(server.cli(&["EXISTS", "chaton:lock:k"]), "0", "it holds nothing any more");
    // The next claim, too, and an outcome.
    let next = claim(&mut *store, "me", &["evil", "q"], 9, 2).unwrap().jobs;
    assert_eq!(next.iter().map(|job| &*job.queue).collect::<Vec<_>>(), ["q"]);
    assert_eq!(store.ack("me", &[settle(&claimed[0], Outcome::requeue())]).unwrap(), 0);
    assert_eq!(store.ack("me", &[done(&next[0])]).unwrap(), 0);
    assert_eq!((store.stats().unwrap().dead, store.stats().unwrap().in_flight), (2, 0));
    assert_eq!(store.queues().unwrap().iter().map(|queue| queue.size).sum::<u64>(), 0);
    // Who pushes is told; a tick goes to the dead set.
    assert!(store.push(&[job("evil", b"{}")]).is_err());
    assert!(store.push(&[NewJob { bid: Some("b"), ..job("evil", b"{}") }]).is_err());
    assert!(store.push_once("tick", TTL, &job("evil", &bad)).unwrap());
    assert_eq!(server.cli(&["GET", "queue:evil"]), "the application's own");
}
