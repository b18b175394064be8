//! How far a partition is written, told to readers and to the next writer:
//! a small file, written after the records are durable. Its change is also
//! the bell that wakes readers.
//!
//! It is believed within one boot of the machine, where the operating
//! system's cache holds it and the records alike; after a start of the
//! machine the last segment is read again.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::files;

const BYTES: usize = 64;
const MAGIC: &[u8; 8] = b"chatonH1";

/// A reader may see a write half done; it looks again this often.
const LOOKS_MAX: usize = 1000;

/// What the file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HighWatermark {
    /// Of which start of the machine.
    pub boot: u64,
    /// The first offset that is not written.
    pub end: i64,
    /// The segment that is written to.
    pub base: i64,
    /// Its bytes that count.
    pub pos: u64,
    /// The newest timestamp in it.
    pub newest_ms: i64,
    /// Where its last index entry points to.
    pub indexed: u64,
}

impl HighWatermark {
    fn encode(&self) -> [u8; BYTES] {
        let numbers = [
            self.boot,
            self.end as u64,
            self.base as u64,
            self.pos,
            self.newest_ms as u64,
            self.indexed,
        ];
        let mut out = [0; BYTES];
        out[..8].copy_from_slice(MAGIC);
        for (at, number) in numbers.iter().enumerate() {
            out[8 + at * 8..16 + at * 8].copy_from_slice(&number.to_le_bytes());
        }
        let crc = crc32c::crc32c(&out[..60]);
        out[60..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    fn decode(bytes: &[u8; BYTES]) -> Option<Self> {
        let number = |at: usize| {
            let mut eight = [0; 8];
            eight.copy_from_slice(&bytes[8 + at * 8..16 + at * 8]);
            u64::from_le_bytes(eight)
        };
        let right =
            bytes[..8] == *MAGIC && crc32c::crc32c(&bytes[..60]).to_le_bytes() == bytes[60..];
        right.then(|| Self {
            boot: number(0),
            end: number(1) as i64,
            base: number(2) as i64,
            pos: number(3),
            newest_ms: number(4) as i64,
            indexed: number(5),
        })
    }
}

/// The file in a partition's folder.
pub(super) fn path(folder: &Path) -> PathBuf {
    folder.join("head")
}

/// What it says; `None` when it says nothing that can be believed.
pub(super) fn read(file: &File) -> io::Result<Option<HighWatermark>> {
    for _ in 0..LOOKS_MAX {
        let mut bytes = [0; BYTES];
        if files::read_at(file, &mut bytes, 0)? < BYTES {
            return Ok(None);
        }
        if let Some(watermark) = HighWatermark::decode(&bytes) {
            return Ok(Some(watermark));
        }
        std::thread::yield_now();
    }
    Ok(None)
}

/// Tells it to everybody.
pub(super) fn write(file: &File, watermark: &HighWatermark) -> io::Result<()> {
    file.write_all_at(&watermark.encode(), 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_what_was_written_or_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = files::open_or_create(&path(folder.path())).unwrap();
        assert_eq!(read(&file).unwrap(), None);
        let watermark =
            HighWatermark { boot: 9, end: 5, base: -1, pos: 7, newest_ms: 3, indexed: 2 };
        write(&file, &watermark).unwrap();
        assert_eq!(read(&file).unwrap(), Some(watermark));
        file.write_all_at(b"x", 20).unwrap();
        assert_eq!(read(&file).unwrap(), None);
    }
}
