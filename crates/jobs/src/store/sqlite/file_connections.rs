//! The open connections of one file in this process. The registry of open files
//! knows them as long as they may be open, also while the last user goes.

use std::sync::Arc;
use std::time::Instant;

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

    /// Locks both for a fork, unless another thread uses one until the deadline.
    pub fn lock_until(&self, deadline: Instant) -> bool {
        let Some(reader) = self.reader.try_lock_until(deadline) else { return false };
        let Some(writer) = self.writer.try_lock_until(deadline) else { return false };
        std::mem::forget((reader, writer));
        true
    }

    /// Closes both before a fork. SQLite lists a process's open files and their locks; a child
    /// with the parent's list would believe that it holds locks which it does not hold.
    ///
    /// # Safety
    /// After [`FileConnections::lock_until`] on the same thread.
    pub unsafe fn close_locked(&self) {
        // SAFETY: locked, and the guards were forgotten.
        let (reader, writer) =
            unsafe { (&mut *self.reader.data_ptr(), &mut *self.writer.data_ptr()) };
        (*reader, *writer) = (None, None);
    }

    /// Unlocks both.
    ///
    /// # Safety
    /// After [`FileConnections::lock_until`] on the same thread.
    pub unsafe fn unlock(&self) {
        // SAFETY: locked, and the guards were forgotten.
        unsafe {
            self.writer.force_unlock();
            self.reader.force_unlock();
        }
    }
}
