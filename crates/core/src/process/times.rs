//! How long things took: histograms in shared memory.

use std::sync::atomic::{AtomicU64, Ordering};

const BUCKETS: usize = 17;
/// Upper bounds of the buckets (s); what is longer is in one more. The page shows percentiles as ranges between
/// them, so that also those of jobs that run for minutes say something.
pub const BOUNDS_S: [f64; BUCKETS] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0,
    300.0,
];

/// Adds to a counter that only one thread writes at a time, without a locked instruction.
pub fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
}

/// How many times took how long.
#[repr(C)]
#[derive(Default)]
pub struct TimeHistogram {
    buckets: [AtomicU64; BUCKETS + 1],
    sum_ns: AtomicU64,
}

impl TimeHistogram {
    fn bucket(ns: u64) -> usize {
        let seconds = ns as f64 / 1e9;
        BOUNDS_S.iter().position(|bound| seconds <= *bound).unwrap_or(BUCKETS)
    }

    /// Adds a time; any thread may.
    pub fn add(&self, ns: u64) {
        self.buckets[Self::bucket(ns)].fetch_add(1, Ordering::Relaxed);
        self.sum_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// Adds a time, where only one thread does at a time.
    pub fn add_alone(&self, ns: u64) {
        add(&self.buckets[Self::bucket(ns)], 1);
        add(&self.sum_ns, ns);
    }

    /// Adds what it has counted to `totals`.
    pub fn sum_into(&self, totals: &mut TimeTotals) {
        for (sum, bucket) in totals.buckets.iter_mut().zip(&self.buckets) {
            *sum += bucket.load(Ordering::Relaxed);
        }
        totals.sum_ns += self.sum_ns.load(Ordering::Relaxed);
    }
}

/// The sum of several [`TimeHistogram`]s.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimeTotals {
    /// Times in each bucket, the last one without a bound.
    pub buckets: [u64; BUCKETS + 1],
    /// Their sum (ns).
    pub sum_ns: u64,
}

impl TimeTotals {
    /// How many times there are.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_the_first_bucket_that_it_fits_into() {
        let histogram = TimeHistogram::default();
        histogram.add(1_000_000);
        histogram.add_alone(1_000_001);
        histogram.add(301_000_000_000);
        let mut totals = TimeTotals::default();
        histogram.sum_into(&mut totals);
        assert_eq!((totals.buckets[0], totals.buckets[1], totals.buckets[BUCKETS]), (1, 1, 1));
        assert_eq!(totals.sum_ns, 301_002_000_001);
    }
}
