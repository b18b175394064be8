//! Records: many in one piece of memory, read in place.

/// A range of a chunk's data; a null has the length `u32::MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// First byte.
    pub start: u32,
    /// Bytes.
    pub len: u32,
}

impl Span {
    /// A null.
    pub const NULL: Self = Self { start: 0, len: u32::MAX };

    /// The bytes in `data`, or `None` for a null.
    pub fn of(self, data: &[u8]) -> Option<&[u8]> {
        let start = self.start as usize;
        (self.len != u32::MAX).then(|| &data[start..start + self.len as usize])
    }

    /// The same range in data that lies so many bytes behind.
    pub fn moved(self, bytes: i64) -> Self {
        Self { start: (i64::from(self.start) + bytes) as u32, ..self }
    }
}

/// Where one record lies in its chunk.
#[derive(Clone, Copy, Debug)]
pub struct RecordLayout {
    /// Its offset in its partition.
    pub offset: i64,
    /// Milliseconds since 1970; -1 where the log has none.
    pub timestamp_ms: i64,
    /// Its key.
    pub key: Span,
    /// Its value.
    pub value: Span,
    /// First of its headers in the chunk's list.
    pub headers_start: u32,
    /// How many headers it has.
    pub headers_len: u32,
}

/// Records of one partition, by rising offset, and the memory they are in.
#[derive(Debug, Default)]
pub struct Chunk {
    data: Vec<u8>,
    entries: Vec<RecordLayout>,
    headers: Vec<(Span, Span)>,
}

impl Chunk {
    /// How many records it has.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it has no records.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes of memory it holds.
    pub fn bytes(&self) -> usize {
        self.data.capacity()
            + self.entries.capacity() * size_of::<RecordLayout>()
            + self.headers.capacity() * size_of::<(Span, Span)>()
    }

    /// Where each record lies.
    pub fn entries(&self) -> &[RecordLayout] {
        &self.entries
    }

    /// One record.
    pub fn record(&self, index: usize) -> Record<'_> {
        Record { chunk: self, entry: &self.entries[index] }
    }
}

/// One record in its chunk.
#[derive(Clone, Copy)]
pub struct Record<'a> {
    chunk: &'a Chunk,
    entry: &'a RecordLayout,
}

impl<'a> Record<'a> {
    /// Its offset in its partition.
    pub fn offset(&self) -> i64 {
        self.entry.offset
    }

    /// Milliseconds since 1970; -1 where the log has none.
    pub fn timestamp_ms(&self) -> i64 {
        self.entry.timestamp_ms
    }

    /// Its key.
    pub fn key(&self) -> Option<&'a [u8]> {
        self.entry.key.of(&self.chunk.data)
    }

    /// Its value.
    pub fn value(&self) -> Option<&'a [u8]> {
        self.entry.value.of(&self.chunk.data)
    }

    /// Names and values of its headers, in order; a name may come twice.
    pub fn headers(&self) -> impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)> + use<'a> {
        let chunk = self.chunk;
        let first = self.entry.headers_start as usize;
        let found = &chunk.headers[first..first + self.entry.headers_len as usize];
        found
            .iter()
            .map(|(name, value)| (name.of(&chunk.data).unwrap_or_default(), value.of(&chunk.data)))
    }
}

/// Collects records into a chunk.
#[derive(Default)]
pub struct ChunkBuilder(Chunk);

impl ChunkBuilder {
    /// With room for this many records and bytes.
    pub fn with_capacity(records: usize, bytes: usize) -> Self {
        Self(Chunk {
            data: Vec::with_capacity(bytes),
            entries: Vec::with_capacity(records),
            headers: Vec::new(),
        })
    }

    /// Adds data of several records, which are added by [`ChunkBuilder::push_spans`]; returns where it begins.
    pub fn append(&mut self, data: &[u8]) -> u32 {
        let start = self.0.data.len() as u32;
        self.0.data.extend_from_slice(data);
        start
    }

    /// How many bytes it has.
    pub fn bytes(&self) -> usize {
        self.0.data.len()
    }

    /// How many records it has.
    pub fn len(&self) -> usize {
        self.0.entries.len()
    }

    /// Whether it has no records.
    pub fn is_empty(&self) -> bool {
        self.0.entries.is_empty()
    }

    /// Whether a record of this many bytes can be added; spans have 32 bits.
    pub fn has_room(&self, bytes: usize) -> bool {
        self.0.data.len() + bytes < u32::MAX as usize
    }

    /// Adds a record and copies its bytes. The caller checks [`ChunkBuilder::has_room`] before.
    pub fn push<'b>(
        &mut self,
        offset: i64,
        timestamp_ms: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: impl IntoIterator<Item = (&'b [u8], Option<&'b [u8]>)>,
    ) {
        let headers_start = self.0.headers.len() as u32;
        let (key, value) = (self.copy(key), self.copy(value));
        for (name, value) in headers {
            let spans = (self.copy(Some(name)), self.copy(value));
            self.0.headers.push(spans);
        }
        let headers_len = self.0.headers.len() as u32 - headers_start;
        let entry = RecordLayout { offset, timestamp_ms, key, value, headers_start, headers_len };
        self.0.entries.push(entry);
    }

    /// Adds a record whose bytes are in the data already.
    pub fn push_spans(
        &mut self,
        offset: i64,
        timestamp_ms: i64,
        key: Span,
        value: Span,
        headers: impl IntoIterator<Item = (Span, Span)>,
    ) {
        let headers_start = self.0.headers.len() as u32;
        self.0.headers.extend(headers);
        let headers_len = self.0.headers.len() as u32 - headers_start;
        let entry = RecordLayout { offset, timestamp_ms, key, value, headers_start, headers_len };
        self.0.entries.push(entry);
    }

    /// The chunk.
    pub fn finish(self) -> Chunk {
        self.0
    }

    fn copy(&mut self, bytes: Option<&[u8]>) -> Span {
        let Some(bytes) = bytes else { return Span::NULL };
        let start = self.0.data.len() as u32;
        self.0.data.extend_from_slice(bytes);
        Span { start, len: bytes.len() as u32 }
    }
}

pub use chaton_core::outbox::{NewRecord, OwnedRecord};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_were_pushed() {
        let mut builder = ChunkBuilder::default();
        let headers = [(&b"h"[..], Some(&b"1"[..])), (&b"h"[..], None)];
        builder.push(5, 9, Some(b"key"), None, headers);
        builder.push(7, -1, None, Some(b""), []);
        let chunk = builder.finish();
        let first = chunk.record(0);
        assert_eq!((first.offset(), first.timestamp_ms()), (5, 9));
        assert_eq!((first.key(), first.value()), (Some(&b"key"[..]), None));
        assert_eq!(first.headers().collect::<Vec<_>>(), headers);
        let second = chunk.record(1);
        assert_eq!((second.key(), second.value()), (None, Some(&b""[..])));
        assert_eq!(second.headers().count(), 0);
        assert_eq!(chunk.len(), 2);
    }

    #[test]
    fn spans_point_into_data_that_was_read_in_one_piece() {
        let mut builder = ChunkBuilder::default();
        assert_eq!((builder.append(b"before"), builder.append(b"keyvalue")), (0, 6));
        let (key, value) = (Span { start: 0, len: 3 }, Span { start: 3, len: 5 });
        builder.push_spans(0, 1, key.moved(6), value.moved(6), []);
        let chunk = builder.finish();
        assert_eq!(chunk.record(0).key(), Some(&b"key"[..]));
        assert_eq!(chunk.record(0).value(), Some(&b"value"[..]));
    }

    #[test]
    fn an_owned_record_is_written_like_a_borrowed_one() {
        let record = OwnedRecord {
            topic: "t".into(),
            value: Some(b"v".to_vec()),
            headers: vec![(b"n".to_vec(), None)],
            ..OwnedRecord::default()
        };
        record.with(|new| {
            assert_eq!((new.topic, new.value, new.headers.len()), ("t", Some(&b"v"[..]), 1));
        });
    }
}
