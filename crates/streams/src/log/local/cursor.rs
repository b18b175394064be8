//! Reads one partition from a place on, over segments and over damage. Reads
//! only what its writers have told to be whole ([`super::head`]).

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::frame::{self, Frame, Look};
use super::head::{self, Head};
use super::lock::FileLock;
use super::place::Place;
use super::scan::Window;
use super::writer::Writer;
use super::{failure, files, index, intents, segment, topics};
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
struct At {
    base: i64,
    file: File,
    pos: u64,
}

/// A place in a segment that is not open.
struct Left {
    base: i64,
    pos: u64,
    /// The offset that came next there.
    next: i64,
    inode: Option<(u64, u64)>,
}

/// See above.
pub(super) struct Cursor {
    place: Arc<Place>,
    partition: Partition,
    folder: PathBuf,
    head_file: Option<File>,
    head: Option<Head>,
    /// The offset that comes next.
    next: i64,
    at: Option<At>,
    /// Where that was when its file was closed.
    left: Option<Left>,
    /// Bytes of a record, as seen lately.
    record_bytes: usize,
    frames: Vec<Frame>,
    /// The end of a segment was damaged, and that was told: which records are
    /// missing for it need not be.
    torn: bool,
    /// Damage that was stepped over and not told yet.
    pub damage: Vec<LogError>,
}

impl Cursor {
    /// Over a partition that is there.
    pub fn open(place: &Arc<Place>, partition: &Partition, from: Position) -> Result<Self> {
        let mut cursor = Self {
            place: place.clone(),
            partition: partition.clone(),
            folder: place.partition(&partition.topic, partition.number),
            head_file: None,
            head: None,
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
        for path in listed.map_err(|error| failure::of(&self.folder, "listing", &error))? {
            let what = "its name is no offset that this log gives; left alone, move it elsewhere";
            self.tell(&path, 0, what);
        }
        Ok(())
    }

    /// A writer that was killed may have left whole records that it had not
    /// told of: the next one tells, and so does this, unless one is at it.
    /// True when that made a difference.
    pub fn settle(&mut self) -> Result<bool> {
        let Some(before) = self.head else { return Ok(false) };
        let path = segment::path(&self.folder, before.base);
        if !fs::metadata(path).is_ok_and(|found| found.len() > before.pos) {
            return Ok(false);
        }
        // Who may not write sees what was told.
        let _ = recover(&self.place, &self.partition, &self.folder, SETTLE_MAX);
        Ok(self.look()? != before)
    }

    /// The first offset that is not written, as last heard.
    pub fn end(&self) -> i64 {
        self.head.map_or(0, |head| head.end)
    }

    /// Gives descriptors back; they are opened again when needed.
    pub fn rest(&mut self) {
        if let Some(At { base, file, pos }) = self.at.take() {
            let inode = files::inode_of(&file);
            self.left = Some(Left { base, pos, next: self.next, inode });
        }
        self.head_file = None;
    }

    /// Hears how far the partition is written.
    pub fn look(&mut self) -> Result<Head> {
        let path = head::path(&self.folder);
        let failed = |error| failure::of(&path, "reading", &error);
        if self.head_file.is_none() {
            match File::open(&path) {
                Ok(file) => self.head_file = Some(file),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(failed(error)),
            }
        }
        if let Some(file) = &self.head_file {
            let told = head::read(file).map_err(failed)?;
            if let Some(head) = told.filter(|head| head.boot == files::boot()) {
                self.head = Some(head);
                return Ok(head);
            }
        }
        // Nobody has written since the machine was started: what there is is
        // looked at as a writer does.
        recover(&self.place, &self.partition, &self.folder, self.place.patience())?;
        self.head_file = Some(File::open(&path).map_err(failed)?);
        let told = self.head_file.as_ref().map(head::read).transpose().map_err(failed)?.flatten();
        self.head = told;
        told.ok_or_else(|| failure::corrupt(&path, 0, "is replaced while it is read; try again"))
    }

    /// Goes elsewhere.
    pub fn seek(&mut self, position: Position) -> Result<()> {
        (self.at, self.left) = (None, None);
        let head = self.look()?;
        self.next = match position {
            Position::Latest => head.end,
            Position::Earliest => self.start()?,
            // Behind the end, as Kafka does it: nothing is there to wait for.
            Position::Offset(offset) if offset > head.end => head.end,
            Position::Offset(offset) => offset.max(self.start()?),
            Position::Time(time_ms) => self
                .find_time(&head, time_ms)
                .map_err(|error| failure::of(&self.folder, "reading", &error))?,
        };
        Ok(())
    }

    /// The first offset that is kept.
    pub fn start(&self) -> Result<i64> {
        let listed = segment::list(&self.folder);
        let bases = listed.map_err(|error| failure::of(&self.folder, "listing", &error))?;
        Ok(bases.first().copied().unwrap_or_else(|| self.end()))
    }

    fn find_time(&self, head: &Head, time_ms: i64) -> io::Result<i64> {
        for base in segment::list(&self.folder)? {
            let file = File::open(segment::path(&self.folder, base))?;
            let limit = if base == head.base { head.pos } else { file.metadata()?.len() };
            if base == head.base && head.newest_ms < time_ms {
                break;
            }
            let entries = index::load(&segment::index_path(&self.folder, base), limit);
            let mut at = index::before_time(&entries, time_ms).map_or(segment::HEADER, |e| e.pos);
            let mut window = Window::new(&file, limit);
            let mut offset = base;
            while at < limit {
                let found = match window.frame(at)? {
                    Some(frame) => Some((at, frame)),
                    None => window.next_whole(at + 1, offset)?,
                };
                let Some((place, frame)) = found else { break };
                if frame.timestamp_ms >= time_ms {
                    return Ok(frame.offset);
                }
                at = place + frame.len as u64;
                offset = frame.offset + 1;
            }
        }
        Ok(head.end)
    }

    /// The next records; `None` while there are none.
    pub fn fetch(&mut self, limits: Limits) -> Result<Option<Chunk>> {
        if self.head.is_none_or(|head| self.next >= head.end) {
            let head = self.look()?;
            if self.next >= head.end {
                return Ok(None);
            }
        }
        self.try_fetch(limits).map_err(|error| failure::of(&self.folder, "reading", &error))
    }

    fn try_fetch(&mut self, limits: Limits) -> io::Result<Option<Chunk>> {
        loop {
            let Some(head) = self.head.filter(|head| self.next < head.end) else { return Ok(None) };
            let Some(mut at) = self.at.take().map_or_else(|| self.locate(), |at| Ok(Some(at)))?
            else {
                self.missing(&head);
                return Ok(None);
            };
            let limit = if at.base == head.base {
                head.pos.min(at.file.metadata()?.len())
            } else {
                at.file.metadata()?.len()
            };
            if at.pos >= limit {
                if !self.follow(&at, &head)? {
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
    fn follow(&mut self, at: &At, head: &Head) -> io::Result<bool> {
        if at.base == head.base {
            self.missing(head);
            return Ok(false);
        }
        let bases = segment::list(&self.folder)?;
        let Some(base) = bases.iter().copied().find(|base| *base > at.base) else {
            self.missing(head);
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
    fn missing(&mut self, head: &Head) {
        if !std::mem::take(&mut self.torn) {
            let path = segment::path(&self.folder, head.base);
            let what = format!("records {} to {} are gone", self.next, head.end - 1);
            self.tell(&path, head.pos, &what);
        }
        self.next = head.end;
    }

    /// Opens a segment at its first record.
    fn enter(&mut self, base: i64) -> io::Result<At> {
        let path = segment::path(&self.folder, base);
        let file = File::open(&path)?;
        let ours = segment::created_ms(&file, base)?.is_some();
        if !ours {
            self.tell(&path, 0, "not the beginning of a segment of this log; left alone");
        }
        // What is whole in it is found all the same.
        Ok(At { base, file, pos: if ours { segment::HEADER } else { 0 } })
    }

    /// Opens a segment where it was left, if it is the same.
    fn back(&self, left: &Left) -> Option<At> {
        let file = File::open(segment::path(&self.folder, left.base)).ok()?;
        let same = left.next == self.next && left.inode == files::inode_of(&file);
        same.then_some(At { base: left.base, file, pos: left.pos })
    }

    /// Opens the segment in which the next record lies, at or before it.
    fn locate(&mut self) -> io::Result<Option<At>> {
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
        let entries = index::load(&segment::index_path(&self.folder, base), limit);
        let mut window = Window::new(&at.file, limit);
        if let Some(entry) = index::before_offset(&entries, self.next) {
            // The index is only believed where a record bears it out.
            if window.frame(entry.pos)?.is_some_and(|frame| frame.offset == entry.offset) {
                at.pos = entry.pos;
            }
        }
        let mut pos = at.pos;
        while let Some(frame) = window.frame(pos)?.filter(|frame| frame.offset < self.next) {
            pos += frame.len as u64;
        }
        Ok(Some(At { pos, ..at }))
    }

    /// Reads records from one place of a segment; `None` when there were none
    /// and the place has moved on.
    fn read(&mut self, at: &mut At, limit: u64, limits: Limits) -> io::Result<Option<Chunk>> {
        let wished = limits.records.saturating_mul(self.record_bytes + self.record_bytes / 8);
        let most = limits.bytes.clamp(1, READ_BYTES_MAX);
        let mut len = wished.clamp(READ_BYTES_MIN.min(most), most).min((limit - at.pos) as usize);
        loop {
            let data = files::read_vec(&at.file, len, at.pos)?;
            match self.collect(&data, limits, at) {
                Found::Records(used) => {
                    at.pos += used as u64;
                    self.record_bytes = (used / self.frames.len().max(1)).max(frame::HEAD);
                    if self.frames.is_empty() {
                        return Ok(None);
                    }
                    return Ok(Some(self.chunk(data)));
                }
                // One record that is larger than what was read.
                Found::Longer(need) if at.pos + need as u64 <= limit && need > len => len = need,
                Found::Longer(_) | Found::Damage => {
                    self.step_over(at, limit)?;
                    return Ok(None);
                }
            }
        }
    }

    fn collect(&mut self, data: &[u8], limits: Limits, at: &At) -> Found {
        self.frames.clear();
        let mut used = 0;
        while used < data.len() && self.frames.len() < limits.records.max(1) {
            match frame::look(data, used) {
                Look::Whole(frame) if frame.offset < self.next => used += frame.len,
                Look::Whole(frame) if frame.offset > self.next && self.frames.is_empty() => {
                    self.gap(at, frame.offset);
                    used += frame.len;
                    self.next = frame.offset + 1;
                    self.frames.push(frame);
                }
                Look::Whole(frame) if frame.offset == self.next => {
                    used += frame.len;
                    self.next += 1;
                    self.frames.push(frame);
                }
                // Told when it comes first.
                _ if used > 0 => break,
                Look::Short(need) => return Found::Longer(need),
                _ => return Found::Damage,
            }
        }
        Found::Records(used)
    }

    fn chunk(&mut self, data: Vec<u8>) -> Chunk {
        // Headers are looked up before the data is given away.
        let mut headers: Vec<Vec<(Span, Span)>> = Vec::new();
        if self.frames.iter().any(|frame| frame.headers > 0) {
            headers.extend(self.frames.iter().map(|one| frame::headers(&data, one).collect()));
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
    fn step_over(&mut self, at: &mut At, limit: u64) -> io::Result<()> {
        let found = Window::new(&at.file, limit).next_whole(at.pos + 1, self.next)?;
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

    fn gap(&mut self, at: &At, offset: i64) {
        if !std::mem::take(&mut self.torn) {
            let path = segment::path(&self.folder, at.base);
            let what = format!("records {} to {} are gone", self.next, offset - 1);
            self.tell(&path, at.pos, &what);
        }
    }

    fn tell(&mut self, path: &Path, at: u64, what: &str) {
        let Partition { topic, number } = &self.partition;
        self.damage.push(failure::corrupt(path, at, &format!("{what} ({topic}/{number})")));
    }
}

enum Found {
    /// So many bytes of whole records.
    Records(usize),
    /// The first record needs so many bytes.
    Longer(usize),
    Damage,
}

/// Looks at a partition as its next writer does.
fn recover(place: &Place, partition: &Partition, folder: &Path, patience: Duration) -> Result<()> {
    let Partition { topic, number } = partition;
    let found = topics::get(place, topic)?;
    if !(0..found.partitions).contains(number) {
        return Err(failure::unknown_partition(topic, *number, found.partitions));
    }
    let lock = FileLock::open(&folder.join("writer.lock"))?;
    let key = intents::partition_key(topic, *number);
    let _held = intents::hold(place, &lock, &key, patience)?;
    Writer::open(folder)?.refresh(&found.rules)
}
