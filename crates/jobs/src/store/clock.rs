//! The wall clock.

use std::time::SystemTime;

/// Seconds since 1970.
pub(super) fn unix_s() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
