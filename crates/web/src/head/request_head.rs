//! A parsed request head.

use super::scan::HeadScan;

/// The HTTP version of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    #[default]
    Http11,
    /// HTTP/2
    Http2,
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
    pub(super) fn at(self, inner: Span) -> Span {
        Span { start: self.start + inner.start, end: self.start + inner.end }
    }
}

/// Where the body of a request ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BodyFraming {
    /// There is none: neither length nor coding was given.
    #[default]
    None,
    /// After so many bytes; 0 only if the client sent that length.
    Length(u64),
    /// After its last chunk: read it with [`crate::chunked::ChunkedDecoder`].
    Chunked,
}

/// One request head and its meaning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestHead {
    /// The head from the method to the blank line: as received, or for HTTP/2 as it would be in HTTP/1.1.
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
    pub(super) scan: HeadScan,
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

    /// True for HEAD, whose response has no body.
    pub fn is_head(&self) -> bool {
        self.get(self.method) == b"HEAD"
    }

    /// True if a header with an underscore in its name must not reach a Rack env: it would pass for
    /// another header that a proxy sets or checks. That is so when the same name with `-` is there
    /// too, and always for the names that frame the body (Puma has the same rule,
    /// GHSA-9hf4-67fc-4vf4). Call it only for names that contain `_`.
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

    /// Adds a piece of a head that did not arrive as text, and what follows it in HTTP/1.1.
    pub(crate) fn push(&mut self, piece: &[u8], end: &[u8]) -> Span {
        let start = self.bytes.len() as u32;
        self.bytes.extend_from_slice(piece);
        let span = Span { start, end: self.bytes.len() as u32 };
        self.bytes.extend_from_slice(end);
        span
    }

    /// Forgets the request and the position in a partial one; keeps the capacity. It must be called
    /// before the next head if the last one was refused or given up.
    pub fn clear(&mut self) {
        let (mut bytes, mut headers) =
            (std::mem::take(&mut self.bytes), std::mem::take(&mut self.headers));
        bytes.clear();
        headers.clear();
        *self = Self { bytes, headers, ..Self::default() };
    }
}
