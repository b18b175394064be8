//! Parses one request head strictly out of a read buffer. It does no IO, and
//! allocates nothing once the buffers of a [`RequestHead`] have grown.
//!
//! A head in one part takes one pass of httparse, whose leniencies (a lone LF as line end) are
//! checked after it. A head in pieces, or one that is refused, goes through a scan of our own that
//! sees each byte once and remembers in the `RequestHead` where it stood: a client that sends byte
//! by byte costs no more than one that sends all at once, and a fault or a crossed limit is
//! answered as soon as its byte is there.
//!
//! ```
//! use chaton_web::{head::{parse, Parsed, RequestHead}, limits::Limits};
//!
//! let (limits, mut head) = (Limits::for_tests(), RequestHead::default());
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
//! * HTTP/1.2 to 1.9 is read as 1.1 (RFC 9110 2.5); another major version is answered 505.
//! * `CONNECT` is answered 501, also a transfer coding before chunked. A
//!   `Transfer-Encoding` that does not end in one chunked is 400 (section 6.3).
//! * `Content-Length` lines that are all the same count as one; a list is refused.
//! * Empty members before chunked are ignored in `Transfer-Encoding`; one behind it is refused.
//! * HTTP/1.1 needs one `Host`. It may be empty (section 3.2); health checkers send that.
//! * The connection answers an unknown `Expect` with 417.
//!
//! Header names with `_` are legal and kept: `Foo_Bar` and `Foo-Bar` are two
//! headers here but one key in a Rack env. See [`RequestHead::is_shadowed`].

pub(crate) mod class;
mod error;
pub(crate) mod excess;
pub(crate) mod fields;
pub(crate) mod framing;
mod quick;
mod request_head;
mod scan;
mod target;

pub use error::HeadError;
pub use request_head::{BodyFraming, RequestHead, Span, Version};
pub use target::{split_host, RequestTarget};

use crate::limits::Limits;
use class::is_target;
use scan::{HeadScan, METHOD_BYTES_MAX};

/// The result of [`parse`].
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
            return accept(limits, out).map(|()| Parsed::Complete(bytes));
        }
    }
    let Some(bytes) = out.scan.run(buf, limits)? else {
        return Ok(Parsed::Partial);
    };
    let (start, minor) = (out.scan.head_start(), out.scan.newer_minor());
    out.scan = HeadScan::default();
    let filled = match minor {
        None => quick::fill(&buf[start..bytes], limits, out),
        Some(at) => {
            let mut head = buf[start..bytes].to_vec();
            head[at - start] = b'1';
            quick::fill(&head, limits, out)
        }
    };
    filled.ok_or(HeadError::Malformed)?;
    accept(limits, out).map(|()| Parsed::Complete(bytes))
}

/// Accepts a head that did not arrive as text, or refuses it: [`parse`] checks this while it reads.
pub(crate) fn accept_filled(limits: &Limits, out: &mut RequestHead) -> Result<(), HeadError> {
    let (method, target) = (out.get(out.method), out.get(out.target));
    let fault = match () {
        () if method.len() > METHOD_BYTES_MAX => HeadError::MethodTooLong,
        () if target.len() > limits.uri_bytes_max => HeadError::UriTooLong,
        () if !target.iter().all(|byte| is_target(*byte)) => HeadError::Target,
        () if out.headers.len() > limits.header_count_max => HeadError::TooManyHeaders,
        () if out.bytes.len() > limits.header_bytes_max => HeadError::TooLarge,
        () => return accept(limits, out),
    };
    Err(fault)
}

/// Sets the fields that follow from the request line and the headers, or refuses the head.
fn accept(limits: &Limits, out: &mut RequestHead) -> Result<(), HeadError> {
    let parts = target::split(out.get(out.method), out.get(out.target))?;
    out.path = out.target.at(parts.path);
    out.has_query = parts.query.is_some();
    out.query = out.target.at(parts.query.unwrap_or_default());
    out.authority = parts.authority.map(|authority| out.target.at(authority));
    framing::check(out, limits)
}

#[cfg(test)]
mod tests;
