//! The worker's end of the line to its supervisor.
//!
//! The supervisor sends `p`; Rust answers `r` at once, and the guardian, when
//! it has the GVL, answers `g` ([`Leash::pong`]). `R`, a text and a newline say
//! that a sibling died, and which jobs it ran. The end of the line means that the supervisor is gone.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use parking_lot::Mutex;

/// Longest text of a line; a longer one is left out and counted.
pub const LINE_BYTES_MAX: usize = 64 * 1024;

/// A whole line of the supervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// `R`: a sibling died.
    Recover(String),
    /// `O`: something this worker shall do.
    Order(String),
}

/// What was read from the line.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// At least one ping.
    pub ping: bool,
    /// Whole lines, in order.
    pub lines: Vec<Line>,
    /// Lines that were too long or no UTF-8, and are lost.
    pub lost: usize,
    /// The supervisor is gone.
    pub end: bool,
}

/// One end of a stream socket pair.
pub struct Leash {
    fd: OwnedFd,
    reader: Mutex<Reader>,
}

impl Leash {
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
    pub fn hear(&self) -> Heard {
        let mut buf = [0u8; 4096];
        // SAFETY: reads into our buffer.
        let n = unsafe { libc::read(self.fd(), buf.as_mut_ptr().cast(), buf.len()) };
        if n < 0 {
            let again = std::io::Error::last_os_error().kind();
            let nothing = [std::io::ErrorKind::WouldBlock, std::io::ErrorKind::Interrupted];
            return Heard { end: !nothing.contains(&again), ..Heard::default() };
        }
        let mut heard = Heard { end: n == 0, ..Heard::default() };
        self.reader.lock().take(&buf[..n as usize], &mut heard);
        if heard.ping {
            self.send(b'r');
        }
        heard
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
    fn take(&mut self, mut bytes: &[u8], heard: &mut Heard) {
        while let Some(&first) = bytes.first() {
            let Some((_, line)) = &mut self.line else {
                match first {
                    b'p' => heard.ping = true,
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
            self.end_line(heard);
        }
    }

    fn end_line(&mut self, heard: &mut Heard) {
        let Some((kind, line)) = self.line.take() else { return };
        let whole = !std::mem::take(&mut self.over);
        match String::from_utf8(line) {
            Ok(text) if whole && kind == b'O' => heard.lines.push(Line::Order(text)),
            Ok(text) if whole => heard.lines.push(Line::Recover(text)),
            _ => heard.lost += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    fn lines(texts: &[&str]) -> Heard {
        let lines = texts.iter().map(|text| Line::Recover((*text).to_owned())).collect();
        Heard { lines, ..Heard::default() }
    }

    #[test]
    fn answers_pings_and_sees_the_end() {
        let (mut theirs, ours) = UnixStream::pair().unwrap();
        let leash = Leash::new(ours.into());
        assert_eq!(leash.hear(), Heard::default());
        theirs.write_all(b"p").unwrap();
        assert_eq!(leash.hear(), Heard { ping: true, ..Heard::default() });
        leash.pong();
        let mut answer = [0; 2];
        theirs.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"rg");
        drop(theirs);
        assert_eq!(leash.hear(), Heard { end: true, ..Heard::default() });
    }

    #[test]
    fn lines_arrive_whole_whatever_pieces_they_come_in() {
        let (mut theirs, ours) = UnixStream::pair().unwrap();
        let leash = Leash::new(ours.into());
        theirs.write_all(b"R{\"identity\":\"p").unwrap();
        assert_eq!(leash.hear(), Heard::default(), "the p is a letter of the line, no ping");
        theirs.write_all(b"\"}\npRb\nR").unwrap();
        let heard = leash.hear();
        assert_eq!(heard, Heard { ping: true, ..lines(&["{\"identity\":\"p\"}", "b"]) });
        theirs.write_all(b"\nO{}\n").unwrap();
        let recover = Line::Recover(String::new());
        assert_eq!(leash.hear().lines, [recover, Line::Order("{}".into())]);
    }

    #[test]
    fn a_line_that_is_too_long_or_no_text_is_lost_and_the_next_is_heard() {
        let mut reader = Reader::default();
        let mut heard = Heard::default();
        let long = vec![b'x'; LINE_BYTES_MAX];
        reader.take(b"R", &mut heard);
        reader.take(&long, &mut heard);
        reader.take(b"y", &mut heard);
        reader.take(&long, &mut heard);
        reader.take(b"\nR\xff\nRnext\n", &mut heard);
        assert_eq!(heard, Heard { lost: 2, ..lines(&["next"]) });
        heard = Heard::default();
        reader.take(b"R", &mut heard);
        reader.take(&long, &mut heard);
        reader.take(b"\n", &mut heard);
        let longest = Line::Recover("x".repeat(LINE_BYTES_MAX));
        assert_eq!(heard.lines, [longest], "the bound itself is allowed");
    }
}
