//! Sentinels that name the primary and replace it. The engine and the clients follow, and every job
//! that the new primary has runs.

use std::cell::Cell;
use std::collections::HashSet;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::redis_engine::{push_one, start, InstantFeed, Pusher};
use crate::redis_server::tls::{start_tls, start_tls_server, tls_settings};
use crate::redis_server::{claim, free_port, push, redis_server, wait_within, TestRedis, TRIES};
use chaton_core::engine::Engine as _;
use chaton_jobs::store::{open, StoreErrorKind, StoreOptions};

/// Longest wait for a condition.
const WAIT: Duration = Duration::from_secs(60);

fn wait_for(what: &str, condition: impl FnMut() -> bool) {
    wait_within(WAIT, what, condition);
}

/// A sentinel, killed when it is dropped.
struct TestSentinel {
    child: Child,
    port: u16,
    _dir: tempfile::TempDir,
}

impl TestSentinel {
    /// Watches the server under the name `main`; `lines` of settings before that.
    fn start(primary: &TestRedis, quorum: usize, down_after_ms: u32, lines: &str) -> Self {
        Self::of(primary.port, quorum, down_after_ms, || lines.to_string())
    }

    /// The same for the port of a server. `lines` are made anew for each try with another port, which
    /// another process may take first.
    fn of(primary: u16, quorum: usize, down_after_ms: u32, lines: impl Fn() -> String) -> Self {
        for _ in 0..TRIES {
            let mut sentinel = Self::spawn(primary, quorum, down_after_ms, &lines());
            wait_for("the sentinel", || sentinel.is_ready() || sentinel.has_ended());
            if !sentinel.has_ended() {
                return sentinel;
            }
        }
        panic!("the sentinel has ended in {TRIES} tries");
    }

    fn spawn(primary: u16, quorum: usize, down_after_ms: u32, lines: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let port = free_port();
        let file = dir.path().join("sentinel.conf");
        let text = format!(
            "port {port}\nbind 127.0.0.1\ndir {}\n{lines}\n\
             sentinel monitor main 127.0.0.1 {primary} {quorum}\n\
             sentinel down-after-milliseconds main {down_after_ms}\n\
             sentinel failover-timeout main {}\n",
            dir.path().display(),
            down_after_ms.max(3000)
        );
        std::fs::write(&file, text).unwrap();
        let child = redis_server()
            .args([file.to_str().unwrap(), "--sentinel"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { child, port, _dir: dir }
    }

    fn is_ready(&self) -> bool {
        let reply = self.cli(&["PING"]);
        reply == "PONG" || reply.contains("NOAUTH")
    }

    fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    fn cli(&self, words: &[&str]) -> String {
        let port = self.port.to_string();
        let output = Command::new("redis-cli").args(["-p", &port]).args(words).output().unwrap();
        String::from_utf8_lossy(&output.stdout).trim_end().to_string()
    }

    fn options(&self) -> StoreOptions {
        StoreOptions::for_tests(format!("redis+sentinel://127.0.0.1:{}/main", self.port))
    }
}

impl Drop for TestSentinel {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Two servers, the second one a replica of the first, and three sentinels, of which two decide.
struct WatchedServers {
    servers: [TestRedis; 2],
    sentinels: Vec<TestSentinel>,
}

impl WatchedServers {
    fn start(down_after_ms: u32) -> Self {
        let servers = [TestRedis::plain(), TestRedis::plain()];
        let port = servers[0].port.to_string();
        assert_eq!(servers[1].cli(&["REPLICAOF", "127.0.0.1", &port]), "OK");
        wait_for("the replica to be in step", || {
            servers[1].cli(&["INFO", "replication"]).contains("master_link_status:up")
        });
        let sentinels =
            (0..3).map(|_| TestSentinel::start(&servers[0], 2, down_after_ms, "")).collect();
        let all = Self { servers, sentinels };
        wait_for("the sentinels to know all servers and each other", || all.are_in_step());
        all
    }

    fn are_in_step(&self) -> bool {
        let in_step = |sentinel: &TestSentinel| {
            sentinel.cli(&["INFO", "sentinel"]).contains("status=ok")
                && sentinel.cli(&["INFO", "sentinel"]).contains("slaves=1,sentinels=3")
        };
        self.sentinels.iter().all(in_step)
    }

    /// Whether the primary has a replica that is in step with it.
    fn has_replica(&self) -> bool {
        self.servers[self.primary()].cli(&["INFO", "replication"]).contains("state=online")
    }

    /// Names a port first where no sentinel is.
    fn options(&self) -> StoreOptions {
        let ports: Vec<_> =
            self.sentinels.iter().map(|s| format!("127.0.0.1:{}", s.port)).collect();
        StoreOptions::for_tests(format!("redis+sentinel://127.0.0.1:1,{}/main/0", ports.join(",")))
    }

    /// The server that the first sentinel names.
    fn primary(&self) -> usize {
        let answer = self.sentinels[0].cli(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main"]);
        let port = answer.lines().nth(1).unwrap_or_default();
        self.servers.iter().position(|server| server.port.to_string() == port).unwrap()
    }

    /// A planned failover, asked for again where it was given up.
    fn fail_over_to(&self, next: usize) {
        wait_for("the failover", || {
            let over = self.servers[next].cli(&["ROLE"]).starts_with("master");
            over || self.sentinels[0].cli(&["SENTINEL", "FAILOVER", "main"]).is_empty()
        });
    }

    /// A planned failover from a primary that never learns of it, as one that no sentinel reaches.
    fn fail_over_unknown_to(&self, old: &TestRedis) {
        assert_eq!(old.cli(&["ACL", "SETUSER", "default", "-replicaof", "-slaveof"]), "OK");
        self.fail_over_to(1);
        wait_for("the sentinels to name the new primary", || self.primary() == 1);
    }

    fn wait_for_promotion(&self, of: usize) -> Instant {
        wait_for("the promotion", || self.servers[of].cli(&["ROLE"]).starts_with("master"));
        Instant::now()
    }
}

/// The jids of the jobs that a server has in its queue and in flight.
fn jobs_of(server: &TestRedis) -> HashSet<String> {
    let mut text = server.cli(&["LRANGE", "queue:q", "0", "-1"]);
    for key in server.cli(&["KEYS", "chaton:inflight:*"]).lines() {
        text += "\n";
        text += &server.cli(&["HVALS", key]);
    }
    let jid = |line: &str| Some(line.split_once("\"jid\":\"")?.1.split('"').next()?.to_string());
    text.lines().filter_map(jid).collect()
}

/// Waits until the jobs run again, and how long that took; then adds the jobs that the new primary
/// had. Afterwards all of them must run.
fn runs_on(
    feed: &InstantFeed,
    pusher: &Pusher,
    promoted: Instant,
    primary: &TestRedis,
    had: &mut HashSet<String>,
) -> Duration {
    had.extend(jobs_of(primary));
    let (stored, ran) = (pusher.stored(), feed.ran());
    feed.wait_for("work on the new primary", || {
        pusher.stored() > stored + 50 && feed.ran() > ran + 50
    });
    promoted.elapsed()
}

#[test]
fn failovers_that_are_asked_for_are_followed_under_load() {
    // No failover is to happen by itself, which could lose jobs that a primary had.
    let all = WatchedServers::start(60_000);
    let (engine, feed) = start(all.options());
    let mut had = HashSet::new();
    let mut slowest = Duration::ZERO;
    Pusher::beside(&all.options(), |pusher| {
        for _ in 0..2 {
            let stored = pusher.stored();
            feed.wait_for("pushes", || pusher.stored() > stored + 50);
            // The former primary takes over all jobs first: Redis loses what its next primary does not have.
            wait_for("the replica to be in step", || all.are_in_step() && all.has_replica());
            let next = 1 - all.primary();
            all.fail_over_to(next);
            let promoted = Instant::now();
            let took = runs_on(&feed, pusher, promoted, &all.servers[next], &mut had);
            slowest = slowest.max(took);
        }
    });
    let last = all.primary();
    had.extend(jobs_of(&all.servers[last]));
    feed.wait_for("all jobs that the new primaries had", || had.is_subset(&feed.ran.lock()));
    println!("{} jobs, running again within {slowest:?}", feed.ran());
    engine.stop();
}

/// Each process connects anew, and so learns of the setting.
fn set_min_replicas(server: &TestRedis, number: &str) {
    assert_eq!(server.cli(&["CONFIG", "SET", "min-replicas-to-write", number]), "OK");
    server.cli(&["CLIENT", "KILL", "TYPE", "normal"]);
}

#[test]
fn nothing_that_was_confirmed_is_lost_in_a_failover_where_replicas_are_needed() {
    let rounds = if std::env::var_os("CHATON_SOAK").is_some() { 10 } else { 2 };
    let all = WatchedServers::start(60_000);
    let (engine, feed) = start(all.options());
    let (mut had, mut slowest) = (HashSet::new(), Duration::ZERO);
    let stored = Pusher::beside(&all.options(), |pusher| {
        for _ in 0..rounds {
            wait_for("the replica to be in step", || all.are_in_step() && all.has_replica());
            let old = all.primary();
            // The new one has no replica at first.
            set_min_replicas(&all.servers[old], "1");
            set_min_replicas(&all.servers[1 - old], "0");
            let stored = pusher.stored();
            feed.wait_for("pushes", || pusher.stored() > stored + 50);
            all.fail_over_to(1 - old);
            let promoted = Instant::now();
            let took = runs_on(&feed, pusher, promoted, &all.servers[1 - old], &mut had);
            slowest = slowest.max(took);
        }
    });
    feed.wait_for("all jobs that were confirmed", || stored.is_subset(&feed.ran.lock()));
    println!("{} jobs, none lost, running again within {slowest:?}", stored.len());
    engine.stop();
}

#[test]
fn primaries_that_are_killed_are_replaced_under_load() {
    let rounds = if std::env::var_os("CHATON_SOAK").is_some() { 10 } else { 1 };
    let mut all = WatchedServers::start(500);
    let (engine, feed) = start(all.options());
    let options = all.options();
    let mut had = HashSet::new();
    let stored = Pusher::beside(&options, |pusher| {
        for _ in 0..rounds {
            let stored = pusher.stored();
            feed.wait_for("pushes", || pusher.stored() > stored + 50);
            wait_for("the replica to be in step", || all.are_in_step() && all.has_replica());
            let old = all.primary();
            all.servers[old].kill();
            let killed = Instant::now();
            let promoted = all.wait_for_promotion(1 - old);
            let took = runs_on(&feed, pusher, promoted, &all.servers[1 - old], &mut had);
            println!("promoted within {:?}, running again within {took:?}", promoted - killed);
            wait_for("the sentinels to name the new primary", || all.primary() == 1 - old);
            all.servers[old].restart();
        }
    });
    had.extend(jobs_of(&all.servers[all.primary()]));
    feed.wait_for("all jobs that the new primaries had", || had.is_subset(&feed.ran.lock()));
    // What a primary had not given to its replica when it was killed is gone.
    let lost = stored.difference(&feed.ran.lock()).count();
    println!("{} jobs, {lost} lost", stored.len());
    engine.stop();
}

#[test]
fn calls_that_wait_for_a_hung_primary_end_when_it_is_replaced() {
    let all = WatchedServers::start(500);
    let mut options = all.options();
    // Without the sentinels' report the engine would wait for this long.
    options.answer_timeout = Duration::from_secs(300);
    options.connect_timeout = Duration::from_secs(300);
    let (engine, feed) = start(options.clone());
    push_one(&mut *open(&options).unwrap().store(), "first", None).unwrap();
    feed.wait_for("the first job", || feed.ran() == 1);
    let heartbeats = engine.stats().heartbeats;
    feed.wait_for("a heartbeat", || engine.stats().heartbeats > heartbeats);
    let old = all.primary();
    all.servers[old].pause();
    all.wait_for_promotion(1 - old);
    push_one(&mut *all.servers[1 - old].store(), "second", None).unwrap();
    feed.wait_for("the second job", || feed.ran.lock().contains("second"));
    all.servers[old].resume();
    engine.stop();
}

#[test]
fn a_client_alone_leaves_a_primary_that_does_not_learn_of_the_switch() {
    let all = WatchedServers::start(60_000);
    let [old, new] = &all.servers;
    Pusher::beside(&all.options(), |pusher| {
        wait_for("pushes", || pusher.stored() > 50);
        all.fail_over_unknown_to(old);
        let stored = pusher.stored();
        wait_for("pushes to the new primary", || {
            pusher.stored() > stored + 50 && !jobs_of(new).is_subset(&jobs_of(old))
        });
    });
    assert!(old.cli(&["ROLE"]).starts_with("master"));
}

#[test]
fn a_primary_that_refuses_for_want_of_replicas_is_left_when_another_is_named() {
    let all = WatchedServers::start(60_000);
    let [old, new] = &all.servers;
    // Such a process listens to no sentinel.
    let mut options = all.options();
    options.forks = true;
    let mut store = open(&options).unwrap().store();
    push_one(&mut *store, "first", None).unwrap();
    assert_eq!(old.cli(&["CONFIG", "SET", "min-replicas-to-write", "1"]), "OK");
    let mut refused = 0;
    assert_eq!(new.cli(&["REPLICAOF", "NO", "ONE"]), "OK");
    wait_for("a refusal", || {
        refused += usize::from(push_one(&mut *store, "refused", None).is_err());
        refused > 100
    });
    let asked = |sentinel: &TestSentinel| {
        let stats = sentinel.cli(&["INFO", "commandstats"]);
        let calls = stats.split("get-master-addr-by-name:calls=").nth(1).unwrap_or("0");
        calls.split(',').next().unwrap().parse::<usize>().unwrap()
    };
    let asked: usize = all.sentinels.iter().map(asked).sum();
    assert!(asked < refused / 2, "{asked} questions for {refused} refusals");
    let port = old.port.to_string();
    assert_eq!(new.cli(&["REPLICAOF", "127.0.0.1", &port]), "OK");
    wait_for("pushes", || push_one(&mut *store, "second", None).is_ok());
    wait_for("the sentinels to be in step", || all.are_in_step());
    all.fail_over_unknown_to(old);
    wait_for("a push", || push_one(&mut *store, "third", None).is_ok());
    assert!(jobs_of(new).contains("third") && !jobs_of(old).contains("third"));
}

#[test]
fn a_sentinel_that_cannot_help_is_named() {
    let server = TestRedis::plain();
    let sentinel = TestSentinel::start(&server, 1, 60_000, "requirepass hush");
    let mut options = sentinel.options();
    let refused = |options: &StoreOptions, part: &str| {
        let error = open(options).unwrap().store().stats().unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Refused, "{error}");
        assert!(error.message.contains(part) && !error.message.contains("hush"), "{error}");
    };
    refused(&options, "sentinel_password");
    options.sentinel_password = Some("hushed".into());
    refused(&options, "sentinel_password");
    options.sentinel_password = Some("hush".into());
    push_one(&mut *open(&options).unwrap().store(), "one", None).unwrap();
    refused(
        &StoreOptions { url: options.url.replace("/main", "/other"), ..options.clone() },
        "no primary \"other\"",
    );
    let plain = TestSentinel::start(&server, 1, 60_000, "");
    options.url = format!("redis://127.0.0.1:{}/0", plain.port);
    refused(&options, "redis+sentinel://");
    options.url = format!("redis+sentinel://127.0.0.1:{}/main", server.port);
    options.sentinel_password = None;
    refused(&options, "is it a sentinel");
    options.url = "redis+sentinel://127.0.0.1:1/main".into();
    let error = open(&options).unwrap().store().stats().unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
}

#[test]
fn a_failover_is_followed_when_all_connections_are_encrypted() {
    let dir = tempfile::tempdir().unwrap();
    let (first, first_port) = start_tls(dir.path(), "yes");
    let (second, second_port) = start_tls_server(dir.path(), "yes");
    assert_eq!(second.cli(&["REPLICAOF", "127.0.0.1", &first_port.to_string()]), "OK");
    let port = Cell::new(0);
    let sentinel = TestSentinel::of(first_port, 1, 60_000, || {
        port.set(free_port());
        let settings = tls_settings(dir.path(), port.get(), "yes");
        settings.iter().map(|(name, value)| format!("{name} {value}\n")).collect()
    });
    let port = port.get();

    let path = |name: &str| Some(dir.path().join(name).to_str().unwrap().to_string());
    let plain = StoreOptions::for_tests(format!("redis+sentinel://localhost:{port}/main"));
    assert!(open(&plain).unwrap().store().stats().is_err(), "the sentinel's port is encrypted");
    let mut options = StoreOptions::for_tests(format!("rediss+sentinel://localhost:{port}/main"));
    options.tls_ca_file = path("ca.pem");
    assert!(open(&options).unwrap().store().stats().is_err(), "no certificate was shown");
    (options.tls_cert_file, options.tls_key_file) = (path("s.pem"), path("s.key"));

    let mut store = open(&options).unwrap().store();
    push(&mut *store, "q", &[b"1"]);
    assert_eq!(first.cli(&["LLEN", "queue:q"]), "1");
    wait_for("the replica to be known and in step", || {
        sentinel.cli(&["INFO", "sentinel"]).contains("slaves=1,")
            && second.cli(&["LLEN", "queue:q"]) == "1"
    });
    wait_for("the failover", || {
        let over = second.cli(&["ROLE"]).starts_with("master");
        over || sentinel.cli(&["SENTINEL", "FAILOVER", "main"]).is_empty()
    });
    // The old primary refuses writes as soon as it is a replica.
    wait_for("the sentinel to name the new primary", || {
        let named = sentinel.cli(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main"]);
        named.ends_with(&second_port.to_string()) && first.cli(&["ROLE"]).starts_with("slave")
    });
    push(&mut *store, "q", &[b"2"]);
    assert_eq!(second.cli(&["LLEN", "queue:q"]), "2");
    let claimed = claim(&mut *store, "owner", &["q"], 2, 1).unwrap();
    assert_eq!(claimed.jobs.len(), 2);
}
