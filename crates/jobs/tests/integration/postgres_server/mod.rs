//! A PostgreSQL server for tests, in a folder of its own, by Debian's programs or those in the folder that
//! `CHATON_TEST_POSTGRES` names. It ends with the process that started it, however that ends.

#![allow(dead_code, reason = "the unit tests and the tests of servers use a part each")]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Longest wait for the server.
const WAIT: Duration = Duration::from_secs(60);

/// A server.
pub struct TestPostgres {
    wrapper: Child,
    pub folder: PathBuf,
    settings: Vec<String>,
}

/// An open transaction.
pub struct Transaction(Child);

impl Transaction {
    /// Runs further statements, then ends the session.
    pub fn run(mut self, sql: &str) {
        let mut input = self.0.stdin.take().unwrap();
        writeln!(input, "{sql};").unwrap();
        drop(input);
        assert!(self.0.wait().unwrap().success(), "{sql}");
    }
}

/// Starts the server and waits for a line or the end of its input, which comes with the end of the tests.
const WRAPPER: &str = r#"
bin=$1; folder=$2; make_data=$3; shift 3; cd /
eval "$make_data" >>"$folder/log" 2>&1
"$bin/postgres" -D "$folder/data" -k "$folder" -c listen_addresses= -c max_connections=300 "$@" >>"$folder/log" 2>&1 </dev/null &
pid=$!
read end
kill -QUIT $pid; wait $pid
[ "$end" = keep ] || rm -rf "$folder"
"#;

/// Makes the folder `data` if it is not there.
const MAKE_DATA: &str = include_str!("../../../../../test/support/postgres_data.sh");

fn programs() -> PathBuf {
    if let Some(folder) = std::env::var_os("CHATON_TEST_POSTGRES") {
        return folder.into();
    }
    let versions =
        std::fs::read_dir("/usr/lib/postgresql").expect("PostgreSQL is not installed: bin/setup");
    let mut found: Vec<PathBuf> = versions.map(|one| one.unwrap().path().join("bin")).collect();
    found.retain(|folder| folder.join("postgres").exists());
    found.sort();
    found.pop().expect("PostgreSQL is not installed: bin/setup")
}

impl TestPostgres {
    /// The server of this test program, which loses its data if the machine does.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<TestPostgres> = OnceLock::new();
        SHARED.get_or_init(|| Self::start(&["-c", "fsync=off"]))
    }

    /// A server of its own with further arguments.
    pub fn start(settings: &[&str]) -> Self {
        let folder = scratch();
        let settings: Vec<String> = settings.iter().map(|one| one.to_string()).collect();
        let wrapper = spawn(&folder, &settings);
        let server = Self { wrapper, folder, settings };
        server.wait_until_ready();
        server
    }

    /// That of its arguments.
    fn port(&self) -> &str {
        let given = self.settings.iter().find_map(|setting| setting.strip_prefix("port="));
        given.unwrap_or("5432")
    }

    fn wait_until_ready(&self) {
        let began = Instant::now();
        while self.psql("postgres", "SELECT 1").as_deref() != Some("1") {
            let log = || std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            assert!(began.elapsed() < WAIT, "the server does not answer; it wrote:\n{}", log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// What a statement answers; `None` if it fails.
    pub fn psql(&self, database: &str, sql: &str) -> Option<String> {
        let run = Command::new(programs().join("psql"))
            .args(["-XAtq", "-U", "postgres", "-d", database, "-c", sql, "-p", self.port(), "-h"])
            .arg(&self.folder)
            .stderr(Stdio::null())
            .output()
            .unwrap();
        run.status.success().then(|| String::from_utf8_lossy(&run.stdout).trim().to_string())
    }

    /// A session of its own that runs these statements.
    pub fn session(&self, database: &str, sql: &str) -> Child {
        let mut command = Command::new(programs().join("psql"));
        command
            .args(["-XAtq", "-U", "postgres", "-d", database, "-c", sql, "-h"])
            .arg(&self.folder);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// A session with a transaction in which these statements have run.
    pub fn transaction(&self, database: &str, sql: &str) -> Transaction {
        let mut psql = Command::new(programs().join("psql"))
            .args(["-XAtq", "-U", "postgres", "-d", database, "-p", self.port(), "-h"])
            .arg(&self.folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        writeln!(psql.stdin.as_mut().unwrap(), "BEGIN; {sql}; SELECT 'there';").unwrap();
        let mut lines = BufReader::new(psql.stdout.as_mut().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap() == "there"), "{sql}");
        Transaction(psql)
    }

    /// A new empty database.
    pub fn database(&self) -> String {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let name = format!("t{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let began = Instant::now();
        // Another one may be copying the template just now.
        while self.psql("postgres", &format!("CREATE DATABASE {name}")).is_none() {
            assert!(began.elapsed() < WAIT, "no database could be made");
            std::thread::sleep(Duration::from_millis(20));
        }
        name
    }

    pub fn drop_database(&self, name: &str) {
        self.psql("postgres", &format!("DROP DATABASE {name} WITH (FORCE)"));
    }

    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@/{database}?host={}", self.folder.display())
    }

    /// Kills it as `pg_ctl -m immediate` does, and starts it again.
    pub fn crash(&mut self) {
        self.stop();
        self.wrapper = spawn(&self.folder, &self.settings);
        self.wait_until_ready();
    }

    /// The same after a commit that waits for the disk, so that no claim before it is lost.
    pub fn crash_after_a_flush(&mut self) {
        self.psql("postgres", "CREATE TABLE IF NOT EXISTS flushed(); DROP TABLE flushed").unwrap();
        self.crash();
    }

    /// A server with TLS at `localhost` and this port, and the files of [`certificates`](super::redis_server::tls).
    pub fn start_tls(dir: &Path, port: u16) -> Self {
        if is_root() {
            let owned = Command::new("chown").arg("-R").arg("postgres").arg(dir).status().unwrap();
            assert!(owned.success());
        }
        let file = |name: &str| dir.join(name).display().to_string();
        let [cert, key] = [("cert", file("s.pem")), ("key", file("s.key"))]
            .map(|(name, path)| format!("ssl_{name}_file={path}"));
        let port = format!("port={port}");
        let all = ["listen_addresses=localhost", &port, "ssl=on", &cert, &key];
        Self::start(&all.map(|one| ["-c", one]).concat())
    }

    /// A standby that streams from it.
    pub fn standby(&self) -> Self {
        let folder = scratch();
        let mut copy = as_user(programs().join("pg_basebackup").to_str().unwrap());
        copy.arg("-D").arg(folder.join("data")).args(["-U", "postgres", "-R", "-c", "fast", "-h"]);
        assert!(copy.arg(&self.folder).current_dir("/").status().unwrap().success());
        let settings = self.settings.clone();
        let server = Self { wrapper: spawn(&folder, &settings), folder, settings };
        server.wait_until_ready();
        server
    }

    /// Ends it at once; it recovers at the next start.
    pub fn stop(&mut self) {
        if let Some(mut input) = self.wrapper.stdin.take() {
            writeln!(input, "keep").unwrap();
        }
        self.wrapper.wait().unwrap();
    }

    pub fn start_again(&mut self) {
        self.wrapper = spawn(&self.folder, &self.settings);
        self.wait_until_ready();
    }
}

/// PgBouncer in transaction mode before a server, at a socket of its own.
pub struct TestPgBouncer {
    child: Option<Child>,
    pub folder: PathBuf,
}

impl TestPgBouncer {
    pub fn start(server: &TestPostgres) -> Self {
        let folder = scratch();
        let shown = folder.display();
        let settings = format!(
            "[databases]\n* = host={} port={}\n[pgbouncer]\nlisten_port = 5432\nunix_socket_dir = {shown}\n\
             auth_type = any\npool_mode = transaction\ndefault_pool_size = 3\nlogfile = {shown}/log\n",
            server.folder.display(),
            server.port()
        );
        // It always connects as this user.
        let settings = settings.replace("port=5432\n", "port=5432 user=postgres\n");
        std::fs::write(folder.join("settings"), settings).unwrap();
        let mut bouncer = Self { child: None, folder };
        bouncer.start_again();
        bouncer
    }

    pub fn start_again(&mut self) {
        let mut command = as_user("/usr/sbin/pgbouncer");
        command.arg("-q").arg(self.folder.join("settings")).current_dir("/");
        command.stdout(Stdio::null()).stderr(Stdio::null());
        self.child = Some(command.spawn().expect("pgbouncer is not installed: bin/setup"));
    }

    /// Ends it as `kill -9` does; its clients lose their connections.
    pub fn kill(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        child.kill().unwrap();
        child.wait().unwrap();
        let _ = std::fs::remove_file(self.folder.join(".s.PGSQL.5432"));
    }

    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@/{database}?host={}", self.folder.display())
    }
}

impl Drop for TestPgBouncer {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A small file system in memory for the server's files. Only root may mount it.
pub struct SmallDisk {
    pub folder: PathBuf,
}

impl SmallDisk {
    pub fn mount(megabytes: u32) -> Self {
        let disk = Self { folder: scratch() };
        disk.run("mount", &["-t", "tmpfs", "-o", &format!("size={megabytes}m"), "tmpfs"]);
        disk.run("chown", &["postgres"]);
        disk
    }

    pub fn resize(&self, megabytes: u32) {
        self.run("mount", &["-o", &format!("remount,size={megabytes}m")]);
    }

    fn run(&self, program: &str, words: &[&str]) {
        let done = Command::new(program).args(words).arg(&self.folder).status().unwrap();
        assert!(done.success(), "{program} {words:?}");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.folder).status();
        let _ = std::fs::remove_dir(&self.folder);
    }
}

fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    status.lines().any(|line| line.starts_with("Uid:\t0\t"))
}

/// A new folder of the server's user.
fn scratch() -> PathBuf {
    let folder = tempfile::Builder::new().prefix("chaton-pg").tempdir_in("/tmp").unwrap().keep();
    if is_root() {
        let owned = Command::new("chown").arg("postgres").arg(&folder).status().unwrap();
        assert!(owned.success());
    }
    folder
}

/// A program that runs as a user who is not root.
fn as_user(program: &str) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    // It becomes the program, so that the pid is that of the program.
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", program]);
    command
}

fn spawn(folder: &Path, settings: &[String]) -> Child {
    let mut command = as_user("sh");
    command.args(["-c", WRAPPER, "sh"]).arg(programs()).arg(folder).arg(MAKE_DATA).args(settings);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

impl Drop for TestPostgres {
    fn drop(&mut self) {
        self.stop();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
