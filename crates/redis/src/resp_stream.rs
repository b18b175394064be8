//! Reads and writes whole RESP messages on a transport, each with a deadline.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use chaton_core::event_fd::EventFd;

use crate::resp::RespValue;
use crate::transport::{PollResult, Transport};

/// Size of the read buffer.
const READ_BYTES: usize = 64 * 1024;
/// Longest line of the protocol (an error, a number).
const LINE_MAX: usize = 64 * 1024;
/// Longest string that is accepted (the server's own `proto-max-bulk-len`).
const BULK_MAX: usize = 512 * 1024 * 1024;
/// Bytes reserved for a string before they arrive; doubled as they do.
const BULK_STEP: usize = 1024 * 1024;
/// Longest array that is accepted.
const ITEMS_MAX: usize = 64 * 1024 * 1024;
/// Members reserved before any arrives.
const ITEMS_STEP: usize = 4096;
/// Deepest nesting of a reply.
const DEPTH_MAX: usize = 16;

/// A transport and its read buffer.
pub struct RespStream {
    transport: Transport,
    buffer: Box<[u8]>,
    at: usize,
    end: usize,
    /// Outstanding replies to [`RespStream::send`], which are dropped.
    unclaimed: usize,
    /// Its notification fails all calls, also the one that waits now.
    cut: Option<Arc<EventFd>>,
    /// Pushed messages, oldest first.
    pub pushes: Vec<Vec<RespValue>>,
}

impl RespStream {
    /// A stream that has read nothing yet, and whose calls a notification of `cut` fails.
    pub fn new(transport: Transport, cut: Option<Arc<EventFd>>) -> Self {
        let buffer = vec![0; READ_BYTES].into_boxed_slice();
        Self { transport, buffer, at: 0, end: 0, unclaimed: 0, cut, pushes: Vec::new() }
    }

    /// Whether the peer has closed it.
    pub fn is_closed(&self) -> bool {
        self.transport.is_closed()
    }

    /// Sends commands and reads as many replies, each within `timeout`.
    pub fn exchange(
        &mut self,
        bytes: &[u8],
        replies: usize,
        timeout: Duration,
    ) -> io::Result<Vec<RespValue>> {
        self.write(bytes, timeout)?;
        // The reply is hardly ever there already: this saves a read.
        if self.at == self.end && self.transport.is_unbuffered() {
            self.await_socket(false, Instant::now() + timeout)?;
        }
        let mut values = Vec::with_capacity(replies);
        while values.len() < replies {
            match self.value(0, timeout)? {
                // A message before the first reply is older than the commands.
                RespValue::Push(_) if values.is_empty() => {}
                RespValue::Push(message) => self.pushes.push(message),
                _ if self.unclaimed > 0 => self.unclaimed -= 1,
                value => values.push(value),
            }
        }
        Ok(values)
    }

    /// Waits for pushed messages, or until one of the `interrupts` can be read.
    /// [`PollResult::Ready`] when something was read, also the reply to a PING.
    pub fn wait_for_push(
        &mut self,
        interrupts: &[BorrowedFd<'_>],
        timeout: Duration,
        answer: Duration,
    ) -> io::Result<PollResult> {
        // Bytes may be in the buffer or in the TLS session, unseen by poll.
        if self.at == self.end && !self.fill_some()? {
            match self.transport.wait(false, interrupts, timeout)? {
                PollResult::Ready if !self.fill_some()? => return Ok(PollResult::TimedOut),
                PollResult::Ready => {}
                other => return Ok(other),
            }
        }
        while self.at < self.end {
            match self.value(0, answer)? {
                RespValue::Push(message) => self.pushes.push(message),
                _ => self.unclaimed = self.unclaimed.saturating_sub(1),
            }
        }
        Ok(PollResult::Ready)
    }

    /// Sends one command and does not wait for its reply.
    pub fn send(&mut self, bytes: &[u8], timeout: Duration) -> io::Result<()> {
        self.unclaimed += 1;
        self.write(bytes, timeout)
    }

    fn write(&mut self, bytes: &[u8], timeout: Duration) -> io::Result<()> {
        let mut rest = bytes;
        let mut deadline = Instant::now() + timeout;
        loop {
            let written = match rest {
                [] => self.transport.flush().map(|()| None),
                rest => self.transport.write(rest).map(Some),
            };
            match written {
                Ok(None) => return Ok(()),
                Ok(Some(count)) => {
                    rest = &rest[count..];
                    deadline = Instant::now() + timeout;
                    continue;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) if e.kind() != io::ErrorKind::WouldBlock => return Err(e),
                Err(_) => {}
            }
            self.await_socket(true, deadline)?;
        }
    }

    /// Reads one message.
    fn value(&mut self, depth: usize, timeout: Duration) -> io::Result<RespValue> {
        if depth > DEPTH_MAX {
            return Err(damaged("an answer is nested too deep"));
        }
        let line = self.line(timeout)?;
        let kind = self.buffer[line.0];
        let text = &self.buffer[line.0 + 1..line.1];
        match kind {
            b'+' => Ok(RespValue::Bulk(text.to_vec())),
            b'-' => Ok(RespValue::Error(String::from_utf8_lossy(text).into_owned())),
            b':' => Ok(RespValue::Int(number(text)?)),
            b'_' => Ok(RespValue::Nil),
            b'#' => Ok(RespValue::Int(i64::from(text == b"t"))),
            b',' => Ok(RespValue::Double(number(text)?)),
            b'(' => Ok(RespValue::Bulk(text.to_vec())),
            b'$' | b'=' | b'!' => match size(text, BULK_MAX)? {
                None => Ok(RespValue::Nil),
                Some(length) => {
                    let bytes = self.bulk(length, timeout)?;
                    Ok(match kind {
                        b'!' => RespValue::Error(String::from_utf8_lossy(&bytes).into_owned()),
                        _ => RespValue::Bulk(bytes),
                    })
                }
            },
            b'*' | b'~' | b'>' | b'%' => {
                let Some(count) = size(text, ITEMS_MAX)? else { return Ok(RespValue::Nil) };
                let count = if kind == b'%' { count * 2 } else { count };
                let mut items = Vec::with_capacity(count.min(ITEMS_STEP));
                for _ in 0..count {
                    items.push(self.value(depth + 1, timeout)?);
                }
                Ok(if kind == b'>' { RespValue::Push(items) } else { RespValue::Array(items) })
            }
            _ => Err(damaged("an answer begins with no known sign: is this a Redis server?")),
        }
    }

    /// The range of the next line in the buffer, without its end.
    fn line(&mut self, timeout: Duration) -> io::Result<(usize, usize)> {
        let mut seen = 0;
        loop {
            let part = &self.buffer[self.at + seen..self.end];
            if let Some(found) = part.iter().position(|byte| *byte == b'\n') {
                let start = self.at;
                let end = self.at + seen + found;
                if end < start + 2 || self.buffer[end - 1] != b'\r' {
                    return Err(damaged("a line of an answer has no proper end"));
                }
                self.at = end + 1;
                return Ok((start, end - 1));
            }
            seen = self.end - self.at;
            if seen >= LINE_MAX {
                return Err(damaged("a line of an answer is too long"));
            }
            self.fill(timeout)?;
        }
    }

    /// Reads a string of that length and its line end.
    fn bulk(&mut self, length: usize, timeout: Duration) -> io::Result<Vec<u8>> {
        let here = (self.end - self.at).min(length);
        let mut bytes = Vec::with_capacity(length.min(here.max(BULK_STEP)));
        bytes.extend_from_slice(&self.buffer[self.at..self.at + here]);
        self.at += here;
        let mut filled = here;
        while filled < length {
            if filled == bytes.len() {
                bytes.resize(length.min(2 * filled.max(BULK_STEP)), 0);
            }
            filled += self.read_into(&mut bytes[filled..], timeout)?;
        }
        while self.end - self.at < 2 {
            self.fill(timeout)?;
        }
        if self.buffer[self.at..self.at + 2] != *b"\r\n" {
            return Err(damaged("a string of an answer has no proper end"));
        }
        self.at += 2;
        Ok(bytes)
    }

    /// Reads at least one byte, bypassing the (empty) buffer.
    fn read_into(&mut self, into: &mut [u8], timeout: Duration) -> io::Result<usize> {
        let deadline = Instant::now() + timeout;
        loop {
            match self.transport.read(into) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                other => return other,
            }
            self.await_socket(false, deadline)?;
        }
    }

    /// Reads at least one byte into the buffer.
    fn fill(&mut self, timeout: Duration) -> io::Result<()> {
        let deadline = Instant::now() + timeout;
        while !self.fill_some()? {
            self.await_socket(false, deadline)?;
        }
        Ok(())
    }

    fn await_socket(&mut self, write: bool, deadline: Instant) -> io::Result<()> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let cut = self.cut.as_ref().map(|cut| cut.as_fd());
        match self.transport.wait(write, cut.as_slice(), left)? {
            PollResult::Ready => Ok(()),
            PollResult::TimedOut => Err(io::ErrorKind::TimedOut.into()),
            PollResult::Interrupted => Err(io::ErrorKind::ConnectionAborted.into()),
        }
    }

    /// Reads what has arrived into the buffer; whether that was anything.
    fn fill_some(&mut self) -> io::Result<bool> {
        if self.at > 0 {
            self.buffer.copy_within(self.at..self.end, 0);
            self.end -= self.at;
            self.at = 0;
        }
        match self.transport.read(&mut self.buffer[self.end..]) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                self.end += count;
                Ok(true)
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(false),
            Err(e) => Err(e),
        }
    }
}

fn damaged(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_string())
}

fn number<T: std::str::FromStr>(text: &[u8]) -> io::Result<T> {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| damaged("a number of an answer is malformed"))
}

/// A length; -1 stands for null.
fn size(text: &[u8], max: usize) -> io::Result<Option<usize>> {
    match number::<i64>(text)? {
        -1 => Ok(None),
        size => match usize::try_from(size) {
            Ok(size) if size <= max => Ok(Some(size)),
            _ => Err(damaged("a length of an answer is out of bounds")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    const TIME: Duration = Duration::from_secs(5);

    fn answer(bytes: &[u8]) -> io::Result<Vec<RespValue>> {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let mut stream = RespStream::new(Transport::Unix(ours), None);
        std::thread::scope(|scope| {
            scope.spawn(move || theirs.write_all(bytes));
            stream.exchange(b"", 1, TIME)
        })
    }

    #[test]
    fn reads_every_type_of_value() {
        let bytes = b"*11\r\n+OK\r\n-ERR no\r\n:-12\r\n_\r\n#t\r\n,1.5\r\n$3\r\na\r\n\r\n$-1\r\n%1\r\n+k\r\n:1\r\n~1\r\n:2\r\n*0\r\n";
        let bulk = |text: &[u8]| RespValue::Bulk(text.to_vec());
        let expected = RespValue::Array(vec![
            bulk(b"OK"),
            RespValue::Error("ERR no".into()),
            RespValue::Int(-12),
            RespValue::Nil,
            RespValue::Int(1),
            RespValue::Double(1.5),
            bulk(b"a\r\n"),
            RespValue::Nil,
            RespValue::Array(vec![bulk(b"k"), RespValue::Int(1)]),
            RespValue::Array(vec![RespValue::Int(2)]),
            RespValue::Array(vec![]),
        ]);
        assert_eq!(answer(bytes).unwrap(), [expected]);
    }

    #[test]
    fn separates_answers_from_messages() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let mut stream = RespStream::new(Transport::Unix(ours), None);
        stream.send(b"", TIME).unwrap();
        // An old message, the dropped reply, an old message, the first reply, a new
        // message, the second reply.
        theirs
            .write_all(b">1\r\n+old\r\n+PONG\r\n>1\r\n+old\r\n:1\r\n>1\r\n+new\r\n:2\r\n")
            .unwrap();
        let values = stream.exchange(b"", 2, TIME).unwrap();
        assert_eq!(values, [RespValue::Int(1), RespValue::Int(2)]);
        assert_eq!(stream.pushes, [[RespValue::Bulk(b"new".to_vec())]]);
    }

    #[test]
    fn reads_long_strings_whole() {
        let text: Vec<u8> = (0..3_000_001u32).map(|i| (i % 251) as u8).collect();
        let bytes = [format!("${}\r\n", text.len()).as_bytes(), &text, b"\r\n"].concat();
        assert_eq!(answer(&bytes).unwrap(), [RespValue::Bulk(text)]);
    }

    #[test]
    fn refuses_malformed_answers() {
        for bad in [
            b"HTTP/1.1 400 Bad Request\r\n".as_slice(),
            b"$999999999999\r\n",
            b"$-2\r\n",
            b":1x\r\n",
            b"+a\n",
            b"$1\r\nabc",
            b"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n",
        ] {
            let error = answer(bad).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{bad:?}");
        }
        assert_eq!(answer(b"$5\r\nab").unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
