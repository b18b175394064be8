//! The worker's end of the line to its supervisor.
//!
//! The supervisor sends `p`; Rust answers `r` at once, and the guardian, when
//! it has the GVL, answers `g` ([`SupervisorChannel::pong`]). `R`, a text and a newline say
//! that a sibling died, and which jobs it ran. The end of the line means that the supervisor is gone.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use parking_lot::Mutex;

/// Longest text of a line; a longer one is left out and counted.
pub const LINE_BYTES_MAX: usize = 64 * 1024;

/// A whole line of the supervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChannelMessage {
    /// `R`: a sibling died.
    Recover(String),
    /// `O`: something this worker shall do.
    Order(String),
}

/// What was read from the line.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// At least one ping.
    pub ping: bool,
    /// Whole lines, in order.
    pub lines: Vec<ChannelMessage>,
    /// Lines that were too long or no UTF-8, and are lost.
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
        // SAFETY: flags of a descriptor that we own.
        unsafe {
            let flags = libc::fcntl(fd.as_raw_fd(), libc::F_GETFL);
            libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK);
        }
        Self { fd, reader: Mutex::default() }
    }

    /// The descriptor to wait on.
    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Reads what came and answers a ping with Rust's sign of life.
    pub fn receive(&self) -> Received {
        let mut buf = [0u8; 4096];
        // SAFETY: reads into our buffer.
        let n = unsafe { libc::read(self.fd(), buf.as_mut_ptr().cast(), buf.len()) };
        if n < 0 {
            let again = std::io::Error::last_os_error().kind();
            let nothing = [std::io::ErrorKind::WouldBlock, std::io::ErrorKind::Interrupted];
            return Received { end: !nothing.contains(&again), ..Received::default() };
        }
        let mut received = Received { end: n == 0, ..Received::default() };
        self.reader.lock().take(&buf[..n as usize], &mut received);
        if received.ping {
            self.send(b'r');
        }
        received
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

/// Takes pings and lines apart, whatever pieces they arrive in.
#[derive(Default)]
struct Reader {
    /// The text so far, while inside a line, and the letter that began it.
    line: Option<(u8, Vec<u8>)>,
    /// The line is longer than it may be: its rest is left out.
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
    fn answers_pings_and_sees_the_end() {
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
    fn lines_arrive_whole_whatever_pieces_they_come_in() {
        let (mut theirs, ours) = UnixStream::pair().unwrap();
        let channel = SupervisorChannel::new(ours.into());
        theirs.write_all(b"R{\"identity\":\"p").unwrap();
        assert_eq!(
            channel.receive(),
            Received::default(),
            "the p is a letter of the line, no ping"
        );
        theirs.write_all(b"\"}\npRb\nR").unwrap();
        let received = channel.receive();
        assert_eq!(received, Received { ping: true, ..lines(&["{\"identity\":\"p\"}", "b"]) });
        theirs.write_all(b"\nO{}\n").unwrap();
        let recover = ChannelMessage::Recover(String::new());
        assert_eq!(channel.receive().lines, [recover, ChannelMessage::Order("{}".into())]);
    }

    #[test]
    fn a_line_that_is_too_long_or_no_text_is_lost_and_the_next_is_heard() {
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
        assert_eq!(received.lines, [longest], "the bound itself is allowed");
    }
}
