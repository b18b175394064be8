//! Waits on file descriptors.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

/// Waits until a descriptor can be read or the time is up; tells which of them can be read.
pub(crate) fn wait_readable(fds: &[BorrowedFd<'_>], timeout: Duration) -> Vec<bool> {
    let mut entries: Vec<_> =
        fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    let until = Instant::now() + timeout;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match rustix::event::poll(&mut entries, Timespec::try_from(left).ok().as_ref()) {
            Err(Errno::INTR) => {}
            Ok(ready) if ready > 0 => {
                return entries.iter().map(|entry| !entry.revents().is_empty()).collect();
            }
            _ => return vec![false; fds.len()],
        }
    }
}
