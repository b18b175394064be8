//! The unsent output of a response: segments in order, in memory up to a bound
//! and in a temporary file past it, so that the producer seldom waits.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write as _};
use std::mem;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use http::Response;

use crate::body_part::BodyPart;
use crate::budget::{BudgetShare, ConnectionBudget, NoRoom, SPOOLED_BYTES_MIN};
use crate::disk::FileRange;
use crate::limits::Limits;
use crate::response_head::EncodedHead;

/// Gathered writes end a segment at this size; a larger one would be copied
/// too often while it grows.
const SEGMENT_BYTES_MAX: usize = 64 * 1024;

/// A part of the output that is sent in one call.
pub(crate) enum Segment {
    /// A head of HTTP/2, which takes `len` bytes of memory.
    Head { head: Box<Response<()>>, len: usize },
    /// Bytes, of which those before `at` have been sent.
    Bytes { bytes: Vec<u8>, at: usize },
    /// Memory kept alive by its owner; `at..end` is left to send.
    Pinned { memory: Box<dyn AsRef<[u8]> + Send>, at: usize, end: usize },
    /// A range of a file of the application.
    File(FileRange),
    /// A range of the response's own temporary file.
    Spool(FileRange),
}

/// Less is not counted while it is not known to wait for the client: most answers are sent at once.
const COUNTED_BYTES_MIN: usize = 64 * 1024;

/// Output is gathered to this size before it is written to the temporary file.
const SPOOL_BYTES_MIN: usize = 64 * 1024;

/// The temporary file of a response whose client is slow.
struct SpoolFile {
    file: Arc<File>,
    /// Where the next byte goes.
    end: u64,
    /// Bytes not yet sent, those being written included.
    outstanding: u64,
}

/// Output on its way from memory to the temporary file. [`SpoolWrite::run`] belongs on a thread
/// that may wait for the disk, without the lock of the [`SendBuffer`].
pub(crate) struct SpoolWrite {
    segments: VecDeque<Segment>,
    /// None before the first write.
    file: Option<Arc<File>>,
    is_new: bool,
    offset: u64,
    len: u64,
    result: io::Result<()>,
}

impl SpoolWrite {
    /// Writes the bytes; [`SendBuffer::end_spool`] takes the result.
    pub fn run(&mut self) {
        self.result = self.write();
    }

    fn write(&mut self) -> io::Result<()> {
        let file = match &self.file {
            Some(file) => file,
            None => self.file.insert(Arc::new(tempfile::tempfile()?)),
        };
        if self.offset == 0 {
            // All that was written before has been sent: this frees its blocks.
            file.set_len(0)?;
        }
        let mut offset = self.offset;
        for bytes in self.segments.iter().filter_map(Segment::unsent_memory) {
            file.write_all_at(bytes, offset)?;
            offset += bytes.len() as u64;
        }
        Ok(())
    }
}

impl Segment {
    /// The unsent bytes of a segment in memory.
    pub fn unsent_memory(&self) -> Option<&[u8]> {
        match self {
            Self::Bytes { bytes, at } => Some(&bytes[*at..]),
            Self::Pinned { memory, at, end } => (**memory).as_ref().get(*at..*end),
            Self::Head { .. } | Self::File(_) | Self::Spool(_) => None,
        }
    }

    /// The unsent range of a file.
    pub fn file_range(&mut self) -> Option<&mut FileRange> {
        match self {
            Self::File(range) | Self::Spool(range) => Some(range),
            Self::Head { .. } | Self::Bytes { .. } | Self::Pinned { .. } => None,
        }
    }
}

/// The segments to be sent, and the memory they occupy.
#[derive(Default)]
pub(crate) struct SendBuffer {
    segments: VecDeque<Segment>,
    /// What was added while a [`SpoolWrite`] is under way; it comes after that.
    behind_spool: Option<VecDeque<Segment>>,
    /// Bytes in memory that were not sent yet, those being sent included.
    memory: usize,
    spool: Option<SpoolFile>,
    /// Bytes on their way to files that are not in `spool` yet.
    spooling: u64,
    /// What the connection's budget counts of all that; `None` in tests and once it is closed.
    held: Option<BudgetShare>,
    /// The temporary file failed: everything stays in memory, the producer waits.
    spool_broken: bool,
    /// A sent buffer, for the next gathered write.
    recycled: Vec<u8>,
}

impl SendBuffer {
    pub fn new(budget: &Arc<ConnectionBudget>) -> Self {
        Self { held: Some(BudgetShare::new(budget)), ..Self::default() }
    }

    /// Brings the budget up to date.
    fn count(&mut self) {
        if let Some(held) = &mut self.held {
            let filed = self.spool.as_ref().map_or(0, |spool| spool.end);
            held.set(self.memory, filed + self.spooling);
        }
    }

    fn is_counted(&self) -> bool {
        self.held.as_ref().is_some_and(BudgetShare::is_charged)
    }

    /// Notes more bytes in memory.
    fn add_memory(&mut self, len: usize) {
        self.memory += len;
        if self.memory >= COUNTED_BYTES_MIN || self.is_counted() {
            self.count();
        }
    }

    /// Bytes that may wait in memory: few while the budget has no memory left.
    fn memory_max(&self, limits: &Limits) -> usize {
        match &self.held {
            Some(held) if held.budget().is_short() => {
                limits.reply_memory_bytes_max.min(SPOOL_BYTES_MIN)
            }
            _ => limits.reply_memory_bytes_max,
        }
    }

    /// Whether nothing can be taken now.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Whether output is being written to the temporary file; it can be taken afterwards.
    pub fn is_spooling(&self) -> bool {
        self.behind_spool.is_some()
    }

    /// Bytes in memory that were not sent yet.
    pub fn memory(&self) -> usize {
        self.memory
    }

    pub fn has_capacity(&self, limits: &Limits) -> bool {
        self.memory < self.memory_max(limits)
            || (self.can_spool(limits) && self.unspooled() < spool_bytes_min(limits))
    }

    /// Whether a waiting producer should be woken: a little later than
    /// `has_capacity`, so that it is not woken for every few bytes.
    pub fn has_ample_capacity(&self, limits: &Limits) -> bool {
        self.memory <= self.memory_max(limits) / 2
            || (self.can_spool(limits) && self.spooled() <= limits.reply_spool_bytes_max / 2)
    }

    fn can_spool(&self, limits: &Limits) -> bool {
        // A file of which all was sent begins anew, in the room it has.
        let begins_anew = self.spool.as_ref().is_some_and(|spool| spool.outstanding == 0);
        let fits =
            |held: &BudgetShare| begins_anew || held.budget().can_spool(SPOOL_BYTES_MIN as u64);
        !self.spool_broken
            && self.spooled() < limits.reply_spool_bytes_max
            && self.held.as_ref().is_none_or(fits)
    }

    fn spooled(&self) -> u64 {
        self.spool.as_ref().map_or(0, |spool| spool.outstanding)
    }

    /// Bytes in memory behind what was spooled or taken.
    fn unspooled(&self) -> usize {
        let segments = self.behind_spool.as_ref().unwrap_or(&self.segments);
        segments.iter().rev().map_while(Segment::unsent_memory).map(<[u8]>::len).sum()
    }

    /// Where output is added.
    fn back(&mut self) -> &mut VecDeque<Segment> {
        self.behind_spool.as_mut().unwrap_or(&mut self.segments)
    }

    /// Adds a head, and what of the body is in its buffer.
    pub fn push_head(&mut self, head: EncodedHead) {
        if let Some(value) = head.value {
            self.add_memory(head.len);
            self.back().push_back(Segment::Head { head: value, len: head.len });
        }
        self.push_buffer(head.bytes);
    }

    /// Adds a whole buffer as it is.
    pub fn push_buffer(&mut self, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.add_memory(bytes.len());
            self.back().push_back(Segment::Bytes { bytes, at: 0 });
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
                self.add_memory(len as usize);
                self.back().push_back(Segment::Pinned { memory, at: 0, end: len as usize });
            }
            BodyPart::File { file, offset, .. } => {
                self.back().push_back(Segment::File(FileRange::new(Arc::new(file), offset, len)));
            }
        }
    }

    /// Appends to the last buffer.
    pub fn append(&mut self, bytes: &[u8]) {
        self.add_memory(bytes.len());
        if let Some(Segment::Bytes { bytes: last, .. }) = self.back().back_mut() {
            if last.len() + bytes.len() <= SEGMENT_BYTES_MAX {
                last.extend_from_slice(bytes);
                return;
            }
        }
        let mut buffer = mem::take(&mut self.recycled);
        buffer.extend_from_slice(bytes);
        self.back().push_back(Segment::Bytes { bytes: buffer, at: 0 });
    }

    /// Takes the newest output out of memory for the temporary file when there is no capacity.
    /// None when there is some, or another write is under way, or the file is full or broken.
    pub fn begin_spool(&mut self, limits: &Limits) -> Option<SpoolWrite> {
        if self.has_capacity(limits) || !self.can_spool(limits) || self.is_spooling() {
            return None;
        }
        let excess = self.memory.saturating_sub(self.memory_max(limits)) as u64;
        let wanted = excess.max(spool_bytes_min(limits) as u64);
        let (mut segments, mut len) = (VecDeque::new(), 0);
        while let Some(bytes) = self.segments.back().and_then(Segment::unsent_memory) {
            if len >= wanted {
                break;
            }
            len += bytes.len() as u64;
            segments.extend(self.segments.pop_back());
        }
        segments.make_contiguous().reverse();
        self.behind_spool = Some(VecDeque::new());
        Some(self.spool_write(segments, len))
    }

    /// Counts `sending`, which the client does not take now. When memory is short it takes from
    /// there what is in memory, for the temporary file.
    pub fn begin_relief(
        &mut self,
        sending: &mut VecDeque<Segment>,
    ) -> Result<Option<SpoolWrite>, NoRoom> {
        self.count();
        let Some(held) = &self.held else { return Ok(None) };
        let unsent = sending.iter().rev().map_while(Segment::unsent_memory);
        let (count, len) =
            unsent.fold((0, 0), |(count, len), bytes| (count + 1, len + bytes.len() as u64));
        let is_small = len < SPOOLED_BYTES_MIN as u64;
        let stays = is_small && !held.budget().worker.is_full();
        if len == 0 || stays || !held.budget().is_short() {
            return Ok(None);
        }
        if is_small || self.spool_broken || !held.budget().can_spool(len) {
            held.budget().worker.count_refused();
            return Err(NoRoom);
        }
        let segments = sending.split_off(sending.len() - count);
        Ok(Some(self.spool_write(segments, len)))
    }

    /// As [`SendBuffer::end_spool`], for [`SendBuffer::begin_relief`].
    pub fn end_relief(
        &mut self,
        write: SpoolWrite,
        sending: &mut VecDeque<Segment>,
    ) -> VecDeque<Segment> {
        mem::swap(&mut self.segments, sending);
        let rest = self.take_written(write);
        mem::swap(&mut self.segments, sending);
        rest
    }

    fn spool_write(&mut self, segments: VecDeque<Segment>, len: u64) -> SpoolWrite {
        let (file, offset) = match &mut self.spool {
            Some(spool) => {
                if spool.outstanding == 0 {
                    spool.end = 0;
                }
                let offset = spool.end;
                spool.end += len;
                spool.outstanding += len;
                (Some(Arc::clone(&spool.file)), offset)
            }
            None => {
                self.spooling += len;
                (None, 0)
            }
        };
        self.count();
        SpoolWrite { is_new: file.is_none(), segments, file, offset, len, result: Ok(()) }
    }

    /// Puts what was written, or on an error what was in memory, back in its place. Returns memory
    /// to be dropped outside the lock.
    pub fn end_spool(&mut self, write: SpoolWrite) -> VecDeque<Segment> {
        // None when the connection was closed meanwhile.
        let Some(mut behind) = self.behind_spool.take() else { return write.segments };
        let rest = self.take_written(write);
        self.segments.append(&mut behind);
        rest
    }

    fn take_written(&mut self, write: SpoolWrite) -> VecDeque<Segment> {
        let SpoolWrite { mut segments, file, is_new, offset, len, result } = write;
        self.spooling -= if is_new { len } else { 0 };
        match file {
            Some(file) if result.is_ok() => {
                self.memory = self.memory.saturating_sub(len as usize);
                match &mut self.spool {
                    None => {
                        let file = Arc::clone(&file);
                        self.spool = Some(SpoolFile { file, end: len, outstanding: len });
                    }
                    // Another write has made a file, too; both are counted as one.
                    Some(spool) if is_new => {
                        spool.end += len;
                        spool.outstanding += len;
                    }
                    Some(_) => {}
                }
                self.push_spooled(file, offset, len);
            }
            _ => {
                self.spool_broken = true;
                if let Some(spool) = self.spool.as_mut().filter(|_| !is_new) {
                    spool.outstanding -= len;
                }
                self.segments.append(&mut segments);
            }
        }
        self.count();
        segments
    }

    fn push_spooled(&mut self, file: Arc<File>, offset: u64, len: u64) {
        if let Some(Segment::Spool(last)) = self.segments.back_mut() {
            if last.offset + last.left == offset && Arc::ptr_eq(&last.file, &file) {
                last.left += len;
                return;
            }
        }
        self.segments.push_back(Segment::Spool(FileRange::new(file, offset, len)));
    }

    /// Moves all segments but those behind a [`SpoolWrite`] to `into`, which must be empty.
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
        if let Some(spool) = &mut self.spool {
            spool.outstanding = spool.outstanding.saturating_sub(spooled);
        }
        if self.is_counted() {
            self.count();
        }
    }

    /// Whether it has much in memory that a file should take.
    pub fn needs_relief(&self) -> bool {
        self.memory >= COUNTED_BYTES_MIN
            && self.held.as_ref().is_some_and(|held| held.budget().is_short())
    }

    /// Everything was sent: nothing is counted any more.
    pub fn settle(&mut self) {
        if self.is_counted() {
            self.clear();
        }
    }

    /// Forgets everything but the capacities.
    pub fn clear(&mut self) {
        self.segments.clear();
        self.behind_spool = None;
        self.memory = 0;
        self.spool = None;
        self.spooling = 0;
        self.spool_broken = false;
        if self.is_counted() {
            self.count();
        }
    }

    /// Gives back the memory that an idle connection does not need.
    pub fn shrink(&mut self) {
        self.recycled = Vec::new();
        self.segments.shrink_to_fit();
    }
}

fn spool_bytes_min(limits: &Limits) -> usize {
    SPOOL_BYTES_MIN.min(limits.reply_memory_bytes_max).max(1)
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

    /// Adds bytes, and spools as a producer does that finds no capacity.
    fn stream(send_buffer: &mut SendBuffer, bytes: &[u8], limits: &Limits) {
        send_buffer.append(bytes);
        if let Some(mut write) = send_buffer.begin_spool(limits) {
            write.run();
            send_buffer.end_spool(write);
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
                Segment::Spool(FileRange { file, offset, left, .. }) => {
                    let mut bytes = vec![0; left as usize];
                    file.read_exact_at(&mut bytes, offset).unwrap();
                    spooled += left;
                    out.extend(bytes);
                }
                _ => unreachable!("not used here"),
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
                stream(&mut send_buffer, &part, &limits);
                assert!(send_buffer.memory() < 200 && send_buffer.has_capacity(&limits));
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
            stream(&mut send_buffer, &[7; 60], &limits);
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
        stream(&mut send_buffer, &[1; 99], &limits);
        assert!(send_buffer.has_capacity(&limits));
        stream(&mut send_buffer, &[1; 99], &limits);
        assert!(!send_buffer.has_capacity(&limits));
    }

    #[test]
    fn the_file_begins_anew_after_all_was_sent() {
        let limits = limits(10, 1_000);
        let mut send_buffer = SendBuffer::default();
        stream(&mut send_buffer, &[1; 500], &limits);
        let file = Arc::clone(&send_buffer.spool.as_ref().unwrap().file);
        assert_eq!(file.metadata().unwrap().len(), 500);
        drain(&mut send_buffer);
        stream(&mut send_buffer, &[2; 20], &limits);
        assert_eq!(file.metadata().unwrap().len(), 20);
        assert_eq!(drain(&mut send_buffer), [2; 20]);
    }

    #[test]
    fn output_added_while_the_disk_writes_comes_after_it() {
        for broken in [false, true] {
            let limits = limits(10, 1_000);
            let mut send_buffer = SendBuffer::default();
            stream(&mut send_buffer, &[1; 30], &limits);
            send_buffer.append(&[2; 30]);
            let mut write = send_buffer.begin_spool(&limits).unwrap();
            send_buffer.append(&[3; 30]);
            // A second producer waits for the first one.
            assert!(send_buffer.begin_spool(&limits).is_none());
            // What was there before can be sent meanwhile.
            assert_eq!(drain(&mut send_buffer), [1; 30]);
            assert!(send_buffer.is_empty() && send_buffer.is_spooling());
            write.run();
            if broken {
                write.result = Err(io::ErrorKind::StorageFull.into());
            }
            send_buffer.end_spool(write);
            assert_eq!(send_buffer.memory(), if broken { 60 } else { 30 });
            assert_eq!(drain(&mut send_buffer), [[2; 30], [3; 30]].concat());
            assert_eq!((send_buffer.memory(), send_buffer.spooled()), (0, 0));
        }
    }

    #[test]
    fn a_connection_closed_while_the_disk_writes_keeps_nothing() {
        let limits = limits(10, 1_000);
        let mut send_buffer = SendBuffer::default();
        send_buffer.append(&[1; 30]);
        let mut write = send_buffer.begin_spool(&limits).unwrap();
        send_buffer = SendBuffer::default();
        write.run();
        assert_eq!(send_buffer.end_spool(write).len(), 1);
        assert!(send_buffer.is_empty() && send_buffer.memory() == 0);
    }

    #[test]
    fn a_chunk_size_line_is_hexadecimal() {
        for (len, line) in [(1, "1\r\n"), (255, "ff\r\n"), (u64::MAX, "ffffffffffffffff\r\n")] {
            let (bytes, used) = chunk_size_line(len);
            assert_eq!(&bytes[..used], line.as_bytes());
        }
    }
}
