//! The times at which requests are due.

/// Times at a constant rate, beginning at 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule {
    rate: f64,
    count: u64,
}

impl Schedule {
    /// `rate` requests a second for `seconds`. `None` if either is not a
    /// positive number, or if no request would be due.
    pub fn new(rate: f64, seconds: f64) -> Option<Self> {
        let count = (rate * seconds).round();
        let sane = rate.is_finite() && rate > 0.0 && count.is_finite() && count >= 1.0;
        sane.then_some(Self { rate, count: count as u64 })
    }

    /// The number of requests.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Requests a second.
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// Nanoseconds from the start to request `number`, counted from 0.
    /// Computed from the number, so that rounding errors do not add up.
    pub fn due_ns(&self, number: u64) -> u64 {
        (number as f64 * 1e9 / self.rate) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_evenly_spaced() {
        let schedule = Schedule::new(3.0, 4.0).unwrap();
        assert_eq!(schedule.count(), 12);
        assert_eq!(schedule.due_ns(0), 0);
        assert_eq!(schedule.due_ns(1), 333_333_333);
        assert_eq!(schedule.due_ns(9), 3_000_000_000);
    }

    #[test]
    fn invalid_rates_are_refused() {
        for (rate, seconds) in [(0.0, 1.0), (-1.0, 1.0), (f64::NAN, 1.0), (1.0, 0.1)] {
            assert_eq!(Schedule::new(rate, seconds), None, "{rate} for {seconds} s");
        }
        assert_eq!(Schedule::new(f64::INFINITY, 1.0), None);
    }
}
