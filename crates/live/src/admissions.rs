//! How many of the clients that come back without a valid position may ask the application.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Time between two of them: the application does other work, too.
const EVERY: Duration = Duration::from_millis(5);
/// So many are let through at once.
const AT_ONCE: u32 = 20;
/// Longest wait; later ones try again by themselves.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// Lets them ask one after another. It has the moment of the next one.
pub struct Admissions(Mutex<Instant>);

impl Admissions {
    /// Nobody has asked before.
    pub fn new(now: Instant) -> Self {
        Self(Mutex::new(now - EVERY * AT_ONCE))
    }

    /// How long the next one waits; none: there are too many.
    pub fn wait(&self, now: Instant) -> Option<Duration> {
        let mut next = self.0.lock();
        let at = (*next).max(now - EVERY * AT_ONCE);
        let wait = at.saturating_duration_since(now);
        if wait > WAIT_MAX {
            return None;
        }
        *next = at + EVERY;
        Some(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_ask_at_once_and_the_others_in_turn_until_there_are_too_many() {
        let now = Instant::now();
        let admissions = Admissions::new(now);
        let wait_ms = |at_ms| {
            let at = now + Duration::from_millis(at_ms);
            admissions.wait(at).map(|wait| wait.as_millis() as u64)
        };
        assert!((0..=AT_ONCE).all(|_| wait_ms(0) == Some(0)));
        assert_eq!([wait_ms(0), wait_ms(0), wait_ms(10)], [Some(5), Some(10), Some(5)]);
        // 5,000 clients come back at once: the last one asks within half a minute.
        let waits: Vec<_> = (0..5000).map(|_| wait_ms(10)).collect();
        assert_eq!(waits.last(), Some(&Some(5 * 5001)));
        assert_eq!((0..2000).filter(|_| wait_ms(10).is_none()).count(), 1001);
        assert!(wait_ms(40_000).is_some_and(|wait| wait < 1000), "they have asked meanwhile");
    }
}
