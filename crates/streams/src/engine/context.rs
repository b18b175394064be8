//! What all threads of one engine share.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::room::RoomQueue;
use super::sink::BatchSink;
use super::stats::StreamCounters;
use crate::log::{self, Producer, RecordLog};

/// Makes the producer, or gives the one that the process has.
pub type ProducerFactory = Arc<dyn Fn() -> log::Result<Arc<dyn Producer>> + Send + Sync>;

/// Shared by the groups' threads, the partitions and Ruby's threads.
pub(super) struct EngineContext {
    pub log: Arc<dyn RecordLog>,
    /// For dead letters; called when the first one is written.
    pub producer: ProducerFactory,
    pub sink: Arc<dyn BatchSink>,
    pub counters: Arc<StreamCounters>,
    pub commit_interval: Duration,
    pub group_retry_max_ms: u64,
    /// The next number of an assignment.
    pub generations: AtomicU64,
    pub quiet: AtomicBool,
    pub stopping: AtomicBool,
    pub room: RoomQueue,
    interrupts: Mutex<u64>,
    idle_changed: Condvar,
    idle_waiters: AtomicUsize,
}

impl EngineContext {
    pub fn new(
        log: Arc<dyn RecordLog>,
        producer: ProducerFactory,
        sink: Arc<dyn BatchSink>,
        commit_interval: Duration,
        group_retry_max_ms: u64,
    ) -> Self {
        Self {
            log,
            producer,
            sink,
            counters: Arc::default(),
            commit_interval,
            group_retry_max_ms,
            generations: AtomicU64::new(1),
            quiet: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            room: RoomQueue::default(),
            interrupts: Mutex::default(),
            idle_changed: Condvar::new(),
            idle_waiters: AtomicUsize::new(0),
        }
    }

    pub fn is_quiet(&self) -> bool {
        self.quiet.load(Ordering::SeqCst)
    }

    pub fn warn(&self, message: &str) {
        self.sink.warn(&format!("streams: {message}"));
    }

    /// Something has ended: threads in [`EngineContext::wait_idle`] check again.
    pub fn notify_idle(&self) {
        if self.idle_waiters.load(Ordering::SeqCst) > 0 {
            let _held = self.interrupts.lock();
            self.idle_changed.notify_all();
        }
    }

    /// Waits until `is_idle` answers true; false when time is up or the wait was interrupted.
    pub fn wait_idle(&self, timeout: Duration, is_idle: impl Fn() -> bool) -> bool {
        let until = Instant::now() + timeout;
        self.idle_waiters.fetch_add(1, Ordering::SeqCst);
        let mut interrupts = self.interrupts.lock();
        let before = *interrupts;
        let result = loop {
            if is_idle() {
                break true;
            }
            if *interrupts != before || Instant::now() >= until {
                break false;
            }
            self.idle_changed.wait_until(&mut interrupts, until);
        };
        drop(interrupts);
        self.idle_waiters.fetch_sub(1, Ordering::SeqCst);
        result
    }

    pub fn interrupt_idle_wait(&self) {
        *self.interrupts.lock() += 1;
        self.idle_changed.notify_all();
    }
}
