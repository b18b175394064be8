//! A wait for a bell alone, where there is no member that waits for it.

use std::time::Duration;

use chaton_core::event_fd::EventFd;

/// Until it rings, or time is up; whether it rang. Takes the rings away.
pub fn nap(bell: &EventFd, time: Duration) -> bool {
    let mut waited = libc::pollfd { fd: bell.fd(), events: libc::POLLIN, revents: 0 };
    // Rounded up: a wait that ends early would be begun again.
    let ms = time.as_nanos().div_ceil(1_000_000).min(60_000) as libc::c_int;
    // SAFETY: one descriptor that lives as long as the bell.
    unsafe { libc::poll(&mut waited, 1, ms) };
    let rung = waited.revents != 0;
    if rung {
        bell.clear();
    }
    rung
}
