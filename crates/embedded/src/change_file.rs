//! The files beside the database whose time is set by every commit that other
//! processes may wait for: one for each channel, so that a change wakes only those who wait for it.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{futimens, Timespec, Timestamps, UTIME_NOW};

use crate::side_files::{self, inode, with_suffix};

/// The end of the name of a channel's file.
pub(crate) fn suffix(channel: u8) -> String {
    if channel == 0 {
        return "-wake".into();
    }
    format!("-wake-{channel}")
}

/// The path of the change file of a database's channel.
pub fn path_of(database: &Path, channel: u8) -> PathBuf {
    with_suffix(database, &suffix(channel))
}

/// A change file, open for notifying.
pub struct ChangeFile {
    file: File,
    path: PathBuf,
    inode: Option<(u64, u64)>,
}

impl ChangeFile {
    /// Opens the change file of a database's channel; creates it if needed.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn open(database: &Path, channel: u8) -> io::Result<Self> {
        let path = path_of(database, channel);
        let file = side_files::open(database, &suffix(channel))?;
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
