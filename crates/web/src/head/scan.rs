//! A head that did not come in one part, or that is refused: each byte is looked at once, whatever
//! the size of the reads, and the first byte that breaks a rule or a limit decides.

use super::class::{is_target, is_token};
use super::error::HeadError;
use super::fields::FieldScan;
use crate::limits::Limits;

/// Empty lines tolerated before a request line. RFC 9112 section 2.2 asks for
/// at least one: old clients send a CRLF after a body.
const BLANK_LINES_MAX: u8 = 2;

/// The longest method name; the longest one registered has 17 bytes.
pub(super) const METHOD_BYTES_MAX: usize = 32;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Before the request line.
    #[default]
    Blank,
    BlankCr,
    Method,
    Target,
    Version,
    VersionCr,
    Fields(FieldScan),
}

/// Where the scan of a partial head stands between two reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HeadScan {
    state: State,
    /// Bytes of the buffer already looked at.
    at: usize,
    /// Where the current element of the request line begins.
    mark: usize,
    /// Where the request line begins, behind empty lines.
    head_start: usize,
    /// Where the minor version stands if it is above 1.
    newer_minor: Option<usize>,
    blank_lines: u8,
}

impl HeadScan {
    /// Where the request line begins.
    pub(crate) fn head_start(&self) -> usize {
        self.head_start
    }

    /// Where the minor version stands if it is above 1, which is read as 1.
    pub(crate) fn newer_minor(&self) -> Option<usize> {
        self.newer_minor
    }

    /// True before the first byte.
    pub(crate) fn is_fresh(&self) -> bool {
        self.at == 0
    }

    /// Goes on through `buf`, whose first bytes are those of the last call.
    /// Returns the bytes of the head once all are there.
    pub(crate) fn run(&mut self, buf: &[u8], limits: &Limits) -> Result<Option<usize>, HeadError> {
        let end = buf.len().min(limits.header_bytes_max);
        while self.at < end {
            if let State::Fields(fields) = &mut self.state {
                let found = fields.run(&buf[self.at..end], limits.header_count_max)?;
                if let Some(bytes) = found {
                    return Ok(Some(self.at + bytes));
                }
                self.at = end;
                break;
            }
            self.step(buf, limits)?;
            self.at += 1;
        }
        if buf.len() > limits.header_bytes_max {
            return Err(HeadError::TooLarge);
        }
        Ok(None)
    }

    /// Looks at one byte before the header lines.
    fn step(&mut self, buf: &[u8], limits: &Limits) -> Result<(), HeadError> {
        let byte = buf[self.at];
        let length = self.at - self.mark;
        match self.state {
            State::Blank => self.begin(byte)?,
            State::BlankCr if byte == b'\n' => self.state = State::Blank,
            State::Method if byte == b' ' => self.next(State::Target),
            State::Method if !is_token(byte) => return Err(HeadError::Method),
            State::Method if length >= METHOD_BYTES_MAX => return Err(HeadError::MethodTooLong),
            State::Method => {}
            State::Target if !is_target(byte) => self.end_target(buf, byte)?,
            State::Target if length >= limits.uri_bytes_max => return Err(HeadError::UriTooLong),
            State::Target => {}
            State::Version => self.version(buf, byte)?,
            State::VersionCr if byte == b'\n' => {
                self.state = State::Fields(FieldScan::default());
            }
            State::BlankCr | State::VersionCr => return Err(HeadError::BareCr),
            State::Fields(_) => {}
        }
        Ok(())
    }

    fn begin(&mut self, byte: u8) -> Result<(), HeadError> {
        match byte {
            b'\r' if self.blank_lines >= BLANK_LINES_MAX => return Err(HeadError::BlankLines),
            b'\r' => {
                self.blank_lines += 1;
                self.state = State::BlankCr;
            }
            b'\n' => return Err(HeadError::BareLf),
            _ if !is_token(byte) => return Err(HeadError::Method),
            _ => {
                self.mark = self.at;
                self.head_start = self.at;
                self.state = State::Method;
            }
        }
        Ok(())
    }

    fn end_target(&mut self, buf: &[u8], byte: u8) -> Result<(), HeadError> {
        let target = &buf[self.mark..self.at];
        match byte {
            _ if target.is_empty() => Err(HeadError::Target),
            b' ' if std::str::from_utf8(target).is_err() => Err(HeadError::Target),
            b' ' => {
                self.next(State::Version);
                Ok(())
            }
            b'\r' | b'\n' => Err(HeadError::NoVersion),
            _ => Err(HeadError::Target),
        }
    }

    fn version(&mut self, buf: &[u8], byte: u8) -> Result<(), HeadError> {
        let length = self.at - self.mark;
        let fits = match length {
            0..=4 => byte == b"HTTP/"[length],
            5 | 7 => byte.is_ascii_digit(),
            6 => byte == b'.',
            _ => byte == b'\r',
        };
        match length {
            _ if fits && length < 7 => Ok(()),
            7 if fits => match &buf[self.mark..=self.at] {
                b"HTTP/1.0" | b"HTTP/1.1" => Ok(()),
                [.., b'1', b'.', _] => {
                    self.newer_minor = Some(self.at);
                    Ok(())
                }
                _ => Err(HeadError::VersionUnsupported),
            },
            8 if fits => {
                self.state = State::VersionCr;
                Ok(())
            }
            0 if matches!(byte, b'\r' | b'\n') => Err(HeadError::NoVersion),
            8 if byte == b'\n' => Err(HeadError::BareLf),
            _ => Err(HeadError::Version),
        }
    }

    fn next(&mut self, state: State) {
        self.state = state;
        self.mark = self.at + 1;
    }
}
