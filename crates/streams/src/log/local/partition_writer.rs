//! Writes one partition. Every call is made under the partition's lock; what
//! other processes wrote meanwhile is seen by [`PartitionWriter::refresh`].

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

/// The place that is written to.
struct ActiveSegment {
    file: File,
    index: File,
    created_ms: i64,
}

/// What became of records that were to be written: the first `count` of them
/// are, from offset `first` on.
#[derive(Debug)]
pub(super) struct AppendResult {
    pub first: i64,
    pub count: usize,
    pub error: Option<LogError>,
}

/// Records that go into the current segment in one piece.
#[derive(Debug)]
pub(super) struct SealedFrames {
    pub len: usize,
    pub count: usize,
    newest_ms: i64,
    entries: Vec<IndexEntry>,
}

/// See above.
pub(super) struct PartitionWriter {
    folder: PathBuf,
    boot: u64,
    watermark_file: File,
    watermark: HighWatermark,
    current: Option<ActiveSegment>,
}

impl PartitionWriter {
    /// Of a partition's folder.
    pub fn open(folder: &Path) -> Result<Self> {
        let path = high_watermark::path(folder);
        let watermark_file =
            files::open_or_create(&path).map_err(|error| errors::io(&path, "opening", &error))?;
        let watermark =
            HighWatermark { boot: 0, end: 0, base: 0, pos: 0, newest_ms: i64::MIN, indexed: 0 };
        Ok(Self {
            folder: folder.into(),
            boot: files::boot_id(),
            watermark_file,
            watermark,
            current: None,
        })
    }

    /// The first offset that is not written. After [`PartitionWriter::refresh`].
    pub fn end(&self) -> i64 {
        self.watermark.end
    }

    /// Whether the partition's files were removed, or are others now: what
    /// would be written here nobody could read.
    pub fn is_gone(&self) -> bool {
        let open = files::inode_of(&self.watermark_file);
        open.is_none() || open != files::inode(&high_watermark::path(&self.folder))
    }

    /// Sees what others have written, and puts right what one who died, or
    /// the machine, has left half done.
    pub fn refresh(&mut self, config: &TopicConfig) -> Result<()> {
        self.try_refresh(config).map_err(|error| errors::io(&self.folder, "opening", &error))
    }

    fn try_refresh(&mut self, config: &TopicConfig) -> io::Result<()> {
        let told = high_watermark::read(&self.watermark_file)?;
        if let (Some(watermark), Some(current)) = (told, &self.current) {
            if watermark == self.watermark && current.file.metadata()?.len() == watermark.pos {
                return Ok(());
            }
        }
        self.recover(told, config)
    }

    fn recover(&mut self, told: Option<HighWatermark>, config: &TopicConfig) -> io::Result<()> {
        self.current = None;
        let end_told = told.map_or(0, |watermark| watermark.end);
        let Some(base) = segment::list(&self.folder)?.pop() else {
            self.watermark.end = end_told;
            return self.roll(end_told, config);
        };
        let path = segment::path(&self.folder, base);
        let file = OpenOptions::new().read(true).write(true).open(&path)?;
        let Some(created_ms) = segment::created_ms(&file, base)? else {
            // Left alone; readers tell of it and read what is whole in it.
            let size = file.metadata()?.len();
            let whole = scan(&file, ScanStart { pos: 0, ..ScanStart::start(base) }, size)?;
            let behind = base.checked_add(1).ok_or(io::ErrorKind::InvalidData)?;
            self.watermark.end = end_told.max(whole.end).max(behind);
            return self.roll(self.watermark.end, config);
        };
        let size = file.metadata()?.len();
        let here = told.filter(|watermark| watermark.base == base);
        let from = match here {
            Some(watermark) if watermark.boot == self.boot && watermark.pos <= size => ScanStart {
                pos: watermark.pos,
                offset: watermark.end,
                newest_ms: watermark.newest_ms,
            },
            _ => ScanStart::start(base),
        };
        let whole = scan(&file, from, size)?;
        if size > whole.pos {
            if here.is_some_and(|watermark| watermark.pos > whole.pos) {
                save_tail(&file, &path, whole.pos, size)?;
            }
            file.set_len(whole.pos)?;
            if config.durable {
                file.sync_all()?;
            }
        }
        let index_path = segment::index_path(&self.folder, base);
        let mut index = offset_index::open(&index_path, whole.pos)?;
        let indexed =
            offset_index::load(&index_path, whole.pos).last().map_or(segment::HEADER, |e| e.pos);
        let missing: Vec<_> = whole.entries.into_iter().filter(|e| e.pos > indexed).collect();
        offset_index::append(&mut index, &missing)?;
        self.watermark = HighWatermark {
            boot: self.boot,
            // Offsets of records that were acknowledged and are gone are not
            // given again: readers may have come past them.
            end: whole.end.max(end_told),
            base,
            pos: whole.pos,
            newest_ms: whole.newest_ms,
            indexed: missing.last().map_or(indexed, |entry| entry.pos),
        };
        if told != Some(self.watermark) {
            high_watermark::write(&self.watermark_file, &self.watermark)?;
        }
        let written = file.metadata()?.modified()?;
        self.current = Some(ActiveSegment { file, index, created_ms });
        if whole.pos > segment::HEADER && retention::has_expired(written, config) {
            return self.roll(self.watermark.end, config);
        }
        retention::apply(&self.folder, config, base)
    }

    /// Goes on in a new segment.
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
        self.current = Some(ActiveSegment { file, index, created_ms: files::now_ms() });
        retention::apply(&self.folder, config, base)
    }

    /// Makes sure that records of so many bytes may go into the current
    /// segment, by beginning a new one where it is too full or too old.
    pub fn roll_if_full(&mut self, len: usize, config: &TopicConfig) -> Result<()> {
        let used = self.watermark.pos > segment::HEADER;
        let full = self.watermark.pos + len as u64 > config.segment_bytes;
        let old = match (&self.current, config.segment_ms) {
            (Some(current), Some(limit)) => {
                files::now_ms() - current.created_ms > i64::try_from(limit).unwrap_or(i64::MAX)
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

    /// Numbers as many of these records as fit into `room` bytes (at least
    /// one).
    pub fn seal(&self, frames: &mut [u8], room: u64) -> SealedFrames {
        let mut sealed = SealedFrames {
            len: 0,
            count: 0,
            newest_ms: self.watermark.newest_ms,
            entries: Vec::new(),
        };
        let mut indexed = self.watermark.indexed;
        while sealed.len < frames.len() {
            let rest = &mut frames[sealed.len..];
            if sealed.count > 0 && (sealed.len + record_frame::len_of(rest)) as u64 > room {
                break;
            }
            let (offset, pos) =
                (self.watermark.end + sealed.count as i64, self.watermark.pos + sealed.len as u64);
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

    /// Puts sealed records behind what counts, durably. Nobody sees them yet;
    /// after a failure nothing is left of them.
    pub fn stage(&mut self, frames: &[u8], config: &TopicConfig) -> Result<()> {
        let Some(current) = &self.current else { return Ok(()) };
        let mut done = current.file.write_all_at(frames, self.watermark.pos);
        if done.is_ok() && config.durable {
            done = current.file.sync_data();
        }
        done.map_err(|error| {
            self.unstage();
            errors::io(&segment::path(&self.folder, self.watermark.base), "writing", &error)
        })
    }

    /// Takes staged records back. What cannot be cut off now is cut off by
    /// the next [`PartitionWriter::refresh`]: the file is then not what was told.
    pub fn unstage(&mut self) {
        let cut = self.current.as_ref().map(|current| current.file.set_len(self.watermark.pos));
        if !matches!(cut, Some(Ok(()))) {
            self.current = None;
        }
    }

    /// StagedPartition records count from now on.
    pub fn publish(&mut self, sealed: &SealedFrames) -> Result<()> {
        let mut watermark = self.watermark;
        watermark.end += sealed.count as i64;
        watermark.pos += sealed.len as u64;
        watermark.newest_ms = sealed.newest_ms;
        if let (Some(current), Some(last)) = (&mut self.current, sealed.entries.last()) {
            // Without an entry reading is slower, and that is all.
            let _ = offset_index::append(&mut current.index, &sealed.entries);
            watermark.indexed = last.pos;
        }
        high_watermark::write(&self.watermark_file, &watermark)
            .map_err(|error| errors::io(&high_watermark::path(&self.folder), "writing", &error))?;
        self.watermark = watermark;
        Ok(())
    }

    /// Writes records, in as many segments as it takes.
    pub fn append(&mut self, frames: &mut [u8], config: &TopicConfig) -> AppendResult {
        let mut written = AppendResult { first: self.watermark.end, count: 0, error: None };
        let mut at = 0;
        while at < frames.len() {
            match self.append_some(&mut frames[at..], config) {
                Ok(sealed) => {
                    at += sealed.len;
                    written.count += sealed.count;
                }
                Err(error) => {
                    written.error = Some(error);
                    break;
                }
            }
        }
        written
    }

    fn append_some(&mut self, frames: &mut [u8], config: &TopicConfig) -> Result<SealedFrames> {
        self.roll_if_full(record_frame::len_of(frames), config)?;
        let room = config.segment_bytes.saturating_sub(self.watermark.pos);
        let sealed = self.seal(frames, room);
        self.stage(&frames[..sealed.len], config)?;
        self.publish(&sealed)?;
        Ok(sealed)
    }
}

/// Copies what was acknowledged once and cannot be read any more.
fn save_tail(file: &File, path: &Path, pos: u64, size: u64) -> io::Result<()> {
    let tail = files::read_vec(file, (size - pos) as usize, pos)?;
    fs::write(files::with_suffix(path, &format!(".{pos}.damaged")), tail)
}
