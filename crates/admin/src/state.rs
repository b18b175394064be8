//! What the endpoint knows.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::Duration;

use chaton_core::clock::now_ns;
use chaton_core::process::scoreboard::Scoreboard;
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::sync::{Notify, Semaphore};

use crate::access::{same_token, GuessGate, WRONG_TOKEN};
use crate::answer::Answer;
use crate::config::{Config, DashboardConfig};
use crate::dashboard::control::ControlSocket;
use crate::dashboard::history::History;
use crate::dashboard::sessions::Sessions;
use crate::dashboard::stored_jobs::{JobSource, StoredJobs};
use crate::health::{self, boot_ms};
use crate::metrics::{Metrics, Surroundings};
use crate::process_reader::ProcessReader;
use crate::queues::{QueueReader, QueueSource};
use crate::tree::TreeReport;

/// What the endpoint knows.
pub struct State {
    /// Its settings.
    pub config: Config,
    /// The workers' gauges.
    pub scoreboard: Scoreboard,
    /// The last report, and when it came (ns).
    report: Mutex<(TreeReport, u64)>,
    /// Of requests under way.
    pub(crate) places: Semaphore,
    /// Passed by wrong tokens.
    pub(crate) guess_gate: GuessGate,
    /// Notified of the first report.
    pub(crate) reported: Notify,
    pub(crate) statsd: StatsdCounters,
    pub(crate) process_memory: Mutex<ProcessReader>,
    pub(crate) queues: Option<QueueReader>,
    pub(crate) dashboard: Dashboard,
}

/// Opens the store that the settings name: a connection for its sizes, and one for its jobs; `None` without
/// a store.
pub type OpenStore = fn(&serde_json::Value) -> Option<(Box<dyn QueueSource>, Box<dyn JobSource>)>;

/// A line from the supervisor.
#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    /// The key of a one-time link to the page.
    Link {
        link: String,
    },
    Report(TreeReport),
}

impl State {
    /// Knows no workers yet.
    pub fn new(config: Config, scoreboard: Scoreboard, open: OpenStore) -> Arc<Self> {
        let (queues, jobs) = open(&config.store).unzip();
        let queues = queues.map(QueueReader::new);
        let dashboard = Dashboard::new(&config.dashboard, jobs);
        let report = Mutex::new((TreeReport::default(), now_ns()));
        let places = Semaphore::new(config.connections_max);
        let guess_gate = GuessGate::new(config.connections_max);
        Arc::new(Self {
            config,
            scoreboard,
            report,
            places,
            guess_gate,
            reported: Notify::new(),
            statsd: StatsdCounters::default(),
            process_memory: Mutex::default(),
            queues,
            dashboard,
        })
    }

    /// Takes a report of the supervisor, or a link, which are JSON.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn take(&self, line: &str) -> io::Result<()> {
        match serde_json::from_str(line)? {
            Line::Link { link } => self.dashboard.add_link(link, &self.config.dashboard),
            Line::Report(report) => {
                *self.report.lock() = (report, now_ns());
                self.reported.notify_one();
            }
        }
        Ok(())
    }

    /// What `/metrics` and StatsD get.
    pub(crate) async fn metrics(&self) -> Metrics {
        let store = match &self.queues {
            Some(queues) => Some(queues.read().await.ok()),
            None => None,
        };
        let (report, _) = self.report();
        let readiness = health::ready(&report, &self.scoreboard, &self.config, None, boot_ms());
        let ready = readiness.roles.iter().map(|(role, found)| (role.clone(), found.ready));
        let around = Surroundings {
            ready: ready.collect(),
            statsd: self.config.statsd.as_ref().map(|_| self.statsd.read()),
            processes: self.process_memory.lock().read(&report),
            store,
        };
        Metrics::read(&report, &self.scoreboard, &around)
    }

    /// The last report, and how long ago it came.
    pub fn report(&self) -> (TreeReport, Duration) {
        let (report, at_ns) = &*self.report.lock();
        (report.clone(), Duration::from_nanos(now_ns().saturating_sub(*at_ns)))
    }
    /// Compares a token with the configured one, and takes its time if it is another. The right one waits for
    /// nobody's guesses.
    pub(crate) async fn token_is_right(&self, given: &str) -> Result<bool, Answer> {
        let token = self.config.token.as_deref();
        if token.is_some_and(|token| same_token(given, token)) {
            return Ok(true);
        }
        let _one_at_a_time = self.guess_gate.enter().await.ok_or_else(Answer::too_many_guesses)?;
        tokio::time::sleep(WRONG_TOKEN).await;
        Ok(false)
    }
}

/// What was sent.
#[derive(Debug, Default)]
pub(crate) struct StatsdCounters {
    /// Datagrams that the system has taken.
    pub sent: AtomicU64,
    /// Those that it has not, and rounds without an address.
    pub failed: AtomicU64,
}

impl StatsdCounters {
    /// Sent and failed.
    pub fn read(&self) -> [u64; 2] {
        [self.sent.load(Relaxed), self.failed.load(Relaxed)]
    }
}

/// What the page needs beside the figures.
pub(crate) struct Dashboard {
    pub sessions: Mutex<Sessions>,
    pub control: ControlSocket,
    pub jobs: Option<StoredJobs>,
    pub history: Mutex<History>,
    /// What was last wrong with the history.
    pub note: Mutex<Option<String>>,
}

impl Dashboard {
    pub fn new(config: &DashboardConfig, jobs: Option<Box<dyn JobSource>>) -> Self {
        let control = ControlSocket::new(config.control_socket.as_deref());
        let history = Mutex::new(History::new(config.control_socket.as_deref()));
        let jobs = jobs.map(StoredJobs::new);
        Self { sessions: Mutex::default(), control, jobs, history, note: Mutex::default() }
    }

    /// Logs what is wrong with the history, once while it stays the same. The page shows it, too.
    pub fn warn(&self, what: String) {
        let mut note = self.note.lock();
        if note.as_ref() != Some(&what) {
            chaton_core::log::warn(&format!("the history of the dashboard: {what}"));
            *note = Some(what);
        }
    }

    /// Makes a link valid, once.
    pub fn add_link(&self, key: String, config: &DashboardConfig) {
        self.sessions.lock().add_link(key, config.link, now_ns());
    }
}

/// Of one thread, for the endpoint or a mounted page.
pub(crate) fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()
}
