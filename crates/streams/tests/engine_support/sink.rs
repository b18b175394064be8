//! A bounded queue of turns.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chaton_streams::engine::{Sink, Turn};
use parking_lot::{Condvar, Mutex};

#[derive(Default)]
struct State {
    turns: VecDeque<Arc<Turn>>,
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

    /// The next turn that may start; one that may not is given back, as a
    /// thread of Ruby's would.
    pub fn take(&self, timeout: Duration) -> Option<Arc<Turn>> {
        let until = Instant::now() + timeout;
        loop {
            let turn = self.pop(until)?;
            if turn.may_start() {
                return Some(turn);
            }
            turn.abandon();
        }
    }

    fn pop(&self, until: Instant) -> Option<Arc<Turn>> {
        let mut state = self.state.lock();
        loop {
            if let Some(turn) = state.turns.pop_front() {
                return Some(turn);
            }
            if state.closed || self.changed.wait_until(&mut state, until).timed_out() {
                return None;
            }
        }
    }

    /// Ends the waits of threads.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
    }

    /// What was written into the log.
    pub fn lines(&self) -> Vec<String> {
        self.state.lock().lines.clone()
    }

    pub fn len(&self) -> usize {
        self.state.lock().turns.len()
    }
}

impl Sink for Queue {
    fn submit(&self, turn: Arc<Turn>) -> Result<(), Arc<Turn>> {
        let mut state = self.state.lock();
        if state.turns.len() >= self.most {
            return Err(turn);
        }
        state.turns.push_back(turn);
        Ok(())
    }

    fn flush(&self) {
        self.changed.notify_all();
    }

    fn take_waiting(&self) -> Vec<Arc<Turn>> {
        self.state.lock().turns.drain(..).collect()
    }

    fn warn(&self, message: &str) {
        self.state.lock().lines.push(message.to_owned());
    }
}
