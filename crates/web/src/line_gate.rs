//! Lines of the log that clients can cause as often as they like.

use std::mem;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// As often as an operator may want to see such a line, and no disk is filled.
const INTERVAL: Duration = Duration::from_secs(1);

/// Lets one line through in each second, and counts the others.
#[derive(Default)]
pub(crate) struct LineGate(Mutex<(Option<Instant>, u64)>);

impl LineGate {
    /// `Some`: the line is written, and says how many before it were not.
    pub fn pass(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock();
        let (last, held_back) = &mut *state;
        if last.is_some_and(|last| now.saturating_duration_since(last) < INTERVAL) {
            *held_back += 1;
            return None;
        }
        *last = Some(now);
        Some(mem::take(held_back))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_second_counts_the_others() {
        let (gate, start) = (LineGate::default(), Instant::now());
        let seen: Vec<_> = [0, 10, 999, 1000, 1001, 2500]
            .map(|ms| gate.pass(start + Duration::from_millis(ms)))
            .into();
        assert_eq!(seen, [Some(0), None, None, Some(2), None, Some(1)]);
    }
}
