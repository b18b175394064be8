//! Failures of a real server, after which no job may be lost.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::redis_server::{claim, done, job, push, settle, wait_for, TestRedis};
use chaton_jobs::store::{
    open, Ack, ClaimRequest, Grant, JobLocation, Limit, LimitRequest, LimitRule, Outcome,
    ProcessReport, Store, StoreErrorKind, StoreOptions,
};

const NOTHING: ProcessReport<'static> = ProcessReport {
    identity: "",
    process_key: "",
    info: "",
    concurrency: 1,
    busy: 0,
    quiet: false,
    rss_kb: 0,
    rtt_us: 0,
    work: &[],
    processed: 1,
    failed: 0,
    now_s: 5.0,
};

#[test]
fn nothing_is_lost_when_the_server_is_killed() {
    let mut server = TestRedis::durable();
    let mut store = server.store();
    let names: Vec<String> = (0..600).map(|n| format!("{{\"n\":{n}}}")).collect();
    let all: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
    push(&mut *store, "q", &all);
    let turns = AtomicUsize::new(0);
    let mut seen = BTreeSet::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for kill in 1..=4 {
                wait_for("turns", || turns.load(Ordering::Relaxed) > 12 * kill);
                server.kill();
                server.restart();
            }
        });
        drain(&mut *store, &turns, &mut seen);
    });
    assert!(seen
        .iter()
        .map(|payload| &payload[..])
        .eq(all.iter().copied().collect::<BTreeSet<_>>()));
    assert!(store.in_flight("me").unwrap().is_empty());
}

/// Claims and acknowledges until nothing is left, through four kills. A job whose
/// acknowledgement was answered must not come again.
fn drain(store: &mut dyn Store, turns: &AtomicUsize, seen: &mut BTreeSet<Vec<u8>>) {
    let (mut ticket, mut cuts) = (1, 0);
    let mut held: Vec<Ack> = Vec::new();
    let queues = ["q".into()];
    loop {
        let want = ClaimRequest { queues: &queues, count: 7, first_ticket: ticket };
        match store.ack_and_claim("me", &held, Some(&want)) {
            Ok(turn) => {
                assert_eq!(turn.fenced, 0);
                held = turn.jobs.iter().map(done).collect();
                ticket += 7;
                for job in turn.jobs {
                    assert!(seen.insert(job.payload), "settled, and came again");
                }
                if held.is_empty() && turns.fetch_add(1, Ordering::Relaxed) > 100 {
                    return;
                }
                turns.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => {
                assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
                cuts += 1;
                assert!(cuts < 100_000);
                // The call may have run: the in-flight set shows it.
                let mut in_flight = Vec::new();
                wait_for("the server to be back", || match store.in_flight("me") {
                    Ok(found) => {
                        in_flight = found;
                        true
                    }
                    Err(_) => false,
                });
                held = in_flight.iter().map(done).collect();
                ticket += 7;
                seen.extend(in_flight.into_iter().map(|job| job.payload));
            }
        }
    }
}

#[test]
fn a_hanging_server_is_given_up_in_time_and_found_again() {
    let server = TestRedis::plain();
    let mut options = server.options();
    options.answer_timeout = Duration::from_millis(500);
    options.connect_timeout = Duration::from_millis(500);
    let mut store = open(&options).unwrap().store();
    push(&mut *store, "q", &[b"{}"]);
    server.pause();
    let begun = Instant::now();
    let error = claim(&mut *store, "me", &["q"], 1, 1).unwrap_err();
    let taken = begun.elapsed();
    assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
    assert!(taken >= Duration::from_millis(450) && taken < Duration::from_secs(2), "{taken:?}");
    // A new connection gets no answer either.
    let error = store.stats().unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
    while begun.elapsed() < Duration::from_secs(3) {
        assert!(store.stats().is_err());
    }
    server.resume();
    // The aborted claim may have run: then its job is in flight.
    let turn = claim(&mut *store, "me", &["q"], 1, 2).unwrap();
    let found = turn.jobs.len() + store.in_flight("me").unwrap().len();
    assert!(found >= 1);
    assert_eq!(store.in_flight("me").unwrap().len(), 1);
}

#[test]
fn a_full_server_refuses_jobs_and_can_be_drained() {
    let server = TestRedis::plain();
    let mut store = server.store();
    let big = vec![b'x'; 20_000];
    let payload = [b"{\"queue\":\"q\",\"x\":\"".as_slice(), &big, b"\"}"].concat();
    for _ in 0..50 {
        push(&mut *store, "q", &[&payload]);
    }
    let memory = server.cli(&["INFO", "memory"]);
    let used = memory.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap();
    let limit = (used.trim().parse::<u64>().unwrap() - 300_000).to_string();
    assert_eq!(server.cli(&["CONFIG", "SET", "maxmemory", &limit]), "OK");
    for jobs in [vec![job("q", &payload)], vec![job("q", b"{}"), job("r", b"{}")]] {
        let error = store.push(&jobs).unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Full, "{error}");
    }
    let error = store.push_once("k", Duration::from_secs(9), &job("q", b"{}")).unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Full, "{error}");
    assert_eq!(server.cli(&["SCARD", "queues"]), "1");
    let turn = claim(&mut *store, "me", &["q"], 30, 1).unwrap();
    assert_eq!(turn.jobs.len(), 30);
    let mut acks: Vec<Ack> = turn.jobs[..20].iter().map(done).collect();
    let retry = Outcome::Retry { at: 5.0, payload: turn.jobs[20].payload.clone() };
    acks.push(settle(&turn.jobs[20], retry));
    acks.push(settle(&turn.jobs[21], Outcome::Dead { payload: None, at: 9e9 }));
    acks.push(settle(&turn.jobs[22], Outcome::Requeue { payload: None, queue: None }));
    assert_eq!(store.ack("me", &acks).unwrap(), 0);
    assert_eq!(store.in_flight("me").unwrap().len(), 7);
    assert_eq!(store.move_due(10.0, 10).unwrap().moved, 1);
    let stats = store.stats().unwrap();
    assert_eq!((stats.enqueued, stats.dead, stats.retries), (22, 1, 0));
    // Heartbeats and limiters work, so that all jobs can be drained.
    let beat = ProcessReport { identity: "me", process_key: "here", info: "{}", ..NOTHING };
    assert!(store.heartbeat(&beat).unwrap().is_new);
    let limits = [Limit { key: "k".into(), rule: LimitRule::Bucket { max: 1, per_s: 1.0 } }];
    let grants = store
        .acquire("me", &[LimitRequest { ticket: 1, jid: "", place: 0.0, limits: &limits }], 5.0)
        .unwrap();
    assert_eq!(grants, [Grant::Now]);
    // And the note of a suspect, without which it would not start.
    store.save("note", &[("ticket", b"1")], Duration::from_secs(9)).unwrap();
    assert_eq!(store.load("note").unwrap().len(), 1);
    assert_eq!(store.clear(&JobLocation::Queue("q".into()), 0).unwrap(), 22);
    assert_eq!(server.cli(&["CONFIG", "SET", "maxmemory", "0"]), "OK");
    push(&mut *store, "q", &[b"{}"]);
}

#[test]
fn a_refused_user_is_named_without_the_password() {
    let server = TestRedis::start(&["--requirepass", "right"]);
    let good = format!("redis://:right@127.0.0.1:{}/0", server.port);
    push(&mut *open(&StoreOptions::for_tests(good)).unwrap().store(), "q", &[b"{}"]);
    let bad = format!("redis://bob:wr0ng@127.0.0.1:{}/0", server.port);
    let none = server.url();
    for (url, user) in [(bad, "bob"), (none, "default")] {
        let factory = open(&StoreOptions::for_tests(url)).unwrap();
        let error = factory.store().stats().unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Refused, "{error}");
        assert!(error.message.contains(user), "{error}");
        assert!(error.message.contains(&server.port.to_string()), "{error}");
        assert!(
            !error.message.contains("wr0ng") && !factory.address().contains("wr0ng"),
            "{error}"
        );
    }
    let mut options = StoreOptions::for_tests(server.url());
    options.password = Some("right".into());
    assert_eq!(open(&options).unwrap().store().stats().unwrap().enqueued, 1);
}

#[test]
fn forgotten_scripts_are_loaded_again_and_run_once() {
    let server = TestRedis::plain();
    let mut store = server.store();
    push(&mut *store, "q", &[b"1", b"2", b"3", b"4"]);
    let first = claim(&mut *store, "me", &["q"], 2, 1).unwrap();
    server.cli(&["SCRIPT", "FLUSH"]);
    let back = Outcome::Requeue { payload: None, queue: None };
    let acks = [done(&first.jobs[0]), settle(&first.jobs[1], back)];
    let queues = ["q".into()];
    let want = ClaimRequest { queues: &queues, count: 9, first_ticket: 3 };
    let turn = store.ack_and_claim("me", &acks, Some(&want)).unwrap();
    let payloads: Vec<&[u8]> = turn.jobs.iter().map(|job| &job.payload[..]).collect();
    assert_eq!((turn.fenced, payloads), (0, vec![b"2".as_slice(), b"3", b"4"]));
    assert!(turn.drained);
    assert_eq!(turn.jobs.iter().map(|job| job.ticket).collect::<Vec<_>>(), [3, 4, 5]);
    assert_eq!(store.in_flight("me").unwrap(), turn.jobs);
}

#[test]
fn a_connection_closed_while_idle_is_opened_again() {
    let server = TestRedis::plain();
    let mut store = server.store();
    push(&mut *store, "q", &[b"1", b"2"]);
    for ticket in 1..=2 {
        server.cli(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        assert_eq!(claim(&mut *store, "me", &["q"], 1, ticket).unwrap().jobs.len(), 1);
    }
}

#[test]
fn a_missing_server_is_unavailable() {
    let mut server = TestRedis::plain();
    server.kill();
    let error = server.store().stats().unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
    let gone = format!("unix://{}", server.dir.path().join("none").display());
    let error = open(&StoreOptions::for_tests(gone)).unwrap().store().stats().unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
}

#[test]
fn payloads_are_kept_byte_for_byte() {
    let server = TestRedis::plain();
    let url = format!("unix://{}?db=3", server.socket());
    let mut store = open(&StoreOptions::for_tests(url)).unwrap().store();
    let every: Vec<u8> = (0..=255).collect();
    let long: Vec<u8> =
        (0..10_000_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    push(&mut *store, "q", &[&every, b"", &long]);
    let turn = claim(&mut *store, "me", &["q"], 10, u64::MAX >> 12).unwrap();
    let payloads: Vec<&[u8]> = turn.jobs.iter().map(|job| &job.payload[..]).collect();
    assert!(payloads == [&every[..], b"", &long]);
    assert!(store.in_flight("me").unwrap() == turn.jobs);
    let acks: Vec<Ack> = turn
        .jobs
        .iter()
        .map(|job| settle(job, Outcome::Requeue { payload: None, queue: None }))
        .collect();
    assert_eq!(store.ack("me", &acks).unwrap(), 0);
    let again = claim(&mut *store, "me", &["q"], 10, 1).unwrap();
    assert!(again.jobs.iter().map(|job| &job.payload[..]).eq(payloads));
    assert_eq!(server.cli(&["-n", "3", "HLEN", "chaton:inflight:me"]), "3");
}

#[test]
fn a_claim_of_long_jobs_ends_early() {
    let server = TestRedis::plain();
    let mut store = server.store();
    let long = vec![b'x'; 3_000_000];
    push(&mut *store, "q", &[&long[..]; 20]);
    let mut ticket = 1;
    for (expected, drained) in [(8, false), (8, false), (4, true)] {
        let turn = claim(&mut *store, "me", &["q", "none"], 100, ticket).unwrap();
        assert_eq!((turn.jobs.len(), turn.drained), (expected, drained));
        ticket += expected as u64;
    }
    push(&mut *store, "q", &[b"short".as_slice(); 900]);
    let turn = claim(&mut *store, "me", &["none", "q"], 899, ticket).unwrap();
    assert_eq!((turn.jobs.len(), turn.drained), (899, false));
    assert!(turn.jobs.iter().map(|job| job.ticket).eq(ticket..ticket + 899));
    assert_eq!(store.in_flight("me").unwrap().len(), 919);
}

#[test]
fn a_job_goes_to_one_of_many_claimers() {
    let server = TestRedis::plain();
    let factory = server.factory();
    let names: Vec<String> = (0..3000).map(|n| n.to_string()).collect();
    let all: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
    push(&mut *factory.store(), "q", &all);
    let mut seen: Vec<Vec<u8>> = std::thread::scope(|scope| {
        let claimers: Vec<_> = (0..4)
            .map(|n| {
                let mut store = factory.store();
                scope.spawn(move || {
                    let (owner, mut seen, mut ticket) = (format!("owner{n}"), Vec::new(), 1);
                    loop {
                        let turn = claim(&mut *store, &owner, &["q"], 13, ticket).unwrap();
                        ticket += turn.jobs.len() as u64;
                        let acks: Vec<Ack> = turn.jobs.iter().map(done).collect();
                        assert_eq!(store.ack(&owner, &acks).unwrap(), 0);
                        seen.extend(turn.jobs.into_iter().map(|job| job.payload));
                        if turn.drained {
                            return seen;
                        }
                    }
                })
            })
            .collect();
        claimers.into_iter().flat_map(|claimer| claimer.join().unwrap()).collect()
    });
    assert_eq!(seen.len(), all.len());
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), all.len());
}

#[test]
fn an_eviction_policy_causes_a_warning() {
    let server = TestRedis::start(&["--maxmemory-policy", "allkeys-lru"]);
    let warning = || {
        let mut store = server.store();
        store.stats().unwrap();
        store.warning()
    };
    assert!(warning().unwrap().contains("allkeys-lru"));
    server.cli(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    assert_eq!(warning(), None);
}

#[test]
fn a_cluster_is_refused() {
    let server = TestRedis::start(&["--cluster-enabled", "yes"]);
    let error = server.store().stats().unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Refused, "{error}");
    assert!(error.message.contains("Cluster"), "{error}");
}

#[test]
fn a_heartbeat_returns_the_clock_of_the_server() {
    let server = TestRedis::plain();
    let time = || {
        let words = server.cli(&["TIME"]);
        let mut parts = words.lines().map(|part| part.parse::<f64>().unwrap());
        parts.next().unwrap() + parts.next().unwrap() / 1e6
    };
    let mut store = server.store();
    let beat = ProcessReport { identity: "me", process_key: "here", info: "{}", ..NOTHING };
    let before = time();
    let reply = store.heartbeat(&beat).unwrap();
    assert!((before..=time()).contains(&reply.now_s), "{reply:?}");
    assert_eq!(reply.processes, 1);
}
