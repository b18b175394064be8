//! Copies SQLite's log back into the file, beside the writers: a commit that did it would wait for the disk.

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::Arc;
use std::time::Duration;

use chaton_core::file_lock::FileLock;
use parking_lot::MutexGuard;
use rusqlite::{ffi, Connection};

use crate::connect::{self, CHECKPOINT_BYTES};
use crate::connections::{FileConnections, ReadConnection};
use crate::error::{Error, ErrorKind, Result};
use crate::file::DatabaseFile;
use crate::side_files::inode;

/// Bytes of the log from which on it begins anew, with writers waiting until the rest of it is copied.
const RESTART_BYTES: i64 = 32 << 20;
/// Bytes of the log from which on [`Checkpoints::wait_for_room`] waits: it grows as long as a reader is inside a read.
const LOG_BYTES_MAX: i64 = 256 << 20;
/// Longest wait for readers by a restart, because writers wait with it. A read takes milliseconds.
const READERS_WAIT: Duration = Duration::from_millis(20);
/// Longest wait for writers by a restart, because a fork waits with it: each has its transaction of milliseconds.
const WRITERS_WAIT: Duration = Duration::from_millis(200);

/// When the log is copied, and by whom.
pub(crate) struct Checkpoints {
    file: DatabaseFile,
    connections: Arc<FileConnections>,
    /// Bytes of a page of the file.
    page_bytes: AtomicI32,
    /// Pages of the log after the last commit of this process.
    pages: Arc<AtomicI32>,
    /// Pages of the log at the last checkpoint.
    copied: AtomicI32,
    is_running: AtomicBool,
}

extern "C" fn committed(
    pages: *mut c_void,
    _: *mut ffi::sqlite3,
    _: *const c_char,
    count: c_int,
) -> c_int {
    // SAFETY: `watch` was given this number, which lives longer than the connection.
    unsafe { &*pages.cast::<AtomicI32>() }.store(count, Ordering::Relaxed);
    ffi::SQLITE_OK
}

impl Checkpoints {
    pub fn new(file: &DatabaseFile, connections: &Arc<FileConnections>) -> Arc<Self> {
        Arc::new(Self {
            file: file.clone(),
            connections: connections.clone(),
            page_bytes: AtomicI32::new(file.format.page_bytes),
            pages: Arc::default(),
            copied: AtomicI32::new(0),
            is_running: AtomicBool::new(false),
        })
    }

    /// Has each commit of a connection tell how long the log is, instead of copying it itself. The connection must be
    /// closed before what is returned is dropped.
    pub fn watch(&self, conn: &Connection) -> rusqlite::Result<Arc<AtomicI32>> {
        self.page_bytes.store(connect::page_bytes(conn)?, Ordering::Relaxed);
        let pages = Arc::as_ptr(&self.pages).cast_mut().cast();
        // SAFETY: an open connection; the number lives longer, as the caller promises.
        unsafe { ffi::sqlite3_wal_hook(conn.handle(), Some(committed), pages) };
        Ok(self.pages.clone())
    }

    fn bytes(&self, pages: i32) -> i64 {
        i64::from(pages) * i64::from(self.page_bytes.load(Ordering::Relaxed))
    }

    /// Starts a checkpoint after a commit, if it is time.
    pub fn start_if_due(self: &Arc<Self>, lock: &Arc<FileLock>) {
        let (pages, copied) =
            (self.pages.load(Ordering::Relaxed), self.copied.load(Ordering::Relaxed));
        // It begins anew with fewer pages.
        let since = if pages < copied { pages } else { pages - copied };
        if self.bytes(since) < i64::from(CHECKPOINT_BYTES)
            || self.is_running.swap(true, Ordering::AcqRel)
        {
            return;
        }
        let (this, lock) = (self.clone(), lock.clone());
        let started = chaton_core::thread::spawn("chaton-checkpoint", move || {
            // The next commits try again.
            let _ = this.run(&lock);
            this.is_running.store(false, Ordering::Release);
        });
        if started.is_err() {
            self.is_running.store(false, Ordering::Release);
        }
    }

    fn run(&self, lock: &Arc<FileLock>) -> Result<()> {
        let mut place = self.open()?;
        let Some((conn, _)) = place.as_mut() else { return Err(self.file.panicked()) };
        let mut pages = self.checkpoint(conn, "PASSIVE")?;
        if self.bytes(pages) >= RESTART_BYTES {
            // What was written meanwhile, so that little is left for the time in which writers wait.
            self.checkpoint(conn, "PASSIVE")?;
            let held = lock.acquire(WRITERS_WAIT);
            let held = held.map_err(|error| self.file.io("its lock file", &error))?;
            if held.is_some() {
                pages = self.checkpoint(conn, "RESTART")?;
            }
        }
        self.copied.store(pages, Ordering::Relaxed);
        Ok(())
    }

    /// The connection for checkpoints, opened if needed.
    fn open(&self) -> Result<MutexGuard<'_, Option<ReadConnection>>> {
        let mut place = self.connections.checkpoints.lock();
        let now = inode(&self.file.path);
        if place.as_ref().is_none_or(|(_, then)| now != Some(*then)) {
            *place = None;
            let conn = connect::open(&self.file, READERS_WAIT)?;
            *place = Some((conn, now.unwrap_or_default()));
        }
        Ok(place)
    }

    /// Makes a checkpoint; returns the pages of the log, 0 if it begins anew with the next commit.
    fn checkpoint(&self, conn: &Connection, mode: &str) -> Result<i32> {
        let query = format!("PRAGMA wal_checkpoint({mode})");
        let row = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i32>(0)?, row.get::<_, i32>(1)?));
        let (is_busy, pages) =
            conn.query_row(&query, [], row).map_err(|error| self.file.sql(&error))?;
        let is_new = mode == "RESTART" && is_busy == 0;
        Ok(if is_new { 0 } else { pages })
    }

    /// Waits until the log is not too long.
    ///
    /// # Errors
    /// `Busy`: a reader does not end its read.
    pub fn wait_for_room(&self, lock: impl FnOnce() -> Result<Arc<FileLock>>) -> Result<()> {
        if self.bytes(self.pages.load(Ordering::Relaxed)) < LOG_BYTES_MAX {
            return Ok(());
        }
        self.run(&lock()?)?;
        let pages = self.copied.load(Ordering::Relaxed);
        self.pages.store(pages, Ordering::Relaxed);
        if self.bytes(pages) < LOG_BYTES_MAX {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Busy,
            format!(
                "{}: its write-ahead log has {} MB, because a process has been reading all the time; is one stopped \
                 (SIGSTOP, a debugger) or a backup stuck?",
                self.file,
                self.bytes(pages) >> 20
            ),
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::file::Format;

    static FORMAT: Format = Format {
        content: "numbers",
        setting: "file",
        advice_when_corrupt: "it is damaged",
        version: 1,
        version_bit: 0,
        former: None,
        tables: "",
        later_tables: "",
        page_bytes: 8192,
        checkpoints_beside: true,
    };

    #[test]
    fn a_log_is_as_long_as_its_pages_in_this_file_are() {
        let file = DatabaseFile::new(Path::new("unused"), &FORMAT);
        let checkpoints = Checkpoints::new(&file, &Arc::default());
        let conn = Connection::open_in_memory().unwrap();
        conn.pragma_update(None, "page_size", 4096).unwrap();
        conn.execute_batch("CREATE TABLE made_by_another_engine(n)").unwrap();
        let pages = checkpoints.watch(&conn).unwrap();
        assert_eq!(checkpoints.bytes(2), 8192);
        drop((conn, pages));
    }
}
