//! Waits for notifiers.

use std::os::fd::AsFd;
use std::time::Duration;

use chaton_core::event_fd::EventFd;

use crate::poll::wait_readable;

/// Waits until one is notified or the time is up, clears those that were
/// notified, and tells which they are.
pub fn wait_notified(notifiers: &[&EventFd], timeout: Duration) -> Vec<bool> {
    let fds: Vec<_> = notifiers.iter().map(|notifier| notifier.as_fd()).collect();
    let notified = wait_readable(&fds, timeout);
    for (notifier, _) in notifiers.iter().zip(&notified).filter(|(_, notified)| **notified) {
        notifier.clear();
    }
    notified
}
