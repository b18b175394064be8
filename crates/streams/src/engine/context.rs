//! What all threads of one engine share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

use chaton_core::backoff::Backoff;
use chaton_core::engine::Feed;
use chaton_core::idle_wait::IdleWait;

use super::room::RoomQueue;
use super::settings::EngineSettings;
use super::stats::StreamCounters;
use crate::batch::Batch;
use crate::log::{self, Producer, RecordLog};

/// The first pause after the log failed.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// Makes the producer, or gives the one that the process has.
pub type ProducerFactory = Arc<dyn Fn() -> log::Result<Arc<dyn Producer>> + Send + Sync>;

/// Shared by the groups' threads, the partitions and Ruby's threads.
pub(super) struct EngineContext {
    pub log: Arc<dyn RecordLog>,
    /// For dead letters; called when the first one is written.
    pub producer: ProducerFactory,
    pub feed: Arc<dyn Feed<Batch>>,
    pub counters: Arc<StreamCounters>,
    /// Without its groups.
    pub settings: EngineSettings,
    /// The next number of an assignment.
    pub generations: AtomicU64,
    /// No group is joined yet, because the process is not ready.
    pub held: AtomicBool,
    pub quiet: AtomicBool,
    pub stopping: AtomicBool,
    pub room: RoomQueue,
    /// Waits until every batch has ended.
    pub idle_wait: IdleWait,
}

impl EngineContext {
    pub fn new(
        log: Arc<dyn RecordLog>,
        producer: ProducerFactory,
        feed: Arc<dyn Feed<Batch>>,
        settings: EngineSettings,
    ) -> Self {
        Self {
            log,
            producer,
            feed,
            counters: Arc::default(),
            generations: AtomicU64::new(1),
            held: AtomicBool::new(settings.begins_held),
            settings,
            quiet: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            room: RoomQueue::default(),
            idle_wait: IdleWait::default(),
        }
    }

    /// Pauses between tries while the log fails.
    pub fn backoff(&self) -> Backoff {
        Backoff::new(FIRST_PAUSE, self.settings.group_retry_max)
    }

    pub fn is_quiet(&self) -> bool {
        self.quiet.load(Ordering::SeqCst)
    }

    pub fn warn(&self, message: &str) {
        self.feed.warn(&format!("streams: {message}"));
    }
}
