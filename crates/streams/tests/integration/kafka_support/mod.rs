//! A real broker for the tests of Kafka: the one that `CHATON_TEST_KAFKA`
//! (`host:port`) names, else one of this test binary, started when it is first
//! asked for and ended with it. See `test/support/kafka/broker`.

pub mod proxy;

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use chaton_streams::log::conformance::fixture::LogFixture;
use chaton_streams::log::{open, RecordLog};
use chaton_streams::settings::{GroupSettings, LogSettings};
use tempfile::TempDir;

/// Ports tried, as another process may take a free one before Kafka does.
const TRIES: usize = 5;

/// A broker of its own, ended when it is dropped.
pub struct Broker {
    dir: TempDir,
    port: u16,
    options: Vec<String>,
}

/// Ports of a broker's other listeners.
#[derive(Clone, Copy)]
pub struct SecureListeners {
    /// With SASL.
    pub sasl: u16,
    /// With TLS.
    pub tls: u16,
    /// With both.
    pub both: u16,
}

impl Broker {
    /// Starts one.
    pub fn start() -> Self {
        Self::with(|_| Vec::new()).0
    }

    /// One with a setting of `server.properties`.
    pub fn set(setting: &str) -> Self {
        Self::with(|_| vec!["--set".into(), setting.into()]).0
    }

    /// One that clients reach through this port.
    pub fn behind(port: u16) -> Self {
        Self::set(&format!("advertised.listeners=PLAINTEXT://127.0.0.1:{port}"))
    }

    /// One with listeners that want credentials.
    pub fn secured() -> (Self, SecureListeners) {
        let (broker, ports) = Self::with(|ports| {
            let names = ["--sasl", "--tls", "--sasl-tls"];
            names.iter().zip(ports).flat_map(|(n, p)| [(*n).into(), p.to_string()]).collect()
        });
        (broker, SecureListeners { sasl: ports[0], tls: ports[1], both: ports[2] })
    }

    fn with(options: impl Fn(&[u16]) -> Vec<String>) -> (Self, Vec<u16>) {
        for _ in 0..TRIES {
            let mut ports = free_ports(5);
            let (port, controller) = (ports.remove(0), ports.remove(0));
            let mut options = options(&ports);
            options.extend(["--controller".into(), controller.to_string()]);
            let broker = Self { dir: TempDir::new().unwrap(), port, options };
            if broker.launch() {
                return (broker, ports);
            }
        }
        panic!("no free ports for Kafka in {TRIES} tries");
    }

    /// Starts it again, on the same ports and data.
    pub fn again(&self) {
        assert!(self.launch(), "the ports of the broker were taken");
    }

    /// False when a port is taken.
    fn launch(&self) -> bool {
        let own = std::process::id().to_string();
        let end = Command::new(script())
            .arg("start")
            .arg(self.dir.path())
            .args([&self.port.to_string(), "--while", &own])
            .args(&self.options)
            .output()
            .unwrap();
        let output = String::from_utf8_lossy(&end.stderr);
        let taken = output.contains("Address already in use");
        assert!(end.status.success() || taken, "{output}");
        end.status.success()
    }

    /// Kills it.
    pub fn kill(&self) {
        self.signal(libc::SIGKILL);
        // It is not our child; the script waits for its end.
        self.stop();
    }

    /// Ends it in an orderly way.
    pub fn stop(&self) {
        let end = Command::new(script()).arg("stop").arg(self.dir.path()).status();
        assert!(end.unwrap().success());
    }

    /// It stops to answer, but keeps its connections.
    pub fn pause(&self) {
        self.signal(libc::SIGSTOP);
    }

    /// It goes on.
    pub fn resume(&self) {
        self.signal(libc::SIGCONT);
    }

    /// Deletes the records of partition 0 before this offset, as retention does.
    pub fn delete_records(&self, topic: &str, before: i64) {
        let file = self.dir.path().join("delete.json");
        let one = format!(r#"{{"topic":"{topic}","partition":0,"offset":{before}}}"#);
        std::fs::write(&file, format!(r#"{{"partitions":[{one}],"version":1}}"#)).unwrap();
        let libs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tmp/kafka/libs/*");
        let end = Command::new("java")
            .arg("-cp")
            .arg(libs)
            .args(["org.apache.kafka.tools.DeleteRecordsCommand", "--bootstrap-server"])
            .args([&self.address(), "--offset-json-file"])
            .arg(file)
            .output()
            .unwrap();
        assert!(end.status.success(), "{}", String::from_utf8_lossy(&end.stderr));
    }

    fn signal(&self, signal: i32) {
        let pid = std::fs::read_to_string(self.dir.path().join("pid")).unwrap();
        // SAFETY: the broker that we started, by its number.
        unsafe { libc::kill(pid.trim().parse().unwrap(), signal) };
    }

    /// `host:port`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The log at it.
    pub fn log(&self) -> Arc<dyn RecordLog> {
        open(&self.settings()).unwrap()
    }

    /// Settings of the log at it.
    pub fn settings(&self) -> LogSettings {
        LogSettings::for_tests(&format!("kafka://{}", self.address()))
    }

    /// The certificate of its authority.
    pub fn ca_file(&self) -> String {
        self.dir.path().join("ca.pem").to_string_lossy().into_owned()
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.kill();
    }
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../test/support/kafka/broker")
}

/// Ports that are free at this moment.
pub fn free_ports(count: usize) -> Vec<u16> {
    let held: Vec<_> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    held.iter().map(|one| one.local_addr().unwrap().port()).collect()
}

/// `host:port` of the broker that the tests share.
pub fn shared() -> String {
    static SHARED: OnceLock<String> = OnceLock::new();
    let address = SHARED.get_or_init(|| match std::env::var("CHATON_TEST_KAFKA") {
        Ok(address) if !address.is_empty() => address,
        _ => {
            let broker = Broker::start();
            let address = broker.address();
            keep(broker);
            address
        }
    });
    address.clone()
}

static OWN: Mutex<Vec<Broker>> = Mutex::new(Vec::new());

/// Keeps a broker until this process ends.
pub fn keep(broker: Broker) {
    let mut own = OWN.lock().unwrap();
    if own.is_empty() {
        // SAFETY: a function of ours, called once when this process ends.
        unsafe { libc::atexit(end) };
    }
    own.push(broker);
}

/// Statics are not dropped.
extern "C" fn end() {
    OWN.lock().unwrap().clear();
}

/// Settings of the log at the shared broker.
pub fn settings() -> LogSettings {
    LogSettings::for_tests(&format!("kafka://{}", shared()))
}

/// The log at the shared broker.
pub fn log() -> Arc<dyn RecordLog> {
    open(&settings()).unwrap()
}

/// The shared broker, for the suite that all logs have in common.
pub struct KafkaFixture;

impl LogFixture for KafkaFixture {
    fn open(&self, change: &dyn Fn(&mut LogSettings)) -> Arc<dyn RecordLog> {
        let mut settings = settings();
        settings.linger = Duration::from_millis(1);
        change(&mut settings);
        open(&settings).unwrap()
    }

    fn group(&self, name: &str, topics: &[&str]) -> GroupSettings {
        let mut group = GroupSettings::for_tests(name, topics);
        group.session_timeout = Duration::from_millis(6_000);
        group
    }
}
