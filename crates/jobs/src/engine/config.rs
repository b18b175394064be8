//! Settings of the engine.

use std::time::Duration;

use chaton_core::process::scoreboard::OwnGauges;
use chaton_core::settings::seconds;
use serde::{Deserialize, Serialize};

use super::job_log::JobLogSettings;
use crate::cron::Cron;
use crate::store::StoreOptions;

/// The order in which queues are emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum QueueMode {
    /// As listed: from a queue only while all before it are empty.
    Strict,
    /// At each claim in an order drawn by weight.
    Weighted,
    /// At each claim in an order drawn evenly.
    Random,
}

fn retry_max() -> Duration {
    Duration::from_secs(5)
}

/// Settings of the engine: the section `jobs` of the document, and what the
/// process adds to it before the engine starts.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Its store.
    pub store: StoreOptions,
    /// Queues, each with its weight.
    pub queues: Vec<(String, u32)>,
    /// Their order.
    pub mode: QueueMode,
    /// Threads that run jobs at most.
    #[serde(skip)]
    pub concurrency: usize,
    /// How far ahead jobs are claimed: what will start within this time.
    #[serde(rename = "prefetch_s", deserialize_with = "seconds")]
    pub prefetch: Duration,
    /// Jobs claimed and not started, at most.
    pub prefetch_max: usize,
    /// Longest wait of an acknowledgement to be written together with others.
    #[serde(rename = "ack_delay_s", deserialize_with = "seconds")]
    pub ack_delay: Duration,
    /// Between two heartbeats.
    #[serde(rename = "beat_s", deserialize_with = "seconds")]
    pub heartbeat: Duration,
    /// How long idle processes wait for the claim of the one whose turn it is; zero: all claim at once.
    #[serde(rename = "claim_turn_s", deserialize_with = "seconds")]
    pub claim_turn: Duration,
    /// A cron tick that was missed while no process ran is enqueued after boot if it is at most this
    /// old; zero: never.
    #[serde(rename = "catch_up_s", deserialize_with = "seconds")]
    pub catch_up: Duration,
    /// Longest pause between tries while the store fails. No setting; tests
    /// shorten it.
    #[serde(skip, default = "retry_max")]
    pub retry_max: Duration,
    /// Due jobs go through Ruby's client middleware.
    #[serde(skip)]
    pub claim_due: bool,
    /// Jobs enqueued by the clock.
    #[serde(skip)]
    pub crons: Vec<Cron>,
    /// The lines about ended jobs.
    pub log: JobLogSettings,
    /// Shown with the process in Sidekiq's UI.
    pub tag: String,
    /// The application's name among others with the same store; empty: it has none. Its cron entries are its own.
    pub application: String,
    /// As `tag`.
    pub labels: Vec<String>,
    /// Chaton's version, shown in Sidekiq's UI.
    pub version: String,
    /// It claims nothing until [`Engine::resume`](super::Engine::resume), because the process is not ready yet.
    #[serde(skip)]
    pub begins_quiet: bool,
    /// Where heartbeats are published.
    #[serde(skip)]
    pub gauges: Option<OwnGauges>,
    /// The parent is a supervisor, which reports this process's death to a sibling.
    #[serde(skip)]
    pub supervised: bool,
}
