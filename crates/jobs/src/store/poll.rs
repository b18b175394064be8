//! Waiting for descriptors.

use std::io;
use std::time::{Duration, Instant};

use rustix::event::{poll, PollFd, Timespec};

/// Waits for one of the descriptors; `false` when the time is up.
pub(super) fn wait_for_any(fds: &mut [PollFd<'_>], timeout: Duration) -> io::Result<bool> {
    let deadline = Instant::now() + timeout;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match poll(fds, Some(&Timespec::try_from(left).unwrap_or_default())) {
            Ok(0) if left.is_zero() => return Ok(false),
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(true),
            Err(error) => return Err(error.into()),
        }
    }
}
