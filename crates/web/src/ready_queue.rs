//! A mailbox from Ruby threads to the IO thread, which is woken at most once
//! per batch and only when it sleeps.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::Mutex;

struct State<T> {
    items: Vec<T>,
    /// The IO thread sleeps, or is about to, and has seen an empty queue.
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

    /// Passes each item to `deliver`. When there were none and `sleep` is set,
    /// the next push asks for a wake-up.
    pub fn drain(&self, sleep: bool, deliver: impl Fn(T)) {
        let mut taken = self.taken.lock();
        {
            let mut state = self.state.lock();
            state.asleep = sleep && state.items.is_empty();
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
