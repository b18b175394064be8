//! The clocks: monotonic, since boot, and wall time.

use std::time::{SystemTime, UNIX_EPOCH};

/// Nanoseconds of the monotonic clock, the same in every process.
pub fn now_ns() -> u64 {
    read_ns(libc::CLOCK_MONOTONIC).unwrap_or(0)
}

/// Nanoseconds since boot, sleep of the machine included.
pub fn boot_ns() -> u64 {
    read_ns(libc::CLOCK_BOOTTIME).unwrap_or(0)
}

/// Seconds since 1970.
pub fn wall_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// Reads a clock of the kernel, `None` when it does not exist (any more).
pub(crate) fn read_ns(clock: libc::clockid_t) -> Option<u64> {
    let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `at` is ours; an unknown clock is answered by an error code.
    let failed = unsafe { libc::clock_gettime(clock, &mut at) } != 0;
    (!failed).then(|| at.tv_sec as u64 * 1_000_000_000 + at.tv_nsec as u64)
}
