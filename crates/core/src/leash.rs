//! The worker's end of the line to its supervisor.
//!
//! The supervisor sends `p`; Rust answers `r` at once, and the guardian, when
//! it has the GVL, answers `g` ([`Leash::pong`]). The end of the line means
//! that the supervisor is gone.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// What was read from the line.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard {
    /// Nothing new.
    Nothing,
    /// At least one ping.
    Ping,
    /// The supervisor is gone.
    End,
}

/// One end of a stream socket pair.
pub struct Leash(OwnedFd);

impl Leash {
    /// Takes over the descriptor and makes it non-blocking.
    pub fn new(fd: OwnedFd) -> Self {
        // SAFETY: flags of a descriptor that we own.
        unsafe {
            let flags = libc::fcntl(fd.as_raw_fd(), libc::F_GETFL);
            libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK);
        }
        Self(fd)
    }

    /// The descriptor to wait on.
    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Reads what came and answers a ping with Rust's sign of life.
    pub fn hear(&self) -> Heard {
        let mut buf = [0u8; 64];
        // SAFETY: reads into our buffer.
        let n = unsafe { libc::read(self.fd(), buf.as_mut_ptr().cast(), buf.len()) };
        if n < 0 {
            let again = std::io::Error::last_os_error().kind();
            let nothing = [std::io::ErrorKind::WouldBlock, std::io::ErrorKind::Interrupted];
            return if nothing.contains(&again) { Heard::Nothing } else { Heard::End };
        }
        if n == 0 {
            return Heard::End;
        }
        if !buf[..n as usize].contains(&b'p') {
            return Heard::Nothing;
        }
        self.send(b'r');
        Heard::Ping
    }

    /// Ruby's sign of life.
    pub fn pong(&self) {
        self.send(b'g');
    }

    fn send(&self, byte: u8) {
        // SAFETY: one byte of ours; MSG_NOSIGNAL keeps a closed line from killing us.
        unsafe { libc::send(self.fd(), (&raw const byte).cast(), 1, libc::MSG_NOSIGNAL) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    #[test]
    fn answers_pings_and_sees_the_end() {
        let (mut theirs, ours) = UnixStream::pair().unwrap();
        let leash = Leash::new(ours.into());
        assert_eq!(leash.hear(), Heard::Nothing);
        theirs.write_all(b"p").unwrap();
        assert_eq!(leash.hear(), Heard::Ping);
        leash.pong();
        let mut answer = [0; 2];
        theirs.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"rg");
        drop(theirs);
        assert_eq!(leash.hear(), Heard::End);
    }
}
