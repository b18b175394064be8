//! The chunked transfer coding of a request body, decoded as it arrives (RFC 9112 section 7.1).
//!
//! Strict as the head parser: sizes are bare hexadecimal digits, lines end in CRLF, extensions are
//! bounded and ignored. Trailers are validated like headers and dropped, since Rack has no place
//! for them; those that would reframe or redirect the message had they been headers are refused.

use std::fmt;

use crate::head::class::is_token;
use crate::head::fields::FieldScan;
use crate::head::HeadError;
use crate::limits::Limits;

/// Bytes of one chunk's extensions.
const EXTENSION_BYTES_MAX: u32 = 1_024;

/// Bytes of all extensions of one body, so that a client cannot send more syntax than content.
const EXTENSIONS_BYTES_MAX: u32 = 16 * 1_024;

/// Digits of a chunk size: 64 bits, leading zeros counted.
const SIZE_DIGITS_MAX: u8 = 16;

/// Names that decide about framing, routing or the connection; RFC 9110 section
/// 6.5.1 forbids them behind a body.
const TRAILERS_FORBIDDEN: [&str; 8] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Why a chunked body is refused. The end of the body is unknown then, so the
/// connection is closed after the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChunkError {
    /// A chunk size that is empty, too long or not hexadecimal.
    Size,
    /// The body is larger than `body_bytes_max`.
    TooLarge,
    /// A chunk extension that is malformed or holds a control byte.
    Extension,
    /// Chunk extensions above their bound.
    ExtensionTooLong,
    /// A line of the coding that does not end in CRLF.
    LineEnd,
    /// A chunk with more bytes than its size.
    DataEnd,
    /// A trailer that breaks a rule of header lines or a limit.
    Trailer(HeadError),
    /// A trailer that may only be a header.
    TrailerForbidden,
}

impl ChunkError {
    /// The status to answer with: 400, 413 or 431.
    pub fn status(self) -> u16 {
        match self {
            Self::TooLarge => 413,
            Self::Trailer(error) => error.status(),
            _ => 400,
        }
    }

    /// The fault in one clause, for the log and the response.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Size => "a chunk size is not a hexadecimal number of at most 16 digits",
            Self::TooLarge => "the chunked body is larger than the limit",
            Self::Extension => "a chunk extension is malformed",
            Self::ExtensionTooLong => "the chunk extensions are longer than the limit",
            Self::LineEnd => "a line of the chunked coding does not end in CRLF",
            Self::DataEnd => "a chunk is longer than its size",
            Self::Trailer(error) => error.reason(),
            Self::TrailerForbidden => "a trailer that may only be a header",
        }
    }
}

impl fmt::Display for ChunkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason())
    }
}

impl std::error::Error for ChunkError {}

#[derive(Clone, Copy, Debug)]
enum State {
    Size,
    /// White space after the size, before a `;`.
    SizeSpace,
    /// After a `;`, before the extension's name.
    ExtensionStart,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    Trailers(FieldScan),
    Done,
    Failed(ChunkError),
}

/// Decodes one body.
#[derive(Debug)]
pub struct ChunkedDecoder {
    state: State,
    /// The size being read, then the bytes left of the chunk.
    size: u64,
    digits: u8,
    /// Bytes of `body_bytes_max` left after the sizes seen so far.
    body_left: u64,
    extension: u32,
    extensions: u32,
    /// The trailer lines so far, kept until their names are checked.
    trailers: Vec<u8>,
    trailer_bytes: usize,
    trailer_bytes_max: usize,
    trailer_count_max: usize,
}

impl ChunkedDecoder {
    /// A decoder at the beginning of a body.
    pub fn new(limits: &Limits) -> Self {
        Self {
            state: State::Size,
            size: 0,
            digits: 0,
            body_left: limits.body_bytes_max,
            extension: 0,
            extensions: 0,
            trailers: Vec::new(),
            trailer_bytes: 0,
            trailer_bytes_max: limits.header_bytes_max,
            trailer_count_max: limits.header_count_max,
        }
    }

    /// Decodes the new bytes `input` and appends the body to `out`. Returns how
    /// many bytes were consumed and whether the body is complete; the bytes after
    /// it belong to the next request. An error is final.
    pub fn feed(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(usize, bool), ChunkError> {
        let result = self.advance(input, out);
        if let Err(error) = result {
            self.state = State::Failed(error);
        }
        result
    }

    fn advance(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(usize, bool), ChunkError> {
        let mut at = 0;
        while at < input.len() {
            match &mut self.state {
                State::Data => {
                    let rest = &input[at..];
                    let take = usize::try_from(self.size).unwrap_or(usize::MAX).min(rest.len());
                    out.extend_from_slice(&rest[..take]);
                    at += take;
                    self.size -= take as u64;
                    if self.size == 0 {
                        self.state = State::DataCr;
                    }
                }
                State::Trailers(_) => at += self.trailers(&input[at..])?,
                State::Done => break,
                State::Failed(error) => return Err(*error),
                _ => {
                    self.step(input[at])?;
                    at += 1;
                }
            }
        }
        Ok((at, matches!(self.state, State::Done)))
    }

    /// One byte of a chunk's first line, or of the CRLF behind its data.
    fn step(&mut self, byte: u8) -> Result<(), ChunkError> {
        self.state = match (self.state, byte) {
            (State::Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => return self.digit(byte),
            (State::Size, _) if self.digits == 0 => return Err(ChunkError::Size),
            (State::Size | State::Extension, b'\r') => {
                self.end_size()?;
                State::SizeLf
            }
            (State::Size | State::SizeSpace, b' ' | b'\t') => {
                self.count_extension()?;
                State::SizeSpace
            }
            (State::Size | State::SizeSpace, b';') => {
                self.count_extension()?;
                State::ExtensionStart
            }
            (State::Size | State::SizeSpace | State::Extension, b'\n') => {
                return Err(ChunkError::LineEnd)
            }
            (State::Size | State::SizeSpace, _) => return Err(ChunkError::Size),
            (State::ExtensionStart, b' ' | b'\t') => {
                self.count_extension()?;
                State::ExtensionStart
            }
            (State::ExtensionStart, _) if is_token(byte) => {
                self.count_extension()?;
                State::Extension
            }
            (State::Extension, b'\t' | 0x20..=0x7e | 0x80..) => {
                self.count_extension()?;
                State::Extension
            }
            (State::ExtensionStart | State::Extension, _) => return Err(ChunkError::Extension),
            (State::SizeLf, b'\n') => self.begin_data(),
            (State::DataCr, b'\r') => State::DataLf,
            (State::DataCr, b'\n') => return Err(ChunkError::LineEnd),
            (State::DataCr, _) => return Err(ChunkError::DataEnd),
            (State::DataLf, b'\n') => {
                (self.size, self.digits, self.extension) = (0, 0, 0);
                State::Size
            }
            _ => return Err(ChunkError::LineEnd),
        };
        Ok(())
    }

    fn digit(&mut self, byte: u8) -> Result<(), ChunkError> {
        if self.digits >= SIZE_DIGITS_MAX {
            return Err(ChunkError::Size);
        }
        let value = (byte as char).to_digit(16).ok_or(ChunkError::Size)?;
        // Sixteen digits fill the 64 bits, so the shift loses none.
        self.size = self.size << 4 | u64::from(value);
        self.digits += 1;
        Ok(())
    }

    /// Refuses a chunk that crosses the limit before its data arrives.
    fn end_size(&mut self) -> Result<(), ChunkError> {
        self.body_left = self.body_left.checked_sub(self.size).ok_or(ChunkError::TooLarge)?;
        Ok(())
    }

    fn begin_data(&mut self) -> State {
        match self.size {
            0 => State::Trailers(FieldScan::default()),
            _ => State::Data,
        }
    }

    fn count_extension(&mut self) -> Result<(), ChunkError> {
        self.extension += 1;
        self.extensions += 1;
        if self.extension > EXTENSION_BYTES_MAX || self.extensions > EXTENSIONS_BYTES_MAX {
            return Err(ChunkError::ExtensionTooLong);
        }
        Ok(())
    }

    /// Trailer lines up to the blank one. Returns the bytes consumed.
    fn trailers(&mut self, input: &[u8]) -> Result<usize, ChunkError> {
        let State::Trailers(scan) = &mut self.state else {
            return Ok(0);
        };
        let room = self.trailer_bytes_max - self.trailer_bytes;
        let seen = &input[..input.len().min(room)];
        let end = scan.run(seen, self.trailer_count_max).map_err(ChunkError::Trailer)?;
        let used = end.unwrap_or(seen.len());
        self.trailer_bytes += used;
        if scan.count() > 0 {
            self.trailers.extend_from_slice(&seen[..used]);
        }
        if end.is_some() {
            self.check_trailers()?;
            self.state = State::Done;
        } else if input.len() > seen.len() {
            return Err(ChunkError::Trailer(HeadError::TooLarge));
        }
        Ok(used)
    }

    fn check_trailers(&mut self) -> Result<(), ChunkError> {
        let lines = std::mem::take(&mut self.trailers);
        let names =
            lines.split(|&b| b == b'\n').filter_map(|line| line.split(|&b| b == b':').next());
        for name in names {
            if TRAILERS_FORBIDDEN.iter().any(|f| name.eq_ignore_ascii_case(f.as_bytes())) {
                return Err(ChunkError::TrailerForbidden);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
