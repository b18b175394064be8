//! Waits for many sockets at once with edge-triggered epoll(7).

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Events taken from the kernel at once.
const EVENTS_MAX: usize = 256;

/// An epoll instance.
#[derive(Debug)]
pub struct Epoll {
    epoll: OwnedFd,
    events: Vec<libc::epoll_event>,
}

impl Epoll {
    /// # Errors
    /// An error of the kernel.
    pub fn new() -> io::Result<Self> {
        // SAFETY: no pointer is passed.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the descriptor was just created and has no other owner.
        let epoll = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { epoll, events: vec![libc::epoll_event { events: 0, u64: 0 }; EVENTS_MAX] })
    }

    /// Reports `token` whenever the socket becomes readable, writable or is
    /// closed, until it is dropped. No further call per request is needed.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn watch(&self, fd: RawFd, token: u64) -> io::Result<()> {
        let interest = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET;
        let mut event = libc::epoll_event { events: interest as u32, u64: token };
        let epoll = self.epoll.as_raw_fd();
        // SAFETY: `event` outlives the call, which copies it.
        check(unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &mut event) })?;
        Ok(())
    }

    /// Waits at most `timeout_ns` and appends the tokens with events.
    ///
    /// # Errors
    /// An error of the kernel; a signal is not one.
    pub fn wait(&mut self, timeout_ns: u64, tokens: &mut Vec<u64>) -> io::Result<()> {
        let timeout = libc::timespec {
            tv_sec: (timeout_ns / 1_000_000_000) as libc::time_t,
            tv_nsec: (timeout_ns % 1_000_000_000) as libc::c_long,
        };
        // Has nanoseconds instead of epoll_wait's milliseconds. Called by its number, for
        // systems whose C library has no wrapper.
        // SAFETY: `events` and `timeout` outlive the call, and no signal mask is given.
        let count = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.epoll.as_raw_fd(),
                self.events.as_mut_ptr(),
                EVENTS_MAX as libc::c_int,
                &timeout,
                std::ptr::null::<libc::sigset_t>(),
                0_usize,
            )
        };
        match check(count as libc::c_int) {
            Ok(count) => {
                tokens.extend(self.events[..count as usize].iter().map(|event| event.u64));
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Makes timers of this thread fire when they are due, not up to 50 µs later.
pub fn set_precise_timers() {
    // SAFETY: PR_SET_TIMERSLACK takes a number; if it fails, timers stay late.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_usize) };
}

fn check(answer: libc::c_int) -> io::Result<libc::c_int> {
    if answer < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(answer)
    }
}
