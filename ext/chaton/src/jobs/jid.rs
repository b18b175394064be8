//! Ids of jobs: 24 hexadecimal digits, drawn from the system's generator 4 KB at a time.

use parking_lot::Mutex;

use crate::handle::generation;

/// Random bytes of an id.
const BYTES: usize = 12;
/// Digits of an id.
pub const DIGITS: usize = 2 * BYTES;
/// Bytes drawn at once, a multiple of [`BYTES`].
const DRAWN: usize = 4_092;
const HEX: &[u8; 16] = b"0123456789abcdef";

struct RandomBytes {
    bytes: [u8; DRAWN],
    used: usize,
    /// The generation of the process: a forked child draws its own bytes.
    made_in: u32,
}

static RANDOM: Mutex<RandomBytes> =
    Mutex::new(RandomBytes { bytes: [0; DRAWN], used: DRAWN, made_in: 0 });

/// A new id. Call with the GVL, so that no fork happens under the lock.
pub fn new() -> [u8; DIGITS] {
    let mut random = RANDOM.lock();
    if random.used + BYTES > DRAWN || random.made_in != generation() {
        draw(&mut random.bytes);
        random.used = 0;
        random.made_in = generation();
    }
    let from = random.used;
    random.used += BYTES;
    let mut digits = [0; DIGITS];
    for (index, byte) in random.bytes[from..from + BYTES].iter().enumerate() {
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
        // It fails only when a signal interrupts it.
        filled += usize::try_from(got).unwrap_or(0);
    }
}
