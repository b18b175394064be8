//! The wakers of all open connections, by which a drain reaches the idle ones, and how long each has idled.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::task::Waker;

use parking_lot::Mutex;

/// A connection has a request under way.
const BUSY: u64 = 0;
/// A connection is to be closed, unless a request has arrived.
const CLOSING: u64 = u64::MAX;

/// Whether a connection idles, which it tells the registry without a lock: a number that grows from one idle
/// connection to the next, or [`BUSY`] or [`CLOSING`].
#[derive(Default)]
pub(crate) struct IdleMark(AtomicU64);

impl IdleMark {
    /// A request has begun to arrive: the connection is not closed for others.
    pub fn set_busy(&self) {
        self.0.store(BUSY, Relaxed);
    }

    /// Whether the connection is to make room for another one.
    pub fn must_close(&self) -> bool {
        self.0.load(Relaxed) == CLOSING
    }

    fn idles_since(&self) -> Option<u64> {
        Some(self.0.load(Relaxed)).filter(|number| !matches!(*number, BUSY | CLOSING))
    }
}

struct RegisteredTask {
    waker: Waker,
    idle: Option<Arc<IdleMark>>,
}

#[derive(Default)]
struct State {
    entries: Vec<Option<RegisteredTask>>,
    free: Vec<usize>,
}

/// The open connections.
#[derive(Default)]
pub(crate) struct ConnectionRegistry {
    state: Mutex<State>,
    /// The last number of an idle connection.
    idled: AtomicU64,
}

impl ConnectionRegistry {
    /// Adds a connection and returns its key. One with a mark may be closed for others while that idles.
    pub fn insert(&self, waker: Waker, idle: Option<&Arc<IdleMark>>) -> usize {
        let entry = Some(RegisteredTask { waker, idle: idle.cloned() });
        let mut state = self.state.lock();
        match state.free.pop() {
            Some(key) => {
                state.entries[key] = entry;
                key
            }
            None => {
                state.entries.push(entry);
                state.entries.len() - 1
            }
        }
    }

    pub fn remove(&self, key: usize) {
        let mut state = self.state.lock();
        let entry = state.entries[key].take();
        state.free.push(key);
        drop(state);
        drop(entry);
    }

    /// A connection waits for a request. Only the IO thread calls this.
    pub fn idles(&self, mark: &IdleMark) {
        let number = self.idled.load(Relaxed) + 1;
        self.idled.store(number, Relaxed);
        mark.0.store(number, Relaxed);
    }

    /// Has the connections closed that have idled longest, `count` at most. Returns how many.
    pub fn close_idle(&self, count: usize) -> usize {
        let state = self.state.lock();
        let entries = state.entries.iter().flatten();
        let marked = entries.filter_map(|entry| Some((entry.idle.as_ref()?, &entry.waker)));
        let mut idle: Vec<_> =
            marked.filter_map(|(mark, waker)| Some((mark.idles_since()?, mark, waker))).collect();
        if idle.len() > count {
            idle.select_nth_unstable_by_key(count, |(number, ..)| *number);
            idle.truncate(count);
        }
        for (_, mark, waker) in &idle {
            mark.0.store(CLOSING, Relaxed);
            waker.wake_by_ref();
        }
        idle.len()
    }

    pub fn wake_all(&self) {
        let state = self.state.lock();
        let wakers: Vec<Waker> =
            state.entries.iter().flatten().map(|entry| entry.waker.clone()).collect();
        drop(state);
        for waker in wakers {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_have_idled_longest_are_closed_and_busy_ones_never() {
        let registry = ConnectionRegistry::default();
        let marks = [(); 5].map(|()| Arc::<IdleMark>::default());
        let waker = Waker::noop();
        for mark in &marks {
            registry.insert(waker.clone(), Some(mark));
        }
        [3, 0, 1, 2, 3].into_iter().for_each(|at| registry.idles(&marks[at]));
        marks[1].set_busy();
        assert_eq!(registry.close_idle(2), 2);
        let closing = || marks.iter().map(|mark| mark.must_close()).collect::<Vec<_>>();
        assert_eq!(closing(), [true, false, true, false, false]);
        marks[0].set_busy();
        assert_eq!(registry.close_idle(9), 1);
        assert_eq!(closing(), [false, false, true, true, false]);
        assert_eq!(registry.close_idle(9), 0);
    }
}
