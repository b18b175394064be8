//! Reads a segment record by record and skips damage, for recovery and for lookups.

use std::fs::File;
use std::io;

use super::offset_index::{IndexEntry, INTERVAL_BYTES};
use super::record_frame::{self, ParsedFrame, RecordFrame};
use super::{files, segment};

/// Bytes read at once.
const WINDOW: usize = 1 << 20;

/// A part of a file in memory that moves forward while it is read.
pub(super) struct ScanWindow<'a> {
    file: &'a File,
    /// The end of the valid bytes.
    limit: u64,
    start: u64,
    data: Vec<u8>,
}

impl<'a> ScanWindow<'a> {
    pub fn new(file: &'a File, limit: u64) -> Self {
        Self { file, limit, start: 0, data: Vec::new() }
    }

    /// The bytes from `at` on, at least `need` if the file has them.
    fn bytes(&mut self, at: u64, need: usize) -> io::Result<&[u8]> {
        let held = self.start..self.start + self.data.len() as u64;
        let wanted = (at + need as u64).min(self.limit);
        if at < held.start || wanted > held.end {
            let len = (need.max(WINDOW) as u64).min(self.limit.saturating_sub(at));
            self.data = files::read_vec(self.file, len as usize, at)?;
            self.start = at;
        }
        Ok(&self.data[(at - self.start) as usize..])
    }

    /// The record at this position; `None` if there is no complete one.
    pub fn frame_at(&mut self, at: u64) -> io::Result<Option<RecordFrame>> {
        let mut need = record_frame::HEADER;
        loop {
            let have = self.bytes(at, need)?;
            match record_frame::parse(have, 0) {
                ParsedFrame::Complete(frame) => return Ok(Some(frame)),
                ParsedFrame::Incomplete(more) if more > need && at + more as u64 <= self.limit => {
                    need = more
                }
                _ => return Ok(None),
            }
        }
    }

    /// The first complete record from `at` on with this or a later offset. An
    /// offset that is too high for the bytes in between is damage.
    pub fn next_whole(
        &mut self,
        mut at: u64,
        offset: i64,
    ) -> io::Result<Option<(u64, RecordFrame)>> {
        while at + record_frame::HEADER as u64 <= self.limit {
            let span = self.limit - at;
            let latest =
                offset.saturating_add((span / record_frame::HEADER as u64) as i64 + (1 << 20));
            let have = self.bytes(at, record_frame::HEADER)?;
            if have.len() < record_frame::HEADER {
                break;
            }
            let starts = have.len() - record_frame::HEADER + 1;
            let found = (0..starts).find(|start| {
                let bytes = &have[*start..];
                let len = record_frame::len_of(bytes);
                (record_frame::HEADER..=record_frame::BYTES_MAX).contains(&len)
                    && len as u64 <= span - *start as u64
                    && (offset..latest).contains(&record_frame::offset_of(bytes))
            });
            let Some(start) = found else {
                at += starts as u64;
                continue;
            };
            at += start as u64;
            if let Some(frame) = self.frame_at(at)? {
                return Ok(Some((at, frame)));
            }
            at += 1;
        }
        Ok(None)
    }
}

#[derive(Debug)]
pub(super) struct ScanResult {
    /// The position behind the last complete record.
    pub pos: u64,
    /// The offset after it.
    pub end: i64,
    pub newest_ms: i64,
    /// Entries for the index.
    pub entries: Vec<IndexEntry>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ScanStart {
    pub pos: u64,
    pub offset: i64,
    pub newest_ms: i64,
}

impl ScanStart {
    /// The start of a segment.
    pub fn start(base: i64) -> Self {
        Self { pos: segment::HEADER, offset: base, newest_ms: i64::MIN }
    }
}

/// Scans complete records up to `limit`. Damage in between is skipped; readers report it.
pub(super) fn scan(file: &File, from: ScanStart, limit: u64) -> io::Result<ScanResult> {
    let mut window = ScanWindow::new(file, limit);
    let mut found = ScanResult {
        pos: from.pos,
        end: from.offset,
        newest_ms: from.newest_ms,
        entries: Vec::new(),
    };
    let mut at = from.pos;
    let mut indexed = from.pos;
    while at < limit {
        let frame = match window.frame_at(at)?.filter(|frame| frame.offset >= found.end) {
            Some(frame) => frame,
            None => match window.next_whole(at + 1, found.end)? {
                Some((pos, frame)) => {
                    at = pos;
                    frame
                }
                None => break,
            },
        };
        if at >= indexed + INTERVAL_BYTES {
            let (offset, newest_ms) = (frame.offset, found.newest_ms);
            found.entries.push(IndexEntry { offset, pos: at, newest_ms });
            indexed = at;
        }
        at += frame.len as u64;
        found.pos = at;
        found.end = frame.offset + 1;
        found.newest_ms = found.newest_ms.max(frame.timestamp_ms);
    }
    Ok(found)
}
