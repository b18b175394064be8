//! Text in shared memory.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a word.
pub(crate) const WORD: usize = 8;

/// Text in shared memory, padded with zeros; it contains none itself.
#[repr(C)]
pub(crate) struct AtomicText<const WORDS: usize>([AtomicU64; WORDS]);

impl<const WORDS: usize> AtomicText<WORDS> {
    pub fn set(&self, text: &[u8]) {
        for (index, word) in self.0.iter().enumerate() {
            let from = (index * WORD).min(text.len());
            let part = &text[from..(from + WORD).min(text.len())];
            let mut bytes = [0; WORD];
            bytes[..part.len()].copy_from_slice(part);
            word.store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
        }
    }

    pub fn get(&self) -> String {
        let bytes: Vec<u8> =
            self.0.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect();
        let len = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..len]).into_owned()
    }
}
