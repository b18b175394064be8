//! A byte stream to the server: TCP, TLS or a socket file. Never blocks but in
//! poll(2), so that one answer has one deadline and a watcher can wait for its
//! own wake-up at the same time.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::{pem::PemObject, CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::address::{Address, Target};

/// A peer that is silent for this long is asked by the kernel whether it lives.
const KEEPALIVE_IDLE_S: libc::c_int = 15;
/// Time between such questions.
const KEEPALIVE_EVERY_S: libc::c_int = 5;
/// Unanswered ones after which the connection is dead.
const KEEPALIVE_TRIES: libc::c_int = 3;

/// A connection that is made.
pub enum Link {
    /// TCP.
    Tcp(TcpStream),
    /// A socket file.
    Unix(UnixStream),
    /// TLS over TCP.
    Tls(Box<Tls>),
}

/// TLS over TCP.
pub struct Tls {
    session: ClientConnection,
    socket: TcpStream,
}

/// What ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// The link can be read (or written, if that was asked).
    Link,
    /// The other descriptor can be read.
    Wake,
    /// Nothing within the time.
    Nothing,
}

impl Link {
    /// Connects, TLS not yet negotiated: that comes with the first bytes.
    pub fn connect(address: &Address) -> io::Result<Self> {
        let deadline = Instant::now() + address.connect_timeout;
        match &address.target {
            Target::Tcp(host, port) => Ok(Self::Tcp(tcp(host, *port, deadline)?)),
            Target::Tls(host, port) => {
                let config = match address.tls.get() {
                    Some(config) => config.clone(),
                    None => {
                        let config = Arc::new(tls_config(address.ca_file.as_deref())?);
                        address.tls.get_or_init(|| config).clone()
                    }
                };
                let name = ServerName::try_from(host.clone()).map_err(io::Error::other)?;
                let socket = tcp(host, *port, deadline)?;
                let session = ClientConnection::new(config, name).map_err(io::Error::other)?;
                Ok(Self::Tls(Box::new(Tls { session, socket })))
            }
            Target::Unix(path) => {
                let socket = UnixStream::connect(path)?;
                socket.set_nonblocking(true)?;
                Ok(Self::Unix(socket))
            }
        }
    }

    /// Reads what is there; [`io::ErrorKind::WouldBlock`] when nothing is.
    /// 0: the peer closed it.
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

    /// Sends what TLS holds back; nothing to do elsewhere.
    pub fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Tls(tls) => tls.flush(),
            _ => Ok(()),
        }
    }

    /// Waits until the link can be read (or written too), `wake` can be read,
    /// or the time is up.
    pub fn wait(&self, write: bool, wake: Option<RawFd>, timeout: Duration) -> io::Result<Ready> {
        let events = libc::POLLIN | if write { libc::POLLOUT } else { 0 };
        let mut fds = [
            libc::pollfd { fd: self.fd(), events, revents: 0 },
            // A negative descriptor is passed over by poll(2).
            libc::pollfd { fd: wake.unwrap_or(-1), events: libc::POLLIN, revents: 0 },
        ];
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            // Rounded up: rounded down, the last millisecond would be a spin.
            let ms = left.as_micros().div_ceil(1000).min(i32::MAX as u128) as libc::c_int;
            // SAFETY: `fds` are two live pollfd structures.
            let count = unsafe { libc::poll(fds.as_mut_ptr(), 2, ms) };
            if count < 0 {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            } else if fds[1].revents != 0 {
                return Ok(Ready::Wake);
            } else if fds[0].revents != 0 {
                return Ok(Ready::Link);
            } else if left.is_zero() {
                return Ok(Ready::Nothing);
            }
        }
    }

    /// Whether nothing can be read that poll(2) does not see.
    pub fn poll_tells_all(&self) -> bool {
        !matches!(self, Self::Tls(_))
    }

    /// Whether the peer has closed it; never blocks.
    pub fn is_closed(&self) -> bool {
        let mut fd = libc::pollfd { fd: self.fd(), events: libc::POLLRDHUP, revents: 0 };
        // SAFETY: one live pollfd structure.
        let count = unsafe { libc::poll(&mut fd, 1, 0) };
        count > 0 && fd.revents != 0
    }

    fn fd(&self) -> RawFd {
        match self {
            Self::Tcp(socket) => socket.as_raw_fd(),
            Self::Unix(socket) => socket.as_raw_fd(),
            Self::Tls(tls) => tls.socket.as_raw_fd(),
        }
    }
}

impl Tls {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.session.reader().read(into) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                other => return other,
            }
            // The handshake's answers, and key updates, go out from here.
            self.flush()?;
            if self.session.read_tls(&mut self.socket)? == 0 {
                return Ok(0);
            }
            if let Err(e) = self.session.process_new_packets() {
                // The alert tells the server why; it may be gone already.
                let _ = self.flush();
                return Err(io::Error::new(io::ErrorKind::InvalidData, e));
            }
        }
    }

    /// Takes plain text only when what it took before has gone out, so that
    /// the session buffers no more than one piece.
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
    for place in (host, port).to_socket_addrs()? {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match TcpStream::connect_timeout(&place, left) {
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
    let options = [
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1),
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, KEEPALIVE_IDLE_S),
        (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, KEEPALIVE_EVERY_S),
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT, KEEPALIVE_TRIES),
    ];
    for (level, name, value) in options {
        let size = std::mem::size_of::<libc::c_int>() as libc::socklen_t;
        // SAFETY: the descriptor is open and `value` is an int of that size.
        let done = unsafe {
            libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), size)
        };
        if done != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Trusts the authorities of the file, or the system's.
fn tls_config(ca_file: Option<&str>) -> io::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    match ca_file {
        Some(path) => {
            let named = |e: &dyn std::fmt::Display| {
                io::Error::new(io::ErrorKind::InvalidInput, format!("tls_ca_file {path:?}: {e}"))
            };
            let certificates = CertificateDer::pem_file_iter(path).map_err(|e| named(&e))?;
            for certificate in certificates {
                roots.add(certificate.map_err(|e| named(&e))?).map_err(|e| named(&e))?;
            }
            if roots.is_empty() {
                return Err(named(&"no certificate in it"));
            }
        }
        None => {
            // One that cannot be read is passed over: it may be none of ours.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    // The provider is named here, so that no process-wide default is needed.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth())
}

/// A descriptor that another thread can make readable.
pub struct Wake(OwnedFd);

impl Wake {
    /// A new one, not readable.
    pub fn new() -> io::Result<Self> {
        // SAFETY: no pointers; the result is checked and owned at once.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` is new and nobody else's.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Its descriptor.
    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Makes it readable.
    pub fn raise(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight live bytes. A full counter is readable all the same.
        unsafe { libc::write(self.fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Makes it unreadable again; whether it was readable.
    pub fn take(&self) -> bool {
        let mut count = [0u8; 8];
        // SAFETY: eight live bytes to write into.
        unsafe { libc::read(self.fd(), count.as_mut_ptr().cast(), count.len()) == 8 }
    }
}
