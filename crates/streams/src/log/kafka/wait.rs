//! Waits for bells.

use std::time::Duration;

use chaton_core::event_fd::EventFd;

/// Until it rings or time is up, and takes the rings away.
pub fn on(bell: &EventFd, timeout: Duration) {
    let [rung] = poll([bell], timeout);
    if rung {
        bell.clear();
    }
}

/// Until one rings or time is up, and takes the rings away; true when it was
/// the second.
pub fn on_either(bell: &EventFd, stop: &EventFd, timeout: Duration) -> bool {
    let [rung, stopped] = poll([bell, stop], timeout);
    if rung {
        bell.clear();
    }
    if stopped {
        stop.clear();
    }
    stopped
}

fn poll<const N: usize>(bells: [&EventFd; N], timeout: Duration) -> [bool; N] {
    let mut waited =
        bells.map(|bell| libc::pollfd { fd: bell.fd(), events: libc::POLLIN, revents: 0 });
    // Up, so that a wait for less than a millisecond does not spin.
    let ms = i32::try_from(timeout.as_micros().div_ceil(1000)).unwrap_or(i32::MAX);
    // SAFETY: so many descriptors, ours for the time of the call.
    unsafe { libc::poll(waited.as_mut_ptr(), N as libc::nfds_t, ms) };
    waited.map(|one| one.revents != 0)
}
