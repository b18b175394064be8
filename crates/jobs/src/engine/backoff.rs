//! Pauses between tries while the store fails, and what the log hears of it.

use std::time::Duration;

use crate::store::StoreError;
use chaton_core::random::Random;

/// The first pause.
const FIRST: Duration = Duration::from_millis(50);

/// Grows from 50 ms to a bound, each pause drawn from its upper half.
pub struct Backoff {
    max: Duration,
    next: Duration,
    failures: u64,
    last: String,
    random: Random,
}

impl Backoff {
    /// With this bound.
    pub fn new(max: Duration) -> Self {
        Self { max, next: FIRST.min(max), failures: 0, last: String::new(), random: Random::new() }
    }

    /// Notes a failure: the pause, and a line when it is a new one.
    pub fn failed(&mut self, who: &str, error: &StoreError) -> (Duration, Option<String>) {
        self.failures += 1;
        let line = (self.last != error.message).then(|| {
            self.last.clone_from(&error.message);
            format!("jobs: {who}: {error}; trying again, at most {:?} apart", self.max)
        });
        let pause = self.next.mul_f64(0.5 + 0.5 * self.random.unit());
        self.next = (self.next * 2).min(self.max);
        (pause, line)
    }

    /// Notes a success; a line when it ended a row of failures.
    pub fn worked(&mut self, who: &str) -> Option<String> {
        if self.failures == 0 {
            return None;
        }
        let line = format!("jobs: {who}: the store answers again after {} failures", self.failures);
        self.failures = 0;
        self.next = FIRST.min(self.max);
        self.last.clear();
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_to_its_bound_and_says_each_thing_once() {
        let mut backoff = Backoff::new(Duration::from_millis(200));
        let error = StoreError::unavailable("gone");
        let (first, line) = backoff.failed("claim", &error);
        assert!(first <= FIRST && line.unwrap().contains("gone"));
        for _ in 0..10 {
            let (pause, line) = backoff.failed("claim", &error);
            assert!(pause <= Duration::from_millis(200) && line.is_none());
        }
        assert!(backoff.failed("claim", &StoreError::unavailable("else")).1.is_some());
        assert!(backoff.worked("claim").unwrap().contains("12 failures"));
        assert!(backoff.worked("claim").is_none());
    }
}
