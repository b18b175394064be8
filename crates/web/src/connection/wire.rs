//! A connection's socket and its one timer.

use std::future::Future;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::pin::Pin;
use std::task::{ready, Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::unix::AsyncFd;
use tokio::io::Interest;
use tokio::time::{sleep_until, Sleep};

use crate::socket;

/// A non-blocking socket with a deadline.
///
/// The timer is armed at the earliest deadline since it last fired and looks
/// at the current one then, so that a request costs no timer operation.
pub(crate) struct Wire {
    socket: AsyncFd<OwnedFd>,
    timer: Pin<Box<Sleep>>,
    armed: Option<Instant>,
    deadline: Option<Instant>,
    /// Data may be there that no event announces: try before waiting.
    unannounced: bool,
    /// The socket has taken nothing since its deadline was set.
    blocked: bool,
}

impl Wire {
    pub fn new(socket: OwnedFd) -> io::Result<Self> {
        let timer = Box::pin(sleep_until(Instant::now().into()));
        let socket = socket::watch(socket, Interest::READABLE | Interest::WRITABLE)?;
        Ok(Self { socket, timer, armed: None, deadline: None, unannounced: true, blocked: false })
    }

    pub fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// What is going on may last until `at`.
    pub fn set_deadline(&mut self, at: Instant) {
        self.deadline = Some(at);
    }

    /// What is going on may last `time` from now.
    pub fn set_timeout(&mut self, time: Duration) {
        self.deadline = Some(Instant::now() + time);
    }

    /// What is going on may last for ever.
    pub fn clear_deadline(&mut self) {
        self.deadline = None;
    }

    /// Whether the deadline has passed; if not, the task is woken then.
    pub fn poll_expired(&mut self, cx: &mut Context) -> bool {
        let Some(deadline) = self.deadline else { return false };
        if self.armed.is_none_or(|armed| deadline < armed) {
            self.arm(deadline, cx);
        }
        while self.timer.is_elapsed() {
            if Instant::now() >= deadline {
                return true;
            }
            self.arm(deadline, cx);
        }
        false
    }

    fn arm(&mut self, at: Instant, cx: &mut Context) {
        self.armed = Some(at);
        self.timer.as_mut().reset(at.into());
        // Registers the task; whether it has fired already is seen by the caller.
        // Outside tokio's budget, which would leave it unregistered when used up.
        let _ = Pin::new(&mut tokio::task::unconstrained(self.timer.as_mut())).poll(cx);
    }

    /// Reads what has arrived; 0 is the peer's end.
    pub fn poll_recv(&mut self, cx: &mut Context, into: &mut [u8]) -> Poll<io::Result<usize>> {
        if self.unannounced {
            self.unannounced = false;
            match socket::recv(self.fd(), into) {
                Err(error) if is_transient(&error) => {}
                done => {
                    // A full buffer leaves the rest in the kernel, unannounced.
                    self.unannounced = matches!(done, Ok(len) if len == into.len());
                    return Poll::Ready(done);
                }
            }
        }
        loop {
            let mut guard = ready!(self.socket.poll_read_ready(cx))?;
            match socket::recv(guard.get_inner().as_raw_fd(), into) {
                Ok(len) => {
                    // A short read has emptied the socket: what comes next is a
                    // new edge, so the call that would say so is saved.
                    if len < into.len() {
                        guard.clear_ready();
                    }
                    return Poll::Ready(Ok(len));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => guard.clear_ready(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Whether the peer can neither send nor receive any more; if not, the task
    /// is woken when that changes. Data that arrives meanwhile stays in the
    /// kernel. A peer that only ended its own side still waits for its answer.
    pub fn poll_hung_up(&mut self, cx: &mut Context) -> bool {
        while let Poll::Ready(ready) = self.socket.poll_read_ready(cx) {
            let Ok(mut guard) = ready else { return true };
            self.unannounced = true;
            if guard.ready().is_read_closed() {
                // This readiness stays: nothing more will be announced.
                break;
            }
            guard.clear_ready();
        }
        match self.socket.poll_write_ready(cx) {
            Poll::Ready(Ok(guard)) => guard.ready().is_write_closed(),
            Poll::Ready(Err(_)) => true,
            Poll::Pending => false,
        }
    }

    /// The socket took nothing: from now on `time` may pass until it takes more.
    pub fn start_blocked(&mut self, time: Duration) {
        if !self.blocked {
            self.blocked = true;
            self.set_timeout(time);
        }
        // As an operation that would block: its readiness is forgotten.
        let full = |_: &OwnedFd| Err::<(), _>(io::ErrorKind::WouldBlock.into());
        let _ = self.socket.try_io(Interest::WRITABLE, full);
    }

    /// The socket took something.
    pub fn note_progress(&mut self) {
        self.blocked = false;
    }

    /// Waits until the socket takes more.
    pub fn poll_writable(&mut self, cx: &mut Context) -> Poll<io::Result<()>> {
        self.socket.poll_write_ready(cx).map_ok(drop)
    }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
