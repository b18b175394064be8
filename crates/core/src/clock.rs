//! The monotonic clock.

/// Nanoseconds of the monotonic clock, the same in every process.
pub fn now_ns() -> u64 {
    read_ns(libc::CLOCK_MONOTONIC).unwrap_or(0)
}

/// Reads a clock of the kernel, `None` when it does not exist (any more).
pub(crate) fn read_ns(clock: libc::clockid_t) -> Option<u64> {
    let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `at` is ours; an unknown clock is answered by an error code.
    let failed = unsafe { libc::clock_gettime(clock, &mut at) } != 0;
    (!failed).then(|| at.tv_sec as u64 * 1_000_000_000 + at.tv_nsec as u64)
}
