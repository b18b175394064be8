//! Wipes the machine stack, because Ruby's collector treats every word on it as a
//! possible reference.
//!
//! A waiting thread would otherwise keep objects of its last unit of work alive: the
//! wait reuses that part of the stack without overwriting all of it. This can hold one
//! large payload per thread of the pool. (Kiji had `GC.exorcise`.) Only frames below the
//! caller's are wiped, so those above must be older than the first unit: with a loop in
//! Ruby around the wait, 25 threads kept 59 MB of documents of up to 2 MB, in the
//! interpreter's frames between.

use std::hint::black_box;

/// More than the calls between here and the wait use.
const BYTES: usize = 4 * 1024;

/// Overwrites the stack below the caller's frame; a fraction of a microsecond.
#[inline(never)]
pub fn wipe() {
    // By value: a reference would be to a constant, and nothing would be written.
    black_box([0u8; BYTES]);
}
