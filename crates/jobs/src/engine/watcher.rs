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
    /// When the next job is due, as the maintenance thread was told last.
    noted_due: Option<Option<f64>>,
}

impl Watcher {
    pub fn new(state: &Arc<EngineState>, watch: Box<dyn StoreWatch>) -> Self {
        let config = &state.config;
        Self {
            order: QueueOrder::new(&config.queues, config.mode, Rng::new()),
            store_retry: StoreRetry::new(config.retry_max.min(POLL), state),
            random: Rng::new(),
            failed: false,
            noted_due: None,
            state: state.clone(),
            watch,
        }
    }

    /// Runs until the engine stops.
    pub fn run(mut self) {
        while !self.state.stopping.load(Ordering::SeqCst) {
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
        is_free && !self.state.has_suspect.load(Ordering::SeqCst) && self.state.holds_lease()
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
    fn poll(&mut self) {
        self.state.wake_fetcher();
        self.note_due(Some(0.0));
    }

    /// The queues to watch: all when they were empty, else those that come
    /// before the claimed jobs' queues. Whether they were empty.
    fn watched_queues(&self) -> (Vec<Arc<str>>, bool) {
        let hand = self.state.hand.read();
        let is_asked = self.state.inbox.lock().look || self.state.quiet.load(Ordering::SeqCst);
        if hand.queues_empty && !is_asked {
            return (self.order.all(), true);
        }
        (hand.higher_queues.clone(), false)
    }

    fn request_fetch(&self, empty: bool) {
        self.state.tell_fetcher(|inbox| match empty {
            true => inbox.look = true,
            false => inbox.preempt = true,
        });
    }

    /// Notes when the next job is due. A cancellation since the last wait may
    /// have been missed, so the maintenance thread checks for those.
    fn note_due(&mut self, next_at: Option<f64>) {
        let before = self.noted_due.replace(next_at);
        let wanted = before != Some(next_at) || self.state.running.load(Ordering::Relaxed) > 0;
        let mut chores = self.state.chores.lock();
        chores.due = Some(next_at);
        chores.cancels = true;
        drop(chores);
        if wanted {
            self.state.maintenance_cond.notify_one();
        }
    }

    /// Sleeps at most for the back-off's bound; nothing needs to end it early.
    fn pause(&self, time: Duration) {
        std::thread::sleep(time);
    }
}
