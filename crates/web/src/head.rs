//! One request head, parsed strictly out of a read buffer. No IO, no
//! allocation once the buffers of a [`RequestHead`] have grown.
//!
//! A head in one piece takes one pass of httparse, whose leniencies (a lone LF
//! as line end) are checked after it. A head in pieces, or one that is refused,
//! goes through a scan of our own that sees each byte once and remembers in the
//! `RequestHead` where it stood: a client that sends byte by byte costs no more
//! than one that sends all at once, and a fault or a crossed limit is answered
//! as soon as its byte is there.
//!
//! ```
//! use chaton_web::{head::{parse, Parsed, RequestHead}, limits::Limits};
//!
//! let (limits, mut head) = (Limits::default(), RequestHead::default());
//! let mut buf = b"GET /a?b=c HTTP/1.1\r\nHost: ex".to_vec();
//! assert_eq!(parse(&buf, &limits, &mut head), Ok(Parsed::Partial));
//! buf.extend_from_slice(b"ample\r\n\r\n");
//! assert_eq!(parse(&buf, &limits, &mut head), Ok(Parsed::Complete(buf.len())));
//! assert_eq!(head.get(head.path), b"/a");
//! assert_eq!(head.header("host"), Some(&b"example"[..]));
//! ```
//!
//! Decisions where RFC 9112 leaves room:
//! * The target may hold raw bytes above 0x7f if they are UTF-8, and incomplete
//!   percent escapes, as Puma allows. `#`, `"`, `<` and `>` are refused; browsers
//!   never send them.
//! * HTTP/1.2 and above is answered 505, not read as 1.1: nobody speaks it.
//! * `CONNECT` is answered 501, also a transfer coding before chunked. A
//!   `Transfer-Encoding` that does not end in one chunked is 400 (section 6.3).
//! * Two `Content-Length` lines are refused even if they agree.
//! * `Host` must be there once and not be empty: no http URI lacks a host.
//! * An unknown `Expect` is for the connection to judge, which answers 417.
//!
//! Header names with `_` are legal and kept: `Foo_Bar` and `Foo-Bar` are two
//! headers here but one key in a Rack env. See [`RequestHead::is_shadowed`].

pub(crate) mod class;
mod error;
pub(crate) mod fields;
pub(crate) mod framing;
mod quick;
mod scan;

pub use error::HeadError;

use crate::limits::Limits;
use crate::target;
use scan::HeadScan;

/// The HTTP version of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    #[default]
    Http11,
}

/// A range of [`RequestHead::bytes`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// The first byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl Span {
    /// True if the span holds no byte.
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// The span `inner`, given relative to this one's start, in the head's terms.
    fn at(self, inner: Span) -> Span {
        Span { start: self.start + inner.start, end: self.start + inner.end }
    }
}

/// Where the body of a request ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BodyFraming {
    /// There is none: neither length nor coding was given.
    #[default]
    None,
    /// After so many bytes; 0 if the client said so.
    Length(u64),
    /// Where its chunks say: read it with [`crate::chunked::ChunkedDecoder`].
    Chunked,
}

/// One request head and what was understood of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestHead {
    /// The head as received, from the method to the blank line.
    pub bytes: Vec<u8>,
    /// The method, a token in the client's case.
    pub method: Span,
    /// The whole request target.
    pub target: Span,
    /// The target's path: never empty; `*` for `OPTIONS *`.
    pub path: Span,
    /// What follows the target's first `?`; empty when there is none.
    pub query: Span,
    /// True if the target has a `?`.
    pub has_query: bool,
    /// The version.
    pub version: Version,
    /// Names and values in order; values without the white space around them.
    pub headers: Vec<(Span, Span)>,
    /// Where the body ends.
    pub framing: BodyFraming,
    /// True if the client wants to use the connection again.
    pub keep_alive: bool,
    /// True if the client waits for 100 Continue before it sends a body.
    pub expect_continue: bool,
    /// Host and port of an absolute target; they replace `Host`.
    pub authority: Option<Span>,
    scan: HeadScan,
}

impl RequestHead {
    /// The bytes of a span of this head.
    #[inline]
    pub fn get(&self, s: Span) -> &[u8] {
        &self.bytes[s.start as usize..s.end as usize]
    }

    /// The value of the first header of that name, given in lower case.
    pub fn header(&self, lower_name: &str) -> Option<&[u8]> {
        let is = |name: Span| self.get(name).eq_ignore_ascii_case(lower_name.as_bytes());
        self.headers.iter().find(|(name, _)| is(*name)).map(|&(_, value)| self.get(value))
    }

    /// True if a header with an underscore in its name must not reach a Rack
    /// env: it would pass for another header that a proxy sets or checks. That
    /// is so when the same name with `-` is there too, and always for the names
    /// that frame the body (Puma has the same rule, GHSA-9hf4-67fc-4vf4).
    /// Ask it only of names that hold a `_`.
    pub fn is_shadowed(&self, name: Span) -> bool {
        let same = |dashed: &[u8]| {
            let name = self.get(name);
            name.len() == dashed.len()
                && name.iter().zip(dashed).all(|(&a, b)| {
                    let a = if a == b'_' { b'-' } else { a };
                    a.eq_ignore_ascii_case(b)
                })
        };
        let dashed = |other: &[u8]| !other.contains(&b'_') && same(other);
        same(b"content-length")
            || same(b"transfer-encoding")
            || self.headers.iter().any(|&(other, _)| dashed(self.get(other)))
    }

    /// Forgets the request, and how far a partial one was read; keeps the
    /// capacity. Call it before the next head when the last one was refused or
    /// given up; after a complete one it is only tidy.
    pub fn clear(&mut self) {
        let (mut bytes, mut headers) =
            (std::mem::take(&mut self.bytes), std::mem::take(&mut self.headers));
        bytes.clear();
        headers.clear();
        *self = Self { bytes, headers, ..Self::default() };
    }
}

/// What [`parse`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// Not the whole head: call again with the same bytes and more behind them.
    Partial,
    /// The head took this many bytes of the buffer, with empty lines before it.
    Complete(usize),
}

/// Parses the head at the beginning of `buf`.
///
/// After `Partial`, call again with the same `out` and a buffer that begins with
/// the same bytes; only the new ones are looked at (the buffer may have moved).
/// After `Complete`, `out` is filled and ready to be parsed into again. After an
/// error the connection is lost; `out` holds nothing of use until `clear`.
pub fn parse(buf: &[u8], limits: &Limits, out: &mut RequestHead) -> Result<Parsed, HeadError> {
    if out.scan.is_fresh() {
        if let Some(bytes) = quick::fill(buf, limits, out) {
            return understand(limits, out).map(|()| Parsed::Complete(bytes));
        }
    }
    let Some(bytes) = out.scan.run(buf, limits)? else {
        return Ok(Parsed::Partial);
    };
    let start = out.scan.head_start();
    out.scan = HeadScan::default();
    quick::fill(&buf[start..bytes], limits, out).ok_or(HeadError::Malformed)?;
    understand(limits, out).map(|()| Parsed::Complete(bytes))
}

/// Sets what follows from the request line and the headers.
fn understand(limits: &Limits, out: &mut RequestHead) -> Result<(), HeadError> {
    let parts = target::split(out.get(out.method), out.get(out.target))?;
    out.path = out.target.at(parts.path);
    out.has_query = parts.query.is_some();
    out.query = out.target.at(parts.query.unwrap_or_default());
    out.authority = parts.authority.map(|authority| out.target.at(authority));
    framing::judge(out, limits)
}

#[cfg(test)]
mod tests;
