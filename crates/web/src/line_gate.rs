//! Lines of the log that clients can cause as often as they like.

use std::mem;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Lets one line through in each interval, and counts what it stands for.
pub(crate) struct LineGate {
    interval: Duration,
    state: Mutex<(Option<Instant>, usize)>,
}

impl LineGate {
    pub fn every(interval: Duration) -> Self {
        Self { interval, state: Mutex::default() }
    }

    /// As many events more. `Some`: the line is written, and says how many there were since the one before.
    pub fn pass(&self, events: usize, now: Instant) -> Option<usize> {
        let mut state = self.state.lock();
        let (last, count) = &mut *state;
        *count += events;
        if last.is_some_and(|last| now.saturating_duration_since(last) < self.interval) {
            return None;
        }
        *last = Some(now);
        Some(mem::take(count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_second_counts_the_others() {
        let (gate, start) = (LineGate::every(Duration::from_secs(1)), Instant::now());
        let seen: Vec<_> = [0, 10, 999, 1000, 1001, 2500]
            .map(|ms| gate.pass(1, start + Duration::from_millis(ms)))
            .into();
        assert_eq!(seen, [Some(1), None, None, Some(3), None, Some(2)]);
    }
}
