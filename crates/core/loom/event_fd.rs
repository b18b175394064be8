//! The event descriptor as loom sees it: a flag under a lock.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, RawFd};

use crate::sync::{Condvar, Mutex};

/// As `EventFd` in `src/event_fd.rs`; a model waits with [`EventFd::wait`] where the
/// scheduler polls.
#[derive(Default)]
pub struct EventFd {
    notified: Mutex<bool>,
    changed: Condvar,
}

impl EventFd {
    pub fn new() -> io::Result<Self> {
        Ok(Self::default())
    }

    pub fn notify(&self) {
        *self.notified.lock() = true;
        self.changed.notify_all();
    }

    pub fn clear(&self) -> bool {
        std::mem::take(&mut *self.notified.lock())
    }

    /// Waits for a notification and takes it.
    pub fn wait(&self) {
        let mut notified = self.notified.lock();
        while !std::mem::take(&mut *notified) {
            self.changed.wait(&mut notified);
        }
    }

    pub fn fd(&self) -> RawFd {
        unreachable!("a model polls nothing")
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        unreachable!("a model polls nothing")
    }
}
