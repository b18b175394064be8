//! The clocks: monotonic, since boot, and wall time.

use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{clock_gettime, ClockId};

/// Nanoseconds of the monotonic clock, the same in every process.
pub fn now_ns() -> u64 {
    read_ns(ClockId::Monotonic)
}

/// Milliseconds of the monotonic clock, the same in every process.
pub fn now_ms() -> u64 {
    now_ns() / 1_000_000
}

/// Nanoseconds since boot, including the time the machine was suspended.
pub fn boot_ns() -> u64 {
    read_ns(ClockId::Boottime)
}

/// The id of this boot; empty where the kernel has none.
pub fn boot_id() -> &'static str {
    static BOOT: OnceLock<String> = OnceLock::new();
    BOOT.get_or_init(|| {
        let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        id.trim().to_owned()
    })
}

/// CPU time of this process so far (ns).
pub fn process_cpu_ns() -> u64 {
    read_ns(ClockId::ProcessCPUTime)
}

/// Seconds since 1970.
pub fn wall_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

fn read_ns(clock: ClockId) -> u64 {
    let at = clock_gettime(clock);
    at.tv_sec as u64 * 1_000_000_000 + at.tv_nsec as u64
}
