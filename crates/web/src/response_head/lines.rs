//! The lines of a response head: text for HTTP/1, a value for HTTP/2.

use http::header::{HeaderMap, HeaderName, HeaderValue, ETAG};
use http::{Response, StatusCode};

use crate::head::class::{is_token, trim};
use crate::head::Version;
use crate::status;

/// Headers that belong to one connection of HTTP/1 (RFC 9113 section 8.2.2). `te` is of requests.
const OF_HTTP1: [&str; 6] =
    ["connection", "keep-alive", "proxy-connection", "te", "transfer-encoding", "upgrade"];

/// Headers of most responses, for which the value has room from the beginning.
const HEADERS_MIN: usize = 12;

/// What a header of a value takes in memory beside its bytes: 104 bytes of its entry, its places in the map's table,
/// and the heads of two allocations.
const HEADER_BYTES: usize = 160;

/// True for a header name that is a token.
#[inline]
pub(super) fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().fold(true, |good, &byte| good & is_token(byte))
}

/// True for a value without control bytes. No branch inside the loop: the
/// compiler makes vector code of it.
#[inline]
pub(super) fn is_one_line(value: &[u8]) -> bool {
    !value.iter().fold(false, |bad, &b| bad | ((b < 0x20) & (b != b'\t')) | (b == 0x7f))
}

/// Where the lines of a head go.
#[derive(Debug)]
pub(super) struct Lines {
    /// The text so far. Of HTTP/2 it stays empty, for the body.
    pub text: Vec<u8>,
    /// What HTTP/2 takes instead of the text.
    pub value: Option<Box<Response<()>>>,
    /// Bytes of memory that the value takes.
    value_bytes: usize,
    /// The value does not take all lines: it has too many, or one with too long a name.
    pub is_overfull: bool,
}

impl Lines {
    /// Begins a head in `text`, which is cleared and keeps its capacity. The status has three digits.
    pub fn new(mut text: Vec<u8>, version: Version, status: u16) -> Self {
        text.clear();
        let value = match version {
            Version::Http2 => Some(Box::new(new_value(status))),
            Version::Http10 | Version::Http11 => {
                append_status_line(&mut text, version, status);
                None
            }
        };
        Self { text, value, value_bytes: 0, is_overfull: false }
    }

    /// Takes the end of a head back, so that a line can be added.
    pub fn reopen(mut text: Vec<u8>, value: Option<Box<Response<()>>>, len: usize) -> Self {
        text.truncate(text.len().saturating_sub(2));
        Self { text, value, value_bytes: len, is_overfull: false }
    }

    /// Adds a line, whose name and value are known to be good.
    #[inline]
    pub fn add(&mut self, name: &[u8], value: &[u8]) {
        match self.value {
            None => append_line(&mut self.text, name, value),
            Some(_) => self.add_to_value(name, value),
        }
    }

    fn add_to_value(&mut self, name: &[u8], value: &[u8]) {
        let Some(head) = &mut self.value else { return };
        // White space around a value makes a response malformed (RFC 9113 section 8.2.1).
        let (name, value) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(trim(value)));
        let (Ok(name), Ok(value)) = (name, value) else { return self.is_overfull = true };
        if OF_HTTP1.contains(&name.as_str()) {
            return;
        }
        self.value_bytes += name.as_str().len() + value.len() + HEADER_BYTES;
        self.is_overfull |= head.headers_mut().try_append(name, value).is_err();
    }

    /// Makes the strong `ETag` a weak one, whose value begins at `at` in the text.
    pub fn weaken_etag(&mut self, at: usize) {
        let Some(head) = &mut self.value else {
            self.text.splice(at..at, *b"W/");
            return;
        };
        let Some(etag) = head.headers_mut().get_mut(ETAG) else { return };
        if let Ok(weak) = HeaderValue::from_bytes(&[b"W/", etag.as_bytes()].concat()) {
            *etag = weak;
        }
    }

    /// Ends the head. Returns how many bytes of memory it takes.
    pub fn end(&mut self) -> usize {
        if self.value.is_some() {
            return self.value_bytes;
        }
        self.text.extend_from_slice(b"\r\n");
        self.text.len()
    }

    /// Adds the line `Content-Length: length`.
    pub fn add_length(&mut self, length: u64) {
        self.add(b"Content-Length", itoa::Buffer::new().format(length).as_bytes());
    }
}

fn new_value(status: u16) -> Response<()> {
    let mut value = Response::new(());
    *value.status_mut() = StatusCode::from_u16(status).unwrap_or_default();
    *value.headers_mut() = HeaderMap::with_capacity(HEADERS_MIN);
    value
}

/// Appends `HTTP/1.x CODE REASON` and CRLF; the code has three digits.
fn append_status_line(out: &mut Vec<u8>, version: Version, code: u16) {
    let digit = |value: u16| b'0' + (value % 10) as u8;
    let mut start = *b"HTTP/1.1 200 ";
    if version == Version::Http10 {
        start[7] = b'0';
    }
    start[9..12].copy_from_slice(&[digit(code / 100), digit(code / 10), digit(code)]);
    out.extend_from_slice(&start);
    out.extend_from_slice(status::reason(code).as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Appends `name: value` and CRLF.
#[inline]
fn append_line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    // One reservation, so that none of the copies has to grow the buffer.
    out.reserve(name.len() + value.len() + 4);
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_in_full() {
        for length in [0, 7, 10, 99, 100, 1 << 30, u64::MAX] {
            let mut lines = Lines::new(Vec::new(), Version::Http11, 200);
            lines.add_length(length);
            let text = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n");
            assert_eq!(lines.text, text.into_bytes());
        }
    }

    #[test]
    fn status_lines() {
        let line = |version, code| {
            String::from_utf8(Lines::new(b"old".to_vec(), version, code).text).unwrap()
        };
        assert_eq!(line(Version::Http11, 200), "HTTP/1.1 200 OK\r\n");
        assert_eq!(line(Version::Http10, 404), "HTTP/1.0 404 Not Found\r\n");
        assert_eq!(line(Version::Http11, 999), "HTTP/1.1 999 \r\n");
        assert_eq!(line(Version::Http2, 200), "");
    }

    #[test]
    fn a_value_has_the_lines_that_http_2_knows() {
        let mut lines = Lines::new(Vec::new(), Version::Http2, 201);
        for (name, value) in
            [("X-A", "1"), ("x-a", " 2\t"), ("Connection", "a"), ("TE", "gzip"), ("ETag", "\"e\"")]
        {
            lines.add(name.as_bytes(), value.as_bytes());
        }
        lines.weaken_etag(0);
        assert_eq!(lines.end(), 2 * 4 + 4 + 3 + 3 * HEADER_BYTES);
        let value = lines.value.unwrap();
        let headers: Vec<_> =
            value.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        assert_eq!(headers, [("x-a", &b"1"[..]), ("x-a", b"2"), ("etag", b"W/\"e\"")]);
        assert!((value.status() == 201) && !lines.is_overfull && lines.text.is_empty());
    }

    #[test]
    fn a_value_says_that_it_does_not_take_more() {
        let mut lines = Lines::new(Vec::new(), Version::Http2, 200);
        (0..40_000).for_each(|at| lines.add(format!("x-{at}").as_bytes(), b"1"));
        assert!(lines.is_overfull);
        let mut lines = Lines::new(Vec::new(), Version::Http2, 200);
        lines.add(&[b'x'; 70_000], b"1");
        assert!(lines.is_overfull);
    }
}
