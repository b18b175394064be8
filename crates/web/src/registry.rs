//! The tasks of all connections, so that a drain can reach the idle ones.

use std::task::Waker;

use parking_lot::Mutex;

#[derive(Default)]
struct Places {
    wakers: Vec<Option<Waker>>,
    free: Vec<usize>,
}

/// Wakers of the open connections.
#[derive(Default)]
pub(crate) struct Registry {
    places: Mutex<Places>,
}

impl Registry {
    /// Adds a connection; the result names its place.
    pub fn enter(&self, waker: Waker) -> usize {
        let mut places = self.places.lock();
        match places.free.pop() {
            Some(index) => {
                places.wakers[index] = Some(waker);
                index
            }
            None => {
                places.wakers.push(Some(waker));
                places.wakers.len() - 1
            }
        }
    }

    /// Removes a connection.
    pub fn leave(&self, index: usize) {
        let mut places = self.places.lock();
        let waker = places.wakers[index].take();
        places.free.push(index);
        drop(places);
        drop(waker);
    }

    /// Lets every connection look at the engine's state.
    pub fn wake_all(&self) {
        let wakers: Vec<Waker> = self.places.lock().wakers.iter().flatten().cloned().collect();
        for waker in wakers {
            waker.wake();
        }
    }
}
