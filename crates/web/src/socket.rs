//! The system calls of the engine.

use std::fs::File;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketFlags};
use tokio::io::unix::AsyncFd;
use tokio::io::Interest;

/// Reads what has arrived; 0 means that the peer has ended its side.
pub(crate) fn recv(socket: impl AsFd, into: &mut [u8]) -> io::Result<usize> {
    let (received, _) = rustix::net::recv(socket, into, RecvFlags::empty())?;
    Ok(received)
}

/// As [`recv`], but leaves the bytes in the socket.
pub(crate) fn peek(socket: impl AsFd, into: &mut [u8]) -> io::Result<usize> {
    let (received, _) = rustix::net::recv(socket, into, RecvFlags::PEEK)?;
    Ok(received)
}

pub(crate) fn send(socket: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    Ok(rustix::net::send(socket, bytes, SendFlags::NOSIGNAL)?)
}

/// Sends several buffers in one call. `more` says that output follows at once,
/// so the kernel keeps the last packet open for it.
pub(crate) fn send_slices(socket: impl AsFd, slices: &[IoSlice], more: bool) -> io::Result<usize> {
    let flags = SendFlags::NOSIGNAL | if more { SendFlags::MORE } else { SendFlags::empty() };
    Ok(rustix::net::sendmsg(socket, slices, &mut SendAncillaryBuffer::default(), flags)?)
}

/// Lets the kernel send from a file; 0 means that the file has ended.
pub(crate) fn sendfile(
    socket: impl AsFd,
    file: &File,
    mut offset: u64,
    len: u64,
) -> io::Result<usize> {
    /// Most bytes Linux sends in one call.
    const LEN_MAX: u64 = 0x7fff_f000;
    Ok(rustix::fs::sendfile(socket, file, Some(&mut offset), len.min(LEN_MAX) as usize)?)
}

/// Ends the sending side; the peer reads an end after what was sent.
pub(crate) fn shutdown_write(socket: impl AsFd) {
    // It fails only on a socket that is no longer connected.
    let _ = rustix::net::shutdown(socket, Shutdown::Write);
}

/// Registers a non-blocking descriptor with the event loop of the current thread.
pub(crate) fn watch(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the result owns the descriptor, always returns the same one, and
    // is only given away whole.
    let registered = unsafe { AsyncFd::register_with_interest(fd, interest) };
    Ok(registered?)
}

pub(crate) fn set_nonblocking(fd: impl AsFd) -> io::Result<()> {
    Ok(rustix::io::ioctl_fionbio(fd, true)?)
}

/// Sets `TCP_NODELAY` on a listener: accepted sockets inherit it on Linux, which
/// saves a call for each connection.
pub(crate) fn set_nodelay(listener: impl AsFd) -> io::Result<()> {
    Ok(rustix::net::sockopt::set_tcp_nodelay(listener, true)?)
}

/// Accepts a connection, non-blocking and closed on exec, with the peer's
/// address; `None` for a Unix socket. An IPv4 address of a socket for both families is one of IPv4.
pub(crate) fn accept(listener: impl AsFd) -> io::Result<(OwnedFd, Option<IpAddr>)> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (socket, address) = rustix::net::acceptfrom_with(listener, flags)?;
    let address = address.and_then(|any| SocketAddr::try_from(any).ok());
    Ok((socket, address.map(|address| address.ip().to_canonical())))
}

/// Whether a socket has something to read or to accept at this moment.
pub(crate) fn is_readable(socket: impl AsFd) -> bool {
    let mut fds = [PollFd::new(&socket, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
        && fds[0].revents().contains(PollFlags::IN)
}
