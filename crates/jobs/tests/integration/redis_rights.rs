//! A user of Redis with exactly the rights that docs/JOBS.md lists, and with fewer.

use std::time::Duration;

use crate::redis_engine::{push_one, start};
use crate::redis_server::{job, TestRedis};
use chaton_core::engine::Engine as _;
use chaton_jobs::store::{open, NewBatch, NewJob, NewLock, StoreErrorKind, StoreOptions};

/// Rights without which a worker starts.
const OPTIONAL: [&str; 3] = ["+client|tracking", "+info", "+wait"];
/// Rights without which no connection is made. The server's errors name the command only, those of
/// Redis 6.2 without its subcommand.
const CONNECTING: [&str; 2] = ["+select", "+script|load"];

/// The rules of the docs, without the user's name and password.
fn rules() -> Vec<&'static str> {
    let page = include_str!("../../../../docs/JOBS.md");
    let line = page.split_once("ACL SETUSER chaton on >password").unwrap().1;
    line.split_once("```").unwrap().0.split_whitespace().collect()
}

fn options(server: &TestRedis, rules: &[&str]) -> StoreOptions {
    let user = ["ACL", "SETUSER", "least", "reset", "on", ">pw"];
    assert_eq!(server.cli(&[&user[..], rules].concat()), "OK");
    StoreOptions::for_tests(format!("redis://least:pw@127.0.0.1:{}/0", server.port))
}

#[test]
fn the_listed_rights_suffice_for_a_worker_and_its_clients() {
    let server = TestRedis::plain();
    let options = options(&server, &rules());
    let (engine, feed) = start(options.clone());
    let mut client = open(&options).unwrap().store();
    push_one(&mut *client, "now", None).unwrap();
    push_one(&mut *client, "due", Some(chaton_core::clock::wall_s() + 0.1)).unwrap();
    let ttl = Duration::from_secs(100);
    let document = |jid: &str| format!(r#"{{"class":"A","args":[],"jid":"{jid}","queue":"q"}}"#);
    let batch = NewBatch {
        bid: "b",
        parent: None,
        owner: "",
        description: "",
        callbacks: &[],
        ttl,
        now_s: chaton_core::clock::wall_s(),
    };
    client.batch_open(&batch).unwrap();
    let payload = document("special");
    let lock = Some(NewLock { key: "k", jid: "special", ttl });
    client.push(&[NewJob { lock, bid: Some("b"), ..job("q", payload.as_bytes()) }]).unwrap();
    client.batch_close("b").unwrap();
    client.save("it-now", &[("c", b"1")], ttl).unwrap();
    client.load("it-now").unwrap();
    client.cancel("none").unwrap();
    feed.wait_for("the jobs", || feed.ran() == 3);
    client.stats().unwrap();
    client.queues().unwrap();
    feed.wait_for("the process to be shown", || client_sees_a_process(&options));
    engine.stop();
    assert_eq!(feed.lines_with("NOPERM"), 0);
}

fn client_sees_a_process(options: &StoreOptions) -> bool {
    !open(options).unwrap().store().processes().unwrap().is_empty()
}

#[test]
fn each_missing_right_is_named_at_the_start() {
    let server = TestRedis::plain();
    let all = rules();
    for missing in all.iter().filter(|rule| rule.starts_with(['+', '~'])) {
        let fewer: Vec<_> = all.iter().copied().filter(|rule| rule != missing).collect();
        let options = options(&server, &fewer);
        let probed = open(&options).unwrap().store().probe();
        if OPTIONAL.contains(missing) {
            probed.unwrap();
            continue;
        }
        let error = probed.expect_err(missing);
        assert_eq!(error.kind, StoreErrorKind::Refused, "{missing}: {error}");
        let command = missing[1..].split('|').next().unwrap();
        let name = if CONNECTING.contains(missing) { command } else { missing };
        assert!(error.message.contains(name), "{missing}: {error}");
        assert!(error.message.contains("ACL SETUSER"), "{missing}: {error}");
    }
    assert_eq!(server.cli(&["DBSIZE"]), "0", "the check changes nothing");
}
