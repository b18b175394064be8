//! Reads and writes whole messages on a link, each with a deadline.

use std::io;
use std::time::{Duration, Instant};

use super::link::{Link, Ready, Wake};
use super::resp::Value;

/// Room for what is read at once.
const READ_BYTES: usize = 64 * 1024;
/// Longest line of the protocol (an error, a number).
const LINE_MAX: usize = 64 * 1024;
/// Longest string the server may announce (its own `proto-max-bulk-len`).
const BULK_MAX: usize = 512 * 1024 * 1024;
/// Room made for a string before its bytes came; doubled as they come.
const BULK_STEP: usize = 1024 * 1024;
/// Most members an array may announce.
const ITEMS_MAX: usize = 64 * 1024 * 1024;
/// Room made for members before any came.
const ITEMS_STEP: usize = 4096;
/// Deepest nesting of a reply.
const DEPTH_MAX: usize = 16;

/// A link and what was read of it.
pub struct Stream {
    link: Link,
    buffer: Box<[u8]>,
    at: usize,
    end: usize,
    /// Answers to come that nobody waits for (to [`Stream::ask`]).
    owed: usize,
    /// Messages that answer no command, oldest first.
    pub pushes: Vec<Vec<Value>>,
}

impl Stream {
    /// Nothing read yet.
    pub fn new(link: Link) -> Self {
        let buffer = vec![0; READ_BYTES].into_boxed_slice();
        Self { link, buffer, at: 0, end: 0, owed: 0, pushes: Vec::new() }
    }

    /// Whether the peer has closed it.
    pub fn is_closed(&self) -> bool {
        self.link.is_closed()
    }

    /// Sends commands and reads as many answers; `timeout` is for each.
    pub fn exchange(
        &mut self,
        bytes: &[u8],
        replies: usize,
        timeout: Duration,
    ) -> io::Result<Vec<Value>> {
        self.write(bytes, timeout)?;
        // Hardly ever is an answer there already: one read less.
        if self.at == self.end && self.link.poll_tells_all() {
            self.await_bytes(Instant::now() + timeout)?;
        }
        let mut values = Vec::with_capacity(replies);
        while values.len() < replies {
            match self.value(0, timeout)? {
                // What comes before the first answer is older than the question.
                Value::Push(_) if values.is_empty() => {}
                Value::Push(message) => self.pushes.push(message),
                _ if self.owed > 0 => self.owed -= 1,
                value => values.push(value),
            }
        }
        Ok(values)
    }

    /// Waits for messages that answer no command, or for `wake`;
    /// [`Ready::Link`] when something was heard, be it the answer to a PING.
    pub fn listen(
        &mut self,
        wake: &Wake,
        timeout: Duration,
        answer: Duration,
    ) -> io::Result<Ready> {
        // Bytes may wait here or in the TLS session, where poll sees nothing.
        if self.at == self.end && !self.fill_some()? {
            match self.link.wait(false, Some(wake.fd()), timeout)? {
                Ready::Link if !self.fill_some()? => return Ok(Ready::Nothing),
                Ready::Link => {}
                other => return Ok(other),
            }
        }
        while self.at < self.end {
            match self.value(0, answer)? {
                Value::Push(message) => self.pushes.push(message),
                _ => self.owed = self.owed.saturating_sub(1),
            }
        }
        Ok(Ready::Link)
    }

    /// Sends one command whose answer only says that the peer lives.
    pub fn ask(&mut self, bytes: &[u8], timeout: Duration) -> io::Result<()> {
        self.owed += 1;
        self.write(bytes, timeout)
    }

    /// Sends it all.
    fn write(&mut self, bytes: &[u8], timeout: Duration) -> io::Result<()> {
        let mut rest = bytes;
        let mut deadline = Instant::now() + timeout;
        loop {
            let written = match rest {
                [] => self.link.flush().map(|()| None),
                rest => self.link.write(rest).map(Some),
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
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || self.link.wait(true, None, left)? == Ready::Nothing {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }

    /// Reads one message.
    fn value(&mut self, depth: usize, timeout: Duration) -> io::Result<Value> {
        if depth > DEPTH_MAX {
            return Err(damaged("an answer is nested too deep"));
        }
        let line = self.line(timeout)?;
        let kind = self.buffer[line.0];
        let text = &self.buffer[line.0 + 1..line.1];
        match kind {
            b'+' => Ok(Value::Bulk(text.to_vec())),
            b'-' => Ok(Value::Error(String::from_utf8_lossy(text).into_owned())),
            b':' => Ok(Value::Int(number(text)?)),
            b'_' => Ok(Value::Nil),
            b'#' => Ok(Value::Int(i64::from(text == b"t"))),
            b',' => Ok(Value::Double(double(text)?)),
            b'(' => Ok(Value::Bulk(text.to_vec())),
            b'$' | b'=' | b'!' => match size(text, BULK_MAX)? {
                None => Ok(Value::Nil),
                Some(length) => {
                    let bytes = self.bulk(length, timeout)?;
                    Ok(match kind {
                        b'!' => Value::Error(String::from_utf8_lossy(&bytes).into_owned()),
                        _ => Value::Bulk(bytes),
                    })
                }
            },
            b'*' | b'~' | b'>' | b'%' => {
                let Some(count) = size(text, ITEMS_MAX)? else { return Ok(Value::Nil) };
                let count = if kind == b'%' { count * 2 } else { count };
                let mut items = Vec::with_capacity(count.min(ITEMS_STEP));
                for _ in 0..count {
                    items.push(self.value(depth + 1, timeout)?);
                }
                Ok(if kind == b'>' { Value::Push(items) } else { Value::Array(items) })
            }
            _ => Err(damaged("an answer begins with no known sign: is this a Redis server?")),
        }
    }

    /// Where the next line lies in the buffer, its end left out.
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

    /// Reads at least one byte, past the (empty) buffer.
    fn read_into(&mut self, into: &mut [u8], timeout: Duration) -> io::Result<usize> {
        let deadline = Instant::now() + timeout;
        loop {
            match self.link.read(into) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                other => return other,
            }
            self.await_bytes(deadline)?;
        }
    }

    /// Reads at least one byte into the buffer.
    fn fill(&mut self, timeout: Duration) -> io::Result<()> {
        let deadline = Instant::now() + timeout;
        while !self.fill_some()? {
            self.await_bytes(deadline)?;
        }
        Ok(())
    }

    fn await_bytes(&mut self, deadline: Instant) -> io::Result<()> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || self.link.wait(false, None, left)? == Ready::Nothing {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(())
    }

    /// Reads what is there into the buffer; whether that was something.
    fn fill_some(&mut self) -> io::Result<bool> {
        if self.at > 0 {
            self.buffer.copy_within(self.at..self.end, 0);
            self.end -= self.at;
            self.at = 0;
        }
        match self.link.read(&mut self.buffer[self.end..]) {
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

fn number(text: &[u8]) -> io::Result<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let mut sum = 0i64;
    for digit in digits {
        let digit = i64::from(digit.wrapping_sub(b'0'));
        if digit > 9 {
            return Err(damaged("a number of an answer is none"));
        }
        sum = sum.wrapping_mul(10).wrapping_add(digit);
    }
    Ok(if negative { -sum } else { sum })
}

fn double(text: &[u8]) -> io::Result<f64> {
    let text = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    text.ok_or_else(|| damaged("a number of an answer is none"))
}

/// A length; -1 stands for null.
fn size(text: &[u8], max: usize) -> io::Result<Option<usize>> {
    match number(text)? {
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

    fn answer(bytes: &[u8]) -> io::Result<Vec<Value>> {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let mut stream = Stream::new(Link::Unix(ours));
        std::thread::scope(|scope| {
            scope.spawn(move || theirs.write_all(bytes));
            stream.exchange(b"", 1, TIME)
        })
    }

    #[test]
    fn reads_every_kind_of_answer() {
        let bytes = b"*11\r\n+OK\r\n-ERR no\r\n:-12\r\n_\r\n#t\r\n,1.5\r\n$3\r\na\r\n\r\n$-1\r\n%1\r\n+k\r\n:1\r\n~1\r\n:2\r\n*0\r\n";
        let bulk = |text: &[u8]| Value::Bulk(text.to_vec());
        let expected = Value::Array(vec![
            bulk(b"OK"),
            Value::Error("ERR no".into()),
            Value::Int(-12),
            Value::Nil,
            Value::Int(1),
            Value::Double(1.5),
            bulk(b"a\r\n"),
            Value::Nil,
            Value::Array(vec![bulk(b"k"), Value::Int(1)]),
            Value::Array(vec![Value::Int(2)]),
            Value::Array(vec![]),
        ]);
        assert_eq!(answer(bytes).unwrap(), [expected]);
    }

    #[test]
    fn keeps_answers_and_messages_apart() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let mut stream = Stream::new(Link::Unix(ours));
        stream.ask(b"", TIME).unwrap();
        // An old message, the answer nobody waits for, another, ours, a new one.
        theirs
            .write_all(b">1\r\n+old\r\n+PONG\r\n>1\r\n+old\r\n:1\r\n>1\r\n+new\r\n:2\r\n")
            .unwrap();
        let values = stream.exchange(b"", 2, TIME).unwrap();
        assert_eq!(values, [Value::Int(1), Value::Int(2)]);
        assert_eq!(stream.pushes, [[Value::Bulk(b"new".to_vec())]]);
    }

    #[test]
    fn reads_long_strings_whole() {
        let text: Vec<u8> = (0..3_000_001u32).map(|i| (i % 251) as u8).collect();
        let bytes = [format!("${}\r\n", text.len()).as_bytes(), &text, b"\r\n"].concat();
        assert_eq!(answer(&bytes).unwrap(), [Value::Bulk(text)]);
    }

    #[test]
    fn refuses_what_is_no_answer() {
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
