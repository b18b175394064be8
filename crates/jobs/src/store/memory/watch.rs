//! Waits for a change.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::data::{MemoryData, SharedData};
use crate::store::traits::{Interrupt, Result, StoreWatch};
use crate::store::types::{Availability, StoreEvent};

/// A watcher.
pub(super) struct MemoryWatch {
    interrupt: Arc<MemoryInterrupt>,
    queues: Vec<Arc<str>>,
    /// The count of changes when it was armed last.
    seen: Option<u64>,
}

struct MemoryInterrupt {
    shared: Arc<SharedData>,
    interrupted: AtomicBool,
}

impl Interrupt for MemoryInterrupt {
    fn interrupt(&self) {
        self.interrupted.store(true, Ordering::Release);
        // Locked, so that this cannot happen between a check and the wait.
        let _held = self.shared.data.lock();
        self.shared.changed.notify_all();
    }
}

impl MemoryWatch {
    pub fn new(shared: Arc<SharedData>) -> Self {
        let interrupt = Arc::new(MemoryInterrupt { shared, interrupted: AtomicBool::new(false) });
        Self { interrupt, queues: Vec::new(), seen: None }
    }

    fn changes(&self, data: &MemoryData) -> Option<StoreEvent> {
        let Some(seen) = self.seen else {
            // Never armed.
            return Some(StoreEvent::Changed { queues: Vec::new(), other: true });
        };
        let changed =
            |name: &&Arc<str>| data.queues.get(&***name).is_some_and(|queue| queue.changed > seen);
        let queues: Vec<Arc<str>> = self.queues.iter().filter(changed).cloned().collect();
        let other = data.other_changed() > seen;
        (other || !queues.is_empty()).then_some(StoreEvent::Changed { queues, other })
    }
}

impl StoreWatch for MemoryWatch {
    fn arm(&mut self, queues: &[Arc<str>]) -> Result<Availability> {
        self.queues = queues.to_vec();
        let data = self.interrupt.shared.data.lock();
        self.seen = Some(data.changes());
        let ready = queues.iter().any(|name| data.has_work(name));
        Ok(Availability { ready, next_at: data.next_at() })
    }

    fn wait(&mut self, timeout: Duration) -> Result<StoreEvent> {
        let until = Instant::now().checked_add(timeout);
        let mut data = self.interrupt.shared.data.lock();
        loop {
            if self.interrupt.interrupted.swap(false, Ordering::AcqRel) {
                return Ok(StoreEvent::Interrupted);
            }
            if let Some(event) = self.changes(&data) {
                return Ok(event);
            }
            let Some(until) = until else {
                self.interrupt.shared.changed.wait(&mut data);
                continue;
            };
            if Instant::now() >= until {
                return Ok(StoreEvent::Timeout);
            }
            self.interrupt.shared.changed.wait_until(&mut data, until);
        }
    }

    fn interrupter(&self) -> Arc<dyn Interrupt> {
        self.interrupt.clone()
    }
}
