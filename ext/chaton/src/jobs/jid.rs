//! Numbers of jobs: 24 hexadecimal digits, drawn from the system's generator
//! 4 KB at a time.

use parking_lot::Mutex;

use crate::handle::generation;

/// Bytes of randomness in a number.
const BYTES: usize = 12;
/// Digits of a number.
pub const DIGITS: usize = 2 * BYTES;
/// Bytes drawn at once, a multiple of [`BYTES`].
const DRAWN: usize = 4_092;
const HEX: &[u8; 16] = b"0123456789abcdef";

struct Store {
    bytes: [u8; DRAWN],
    used: usize,
    /// A forked child must not use what its parent will use.
    made_in: u32,
}

static STORE: Mutex<Store> = Mutex::new(Store { bytes: [0; DRAWN], used: DRAWN, made_in: 0 });

/// A new number. Call with the GVL: a fork then finds the lock open.
pub fn new() -> [u8; DIGITS] {
    let mut store = STORE.lock();
    if store.used + BYTES > DRAWN || store.made_in != generation() {
        draw(&mut store.bytes);
        store.used = 0;
        store.made_in = generation();
    }
    let from = store.used;
    store.used += BYTES;
    let mut digits = [0; DIGITS];
    for (index, byte) in store.bytes[from..from + BYTES].iter().enumerate() {
        digits[2 * index] = HEX[usize::from(byte >> 4)];
        digits[2 * index + 1] = HEX[usize::from(byte & 15)];
    }
    digits
}

fn draw(bytes: &mut [u8]) {
    let mut filled = 0;
    while filled < bytes.len() {
        let rest = &mut bytes[filled..];
        // SAFETY: writes at most the length of `rest`.
        let got = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        // It fails for a signal that came first only: the kernel's pool is ready.
        filled += usize::try_from(got).unwrap_or(0);
    }
}
