//! The processes of one supervisor share a connection to PostgreSQL that listens, and their heartbeats. Here the test is
//! the supervisor.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::postgres_server::TestPostgres;
use crate::redis_engine::{config, push_one};
use chaton_core::engine::{Engine as _, Feed};
use chaton_jobs::engine::{Engine, Job};
use chaton_jobs::outcome::Outcome;
use chaton_jobs::store::{open, Store, StoreOptions};
use parking_lot::Mutex;

/// With this variable, an address, a test process is one of a tree.
const MEMBER: &str = "CHATON_TEST_TREE_MEMBER";
/// With this one, too, it is the supervisor of so many.
const TREE: &str = "CHATON_TEST_TREE";
/// So long statements are counted, `BEGIN`, `SET` and `COMMIT` among them: all that is done twice a minute is done once.
const COUNTED: Duration = Duration::from_secs(30);
/// Longest wait for a condition.
const WAIT: Duration = Duration::from_secs(60);

fn options(url: &str) -> StoreOptions {
    StoreOptions { lease: Duration::from_secs(15), ..StoreOptions::for_tests(url) }
}

/// Runs each job at once and writes its jid.
struct Printed;

impl Feed<Job> for Printed {
    fn submit(&self, job: Arc<Job>) -> Result<(), Arc<Job>> {
        job.start(0);
        println!("\nran {}", job.document().jid());
        job.finish(Outcome::Ack);
        Ok(())
    }
    fn idle_threads(&self) -> usize {
        4
    }
    fn warn(&self, line: &str) {
        eprintln!("{line}");
    }
}

/// The program of a member: it runs jobs until its input ends.
#[test]
fn is_a_member_if_it_is_asked_to_be() {
    let Ok(url) = std::env::var(MEMBER) else { return };
    if let Ok(count) = std::env::var(TREE) {
        let _members = Members::start(&url, count.parse().unwrap());
        drop(std::io::stdin().lines().next());
        return;
    }
    let mut config = config(options(&url));
    config.supervised = true;
    config.heartbeat = Duration::from_secs(3);
    let factory = open(&config.store).unwrap();
    let engine = Engine::start(config, &factory, Arc::new(Printed)).unwrap();
    drop(std::io::stdin().lines().next());
    engine.stop();
}

/// When each job ran first.
type Ran = Arc<Mutex<HashMap<String, Instant>>>;

struct Members {
    url: String,
    children: Vec<Child>,
    ran: Ran,
}

impl Members {
    fn start(url: &str, count: usize) -> Self {
        let mut all = Self { url: url.into(), children: vec![], ran: Ran::default() };
        (0..count).for_each(|_| all.add());
        all
    }

    fn add(&mut self) {
        self.add_tree(None);
    }

    /// A member, or the supervisor of so many.
    fn add_tree(&mut self, count: Option<usize>) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["postgres_tree::is_a_member_if_it_is_asked_to_be", "--exact", "--nocapture"]);
        command.env(MEMBER, &self.url).env_remove(TREE);
        command.envs(count.map(|count| (TREE, count.to_string())));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (output, ran) = (BufReader::new(child.stdout.take().unwrap()), self.ran.clone());
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if let Some(jid) = line.strip_prefix("ran ") {
                    ran.lock().entry(jid.into()).or_insert_with(Instant::now);
                }
            }
        });
        self.children.push(child);
    }

    /// Which of them has the socket of the tree.
    fn leader(&self) -> Option<usize> {
        let sockets = std::fs::read_to_string("/proc/net/unix").unwrap();
        // Flags: it listens.
        let listens = |line: &&str| line.contains("@chaton-jobs-") && line.contains(" 00010000 ");
        let inodes: Vec<String> = sockets
            .lines()
            .filter(listens)
            .filter_map(|line| Some(format!("socket:[{}]", line.split_whitespace().nth(6)?)))
            .collect();
        self.children.iter().position(|child| {
            let files = std::fs::read_dir(format!("/proc/{}/fd", child.id())).unwrap();
            let links = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
            links
                .into_iter()
                .any(|link| inodes.iter().any(|inode| link.as_os_str() == inode.as_str()))
        })
    }

    fn wait_for_leader(&self) -> usize {
        let mut found = None;
        wait_for("one leads", || {
            found = self.leader();
            found.is_some()
        });
        found.unwrap()
    }

    fn kill(&mut self, index: usize) {
        let mut child = self.children.swap_remove(index);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Pushes a job and returns how long it took until it ran.
    fn time(&self, store: &mut dyn Store, jid: &str) -> Duration {
        push_one(store, jid, None).unwrap();
        let began = Instant::now();
        let mut at = None;
        wait_for(jid, || {
            at = self.ran.lock().get(jid).copied();
            at.is_some()
        });
        at.unwrap().saturating_duration_since(began)
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        while !self.children.is_empty() {
            self.kill(0);
        }
    }
}

fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < WAIT, "{what}: waited too long");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn signal(child: &Child, signal: &str) {
    let sent = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

#[test]
fn twenty_idle_processes_send_two_statements_a_second_and_twenty_more_one() {
    let server = TestPostgres::start(&[
        "-c",
        "fsync=off",
        "-c",
        "shared_preload_libraries=pg_stat_statements",
    ]);
    let database = server.database();
    let ask = |sql: &str| server.psql(&database, sql).unwrap();
    ask("CREATE EXTENSION pg_stat_statements");
    let mut members = Members::start(&server.url(&database), 20);
    members.wait_for_leader();
    let rate = |trees: u32| {
        let owners = (20 * trees).to_string();
        wait_for("all are there", || {
            server.psql(&database, "SELECT count(*) FROM chaton.owners") == Some(owners.clone())
        });
        // Connections of the begin are closed after a while: one for each remains, and one of each tree that listens.
        let own = format!("SELECT count(*) FROM pg_stat_activity WHERE datname='{database}'");
        wait_for("few connections", || ask(&own).parse::<u32>().unwrap() <= 21 * trees + 1);
        ask("SELECT pg_stat_statements_reset()");
        let began = Instant::now();
        std::thread::sleep(COUNTED);
        let sql = "SELECT calls, left(query, 80) FROM pg_stat_statements WHERE query NOT LIKE '%pg_stat_%'
            ORDER BY 1 DESC";
        let found = ask(sql);
        let calls = found.lines().filter_map(|line| line.split_once('|')?.0.parse::<f64>().ok());
        let all = calls.sum::<f64>() / began.elapsed().as_secs_f64();
        println!("{trees} trees of 20 idle processes: {all:.2} statements/s\n{found}");
        (all, found)
    };
    let (one, found) = rate(1);
    assert!(one <= 2.0, "{one}: {found}");
    members.add_tree(Some(20));
    let (two, found) = rate(2);
    assert!(two <= one + 1.0, "{two} after {one}: {found}");
}

#[test]
fn no_job_is_lost_when_the_process_that_leads_is_killed() {
    let server = TestPostgres::shared();
    let url = server.url(&server.database());
    let mut members = Members::start(&url, 4);
    let mut store = open(&options(&url)).unwrap().store();
    let rounds = if std::env::var_os("CHATON_SOAK").is_some() { 40 } else { 5 };
    let mut times = Vec::new();
    for round in 0..rounds {
        let leader = members.wait_for_leader();
        for number in 0..20 {
            times.push(members.time(&mut *store, &format!("{round}.{number}")));
        }
        for number in 0..50 {
            push_one(&mut *store, &format!("{round}.{number} at once"), None).unwrap();
            if number == 25 {
                members.kill(leader);
                members.add();
            }
        }
    }
    let all = rounds * 70;
    wait_for("all jobs", || members.ran.lock().len() == all);
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    println!("push to start: median {:?}, p99 {:?}, {:?}", at(0.5), at(0.99), at(1.0));
    assert!(at(0.5) < Duration::from_millis(200), "it is not told: {times:?}");
}

#[test]
fn the_others_go_on_without_a_process_that_leads_and_is_stopped() {
    let server = TestPostgres::shared();
    let url = server.url(&server.database());
    let members = Members::start(&url, 3);
    let mut store = open(&options(&url)).unwrap().store();
    members.time(&mut *store, "first");
    let leader = members.wait_for_leader();
    signal(&members.children[leader], "-STOP");
    let began = Instant::now();
    let first = members.time(&mut *store, "stopped");
    wait_for("both listen", || {
        members.time(&mut *store, &format!("{:?}", began.elapsed())) < Duration::from_millis(100)
    });
    println!("a job after the stop: {first:?}; as before after {:?}", began.elapsed());
    let owners = open(&options(&url)).unwrap().store().owners().unwrap();
    let alive = owners.iter().filter(|owner| owner.heartbeat_age < options(&url).lease).count();
    assert!(alive >= 2, "the others have leases of their own");
    wait_for("it is taken for dead", || store.owners().unwrap().len() == 2);
    signal(&members.children[leader], "-CONT");
    wait_for("it is back", || store.owners().unwrap().len() == 3);
}
