//! The application's ends of hijacked connections that are encrypted.

use std::os::fd::{BorrowedFd, RawFd};

use parking_lot::Mutex;
use rustix::event::{poll, PollFd, PollFlags, Timespec};

/// The application's sides of all relays.
#[derive(Default)]
pub(crate) struct Relays(Mutex<Vec<RawFd>>);

impl Relays {
    pub fn add(&self, fd: RawFd) {
        self.0.lock().push(fd);
    }

    /// Before the socket is closed.
    pub fn remove(&self, fd: RawFd) {
        self.0.lock().retain(|listed| *listed != fd);
    }

    /// Whether the application has closed its end of a relay that goes on: its client has not got everything. Without
    /// encryption the kernel sends the rest, also after the end of the process.
    pub fn has_unfinished(&self) -> bool {
        let listed = self.0.lock();
        // A hang-up is reported without being asked for.
        // SAFETY: a relay leaves the list, under this lock, before its socket is closed.
        let sockets: Vec<_> =
            listed.iter().map(|fd| unsafe { BorrowedFd::borrow_raw(*fd) }).collect();
        let mut polled: Vec<_> =
            sockets.iter().map(|socket| PollFd::new(socket, PollFlags::empty())).collect();
        poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|count| count > 0)
    }
}
