//! Lots for thinning out; nothing secret hangs on them.

use std::hash::{BuildHasher, Hasher};

/// A small generator (xorshift64*, Vigna 2016).
pub(super) struct Random(u64);

impl Random {
    /// Seeded by the standard library's per-process randomness.
    pub(super) fn new() -> Self {
        Self::seeded(std::collections::hash_map::RandomState::new().build_hasher().finish())
    }

    /// A repeatable sequence.
    pub(super) fn seeded(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// The next number; its high bits are the better ones.
    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 8
    }

    /// True once in `n` (a power of two).
    pub(super) fn one_in(&mut self, n: u32) -> bool {
        n <= 1 || self.next() & u64::from(n - 1) == 0
    }
}
