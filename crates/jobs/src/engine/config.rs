//! Settings of the engine.

use std::sync::Arc;
use std::time::Duration;

use crate::cron::Cron;

/// The order in which queues are emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueMode {
    /// As listed: from a queue only while all before it are empty.
    Strict,
    /// At each claim in an order drawn by weight.
    Weighted,
    /// At each claim in an order drawn evenly.
    Random,
}

/// Settings of the engine. Each has an option in `jobs { … }`, except `due_max` and `retry_max`.
#[derive(Clone, Debug)]
pub struct Config {
    /// Queues, each with its weight.
    pub queues: Vec<(Arc<str>, u32)>,
    /// Their order.
    pub mode: QueueMode,
    /// Threads that run jobs at most.
    pub concurrency: usize,
    /// How far ahead jobs are claimed: what will start within this time.
    pub prefetch: Duration,
    /// Jobs claimed and not started, at most.
    pub prefetch_max: usize,
    /// Longest wait of an acknowledgement to be written together with others.
    pub ack_delay: Duration,
    /// Between two heartbeats.
    pub heartbeat: Duration,
    /// An owner whose last heartbeat is older is dead.
    pub lease: Duration,
    /// How long a job waits whose limit gives no time.
    pub limit_retry: Duration,
    /// Jobs moved from the schedule in one call.
    pub due_max: usize,
    /// Longest pause between tries while the store fails.
    pub retry_max: Duration,
    /// Due jobs go through Ruby's client middleware.
    pub claim_due: bool,
    /// Jobs enqueued by the clock.
    pub crons: Vec<Cron>,
    /// Generation of Sidekiq's format: 6, 7 or 8.
    pub format: u8,
    /// Shown with the process in Sidekiq's UI.
    pub tag: String,
    /// As `tag`.
    pub labels: Vec<String>,
    /// Chaton's version, shown in Sidekiq's UI.
    pub version: String,
    /// The parent is a supervisor, which reports this process's death to a sibling.
    pub supervised: bool,
}

impl Config {
    /// The defaults for these queues.
    pub fn new(queues: &[&str]) -> Self {
        Self {
            queues: queues.iter().map(|name| (Arc::from(*name), 1)).collect(),
            mode: QueueMode::Strict,
            concurrency: 10,
            prefetch: Duration::from_millis(5),
            prefetch_max: 1000,
            ack_delay: Duration::from_millis(2),
            heartbeat: Duration::from_secs(5),
            lease: Duration::from_secs(60),
            limit_retry: Duration::from_millis(250),
            due_max: 1000,
            retry_max: Duration::from_secs(5),
            claim_due: false,
            crons: vec![],
            format: 7,
            tag: String::new(),
            labels: vec![],
            version: env!("CARGO_PKG_VERSION").into(),
            supervised: false,
        }
    }
}
