//! The bound on the handshakes that are under way at once.

use std::collections::BTreeMap;
use std::task::Waker;

use parking_lot::Mutex;

#[derive(Default)]
struct State {
    next: u64,
    /// By number, so that the oldest comes first.
    open: BTreeMap<u64, Waker>,
}

/// The handshakes under way.
///
/// Clients that begin one and send nothing more could fill any bound. So a new handshake is always
/// begun, and at the bound the oldest one is closed: an honest one seldom is the oldest.
#[derive(Default)]
pub(crate) struct Handshakes(Mutex<State>);

impl Handshakes {
    /// Begins one; `max` may be under way, or the oldest is closed. Returns its number.
    pub fn begin(&self, waker: Waker, max: usize) -> u64 {
        let mut state = self.0.lock();
        let number = state.next;
        state.next += 1;
        let oldest = (state.open.len() >= max).then(|| state.open.pop_first()).flatten();
        state.open.insert(number, waker);
        drop(state);
        if let Some((_, waker)) = oldest {
            waker.wake();
        }
        number
    }

    /// Whether it has not been closed.
    pub fn is_open(&self, number: u64) -> bool {
        self.0.lock().open.contains_key(&number)
    }

    /// Ends one; false when it was closed before.
    pub fn end(&self, number: u64) -> bool {
        self.0.lock().open.remove(&number).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_the_bound_the_oldest_handshake_is_closed() {
        let handshakes = Handshakes::default();
        let begin = || handshakes.begin(Waker::noop().clone(), 2);
        let (first, second) = (begin(), begin());
        assert!(handshakes.is_open(first));
        let third = begin();
        assert!(!handshakes.is_open(first) && handshakes.is_open(second));
        assert!(!handshakes.end(first) && handshakes.end(second));
        let fourth = begin();
        assert!(handshakes.is_open(third) && handshakes.is_open(fourth));
    }
}
