//! The response head. For HTTP/1 it is written straight into the buffer that goes to the socket.
//! That runs under Ruby's lock once a response and allocates nothing: the buffer
//! is recycled, and numbers are formatted on the stack. For HTTP/2 the same lines become a value.
//!
//! The application's headers come first, as it gave them; those that only the
//! server knows (framing, connection, date) follow. A header that would break the
//! framing or split the response is an error that names it:
//!
//! * Names must be tokens. Values may hold no control byte but the tab; a line
//!   feed separates several lines of one header (Rack 2).
//! * `Content-Length` must be a number, agree with itself and with a body of
//!   known size, and not stand beside `Transfer-Encoding`. 1xx, 204 and 304 go
//!   out without either; HEAD keeps the length and sends no body.
//! * `Transfer-Encoding` from the application says that it encodes the body
//!   itself: the bytes pass untouched, and unless the last coding is chunked the
//!   connection ends the body.
//! * `Connection: close` is honoured, `keep-alive` is set by the server alone,
//!   other options (`upgrade`) pass through.
//! * Names that begin with `rack.` are for the server and are left out, as is `status`.
//!
//! With compression on, the head also decides whether the body is compressed, and says so: `Content-Encoding`,
//! `Vary`, and a weak `ETag`.
//!
//! HTTP/1.0 clients get an HTTP/1.0 status line, a body of unknown size ended by
//! the connection, and `Connection: keep-alive` where they asked for it.

mod compress;
mod error;
mod lines;

pub use compress::CompressionOffer;
pub use error::ResponseError;

use compress::Compressibility;
use http::Response;
use lines::Lines;

use crate::content_coding::ContentCoding;
use crate::date;
use crate::head::class::trim;
use crate::head::framing::parse_length;
use crate::head::Version;
use crate::server_timing::ServerTiming;
use crate::status;

/// The properties of the request that decide about its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseContext {
    /// The version the client speaks.
    pub version: Version,
    /// True for HEAD: the response has no body.
    pub is_head: bool,
    /// True if client and engine both allow another request after this one.
    pub keep_alive: bool,
    /// Set if answers are compressed where that is worthwhile.
    pub compression: Option<CompressionOffer>,
    /// Set if the client is to learn them.
    pub timing: Option<ServerTiming>,
}

/// What is known of the body when the head is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodySize {
    /// There is none.
    Empty,
    /// It has so many bytes.
    Known(u64),
    /// It is streamed, unless the application gave a `Content-Length`.
    Unknown,
    /// A partial hijack: after the head the application writes to the
    /// connection by itself; then the connection is closed.
    Hijack,
}

impl BodySize {
    fn bytes(self) -> Option<u64> {
        match self {
            Self::Empty => Some(0),
            Self::Known(bytes) => Some(bytes),
            Self::Unknown | Self::Hijack => None,
        }
    }
}

/// How the engine treats the body's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseFraming {
    /// HEAD, 1xx, 204 and 304: they are discarded.
    None,
    /// Exactly so many follow; a body that yields fewer or more is cut or closed.
    Length(u64),
    /// The engine encodes them in chunks.
    Chunked,
    /// They pass as they are: the application encoded them, or the close of the
    /// connection ends them.
    Raw,
}

/// A head that is ready to be sent.
#[derive(Debug)]
pub struct EncodedHead {
    /// The status.
    pub status: u16,
    /// The head with its blank line, in the buffer given to [`ResponseHead::new`]; empty for HTTP/2. A short body may
    /// be added.
    pub bytes: Vec<u8>,
    /// The head for HTTP/2.
    pub(crate) value: Option<Box<Response<()>>>,
    /// Bytes of memory that the head takes: those of the text, or of the value.
    pub(crate) len: usize,
    /// How the body's bytes are treated.
    pub framing: ResponseFraming,
    /// False if the connection is closed after this response.
    pub keep_alive: bool,
    /// The body must be encoded so. If its size was known, call [`EncodedHead::set_length`] then.
    pub coding: Option<ContentCoding>,
}

impl EncodedHead {
    /// Asks a client of HTTP/1.1 to send the body that it has announced (RFC 9110 section 10.1.1).
    pub(crate) fn continued() -> Self {
        let bytes = b"HTTP/1.1 100 Continue\r\n\r\n".to_vec();
        let (value, len, framing, coding) = (None, bytes.len(), ResponseFraming::None, None);
        Self { status: 100, bytes, value, len, framing, keep_alive: true, coding }
    }

    /// Adds the length of an encoded body.
    pub fn set_length(&mut self, len: u64) {
        let (text, value) = (std::mem::take(&mut self.bytes), self.value.take());
        let mut lines = Lines::reopen(text, value, self.len);
        lines.add_length(len);
        self.len = lines.end();
        (self.bytes, self.value) = (lines.text, lines.value);
        self.framing = ResponseFraming::Length(len);
    }
}

/// The application's `Transfer-Encoding`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TransferCoding {
    None,
    /// The last coding is chunked: the body ends itself.
    Chunked,
    /// The connection ends the body.
    Other,
}

/// Writes one head: [`new`](Self::new), [`header`](Self::header) for each
/// header, [`finish`](Self::finish).
#[derive(Debug)]
pub struct ResponseHead<'a> {
    lines: Lines,
    status: u16,
    request: &'a ResponseContext,
    length: Option<u64>,
    coding: TransferCoding,
    close: bool,
    /// The application named a connection option of its own, such as `upgrade`.
    options: bool,
    dated: bool,
    compressibility: Compressibility,
}

impl<'a> ResponseHead<'a> {
    /// Begins a head in `out`, which is cleared and keeps its capacity.
    pub fn new(
        out: Vec<u8>,
        status: u16,
        request: &'a ResponseContext,
    ) -> Result<Self, ResponseError> {
        if !(100..=999).contains(&status) {
            return Err(ResponseError::Status(status));
        }
        Ok(Self {
            lines: Lines::new(out, request.version, status),
            status,
            request,
            length: None,
            coding: TransferCoding::None,
            close: false,
            options: false,
            dated: false,
            compressibility: Compressibility::default(),
        })
    }

    /// Adds a header of the application, one line for each line of `value`.
    pub fn header(&mut self, name: &[u8], value: &[u8]) -> Result<(), ResponseError> {
        if !lines::is_name(name) {
            return Err(ResponseError::name(name));
        }
        if lines::is_one_line(value) {
            return self.line(name, value);
        }
        // Nothing is written before all lines are known to be good.
        let lines = || value.split(|&b| b == b'\n').filter(|line| !line.is_empty());
        if !lines().all(lines::is_one_line) {
            return Err(ResponseError::value(name, value));
        }
        lines().try_for_each(|line| self.line(name, line))
    }

    fn line(&mut self, name: &[u8], value: &[u8]) -> Result<(), ResponseError> {
        if self.request.compression.is_some() {
            self.compressibility.note(name, value, self.lines.text.len());
        }
        // Most names already differ in length.
        match name.len() {
            // Rack's old name for the status, which is no header.
            6 if name.eq_ignore_ascii_case(b"status") => return Ok(()),
            4 if name.eq_ignore_ascii_case(b"date") => self.dated = true,
            10 if name.eq_ignore_ascii_case(b"connection") => {
                self.connection(value);
                return Ok(());
            }
            14 if name.eq_ignore_ascii_case(b"content-length") => return self.length(value),
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                return self.transfer_encoding(name, value)
            }
            17 if name.eq_ignore_ascii_case(compress::SWITCH) => return Ok(()),
            5.. if name.starts_with(b"rack.") => return Ok(()),
            _ => {}
        }
        self.lines.add(name, value);
        Ok(())
    }

    fn connection(&mut self, value: &[u8]) {
        for option in value.split(|&b| b == b',').map(trim) {
            if option.eq_ignore_ascii_case(b"close") {
                self.close = true;
            } else if !option.is_empty() && !option.eq_ignore_ascii_case(b"keep-alive") {
                self.options = true;
                self.lines.add(b"Connection", option);
            }
        }
    }

    fn length(&mut self, value: &[u8]) -> Result<(), ResponseError> {
        let length = parse_length(trim(value)).ok_or_else(|| ResponseError::length(value))?;
        match self.length.replace(length) {
            Some(other) if other != length => Err(ResponseError::LengthTwice(other, length)),
            _ => Ok(()),
        }
    }

    fn transfer_encoding(&mut self, name: &[u8], value: &[u8]) -> Result<(), ResponseError> {
        let last = value.rsplit(|&b| b == b',').map(trim).find(|coding| !coding.is_empty());
        let Some(last) = last else {
            return Ok(());
        };
        // `identity` is the name that RFC 2616 gave to no coding at all.
        if value.len() == last.len() && last.eq_ignore_ascii_case(b"identity") {
            return Ok(());
        }
        if self.request.version == Version::Http2 {
            return Err(ResponseError::CodingInHttp2);
        }
        let chunked = last.eq_ignore_ascii_case(b"chunked");
        self.coding = if chunked { TransferCoding::Chunked } else { TransferCoding::Other };
        if !self.is_bodyless() {
            self.lines.add(name, value);
        }
        Ok(())
    }

    fn is_bodyless(&self) -> bool {
        self.request.is_head || status::is_bodyless(self.status)
    }

    /// Adds the server's own headers and the blank line.
    pub fn finish(mut self, body: BodySize) -> Result<EncodedHead, ResponseError> {
        if self.coding != TransferCoding::None && self.length.is_some() {
            return Err(ResponseError::LengthWithCoding);
        }
        self.check_length(body)?;
        let coding = self.compress(body);
        let framing = self.framing(body, coding.is_some());
        let until_close = body == BodySize::Hijack
            || (framing == ResponseFraming::Raw && self.coding != TransferCoding::Chunked)
            || self.coding == TransferCoding::Chunked && self.request.version == Version::Http10;
        let keep_alive =
            self.request.keep_alive && !self.close && !until_close && self.status != 101;
        let interim = matches!(self.status, 100 | 102..=199);
        if !self.dated && !interim {
            self.lines.add(b"Date", &date::now());
        }
        if let Some(timing) = self.request.timing.filter(|_| !interim) {
            timing.add_to(|value| self.lines.add(b"Server-Timing", value));
        }
        // The length of an encoded body is not known yet.
        if coding.is_none() || framing == ResponseFraming::Chunked {
            self.add_length(body, framing);
        }
        if !interim {
            self.add_connection(keep_alive);
        }
        let Self { mut lines, status, .. } = self;
        if lines.is_overfull {
            return Err(ResponseError::TooManyForHttp2);
        }
        let (len, coding) = (lines.end(), coding.filter(|_| framing != ResponseFraming::None));
        let Lines { text: bytes, value, .. } = lines;
        Ok(EncodedHead { status, bytes, value, len, framing, keep_alive, coding })
    }

    /// The application's `Content-Length` must be that of a body of known size, unless the body is not sent.
    fn check_length(&self, body: BodySize) -> Result<(), ResponseError> {
        match (self.length, body.bytes()) {
            (Some(length), Some(bytes)) if length != bytes && !self.is_bodyless() => {
                Err(ResponseError::LengthOfBody { length, bytes })
            }
            _ => Ok(()),
        }
    }

    /// How the body's bytes are treated: the only place that decides it. `encoded` says that the engine
    /// compresses them.
    fn framing(&self, body: BodySize, encoded: bool) -> ResponseFraming {
        let known = match body {
            BodySize::Hijack => return ResponseFraming::Raw,
            _ if self.is_bodyless() => return ResponseFraming::None,
            _ if self.coding != TransferCoding::None => return ResponseFraming::Raw,
            // It is encoded as a whole, and its length is set then.
            BodySize::Known(_) if encoded => Some(0),
            _ if encoded => None,
            _ => self.length.or(body.bytes()),
        };
        match known {
            Some(bytes) => ResponseFraming::Length(bytes),
            None if self.request.version == Version::Http11 => ResponseFraming::Chunked,
            // The end of the connection ends it, or that of the stream.
            None => ResponseFraming::Raw,
        }
    }

    /// Adds the header that says where the body ends, if there is one.
    fn add_length(&mut self, body: BodySize, framing: ResponseFraming) {
        let length = match framing {
            ResponseFraming::Length(bytes) => Some(bytes),
            ResponseFraming::Chunked => {
                self.lines.add(b"Transfer-Encoding", b"chunked");
                None
            }
            ResponseFraming::None | ResponseFraming::Raw if status::is_bodyless(self.status) => {
                None
            }
            ResponseFraming::Raw => self.length,
            // HEAD: the length that GET would have. An empty body proves
            // nothing: middleware (Rack::Head) may have removed it.
            ResponseFraming::None => self.length.or(match body {
                BodySize::Known(bytes) if bytes > 0 => Some(bytes),
                _ => None,
            }),
        };
        if let Some(length) = length {
            self.lines.add_length(length);
        }
    }

    fn add_connection(&mut self, keep_alive: bool) {
        let option: &[u8] = match self.request.version {
            Version::Http10 if keep_alive => b"keep-alive",
            Version::Http11 if keep_alive => return,
            Version::Http2 => return,
            // The connection stays open after a switch of protocols.
            _ if self.options && self.status == 101 => return,
            _ => b"close",
        };
        self.lines.add(b"Connection", option);
    }
}

#[cfg(test)]
mod tests;
