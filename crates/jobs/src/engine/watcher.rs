//! The watcher: one thread that waits for the store to change while there is
//! nothing to do, and rings the others.

use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

use super::backoff::Backoff;
use super::queue_order::QueueOrder;
use super::state::EngineState;
use crate::store::{Result, StoreWatch, WatchEvent};
use chaton_core::random::Random;

/// Longest wait for a change; then the connection is looked at.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// Between two looks while things change all the time and nobody is idle.
const GAP: Duration = Duration::from_micros(500);

/// The watcher.
pub(super) struct Watcher {
    shared: Arc<EngineState>,
    watch: Box<dyn StoreWatch>,
    order: QueueOrder,
    backoff: Backoff,
}

impl Watcher {
    pub fn new(shared: &Arc<EngineState>, watch: Box<dyn StoreWatch>) -> Self {
        let config = &shared.config;
        Self {
            order: QueueOrder::new(config.queues.clone(), config.mode, Random::new()),
            backoff: Backoff::new(config.retry_max),
            shared: shared.clone(),
            watch,
        }
    }

    /// Works until the engine stops.
    pub fn run(mut self) {
        while !self.shared.locked.lock().stopping {
            match self.round() {
                Ok(()) => self.shared.warn(self.backoff.worked("watch")),
                Err(error) => {
                    let (pause, line) = self.backoff.failed("watch", &error);
                    self.shared.warn(line);
                    self.pause(pause);
                }
            }
        }
    }

    fn round(&mut self) -> Result<()> {
        let (queues, dry) = self.wanted();
        let armed = self.watch.arm(&queues)?;
        self.note_due(armed.next_at);
        if armed.ready {
            self.request_fetch(dry);
            if dry {
                return Ok(());
            }
            self.pause(GAP);
        }
        let event = self.watch.wait(WAIT_MAX)?;
        self.shared.counters.watcher_wakeups.fetch_add(1, Ordering::Relaxed);
        if let WatchEvent::Changed { queues: changed, other } = event {
            if !queues.is_empty() && (!changed.is_empty() || other) {
                self.request_fetch(dry);
            }
            if !dry {
                self.pause(GAP);
            }
        }
        Ok(())
    }

    /// The queues to watch, and whether it is because they were empty.
    fn wanted(&self) -> (Vec<Arc<str>>, bool) {
        let locked = self.shared.locked.lock();
        if locked.dry && !locked.quiet {
            return (self.order.listed(), true);
        }
        (locked.above.clone(), false)
    }

    fn request_fetch(&self, dry: bool) {
        let mut locked = self.shared.locked.lock();
        if dry {
            locked.dry = false;
        } else {
            locked.preempt = true;
        }
        drop(locked);
        self.shared.fetcher_cond.notify_one();
    }

    /// Queues and due times are in what `arm` answered. A cancel between the
    /// last wait and this look is not: the maintenance asks for those.
    fn note_due(&self, next_at: Option<f64>) {
        let mut locked = self.shared.locked.lock();
        let wanted = locked.due_at != next_at || self.shared.running.load(Ordering::Relaxed) > 0;
        locked.due_at = next_at;
        locked.due_updates += 1;
        locked.changed = true;
        drop(locked);
        if wanted {
            self.shared.maintenance_cond.notify_one();
        }
    }

    /// A bounded pause that nothing needs to end early: at most the back-off's
    /// bound.
    fn pause(&self, time: Duration) {
        std::thread::sleep(time);
    }
}
