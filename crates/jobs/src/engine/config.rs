//! Settings of the engine.

use std::sync::Arc;
use std::time::Duration;

use crate::cron::Cron;

/// In which order queues are emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueMode {
    /// As listed: a queue gives only while all before it are empty.
    Strict,
    /// At each claim in an order drawn by weight.
    Weighted,
    /// At each claim in an order drawn evenly.
    Random,
}

/// Settings of the engine. Each has a named option in `jobs { … }`, but for
/// `due_max` and `retry_max`, which only a caller of the boundary can set.
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
    /// Longest wait of an acknowledgement for company.
    pub ack_delay: Duration,
    /// Between two signs of life.
    pub heartbeat: Duration,
    /// An owner whose last beat is older is dead.
    pub lease: Duration,
    /// How long a job waits that met a limit whose end nobody knows.
    pub limit_retry: Duration,
    /// Jobs moved from the schedule in one call.
    pub due_max: usize,
    /// Longest pause between tries while the store fails.
    pub retry_max: Duration,
    /// Due jobs go through Ruby, for client middleware to see them.
    pub claim_due: bool,
    /// Jobs enqueued by the clock.
    pub crons: Vec<Cron>,
    /// Generation of Sidekiq's format: 6, 7 or 8.
    pub format: u8,
    /// For `info`: what Sidekiq's UI shows beside the process.
    pub tag: String,
    /// For `info`.
    pub labels: Vec<String>,
    /// For `info`: our version.
    pub version: String,
    /// The parent process sees our death and tells a sibling.
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
