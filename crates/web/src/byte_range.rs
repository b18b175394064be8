//! The `Range` of a request (RFC 9110 section 14).

use crate::head::class::trim;
use crate::head::framing::parse_length;

/// What a `Range` header asks of a representation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteRange {
    /// All of it: the header is malformed, of an unknown unit, or names several ranges, which a
    /// server may ignore.
    Whole,
    /// The bytes from `start` to before `end`; at least one.
    Part {
        /// The first byte.
        start: u64,
        /// One past the last byte.
        end: u64,
    },
    /// Bytes behind its end.
    Unsatisfiable,
}

/// Reads the header's value for a representation of `len` bytes. One of no bytes has no ranges.
pub fn parse(value: &[u8], len: u64) -> ByteRange {
    range_of(value, len).unwrap_or(ByteRange::Whole)
}

fn range_of(value: &[u8], len: u64) -> Option<ByteRange> {
    let (unit, range) = value.split_at_checked(6)?;
    if len == 0 || !unit.eq_ignore_ascii_case(b"bytes=") {
        return None;
    }
    let range = trim(range);
    let dash = memchr::memchr(b'-', range)?;
    let (first, last) = (trim(&range[..dash]), trim(&range[dash + 1..]));
    if first.is_empty() {
        let suffix = parse_length(last)?.min(len);
        let part = ByteRange::Part { start: len - suffix, end: len };
        return Some(if suffix == 0 { ByteRange::Unsatisfiable } else { part });
    }
    let first = parse_length(first)?;
    let last = if last.is_empty() { u64::MAX } else { parse_length(last)? };
    if first > last {
        return None;
    }
    let part = ByteRange::Part { start: first, end: last.saturating_add(1).min(len) };
    Some(if first >= len { ByteRange::Unsatisfiable } else { part })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_range_of_bytes_is_read() {
        use ByteRange::{Unsatisfiable, Whole};
        let part = |start, end| ByteRange::Part { start, end };
        for (value, range) in [
            ("bytes=0-0", part(0, 1)),
            ("bytes=0-99", part(0, 100)),
            ("bytes=10-19", part(10, 20)),
            ("bytes=10-", part(10, 100)),
            ("bytes=99-200", part(99, 100)),
            ("bytes=-1", part(99, 100)),
            ("bytes=-1000", part(0, 100)),
            ("BYTES= 1 - 2 ", part(1, 3)),
            ("bytes=0-18446744073709551615", part(0, 100)),
            ("bytes=100-", Unsatisfiable),
            ("bytes=100-200", Unsatisfiable),
            ("bytes=-0", Unsatisfiable),
            ("bytes=2-1", Whole),
            ("bytes=", Whole),
            ("bytes=-", Whole),
            ("bytes=1", Whole),
            ("bytes=a-b", Whole),
            ("bytes=1-2-3", Whole),
            ("bytes=0-1,3-4", Whole),
            ("bytes=0-1,", Whole),
            ("bytes=--1", Whole),
            ("bytes=+1-2", Whole),
            ("bytes=0x1-2", Whole),
            ("bytes 0-1", Whole),
            ("lines=0-1", Whole),
            ("bytes=18446744073709551616-", Whole),
            ("b", Whole),
            ("", Whole),
        ] {
            assert_eq!(parse(value.as_bytes(), 100), range, "{value}");
        }
        assert_eq!(parse(b"bytes=0-", 0), Whole);
    }
}
