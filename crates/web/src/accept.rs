//! Takes connections from one listening socket.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{fence, Ordering};
use std::sync::Arc;

use tokio::io::unix::AsyncFd;
use tokio::io::Interest;
use tokio::time::{sleep, Instant};

use crate::accept_policy;
use crate::connection;
use crate::shared::Shared;
use crate::socket;

/// Connections taken before those already open get their turn.
const BATCH: usize = 64;

/// What to do about a connection that has arrived.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// Take it, and more while no sibling is freer.
    Take,
    /// The siblings had their time: take whatever has arrived.
    TakeAll,
    /// A sibling has taken it.
    Leave,
}

/// One listening socket.
pub(crate) struct Acceptor {
    pub shared: Arc<Shared>,
    /// Index into the configuration's listeners.
    pub index: usize,
    pub label: String,
    pub socket: AsyncFd<OwnedFd>,
    /// A failure was reported and accepting has not worked since.
    pub failing: bool,
}

impl Acceptor {
    /// Accepts until accepting ends, then closes the listening socket.
    pub async fn run(mut self) {
        while self.place().await && self.arrival().await {
            let verdict = self.consult_board().await;
            if verdict == Verdict::Leave || !self.shared.is_accepting() {
                continue;
            }
            if let Err(error) = self.accept_batch(verdict == Verdict::TakeAll) {
                self.pause(&error).await;
            }
            // Those just accepted get their turn.
            tokio::task::yield_now().await;
        }
    }

    /// Waits for a free place; false when accepting has ended.
    async fn place(&self) -> bool {
        loop {
            let mut changed = std::pin::pin!(self.shared.places.notified());
            changed.as_mut().enable();
            if !self.shared.is_accepting() {
                return false;
            }
            if self.shared.has_place() {
                self.shared.show_accepting(true);
                // It may have ended meanwhile, and the siblings been told so before.
                fence(Ordering::SeqCst);
                let accepting = self.shared.is_accepting();
                if !accepting {
                    self.shared.show_accepting(false);
                }
                return accepting;
            }
            self.shared.show_accepting(false);
            changed.await;
        }
    }

    /// Waits for a connection; false when accepting has ended or the socket is broken.
    async fn arrival(&self) -> bool {
        let mut changed = std::pin::pin!(self.shared.places.notified());
        changed.as_mut().enable();
        if !self.shared.is_accepting() {
            return false;
        }
        tokio::select! {
            ready = self.socket.readable() => ready.is_ok(),
            () = changed => true,
        }
    }

    /// Gives freer siblings time to take what has arrived, `accept_defer` at most.
    async fn consult_board(&self) -> Verdict {
        let until = Instant::now() + self.shared.config.accept_defer;
        while self.sibling_is_freer() {
            if Instant::now() >= until {
                return Verdict::TakeAll;
            }
            sleep(self.shared.config.accept_grace).await;
            if self.socket.try_io(Interest::READABLE, is_readable).is_err() {
                return Verdict::Leave;
            }
        }
        Verdict::Take
    }

    fn sibling_is_freer(&self) -> bool {
        let config = &self.shared.config;
        config.scoreboard.as_ref().is_some_and(|scoreboard| {
            accept_policy::defer_by_board(scoreboard, config.slot, config.hogged_after)
        })
    }

    /// Takes what has arrived, as far as there are places; unless `all`, only
    /// until a sibling is freer.
    fn accept_batch(&mut self, all: bool) -> io::Result<()> {
        for taken in 0..BATCH {
            if !self.shared.has_place() || (taken > 0 && !all && self.sibling_is_freer()) {
                return Ok(());
            }
            match self.accept_one() {
                Ok(()) => self.failing = false,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                // The peer gave up before it was accepted; the next one is not affected.
                Err(error) if is_of_peer(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn accept_one(&self) -> io::Result<()> {
        let accept = |fd: &OwnedFd| socket::accept(fd.as_raw_fd());
        let (accepted, remote) = self.socket.try_io(Interest::READABLE, accept)?;
        self.shared.counters.accepted.add(1);
        connection::spawn(Arc::clone(&self.shared), accepted, self.index, remote);
        Ok(())
    }

    /// Out of descriptors or memory: connections wait in the kernel's queue
    /// meanwhile, and those open are served.
    async fn pause(&mut self, error: &io::Error) {
        self.shared.counters.accept_failures.add(1);
        if !self.failing {
            self.failing = true;
            self.shared.sink.warn(&format!(
                "can't accept connections on {}: {error}; trying again every {} ms; \
                 raise the limit of open files or lower connections_max",
                self.label,
                self.shared.config.accept_pause.as_millis()
            ));
        }
        sleep(self.shared.config.accept_pause).await;
    }
}

/// As an operation that would block when nothing waits, so that the listener's
/// readiness is forgotten and the next connection is awaited.
fn is_readable(fd: &OwnedFd) -> io::Result<()> {
    if socket::is_readable(fd.as_raw_fd()) {
        Ok(())
    } else {
        Err(io::ErrorKind::WouldBlock.into())
    }
}

/// Errors of the connection that was to be accepted, not of the listener
/// (accept(2), "Error handling").
fn is_of_peer(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::ECONNABORTED
                | libc::EINTR
                | libc::EPROTO
                | libc::EPERM
                | libc::ENETDOWN
                | libc::ENOPROTOOPT
                | libc::EHOSTDOWN
                | libc::EHOSTUNREACH
                | libc::EOPNOTSUPP
                | libc::ENETUNREACH
        )
    )
}
