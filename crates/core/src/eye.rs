//! Which threads the sentinel looks at: few enough to be cheap, and always the
//! one that is likely to be running.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

use crate::executor::Executor;

/// Threads in one look.
const SAMPLE_MAX: usize = 24;

/// Remembers where the last look ended.
pub struct Eye {
    /// The executor that used the CPU most at the last look.
    pub last_runner: usize,
    next: usize,
}

impl Default for Eye {
    fn default() -> Self {
        Self { last_runner: usize::MAX, next: 0 }
    }
}

impl Eye {
    /// The executor that ran last, and others that are not parked; when there
    /// are too many for one look, each look takes the next ones.
    pub fn pick<L>(&mut self, executors: &[Option<Arc<Executor<L>>>]) -> Vec<Arc<Executor<L>>> {
        let last = executors.get(self.last_runner).into_iter().flatten();
        let (front, back) = executors.split_at(self.next.min(executors.len()));
        let others = back.iter().chain(front).flatten();
        let others = others.filter(|e| !e.parked.load(Relaxed) && e.index != self.last_runner);
        let sample: Vec<_> = last.chain(others).take(SAMPLE_MAX).cloned().collect();
        self.next = sample.last().map_or(0, |executor| executor.index + 1);
        sample
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ThreadProbe;
    use crossbeam_utils::sync::Parker;
    use parking_lot::Mutex;
    use std::sync::atomic::{AtomicBool, AtomicU64};

    fn executors(parked: &[bool]) -> Vec<Option<Arc<Executor<()>>>> {
        let executor = |(index, parked): (usize, &bool)| {
            Some(Arc::new(Executor {
                index,
                probe: ThreadProbe::current(),
                unparker: Parker::new().unparker().clone(),
                current: Mutex::new(None),
                parked: AtomicBool::new(*parked),
                cpu_seen_ns: AtomicU64::new(0),
                finished: AtomicU64::new(0),
            }))
        };
        parked.iter().enumerate().map(executor).collect()
    }

    #[test]
    fn leaves_out_parked_threads_and_begins_with_the_last_runner() {
        let all = executors(&[false, true, false, false]);
        let mut eye = Eye { last_runner: 3, next: 0 };
        let seen: Vec<usize> = eye.pick(&all).iter().map(|e| e.index).collect();
        assert_eq!(seen, [3, 0, 2]);
    }

    #[test]
    fn sees_every_thread_in_turn() {
        let all = executors(&[false; 100]);
        let mut eye = Eye::default();
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..6 {
            seen.extend(eye.pick(&all).iter().map(|e| e.index));
        }
        assert_eq!(seen.len(), 100);
    }
}
