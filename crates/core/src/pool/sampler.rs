//! Chooses the threads that the scheduler reads in one observation: few enough to be
//! cheap, and always the one that probably runs.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

use crate::pool::thread_record::ThreadRecord;

/// Threads read in one observation.
const SAMPLE_MAX: usize = 24;

/// Observations after which each of `threads` was read once. Each observation also
/// reads the last runner.
pub fn observations_for_all(threads: usize) -> u64 {
    threads.div_ceil(SAMPLE_MAX - 1).max(1) as u64
}

/// Remembers where the last observation ended, and which thread ran.
pub struct ThreadSampler {
    /// The thread that used the CPU most at the last observation.
    pub last_runner: usize,
    /// Since when it alone has used the CPU (ns of the clock).
    pub runner_since_ns: u64,
    next: usize,
}

impl Default for ThreadSampler {
    fn default() -> Self {
        Self { last_runner: usize::MAX, runner_since_ns: 0, next: 0 }
    }
}

impl ThreadSampler {
    /// Notes which thread used the CPU most since the last observation: `most` of the
    /// `used` ns of all threads. When nothing was used (the kernel ran other
    /// processes), the last runner remains the runner.
    pub fn note(&mut self, runner: usize, most: u64, used: u64, now_ns: u64) {
        if runner != self.last_runner || most * 4 < used * 3 {
            self.runner_since_ns = now_ns;
        }
        self.last_runner = runner;
    }

    /// The thread that ran last, and others that are not parked. When there are too
    /// many for one observation, the next one continues with the rest.
    pub fn pick(&mut self, threads: &[Option<Arc<ThreadRecord>>]) -> Vec<Arc<ThreadRecord>> {
        let last = threads.get(self.last_runner).into_iter().flatten();
        let (front, back) = threads.split_at(self.next.min(threads.len()));
        let others = back.iter().chain(front).flatten();
        let others = others.filter(|e| !e.parked.load(Relaxed) && e.index != self.last_runner);
        let sample: Vec<_> = last.chain(others).take(SAMPLE_MAX).cloned().collect();
        self.next = sample.last().map_or(0, |thread| thread.index + 1);
        sample
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossbeam_utils::sync::Parker;

    fn threads(parked: &[bool]) -> Vec<Option<Arc<ThreadRecord>>> {
        let thread = |(index, parked): (usize, &bool)| {
            let record = ThreadRecord::current(index, Parker::new().unparker().clone());
            record.parked.store(*parked, Relaxed);
            Some(Arc::new(record))
        };
        parked.iter().enumerate().map(thread).collect()
    }

    #[test]
    fn picks_the_last_runner_first_and_no_parked_threads() {
        let all = threads(&[false, true, false, false]);
        let mut sampler = ThreadSampler { last_runner: 3, ..ThreadSampler::default() };
        let seen: Vec<usize> = sampler.pick(&all).iter().map(|e| e.index).collect();
        assert_eq!(seen, [3, 0, 2]);
    }

    #[test]
    fn a_runner_counts_from_when_it_alone_used_the_cpu() {
        let mut sampler = ThreadSampler::default();
        for (runner, most, used, now, since) in [
            (1, 9, 9, 10, 10),
            (1, 8, 9, 20, 10),
            (1, 0, 0, 25, 10),
            (1, 5, 9, 30, 30),
            (2, 9, 9, 40, 40),
        ] {
            sampler.note(runner, most, used, now);
            assert_eq!(sampler.runner_since_ns, since);
        }
    }

    #[test]
    fn picks_every_thread_in_turn() {
        let all = threads(&[false; 100]);
        let mut sampler = ThreadSampler::default();
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..observations_for_all(100) {
            seen.extend(sampler.pick(&all).iter().map(|e| e.index));
        }
        assert_eq!(seen.len(), 100);
    }
}
