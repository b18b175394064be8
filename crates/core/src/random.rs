//! Random numbers for jitter, draws and names; nothing secret hangs on them.

use std::hash::{BuildHasher, Hasher};

/// A small generator (xorshift64*, Vigna 2016).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Seeded by the standard library's per-process randomness.
    pub fn new() -> Self {
        Self::seeded(std::collections::hash_map::RandomState::new().build_hasher().finish())
    }

    /// A repeatable sequence, for tests.
    pub fn seeded(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// Uniform in 0..1.
    pub fn unit(&mut self) -> f64 {
        (self.draw() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform in 0..bound; 0 for a bound of 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        (self.unit() * bound as f64) as u64
    }
}

impl Default for Random {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_one_sequence_and_each_start_another() {
        let take = |mut random: Random| [random.draw(), random.draw(), random.draw()];
        assert_eq!(take(Random::seeded(7)), take(Random::seeded(7)));
        assert_ne!(take(Random::seeded(7)), take(Random::seeded(9)));
        assert_ne!(take(Random::new()), take(Random::new()));
    }

    #[test]
    fn draws_are_spread_over_their_range() {
        let mut random = Random::seeded(3);
        let mut seen = [0u32; 8];
        (0..8_000).for_each(|_| seen[random.below(8) as usize] += 1);
        assert!(seen.iter().all(|count| (850..1150).contains(count)), "{seen:?}");
        assert_eq!(random.below(0), 0);
    }
}
