//! Helpers for files: atomic replacement, identities, positioned reads.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

/// Identifies a file and its version: a replaced file has another inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileId {
    device: u64,
    inode: u64,
    changed: (i64, i64),
}

pub(super) fn file_id(path: &Path) -> Option<FileId> {
    let found = fs::metadata(path).ok()?;
    Some(FileId {
        device: found.dev(),
        inode: found.ino(),
        changed: (found.mtime(), found.mtime_nsec()),
    })
}

/// Device and inode of the file at this path.
pub(super) fn inode(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

/// Device and inode of an open file; `None` if it was removed.
pub(super) fn inode_of(file: &File) -> Option<(u64, u64)> {
    let found = file.metadata().ok().filter(|found| found.nlink() > 0)?;
    Some((found.dev(), found.ino()))
}

/// Milliseconds since 1970.
pub(super) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis() as i64
}

/// A name that no other process on this machine uses.
pub(super) fn unique_name() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("{}-{nanos:x}-{count:x}", std::process::id())
}

/// Replaces a file: readers see the old or the new content.
pub(super) fn replace(path: &Path, content: &[u8], durable: bool) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", unique_name()));
    let temporary = path.with_file_name(name);
    let written =
        write_whole(&temporary, content, durable).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written?;
    #[cfg(test)]
    tests::note("renamed", path);
    if durable {
        sync_folder(path.parent().unwrap_or(Path::new("/")))?;
    }
    Ok(())
}

fn write_whole(path: &Path, content: &[u8], durable: bool) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(content)?;
    if durable {
        sync(&file, path)?;
    }
    Ok(())
}

/// Makes a file durable: its content and its length.
pub(super) fn sync(file: &File, path: &Path) -> io::Result<()> {
    #[cfg(test)]
    tests::note("synced", path);
    #[cfg(not(test))]
    let _ = path;
    file.sync_all()
}

/// Makes the names in a folder durable.
pub(super) fn sync_folder(path: &Path) -> io::Result<()> {
    sync(&File::open(path)?, path)
}

/// Opens for reading and writing, and creates the file if needed.
pub(super) fn open_or_create(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
}

/// Fills the buffer; returns less than its length only at the end of the file.
pub(super) fn read_at(file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], at + done as u64) {
            Ok(0) => break,
            Ok(more) => done += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Reads up to `len` bytes from this position.
pub(super) fn read_vec(file: &File, len: usize, at: u64) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; len];
    let read = read_at(file, &mut buffer, at)?;
    buffer.truncate(read);
    Ok(buffer)
}

/// The path with a suffix appended.
pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// A number that changes with each boot of the machine, after which data in
/// the operating system's cache is lost.
pub(super) fn boot_id() -> u64 {
    static BOOT: OnceLock<u64> = OnceLock::new();
    *BOOT.get_or_init(read_boot)
}

fn read_boot() -> u64 {
    let id = fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    (u64::from(crc32c::crc32c(&id)) << 32) | u64::from(crc32c::crc32c_append(1, &id))
}

#[cfg(test)]
pub(super) mod tests {
    use std::cell::RefCell;

    use super::*;

    thread_local! {
        static DONE: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    }

    pub(super) fn note(what: &str, path: &Path) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = if name.ends_with(".tmp") { "temporary" } else { &name };
        DONE.with_borrow_mut(|done| done.push(format!("{what} {name}")));
    }

    /// What this thread has synced and renamed since the last call, in order.
    pub fn take_notes() -> Vec<String> {
        DONE.take()
    }

    #[test]
    fn a_file_is_replaced_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        replace(&path, b"one", true).unwrap();
        let first = file_id(&path);
        replace(&path, b"two", false).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_ne!(file_id(&path), first);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn the_boot_id_is_stable_and_names_are_unique() {
        assert_eq!(boot_id(), boot_id());
        assert_ne!(unique_name(), unique_name());
    }
}
