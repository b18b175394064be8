//! A byte stream to the server: TCP, TLS or a socket file. It blocks only in poll(2), so that one
//! reply has one deadline and a watch can wait for its interrupt at the same time.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chaton_core::event_fd::wait_for_any;
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::net::sockopt;
use rustls::pki_types::ServerName;
use rustls::ClientConnection;

use crate::address::{Endpoint, RedisAddress};
use crate::tls;

/// Silence after which the kernel probes the peer.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);
/// Time between its probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// Unanswered probes after which the connection is dead.
const KEEPALIVE_PROBES: u32 = 3;

/// A connected socket.
pub enum Transport {
    /// TCP.
    Tcp(TcpStream),
    /// A socket file.
    Unix(UnixStream),
    /// TLS over TCP.
    Tls(Box<TlsSocket>),
}

/// TLS over TCP.
pub struct TlsSocket {
    session: ClientConnection,
    socket: TcpStream,
}

/// What ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollResult {
    /// The socket can be read (or written, if that was asked).
    Ready,
    /// Another descriptor can be read.
    Interrupted,
    /// The time was up.
    TimedOut,
}

impl Transport {
    /// Connects to one of the servers of an address. TLS is negotiated with the first bytes.
    pub fn connect(
        address: &RedisAddress,
        endpoint: &Endpoint,
        timeout: Duration,
    ) -> io::Result<Self> {
        let deadline = Instant::now() + timeout;
        match endpoint {
            Endpoint::Tcp(host, port) => Ok(Self::Tcp(tcp(host, *port, deadline)?)),
            Endpoint::Tls(host, port) => {
                let config = match address.tls.get() {
                    Some(config) => config.clone(),
                    None => {
                        let config = Arc::new(tls::config(&address.tls_options)?);
                        address.tls.get_or_init(|| config).clone()
                    }
                };
                let name = ServerName::try_from(host.clone()).map_err(io::Error::other)?;
                let socket = tcp(host, *port, deadline)?;
                let session = ClientConnection::new(config, name).map_err(io::Error::other)?;
                Ok(Self::Tls(Box::new(TlsSocket { session, socket })))
            }
            Endpoint::Unix(path) => {
                let socket = UnixStream::connect(path)?;
                socket.set_nonblocking(true)?;
                Ok(Self::Unix(socket))
            }
        }
    }

    /// Reads what has arrived; [`io::ErrorKind::WouldBlock`] when nothing has.
    /// 0: the peer closed the connection.
    pub fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.read(into),
            Self::Unix(socket) => socket.read(into),
            Self::Tls(tls) => tls.read(into),
        }
    }

    /// Writes what fits; [`io::ErrorKind::WouldBlock`] when nothing does.
    pub fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.write(from),
            Self::Unix(socket) => socket.write(from),
            Self::Tls(tls) => tls.write(from),
        }
    }

    /// Sends what TLS has buffered.
    pub fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Tls(tls) => tls.flush(),
            _ => Ok(()),
        }
    }

    /// Waits until the socket can be read (or also written), one of the `interrupts` can be
    /// read, or the time is up.
    pub fn wait(
        &self,
        write: bool,
        interrupts: &[BorrowedFd<'_>],
        timeout: Duration,
    ) -> io::Result<PollResult> {
        let wanted = if write { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let mut fds = vec![PollFd::from_borrowed_fd(self.fd(), wanted)];
        fds.extend(interrupts.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)));
        wait_for_any(&mut fds, timeout)?;
        let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
        Ok(match (fds[1..].iter().any(is_ready), is_ready(&fds[0])) {
            (true, _) => PollResult::Interrupted,
            (false, true) => PollResult::Ready,
            (false, false) => PollResult::TimedOut,
        })
    }

    /// Whether poll(2) sees everything that can be read: TLS may hold some back.
    pub fn is_unbuffered(&self) -> bool {
        !matches!(self, Self::Tls(_))
    }

    /// Whether the peer has closed it; never blocks.
    pub fn is_closed(&self) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(self.fd(), PollFlags::RDHUP)];
        poll(&mut fds, Some(&Timespec::default())).is_ok_and(|count| count > 0)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(socket) => socket.as_fd(),
            Self::Unix(socket) => socket.as_fd(),
            Self::Tls(tls) => tls.socket.as_fd(),
        }
    }
}

impl TlsSocket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.session.reader().read(into) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                other => return other,
            }
            // Sends the handshake's replies and key updates.
            self.flush()?;
            if self.session.read_tls(&mut self.socket)? == 0 {
                return Ok(0);
            }
            if let Err(e) = self.session.process_new_packets() {
                // Sends the alert; the server may have closed the connection.
                let _ = self.flush();
                return Err(io::Error::new(io::ErrorKind::InvalidData, e));
            }
        }
    }

    /// Accepts plain text only when the text before has been sent, so that the
    /// session buffers no more than one piece.
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.flush()?;
        let taken = self.session.writer().write(from)?;
        match self.flush() {
            Err(e) if e.kind() != io::ErrorKind::WouldBlock => Err(e),
            _ if taken == 0 => Err(io::ErrorKind::WouldBlock.into()),
            _ => Ok(taken),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        while self.session.wants_write() {
            self.session.write_tls(&mut self.socket)?;
        }
        Ok(())
    }
}

fn tcp(host: &str, port: u16, deadline: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in (host, port).to_socket_addrs()? {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match TcpStream::connect_timeout(&address, left) {
            Ok(socket) => {
                socket.set_nodelay(true)?;
                socket.set_nonblocking(true)?;
                keep_alive(&socket)?;
                return Ok(socket);
            }
            Err(e) => last = e,
        }
    }
    Err(last)
}

fn keep_alive(socket: &TcpStream) -> io::Result<()> {
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(socket, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(socket, KEEPALIVE_PROBES)?;
    Ok(())
}
