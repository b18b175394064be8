//! The event_fd: an event descriptor that wakes the scheduler out of `ppoll`.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Wakes one waiting thread; rings before the wait are kept and joined.
pub struct EventFd(OwnedFd);

impl EventFd {
    /// A silent event_fd.
    ///
    /// # Errors
    /// When the operating system gives no descriptor.
    pub fn new() -> io::Result<Self> {
        // SAFETY: takes no pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just opened, owned by nobody else.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Wakes the waiting thread.
    pub fn notify(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: writes 8 bytes of ours; a full counter already means "rung".
        unsafe { libc::write(self.0.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Forgets the notifications so far; whether there were any.
    pub fn clear(&self) -> bool {
        let mut count = [0u8; 8];
        // SAFETY: reads 8 bytes into ours; an empty counter is EAGAIN.
        unsafe { libc::read(self.0.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) == 8 }
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
