//! The files beside a database.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// `path` with a suffix.
pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Opens a file of ours beside the database; creates it if needed.
pub(crate) fn open(database: &Path, suffix: &str) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.open(with_suffix(database, suffix))
}

/// Device and inode of a file, read without opening it: closing any descriptor of
/// the database would drop SQLite's locks in this process.
pub fn inode(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|about| (about.dev(), about.ino()))
}

/// One path for each file, as far as it exists yet.
///
/// # Errors
/// Without a working directory.
pub fn one_path(path: &Path) -> io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    if let Ok(path) = path.canonicalize() {
        return Ok(path);
    }
    match (path.parent().and_then(|folder| folder.canonicalize().ok()), path.file_name()) {
        (Some(folder), Some(name)) => Ok(folder.join(name)),
        _ => Ok(path),
    }
}
