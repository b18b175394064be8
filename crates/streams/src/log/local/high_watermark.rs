//! The high watermark of a partition: a small file that tells readers and the
//! next writer how far the partition is written. It is written after the
//! records are durable, and its change wakes the readers.
//!
//! It is valid within one boot of the machine, because the operating system's cache holds it and
//! the records alike. After a reboot the last segment is scanned again.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::files;

const BYTES: usize = 64;
const MAGIC: &[u8; 8] = b"chatonH1";

/// A reader may see a half-finished write; it reads again this often.
const READS_MAX: usize = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HighWatermark {
    /// The boot id of the machine.
    pub boot: u64,
    /// The log end offset: the first offset that is not written.
    pub end: i64,
    /// The base offset of the active segment.
    pub base: i64,
    /// The valid bytes of the active segment.
    pub pos: u64,
    /// The newest timestamp in the active segment.
    pub newest_ms: i64,
    /// The position that its last index entry points to.
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

pub(super) fn path(folder: &Path) -> PathBuf {
    folder.join("head")
}

/// The watermark; `None` if the file is damaged or empty.
pub(super) fn read(file: &File) -> io::Result<Option<HighWatermark>> {
    for _ in 0..READS_MAX {
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

pub(super) fn write(file: &File, watermark: &HighWatermark) -> io::Result<()> {
    file.write_all_at(&watermark.encode(), 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_watermark_is_not_read() {
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
