//! A mailbox from Ruby threads to the IO thread, which is woken at most once
//! per batch and only when it sleeps.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::Mutex;

struct State<T> {
    items: Vec<T>,
    /// The IO thread sleeps, or is about to.
    asleep: bool,
}

/// Items that wait for the IO thread.
pub(crate) struct ReadyQueue<T> {
    state: Mutex<State<T>>,
    /// A hint that lets a busy IO thread check without the lock.
    filled: AtomicBool,
    /// The vector that `state.items` is swapped with; only the IO thread uses it.
    taken: Mutex<Vec<T>>,
}

impl<T> Default for ReadyQueue<T> {
    fn default() -> Self {
        Self {
            state: Mutex::new(State { items: Vec::new(), asleep: false }),
            filled: AtomicBool::new(false),
            taken: Mutex::default(),
        }
    }
}

impl<T> ReadyQueue<T> {
    /// Adds an item; true when the caller must wake the IO thread.
    pub fn push(&self, item: T) -> bool {
        let mut state = self.state.lock();
        state.items.push(item);
        self.filled.store(true, Relaxed);
        mem::take(&mut state.asleep)
    }

    /// Passes each item to `deliver`. With `sleep` the next push asks for a wake-up, also
    /// when items were delivered: a connection that was closed meanwhile has nothing to
    /// do, so that the IO thread sleeps nevertheless.
    pub fn drain(&self, sleep: bool, deliver: impl Fn(T)) {
        let mut taken = self.taken.lock();
        {
            let mut state = self.state.lock();
            state.asleep = sleep;
            if state.items.is_empty() {
                return;
            }
            self.filled.store(false, Relaxed);
            mem::swap(&mut state.items, &mut taken);
        }
        taken.drain(..).for_each(deliver);
    }

    /// Whether items wait, as far as can be seen without the lock.
    pub fn seems_filled(&self) -> bool {
        self.filled.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_push_while_the_io_thread_sleeps_wakes_it_and_only_the_first() {
        let queue = ReadyQueue::default();
        assert!(!queue.push(1));
        queue.drain(true, |_| ());
        assert!(queue.push(2));
        assert!(!queue.push(3));
        queue.drain(false, |_| ());
        assert!(!queue.push(4));
    }

    #[test]
    fn the_io_thread_is_woken_after_it_delivered_to_a_closed_connection_and_slept() {
        let queue = ReadyQueue::default();
        queue.push("for a connection that was closed");
        queue.drain(true, |_| ());
        assert!(queue.push("for another one"));
    }
}
