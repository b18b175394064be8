//! Waits for a change.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::data::Data;
use super::Shared;
use crate::store::{Availability, Interrupt, Result, StoreWatch, WatchEvent};

/// A watcher.
pub(super) struct MemoryWatch {
    bell: Arc<Bell>,
    queues: Vec<Arc<str>>,
    /// The count of changes when it looked; none before it was armed.
    seen: Option<u64>,
}

struct Bell {
    shared: Arc<Shared>,
    rung: AtomicBool,
}

impl Interrupt for Bell {
    fn interrupt(&self) {
        self.rung.store(true, Ordering::Release);
        // Held, so that it cannot come between the look and the sleep.
        let _held = self.shared.data.lock();
        self.shared.bell.notify_all();
    }
}

impl MemoryWatch {
    pub fn new(shared: Arc<Shared>) -> Self {
        let bell = Arc::new(Bell { shared, rung: AtomicBool::new(false) });
        Self { bell, queues: Vec::new(), seen: None }
    }

    fn news(&self, data: &Data) -> Option<WatchEvent> {
        let Some(seen) = self.seen else {
            // Never armed: look first.
            return Some(WatchEvent::Changed { queues: Vec::new(), other: true });
        };
        let changed =
            |name: &&Arc<str>| data.queues.get(&***name).is_some_and(|queue| queue.changed > seen);
        let queues: Vec<Arc<str>> = self.queues.iter().filter(changed).cloned().collect();
        let other = data.other_changed() > seen;
        (other || !queues.is_empty()).then_some(WatchEvent::Changed { queues, other })
    }
}

impl StoreWatch for MemoryWatch {
    fn arm(&mut self, queues: &[Arc<str>]) -> Result<Availability> {
        self.queues = queues.to_vec();
        let data = self.bell.shared.data.lock();
        self.seen = Some(data.changes());
        let ready = queues.iter().any(|name| data.has_work(name));
        Ok(Availability { ready, next_at: data.next_at() })
    }

    fn wait(&mut self, timeout: Duration) -> Result<WatchEvent> {
        let until = Instant::now().checked_add(timeout);
        let mut data = self.bell.shared.data.lock();
        loop {
            if self.bell.rung.swap(false, Ordering::AcqRel) {
                return Ok(WatchEvent::Interrupted);
            }
            if let Some(event) = self.news(&data) {
                return Ok(event);
            }
            let Some(until) = until else {
                self.bell.shared.bell.wait(&mut data);
                continue;
            };
            if Instant::now() >= until {
                return Ok(WatchEvent::Timeout);
            }
            self.bell.shared.bell.wait_until(&mut data, until);
        }
    }

    fn interrupter(&self) -> Arc<dyn Interrupt> {
        self.bell.clone()
    }
}
