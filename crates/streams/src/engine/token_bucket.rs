//! A token bucket, which limits how fast a partition's records are handed out.

use super::settings::Throttle;

/// Fills at a steady rate; each record that is handed out takes a token.
#[derive(Clone, Debug)]
pub(super) struct TokenBucket {
    size: u64,
    ns_per_token: f64,
    tokens: f64,
    at_ns: u64,
}

impl TokenBucket {
    /// Full at `now_ns`.
    pub fn new(throttle: Throttle, now_ns: u64) -> Self {
        let size = throttle.records.max(1);
        let ns_per_token = throttle.per.as_nanos() as f64 / size as f64;
        Self { size, ns_per_token, tokens: size as f64, at_ns: now_ns }
    }

    /// The most that can be taken at once.
    pub fn size(&self) -> usize {
        usize::try_from(self.size).unwrap_or(usize::MAX)
    }

    /// Takes this many tokens, or returns when they will be there.
    pub fn take(&mut self, count: usize, now_ns: u64) -> Result<(), u64> {
        let passed = now_ns.saturating_sub(self.at_ns) as f64;
        self.at_ns = self.at_ns.max(now_ns);
        if self.ns_per_token > 0.0 {
            self.tokens = (self.tokens + passed / self.ns_per_token).min(self.size as f64);
        } else {
            self.tokens = self.size as f64;
        }
        let missing = count as f64 - self.tokens;
        if missing <= 0.0 {
            self.tokens -= count as f64;
            return Ok(());
        }
        Err(now_ns + (missing * self.ns_per_token).ceil() as u64)
    }

    /// Puts back tokens that were not used.
    pub fn put_back(&mut self, count: usize) {
        self.tokens = (self.tokens + count as f64).min(self.size as f64);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn it_gives_out_as_many_tokens_as_have_come_in() {
        let mut bucket =
            TokenBucket::new(Throttle { records: 100, per: Duration::from_millis(1_000) }, 0);
        assert_eq!(bucket.take(100, 0), Ok(()));
        assert_eq!(bucket.take(50, 0), Err(SECOND / 2));
        assert_eq!(bucket.take(50, SECOND / 2), Ok(()));
        bucket.put_back(10);
        assert_eq!(bucket.take(10, SECOND / 2), Ok(()));
        assert_eq!(bucket.take(101, 100 * SECOND), Err(100 * SECOND + SECOND / 100));
        assert_eq!(bucket.take(100, 100 * SECOND), Ok(()));
    }
}
