//! Servers that turn into replicas and back, that cannot be watched or lose jobs. The engine goes
//! on by itself, and no job that was pushed is lost.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::redis_engine::{push_one, start, InstantFeed, Pusher};
use crate::redis_server::TestRedis;
use chaton_core::engine::Engine as _;
use chaton_jobs::store::{open, StoreErrorKind, StoreOptions};

/// Passes connections on to one of several servers. Those that are open stay with their server.
struct Proxy {
    port: u16,
    target: Arc<AtomicU16>,
}

impl Proxy {
    fn start(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let target = Arc::new(AtomicU16::new(target));
        let current = target.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if let Ok(server) =
                    TcpStream::connect(("127.0.0.1", current.load(Ordering::SeqCst)))
                {
                    pass(&client, &server);
                    pass(&server, &client);
                }
            }
        });
        Self { port, target }
    }

    fn options(&self) -> StoreOptions {
        StoreOptions::for_tests(format!("redis://127.0.0.1:{}/0", self.port))
    }
}

fn pass(from: &TcpStream, to: &TcpStream) {
    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
    std::thread::spawn(move || {
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(std::net::Shutdown::Both);
    });
}

/// Two servers, the second one a replica of the first, and a proxy to the first.
fn primary_and_replica() -> ([TestRedis; 2], Proxy) {
    let servers = [TestRedis::plain(), TestRedis::plain()];
    let port = servers[0].port.to_string();
    assert_eq!(servers[1].cli(&["REPLICAOF", "127.0.0.1", &port]), "OK");
    let proxy = Proxy::start(servers[0].port);
    (servers, proxy)
}

/// Makes the replica the primary, without losing a write, and switches the proxy afterwards.
fn fail_over(feed: &InstantFeed, proxy: &Proxy, from: &TestRedis, to: &TestRedis) {
    let port = to.port.to_string();
    feed.wait_for("the replica to be in step", || {
        from.cli(&["FAILOVER", "TO", "127.0.0.1", &port]) == "OK"
    });
    feed.wait_for("the roles to change", || {
        to.cli(&["ROLE"]).starts_with("master") && from.cli(&["ROLE"]).starts_with("slave")
    });
    proxy.target.store(to.port, Ordering::SeqCst);
}

#[test]
fn work_goes_on_when_the_server_becomes_a_replica_and_a_primary_again() {
    let server = TestRedis::plain();
    let (engine, feed) = start(server.options());
    Pusher::during(&server.options(), &feed, |pusher| {
        for _ in 0..10 {
            let stored = pusher.stored();
            feed.wait_for("pushes", || pusher.stored() > stored + 50);
            let failed = pusher.failed.load(Ordering::Relaxed);
            // A primary that is not there: the server takes no writes and keeps what it has.
            assert_eq!(server.cli(&["REPLICAOF", "127.0.0.1", "1"]), "OK");
            feed.wait_for("a refusal", || pusher.failed.load(Ordering::Relaxed) > failed + 5);
            let ran = feed.ran();
            assert_eq!(server.cli(&["REPLICAOF", "NO", "ONE"]), "OK");
            feed.wait_for("jobs to run again", || feed.ran() > ran);
        }
    });
    engine.stop();
}

#[test]
fn a_promotion_behind_a_proxy_is_followed_though_connections_stay_open() {
    let (servers, proxy) = primary_and_replica();
    let (engine, feed) = start(proxy.options());
    let mut slowest = Duration::ZERO;
    Pusher::during(&proxy.options(), &feed, |pusher| {
        for round in 0..6 {
            let stored = pusher.stored();
            feed.wait_for("pushes", || pusher.stored() > stored + 50);
            fail_over(&feed, &proxy, &servers[round % 2], &servers[(round + 1) % 2]);
            let (began, stored, ran) = (Instant::now(), pusher.stored(), feed.ran());
            feed.wait_for("work on the new primary", || {
                pusher.stored() > stored + 50 && feed.ran() > ran + 50
            });
            slowest = slowest.max(began.elapsed());
        }
    });
    println!("{} jobs, running again within {slowest:?}", feed.ran());
    engine.stop();
}

#[test]
fn idle_processes_follow_a_promotion_and_wake_for_the_next_job() {
    let (servers, proxy) = primary_and_replica();
    let (engine, feed) = start(proxy.options());
    let mut client = open(&proxy.options()).unwrap().store();
    push_one(&mut *client, "first", None).unwrap();
    feed.wait_for("the first job", || feed.ran() == 1);
    fail_over(&feed, &proxy, &servers[0], &servers[1]);
    // The client's connection is still to the old primary, which refuses the push.
    push_one(&mut *client, "second", None).unwrap();
    feed.wait_for("the second job", || feed.ran() == 2);
    // The watch goes along: a connection with tracking has the flag t.
    feed.wait_for("the watch", || servers[1].cli(&["CLIENT", "LIST"]).contains(" flags=t"));
    engine.stop();
}

#[test]
fn a_replica_is_refused_and_said_once_by_each_thread() {
    let (servers, _) = primary_and_replica();
    let error = servers[1].store().stats().unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unavailable);
    assert!(error.message.contains("waiting for the primary"), "{error}");
    let (engine, feed) = start(servers[1].options());
    let refused = || engine.stats().failures;
    feed.wait_for("several tries", || refused() > 5);
    assert_eq!(servers[1].cli(&["REPLICAOF", "NO", "ONE"]), "OK");
    push_one(&mut *servers[1].store(), "one", None).unwrap();
    feed.wait_for("the job", || feed.ran() == 1);
    engine.stop();
    for thread in ["claim", "heartbeat", "watch"] {
        let part = format!("jobs: {thread}: ");
        let lines = feed.lines.lock().clone();
        let refusals = lines.iter().filter(|l| l.starts_with(&part) && l.contains("is a replica"));
        assert!(refusals.count() <= 1, "{lines:#?}");
    }
    assert!(feed.lines_with("is a replica") > 0);
}

/// Jobs that are pushed or become due while nothing runs must run, and one line must say why they
/// are late.
fn runs_unwatched(server: &TestRedis, url: &str, reason: &str) {
    let (engine, feed) = start(StoreOptions::for_tests(url));
    feed.wait_for("the queues to be seen empty", || engine.stats().empty_claims > 0);
    let mut client = server.store();
    for n in 0..3 {
        push_one(&mut *client, &format!("now{n}"), None).unwrap();
        feed.wait_for("a pushed job", || feed.ran() == 2 * n + 1);
        let soon = chaton_core::clock::wall_s() + 0.1;
        push_one(&mut *client, &format!("due{n}"), Some(soon)).unwrap();
        feed.wait_for("a scheduled job", || feed.ran() == 2 * n + 2);
    }
    engine.stop();
    let lines = feed.lines.lock().clone();
    let reasons: Vec<_> = lines.iter().filter(|line| line.contains(reason)).collect();
    assert!(reasons.len() == 1 && reasons[0].contains("asking for jobs"), "{lines:#?}");
}

#[test]
fn jobs_run_where_the_user_may_not_track_keys() {
    let server = TestRedis::plain();
    // Redis 6.2 denies no subcommand by itself.
    for (user, rules) in [("some", &["-client", "+client|id"][..]), ("none", &["-client"])] {
        let user_rules = ["ACL", "SETUSER", user, "on", ">pw", "~*", "&*", "+@all"];
        assert_eq!(server.cli(&[&user_rules[..], rules].concat()), "OK");
        let url = format!("redis://{user}:pw@127.0.0.1:{}/0", server.port);
        runs_unwatched(&server, &url, "'client");
    }
}

#[test]
fn jobs_run_where_the_server_knows_no_tracking() {
    let server = TestRedis::start(&["--rename-command", "CLIENT", ""]);
    runs_unwatched(&server, &server.url(), "unknown command");
}

#[test]
fn an_eviction_policy_that_loses_jobs_is_warned_of_once() {
    let server = TestRedis::start(&["--maxmemory-policy", "allkeys-lru"]);
    let (engine, feed) = start(server.options());
    feed.wait_for("two heartbeats", || engine.stats().heartbeats >= 2);
    engine.stop();
    assert_eq!(feed.lines_with("allkeys-lru"), 1);
}
