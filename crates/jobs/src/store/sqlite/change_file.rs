//! The file beside the database whose time is set by every commit that other
//! processes may wait for.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{futimens, Timespec, Timestamps, UTIME_NOW};

use super::side_files::{self, inode, with_suffix};

pub(super) const SUFFIX: &str = "-wake";

/// The path of a database's change file.
pub(super) fn path_of(database: &Path) -> PathBuf {
    with_suffix(database, SUFFIX)
}

/// The change file, open for notifying.
pub(super) struct ChangeFile {
    file: File,
    path: PathBuf,
    inode: Option<(u64, u64)>,
}

impl ChangeFile {
    /// Opens the change file of a database; creates it if needed.
    pub fn open(database: &Path) -> io::Result<Self> {
        let path = path_of(database);
        let file = side_files::open(database, SUFFIX)?;
        let inode = inode(&path);
        Ok(Self { file, path, inode })
    }

    /// Wakes all watches; `false` when the file was replaced since it was opened.
    pub fn notify(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let _ = futimens(&self.file, &Timestamps { last_access: now, last_modification: now });
        inode(&self.path) == self.inode
    }
}
