//! The format of the records in a batch, one after the other, numbers little-endian:
//!
//! | at | what |
//! |---|---|
//! | 0 | u32: bytes of the key; `u32::MAX`: none |
//! | 4 | u32: bytes of the value; `u32::MAX`: none |
//! | 8 | u32: number of headers |
//! | 12 | i64: timestamp in ms |
//! | 20 | key, value; of each header u32, name, u32 (`u32::MAX`: none), value |
//!
//! Their offsets follow from the batch, which also has their checksum.

use crate::record::{NewRecord, Span};

/// Bytes before the key.
pub(super) const HEADER: usize = 20;
/// The largest record.
pub(super) const BYTES_MAX: usize = 256 << 20;

/// A record, and the positions of its parts in the parsed bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub timestamp_ms: i64,
    pub key: Span,
    pub value: Span,
    headers: u32,
    /// The first byte of the headers.
    headers_at: usize,
    /// The first byte after the record.
    pub end: usize,
}

/// The encoded size of a record.
pub(super) fn size(record: &NewRecord<'_>) -> usize {
    let bytes = |part: Option<&[u8]>| part.map_or(0, <[u8]>::len);
    let headers = record.headers.iter().map(|(name, value)| 8 + name.len() + bytes(*value));
    HEADER + bytes(record.key) + bytes(record.value) + headers.sum::<usize>()
}

/// Appends a record of this [`size`]; returns its timestamp.
pub(super) fn encode(out: &mut Vec<u8>, record: &NewRecord<'_>, size: usize, now_ms: i64) -> i64 {
    let number = |part: Option<&[u8]>| part.map_or(u32::MAX, |bytes| bytes.len() as u32);
    let timestamp_ms = record.timestamp_ms.unwrap_or(now_ms);
    let mut head = [0u8; HEADER];
    head[0..4].copy_from_slice(&number(record.key).to_le_bytes());
    head[4..8].copy_from_slice(&number(record.value).to_le_bytes());
    head[8..12].copy_from_slice(&(record.headers.len() as u32).to_le_bytes());
    head[12..20].copy_from_slice(&timestamp_ms.to_le_bytes());
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
    timestamp_ms
}

/// The record at this position; `None` if it does not fit into the bytes.
pub(super) fn parse(bytes: &[u8], at: usize) -> Option<Frame> {
    let head = bytes.get(at..at + HEADER)?;
    let mut end = at + HEADER;
    let key = span(bytes, &mut end, u32_at(head, 0)?)?;
    let value = span(bytes, &mut end, u32_at(head, 4)?)?;
    let timestamp_ms = i64::from_le_bytes(head[12..20].try_into().ok()?);
    let (headers, headers_at) = (u32_at(head, 8)?, end);
    for _ in 0..2 * u64::from(headers) {
        let len = u32_at(bytes, end)?;
        end += 4;
        span(bytes, &mut end, len)?;
    }
    Some(Frame { timestamp_ms, key, value, headers, headers_at, end })
}

/// The names and values of a record's headers.
pub(super) fn headers<'a>(
    bytes: &'a [u8],
    frame: &Frame,
) -> impl Iterator<Item = (Span, Span)> + use<'a> {
    let mut at = frame.headers_at;
    let mut next = move || {
        let len = u32_at(bytes, at).unwrap_or(u32::MAX);
        at += 4;
        span(bytes, &mut at, len).unwrap_or(Span::NULL)
    };
    (0..frame.headers).map(move |_| (next(), next()))
}

/// The next bytes, so many.
fn span(bytes: &[u8], end: &mut usize, len: u32) -> Option<Span> {
    if len == u32::MAX {
        return Some(Span::NULL);
    }
    let start = *end as u32;
    *end = end.checked_add(len as usize).filter(|end| *end <= bytes.len())?;
    Some(Span { start, len })
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

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

    fn encoded(record: &NewRecord<'_>) -> Vec<u8> {
        let mut out = b"before".to_vec();
        let size = size(record);
        assert_eq!(encode(&mut out, record, size, 77), record.timestamp_ms.unwrap_or(77));
        assert_eq!(out.len(), 6 + size);
        out
    }

    #[test]
    fn a_record_is_parsed_as_it_was_encoded() {
        let data = encoded(&full());
        let frame = parse(&data, 6).unwrap();
        assert_eq!((frame.timestamp_ms, frame.end), (77, data.len()));
        assert_eq!(frame.key.of(&data), Some(&b"key"[..]));
        assert_eq!(frame.value.of(&data), Some(&b"value"[..]));
        let read: Vec<_> = headers(&data, &frame)
            .map(|(name, value)| (name.of(&data).unwrap(), value.of(&data)))
            .collect();
        assert_eq!(read, HEADERS);
    }

    #[test]
    fn nulls_and_empty_bytes_differ() {
        let nothing = NewRecord { key: None, value: Some(b""), headers: &[], ..full() };
        let data = encoded(&nothing);
        let frame = parse(&data, 6).unwrap();
        assert_eq!((frame.key, frame.value.of(&data)), (Span::NULL, Some(&b""[..])));
    }

    #[test]
    fn any_truncation_is_detected() {
        let data = encoded(&full());
        assert!((6..data.len()).all(|len| parse(&data[..len], 6).is_none()));
    }
}
