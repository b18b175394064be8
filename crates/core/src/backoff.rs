//! Pauses between attempts at an operation that fails.

use std::time::Duration;

/// The pause after `failures` in a row. It doubles from `first` to `max` and is random
/// in its upper half, so that many clients do not retry at the same time.
pub fn pause(
    first: Duration,
    max: Duration,
    failures: u32,
    random: &mut fastrand::Rng,
) -> Duration {
    let doublings = failures.saturating_sub(1).min(30);
    let whole = first.saturating_mul(1 << doublings).min(max);
    whole.mul_f64(0.5 + 0.5 * random.f64())
}

/// [`pause`] in ms.
pub fn pause_ms(first_ms: u64, max_ms: u64, failures: u32, random: &mut fastrand::Rng) -> u64 {
    let ms = Duration::from_millis;
    pause(ms(first_ms), ms(max_ms), failures, random).as_millis() as u64
}

/// Counts the failures of one operation. Each new error is reported once, so that an
/// outage does not fill the log.
pub struct Backoff {
    first: Duration,
    max: Duration,
    failures: u32,
    last_error: String,
    random: fastrand::Rng,
}

impl Backoff {
    /// Pauses that grow from `first` to `max`.
    pub fn new(first: Duration, max: Duration) -> Self {
        let random = fastrand::Rng::new();
        Self { first, max, failures: 0, last_error: String::new(), random }
    }

    /// The same after an error that is reported already.
    pub fn reported(mut self, error: &str) -> Self {
        error.clone_into(&mut self.last_error);
        self
    }

    /// The longest pause.
    pub fn max(&self) -> Duration {
        self.max
    }

    /// Notes a failure; returns the pause before the next attempt and whether the error
    /// differs from the last one.
    pub fn failed(&mut self, error: &str) -> (Duration, bool) {
        self.failures = self.failures.saturating_add(1);
        let is_new = self.last_error != error;
        if is_new {
            error.clone_into(&mut self.last_error);
        }
        (pause(self.first, self.max, self.failures, &mut self.random), is_new)
    }

    /// Notes a success; returns how many failures came before it.
    pub fn succeeded(&mut self) -> u32 {
        self.last_error.clear();
        std::mem::take(&mut self.failures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_to_their_bound() {
        let mut random = fastrand::Rng::with_seed(7);
        let s = Duration::from_secs;
        for (failures, whole) in [(1, 1), (2, 2), (3, 4), (7, 60), (99, 60)] {
            let pause = pause(s(1), s(60), failures, &mut random);
            assert!((s(whole) / 2..=s(whole)).contains(&pause), "{failures}: {pause:?}");
        }
    }

    #[test]
    fn each_error_is_new_once() {
        let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));
        assert!(backoff.failed("gone").1);
        assert!(!backoff.failed("gone").1);
        assert!(backoff.failed("refused").1);
        assert_eq!((backoff.succeeded(), backoff.succeeded()), (3, 0));
        assert!(backoff.failed("refused").1);
        let mut backoff = backoff.reported("gone");
        assert!(!backoff.failed("gone").1);
        assert!(backoff.failed("refused").1);
    }
}
