//! The wakers of all open connections, by which a drain reaches the idle ones.

use std::task::Waker;

use parking_lot::Mutex;

#[derive(Default)]
struct State {
    wakers: Vec<Option<Waker>>,
    free: Vec<usize>,
}

/// Wakers of the open connections.
#[derive(Default)]
pub(crate) struct ConnectionRegistry {
    state: Mutex<State>,
}

impl ConnectionRegistry {
    /// Adds a connection and returns its key.
    pub fn insert(&self, waker: Waker) -> usize {
        let mut state = self.state.lock();
        match state.free.pop() {
            Some(key) => {
                state.wakers[key] = Some(waker);
                key
            }
            None => {
                state.wakers.push(Some(waker));
                state.wakers.len() - 1
            }
        }
    }

    pub fn remove(&self, key: usize) {
        let mut state = self.state.lock();
        let waker = state.wakers[key].take();
        state.free.push(key);
        drop(state);
        drop(waker);
    }

    pub fn wake_all(&self) {
        let wakers: Vec<Waker> = self.state.lock().wakers.iter().flatten().cloned().collect();
        for waker in wakers {
            waker.wake();
        }
    }
}
