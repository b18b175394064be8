//! Limits the width when more threads do not finish more work.
//!
//! A stall means that no thread uses the CPU. That is also true when all threads
//! wait for the same lock or a full connection pool; then more threads only cost
//! memory. So the width grows in stages, sixteen-fold at most in each. When every
//! thread has had the time to finish a unit of work, the stage's rate is compared
//! with the rate of the stage before. If the width at least doubled but the rate rose
//! by less than a tenth, the pool returns to the earlier width for a trial. If the
//! rate does not fall in the trial, the width is held for `HOLD_NS`. If it falls, the
//! load has changed (slower requests, more clients) and growth is free for `FREE_NS`.
//! Sixteen threads are always allowed.

/// Shortest length of a stage.
const STAGE_NS: u64 = 100_000_000;
/// Longest length of a stage.
const STAGE_MAX_NS: u64 = 5_000_000_000;
/// A longer time between two calls does not belong to a stage: nothing waited.
const GAP_NS: u64 = 20_000_000;
/// How long the width is held after growth that did not help.
const HOLD_NS: u64 = 20_000_000_000;
/// How long growth is free after a trial that failed.
const FREE_NS: u64 = 30_000_000_000;
/// Factor by which the width may grow in a stage; also the width that is always
/// allowed.
const STAGE_WIDTH: usize = 16;

struct Stage {
    since_ns: u64,
    finished: u64,
    width: usize,
    stalled: bool,
}

#[derive(Clone, Copy)]
enum Phase {
    /// Growth is free. `before` has the width and rate of the last stage, if known.
    Free { before: Option<(usize, f64)> },
    /// Back at `width`. The first stage still finishes work of the wide one, so it is
    /// not compared (`settled` is false).
    Trial { width: usize, wide_rate: f64, settled: bool },
    /// More threads did not help.
    Held { width: usize, rate: f64, until_ns: u64 },
    /// More threads did help: nothing is compared until then.
    Trusted { until_ns: u64 },
}

/// Compares the width with the rate of finished work.
pub struct Growth {
    stage: Stage,
    phase: Phase,
    called_ns: u64,
    finished: u64,
}

impl Growth {
    /// A limit that starts its first stage now.
    pub fn new(now_ns: u64) -> Self {
        Self {
            stage: Stage { since_ns: now_ns, finished: 0, width: 1, stalled: false },
            phase: Phase::Free { before: None },
            called_ns: now_ns,
            finished: 0,
        }
    }

    /// The most threads that are useful now, between 1 and `max`. Called while work
    /// waits. `finished` counts units of work since the start. `stalled` means that no
    /// thread uses the CPU; a rate without a stall shows the limit of the CPU, not what
    /// more threads could do.
    pub fn limit(
        &mut self,
        now_ns: u64,
        finished: u64,
        width: usize,
        stalled: bool,
        max: usize,
    ) -> usize {
        self.leave_out_gap(now_ns, finished);
        self.stage.stalled |= stalled;
        let length = now_ns.saturating_sub(self.stage.since_ns);
        let done = finished.saturating_sub(self.stage.finished);
        let each_finished_one = done >= width as u64;
        if length >= STAGE_NS && (each_finished_one || length >= STAGE_MAX_NS) {
            let rate = done as f64 / (length as f64 / 1e9);
            self.phase = self.next_phase(now_ns, width, rate);
            self.stage = Stage { since_ns: now_ns, finished, width, stalled: false };
        }
        let staged = (self.stage.width * STAGE_WIDTH).max(STAGE_WIDTH);
        let held = match self.phase {
            Phase::Trial { width, .. } | Phase::Held { width, .. } => width,
            Phase::Free { .. } | Phase::Trusted { .. } => max,
        };
        staged.min(held).min(max).max(1)
    }

    /// A pause and the work finished in it do not belong to the stage.
    fn leave_out_gap(&mut self, now_ns: u64, finished: u64) {
        let gap = now_ns.saturating_sub(self.called_ns);
        if gap > GAP_NS {
            self.stage.since_ns += gap;
            self.stage.finished += finished.saturating_sub(self.finished);
        }
        self.called_ns = now_ns;
        self.finished = finished;
    }

    fn next_phase(&self, now_ns: u64, width: usize, rate: f64) -> Phase {
        let free = Phase::Free { before: self.stage.stalled.then_some((width, rate)) };
        match self.phase {
            Phase::Free { before: Some((narrow, narrow_rate)) }
                if self.stage.stalled && width >= narrow * 2 && rate < narrow_rate * 1.1 =>
            {
                Phase::Trial { width: narrow.max(STAGE_WIDTH), wide_rate: rate, settled: false }
            }
            Phase::Free { .. } => free,
            Phase::Trial { width, wide_rate, settled: false } => {
                Phase::Trial { width, wide_rate, settled: true }
            }
            Phase::Trial { wide_rate, .. } if rate < wide_rate * 0.9 => {
                Phase::Trusted { until_ns: now_ns + FREE_NS }
            }
            Phase::Trial { width, .. } => Phase::Held { width, rate, until_ns: now_ns + HOLD_NS },
            Phase::Held { width, rate, until_ns } if now_ns >= until_ns => {
                Phase::Free { before: Some((width, rate)) }
            }
            Phase::Trusted { until_ns } if now_ns >= until_ns => Phase::Free { before: None },
            unchanged => unchanged,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A simulated server that always uses as many threads as are allowed.
    struct Server {
        growth: Growth,
        ms: u64,
        done: f64,
        width: usize,
    }

    impl Server {
        fn new() -> Self {
            Self { growth: Growth::new(0), ms: 0, done: 0.0, width: 1 }
        }

        /// Runs for some ms at `rate(width)` units per second; returns the width after
        /// each 50 ms.
        fn run(&mut self, ms: u64, max: usize, rate: impl Fn(usize) -> f64) -> Vec<usize> {
            let mut seen = vec![];
            for step in 1..=ms / 5 {
                self.ms += 5;
                self.done += rate(self.width) * 0.005;
                let (now, done) = (self.ms * MS, self.done as u64);
                self.width = self.growth.limit(now, done, self.width, true, max);
                if step % 10 == 0 {
                    seen.push(self.width);
                }
            }
            seen
        }
    }

    fn sleeping(seconds: f64) -> impl Fn(usize) -> f64 {
        move |width| width as f64 / seconds
    }

    #[test]
    fn sleeping_work_reaches_its_width_within_two_seconds() {
        for seconds in [0.1, 0.5] {
            let widths = Server::new().run(2_000, 300, sleeping(seconds));
            assert_eq!(*widths.last().unwrap(), 300, "{seconds}: {widths:?}");
        }
    }

    #[test]
    fn the_width_of_work_behind_one_lock_is_held_and_later_tried_again() {
        let widths = Server::new().run(90_000, 300, |_| 100.0);
        let held = widths.iter().filter(|width| **width <= 16).count();
        assert!(held * 2 > widths.len(), "{widths:?}");
        assert!(widths.windows(2).filter(|w| w[1] > w[0]).count() >= 2, "{widths:?}");
    }

    #[test]
    fn slower_requests_of_more_clients_are_limited_for_a_trial_at_most() {
        let mut server = Server::new();
        server.run(5_000, 100, sleeping(0.1));
        let widths = server.run(10_000, 300, sleeping(0.5));
        let held = widths.iter().filter(|width| **width < 300).count();
        assert!(held * 50 <= 3_000, "{widths:?}");
        assert_eq!(*widths.last().unwrap(), 300);
    }

    #[test]
    fn a_pause_does_not_lower_the_rate() {
        let mut server = Server::new();
        for _ in 0..10 {
            let widths = server.run(1_000, 300, sleeping(0.1));
            assert!(widths.iter().skip(10).all(|width| *width == 300), "{widths:?}");
            server.ms += 3_000;
        }
    }

    #[test]
    fn a_rate_without_stalls_does_not_limit_growth() {
        let mut growth = Growth::new(0);
        for ms in 1..=1_000 {
            growth.limit(ms * MS, ms * 60, 1, false, 300);
        }
        let mut done = 60_000;
        for ms in 1_001..=2_000 {
            done += ms % 2;
            assert!(growth.limit(ms * MS, done, 8, true, 300) >= 16);
        }
    }
}
