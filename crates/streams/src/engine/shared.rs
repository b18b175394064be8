//! What the groups' threads, their turns and Ruby's threads share.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::cell::{Cell, Waited};
use super::sink::Sink;
use super::stats::Counters;
use super::Tools;

/// Of one engine.
pub(super) struct Shared {
    pub tools: Tools,
    pub sink: Arc<dyn Sink>,
    pub counters: Arc<Counters>,
    pub commit_interval: Duration,
    pub group_retry_max_ms: u64,
    pub generations: AtomicU64,
    pub quiet: AtomicBool,
    pub stopping: AtomicBool,
    /// Partitions whose turn the sink had no room for, first come, first
    /// served.
    refused: Mutex<VecDeque<Arc<Cell>>>,
    refused_count: AtomicUsize,
    calm: Mutex<Calm>,
    calmed: Condvar,
    /// Somebody waits for that.
    calm_wanted: AtomicUsize,
}

#[derive(Default)]
struct Calm {
    interrupts: u64,
}

impl Shared {
    pub fn new(
        tools: Tools,
        sink: Arc<dyn Sink>,
        commit_interval: Duration,
        group_retry_max_ms: u64,
    ) -> Self {
        Self {
            tools,
            sink,
            counters: Arc::default(),
            commit_interval,
            group_retry_max_ms,
            generations: AtomicU64::new(1),
            quiet: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            refused: Mutex::default(),
            refused_count: AtomicUsize::new(0),
            calm: Mutex::default(),
            calmed: Condvar::new(),
            calm_wanted: AtomicUsize::new(0),
        }
    }

    pub fn is_quiet(&self) -> bool {
        self.quiet.load(Ordering::SeqCst)
    }

    pub fn warn(&self, message: &str) {
        self.sink.warn(&format!("streams: {message}"));
    }

    /// The sink had no room for a turn of this partition. One that has waited
    /// before keeps its place.
    pub fn refuse(&self, cell: &Arc<Cell>) {
        self.counters.refused.fetch_add(1, Ordering::Relaxed);
        let mut refused = self.refused.lock();
        match cell.wait_for_room() {
            Waited::Not => refused.push_back(cell.clone()),
            Waited::First => refused.push_front(cell.clone()),
            Waited::Queued => {}
        }
        self.refused_count.store(refused.len(), Ordering::SeqCst);
    }

    /// Whether some wait for room, and others have to wait behind them.
    pub fn is_crowded(&self) -> bool {
        self.refused_count.load(Ordering::SeqCst) > 0
    }

    /// There may be room again: whoever waits longest tries, then the next.
    pub fn readmit(&self) {
        while self.is_crowded() {
            let mut refused = self.refused.lock();
            let first = refused.pop_front();
            self.refused_count.store(refused.len(), Ordering::SeqCst);
            drop(refused);
            if first.is_none_or(|cell| !cell.try_again()) {
                return;
            }
        }
    }

    /// Something ended; whoever waits for calm looks again.
    pub fn ended(&self) {
        if self.calm_wanted.load(Ordering::SeqCst) > 0 {
            let _held = self.calm.lock();
            self.calmed.notify_all();
        }
    }

    /// Waits until `is_calm` says so.
    pub fn wait_calm(&self, timeout: Duration, is_calm: impl Fn() -> bool) -> bool {
        let until = Instant::now() + timeout;
        self.calm_wanted.fetch_add(1, Ordering::SeqCst);
        let mut calm = self.calm.lock();
        let interrupts = calm.interrupts;
        let result = loop {
            if is_calm() {
                break true;
            }
            if calm.interrupts != interrupts || Instant::now() >= until {
                break false;
            }
            self.calmed.wait_until(&mut calm, until);
        };
        drop(calm);
        self.calm_wanted.fetch_sub(1, Ordering::SeqCst);
        result
    }

    pub fn interrupt_calm(&self) {
        self.calm.lock().interrupts += 1;
        self.calmed.notify_all();
    }
}
