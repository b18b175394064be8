//! A fast hash for tables keyed by addresses and small numbers.
//!
//! The standard library's guards against hostile keys, which addresses are
//! not, and costs several times as much per frame. This multiplies each word
//! and folds the product's halves together, so that low bits depend on all.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map with the fast hash.
pub(super) type Map<K, V> = HashMap<K, V, BuildHasherDefault<Fold>>;

/// The golden ratio in 64 bits.
const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;

/// The state of a hash.
#[derive(Default)]
pub(super) struct Fold(u64);

impl Hasher for Fold {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        let product = u128::from(self.0.rotate_left(5) ^ word ^ FACTOR) * u128::from(FACTOR);
        self.0 = product as u64 ^ (product >> 64) as u64;
    }

    fn write_u8(&mut self, word: u8) {
        self.write_u64(u64::from(word));
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
