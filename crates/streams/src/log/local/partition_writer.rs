//! Appends to one partition. All calls are made under the partition's lock;
//! [`PartitionWriter::refresh`] picks up what other processes have written.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::high_watermark::{self, HighWatermark};
use super::offset_index::{self, IndexEntry, INTERVAL_BYTES};
use super::scan::{scan, ScanStart};
use super::topic_config::TopicConfig;
use super::{errors, files, record_frame, retention, segment};
use crate::log::{LogError, Result};

struct ActiveSegment {
    file: File,
    index: File,
    created_ms: i64,
}

/// The result of an append: the first `count` records are written, from offset `first` on.
#[derive(Debug)]
pub(super) struct AppendResult {
    pub first: i64,
    pub count: usize,
    pub error: Option<LogError>,
}

/// Records that have their offsets and go into one segment.
#[derive(Debug)]
pub(super) struct SealedFrames {
    pub len: usize,
    pub count: usize,
    newest_ms: i64,
    entries: Vec<IndexEntry>,
}

pub(super) struct PartitionWriter {
    folder: PathBuf,
    boot: u64,
    watermark_file: File,
    watermark: HighWatermark,
    active: Option<ActiveSegment>,
}

impl PartitionWriter {
    pub fn open(folder: &Path) -> Result<Self> {
        let path = high_watermark::path(folder);
        let watermark_file =
            files::open_or_create(&path).map_err(|error| errors::io(&path, "opening", &error))?;
        let watermark =
            HighWatermark { boot: 0, end: 0, base: 0, pos: 0, newest_ms: i64::MIN, indexed: 0 };
        let boot = files::boot_id();
        Ok(Self { folder: folder.into(), boot, watermark_file, watermark, active: None })
    }

    /// The log end offset, after [`PartitionWriter::refresh`].
    pub fn end(&self) -> i64 {
        self.watermark.end
    }

    /// Whether the partition's files were removed or replaced, so that nobody
    /// could read what is written here.
    pub fn is_gone(&self) -> bool {
        let open = files::inode_of(&self.watermark_file);
        open.is_none() || open != files::inode(&high_watermark::path(&self.folder))
    }

    /// Picks up what other processes have written, and repairs what a crash of
    /// a process or of the machine has left.
    pub fn refresh(&mut self, config: &TopicConfig) -> Result<()> {
        self.try_refresh(config).map_err(|error| errors::io(&self.folder, "opening", &error))
    }

    fn try_refresh(&mut self, config: &TopicConfig) -> io::Result<()> {
        let stored = high_watermark::read(&self.watermark_file)?;
        if let (Some(watermark), Some(active)) = (stored, &self.active) {
            if watermark == self.watermark && active.file.metadata()?.len() == watermark.pos {
                return Ok(());
            }
        }
        self.recover(stored, config)
    }

    fn recover(&mut self, stored: Option<HighWatermark>, config: &TopicConfig) -> io::Result<()> {
        self.active = None;
        let stored_end = stored.map_or(0, |watermark| watermark.end);
        let Some(base) = segment::list(&self.folder)?.pop() else {
            self.watermark.end = stored_end;
            return self.roll(stored_end, config);
        };
        let path = segment::path(&self.folder, base);
        let file = OpenOptions::new().read(true).write(true).open(&path)?;
        let Some(created_ms) = segment::created_ms(&file, base)? else {
            // The foreign file is left alone; readers report it and read the
            // complete records in it.
            let size = file.metadata()?.len();
            let found = scan(&file, ScanStart { pos: 0, ..ScanStart::start(base) }, size)?;
            let behind = base.checked_add(1).ok_or(io::ErrorKind::InvalidData)?;
            self.watermark.end = stored_end.max(found.end).max(behind);
            return self.roll(self.watermark.end, config);
        };
        let size = file.metadata()?.len();
        let of_segment = stored.filter(|watermark| watermark.base == base);
        let published = of_segment.filter(|it| it.boot == self.boot && it.pos <= size);
        let from = match published {
            Some(watermark) => ScanStart {
                pos: watermark.pos,
                offset: watermark.end,
                newest_ms: watermark.newest_ms,
            },
            None => ScanStart::start(base),
        };
        let found = scan(&file, from, size)?;
        if size > found.pos {
            if of_segment.is_some_and(|watermark| watermark.pos > found.pos) {
                save_tail(&file, &path, found.pos, size)?;
            }
            file.set_len(found.pos)?;
        }
        if config.durable && (size > from.pos || published.is_none()) {
            // A killed writer may not have synced what is published below, nor the segment's name.
            files::sync(&file, &path)?;
            files::sync_folder(&self.folder)?;
        }
        let index_path = segment::index_path(&self.folder, base);
        let mut index = offset_index::open(&index_path, found.pos)?;
        let indexed = offset_index::load(&index_path, found.pos)
            .last()
            .map_or(segment::HEADER, |entry| entry.pos);
        let missing: Vec<_> = found.entries.into_iter().filter(|e| e.pos > indexed).collect();
        offset_index::append(&mut index, &missing)?;
        self.watermark = HighWatermark {
            boot: self.boot,
            // The offsets of lost records are not used again, because readers may have passed them.
            end: found.end.max(stored_end),
            base,
            pos: found.pos,
            newest_ms: found.newest_ms,
            indexed: missing.last().map_or(indexed, |entry| entry.pos),
        };
        if stored != Some(self.watermark) {
            high_watermark::write(&self.watermark_file, &self.watermark)?;
        }
        let written = file.metadata()?.modified()?;
        self.active = Some(ActiveSegment { file, index, created_ms });
        if found.pos > segment::HEADER && retention::has_expired(written, config) {
            return self.roll(self.watermark.end, config);
        }
        retention::apply(&self.folder, config, base)
    }

    /// Begins a new active segment.
    fn roll(&mut self, base: i64, config: &TopicConfig) -> io::Result<()> {
        let file = segment::create(&self.folder, base, config.durable)?;
        let index = offset_index::open(&segment::index_path(&self.folder, base), 0)?;
        self.watermark = HighWatermark {
            boot: self.boot,
            end: base,
            base,
            pos: segment::HEADER,
            newest_ms: i64::MIN,
            indexed: segment::HEADER,
        };
        high_watermark::write(&self.watermark_file, &self.watermark)?;
        self.active = Some(ActiveSegment { file, index, created_ms: files::now_ms() });
        retention::apply(&self.folder, config, base)
    }

    /// Begins a new segment if the active one is too old, or too full for this many bytes.
    pub fn roll_if_full(&mut self, len: usize, config: &TopicConfig) -> Result<()> {
        let used = self.watermark.pos > segment::HEADER;
        let full = self.watermark.pos + len as u64 > config.segment_bytes;
        let old = match (&self.active, config.segment_ms) {
            (Some(active), Some(limit)) => {
                files::now_ms() - active.created_ms > i64::try_from(limit).unwrap_or(i64::MAX)
            }
            _ => false,
        };
        if used && (full || old) {
            let end = self.watermark.end;
            self.roll(end, config)
                .map_err(|error| errors::io(&self.folder, "beginning a segment", &error))?;
        }
        Ok(())
    }

    /// Sets the offsets of as many records as fit into `room` bytes, at least of one.
    pub fn seal(&self, frames: &mut [u8], room: u64) -> SealedFrames {
        let newest_ms = self.watermark.newest_ms;
        let mut sealed = SealedFrames { len: 0, count: 0, newest_ms, entries: Vec::new() };
        let mut indexed = self.watermark.indexed;
        while sealed.len < frames.len() {
            let rest = &mut frames[sealed.len..];
            if sealed.count > 0 && (sealed.len + record_frame::len_of(rest)) as u64 > room {
                break;
            }
            let offset = self.watermark.end + sealed.count as i64;
            let pos = self.watermark.pos + sealed.len as u64;
            if pos >= indexed + INTERVAL_BYTES {
                sealed.entries.push(IndexEntry { offset, pos, newest_ms: sealed.newest_ms });
                indexed = pos;
            }
            let (len, timestamp_ms) = record_frame::seal(rest, offset);
            sealed.newest_ms = sealed.newest_ms.max(timestamp_ms);
            sealed.len += len;
            sealed.count += 1;
        }
        sealed
    }

    /// Writes sealed records durably behind the high watermark, where readers
    /// do not see them yet. After an error nothing of them is left.
    pub fn stage(&mut self, frames: &[u8], config: &TopicConfig) -> Result<()> {
        let Some(active) = &self.active else { return Ok(()) };
        let mut done = active.file.write_all_at(frames, self.watermark.pos);
        if done.is_ok() && config.durable {
            done = active.file.sync_data();
        }
        done.map_err(|error| {
            self.unstage();
            errors::io(&segment::path(&self.folder, self.watermark.base), "writing", &error)
        })
    }

    /// Removes staged records. If that fails, the next [`PartitionWriter::refresh`] removes them,
    /// because the file is then longer than its watermark.
    pub fn unstage(&mut self) {
        let cut = self.active.as_ref().map(|active| active.file.set_len(self.watermark.pos));
        if !matches!(cut, Some(Ok(()))) {
            self.active = None;
        }
    }

    /// Makes staged records visible.
    pub fn publish(&mut self, sealed: &SealedFrames) -> Result<()> {
        let mut watermark = self.watermark;
        watermark.end += sealed.count as i64;
        watermark.pos += sealed.len as u64;
        watermark.newest_ms = sealed.newest_ms;
        if let (Some(active), Some(last)) = (&mut self.active, sealed.entries.last()) {
            // A missing entry only makes lookups slower.
            let _ = offset_index::append(&mut active.index, &sealed.entries);
            watermark.indexed = last.pos;
        }
        high_watermark::write(&self.watermark_file, &watermark)
            .map_err(|error| errors::io(&high_watermark::path(&self.folder), "writing", &error))?;
        self.watermark = watermark;
        Ok(())
    }

    /// Appends records, over as many segments as needed.
    pub fn append(&mut self, frames: &mut [u8], config: &TopicConfig) -> AppendResult {
        let mut result = AppendResult { first: self.watermark.end, count: 0, error: None };
        let mut at = 0;
        while at < frames.len() {
            match self.append_to_segment(&mut frames[at..], config) {
                Ok(sealed) => {
                    at += sealed.len;
                    result.count += sealed.count;
                }
                Err(error) => {
                    result.error = Some(error);
                    break;
                }
            }
        }
        result
    }

    fn append_to_segment(
        &mut self,
        frames: &mut [u8],
        config: &TopicConfig,
    ) -> Result<SealedFrames> {
        self.roll_if_full(record_frame::len_of(frames), config)?;
        let room = config.segment_bytes.saturating_sub(self.watermark.pos);
        let sealed = self.seal(frames, room);
        self.stage(&frames[..sealed.len], config)?;
        self.publish(&sealed)?;
        Ok(sealed)
    }
}

/// Copies acknowledged bytes that can no longer be read to a file of their own.
fn save_tail(file: &File, path: &Path, pos: u64, size: u64) -> io::Result<()> {
    let tail = files::read_vec(file, (size - pos) as usize, pos)?;
    fs::write(files::with_suffix(path, &format!(".{pos}.damaged")), tail)
}
