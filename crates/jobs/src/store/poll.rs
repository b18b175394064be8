//! Waiting for descriptors, and ending such a wait.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chaton_core::event_fd::EventFd;
use rustix::event::{poll, PollFd, Timespec};

use super::traits::Interrupt;

/// Ends the wait of a watch through its event descriptor, if it has one.
pub(super) struct EventInterrupt(pub Option<Arc<EventFd>>);

impl Interrupt for EventInterrupt {
    fn interrupt(&self) {
        if let Some(event) = &self.0 {
            event.notify();
        }
    }
}

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
