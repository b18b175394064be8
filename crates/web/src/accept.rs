//! Accepts connections from one listening socket.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{fence, Ordering};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use tokio::io::unix::AsyncFd;
use tokio::io::Interest;
use tokio::time::{sleep, Instant};

use crate::accept_policy;
use crate::connection;
use crate::server_state::ServerState;
use crate::socket;
use crate::stats::add;

/// Connections accepted before the open ones are served again.
const BATCH: usize = 64;
/// Pause after `accept` failed for lack of descriptors or memory.
const PAUSE: Duration = Duration::from_millis(100);

/// What to do with a connection that has arrived.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AcceptDecision {
    /// Accept it, and more while no sibling is freer.
    Accept,
    /// Accept all that have arrived: the siblings had enough time.
    AcceptAll,
    /// Wait for the next one: a sibling has accepted it.
    Defer,
}

/// One listening socket.
pub(crate) struct Acceptor {
    pub shared: Arc<ServerState>,
    /// Index into the configuration's listeners.
    pub index: usize,
    pub label: String,
    pub socket: AsyncFd<OwnedFd>,
    /// A failure was reported and accepting has not worked since.
    pub failing: bool,
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.shared.acceptor_ended();
    }
}

impl Acceptor {
    /// Accepts until accepting ends, then closes the listening socket.
    pub async fn run(mut self) {
        while self.wait_for_capacity().await && self.wait_for_connection().await {
            let decision = self.decide().await;
            if decision == AcceptDecision::Defer || !self.shared.is_accepting() {
                continue;
            }
            match self.accept_batch(decision == AcceptDecision::AcceptAll) {
                // The supervisor has shut the sockets down.
                Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => {
                    self.shared.pause_accept();
                }
                Err(error) => self.pause(&error).await,
                Ok(()) => {}
            }
            tokio::task::yield_now().await;
        }
    }

    /// Waits until `connections_max` allows one more; false when accepting has ended.
    async fn wait_for_capacity(&self) -> bool {
        loop {
            let mut changed = std::pin::pin!(self.shared.accept_changed.notified());
            changed.as_mut().enable();
            if !self.shared.is_accepting() {
                return false;
            }
            if self.shared.has_capacity() {
                self.shared.publish_accepting(true);
                // Another thread may have ended accepting meanwhile; that must
                // stay the last thing published.
                fence(Ordering::SeqCst);
                let accepting = self.shared.is_accepting();
                if !accepting {
                    self.shared.publish_accepting(false);
                }
                return accepting;
            }
            self.shared.publish_accepting(false);
            changed.await;
        }
    }

    /// Waits for a connection; false when accepting has ended or the socket is broken.
    async fn wait_for_connection(&self) -> bool {
        let mut changed = std::pin::pin!(self.shared.accept_changed.notified());
        changed.as_mut().enable();
        if !self.shared.is_accepting() {
            return false;
        }
        tokio::select! {
            ready = self.socket.readable() => ready.is_ok(),
            () = changed => true,
        }
    }

    /// Leaves the connection to freer siblings for `accept_defer` at most.
    async fn decide(&self) -> AcceptDecision {
        let until = Instant::now() + self.shared.config.accept_defer;
        let mut rule: fn(_, _) -> _ = accept_policy::may_become_freer;
        while self.shared.is_accepting() && self.shared.any_sibling(rule) {
            if Instant::now() >= until {
                return AcceptDecision::AcceptAll;
            }
            sleep(self.shared.config.accept_grace).await;
            if self.socket.try_io(Interest::READABLE, is_readable).is_err() {
                return AcceptDecision::Defer;
            }
            rule = accept_policy::is_freer;
        }
        AcceptDecision::Accept
    }

    fn sibling_is_freer(&self) -> bool {
        self.shared.any_sibling(accept_policy::is_freer)
    }

    /// Accepts what has arrived within `connections_max`; unless `all`, only
    /// until a sibling is freer.
    fn accept_batch(&mut self, all: bool) -> io::Result<()> {
        for taken in 0..BATCH {
            if !self.shared.has_capacity() || (taken > 0 && !all && self.sibling_is_freer()) {
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
        let accept = |fd: &OwnedFd| socket::accept(fd);
        let (accepted, remote) = self.socket.try_io(Interest::READABLE, accept)?;
        add(&self.shared.counters.accepted, 1);
        connection::spawn(Arc::clone(&self.shared), accepted, self.index, remote);
        Ok(())
    }

    /// Waits after `accept` ran out of descriptors or memory: new connections
    /// stay in the kernel's queue, open ones are served.
    async fn pause(&mut self, error: &io::Error) {
        add(&self.shared.counters.accept_failures, 1);
        if !self.failing {
            self.failing = true;
            self.shared.feed.warn(&format!(
                "can't accept connections on {}: {error}; trying again every {} ms; \
                 raise the limit of open files or lower connections_max",
                self.label,
                PAUSE.as_millis()
            ));
        }
        sleep(PAUSE).await;
    }
}

/// Reports "would block" when no connection waits, so that the event loop clears
/// the listener's readiness.
fn is_readable(fd: &OwnedFd) -> io::Result<()> {
    if socket::is_readable(fd) {
        Ok(())
    } else {
        Err(io::ErrorKind::WouldBlock.into())
    }
}

/// Whether an error belongs to the connection and not to the listener
/// (accept(2), "Error handling").
fn is_of_peer(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(
            Errno::CONNABORTED
                | Errno::INTR
                | Errno::PROTO
                | Errno::PERM
                | Errno::NETDOWN
                | Errno::NOPROTOOPT
                | Errno::HOSTDOWN
                | Errno::HOSTUNREACH
                | Errno::OPNOTSUPP
                | Errno::NETUNREACH
        )
    )
}
