//! A redis-server for one test, killed when it is dropped.

pub mod tls;

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use chaton_jobs::store::{
    open, Ack, ClaimReply, ClaimRequest, ClaimedJob, NewJob, Outcome, PushResult, Store,
    StoreFactory, StoreOptions,
};

/// Longest wait for a condition.
pub const WAIT: Duration = Duration::from_secs(20);

/// Tries with other ports.
pub const TRIES: usize = 5;

pub struct TestRedis {
    child: Child,
    pub dir: tempfile::TempDir,
    pub port: u16,
    args: Vec<String>,
}

impl TestRedis {
    /// Starts a server with further arguments and waits until it replies.
    pub fn start(args: &[&str]) -> Self {
        Self::start_by(|| args.iter().map(|arg| arg.to_string()).collect())
    }

    /// The same with arguments that are made anew for each try: another process may take a free port
    /// before the server does.
    pub fn start_by(args: impl Fn() -> Vec<String>) -> Self {
        for _ in 0..TRIES {
            let dir = tempfile::tempdir().unwrap();
            let (port, args) = (free_port(), args());
            let child = spawn(dir.path(), port, &args);
            let mut server = Self { child, dir, port, args };
            wait_for("the server to answer", || server.is_ready() || server.has_ended());
            if !server.has_ended() {
                return server;
            }
            let log = std::fs::read_to_string(server.dir.path().join("log")).unwrap();
            assert!(log.contains("already in use"), "the server has ended; it wrote:\n{log}");
        }
        panic!("no free port in {TRIES} tries");
    }

    /// Keeps nothing on the disk.
    pub fn plain() -> Self {
        Self::start(&[])
    }

    /// Writes to the disk before each reply.
    pub fn durable() -> Self {
        Self::start(&["--appendonly", "yes", "--appendfsync", "always"])
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.port)
    }

    pub fn options(&self) -> StoreOptions {
        let mut options = StoreOptions::for_tests(self.url());
        options.answer_timeout = Duration::from_secs(2);
        options
    }

    pub fn factory(&self) -> Arc<dyn StoreFactory> {
        open(&self.options()).unwrap()
    }

    pub fn store(&self) -> Box<dyn Store> {
        self.factory().store()
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again after [`TestRedis::kill`], on the same port and files.
    pub fn restart(&mut self) {
        self.child = spawn(self.dir.path(), self.port, &self.args);
        wait_for("the server to answer", || self.is_ready());
    }

    pub fn pause(&self) {
        // SAFETY: our own child, which lives.
        assert_eq!(unsafe { libc::kill(self.pid(), libc::SIGSTOP) }, 0);
    }

    pub fn resume(&self) {
        // SAFETY: our own child, which lives.
        assert_eq!(unsafe { libc::kill(self.pid(), libc::SIGCONT) }, 0);
    }

    /// Runs `redis-cli` and returns its output.
    pub fn cli(&self, words: &[&str]) -> String {
        let output = Command::new("redis-cli")
            .args(["-s", &self.socket(), "--no-auth-warning"])
            .args(words)
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).trim_end().to_string()
    }

    /// Calls of scripts so far. Engines that are idle call them to claim only.
    pub fn script_calls(&self) -> usize {
        let stats = self.cli(&["INFO", "commandstats"]);
        let calls = stats.split_once("cmdstat_evalsha:calls=").map_or("0", |(_, rest)| rest);
        calls.split(',').next().unwrap().parse().unwrap()
    }

    pub fn socket(&self) -> String {
        self.dir.path().join("s").to_str().unwrap().to_string()
    }

    fn is_ready(&self) -> bool {
        let answer = self.cli(&["PING"]);
        answer == "PONG" || answer.contains("NOAUTH")
    }

    fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }
}

impl Drop for TestRedis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port of the loopback that is free now.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The server that is tested: `CHATON_TEST_REDIS_SERVER`, or the installed one.
pub fn redis_server() -> Command {
    let path = std::env::var_os("CHATON_TEST_REDIS_SERVER");
    Command::new(path.unwrap_or_else(|| "redis-server".into()))
}

fn spawn(dir: &Path, port: u16, args: &[String]) -> Child {
    redis_server()
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""])
        .args(["--unixsocket", dir.join("s").to_str().unwrap(), "--daemonize", "no"])
        .args(["--dir", dir.to_str().unwrap(), "--maxmemory-policy", "noeviction"])
        .args(args)
        .stdout(std::fs::File::create(dir.join("log")).unwrap())
        .stderr(Stdio::null())
        .spawn()
        .expect("redis-server must be installed")
}

/// Waits for a condition.
pub fn wait_for(what: &str, condition: impl FnMut() -> bool) {
    wait_within(WAIT, what, condition);
}

/// Waits for a condition, for some time at most.
pub fn wait_within(limit: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + limit;
    loop {
        let looked = Instant::now();
        if condition() {
            return;
        }
        assert!(Instant::now() < deadline, "waited too long for {what}");
        // A look may start `redis-cli`.
        std::thread::sleep(4 * looked.elapsed() + Duration::from_millis(5));
    }
}

pub fn job<'a>(queue: &'a str, payload: &'a [u8]) -> NewJob<'a> {
    NewJob { queue, payload, at: None, lock: None, bid: None }
}

pub fn push(store: &mut dyn Store, queue: &str, payloads: &[&[u8]]) {
    let jobs: Vec<NewJob<'_>> = payloads.iter().map(|payload| job(queue, payload)).collect();
    assert!(store.push(&jobs).unwrap().iter().all(|pushed| *pushed == PushResult::Stored));
}

pub fn done(claimed: &ClaimedJob) -> Ack {
    settle(claimed, Outcome::Ack)
}

pub fn settle(claimed: &ClaimedJob, outcome: Outcome) -> Ack {
    Ack { ticket: claimed.ticket, queue: claimed.queue.clone(), outcome, effects: None }
}

pub fn claim(
    store: &mut dyn Store,
    owner: &str,
    queues: &[&str],
    count: usize,
    first_ticket: u64,
) -> chaton_jobs::store::Result<ClaimReply> {
    let queues: Vec<Arc<str>> = queues.iter().map(|queue| Arc::from(*queue)).collect();
    store.claim(owner, &ClaimRequest { queues: &queues, count, first_ticket })
}
