//! Segments: the files of a partition's records, each named after the offset of its first record.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::files;

/// Bytes before the first record.
pub(super) const HEADER: u64 = 32;
const MAGIC: &[u8; 8] = b"chatonL1";
/// No offset gets this high, so that adding to a base never overflows.
const BASE_MAX: i64 = 1 << 62;

pub(super) fn path(folder: &Path, base: i64) -> PathBuf {
    folder.join(format!("{base:020}.log"))
}

pub(super) fn index_path(folder: &Path, base: i64) -> PathBuf {
    folder.join(format!("{base:020}.index"))
}

/// The sorted base offsets of all segments in a partition's folder.
pub(super) fn list(folder: &Path) -> io::Result<Vec<i64>> {
    let mut bases = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        bases.extend(base_of(&name).filter(|base| *base < BASE_MAX));
    }
    bases.sort_unstable();
    Ok(bases)
}

/// Files that are named like segments but have an impossible offset.
pub(super) fn foreign(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if base_of(&entry.file_name()).is_some_and(|base| base >= BASE_MAX) {
            paths.push(entry.path());
        }
    }
    Ok(paths)
}

fn base_of(name: &OsStr) -> Option<i64> {
    let digits = name.to_str()?.strip_suffix(".log").filter(|digits| digits.len() == 20)?;
    // A number that does not fit is as impossible as the largest one.
    let is_number = digits.bytes().all(|digit| digit.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(i64::MAX))
}

/// Creates an empty segment atomically.
pub(super) fn create(folder: &Path, base: i64, durable: bool) -> io::Result<File> {
    let path = path(folder, base);
    let new = files::with_suffix(&path, ".new");
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(true).open(&new)?;
    let mut header = [0u8; HEADER as usize];
    header[..8].copy_from_slice(MAGIC);
    header[8..16].copy_from_slice(&base.to_le_bytes());
    header[16..24].copy_from_slice(&files::now_ms().to_le_bytes());
    let crc = crc32c::crc32c(&header[..24]);
    header[24..28].copy_from_slice(&crc.to_le_bytes());
    file.write_all_at(&header, 0)?;
    if durable {
        file.sync_all()?;
    }
    fs::rename(new, path)?;
    if durable {
        files::sync_folder(folder)?;
    }
    Ok(file)
}

/// When a segment was created; `None` if the file is not a segment of this log.
pub(super) fn created_ms(file: &File, base: i64) -> io::Result<Option<i64>> {
    let mut header = [0u8; HEADER as usize];
    if files::read_at(file, &mut header, 0)? < header.len() {
        return Ok(None);
    }
    let number = |at: usize| {
        let mut eight = [0; 8];
        eight.copy_from_slice(&header[at..at + 8]);
        i64::from_le_bytes(eight)
    };
    let crc = crc32c::crc32c(&header[..24]).to_le_bytes();
    let ours = header[..8] == *MAGIC && number(8) == base && header[24..28] == crc;
    Ok(ours.then(|| number(16)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_listed_by_their_first_offsets() {
        let folder = tempfile::tempdir().unwrap();
        for base in [30, 0, 7] {
            create(folder.path(), base, false).unwrap();
        }
        fs::write(folder.path().join("notes.log"), "x").unwrap();
        fs::write(folder.path().join("00000000000000000000.log.9.damaged"), "x").unwrap();
        assert_eq!(list(folder.path()).unwrap(), [0, 7, 30]);
        assert!(foreign(folder.path()).unwrap().is_empty());
        for name in ["09223372036854775807.log", "99999999999999999999.log"] {
            fs::write(folder.path().join(name), "x").unwrap();
        }
        fs::write(folder.path().join("-0000000000000000001.log"), "x").unwrap();
        assert_eq!(list(folder.path()).unwrap(), [0, 7, 30]);
        assert_eq!(foreign(folder.path()).unwrap().len(), 2);
    }

    #[test]
    fn a_foreign_file_is_detected() {
        let folder = tempfile::tempdir().unwrap();
        let file = create(folder.path(), 7, true).unwrap();
        assert!(created_ms(&file, 7).unwrap().is_some());
        assert_eq!(created_ms(&file, 8).unwrap(), None);
        for at in 0..28 {
            let mut byte = [0];
            files::read_at(&file, &mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 4], at).unwrap();
            assert_eq!(created_ms(&file, 7).unwrap(), None, "byte {at}");
            file.write_all_at(&byte, at).unwrap();
        }
        file.set_len(20).unwrap();
        assert_eq!(created_ms(&file, 7).unwrap(), None);
    }
}
