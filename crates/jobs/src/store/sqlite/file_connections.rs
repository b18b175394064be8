//! The open connections of one file in this process. The registry of open files
//! knows them as long as they may be open, also while the last user goes.

use std::sync::Arc;

use chaton_core::file_lock::FileLock;
use parking_lot::Mutex;
use rusqlite::Connection;

/// The connection that writes.
pub(super) struct WriteConnection {
    pub conn: Connection,
    /// The lock between processes: SQLite's own wait is a series of sleeps.
    pub lock: Arc<FileLock>,
    /// Device and inode of the opened file.
    pub inode: (u64, u64),
    /// Whether commits wait for the disk.
    pub syncs: bool,
}

/// A read-only connection, and device and inode of the opened file.
pub(super) type ReadConnection = (Connection, (u64, u64));

/// Both connections, each opened on first use. Locked in this order.
#[derive(Default)]
pub(super) struct FileConnections {
    pub reader: Mutex<Option<ReadConnection>>,
    pub writer: Mutex<Option<WriteConnection>>,
}

impl FileConnections {
    pub fn close(&self) {
        *self.reader.lock() = None;
        *self.writer.lock() = None;
    }

    /// Closes the connections before a fork and keeps them locked until
    /// [`FileConnections::after_fork`]. SQLite lists a process's open files and their locks; a
    /// child with the parent's list would believe that it holds locks which it does not hold.
    pub fn before_fork(&self) {
        let mut reader = self.reader.lock();
        let mut writer = self.writer.lock();
        *reader = None;
        *writer = None;
        std::mem::forget((reader, writer));
    }

    /// Unlocks them after the fork.
    ///
    /// # Safety
    /// After [`FileConnections::before_fork`] on the same thread.
    pub unsafe fn after_fork(&self) {
        // SAFETY: locked by `before_fork`, whose guards were forgotten.
        unsafe {
            self.writer.force_unlock();
            self.reader.force_unlock();
        }
    }
}
