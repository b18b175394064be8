//! What one file has open in this process: the registry knows it as long as it
//! may be open, also while the file's last user goes.

use std::sync::Arc;

use chaton_core::file_lock::FileLock;
use parking_lot::Mutex;
use rusqlite::Connection;

/// Who writes.
pub(super) struct Writer {
    pub conn: Connection,
    /// SQLite's own wait for a lock is a row of sleeps.
    pub lock: Arc<FileLock>,
    /// Device and number of the file it was opened as.
    pub inode: (u64, u64),
    /// Commits wait for the disk now.
    pub waits: bool,
}

/// Who reads, and the device and number of the file it was opened as.
pub(super) type Reader = (Connection, (u64, u64));

/// Both, each opened on first use. Locked in this order.
#[derive(Default)]
pub(super) struct Connections {
    pub reader: Mutex<Option<Reader>>,
    pub writer: Mutex<Option<Writer>>,
}

impl Connections {
    pub fn close(&self) {
        *self.reader.lock() = None;
        *self.writer.lock() = None;
    }

    /// Before a fork: closes everything, so that the child inherits no open
    /// connection, and keeps others out until [`Connections::after_fork`].
    /// SQLite keeps lists of open files and their locks for each process; a
    /// child that has its parent's takes locks for held that it has not.
    pub fn before_fork(&self) {
        let mut reader = self.reader.lock();
        let mut writer = self.writer.lock();
        *reader = None;
        *writer = None;
        std::mem::forget((reader, writer));
    }

    /// The fork is done.
    ///
    /// # Safety
    /// After [`Connections::before_fork`] on the same thread.
    pub unsafe fn after_fork(&self) {
        // SAFETY: locked by `before_fork`, whose guards were forgotten.
        unsafe {
            self.writer.force_unlock();
            self.reader.force_unlock();
        }
    }
}
