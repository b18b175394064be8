//! The system calls of the engine, each wrapped once.

use std::fs::File;
use std::io;
use std::mem::{self, MaybeUninit};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use tokio::io::unix::AsyncFd;
use tokio::io::Interest;

/// Most slices one call of [`send_slices`] takes.
pub(crate) const SLICES_MAX: usize = 16;

fn checked(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Reads what has arrived; 0 is the peer's end.
pub(crate) fn recv(socket: RawFd, into: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the pointer and length are those of a live slice.
    checked(unsafe { libc::recv(socket, into.as_mut_ptr().cast(), into.len(), 0) })
}

/// Sends one buffer. `more` says that something follows at once.
pub(crate) fn send(socket: RawFd, bytes: &[u8], more: bool) -> io::Result<usize> {
    // SAFETY: the pointer and length are those of a live slice.
    checked(unsafe { libc::send(socket, bytes.as_ptr().cast(), bytes.len(), flags(more)) })
}

/// Sends up to [`SLICES_MAX`] buffers in one call.
pub(crate) fn send_slices(socket: RawFd, slices: &[&[u8]], more: bool) -> io::Result<usize> {
    let mut vectors = [libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; SLICES_MAX];
    let count = slices.len().min(SLICES_MAX);
    for (vector, slice) in vectors.iter_mut().zip(slices) {
        vector.iov_base = slice.as_ptr().cast_mut().cast();
        vector.iov_len = slice.len();
    }
    // SAFETY: all-zero bytes are a valid msghdr without name and control data.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = vectors.as_mut_ptr();
    message.msg_iovlen = count;
    // SAFETY: the vectors point to live slices, which sending only reads.
    checked(unsafe { libc::sendmsg(socket, &message, flags(more)) })
}

fn flags(more: bool) -> libc::c_int {
    libc::MSG_NOSIGNAL | if more { libc::MSG_MORE } else { 0 }
}

/// Lets the kernel send from a file; 0 means that the file has ended.
pub(crate) fn sendfile(socket: RawFd, file: &File, offset: u64, len: u64) -> io::Result<usize> {
    /// Most bytes Linux sends in one call.
    const LEN_MAX: u64 = 0x7fff_f000;
    let mut at = libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
    let len = len.min(LEN_MAX) as usize;
    // SAFETY: both descriptors are open and `at` is a live integer.
    checked(unsafe { libc::sendfile(socket, file.as_raw_fd(), &mut at, len) })
}

/// Writes to any descriptor.
pub(crate) fn write(fd: RawFd, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: the pointer and length are those of a live slice.
    checked(unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) })
}

/// Ends the sending side; the peer reads an end after what was sent.
pub(crate) fn shutdown_write(socket: RawFd) {
    // SAFETY: takes no pointer. A socket that is not connected any more is fine.
    unsafe { libc::shutdown(socket, libc::SHUT_WR) };
}

/// Registers a non-blocking descriptor with the event loop of the current thread.
pub(crate) fn watch(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the result owns the descriptor, always returns the same one, and
    // is only given away whole.
    let registered = unsafe { AsyncFd::register_with_interest(fd, interest) };
    Ok(registered?)
}

/// Makes a descriptor non-blocking.
pub(crate) fn set_nonblocking(fd: RawFd) -> io::Result<()> {
    // SAFETY: takes no pointer.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    // SAFETY: takes no pointer.
    if flags < 0 || unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Sets `TCP_NODELAY` on a listener: Linux hands it on to what is accepted, so
/// that a connection costs no call of its own.
pub(crate) fn set_nodelay(listener: RawFd) -> io::Result<()> {
    let on: libc::c_int = 1;
    let len = mem::size_of_val(&on) as libc::socklen_t;
    // SAFETY: the pointer and length are those of a live integer.
    let result = unsafe {
        let value = ptr::from_ref(&on).cast();
        libc::setsockopt(listener, libc::IPPROTO_TCP, libc::TCP_NODELAY, value, len)
    };
    checked(result as isize).map(drop)
}

/// Accepts a connection, non-blocking and closed on exec, with the peer's
/// address; `127.0.0.1` when it has none.
pub(crate) fn accept(listener: RawFd) -> io::Result<(OwnedFd, String)> {
    let mut storage = MaybeUninit::<libc::sockaddr_storage>::zeroed();
    let mut len = mem::size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    // SAFETY: the pointers are to live memory of the given size.
    let fd = unsafe {
        let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        libc::accept4(listener, storage.as_mut_ptr().cast(), &mut len, flags)
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `accept4` just made this descriptor; nobody else owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: zeroed before the call, so every byte is initialised.
    Ok((socket, address_text(unsafe { storage.assume_init_ref() })))
}

/// Whether a socket has something to read or to accept at this moment.
pub(crate) fn is_readable(socket: RawFd) -> bool {
    let mut poll = libc::pollfd { fd: socket, events: libc::POLLIN, revents: 0 };
    // SAFETY: one live structure; a timeout of zero returns at once.
    unsafe { libc::poll(&mut poll, 1, 0) == 1 && poll.revents & libc::POLLIN != 0 }
}

fn address_text(storage: &libc::sockaddr_storage) -> String {
    let at = ptr::from_ref(storage);
    match i32::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says which type the storage holds; it is large enough.
            let address = unsafe { &*at.cast::<libc::sockaddr_in>() };
            Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)).to_string()
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let address = unsafe { &*at.cast::<libc::sockaddr_in6>() };
            Ipv6Addr::from(address.sin6_addr.s6_addr).to_string()
        }
        _ => "127.0.0.1".to_owned(),
    }
}

/// Blocks every signal of the calling thread while it lives; what it starts
/// meanwhile inherits that. Ruby's threads are to receive them.
pub(crate) struct BlockedSignals {
    before: libc::sigset_t,
}

impl BlockedSignals {
    pub fn new() -> Self {
        let mut all = MaybeUninit::<libc::sigset_t>::uninit();
        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: `sigfillset` initialises `all`, `pthread_sigmask` initialises
        // `before`; with a valid operation it can't fail.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            Self { before: before.assume_init() }
        }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: the mask was read by `new`.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, ptr::null_mut()) };
    }
}
