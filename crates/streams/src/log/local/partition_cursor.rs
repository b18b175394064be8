//! Reads one partition from a position on, across segments, and skips damage.
//! It reads only up to the high watermark ([`super::high_watermark`]).

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
use crate::log::{ErrorKind, Limits, LogError, LostRecords, Partition, Position, Result};
use crate::record::{Chunk, ChunkBuilder, Span};

/// The assumed size of a record before any was read.
const RECORD_BYTES_GUESS: usize = 256;
const READ_BYTES_MIN: usize = 16 << 10;
/// The most bytes read at once, except for a larger record.
const READ_BYTES_MAX: usize = 32 << 20;

/// The longest wait for a writer that may be dead.
const RECOVER_WAIT_MAX: Duration = Duration::from_millis(200);

/// The segment that is being read.
struct OpenSegment {
    base: i64,
    file: File,
    pos: u64,
}

/// The position in a segment whose file was closed.
struct ClosedSegment {
    base: i64,
    pos: u64,
    /// The offset of the record at the position.
    next: i64,
    inode: Option<(u64, u64)>,
}

pub(super) struct PartitionCursor {
    dir: Arc<LogDir>,
    partition: Partition,
    folder: PathBuf,
    watermark_file: Option<File>,
    watermark: Option<HighWatermark>,
    /// The offset of the next record.
    next: i64,
    open: Option<OpenSegment>,
    closed: Option<ClosedSegment>,
    /// The average size of recent records.
    record_bytes: usize,
    frames: Vec<RecordFrame>,
    /// The damaged end of a segment that was skipped. The next record tells whether records were
    /// in it.
    torn: Option<String>,
    /// Damage that was skipped, without lost records, and is not reported yet.
    pub damage: Vec<LogError>,
    /// Lost records that were passed over and are not reported yet.
    lost: Option<LostRecords>,
}

impl PartitionCursor {
    pub fn open(dir: &Arc<LogDir>, partition: &Partition, from: Position) -> Result<Self> {
        let mut cursor = Self {
            dir: dir.clone(),
            partition: partition.clone(),
            folder: dir.partition(&partition.topic, partition.number),
            watermark_file: None,
            watermark: None,
            next: 0,
            open: None,
            closed: None,
            record_bytes: RECORD_BYTES_GUESS,
            frames: Vec::new(),
            torn: None,
            damage: Vec::new(),
            lost: None,
        };
        cursor.refresh()?;
        cursor.report_foreign_files()?;
        cursor.seek(from)?;
        Ok(cursor)
    }

    fn report_foreign_files(&mut self) -> Result<()> {
        let listed = segment::foreign(&self.folder);
        for path in listed.map_err(|error| errors::io(&self.folder, "listing", &error))? {
            let what = "its name is no offset that this log gives; left alone, move it elsewhere";
            self.report(&path, 0, what);
        }
        Ok(())
    }

    /// Publishes complete records that a killed writer has left behind the high watermark, unless
    /// another writer is at work. True if that changed the watermark.
    pub fn recover_tail(&mut self) -> Result<bool> {
        let Some(before) = self.watermark else { return Ok(false) };
        let path = segment::path(&self.folder, before.base);
        if !fs::metadata(path).is_ok_and(|found| found.len() > before.pos) {
            return Ok(false);
        }
        // Without the right to write, the watermark stays as it is.
        let _ = recover(&self.dir, &self.partition, &self.folder, RECOVER_WAIT_MAX);
        Ok(self.refresh()? != before)
    }

    /// The lost records before the last ones that were fetched; each is returned once.
    pub fn take_lost(&mut self) -> Option<LostRecords> {
        self.lost.take()
    }

    /// The log end offset, as last seen.
    pub fn end(&self) -> i64 {
        self.watermark.map_or(0, |watermark| watermark.end)
    }

    /// Closes all files; they are opened again when needed.
    pub fn close_files(&mut self) {
        if let Some(OpenSegment { base, file, pos }) = self.open.take() {
            let inode = files::inode_of(&file);
            self.closed = Some(ClosedSegment { base, pos, next: self.next, inode });
        }
        self.watermark_file = None;
    }

    /// Reads the high watermark.
    pub fn refresh(&mut self) -> Result<HighWatermark> {
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
            let stored = high_watermark::read(file).map_err(failed)?;
            if let Some(watermark) = stored.filter(|found| found.boot == files::boot_id()) {
                self.watermark = Some(watermark);
                return Ok(watermark);
            }
        }
        // Nobody has written since the machine booted, so this recovers the
        // partition as a writer does.
        recover(&self.dir, &self.partition, &self.folder, self.dir.answer_timeout())?;
        let file = self.watermark_file.insert(File::open(&path).map_err(failed)?);
        self.watermark = high_watermark::read(file).map_err(failed)?;
        self.watermark
            .ok_or_else(|| errors::corrupt(&path, 0, "is replaced while it is read; try again"))
    }

    pub fn seek(&mut self, position: Position) -> Result<()> {
        (self.open, self.closed) = (None, None);
        (self.torn, self.lost) = (None, None);
        let watermark = self.refresh()?;
        self.next = match position {
            Position::Latest => watermark.end,
            Position::Earliest => self.start()?,
            // An offset behind the end means the end, as with Kafka.
            Position::Offset(offset) if offset > watermark.end => watermark.end,
            Position::Offset(offset) => offset.max(self.start()?),
            Position::Time(time_ms) => self
                .find_time(&watermark, time_ms)
                .map_err(|error| errors::io(&self.folder, "reading", &error))?,
        };
        Ok(())
    }

    /// The log start offset.
    pub fn start(&self) -> Result<i64> {
        let listed = segment::list(&self.folder);
        let bases = listed.map_err(|error| errors::io(&self.folder, "listing", &error))?;
        Ok(bases.first().copied().unwrap_or_else(|| self.end()))
    }

    fn find_time(&self, watermark: &HighWatermark, time_ms: i64) -> io::Result<i64> {
        for base in segment::list(&self.folder)? {
            let file = File::open(segment::path(&self.folder, base))?;
            let is_active = base == watermark.base;
            let limit = if is_active { watermark.pos } else { file.metadata()?.len() };
            if is_active && watermark.newest_ms < time_ms {
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

    /// The next records; `None` if there are none.
    pub fn fetch(&mut self, limits: Limits) -> Result<Option<Chunk>> {
        loop {
            if self.watermark.is_none_or(|watermark| self.next >= watermark.end) {
                let watermark = self.refresh()?;
                if self.next >= watermark.end {
                    return Ok(None);
                }
            }
            let fetched = self.try_fetch(limits);
            let fetched = fetched.map_err(|error| errors::io(&self.folder, "reading", &error))?;
            if fetched.is_some() {
                return Ok(fetched);
            }
            // The rest up to the end as it was last seen is gone, and the partition has grown since.
        }
    }

    fn try_fetch(&mut self, limits: Limits) -> io::Result<Option<Chunk>> {
        loop {
            let Some(watermark) = self.watermark.filter(|found| self.next < found.end) else {
                return Ok(None);
            };
            let Some(mut open) = self.open.take().map_or_else(|| self.locate(), |o| Ok(Some(o)))?
            else {
                self.skip_to_end(&watermark);
                return Ok(None);
            };
            let mut limit = open.file.metadata()?.len();
            if open.base == watermark.base {
                limit = limit.min(watermark.pos);
            }
            if open.pos >= limit {
                if !self.enter_next(&open, &watermark)? {
                    return Ok(None);
                }
                continue;
            }
            let chunk = self.read(&mut open, limit, limits)?;
            self.open = Some(open);
            if chunk.is_some() {
                return Ok(chunk);
            }
        }
    }

    /// Continues with the segment behind this one; false if there is none.
    fn enter_next(&mut self, open: &OpenSegment, watermark: &HighWatermark) -> io::Result<bool> {
        let bases = match open.base == watermark.base {
            true => Vec::new(),
            false => segment::list(&self.folder)?,
        };
        let Some(base) = bases.iter().copied().find(|base| *base > open.base) else {
            self.skip_to_end(watermark);
            return Ok(false);
        };
        if bases.first() == Some(&base) {
            // The records in between have expired.
            self.next = self.next.max(base);
            self.torn = None;
        }
        self.open = Some(self.enter(base)?);
        Ok(true)
    }

    /// Skips records that no file contains any more.
    fn skip_to_end(&mut self, watermark: &HighWatermark) {
        self.lose(watermark.base, watermark.pos, watermark.end);
    }

    /// Opens a segment at its first record.
    fn enter(&mut self, base: i64) -> io::Result<OpenSegment> {
        let path = segment::path(&self.folder, base);
        let file = File::open(&path)?;
        let is_ours = segment::created_ms(&file, base)?.is_some();
        if !is_ours {
            self.report(&path, 0, "not the beginning of a segment of this log; left alone");
        }
        // Complete records in a foreign file are read all the same.
        Ok(OpenSegment { base, file, pos: if is_ours { segment::HEADER } else { 0 } })
    }

    /// Opens a closed segment again, if it is the same file.
    fn reopen(&self, closed: &ClosedSegment) -> Option<OpenSegment> {
        let file = File::open(segment::path(&self.folder, closed.base)).ok()?;
        let is_same = closed.next == self.next && closed.inode == files::inode_of(&file);
        is_same.then_some(OpenSegment { base: closed.base, file, pos: closed.pos })
    }

    /// Opens the segment of the next record, at or before the record.
    fn locate(&mut self) -> io::Result<Option<OpenSegment>> {
        if let Some(open) = self.closed.take().and_then(|closed| self.reopen(&closed)) {
            return Ok(Some(open));
        }
        let bases = segment::list(&self.folder)?;
        let Some(first) = bases.first().copied() else { return Ok(None) };
        self.next = self.next.max(first);
        let after = bases.partition_point(|base| *base <= self.next);
        let base = bases[after.saturating_sub(1)];
        let mut open = self.enter(base)?;
        let limit = open.file.metadata()?.len();
        let entries = offset_index::load(&segment::index_path(&self.folder, base), limit);
        let mut window = ScanWindow::new(&open.file, limit);
        if let Some(entry) = offset_index::lookup_offset(&entries, self.next) {
            // The index is used only if a record confirms it.
            if window.frame_at(entry.pos)?.is_some_and(|frame| frame.offset == entry.offset) {
                open.pos = entry.pos;
            }
        }
        let mut pos = open.pos;
        while let Some(frame) = window.frame_at(pos)?.filter(|frame| frame.offset < self.next) {
            pos += frame.len as u64;
        }
        Ok(Some(OpenSegment { pos, ..open }))
    }

    /// Reads records of one segment; `None` if it only skipped damage.
    fn read(
        &mut self,
        open: &mut OpenSegment,
        limit: u64,
        limits: Limits,
    ) -> io::Result<Option<Chunk>> {
        let wanted = limits.records.saturating_mul(self.record_bytes + self.record_bytes / 8);
        let most = limits.bytes.clamp(1, READ_BYTES_MAX);
        let mut len = wanted.clamp(READ_BYTES_MIN.min(most), most).min((limit - open.pos) as usize);
        loop {
            let data = files::read_vec(&open.file, len, open.pos)?;
            match self.collect(&data, limits, open) {
                Collected::Records(used) => {
                    open.pos += used as u64;
                    self.record_bytes = (used / self.frames.len().max(1)).max(record_frame::HEADER);
                    if self.frames.is_empty() {
                        return Ok(None);
                    }
                    return Ok(Some(self.chunk(data)));
                }
                // One record that is larger than what was read.
                Collected::TooShort(need) if open.pos + need as u64 <= limit && need > len => {
                    len = need;
                }
                Collected::TooShort(_) | Collected::Damage => {
                    self.skip_damage(open, limit)?;
                    return Ok(None);
                }
            }
        }
    }

    fn collect(&mut self, data: &[u8], limits: Limits, open: &OpenSegment) -> Collected {
        self.frames.clear();
        let mut used = 0;
        while used < data.len() && self.frames.len() < limits.records.max(1) {
            match record_frame::parse(data, used) {
                ParsedFrame::Complete(frame) if frame.offset < self.next => used += frame.len,
                ParsedFrame::Complete(frame)
                    if frame.offset > self.next && self.frames.is_empty() =>
                {
                    self.lose(open.base, open.pos, frame.offset);
                    used += frame.len;
                    self.next = frame.offset + 1;
                    self.frames.push(frame);
                }
                ParsedFrame::Complete(frame) if frame.offset == self.next => {
                    let torn = self.torn.take();
                    self.damage.extend(torn.map(|why| LogError::new(ErrorKind::Corrupt, why)));
                    used += frame.len;
                    self.next += 1;
                    self.frames.push(frame);
                }
                // It is reported when it comes first.
                _ if used > 0 => break,
                ParsedFrame::Incomplete(need) => return Collected::TooShort(need),
                _ => return Collected::Damage,
            }
        }
        Collected::Records(used)
    }

    fn chunk(&mut self, data: Vec<u8>) -> Chunk {
        // Headers are located before the builder takes the data.
        let mut headers: Vec<Vec<(Span, Span)>> = Vec::new();
        if self.frames.iter().any(|frame| frame.headers > 0) {
            let spans = |frame: &RecordFrame| record_frame::headers(&data, frame).collect();
            headers.extend(self.frames.iter().map(spans));
        }
        let mut headers = headers.into_iter();
        let mut builder = ChunkBuilder::over(data);
        for frame in &self.frames {
            let spans = headers.next().unwrap_or_default();
            builder.push_spans(frame.offset, frame.timestamp_ms, frame.key, frame.value, spans);
        }
        builder.finish()
    }

    /// Continues with the next complete record of the segment.
    fn skip_damage(&mut self, open: &mut OpenSegment, limit: u64) -> io::Result<()> {
        let found = ScanWindow::new(&open.file, limit).next_whole(open.pos + 1, self.next)?;
        let (pos, until) = found.map_or((limit, None), |(pos, frame)| (pos, Some(frame.offset)));
        let path = segment::path(&self.folder, open.base);
        let bytes = pos - open.pos;
        match until {
            Some(offset) if offset == self.next => {
                self.report(&path, open.pos, &format!("{bytes} bytes are no record; left out"));
            }
            found => {
                let where_to = if found.is_some() { "" } else { " to the end of the file" };
                let what = format!("{bytes} bytes{where_to} are damaged ({})", self.partition);
                self.torn = Some(errors::corrupt(&path, open.pos, &what).message);
                if let Some(offset) = found {
                    self.lose(open.base, open.pos, offset);
                }
            }
        }
        open.pos = pos;
        Ok(())
    }

    /// Passes over lost records up to this offset, which should stand at this position.
    fn lose(&mut self, base: i64, pos: u64, until: i64) {
        let why = self.torn.take().unwrap_or_else(|| {
            let what = format!("the files end before, or go on with offset {until}");
            errors::corrupt(&segment::path(&self.folder, base), pos, &what).message
        });
        let lost = LostRecords { from: self.next, until, why };
        self.lost.get_or_insert(lost).until = until;
        self.next = until;
    }

    fn report(&mut self, path: &Path, at: u64, what: &str) {
        self.damage.push(errors::corrupt(path, at, &format!("{what} ({})", self.partition)));
    }
}

enum Collected {
    /// This many bytes of complete records.
    Records(usize),
    /// The first record needs this many bytes.
    TooShort(usize),
    Damage,
}

/// Recovers a partition as its next writer does.
fn recover(dir: &LogDir, partition: &Partition, folder: &Path, timeout: Duration) -> Result<()> {
    let topic = topics::get_with(dir, partition)?;
    let lock = PathLock::open(&folder.join("writer.lock"))?;
    let key = txn_log::partition_lock_key(&partition.topic, partition.number);
    let _held = txn_log::acquire(dir, &lock, &key, timeout)?;
    PartitionWriter::open(folder)?.refresh(&topic.config)
}
