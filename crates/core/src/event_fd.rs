//! An eventfd of the kernel: any thread may wake the one that polls it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use rustix::event::{eventfd, poll, EventfdFlags, PollFd, Timespec};
use rustix::io::Errno;

/// Wakes one waiting thread. A notification before the wait is kept; several
/// count as one.
pub struct EventFd(OwnedFd);

impl EventFd {
    /// A descriptor without a notification.
    ///
    /// # Errors
    /// When the operating system gives no descriptor.
    pub fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Wakes the waiting thread.
    pub fn notify(&self) {
        // The write fails only when the counter is full, and then it is readable.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Forgets the notifications so far; returns whether there were any.
    pub fn clear(&self) -> bool {
        rustix::io::read(&self.0, &mut [0u8; 8]) == Ok(8)
    }

    /// The descriptor to wait on.
    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Waits for one of the descriptors; `false` when the time is up.
///
/// # Errors
/// The operating system's.
pub fn wait_for_any(fds: &mut [PollFd<'_>], timeout: Duration) -> io::Result<bool> {
    let deadline = Instant::now() + timeout;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match poll(fds, Some(&Timespec::try_from(left).unwrap_or_default())) {
            Ok(0) if left.is_zero() => return Ok(false),
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(true),
            Err(error) => return Err(error.into()),
        }
    }
}
