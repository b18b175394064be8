//! The conformance suite, each case on a server of its own.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::store::conformance::conformance;
use crate::store::*;

/// Longest time a server takes to start.
const START: Duration = Duration::from_secs(20);

/// A store whose server ends when it is dropped.
struct RedisServerStore {
    factory: Arc<dyn StoreFactory>,
    child: Child,
    _dir: tempfile::TempDir,
}

impl StoreFactory for RedisServerStore {
    fn store(&self) -> Box<dyn Store> {
        self.factory.store()
    }

    fn watch(&self) -> Box<dyn StoreWatch> {
        self.factory.watch()
    }

    fn address(&self) -> &str {
        self.factory.address()
    }
}

impl Drop for RedisServerStore {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The commands that the docs allow, for every key.
fn commands() -> Vec<&'static str> {
    let page = include_str!("../../../../../docs/JOBS.md");
    let rules = page.split_once("ACL SETUSER chaton").unwrap().1.split_once("```").unwrap().0;
    rules.split_whitespace().filter(|word| word.starts_with('+')).collect()
}

fn fresh() -> Arc<dyn StoreFactory> {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let server = std::env::var_os("CHATON_TEST_REDIS_SERVER");
    let child = Command::new(server.unwrap_or_else(|| "redis-server".into()))
        .args(["--port", "0", "--save", "", "--unixsocket", socket.to_str().unwrap()])
        .args(["--dir", dir.path().to_str().unwrap()])
        .args(["--user", "least", "on", ">pw", "~*"])
        .args(commands())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("redis-server must be installed");
    let url = format!("unix://{}?db=0&user=least&pass=pw", socket.display());
    let factory = Arc::new(RedisServerStore {
        factory: open(&StoreOptions::for_tests(url)).unwrap(),
        child,
        _dir: dir,
    });
    let began = Instant::now();
    while factory.store().stats().is_err() {
        assert!(began.elapsed() < START, "redis-server does not start");
        std::thread::sleep(Duration::from_millis(2));
    }
    factory
}

conformance!(fresh);
