//! Bytes in the hands of the crate h2, which holds it until the socket takes it.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes};
use parking_lot::Mutex;

use crate::budget::{BudgetShare, ConnectionBudget};

/// Bytes of all streams of one connection: enough for a socket that is emptied at 100 Gbit/s and
/// looked at again after 20 µs. The crate bounds them for each stream only.
const HANDED_BYTES_MAX: usize = 256 * 1024;
/// The same while memory is short: one frame.
const HANDED_BYTES_MIN: usize = 16 * 1024;
/// Less is not counted in the budget: it would cost more than it says.
const COUNTED_BYTES_MIN: usize = 4 * 1024;

/// How much of a connection's output that is.
pub(super) struct Handed {
    budget: Arc<ConnectionBudget>,
    bytes: AtomicUsize,
    /// Streams that wait until it is less.
    waiting: Mutex<Vec<Waker>>,
}

impl Handed {
    pub fn new(budget: &Arc<ConnectionBudget>) -> Arc<Self> {
        let budget = Arc::clone(budget);
        Arc::new(Self { budget, bytes: AtomicUsize::new(0), waiting: Mutex::default() })
    }

    pub fn has_room(&self) -> bool {
        let bytes = self.bytes.load(Relaxed);
        bytes < HANDED_BYTES_MIN || (bytes < HANDED_BYTES_MAX && !self.budget.is_short())
    }

    /// Ready when more can be handed over.
    pub fn poll_room(&self, cx: &mut Context) -> Poll<()> {
        if self.has_room() {
            return Poll::Ready(());
        }
        let mut waiting = self.waiting.lock();
        if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            waiting.push(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Counts `bytes` as handed over until they are dropped.
    pub fn hand_over(self: &Arc<Self>, bytes: Bytes) -> HandedBytes {
        let len = bytes.len();
        self.bytes.fetch_add(len, Relaxed);
        let share = (len >= COUNTED_BYTES_MIN).then(|| {
            let mut share = BudgetShare::new(&self.budget);
            share.set(len, 0);
            share
        });
        HandedBytes { bytes, len, handed: Arc::clone(self), _share: share }
    }
}

/// A part of a response's body.
pub(super) struct HandedBytes {
    bytes: Bytes,
    len: usize,
    handed: Arc<Handed>,
    _share: Option<BudgetShare>,
}

impl Buf for HandedBytes {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, len: usize) {
        self.bytes.advance(len);
    }
}

impl Drop for HandedBytes {
    fn drop(&mut self) {
        let before = self.handed.bytes.fetch_sub(self.len, Relaxed);
        // Nobody waits below this.
        if before >= HANDED_BYTES_MIN && self.handed.has_room() {
            self.handed.waiting.lock().drain(..).for_each(Waker::wake);
        }
    }
}
