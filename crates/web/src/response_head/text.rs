//! The lines of a response head.

use crate::head::class::is_token;
use crate::head::Version;
use crate::status;

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

/// Appends `HTTP/1.x CODE REASON` and CRLF; the code has three digits.
pub(super) fn append_status_line(out: &mut Vec<u8>, version: Version, code: u16) {
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
pub(super) fn append_line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    // One reservation, so that none of the copies has to grow the buffer.
    out.reserve(name.len() + value.len() + 4);
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Appends the line `Content-Length: length`.
pub(super) fn append_length_line(out: &mut Vec<u8>, length: u64) {
    append_line(out, b"Content-Length", itoa::Buffer::new().format(length).as_bytes());
}

/// The status of the response that begins with `bytes`, 0 when it has none.
pub(crate) fn status_of(bytes: &[u8]) -> u16 {
    let Some([a, b, c]) = bytes.get(9..12) else { return 0 };
    [a, b, c].iter().fold(0, |code, digit| code * 10 + u16::from(digit.wrapping_sub(b'0') % 10))
}

/// Length of the head that `bytes` begin with, its blank line included.
pub(crate) fn head_len(bytes: &[u8]) -> usize {
    memchr::memmem::find(bytes, b"\r\n\r\n").map_or(bytes.len(), |at| at + 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_in_full() {
        for length in [0, 7, 10, 99, 100, 1 << 30, u64::MAX] {
            let mut out = Vec::new();
            append_length_line(&mut out, length);
            assert_eq!(out, format!("Content-Length: {length}\r\n").into_bytes());
        }
    }

    #[test]
    fn status_lines() {
        let line = |version, code| {
            let mut out = Vec::new();
            append_status_line(&mut out, version, code);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(line(Version::Http11, 200), "HTTP/1.1 200 OK\r\n");
        assert_eq!(line(Version::Http10, 404), "HTTP/1.0 404 Not Found\r\n");
        assert_eq!(line(Version::Http11, 999), "HTTP/1.1 999 \r\n");
    }
    #[test]
    fn garbage_has_no_status() {
        assert_eq!(status_of(b""), 0);
        assert_eq!(status_of(b"HTTP/1.1 2"), 0);
    }
}
