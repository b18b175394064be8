//! The files that lie beside a database.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// `path` with something at its end.
pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Opens a file of ours beside the database, made on first use.
pub(super) fn open(database: &Path, suffix: &str) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.open(with_suffix(database, suffix))
}
