//! The worker's end of the socket to its supervisor.
//!
//! The supervisor sends `p` as a ping. Rust answers `r` at once; the support
//! thread answers `g` when it has the GVL ([`SupervisorChannel::pong`]). `R`, a
//! text and a newline report the jobs of a sibling that died; `O`, a text and a
//! newline are a command. The end of the stream means that the supervisor is gone.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::net::SendFlags;

/// Longest text of a line in bytes; a longer line is dropped and counted.
pub const LINE_BYTES_MAX: usize = 64 * 1024;

/// A line from the supervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChannelMessage {
    /// `R`: a sibling died.
    Recover(String),
    /// `O`: a command for this worker.
    Order(String),
}

/// The result of one read from the socket.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// At least one ping.
    pub ping: bool,
    /// Whole lines, in order.
    pub lines: Vec<ChannelMessage>,
    /// Lines that were dropped because they were too long or no UTF-8.
    pub lost: usize,
    /// The supervisor is gone.
    pub end: bool,
}

/// One end of a stream socket pair.
pub struct SupervisorChannel {
    fd: OwnedFd,
    reader: Mutex<Reader>,
}

impl SupervisorChannel {
    /// Takes over the descriptor and makes it non-blocking.
    pub fn new(fd: OwnedFd) -> Self {
        let _ = rustix::io::ioctl_fionbio(&fd, true);
        Self { fd, reader: Mutex::default() }
    }

    /// Reads what has arrived and answers a ping for Rust.
    pub fn receive(&self) -> Received {
        let mut buf = [0u8; 4096];
        let n = match rustix::io::read(&self.fd, &mut buf) {
            Ok(n) => n,
            Err(Errno::AGAIN | Errno::INTR) => return Received::default(),
            Err(_) => 0,
        };
        let mut received = Received { end: n == 0, ..Received::default() };
        self.reader.lock().take(&buf[..n], &mut received);
        if received.ping {
            self.send(b'r');
        }
        received
    }

    /// Answers a ping for Ruby.
    pub fn pong(&self) {
        self.send(b'g');
    }

    fn send(&self, byte: u8) {
        // NOSIGNAL: no SIGPIPE when the supervisor is gone.
        let _ = rustix::net::send(&self.fd, &[byte], SendFlags::NOSIGNAL);
    }
}

impl AsFd for SupervisorChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Separates pings and lines, which may arrive in pieces.
#[derive(Default)]
struct Reader {
    /// Inside a line: the letter that began it and the text so far.
    line: Option<(u8, Vec<u8>)>,
    /// The line is longer than allowed: its rest is dropped.
    over: bool,
}

impl Reader {
    fn take(&mut self, mut bytes: &[u8], received: &mut Received) {
        while let Some(&first) = bytes.first() {
            let Some((_, line)) = &mut self.line else {
                match first {
                    b'p' => received.ping = true,
                    b'R' | b'O' => self.line = Some((first, Vec::new())),
                    _ => {}
                }
                bytes = &bytes[1..];
                continue;
            };
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let piece = &bytes[..end.unwrap_or(bytes.len())];
            if line.len() + piece.len() > LINE_BYTES_MAX {
                self.over = true;
            } else {
                line.extend_from_slice(piece);
            }
            let Some(end) = end else { return };
            bytes = &bytes[end + 1..];
            self.end_line(received);
        }
    }

    fn end_line(&mut self, received: &mut Received) {
        let Some((kind, line)) = self.line.take() else { return };
        let whole = !std::mem::take(&mut self.over);
        match String::from_utf8(line) {
            Ok(text) if whole && kind == b'O' => received.lines.push(ChannelMessage::Order(text)),
            Ok(text) if whole => received.lines.push(ChannelMessage::Recover(text)),
            _ => received.lost += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    fn lines(texts: &[&str]) -> Received {
        let lines = texts.iter().map(|text| ChannelMessage::Recover((*text).to_owned())).collect();
        Received { lines, ..Received::default() }
    }

    #[test]
    fn pings_are_answered_and_the_end_is_noticed() {
        let (mut theirs, ours) = UnixStream::pair().unwrap();
        let channel = SupervisorChannel::new(ours.into());
        assert_eq!(channel.receive(), Received::default());
        theirs.write_all(b"p").unwrap();
        assert_eq!(channel.receive(), Received { ping: true, ..Received::default() });
        channel.pong();
        let mut answer = [0; 2];
        theirs.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"rg");
        drop(theirs);
        assert_eq!(channel.receive(), Received { end: true, ..Received::default() });
    }

    #[test]
    fn a_line_may_arrive_in_pieces() {
        let (mut theirs, ours) = UnixStream::pair().unwrap();
        let channel = SupervisorChannel::new(ours.into());
        theirs.write_all(b"R{\"identity\":\"p").unwrap();
        assert_eq!(
            channel.receive(),
            Received::default(),
            "the p belongs to the line and is no ping"
        );
        theirs.write_all(b"\"}\npRb\nR").unwrap();
        let received = channel.receive();
        assert_eq!(received, Received { ping: true, ..lines(&["{\"identity\":\"p\"}", "b"]) });
        theirs.write_all(b"\nO{}\n").unwrap();
        let recover = ChannelMessage::Recover(String::new());
        assert_eq!(channel.receive().lines, [recover, ChannelMessage::Order("{}".into())]);
    }

    #[test]
    fn a_line_that_is_too_long_or_no_text_is_dropped_and_the_next_is_read() {
        let mut reader = Reader::default();
        let mut received = Received::default();
        let long = vec![b'x'; LINE_BYTES_MAX];
        reader.take(b"R", &mut received);
        reader.take(&long, &mut received);
        reader.take(b"y", &mut received);
        reader.take(&long, &mut received);
        reader.take(b"\nR\xff\nRnext\n", &mut received);
        assert_eq!(received, Received { lost: 2, ..lines(&["next"]) });
        received = Received::default();
        reader.take(b"R", &mut received);
        reader.take(&long, &mut received);
        reader.take(b"\n", &mut received);
        let longest = ChannelMessage::Recover("x".repeat(LINE_BYTES_MAX));
        assert_eq!(received.lines, [longest], "a line of exactly the longest length is accepted");
    }
}
