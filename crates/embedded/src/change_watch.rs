//! Waits for changes of a database, also by other processes, through inotify.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

use crate::change_file::{path_of, ChangeFile};
use crate::side_files::inode;

/// An inotify descriptor, which becomes readable with a change of a channel and with the end of the file.
pub struct ChangeWatch {
    fd: OwnedFd,
    /// The change file and the database, and what they were when they began to be watched.
    paths: [PathBuf; 2],
    inodes: [Option<(u64, u64)>; 2],
}

impl ChangeWatch {
    /// Watches a channel of a database that exists.
    ///
    /// # Errors
    /// When a file cannot be opened, or a limit of inotify is reached.
    pub fn open(database: &Path, channel: u8) -> io::Result<Self> {
        let paths = [path_of(database, channel), database.to_path_buf()];
        ChangeFile::open(database, channel)?;
        let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        // Removing a file changes its link count: the only change of the database
        // file itself that matters.
        let flags = WatchFlags::ATTRIB | WatchFlags::MOVE_SELF | WatchFlags::DELETE_SELF;
        for path in &paths {
            inotify::add_watch(&fd, path, flags)?;
        }
        let inodes = [inode(&paths[0]), inode(&paths[1])];
        Ok(Self { fd, paths, inodes })
    }

    /// Whether the files that are there are the watched ones.
    pub fn is_current(&self) -> bool {
        self.inodes == [inode(&self.paths[0]), inode(&self.paths[1])]
    }

    /// Forgets all changes so far.
    pub fn drain(&self) {
        let mut buffer = [0u8; 4096];
        while rustix::io::read(&self.fd, &mut buffer).is_ok_and(|count| count > 0) {}
    }
}

impl AsFd for ChangeWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
