//! Reads one partition from a place on, over segments and over damage. Reads
//! only what its writers have told to be whole ([`super::head`]).

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::high_watermark::{self, HighWatermark};
use super::log_dir::LogDir;
use super::partition_writer::PartitionWriter;
use super::path_lock::PathLock;
use super::record_frame::{self, ParsedFrame, RecordFrame};
use super::scan::ScanWindow;
use super::{errors, files, offset_index, segment, topics, txn_log};
use crate::log::{Limits, LogError, Partition, Position, Result};
use crate::record::{Chunk, ChunkBuilder, Span};

/// Bytes of a record before any were read.
const RECORD_BYTES_GUESS: usize = 256;
/// Least bytes read at once.
const READ_BYTES_MIN: usize = 16 << 10;
/// Most bytes read at once, but for one record that is larger.
const READ_BYTES_MAX: usize = 32 << 20;

/// Longest wait for a writer that may be dead.
const SETTLE_MAX: Duration = Duration::from_millis(200);

/// The segment that is being read.
struct OpenSegment {
    base: i64,
    file: File,
    pos: u64,
}

/// A place in a segment that is not open.
struct ClosedSegment {
    base: i64,
    pos: u64,
    /// The offset that came next there.
    next: i64,
    inode: Option<(u64, u64)>,
}

/// See above.
pub(super) struct PartitionCursor {
    dir: Arc<LogDir>,
    partition: Partition,
    folder: PathBuf,
    watermark_file: Option<File>,
    watermark: Option<HighWatermark>,
    /// The offset that comes next.
    next: i64,
    at: Option<OpenSegment>,
    /// Where that was when its file was closed.
    left: Option<ClosedSegment>,
    /// Bytes of a record, as seen lately.
    record_bytes: usize,
    frames: Vec<RecordFrame>,
    /// The end of a segment was damaged, and that was told: which records are
    /// missing for it need not be.
    torn: bool,
    /// Damage that was stepped over and not told yet.
    pub damage: Vec<LogError>,
}

impl PartitionCursor {
    /// Over a partition that is there.
    pub fn open(dir: &Arc<LogDir>, partition: &Partition, from: Position) -> Result<Self> {
        let mut cursor = Self {
            dir: dir.clone(),
            partition: partition.clone(),
            folder: dir.partition(&partition.topic, partition.number),
            watermark_file: None,
            watermark: None,
            next: 0,
            at: None,
            left: None,
            record_bytes: RECORD_BYTES_GUESS,
            frames: Vec::new(),
            torn: false,
            damage: Vec::new(),
        };
        cursor.look()?;
        cursor.tell_foreign()?;
        cursor.seek(from)?;
        Ok(cursor)
    }

    fn tell_foreign(&mut self) -> Result<()> {
        let listed = segment::foreign(&self.folder);
        for path in listed.map_err(|error| errors::io(&self.folder, "listing", &error))? {
            let what = "its name is no offset that this log gives; left alone, move it elsewhere";
            self.tell(&path, 0, what);
        }
        Ok(())
    }

    /// A writer that was killed may have left whole records that it had not
    /// told of: the next one tells, and so does this, unless one is at it.
    /// True when that made a difference.
    pub fn settle(&mut self) -> Result<bool> {
        let Some(before) = self.watermark else { return Ok(false) };
        let path = segment::path(&self.folder, before.base);
        if !fs::metadata(path).is_ok_and(|found| found.len() > before.pos) {
            return Ok(false);
        }
        // Who may not write sees what was told.
        let _ = recover(&self.dir, &self.partition, &self.folder, SETTLE_MAX);
        Ok(self.look()? != before)
    }

    /// The first offset that is not written, as last heard.
    pub fn end(&self) -> i64 {
        self.watermark.map_or(0, |watermark| watermark.end)
    }

    /// Gives descriptors back; they are opened again when needed.
    pub fn rest(&mut self) {
        if let Some(OpenSegment { base, file, pos }) = self.at.take() {
            let inode = files::inode_of(&file);
            self.left = Some(ClosedSegment { base, pos, next: self.next, inode });
        }
        self.watermark_file = None;
    }

    /// Hears how far the partition is written.
    pub fn look(&mut self) -> Result<HighWatermark> {
        let path = high_watermark::path(&self.folder);
        let failed = |error| errors::io(&path, "reading", &error);
        if self.watermark_file.is_none() {
            match File::open(&path) {
                Ok(file) => self.watermark_file = Some(file),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(failed(error)),
            }
        }
        if let Some(file) = &self.watermark_file {
            let told = high_watermark::read(file).map_err(failed)?;
            if let Some(watermark) = told.filter(|watermark| watermark.boot == files::boot_id()) {
                self.watermark = Some(watermark);
                return Ok(watermark);
            }
        }
        // Nobody has written since the machine was started: what there is is
        // looked at as a writer does.
        recover(&self.dir, &self.partition, &self.folder, self.dir.answer_timeout())?;
        self.watermark_file = Some(File::open(&path).map_err(failed)?);
        let told = self
            .watermark_file
            .as_ref()
            .map(high_watermark::read)
            .transpose()
            .map_err(failed)?
            .flatten();
        self.watermark = told;
        told.ok_or_else(|| errors::corrupt(&path, 0, "is replaced while it is read; try again"))
    }

    /// Goes elsewhere.
    pub fn seek(&mut self, position: Position) -> Result<()> {
        (self.at, self.left) = (None, None);
        let watermark = self.look()?;
        self.next = match position {
            Position::Latest => watermark.end,
            Position::Earliest => self.start()?,
            // Behind the end, as Kafka does it: nothing is there to wait for.
            Position::Offset(offset) if offset > watermark.end => watermark.end,
            Position::Offset(offset) => offset.max(self.start()?),
            Position::Time(time_ms) => self
                .find_time(&watermark, time_ms)
                .map_err(|error| errors::io(&self.folder, "reading", &error))?,
        };
        Ok(())
    }

    /// The first offset that is kept.
    pub fn start(&self) -> Result<i64> {
        let listed = segment::list(&self.folder);
        let bases = listed.map_err(|error| errors::io(&self.folder, "listing", &error))?;
        Ok(bases.first().copied().unwrap_or_else(|| self.end()))
    }

    fn find_time(&self, watermark: &HighWatermark, time_ms: i64) -> io::Result<i64> {
        for base in segment::list(&self.folder)? {
            let file = File::open(segment::path(&self.folder, base))?;
            let limit = if base == watermark.base { watermark.pos } else { file.metadata()?.len() };
            if base == watermark.base && watermark.newest_ms < time_ms {
                break;
            }
            let entries = offset_index::load(&segment::index_path(&self.folder, base), limit);
            let mut at =
                offset_index::lookup_time(&entries, time_ms).map_or(segment::HEADER, |e| e.pos);
            let mut window = ScanWindow::new(&file, limit);
            let mut offset = base;
            while at < limit {
                let found = match window.frame_at(at)? {
                    Some(frame) => Some((at, frame)),
                    None => window.next_whole(at + 1, offset)?,
                };
                let Some((pos, frame)) = found else { break };
                if frame.timestamp_ms >= time_ms {
                    return Ok(frame.offset);
                }
                at = pos + frame.len as u64;
                offset = frame.offset + 1;
            }
        }
        Ok(watermark.end)
    }

    /// The next records; `None` while there are none.
    pub fn fetch(&mut self, limits: Limits) -> Result<Option<Chunk>> {
        if self.watermark.is_none_or(|watermark| self.next >= watermark.end) {
            let watermark = self.look()?;
            if self.next >= watermark.end {
                return Ok(None);
            }
        }
        self.try_fetch(limits).map_err(|error| errors::io(&self.folder, "reading", &error))
    }

    fn try_fetch(&mut self, limits: Limits) -> io::Result<Option<Chunk>> {
        loop {
            let Some(watermark) = self.watermark.filter(|watermark| self.next < watermark.end)
            else {
                return Ok(None);
            };
            let Some(mut at) = self.at.take().map_or_else(|| self.locate(), |at| Ok(Some(at)))?
            else {
                self.missing(&watermark);
                return Ok(None);
            };
            let limit = if at.base == watermark.base {
                watermark.pos.min(at.file.metadata()?.len())
            } else {
                at.file.metadata()?.len()
            };
            if at.pos >= limit {
                if !self.follow(&at, &watermark)? {
                    return Ok(None);
                }
                continue;
            }
            let chunk = self.read(&mut at, limit, limits)?;
            self.at = Some(at);
            if chunk.is_some() {
                return Ok(chunk);
            }
        }
    }

    /// Behind the last record of a segment: on to the next one. False at the
    /// end of all.
    fn follow(&mut self, at: &OpenSegment, watermark: &HighWatermark) -> io::Result<bool> {
        if at.base == watermark.base {
            self.missing(watermark);
            return Ok(false);
        }
        let bases = segment::list(&self.folder)?;
        let Some(base) = bases.iter().copied().find(|base| *base > at.base) else {
            self.missing(watermark);
            return Ok(false);
        };
        if bases.first() == Some(&base) {
            // What was between is no longer kept.
            self.next = self.next.max(base);
        }
        self.at = Some(self.enter(base)?);
        Ok(true)
    }

    /// Records that were written once and that no file has any more.
    fn missing(&mut self, watermark: &HighWatermark) {
        if !std::mem::take(&mut self.torn) {
            let path = segment::path(&self.folder, watermark.base);
            let what = format!("records {} to {} are gone", self.next, watermark.end - 1);
            self.tell(&path, watermark.pos, &what);
        }
        self.next = watermark.end;
    }

    /// Opens a segment at its first record.
    fn enter(&mut self, base: i64) -> io::Result<OpenSegment> {
        let path = segment::path(&self.folder, base);
        let file = File::open(&path)?;
        let ours = segment::created_ms(&file, base)?.is_some();
        if !ours {
            self.tell(&path, 0, "not the beginning of a segment of this log; left alone");
        }
        // What is whole in it is found all the same.
        Ok(OpenSegment { base, file, pos: if ours { segment::HEADER } else { 0 } })
    }

    /// Opens a segment where it was left, if it is the same.
    fn back(&self, left: &ClosedSegment) -> Option<OpenSegment> {
        let file = File::open(segment::path(&self.folder, left.base)).ok()?;
        let same = left.next == self.next && left.inode == files::inode_of(&file);
        same.then_some(OpenSegment { base: left.base, file, pos: left.pos })
    }

    /// Opens the segment in which the next record lies, at or before it.
    fn locate(&mut self) -> io::Result<Option<OpenSegment>> {
        if let Some(at) = self.left.take().and_then(|left| self.back(&left)) {
            return Ok(Some(at));
        }
        let bases = segment::list(&self.folder)?;
        let Some(first) = bases.first().copied() else { return Ok(None) };
        self.next = self.next.max(first);
        let after = bases.partition_point(|base| *base <= self.next);
        let base = bases[after.saturating_sub(1)];
        let mut at = self.enter(base)?;
        let limit = at.file.metadata()?.len();
        let entries = offset_index::load(&segment::index_path(&self.folder, base), limit);
        let mut window = ScanWindow::new(&at.file, limit);
        if let Some(entry) = offset_index::lookup_offset(&entries, self.next) {
            // The index is only believed where a record bears it out.
            if window.frame_at(entry.pos)?.is_some_and(|frame| frame.offset == entry.offset) {
                at.pos = entry.pos;
            }
        }
        let mut pos = at.pos;
        while let Some(frame) = window.frame_at(pos)?.filter(|frame| frame.offset < self.next) {
            pos += frame.len as u64;
        }
        Ok(Some(OpenSegment { pos, ..at }))
    }

    /// Reads records from one place of a segment; `None` when there were none
    /// and the place has moved on.
    fn read(
        &mut self,
        at: &mut OpenSegment,
        limit: u64,
        limits: Limits,
    ) -> io::Result<Option<Chunk>> {
        let wished = limits.records.saturating_mul(self.record_bytes + self.record_bytes / 8);
        let most = limits.bytes.clamp(1, READ_BYTES_MAX);
        let mut len = wished.clamp(READ_BYTES_MIN.min(most), most).min((limit - at.pos) as usize);
        loop {
            let data = files::read_vec(&at.file, len, at.pos)?;
            match self.collect(&data, limits, at) {
                Collected::Records(used) => {
                    at.pos += used as u64;
                    self.record_bytes = (used / self.frames.len().max(1)).max(record_frame::HEADER);
                    if self.frames.is_empty() {
                        return Ok(None);
                    }
                    return Ok(Some(self.chunk(data)));
                }
                // One record that is larger than what was read.
                Collected::Longer(need) if at.pos + need as u64 <= limit && need > len => {
                    len = need
                }
                Collected::Longer(_) | Collected::Damage => {
                    self.step_over(at, limit)?;
                    return Ok(None);
                }
            }
        }
    }

    fn collect(&mut self, data: &[u8], limits: Limits, at: &OpenSegment) -> Collected {
        self.frames.clear();
        let mut used = 0;
        while used < data.len() && self.frames.len() < limits.records.max(1) {
            match record_frame::parse(data, used) {
                ParsedFrame::Complete(frame) if frame.offset < self.next => used += frame.len,
                ParsedFrame::Complete(frame)
                    if frame.offset > self.next && self.frames.is_empty() =>
                {
                    self.gap(at, frame.offset);
                    used += frame.len;
                    self.next = frame.offset + 1;
                    self.frames.push(frame);
                }
                ParsedFrame::Complete(frame) if frame.offset == self.next => {
                    used += frame.len;
                    self.next += 1;
                    self.frames.push(frame);
                }
                // Told when it comes first.
                _ if used > 0 => break,
                ParsedFrame::Incomplete(need) => return Collected::Longer(need),
                _ => return Collected::Damage,
            }
        }
        Collected::Records(used)
    }

    fn chunk(&mut self, data: Vec<u8>) -> Chunk {
        // Headers are looked up before the data is given away.
        let mut headers: Vec<Vec<(Span, Span)>> = Vec::new();
        if self.frames.iter().any(|frame| frame.headers > 0) {
            headers
                .extend(self.frames.iter().map(|one| record_frame::headers(&data, one).collect()));
        }
        let mut headers = headers.into_iter();
        let mut builder = ChunkBuilder::over(data);
        for frame in &self.frames {
            let spans = headers.next().unwrap_or_default();
            builder.push_spans(frame.offset, frame.timestamp_ms, frame.key, frame.value, spans);
        }
        builder.finish()
    }

    /// From a place where no whole record lies to the next one.
    fn step_over(&mut self, at: &mut OpenSegment, limit: u64) -> io::Result<()> {
        let found = ScanWindow::new(&at.file, limit).next_whole(at.pos + 1, self.next)?;
        let (pos, until) = found.map_or((limit, None), |(pos, frame)| (pos, Some(frame.offset)));
        let path = segment::path(&self.folder, at.base);
        let bytes = pos - at.pos;
        match until {
            Some(offset) if offset == self.next => {
                self.tell(&path, at.pos, &format!("{bytes} bytes are no record; left out"));
            }
            Some(offset) => {
                let last = offset - 1;
                let what = format!(
                    "{bytes} bytes are damaged: records {} to {last} are left out",
                    self.next
                );
                self.tell(&path, at.pos, &what);
                self.next = offset;
            }
            None => {
                self.torn = true;
                let what = format!("{bytes} bytes to the end of the file are damaged; left out");
                self.tell(&path, at.pos, &what);
            }
        }
        at.pos = pos;
        Ok(())
    }

    fn gap(&mut self, at: &OpenSegment, offset: i64) {
        if !std::mem::take(&mut self.torn) {
            let path = segment::path(&self.folder, at.base);
            let what = format!("records {} to {} are gone", self.next, offset - 1);
            self.tell(&path, at.pos, &what);
        }
    }

    fn tell(&mut self, path: &Path, at: u64, what: &str) {
        let Partition { topic, number } = &self.partition;
        self.damage.push(errors::corrupt(path, at, &format!("{what} ({topic}/{number})")));
    }
}

enum Collected {
    /// So many bytes of whole records.
    Records(usize),
    /// The first record needs so many bytes.
    Longer(usize),
    Damage,
}

/// Looks at a partition as its next writer does.
fn recover(dir: &LogDir, partition: &Partition, folder: &Path, patience: Duration) -> Result<()> {
    let Partition { topic, number } = partition;
    let found = topics::get(dir, topic)?;
    if !(0..found.partitions).contains(number) {
        return Err(errors::unknown_partition(topic, *number, found.partitions));
    }
    let lock = PathLock::open(&folder.join("writer.lock"))?;
    let key = txn_log::partition_lock_key(topic, *number);
    let _held = txn_log::acquire(dir, &lock, &key, patience)?;
    PartitionWriter::open(folder)?.refresh(&found.config)
}
