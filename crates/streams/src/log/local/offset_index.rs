//! The sparse index of a segment: for one record in each 64 KiB its position
//! and the newest timestamp before it. It only saves reading: its entries are
//! verified, and a segment without an index is read from its start.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use super::files;

/// Bytes of a segment between two entries.
pub(super) const INTERVAL_BYTES: u64 = 64 << 10;
const BYTES: usize = 32;

/// One entry of 32 bytes; the last four are a checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IndexEntry {
    pub offset: i64,
    /// Where the record of this offset begins.
    pub pos: u64,
    /// Newest timestamp of the records before it in this segment.
    pub newest_ms: i64,
}

impl IndexEntry {
    fn encode(self) -> [u8; BYTES] {
        let mut out = [0; BYTES];
        out[..8].copy_from_slice(&self.offset.to_le_bytes());
        out[8..16].copy_from_slice(&self.pos.to_le_bytes());
        out[16..24].copy_from_slice(&self.newest_ms.to_le_bytes());
        let crc = crc32c::crc32c(&out[..28]);
        out[28..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let number = |at: usize| bytes[at..at + 8].try_into().map(i64::from_le_bytes).ok();
        let right = crc32c::crc32c(&bytes[..28]).to_le_bytes() == bytes[28..];
        right.then_some(Self { offset: number(0)?, pos: number(8)? as u64, newest_ms: number(16)? })
    }
}

/// The valid entries of an index: those before the first entry that is
/// damaged, out of order, or past `limit` bytes of the segment.
pub(super) fn load(path: &Path, limit: u64) -> Vec<IndexEntry> {
    let bytes = std::fs::read(path).unwrap_or_default();
    let mut entries: Vec<IndexEntry> = Vec::with_capacity(bytes.len() / BYTES);
    for entry in bytes.chunks_exact(BYTES).map_while(IndexEntry::decode) {
        let rises = |last: &IndexEntry| entry.offset > last.offset && entry.pos > last.pos;
        if entry.pos > limit || !entries.last().is_none_or(rises) {
            break;
        }
        entries.push(entry);
    }
    entries
}

pub(super) fn append(file: &mut File, entries: &[IndexEntry]) -> io::Result<()> {
    let bytes: Vec<u8> = entries.iter().flat_map(|entry| entry.encode()).collect();
    file.write_all(&bytes)
}

/// Opens an index for appending and cuts off entries past `limit` bytes of the segment.
pub(super) fn open(path: &Path, limit: u64) -> io::Result<File> {
    let file = OpenOptions::new().append(true).create(true).open(path)?;
    let right = (load(path, limit).len() * BYTES) as u64;
    if files::file_id(path).is_some() && file.metadata()?.len() > right {
        file.set_len(right)?;
    }
    Ok(file)
}

/// The last entry at or before this offset.
pub(super) fn lookup_offset(entries: &[IndexEntry], offset: i64) -> Option<IndexEntry> {
    let after = entries.partition_point(|entry| entry.offset <= offset);
    after.checked_sub(1).map(|at| entries[at])
}

/// The last entry before which all records are older than this time.
pub(super) fn lookup_time(entries: &[IndexEntry], time_ms: i64) -> Option<IndexEntry> {
    let after = entries.partition_point(|entry| entry.newest_ms < time_ms);
    after.checked_sub(1).map(|at| entries[at])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(number: i64) -> IndexEntry {
        IndexEntry { offset: number * 10, pos: number as u64 * 100, newest_ms: number * 1000 }
    }

    #[test]
    fn entries_are_found_by_offset_and_time() {
        let entries: Vec<_> = (1..5).map(entry).collect();
        assert_eq!(lookup_offset(&entries, 9), None);
        assert_eq!(lookup_offset(&entries, 10), Some(entry(1)));
        assert_eq!(lookup_offset(&entries, 39), Some(entry(3)));
        assert_eq!(lookup_time(&entries, 1000), None);
        assert_eq!(lookup_time(&entries, 1001), Some(entry(1)));
        assert_eq!(lookup_time(&entries, 9999), Some(entry(4)));
    }

    #[test]
    fn entries_behind_damage_are_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index");
        let all: Vec<_> = (1..5).map(entry).collect();
        append(&mut open(&path, u64::MAX).unwrap(), &all).unwrap();
        assert_eq!(load(&path, u64::MAX), all);
        assert_eq!(load(&path, 300), all[..3]);
        let whole = std::fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(load(&path, u64::MAX), all[..at / BYTES], "byte {at}");
        }
        std::fs::write(&path, &whole[..70]).unwrap();
        append(&mut open(&path, u64::MAX).unwrap(), &all[2..]).unwrap();
        assert_eq!(load(&path, u64::MAX), all);
    }
}
