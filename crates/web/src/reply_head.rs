//! The head of an answer, written straight into the buffer that goes to the
//! socket. Runs under Ruby's lock once a reply, so it allocates nothing: the
//! buffer is recycled, numbers and the date are formatted by hand.
//!
//! The application's headers come first, as it gave them; what only the server
//! can know (framing, connection, date) follows. A header that would break the
//! framing or split the response is an error that names it, never a guess:
//!
//! * Names must be tokens. Values may hold no control byte but the tab; a line
//!   feed separates several lines of one header (Rack 2).
//! * `Content-Length` must be a number, agree with itself and with a body of
//!   known size, and not stand beside `Transfer-Encoding`. 1xx, 204 and 304 go
//!   out without either; HEAD keeps the length and sends no body.
//! * `Transfer-Encoding` from the application says that it encodes the body
//!   itself: the bytes pass untouched, and unless the last coding is chunked the
//!   connection ends the body.
//! * `Connection: close` is honoured, `keep-alive` is the server's own to say,
//!   other options (`upgrade`) pass through.
//! * Names that begin with `rack.` are for the server and are left out.
//!
//! HTTP/1.0 clients get an HTTP/1.0 status line, a body of unknown size ended by
//! the connection, and `Connection: keep-alive` where they asked for it.

mod error;
mod text;

pub use error::ReplyError;

use crate::date;
use crate::head::class::trim;
use crate::head::framing::parse_length;
use crate::head::Version;
use crate::status;

/// What an answer must know of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestFacts {
    /// The version the client speaks.
    pub version: Version,
    /// True for HEAD: the answer has no body.
    pub is_head: bool,
    /// True if client and engine both allow another request after this one.
    pub keep_alive: bool,
}

/// What is known of the answer's body when the head is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodySize {
    /// There is none.
    Empty,
    /// It has so many bytes.
    Known(u64),
    /// It is streamed, unless the application gave a `Content-Length`.
    Unknown,
    /// A partial hijack: after the head the application writes to the
    /// connection what it likes, and the connection is closed behind it.
    Hijack,
}

/// How the engine treats the body's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyFraming {
    /// HEAD, 1xx, 204 and 304: they are discarded.
    None,
    /// Exactly so many follow; a body that yields fewer or more is cut or closed.
    Length(u64),
    /// The engine encodes them in chunks.
    Chunked,
    /// They pass as they are: encoded by the application, or until the close.
    Raw,
}

/// A head that is ready to be sent.
#[derive(Debug)]
pub struct Finished {
    /// The head with its blank line, in the buffer given to [`ReplyHead::new`].
    pub bytes: Vec<u8>,
    /// How the body's bytes are treated.
    pub framing: ReplyFraming,
    /// False if the connection is closed after this answer.
    pub keep_alive: bool,
}

/// What the application's `Transfer-Encoding` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coding {
    None,
    /// The last coding is chunked: the body ends itself.
    Chunked,
    /// The connection ends the body.
    Other,
}

/// Writes one head: [`new`](Self::new), [`header`](Self::header) for each
/// header, [`finish`](Self::finish).
#[derive(Debug)]
pub struct ReplyHead<'a> {
    out: Vec<u8>,
    status: u16,
    request: &'a RequestFacts,
    length: Option<u64>,
    coding: Coding,
    close: bool,
    /// The application named a connection option of its own, as `upgrade`.
    options: bool,
    dated: bool,
}

impl<'a> ReplyHead<'a> {
    /// Begins a head in `out`, which is cleared and keeps its capacity.
    pub fn new(
        mut out: Vec<u8>,
        status: u16,
        request: &'a RequestFacts,
    ) -> Result<Self, ReplyError> {
        if !(100..=999).contains(&status) {
            return Err(ReplyError::Status(status));
        }
        out.clear();
        text::append_status_line(&mut out, request.version, status);
        Ok(Self {
            out,
            status,
            request,
            length: None,
            coding: Coding::None,
            close: false,
            options: false,
            dated: false,
        })
    }

    /// Adds a header of the application, one line for each line of `value`.
    pub fn header(&mut self, name: &[u8], value: &[u8]) -> Result<(), ReplyError> {
        if !text::is_name(name) {
            return Err(ReplyError::name(name));
        }
        if text::is_one_line(value) {
            return self.line(name, value);
        }
        // Nothing is written before all lines are known to be good.
        let lines = || value.split(|&b| b == b'\n').filter(|line| !line.is_empty());
        if !lines().all(text::is_one_line) {
            return Err(ReplyError::value(name, value));
        }
        lines().try_for_each(|line| self.line(name, line))
    }

    fn line(&mut self, name: &[u8], value: &[u8]) -> Result<(), ReplyError> {
        // Lengths tell almost all names apart before a byte is compared.
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"date") => self.dated = true,
            10 if name.eq_ignore_ascii_case(b"connection") => {
                self.connection(value);
                return Ok(());
            }
            14 if name.eq_ignore_ascii_case(b"content-length") => return self.length(value),
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                return self.transfer_encoding(name, value)
            }
            5.. if name.starts_with(b"rack.") => return Ok(()),
            _ => {}
        }
        text::append_line(&mut self.out, name, value);
        Ok(())
    }

    fn connection(&mut self, value: &[u8]) {
        for option in value.split(|&b| b == b',').map(trim) {
            if option.eq_ignore_ascii_case(b"close") {
                self.close = true;
            } else if !option.is_empty() && !option.eq_ignore_ascii_case(b"keep-alive") {
                self.options = true;
                text::append_line(&mut self.out, b"Connection", option);
            }
        }
    }

    fn length(&mut self, value: &[u8]) -> Result<(), ReplyError> {
        let length = parse_length(trim(value)).ok_or_else(|| ReplyError::length(value))?;
        match self.length.replace(length) {
            Some(other) if other != length => Err(ReplyError::LengthTwice(other, length)),
            _ => Ok(()),
        }
    }

    fn transfer_encoding(&mut self, name: &[u8], value: &[u8]) -> Result<(), ReplyError> {
        let last = value.rsplit(|&b| b == b',').map(trim).find(|coding| !coding.is_empty());
        let Some(last) = last else {
            return Ok(());
        };
        // `identity` is the name that RFC 2616 gave to no coding at all.
        if value.len() == last.len() && last.eq_ignore_ascii_case(b"identity") {
            return Ok(());
        }
        let chunked = last.eq_ignore_ascii_case(b"chunked");
        self.coding = if chunked { Coding::Chunked } else { Coding::Other };
        if !self.is_bodyless() {
            text::append_line(&mut self.out, name, value);
        }
        Ok(())
    }

    fn is_bodyless(&self) -> bool {
        self.request.is_head || status::is_bodyless(self.status)
    }

    /// Adds what the server has to say and the blank line.
    pub fn finish(mut self, body: BodySize) -> Result<Finished, ReplyError> {
        if self.coding != Coding::None && self.length.is_some() {
            return Err(ReplyError::LengthWithCoding);
        }
        let framing = self.framing(body)?;
        let until_close = body == BodySize::Hijack
            || (framing == ReplyFraming::Raw && self.coding != Coding::Chunked)
            || self.coding == Coding::Chunked && self.request.version == Version::Http10;
        let keep_alive =
            self.request.keep_alive && !self.close && !until_close && self.status != 101;
        let interim = matches!(self.status, 100 | 102..=199);
        if !self.dated && !interim {
            date::append_date_line(&mut self.out);
        }
        self.append_length(body, framing);
        if !interim {
            self.append_connection(keep_alive);
        }
        self.out.extend_from_slice(b"\r\n");
        Ok(Finished { bytes: self.out, framing, keep_alive })
    }

    fn framing(&self, body: BodySize) -> Result<ReplyFraming, ReplyError> {
        if body == BodySize::Hijack {
            return Ok(ReplyFraming::Raw);
        }
        if self.is_bodyless() {
            return Ok(ReplyFraming::None);
        }
        if self.coding != Coding::None {
            return Ok(ReplyFraming::Raw);
        }
        let known = match body {
            BodySize::Empty => Some(0),
            BodySize::Known(bytes) => Some(bytes),
            BodySize::Unknown | BodySize::Hijack => None,
        };
        match (self.length, known) {
            (Some(length), Some(bytes)) if length != bytes => {
                Err(ReplyError::LengthOfBody { length, bytes })
            }
            (Some(bytes), _) | (None, Some(bytes)) => Ok(ReplyFraming::Length(bytes)),
            (None, None) if self.request.version == Version::Http10 => Ok(ReplyFraming::Raw),
            (None, None) => Ok(ReplyFraming::Chunked),
        }
    }

    /// The line that tells where the body ends, if there is one to write.
    fn append_length(&mut self, body: BodySize, framing: ReplyFraming) {
        let length = match framing {
            ReplyFraming::Length(bytes) => Some(bytes),
            ReplyFraming::Chunked => {
                self.out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
                None
            }
            ReplyFraming::None | ReplyFraming::Raw if status::is_bodyless(self.status) => None,
            ReplyFraming::Raw => self.length,
            // HEAD: the length that GET would have. A body of no bytes says
            // nothing: middleware (Rack::Head) may have taken it away.
            ReplyFraming::None => self.length.or(match body {
                BodySize::Known(bytes) if bytes > 0 => Some(bytes),
                _ => None,
            }),
        };
        if let Some(length) = length {
            text::append_length_line(&mut self.out, length);
        }
    }

    fn append_connection(&mut self, keep_alive: bool) {
        let line: &[u8] = match self.request.version {
            Version::Http10 if keep_alive => b"Connection: keep-alive\r\n",
            Version::Http11 if keep_alive => b"",
            // A switch of protocols is no closing, whatever follows on the wire.
            _ if self.options && self.status == 101 => b"",
            _ => b"Connection: close\r\n",
        };
        self.out.extend_from_slice(line);
    }
}

#[cfg(test)]
mod tests;
