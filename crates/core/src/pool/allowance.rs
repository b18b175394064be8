//! For how long the threads at work may be blocked although other work waits.
//!
//! A second unit of work beside the first is not always worth it, nor a third. Some work gives the GVL up for moments: Ruby's
//! zlib does for each string, so a page that reads forty compressed fragments from a cache does forty times, and the driver
//! of PostgreSQL does about seven times for a query. With another thread at work the GVL changes hands each time, mostly to another
//! core, whose caches know nothing of what Ruby has just used. Pages of 22 to 38 ms took 8 to 23 % more CPU so (Campfire, 4
//! and 10 clients, 16 alternations), for one call of Redis that took longer than `blocked_ms`; and Redmine's of 60 ms, with 2 to
//! 4 at work, 4 to 11 % more than with 1 or 2.
//!
//! So each moment without the GVL allows a block as long as the hand-over that it may cost, and what is allowed adds up.
//! Blocks that are longer than that together are joined as soon as ever: a request that calls a database ten times for
//! half a millisecond, or sleeps.
//!
//! On one core the GVL changes hands within the same caches, and a thread that waits leaves the core to the next one.
//! Redmine on one core of two, PostgreSQL on the other: 31 requests a second created without an allowance, 24 with it.

use crate::pool::policy::Facts;

/// What a hand-over of the GVL to another core costs (ns), the lower of two figures: in Campfire's room 32 switches fewer
/// in a page saved 4.6 ms, in its search 52 saved 2.7 ms.
const HAND_OVER_NS: u64 = 50_000;
/// The longest allowance (ns): so much later begins other work beside a long wait.
const ALLOWANCE_NS_MAX: u64 = 2_000_000;

/// The allowance of a pool.
pub(crate) struct Allowance {
    hand_over_ns: u64,
    left_ns: u64,
    moments: u64,
    blocked_ns: u64,
}

impl Allowance {
    /// `cores`: those on which the threads may run. Where it is one, hand-overs cost little, so nothing is allowed.
    pub fn new(cores: usize) -> Self {
        let hand_over_ns = if cores > 1 { HAND_OVER_NS } else { 0 };
        Self { hand_over_ns, left_ns: 0, moments: 0, blocked_ns: 0 }
    }

    /// Changes after which time without a runnable thread the pool is starved. `moments` counts the times that one was blocked
    /// for less than that. Longer times for which all were, while work waited, have lasted for `blocked_ns` in all. Both are
    /// counted since the start.
    pub fn apply(&mut self, facts: &mut Facts, moments: u64, blocked_ns: u64) {
        let gained_ns = moments.saturating_sub(self.moments).saturating_mul(self.hand_over_ns);
        let used_ns = blocked_ns.saturating_sub(self.blocked_ns);
        (self.moments, self.blocked_ns) = (moments, blocked_ns);
        self.left_ns = (self.left_ns + gained_ns).min(ALLOWANCE_NS_MAX).saturating_sub(used_ns);
        facts.starved_after_ns = facts.starved_after_ns.max(self.left_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;

    #[test]
    fn blocks_use_what_moments_allow() {
        let mut allowance = Allowance::new(2);
        let mut starved_after = |moments, blocked_us| {
            let mut facts = Facts { starved_after_ns: 100 * US, ..Facts::default() };
            allowance.apply(&mut facts, moments, blocked_us * US);
            facts.starved_after_ns / US
        };
        assert_eq!(starved_after(0, 0), 100);
        assert_eq!(starved_after(10, 0), 500);
        assert_eq!(starved_after(10, 300), 200);
        assert_eq!(starved_after(12, 300), 300);
        assert_eq!(starved_after(12, 9_000), 100, "a long one");
        assert_eq!(starved_after(15, 9_000), 150, "is not owed for");
        assert_eq!(starved_after(900, 9_000), ALLOWANCE_NS_MAX / US);
    }

    #[test]
    fn on_one_core_moments_allow_nothing() {
        let mut facts = Facts { starved_after_ns: 100 * US, ..Facts::default() };
        Allowance::new(1).apply(&mut facts, 900, 0);
        assert_eq!(facts.starved_after_ns, 100 * US);
    }
}
