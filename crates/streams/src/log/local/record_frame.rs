//! The format of one record in a segment, numbers little-endian:
//!
//! | at | what |
//! |---|---|
//! | 0 | u32: bytes from 8 to the end of the record |
//! | 4 | u32: CRC-32C of them |
//! | 8 | i64: offset |
//! | 16 | i64: timestamp in ms |
//! | 24 | u32: bytes of the key; `u32::MAX`: none |
//! | 28 | u32: bytes of the value; `u32::MAX`: none |
//! | 32 | u32: number of headers |
//! | 36 | key, value; of each header u32, name, u32 (`u32::MAX`: none), value |
//!
//! Each record carries its checksum and offset, so that a damaged record loses
//! only itself and the next one can be found.

use crate::record::{NewRecord, Span};

/// Bytes before the key.
pub(super) const HEADER: usize = 36;
/// Bytes before those that the checksum covers.
const PREFIX: usize = 8;
/// The largest record; a larger length is damage.
pub(super) const BYTES_MAX: usize = 256 << 20;

/// A complete record and the positions of its parts in the parsed buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordFrame {
    pub offset: i64,
    pub timestamp_ms: i64,
    pub key: Span,
    pub value: Span,
    /// The first byte of the headers.
    pub headers_at: u32,
    pub headers: u32,
    /// Bytes of the whole record.
    pub len: usize,
}

#[derive(Debug)]
pub(super) enum ParsedFrame {
    Complete(RecordFrame),
    /// At least this many bytes are needed.
    Incomplete(usize),
    Invalid,
}

/// The encoded size of a record.
pub(super) fn size(record: &NewRecord<'_>) -> usize {
    let bytes = |part: Option<&[u8]>| part.map_or(0, <[u8]>::len);
    let headers = record.headers.iter().map(|(name, value)| 8 + name.len() + bytes(*value));
    HEADER + bytes(record.key) + bytes(record.value) + headers.sum::<usize>()
}

/// Appends a record of this [`size`]; [`seal`] sets its offset later.
pub(super) fn encode(out: &mut Vec<u8>, record: &NewRecord<'_>, size: usize, now_ms: i64) {
    let number = |part: Option<&[u8]>| part.map_or(u32::MAX, |bytes| bytes.len() as u32);
    let mut head = [0u8; HEADER];
    head[0..4].copy_from_slice(&((size - PREFIX) as u32).to_le_bytes());
    head[16..24].copy_from_slice(&record.timestamp_ms.unwrap_or(now_ms).to_le_bytes());
    head[24..28].copy_from_slice(&number(record.key).to_le_bytes());
    head[28..32].copy_from_slice(&number(record.value).to_le_bytes());
    head[32..36].copy_from_slice(&(record.headers.len() as u32).to_le_bytes());
    out.reserve(size);
    out.extend_from_slice(&head);
    out.extend_from_slice(record.key.unwrap_or_default());
    out.extend_from_slice(record.value.unwrap_or_default());
    for (name, value) in record.headers {
        out.extend_from_slice(&(name.len() as u32).to_le_bytes());
        out.extend_from_slice(name);
        out.extend_from_slice(&number(*value).to_le_bytes());
        out.extend_from_slice(value.unwrap_or_default());
    }
}

/// Sets the offset and the checksum of the first record; returns its size and its timestamp.
pub(super) fn seal(frames: &mut [u8], offset: i64) -> (usize, i64) {
    let len = u32_at(frames, 0) as usize + PREFIX;
    frames[8..16].copy_from_slice(&offset.to_le_bytes());
    let crc = crc32c::crc32c(&frames[PREFIX..len]);
    frames[4..8].copy_from_slice(&crc.to_le_bytes());
    (len, i64_at(frames, 16))
}

/// The size of the first record, which was encoded here.
pub(super) fn len_of(frames: &[u8]) -> usize {
    u32_at(frames, 0) as usize + PREFIX
}

/// The offset of the record that begins here.
pub(super) fn offset_of(bytes: &[u8]) -> i64 {
    i64_at(bytes, 8)
}

/// Parses the record at this position.
pub(super) fn parse(data: &[u8], at: usize) -> ParsedFrame {
    let bytes = &data[at..];
    if bytes.len() < HEADER {
        return ParsedFrame::Incomplete(HEADER);
    }
    let len = u32_at(bytes, 0) as usize + PREFIX;
    if !(HEADER..=BYTES_MAX).contains(&len) {
        return ParsedFrame::Invalid;
    }
    if bytes.len() < len {
        return ParsedFrame::Incomplete(len);
    }
    if crc32c::crc32c(&bytes[PREFIX..len]) != u32_at(bytes, 4) {
        return ParsedFrame::Invalid;
    }
    parse_parts(&bytes[..len], at as u32).map_or(ParsedFrame::Invalid, ParsedFrame::Complete)
}

/// The parts of a record with a valid checksum; `None` if they do not fit.
fn parse_parts(bytes: &[u8], base: u32) -> Option<RecordFrame> {
    let mut end = HEADER;
    let mut span = |len: u32| {
        if len == u32::MAX {
            return Some(Span::NULL);
        }
        let start = end;
        end = end.checked_add(len as usize).filter(|end| *end <= bytes.len())?;
        Some(Span { start: base + start as u32, len })
    };
    let key = span(u32_at(bytes, 24))?;
    let value = span(u32_at(bytes, 28))?;
    let frame = RecordFrame {
        offset: i64_at(bytes, 8),
        timestamp_ms: i64_at(bytes, 16),
        key,
        value,
        headers_at: base + end as u32,
        headers: u32_at(bytes, 32),
        len: bytes.len(),
    };
    let fits = match frame.headers {
        0 => end == bytes.len(),
        count => headers_end(bytes, end, count) == Some(bytes.len()),
    };
    fits.then_some(frame)
}

fn headers_end(bytes: &[u8], mut at: usize, count: u32) -> Option<usize> {
    for _ in 0..count {
        for _ in 0..2 {
            let len = u32_checked(bytes, at)?;
            at += 4;
            if len != u32::MAX {
                at = at.checked_add(len as usize)?;
            }
        }
    }
    Some(at)
}

/// The names and values of a record's headers.
pub(super) fn headers<'a>(
    data: &'a [u8],
    frame: &RecordFrame,
) -> impl Iterator<Item = (Span, Span)> + use<'a> {
    let mut at = frame.headers_at;
    let mut next = move || {
        let len = u32_at(data, at as usize);
        let span = if len == u32::MAX { Span::NULL } else { Span { start: at + 4, len } };
        at += 4 + if len == u32::MAX { 0 } else { len };
        span
    };
    (0..frame.headers).map(move |_| (next(), next()))
}

fn u32_checked(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4).map(|four| u32::from_le_bytes(four.try_into().unwrap_or_default()))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn i64_at(bytes: &[u8], at: usize) -> i64 {
    let mut eight = [0; 8];
    eight.copy_from_slice(&bytes[at..at + 8]);
    i64::from_le_bytes(eight)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(record: &NewRecord<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        let size = size(record);
        encode(&mut out, record, size, 77);
        assert_eq!(out.len(), size);
        assert_eq!(seal(&mut out, 42), (size, record.timestamp_ms.unwrap_or(77)));
        out
    }

    const HEADERS: &[(&[u8], Option<&[u8]>)] =
        &[(b"a", Some(b"1")), (b"b", None), (b"", Some(b""))];

    fn full() -> NewRecord<'static> {
        NewRecord {
            topic: "t",
            partition: None,
            key: Some(b"key"),
            value: Some(b"value"),
            headers: HEADERS,
            timestamp_ms: None,
        }
    }

    #[test]
    fn a_record_is_parsed_as_it_was_encoded() {
        let mut data = b"before".to_vec();
        data.extend(encoded(&full()));
        let ParsedFrame::Complete(frame) = parse(&data, 6) else { panic!("not complete") };
        assert_eq!((frame.offset, frame.timestamp_ms, frame.len), (42, 77, data.len() - 6));
        assert_eq!(frame.key.of(&data), Some(&b"key"[..]));
        assert_eq!(frame.value.of(&data), Some(&b"value"[..]));
        let read: Vec<_> = headers(&data, &frame)
            .map(|(name, value)| (name.of(&data).unwrap(), value.of(&data)))
            .collect();
        assert_eq!(read, HEADERS);
    }

    #[test]
    fn nulls_and_empty_bytes_differ() {
        let record = NewRecord { key: None, value: None, headers: &[], ..full() };
        let data = encoded(&record);
        let ParsedFrame::Complete(frame) = parse(&data, 0) else { panic!("not complete") };
        assert_eq!((frame.key, frame.value), (Span::NULL, Span::NULL));
    }

    #[test]
    fn any_flipped_bit_is_detected() {
        let data = encoded(&full());
        for at in 0..data.len() * 8 {
            let mut bad = data.clone();
            bad[at / 8] ^= 1 << (at % 8);
            assert!(!matches!(parse(&bad, 0), ParsedFrame::Complete(_)), "bit {at}");
        }
    }

    #[test]
    fn any_truncation_is_detected() {
        let data = encoded(&full());
        for len in 0..data.len() {
            let needs = if len < HEADER { HEADER } else { data.len() };
            assert!(
                matches!(parse(&data[..len], 0), ParsedFrame::Incomplete(n) if n == needs),
                "cut at {len}"
            );
        }
    }

    #[test]
    fn zeros_are_not_a_record() {
        assert!(matches!(parse(&[0; 4096], 0), ParsedFrame::Invalid));
    }
}
