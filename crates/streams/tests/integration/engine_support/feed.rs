//! A bounded queue of batches.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chaton_core::engine::Feed;
use chaton_streams::batch::{Batch, BatchOutcome};
use parking_lot::{Condvar, Mutex};

#[derive(Default)]
struct State {
    batches: VecDeque<Arc<Batch>>,
    lines: Vec<String>,
    closed: bool,
}

/// The queue.
pub struct Queue {
    most: usize,
    state: Mutex<State>,
    changed: Condvar,
}

impl Queue {
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, state: Mutex::default(), changed: Condvar::new() })
    }

    /// The next batch that may start; others are abandoned, like by a Ruby thread.
    pub fn take(&self, timeout: Duration) -> Option<Arc<Batch>> {
        let until = Instant::now() + timeout;
        loop {
            let batch = self.pop(until)?;
            if batch.may_start() {
                return Some(batch);
            }
            batch.finish(BatchOutcome::Abandoned);
        }
    }

    fn pop(&self, until: Instant) -> Option<Arc<Batch>> {
        let mut state = self.state.lock();
        loop {
            if let Some(batch) = state.batches.pop_front() {
                return Some(batch);
            }
            if state.closed || self.changed.wait_until(&mut state, until).timed_out() {
                return None;
            }
        }
    }

    /// Closes the queue, and ends the waits of threads.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
    }

    /// The lines of the log.
    pub fn lines(&self) -> Vec<String> {
        self.state.lock().lines.clone()
    }

    pub fn len(&self) -> usize {
        self.state.lock().batches.len()
    }
}

impl Feed<Batch> for Queue {
    fn submit(&self, batch: Arc<Batch>) -> Result<(), Arc<Batch>> {
        let mut state = self.state.lock();
        if state.batches.len() >= self.most {
            return Err(batch);
        }
        state.batches.push_back(batch);
        Ok(())
    }

    fn flush(&self) {
        self.changed.notify_all();
    }

    fn take_waiting(&self) -> Vec<Arc<Batch>> {
        self.state.lock().batches.drain(..).collect()
    }

    fn warn(&self, message: &str) {
        self.state.lock().lines.push(message.to_owned());
    }
}
