//! Where Ruby threads leave word for the IO thread. It is woken at most once
//! per batch, and only when it sleeps.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::exchange::Exchange;

#[derive(Default)]
struct Pile {
    exchanges: Vec<Arc<Exchange>>,
    /// The IO thread sleeps, or is about to, and has seen an empty pile.
    asleep: bool,
}

/// Exchanges whose connection has something to do.
#[derive(Default)]
pub(crate) struct Completions {
    pile: Mutex<Pile>,
    /// A hint, so that a busy IO thread can look without the lock.
    some: AtomicBool,
    /// The vector the pile is swapped with; the IO thread's own.
    taken: Mutex<Vec<Arc<Exchange>>>,
}

impl Completions {
    /// Leaves word; true when the caller must wake the IO thread.
    pub fn push(&self, exchange: Arc<Exchange>) -> bool {
        let mut pile = self.pile.lock();
        pile.exchanges.push(exchange);
        self.some.store(true, Relaxed);
        mem::take(&mut pile.asleep)
    }

    /// Wakes the connections that have something to do; true when there were any.
    /// When there were none and `sleep` is set, the next push asks for a wake-up.
    pub fn deliver(&self, sleep: bool) -> bool {
        let mut taken = self.taken.lock();
        {
            let mut pile = self.pile.lock();
            pile.asleep = sleep && pile.exchanges.is_empty();
            if pile.exchanges.is_empty() {
                return false;
            }
            self.some.store(false, Relaxed);
            mem::swap(&mut pile.exchanges, &mut taken);
        }
        for exchange in taken.drain(..) {
            exchange.wake_connection();
        }
        true
    }

    /// Whether word was left, as far as can be seen without the lock.
    pub fn some(&self) -> bool {
        self.some.load(Relaxed)
    }
}
