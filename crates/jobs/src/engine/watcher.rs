//! The watcher: one thread that waits for changes of the store and wakes the
//! fetcher and the maintenance thread.

use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

use super::queue_order::QueueOrder;
use super::state::EngineState;
use super::store_retry::StoreRetry;
use crate::store::{Result, StoreEvent, StoreWatch};
use fastrand::Rng;

/// Longest wait for a change. Then the store is asked, whatever the watch says.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// The store is asked at least this often while it cannot be watched.
pub(super) const POLL: Duration = Duration::from_secs(1);
/// Least time between two rounds while the store changes all the time.
const GAP: Duration = Duration::from_micros(500);

/// Time between the looks of two idle processes, on average, after a change that all learn of.
const SPREAD: Duration = Duration::from_micros(500);

/// So many processes claim at once: a turn would cost more than the claims that it saves.
const AT_ONCE: usize = 2;

/// The watcher; [`Watcher::run`] is its thread.
pub(super) struct Watcher {
    state: Arc<EngineState>,
    watch: Box<dyn StoreWatch>,
    order: QueueOrder,
    store_retry: StoreRetry,
    random: Rng,
    /// The last round failed.
    failed: bool,
}

impl Watcher {
    pub fn new(state: &Arc<EngineState>, watch: Box<dyn StoreWatch>) -> Self {
        let config = &state.config;
        Self {
            order: QueueOrder::new(&config.queues, config.mode, Rng::new()),
            store_retry: StoreRetry::new(config.retry_max.min(POLL), state),
            random: Rng::new(),
            failed: false,
            state: state.clone(),
            watch,
        }
    }

    /// Runs until the engine stops.
    pub fn run(mut self) {
        while !self.state.locked.lock().stopping {
            match self.round() {
                Ok(()) => self.state.warn(self.store_retry.succeeded("watch")),
                Err(error) => {
                    self.failed = true;
                    let (pause, line) = self.store_retry.failed("watch", &error);
                    self.state
                        .warn(line.map(|line| format!("{line}, and asking for jobs as often")));
                    self.poll();
                    self.pause(pause);
                }
            }
        }
    }

    fn round(&mut self) -> Result<()> {
        let (queues, empty) = self.watched_queues();
        let armed = self.watch.arm(&queues)?;
        if std::mem::take(&mut self.failed) {
            self.state.end_pauses();
        }
        self.note_due(armed.next_at);
        let mut wait = WAIT_MAX;
        if armed.ready {
            let turn = self.state.config.claim_turn;
            let alone = !empty || self.processes() <= AT_ONCE || turn.is_zero();
            if alone || !self.would_claim() || self.watch.take_turn(turn)? {
                self.request_fetch(empty);
                if empty {
                    return Ok(());
                }
                self.pause(GAP);
            } else {
                wait = turn;
            }
        }
        let event = self.watch.wait(wait)?;
        self.state.counters.watcher_wakeups.fetch_add(1, Ordering::Relaxed);
        match event {
            StoreEvent::Changed { queues: changed, other } => {
                if empty && self.processes() > AT_ONCE {
                    self.spread();
                    return Ok(());
                }
                if !queues.is_empty() && (!changed.is_empty() || other) {
                    self.request_fetch(empty);
                }
                if !empty {
                    self.pause(GAP);
                }
            }
            StoreEvent::Timeout if wait == WAIT_MAX => self.poll(),
            StoreEvent::Timeout => {}
            StoreEvent::Interrupted => {}
        }
        Ok(())
    }

    /// Whether the fetcher would claim at once.
    fn would_claim(&self) -> bool {
        let is_free = self.state.feed.idle_threads() > self.state.unstarted.load(Ordering::Relaxed);
        let locked = self.state.locked.lock();
        let is_free = is_free && locked.has_no_suspect();
        drop(locked);
        is_free && self.state.holds_lease()
    }

    /// Processes that claim from the store.
    fn processes(&self) -> usize {
        self.state.processes.load(Ordering::Relaxed)
    }

    /// Waits for a random part of the time in which all processes should look at the store.
    fn spread(&mut self) {
        let processes = u32::try_from(self.processes()).unwrap_or(u32::MAX);
        let most = SPREAD.saturating_mul(processes).min(self.state.config.claim_turn);
        let share = self.random.f64();
        self.pause(most.mul_f64(share));
    }

    /// Makes the fetcher claim and the maintenance thread look at the schedule. The watch may be on
    /// another server than they are, or it cannot be made at all.
    fn poll(&self) {
        self.state.wake_fetcher();
        self.note_due(Some(0.0));
    }

    /// The queues to watch: all when they were empty, else those that come
    /// before the claimed jobs' queues. Whether they were empty.
    fn watched_queues(&self) -> (Vec<Arc<str>>, bool) {
        let locked = self.state.locked.lock();
        if locked.queues_empty && !locked.quiet {
            return (self.order.all(), true);
        }
        (locked.higher_queues.clone(), false)
    }

    fn request_fetch(&self, empty: bool) {
        let mut locked = self.state.locked.lock();
        if empty {
            locked.queues_empty = false;
        } else {
            locked.preempt = true;
        }
        drop(locked);
        self.state.fetcher_cond.notify_one();
    }

    /// Notes when the next job is due. A cancellation since the last wait may
    /// have been missed, so the maintenance thread checks for those.
    fn note_due(&self, next_at: Option<f64>) {
        let mut locked = self.state.locked.lock();
        let wanted = locked.due_at != next_at || self.state.running.load(Ordering::Relaxed) > 0;
        locked.due_at = next_at;
        locked.due_updates += 1;
        locked.check_cancels = true;
        drop(locked);
        if wanted {
            self.state.maintenance_cond.notify_one();
        }
    }

    /// Sleeps at most for the back-off's bound; nothing needs to end it early.
    fn pause(&self, time: Duration) {
        std::thread::sleep(time);
    }
}
