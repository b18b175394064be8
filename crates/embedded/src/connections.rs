//! The open connections of one file in this process. The registry of open files
//! knows them as long as they may be open, also while the last user goes.

use std::sync::atomic::AtomicI32;
use std::sync::Arc;
use std::time::Instant;

use chaton_core::file_lock::FileLock;
use parking_lot::Mutex;
use rusqlite::Connection;

/// The connection that writes.
pub(crate) struct WriteConnection {
    pub conn: Connection,
    /// Dropped after the connection, which writes to it; `None`: its commits copy the log themselves.
    pub pages: Option<Arc<AtomicI32>>,
    /// The engines whose tables were looked at, besides the first one.
    pub others: usize,
    /// The lock between processes: SQLite's own wait is a series of sleeps.
    pub lock: Arc<FileLock>,
    /// Device and inode of the opened file.
    pub inode: (u64, u64),
    /// Whether commits wait for the disk.
    pub syncs: bool,
}

/// A connection that only reads, or that only makes checkpoints, and device and inode of the opened file.
pub(crate) type ReadConnection = (Connection, (u64, u64));

/// A place for a connection of one reader, who needs not wait for the others.
#[derive(Default)]
pub struct Reader(pub(crate) Mutex<Option<ReadConnection>>);

/// All connections, each opened on first use. Locked in this order.
#[derive(Default)]
pub(crate) struct FileConnections {
    readers: Mutex<Vec<Arc<Reader>>>,
    /// The connection of the thread that makes checkpoints.
    pub checkpoints: Mutex<Option<ReadConnection>>,
    pub writer: Mutex<Option<WriteConnection>>,
}

impl FileConnections {
    /// A new reader.
    pub fn reader(&self) -> Arc<Reader> {
        let made = Arc::<Reader>::default();
        let mut readers = self.readers.lock();
        // One whose user has gone is not locked by anybody.
        readers.retain(|one| Arc::strong_count(one) > 1);
        readers.push(made.clone());
        made
    }

    pub fn close(&self) {
        for reader in &*self.readers.lock() {
            *reader.0.lock() = None;
        }
        *self.checkpoints.lock() = None;
        *self.writer.lock() = None;
    }

    /// Locks all for a fork, unless another thread uses one until the deadline.
    pub fn lock_until(&self, deadline: Instant) -> bool {
        let Some(readers) = self.readers.try_lock_until(deadline) else { return false };
        let mut held = Vec::new();
        for reader in &*readers {
            let Some(reader) = reader.0.try_lock_until(deadline) else { return false };
            held.push(reader);
        }
        let Some(checkpoints) = self.checkpoints.try_lock_until(deadline) else { return false };
        let Some(writer) = self.writer.try_lock_until(deadline) else { return false };
        held.into_iter().for_each(std::mem::forget);
        std::mem::forget((readers, checkpoints, writer));
        true
    }

    /// Closes all before a fork. SQLite lists a process's open files and their locks; a child
    /// with the parent's list would believe that it holds locks which it does not hold.
    ///
    /// # Safety
    /// After [`FileConnections::lock_until`] on the same thread.
    pub unsafe fn close_locked(&self) {
        // SAFETY: locked, and the guards were forgotten.
        unsafe {
            for reader in &*self.readers.data_ptr() {
                *reader.0.data_ptr() = None;
            }
            *self.checkpoints.data_ptr() = None;
            *self.writer.data_ptr() = None;
        }
    }

    /// Unlocks all.
    ///
    /// # Safety
    /// After [`FileConnections::lock_until`] on the same thread.
    pub unsafe fn unlock(&self) {
        // SAFETY: locked, and the guards were forgotten.
        unsafe {
            self.writer.force_unlock();
            self.checkpoints.force_unlock();
            for reader in &*self.readers.data_ptr() {
                reader.0.force_unlock();
            }
            self.readers.force_unlock();
        }
    }
}
