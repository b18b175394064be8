//! Pauses between attempts, and which failures are logged.

use std::time::Duration;

use chaton_core::random::Random;

/// The first pause after the log failed.
const FIRST_MS: u64 = 100;

/// The pause after this many failures in a row. It doubles from `first_ms` to `max_ms`, and is
/// drawn from the upper half of that.
pub(super) fn pause_ms(first_ms: u64, max_ms: u64, failures: u32, random: &mut Random) -> u64 {
    let doublings = failures.saturating_sub(1).min(40);
    let whole = first_ms.saturating_mul(1 << doublings).min(max_ms);
    (whole as f64 * (0.5 + 0.5 * random.unit())) as u64
}

/// Counts the failures of one operation that is tried again.
pub(super) struct Backoff {
    max_ms: u64,
    failures: u32,
    last: String,
    random: Random,
}

impl Backoff {
    /// With this longest pause.
    pub fn new(max_ms: u64) -> Self {
        Self { max_ms, failures: 0, last: String::new(), random: Random::new() }
    }

    /// Counts a failure: answers the pause, and whether its message differs from the last one.
    pub fn failed(&mut self, message: &str) -> (Duration, bool) {
        self.failures = self.failures.saturating_add(1);
        let is_new = self.last != message;
        if is_new {
            self.last = message.to_owned();
        }
        let pause = pause_ms(FIRST_MS, self.max_ms, self.failures, &mut self.random);
        (Duration::from_millis(pause), is_new)
    }

    /// Counts a success: answers how many failures came before it.
    pub fn succeeded(&mut self) -> u32 {
        self.last.clear();
        std::mem::take(&mut self.failures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_their_limit() {
        let mut random = Random::seeded(7);
        for (failures, whole) in [(1, 1_000), (2, 2_000), (3, 4_000), (7, 60_000), (99, 60_000)] {
            let pause = pause_ms(1_000, 60_000, failures, &mut random);
            assert!((whole / 2..=whole).contains(&pause), "{failures}: {pause}");
        }
    }

    #[test]
    fn each_message_is_new_once() {
        let mut backoff = Backoff::new(1_000);
        assert!(backoff.failed("gone").1);
        assert!(!backoff.failed("gone").1);
        assert!(backoff.failed("refused").1);
        assert_eq!(backoff.succeeded(), 3);
        assert_eq!(backoff.succeeded(), 0);
        assert!(backoff.failed("refused").1);
    }
}
