//! Wiping the machine stack: Ruby takes whatever lies on it for a reference.
//!
//! A thread that waits keeps alive what its last unit of work left in the part
//! of the stack that the waiting call uses again without writing all of it: up
//! to one large payload for each thread of a pool. (Kiji had `GC.exorcise`.)

use std::hint::black_box;

/// More than the calls between here and the wait take.
const BYTES: usize = 16 * 1024;

/// Overwrites the stack below the caller's frame; a fraction of a microsecond.
#[inline(never)]
pub fn wipe() {
    // Looked at from outside, so that it is really written.
    black_box(&[0u8; BYTES]);
}
