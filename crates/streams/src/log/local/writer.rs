//! Writes one partition. Every call is made under the partition's lock; what
//! other processes wrote meanwhile is seen by [`Writer::refresh`].

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::head::{self, Head};
use super::index::{self, IndexEntry, EVERY};
use super::rules::Rules;
use super::scan::{scan, From};
use super::{failure, files, frame, retention, segment};
use crate::log::{LogError, Result};

/// The place that is written to.
struct Current {
    file: File,
    index: File,
    created_ms: i64,
}

/// What became of records that were to be written: the first `count` of them
/// are, from offset `first` on.
#[derive(Debug)]
pub(super) struct Written {
    pub first: i64,
    pub count: usize,
    pub error: Option<LogError>,
}

/// Records that go into the current segment in one piece.
#[derive(Debug)]
pub(super) struct Piece {
    pub len: usize,
    pub count: usize,
    newest_ms: i64,
    entries: Vec<IndexEntry>,
}

/// See above.
pub(super) struct Writer {
    folder: PathBuf,
    boot: u64,
    head_file: File,
    head: Head,
    current: Option<Current>,
}

impl Writer {
    /// Of a partition's folder.
    pub fn open(folder: &Path) -> Result<Self> {
        let path = head::path(folder);
        let head_file =
            files::open_or_make(&path).map_err(|error| failure::of(&path, "opening", &error))?;
        let head = Head { boot: 0, end: 0, base: 0, pos: 0, newest_ms: i64::MIN, indexed: 0 };
        Ok(Self { folder: folder.into(), boot: files::boot(), head_file, head, current: None })
    }

    /// The first offset that is not written. After [`Writer::refresh`].
    pub fn end(&self) -> i64 {
        self.head.end
    }

    /// Whether the partition's files were removed, or are others now: what
    /// would be written here nobody could read.
    pub fn is_gone(&self) -> bool {
        let open = files::inode_of(&self.head_file);
        open.is_none() || open != files::inode(&head::path(&self.folder))
    }

    /// Sees what others have written, and puts right what one who died, or
    /// the machine, has left half done.
    pub fn refresh(&mut self, rules: &Rules) -> Result<()> {
        self.try_refresh(rules).map_err(|error| failure::of(&self.folder, "opening", &error))
    }

    fn try_refresh(&mut self, rules: &Rules) -> io::Result<()> {
        let told = head::read(&self.head_file)?;
        if let (Some(head), Some(current)) = (told, &self.current) {
            if head == self.head && current.file.metadata()?.len() == head.pos {
                return Ok(());
            }
        }
        self.recover(told, rules)
    }

    fn recover(&mut self, told: Option<Head>, rules: &Rules) -> io::Result<()> {
        self.current = None;
        let end_told = told.map_or(0, |head| head.end);
        let Some(base) = segment::list(&self.folder)?.pop() else {
            self.head.end = end_told;
            return self.begin_segment(end_told, rules);
        };
        let path = segment::path(&self.folder, base);
        let file = OpenOptions::new().read(true).write(true).open(&path)?;
        let Some(created_ms) = segment::created_ms(&file, base)? else {
            // Left alone; readers tell of it and read what is whole in it.
            let size = file.metadata()?.len();
            let whole = scan(&file, From { pos: 0, ..From::start(base) }, size)?;
            let behind = base.checked_add(1).ok_or(io::ErrorKind::InvalidData)?;
            self.head.end = end_told.max(whole.end).max(behind);
            return self.begin_segment(self.head.end, rules);
        };
        let size = file.metadata()?.len();
        let here = told.filter(|head| head.base == base);
        let from = match here {
            Some(head) if head.boot == self.boot && head.pos <= size => {
                From { pos: head.pos, offset: head.end, newest_ms: head.newest_ms }
            }
            _ => From::start(base),
        };
        let whole = scan(&file, from, size)?;
        if size > whole.pos {
            if here.is_some_and(|head| head.pos > whole.pos) {
                keep_aside(&file, &path, whole.pos, size)?;
            }
            file.set_len(whole.pos)?;
            if rules.durable {
                file.sync_all()?;
            }
        }
        let index_path = segment::index_path(&self.folder, base);
        let mut index = index::open(&index_path, whole.pos)?;
        let indexed = index::load(&index_path, whole.pos).last().map_or(segment::HEADER, |e| e.pos);
        let missing: Vec<_> = whole.entries.into_iter().filter(|e| e.pos > indexed).collect();
        index::append(&mut index, &missing)?;
        self.head = Head {
            boot: self.boot,
            // Offsets of records that were acknowledged and are gone are not
            // given again: readers may have come past them.
            end: whole.end.max(end_told),
            base,
            pos: whole.pos,
            newest_ms: whole.newest_ms,
            indexed: missing.last().map_or(indexed, |entry| entry.pos),
        };
        if told != Some(self.head) {
            head::write(&self.head_file, &self.head)?;
        }
        let written = file.metadata()?.modified()?;
        self.current = Some(Current { file, index, created_ms });
        if whole.pos > segment::HEADER && retention::is_over(written, rules) {
            return self.begin_segment(self.head.end, rules);
        }
        retention::apply(&self.folder, rules, base)
    }

    /// Goes on in a new segment.
    fn begin_segment(&mut self, base: i64, rules: &Rules) -> io::Result<()> {
        let file = segment::create(&self.folder, base, rules.durable)?;
        let index = index::open(&segment::index_path(&self.folder, base), 0)?;
        self.head = Head {
            boot: self.boot,
            end: base,
            base,
            pos: segment::HEADER,
            newest_ms: i64::MIN,
            indexed: segment::HEADER,
        };
        head::write(&self.head_file, &self.head)?;
        self.current = Some(Current { file, index, created_ms: files::now_ms() });
        retention::apply(&self.folder, rules, base)
    }

    /// Makes sure that records of so many bytes may go into the current
    /// segment, by beginning a new one where it is too full or too old.
    pub fn make_room(&mut self, len: usize, rules: &Rules) -> Result<()> {
        let used = self.head.pos > segment::HEADER;
        let full = self.head.pos + len as u64 > rules.segment_bytes;
        let old = match (&self.current, rules.segment_ms) {
            (Some(current), Some(limit)) => {
                files::now_ms() - current.created_ms > i64::try_from(limit).unwrap_or(i64::MAX)
            }
            _ => false,
        };
        if used && (full || old) {
            let end = self.head.end;
            self.begin_segment(end, rules)
                .map_err(|error| failure::of(&self.folder, "beginning a segment", &error))?;
        }
        Ok(())
    }

    /// Numbers as many of these records as fit into `room` bytes (at least
    /// one).
    pub fn seal(&self, frames: &mut [u8], room: u64) -> Piece {
        let mut piece =
            Piece { len: 0, count: 0, newest_ms: self.head.newest_ms, entries: Vec::new() };
        let mut indexed = self.head.indexed;
        while piece.len < frames.len() {
            let rest = &mut frames[piece.len..];
            if piece.count > 0 && (piece.len + frame::len_of(rest)) as u64 > room {
                break;
            }
            let (offset, pos) =
                (self.head.end + piece.count as i64, self.head.pos + piece.len as u64);
            if pos >= indexed + EVERY {
                piece.entries.push(IndexEntry { offset, pos, newest_ms: piece.newest_ms });
                indexed = pos;
            }
            let (len, timestamp_ms) = frame::seal(rest, offset);
            piece.newest_ms = piece.newest_ms.max(timestamp_ms);
            piece.len += len;
            piece.count += 1;
        }
        piece
    }

    /// Puts sealed records behind what counts, durably. Nobody sees them yet;
    /// after a failure nothing is left of them.
    pub fn stage(&mut self, frames: &[u8], rules: &Rules) -> Result<()> {
        let Some(current) = &self.current else { return Ok(()) };
        let mut done = current.file.write_all_at(frames, self.head.pos);
        if done.is_ok() && rules.durable {
            done = current.file.sync_data();
        }
        done.map_err(|error| {
            self.unstage();
            failure::of(&segment::path(&self.folder, self.head.base), "writing", &error)
        })
    }

    /// Takes staged records back. What cannot be cut off now is cut off by
    /// the next [`Writer::refresh`]: the file is then not what was told.
    pub fn unstage(&mut self) {
        let cut = self.current.as_ref().map(|current| current.file.set_len(self.head.pos));
        if !matches!(cut, Some(Ok(()))) {
            self.current = None;
        }
    }

    /// Staged records count from now on.
    pub fn publish(&mut self, piece: &Piece) -> Result<()> {
        let mut head = self.head;
        head.end += piece.count as i64;
        head.pos += piece.len as u64;
        head.newest_ms = piece.newest_ms;
        if let (Some(current), Some(last)) = (&mut self.current, piece.entries.last()) {
            // Without an entry reading is slower, and that is all.
            let _ = index::append(&mut current.index, &piece.entries);
            head.indexed = last.pos;
        }
        head::write(&self.head_file, &head)
            .map_err(|error| failure::of(&head::path(&self.folder), "writing", &error))?;
        self.head = head;
        Ok(())
    }

    /// Writes records, in as many segments as it takes.
    pub fn write(&mut self, frames: &mut [u8], rules: &Rules) -> Written {
        let mut written = Written { first: self.head.end, count: 0, error: None };
        let mut at = 0;
        while at < frames.len() {
            match self.write_piece(&mut frames[at..], rules) {
                Ok(piece) => {
                    at += piece.len;
                    written.count += piece.count;
                }
                Err(error) => {
                    written.error = Some(error);
                    break;
                }
            }
        }
        written
    }

    fn write_piece(&mut self, frames: &mut [u8], rules: &Rules) -> Result<Piece> {
        self.make_room(frame::len_of(frames), rules)?;
        let room = rules.segment_bytes.saturating_sub(self.head.pos);
        let piece = self.seal(frames, room);
        self.stage(&frames[..piece.len], rules)?;
        self.publish(&piece)?;
        Ok(piece)
    }
}

/// Copies what was acknowledged once and cannot be read any more.
fn keep_aside(file: &File, path: &Path, pos: u64, size: u64) -> io::Result<()> {
    let tail = files::read_vec(file, (size - pos) as usize, pos)?;
    fs::write(files::beside(path, &format!(".{pos}.damaged")), tail)
}
