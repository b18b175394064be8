//! The brake on growth: more threads that bring no more finished units are
//! taken back.
//!
//! A stall says "nobody uses the CPU", which is also true when all threads
//! wait for the same lock or a full connection pool; there, more threads only
//! cost memory. So growth goes in stages. Within a stage the width may rise
//! sixteen-fold; when every thread has had the time to finish a unit the
//! stage's rate is compared with the one before, if that one was stalled, too
//! (a rate from before a change of load says nothing). The width was doubled
//! but the rate rose by less than a tenth: the pool is held at the earlier
//! width for `HOLD_NS`, then may try again. Sixteen threads are always allowed.

/// Least length of a stage.
const STAGE_NS: u64 = 100_000_000;
/// Longest length of a stage.
const STAGE_MAX_NS: u64 = 5_000_000_000;
/// How long a width that did not help is kept out.
const HOLD_NS: u64 = 5_000_000_000;
/// Factor by which the width may rise in a stage, and the width that may
/// always be reached.
const STAGE_WIDTH: usize = 16;

struct Stage {
    since_ns: u64,
    finished: u64,
    width: usize,
    stalled: bool,
}

/// Watches width against finished units.
pub struct Growth {
    stage: Stage,
    before: Option<(usize, f64)>,
    held: Option<(usize, u64)>,
}

impl Growth {
    /// A brake that has seen nothing yet.
    pub fn new(now_ns: u64) -> Self {
        let stage = Stage { since_ns: now_ns, finished: 0, width: 1, stalled: false };
        Self { stage, before: None, held: None }
    }

    /// The most threads useful now, between 1 and `max`. `finished` counts
    /// units since the start; `stalled` says whether units wait while no thread
    /// uses the CPU: a rate seen otherwise shows the demand or the CPU, not what
    /// more threads could do.
    pub fn limit(
        &mut self,
        now_ns: u64,
        finished: u64,
        width: usize,
        stalled: bool,
        max: usize,
    ) -> usize {
        self.stage.stalled |= stalled;
        self.close_stage(now_ns, finished, width);
        if self.held.is_some_and(|(_, until)| now_ns >= until) {
            self.held = None;
        }
        let staged = (self.stage.width * STAGE_WIDTH).max(STAGE_WIDTH);
        let held = self.held.map_or(max, |(width, _)| width);
        staged.min(held).min(max).max(1)
    }

    fn close_stage(&mut self, now_ns: u64, finished: u64, width: usize) {
        let length = now_ns.saturating_sub(self.stage.since_ns);
        let done = finished.saturating_sub(self.stage.finished);
        let every_thread_finished = done >= width as u64;
        if length < STAGE_NS || (!every_thread_finished && length < STAGE_MAX_NS) {
            return;
        }
        let rate = done as f64 / (length as f64 / 1e9);
        if let Some((before_width, before_rate)) = self.before {
            let wider = width >= before_width * 2;
            if self.stage.stalled && wider && rate < before_rate * 1.1 {
                self.held = Some((before_width.max(STAGE_WIDTH), now_ns + HOLD_NS));
            }
        }
        if self.held.is_none() {
            self.before = self.stage.stalled.then_some((width, rate));
        }
        self.stage = Stage { since_ns: now_ns, finished, width, stalled: false };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Runs `ms` of a server whose rate per second is `rate(width)`, with the
    /// width always at its limit; answers the widths at the end of each 50 ms.
    fn run(ms: u64, max: usize, rate: impl Fn(usize) -> f64) -> Vec<usize> {
        let mut growth = Growth::new(0);
        let (mut done, mut width, mut seen) = (0.0, 1, vec![]);
        for step in 1..=ms / 5 {
            done += rate(width) * 0.005;
            width = growth.limit(step * 5 * MS, done as u64, width, true, max);
            if step % 10 == 0 {
                seen.push(width);
            }
        }
        seen
    }

    #[test]
    fn sleeping_work_reaches_its_width_within_two_seconds() {
        for sleep_s in [0.1, 0.5] {
            let widths = run(2_000, 300, |width| width as f64 / sleep_s);
            assert_eq!(*widths.last().unwrap(), 300, "{sleep_s}: {widths:?}");
        }
    }

    #[test]
    fn work_behind_one_lock_is_held_back() {
        let widths = run(5_000, 300, |_| 100.0);
        assert!(*widths.last().unwrap() <= 16, "{widths:?}");
    }

    #[test]
    fn a_rate_from_before_a_change_of_load_holds_nothing_back() {
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

    #[test]
    fn a_held_width_is_tried_again() {
        let widths = run(40_000, 300, |_| 100.0);
        let rises = widths.windows(2).filter(|w| w[1] > w[0]).count();
        assert!(rises >= 2, "{widths:?}");
    }
}
