//! What the engine has counted.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A snapshot of an engine's counters; totals count from its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Connections open now.
    pub connections: usize,
    /// Connections accepted.
    pub accepted_total: u64,
    /// Requests handed over.
    pub requests_total: u64,
    /// Final answers sent, by the first digit of their status: `[1xx, …, 5xx]`.
    pub responses_total: [u64; 5],
    /// Requests refused for want of room in the queue.
    pub shed_total: u64,
    /// Requests the engine refused by itself: malformed, too large, too slow.
    pub refused_total: u64,
    /// Requests answered 503 because the request timeout passed.
    pub late_total: u64,
    /// Bytes read from clients.
    pub read_bytes_total: u64,
    /// Bytes sent to clients.
    pub sent_bytes_total: u64,
    /// Times the IO thread woke.
    pub wakeups_total: u64,
    /// Failed `accept` calls for want of descriptors or memory.
    pub accept_failures_total: u64,
    /// Connections of which the handling panicked; each is a defect.
    pub panics_total: u64,
}

/// A counter written by one thread, or with [`Counter::add_shared`] by many.
#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds without the cost of a locked instruction: one writing thread only.
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// Adds from any thread.
    pub fn add_shared(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// The counters behind [`Stats`].
#[derive(Default)]
pub(crate) struct Counters {
    pub accepted: Counter,
    pub responses: [Counter; 5],
    pub shed: Counter,
    pub refused: Counter,
    pub late: Counter,
    pub read_bytes: Counter,
    pub sent_bytes: Counter,
    pub wakeups: Counter,
    pub accept_failures: Counter,
    pub panics: Counter,
}

impl Counters {
    /// Counts a final answer.
    pub fn responded(&self, status: u16) {
        if let Some(counter) = self.responses.get((status / 100).wrapping_sub(1) as usize) {
            counter.add(1);
        }
    }

    /// The totals; connections and requests are counted elsewhere.
    pub fn snapshot(&self, connections: usize, requests_total: u64) -> Stats {
        Stats {
            connections,
            requests_total,
            accepted_total: self.accepted.get(),
            responses_total: self.responses.each_ref().map(Counter::get),
            shed_total: self.shed.get(),
            refused_total: self.refused.get(),
            late_total: self.late.get(),
            read_bytes_total: self.read_bytes.get(),
            sent_bytes_total: self.sent_bytes.get(),
            wakeups_total: self.wakeups.get(),
            accept_failures_total: self.accept_failures.get(),
            panics_total: self.panics.get(),
        }
    }
}
