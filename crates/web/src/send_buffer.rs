//! The unsent output of a response: segments in order, in memory up to a bound
//! and in a temporary file past it, so that the producer seldom waits.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write as _};
use std::mem;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::body_part::BodyPart;
use crate::limits::Limits;

/// Gathered writes end a segment at this size; a larger one would be copied
/// too often while it grows.
const SEGMENT_BYTES_MAX: usize = 64 * 1024;

/// A part of the output that is sent in one call.
pub(crate) enum Segment {
    /// Bytes, of which those before `at` have been sent.
    Bytes { bytes: Vec<u8>, at: usize },
    /// Memory kept alive by its owner; `at..end` is left to send.
    Pinned { memory: Box<dyn AsRef<[u8]> + Send>, at: usize, end: usize },
    /// A range of a file of the application.
    File { file: File, offset: u64, left: u64 },
    /// A range of the response's own temporary file.
    Spool { file: Arc<File>, offset: u64, left: u64 },
}

/// The temporary file of a response whose client is slow.
struct SpoolFile {
    file: Arc<File>,
    /// Where the next byte goes.
    end: u64,
    /// Bytes not yet sent.
    outstanding: u64,
}

/// The segments to be sent, and the memory they occupy.
#[derive(Default)]
pub(crate) struct SendBuffer {
    segments: VecDeque<Segment>,
    /// Bytes in memory that were not sent yet, those being sent included.
    memory: usize,
    spool: Option<SpoolFile>,
    /// The temporary file failed: everything stays in memory, the producer waits.
    spool_broken: bool,
    /// A sent buffer, for the next gathered write.
    recycled: Vec<u8>,
}

impl SendBuffer {
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Bytes in memory that were not sent yet.
    pub fn memory(&self) -> usize {
        self.memory
    }

    pub fn has_capacity(&self, limits: &Limits) -> bool {
        self.memory < limits.reply_memory_bytes_max || self.can_spool(limits)
    }

    /// Whether a waiting producer should be woken: a little later than
    /// `has_capacity`, so that it is not woken for every few bytes.
    pub fn has_ample_capacity(&self, limits: &Limits) -> bool {
        self.memory <= limits.reply_memory_bytes_max / 2
            || (self.can_spool(limits) && self.spooled() <= limits.reply_spool_bytes_max / 2)
    }

    fn can_spool(&self, limits: &Limits) -> bool {
        !self.spool_broken && self.spooled() < limits.reply_spool_bytes_max
    }

    fn spooled(&self) -> u64 {
        self.spool.as_ref().map_or(0, |spool| spool.outstanding)
    }

    /// Adds a whole buffer as it is.
    pub fn push_buffer(&mut self, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.memory += bytes.len();
            self.segments.push_back(Segment::Bytes { bytes, at: 0 });
        }
    }

    /// Adds the first `len` bytes of a part as it is, whatever its size.
    pub fn push_part(&mut self, part: BodyPart, len: u64) {
        let len = len.min(part.len());
        if len == 0 {
            return;
        }
        match part {
            BodyPart::Bytes(mut bytes) => {
                bytes.truncate(len as usize);
                self.push_buffer(bytes);
            }
            BodyPart::Pinned(memory) => {
                self.memory += len as usize;
                self.segments.push_back(Segment::Pinned { memory, at: 0, end: len as usize });
            }
            BodyPart::File { file, offset, .. } => {
                self.segments.push_back(Segment::File { file, offset, left: len });
            }
        }
    }

    /// Adds a streamed part within the bounds: memory is kept while it fits, else
    /// copied to the temporary file and released.
    pub fn stream_part(&mut self, part: BodyPart, len: u64, limits: &Limits) {
        let in_memory = match &part {
            BodyPart::Bytes(bytes) => Some(bytes.as_slice()),
            BodyPart::Pinned(memory) => Some((**memory).as_ref()),
            BodyPart::File { .. } => None,
        };
        match in_memory {
            Some(bytes) if !self.fits(bytes.len(), limits) => {
                let len = usize::try_from(len).unwrap_or(usize::MAX).min(bytes.len());
                self.stream(&bytes[..len], limits);
            }
            _ => self.push_part(part, len),
        }
    }

    /// Adds streamed bytes within the bounds, gathering them into the last buffer.
    pub fn stream(&mut self, bytes: &[u8], limits: &Limits) {
        if self.fits(bytes.len(), limits) || self.spool(bytes).is_err() {
            self.append(bytes);
        }
    }

    /// Whether the next write stays in memory. An empty buffer takes any size; so
    /// does a full one, whose producer then waits.
    fn fits(&self, len: usize, limits: &Limits) -> bool {
        self.memory == 0
            || self.memory + len <= limits.reply_memory_bytes_max
            || !self.can_spool(limits)
    }

    /// Appends to the last buffer.
    pub fn append(&mut self, bytes: &[u8]) {
        self.memory += bytes.len();
        if let Some(Segment::Bytes { bytes: last, .. }) = self.segments.back_mut() {
            if last.len() + bytes.len() <= SEGMENT_BYTES_MAX {
                last.extend_from_slice(bytes);
                return;
            }
        }
        let mut buffer = mem::take(&mut self.recycled);
        buffer.extend_from_slice(bytes);
        self.segments.push_back(Segment::Bytes { bytes: buffer, at: 0 });
    }

    /// Writes to the temporary file. After an error nothing was added.
    fn spool(&mut self, bytes: &[u8]) -> io::Result<()> {
        let result = self.spool_at_end(bytes);
        self.spool_broken |= result.is_err();
        result
    }

    fn spool_at_end(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.spool.is_none() {
            let file = Arc::new(tempfile::tempfile()?);
            self.spool = Some(SpoolFile { file, end: 0, outstanding: 0 });
        }
        let Some(spool) = &mut self.spool else { return Ok(()) };
        spool.file.write_all_at(bytes, spool.end)?;
        let (offset, len) = (spool.end, bytes.len() as u64);
        spool.end += len;
        spool.outstanding += len;
        if let Some(Segment::Spool { offset: start, left, .. }) = self.segments.back_mut() {
            if *start + *left == offset {
                *left += len;
                return Ok(());
            }
        }
        let file = Arc::clone(&spool.file);
        self.segments.push_back(Segment::Spool { file, offset, left: len });
        Ok(())
    }

    /// Moves all segments to `into`, which must be empty.
    pub fn take(&mut self, into: &mut VecDeque<Segment>) {
        mem::swap(&mut self.segments, into);
    }

    /// Notes the bytes sent, and takes a buffer back.
    pub fn sent(&mut self, memory: usize, spooled: u64, recycled: &mut Vec<u8>) {
        // The engine's own responses were never counted here.
        self.memory = self.memory.saturating_sub(memory);
        if self.recycled.capacity() < recycled.capacity() {
            mem::swap(&mut self.recycled, recycled);
            self.recycled.clear();
        }
        let Some(spool) = &mut self.spool else { return };
        spool.outstanding = spool.outstanding.saturating_sub(spooled);
        if spool.outstanding == 0 && spool.end > 0 {
            // Frees the disk blocks now; on failure they go with the file.
            if spool.file.set_len(0).is_ok() {
                spool.end = 0;
            }
        }
    }

    /// Forgets everything but the capacities.
    pub fn clear(&mut self) {
        self.segments.clear();
        self.memory = 0;
        self.spool = None;
        self.spool_broken = false;
    }

    /// Gives back the memory that an idle connection does not need.
    pub fn shrink(&mut self) {
        self.recycled = Vec::new();
        self.segments.shrink_to_fit();
    }
}

/// Writes the size line of a chunk of `len` bytes (RFC 9112 section 7.1).
pub(crate) fn chunk_size_line(len: u64) -> ([u8; 18], usize) {
    let mut line = [0u8; 18];
    let mut rest = &mut line[..];
    // Sixteen digits and two bytes always fit.
    let _ = write!(rest, "{len:x}\r\n");
    let left = rest.len();
    (line, 18 - left)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(memory: usize, spool: u64) -> Limits {
        Limits {
            reply_memory_bytes_max: memory,
            reply_spool_bytes_max: spool,
            ..Limits::for_tests()
        }
    }

    /// All waiting bytes in order, as the socket would get them.
    fn drain(send_buffer: &mut SendBuffer) -> Vec<u8> {
        let mut segments = VecDeque::new();
        send_buffer.take(&mut segments);
        let (mut out, mut memory, mut spooled) = (Vec::new(), 0, 0);
        for segment in segments {
            match segment {
                Segment::Bytes { bytes, .. } => {
                    memory += bytes.len();
                    out.extend(bytes);
                }
                Segment::Spool { file, offset, left } => {
                    let mut bytes = vec![0; left as usize];
                    file.read_exact_at(&mut bytes, offset).unwrap();
                    spooled += left;
                    out.extend(bytes);
                }
                Segment::Pinned { .. } | Segment::File { .. } => unreachable!("not used here"),
            }
        }
        send_buffer.sent(memory, spooled, &mut Vec::new());
        out
    }

    #[test]
    fn output_keeps_its_order_between_memory_and_file() {
        let limits = limits(100, 1_000_000);
        let (mut send_buffer, mut expected) = (SendBuffer::default(), Vec::new());
        for round in 0..3 {
            for i in 0..200u8 {
                let part = vec![i ^ round; 1 + usize::from(i % 60)];
                expected.extend_from_slice(&part);
                send_buffer.stream(&part, &limits);
                assert!(send_buffer.memory() <= 100 && send_buffer.has_capacity(&limits));
            }
            assert!(send_buffer.spooled() > 0);
            assert_eq!(drain(&mut send_buffer), std::mem::take(&mut expected));
            assert_eq!((send_buffer.memory(), send_buffer.spooled()), (0, 0));
        }
    }

    #[test]
    fn past_both_bounds_there_is_no_capacity() {
        let limits = limits(100, 200);
        let mut send_buffer = SendBuffer::default();
        let mut writes = 0;
        while send_buffer.has_capacity(&limits) {
            send_buffer.stream(&[7; 60], &limits);
            writes += 1;
        }
        // 60 in memory, 240 in the file, 60 more in memory.
        assert_eq!((writes, send_buffer.memory(), send_buffer.spooled()), (6, 120, 240));
        assert!(!send_buffer.has_ample_capacity(&limits));
        assert_eq!(drain(&mut send_buffer).len(), 360);
        assert!(send_buffer.has_capacity(&limits) && send_buffer.has_ample_capacity(&limits));
    }

    #[test]
    fn without_a_file_memory_is_the_bound() {
        let limits = limits(100, 0);
        let mut send_buffer = SendBuffer::default();
        send_buffer.stream(&[1; 99], &limits);
        assert!(send_buffer.has_capacity(&limits));
        send_buffer.stream(&[1; 99], &limits);
        assert!(!send_buffer.has_capacity(&limits));
    }

    #[test]
    fn the_file_is_emptied_after_all_was_sent() {
        let limits = limits(10, 1_000);
        let mut send_buffer = SendBuffer::default();
        send_buffer.stream(&[1; 10], &limits);
        send_buffer.stream(&[2; 500], &limits);
        let file = Arc::clone(&send_buffer.spool.as_ref().unwrap().file);
        assert_eq!(file.metadata().unwrap().len(), 500);
        drain(&mut send_buffer);
        assert_eq!(file.metadata().unwrap().len(), 0);
    }

    #[test]
    fn a_chunk_size_line_is_hexadecimal() {
        for (len, line) in [(1, "1\r\n"), (255, "ff\r\n"), (u64::MAX, "ffffffffffffffff\r\n")] {
            let (bytes, used) = chunk_size_line(len);
            assert_eq!(&bytes[..used], line.as_bytes());
        }
    }
}
