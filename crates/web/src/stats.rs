//! Counters of the engine.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::Serialize;

use crate::budget::Budget;

/// A snapshot of an engine's counters; totals count from its start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// Connections open now.
    pub connections: usize,
    /// Connections accepted.
    pub accepted_total: u64,
    /// Requests handed over, without those of the mounted dashboard.
    pub requests_total: u64,
    /// Final responses sent, by the first digit of their status: `[1xx, …, 5xx]`.
    pub responses_total: [u64; 5],
    /// Requests answered 503 because the queue was full.
    pub shed_total: u64,
    /// Requests the engine refused by itself: malformed, too large, too slow.
    pub refused_total: u64,
    /// Requests answered 503 instead of run because their clients left while they waited.
    pub aborted_total: u64,
    /// Requests answered 503 because the request timeout passed.
    pub late_total: u64,
    /// Bytes read from clients.
    pub read_bytes_total: u64,
    /// Bytes sent to clients.
    pub sent_bytes_total: u64,
    /// Times the IO thread woke.
    pub wakeups_total: u64,
    /// Failed `accept` calls for lack of descriptors or memory.
    pub accept_failures_total: u64,
    /// TLS handshakes that succeeded.
    pub tls_handshakes_total: u64,
    /// TLS handshakes that failed: too slow, closed or refused.
    pub tls_failures_total: u64,
    /// Connections whose handling panicked; each is a defect.
    pub panics_total: u64,
    /// Bytes in memory of answers that clients do not take, and of bodies that they do not end.
    pub held_bytes: u64,
    /// Bytes of the same in files, and of whole bodies in files that the application still has.
    pub spooled_bytes: u64,
    /// Bodies and answers for which there was no room in memory and files.
    pub no_room_total: u64,
}

/// The counters behind [`Stats`].
#[derive(Default)]
pub(crate) struct Counters {
    pub accepted: AtomicU64,
    pub responses: [AtomicU64; 5],
    /// This one and the next two are the only counters that several threads write.
    pub left_out: AtomicU64,
    pub shed: AtomicU64,
    pub aborted: AtomicU64,
    pub refused: AtomicU64,
    pub late: AtomicU64,
    pub read_bytes: AtomicU64,
    pub sent_bytes: AtomicU64,
    pub wakeups: AtomicU64,
    pub accept_failures: AtomicU64,
    pub tls_handshakes: AtomicU64,
    pub tls_failures: AtomicU64,
    pub panics: AtomicU64,
}

/// Adds to a counter that only one thread writes, without a locked instruction.
pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(n), Relaxed);
}

impl Counters {
    /// Counts a final response.
    pub fn responded(&self, status: u16) {
        if let Some(counter) = self.responses.get((status / 100).wrapping_sub(1) as usize) {
            add(counter, 1);
        }
    }

    /// The totals; connections and requests are counted elsewhere.
    pub fn snapshot(&self, connections: usize, requests_total: u64, budget: &Budget) -> Stats {
        let (held_bytes, spooled_bytes, no_room_total) = budget.totals();
        let get = |counter: &AtomicU64| counter.load(Relaxed);
        Stats {
            connections,
            requests_total,
            accepted_total: get(&self.accepted),
            responses_total: self.responses.each_ref().map(get),
            shed_total: get(&self.shed),
            refused_total: get(&self.refused),
            aborted_total: get(&self.aborted),
            late_total: get(&self.late),
            read_bytes_total: get(&self.read_bytes),
            sent_bytes_total: get(&self.sent_bytes),
            wakeups_total: get(&self.wakeups),
            accept_failures_total: get(&self.accept_failures),
            tls_handshakes_total: get(&self.tls_handshakes),
            tls_failures_total: get(&self.tls_failures),
            panics_total: get(&self.panics),
            held_bytes,
            spooled_bytes,
            no_room_total,
        }
    }
}
