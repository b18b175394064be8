//! Waits on file descriptors and notifiers.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use chaton_core::event_fd::{wait_for_any, EventFd};
use rustix::event::{PollFd, PollFlags};

/// Waits until a descriptor can be read or the time is up; tells which of them can be read.
pub(crate) fn wait_readable(fds: &[BorrowedFd<'_>], timeout: Duration) -> Vec<bool> {
    let mut entries: Vec<_> =
        fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    if !wait_for_any(&mut entries, timeout).unwrap_or(false) {
        return vec![false; fds.len()];
    }
    entries.iter().map(|entry| !entry.revents().is_empty()).collect()
}

/// Waits until one is notified or the time is up, clears those that were
/// notified, and tells which they are.
pub(crate) fn wait_notified(notifiers: &[&EventFd], timeout: Duration) -> Vec<bool> {
    let fds: Vec<_> = notifiers.iter().map(|notifier| notifier.as_fd()).collect();
    let notified = wait_readable(&fds, timeout);
    for (notifier, _) in notifiers.iter().zip(&notified).filter(|(_, notified)| **notified) {
        notifier.clear();
    }
    notified
}
