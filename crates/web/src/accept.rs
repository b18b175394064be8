//! Accepts connections from one listening socket.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{fence, Ordering};
use std::sync::Arc;
use std::time::Duration;

use chaton_core::clock;
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;
use tokio::io::Interest;
use tokio::time::sleep;

use crate::accept_policy;
use crate::connection;
use crate::server_state::ServerState;
use crate::socket;
use crate::stats::add;
use crate::tls::TlsListener;

/// Connections accepted before the open ones are served again.
const BATCH: usize = 64;
/// Pause after `accept` failed for lack of descriptors or memory.
const PAUSE: Duration = Duration::from_millis(100);

/// What to do with a connection that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// Encrypts its connections.
    pub tls: Option<Arc<TlsListener>>,
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
        while self.wait_for_connection().await {
            let decision = self.decide().await;
            if decision == AcceptDecision::Defer || !self.wait_for_room().await {
                continue;
            }
            match self.accept_batch(decision == AcceptDecision::AcceptAll) {
                // The supervisor has shut the sockets down.
                Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => {
                    self.shared.pause_accept();
                }
                // They are closed when this task runs the next time.
                Err(error) if is_lack(&error) && self.shared.make_room(|| error.to_string()) => {}
                Err(error) => self.pause(&error).await,
                Ok(()) => {}
            }
            tokio::task::yield_now().await;
        }
    }

    /// Waits until `connections_max` allows the connection that has arrived, if it is still there, for which idle
    /// ones are closed; false when accepting has ended.
    async fn wait_for_room(&self) -> bool {
        loop {
            let mut changed = std::pin::pin!(self.shared.accept_changed.notified());
            changed.as_mut().enable();
            if !self.shared.is_accepting() {
                return false;
            }
            let lacks_room = !self.shared.has_capacity()
                && self.socket.try_io(Interest::READABLE, is_readable).is_ok();
            if !lacks_room {
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
            let max = self.shared.config.limits.connections_max;
            if self.shared.make_room(|| format!("connections_max ({max}) is reached")) {
                // Meanwhile their tasks run.
                tokio::task::yield_now().await;
                continue;
            }
            self.shared.publish_accepting(false);
            self.shared.lacking_room.fetch_add(1, Ordering::Relaxed);
            changed.await;
            self.shared.lacking_room.fetch_sub(1, Ordering::Relaxed);
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

    /// Leaves the connection to freer siblings, until none of them has accepted one for
    /// `accept_defer`. While they accept, the connection that waits is always a new one.
    async fn decide(&self) -> AcceptDecision {
        let defer = u64::try_from(self.shared.config.accept_defer.as_millis()).unwrap_or(u64::MAX);
        let began_at = clock::now_ms();
        while self.shared.is_accepting() && self.sibling_is_freer() {
            let since = self.shared.siblings_accepted_at_ms().max(began_at);
            if clock::now_ms().saturating_sub(since) >= defer {
                return AcceptDecision::AcceptAll;
            }
            sleep(self.shared.config.accept_grace).await;
            if self.socket.try_io(Interest::READABLE, is_readable).is_err() {
                return AcceptDecision::Defer;
            }
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
        self.shared.publish_accept();
        let (shared, tls) = (Arc::clone(&self.shared), self.tls.clone());
        connection::spawn(shared, accepted, self.index, remote, tls);
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

/// Whether descriptors or memory are lacking (accept(2)).
fn is_lack(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)
    )
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

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use chaton_core::engine::Feed;
    use chaton_core::process::scoreboard::Scoreboard;

    use super::*;
    use crate::config::Config;
    use crate::exchange::Exchange;

    struct NoWork;

    impl Feed<Exchange> for NoWork {
        fn submit(&self, work: Arc<Exchange>) -> Result<(), Arc<Exchange>> {
            Err(work)
        }
    }

    /// Decides for a hogged worker with a free sibling that last accepted a connection at
    /// this time, while a connection waits; None when it still waits after `patience`.
    fn decide(sibling_accepted_at_ms: u64, patience: Duration) -> Option<AcceptDecision> {
        let scoreboard = Scoreboard::new(2).expect("shared memory");
        scoreboard.slot(0).hogged.store(1, Ordering::Relaxed);
        let sibling = scoreboard.slot(1);
        sibling.pid.store(1, Ordering::Relaxed);
        sibling.accepting.store(1, Ordering::Relaxed);
        sibling.accepted_at_ms.store(sibling_accepted_at_ms, Ordering::Relaxed);
        let config = Config {
            scoreboard: Some(Arc::new(scoreboard)),
            accept_defer: Duration::from_millis(20),
            ..Config::for_tests(Vec::new())
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let acceptor = Acceptor {
                shared: Arc::new(ServerState::new(config, Arc::new(NoWork))),
                index: 0,
                label: String::new(),
                socket: socket::watch(listener.into(), Interest::READABLE).unwrap(),
                tls: None,
                failing: false,
            };
            acceptor.socket.readable().await.unwrap().retain_ready();
            tokio::time::timeout(patience, acceptor.decide()).await.ok()
        })
    }

    #[test]
    fn a_connection_that_no_freer_sibling_accepts_is_accepted() {
        assert_eq!(decide(0, Duration::from_secs(60)), Some(AcceptDecision::AcceptAll));
    }

    /// Each connection that such a worker sees is a new one: the siblings took the others.
    #[test]
    fn connections_are_left_to_freer_siblings_as_long_as_they_accept() {
        let soon = clock::now_ms() + 60_000;
        assert_eq!(decide(soon, Duration::from_millis(200)), None);
    }
}
