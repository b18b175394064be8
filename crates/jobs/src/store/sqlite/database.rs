//! One file in this process, with one writing connection that all threads share and group commit.
//!
//! Callers queue their operations. A caller that finds no leader becomes the leader: it takes the
//! queued operations, runs them in one transaction (with a savepoint each), commits once and wakes
//! the others. This needs no thread, and a single caller hands nothing over.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use chaton_core::file_lock::{FileLock, Held};
use chaton_core::{forks, local_disk};
use parking_lot::{Condvar, Mutex};
use rusqlite::Connection;

use super::change_file::ChangeFile;
use super::file_connections::{FileConnections, WriteConnection};
use super::schema::{self, ConnectionSettings};
use super::side_files::{self, inode};
use super::transaction::SqliteTransaction;
use super::{errors, open_files};
use crate::store::error::{StoreError, StoreErrorKind};
use crate::store::traits::Result;

/// Operations in one transaction at most, which bounds the wait of the others.
const GROUP_MAX: usize = 256;

/// An operation whose lifetime was erased, see [`Database::write`]. Returns whether it succeeded.
type Operation = Box<dyn FnOnce(&SqliteTransaction<'_>) -> bool + Send>;

/// The result of an operation's transaction; `None` until it has ended.
type CommitResult = Arc<Mutex<Option<Result<()>>>>;

struct PendingWrite {
    run: Operation,
    result: CommitResult,
    /// Its commit waits for the disk, if the settings ask for that.
    durable: bool,
}

#[derive(Default)]
struct WriteQueue {
    writes: Vec<PendingWrite>,
    has_leader: bool,
}

/// One file in this process.
pub(super) struct Database {
    path: PathBuf,
    settings: ConnectionSettings,
    /// The count of forks in the process that opened it; a forked child must not use it.
    pub made_in: u32,
    queue: Mutex<WriteQueue>,
    leader_done: Condvar,
    connections: Arc<FileConnections>,
    change_file: Mutex<Option<ChangeFile>>,
    /// Committed transactions, to see how many callers share one.
    pub commits: AtomicU64,
}

impl Database {
    /// The file at `path`, shared by the whole process.
    pub fn shared(path: &Path, settings: ConnectionSettings) -> Arc<Self> {
        open_files::shared(path, |connections| Self {
            path: path.to_path_buf(),
            settings,
            made_in: forks::count(),
            queue: Mutex::default(),
            leader_done: Condvar::new(),
            connections,
            change_file: Mutex::new(None),
            commits: AtomicU64::new(0),
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn settings(&self) -> ConnectionSettings {
        self.settings
    }

    /// Runs `op` in a transaction, together with all queued operations, and
    /// returns when it is committed. A loss of power, but not the death of a
    /// process, may undo a write that is not `durable`.
    pub fn write<T: Send>(
        &self,
        durable: bool,
        op: impl FnOnce(&SqliteTransaction<'_>) -> rusqlite::Result<T> + Send,
    ) -> Result<T> {
        let mut answer: Option<rusqlite::Result<T>> = None;
        let slot = &mut answer;
        let run: Box<dyn FnOnce(&SqliteTransaction<'_>) -> bool + Send + '_> =
            Box::new(move |tx| {
                let result = op(tx);
                let succeeded = result.is_ok();
                *slot = Some(result);
                succeeded
            });
        // SAFETY: the box borrows from this frame. It is run or dropped before
        // its result is set, and this frame waits for that below.
        let run: Operation = unsafe { std::mem::transmute(run) };
        let result = CommitResult::default();
        self.queue.lock().writes.push(PendingWrite { run, result: result.clone(), durable });
        match (self.wait(&result), answer) {
            (_, Some(Err(error))) => Err(errors::of(&self.path, &error)),
            (Ok(()), Some(Ok(answer))) => Ok(answer),
            (Err(error), _) => Err(error),
            (Ok(()), None) => Err(panicked(&self.path)),
        }
    }

    /// Waits for the result, and leads where there is no leader.
    fn wait(&self, result: &CommitResult) -> Result<()> {
        let mut queue = self.queue.lock();
        loop {
            if let Some(result) = result.lock().take() {
                return result;
            }
            if queue.has_leader {
                self.leader_done.wait(&mut queue);
                continue;
            }
            queue.has_leader = true;
            let count = queue.writes.len().min(GROUP_MAX);
            let writes: Vec<PendingWrite> = queue.writes.drain(..count).collect();
            drop(queue);
            self.lead(writes);
            queue = self.queue.lock();
            queue.has_leader = false;
            self.leader_done.notify_all();
        }
    }

    /// Runs the writes in one transaction and sets the result of each.
    fn lead(&self, writes: Vec<PendingWrite>) {
        let results: Vec<_> = writes.iter().map(|write| write.result.clone()).collect();
        let done = catch_unwind(AssertUnwindSafe(|| self.transact(writes)));
        let done = done.unwrap_or_else(|_| Err(panicked(&self.path)));
        self.close_after(done.as_ref().err());
        for result in results {
            *result.lock() = Some(done.clone());
        }
    }

    fn transact(&self, writes: Vec<PendingWrite>) -> Result<()> {
        let _held = self.acquire_file_lock()?;
        let mut writer = self.connections.writer.lock();
        self.open(&mut writer)?;
        let Some(open) = writer.as_mut() else { return Err(panicked(&self.path)) };
        self.set_syncs(open, writes.iter().any(|write| write.durable))?;
        let result = self.commit(&open.conn, writes);
        let unchanged = inode(&self.path) == Some(open.inode);
        match &result {
            // The commit went into a file that nobody will find.
            Ok(()) if !unchanged => return Err(self.replaced(&mut writer)),
            Err(error) if error.kind == StoreErrorKind::Full => {
                // Makes the log's space usable again, so that queues can be drained.
                let _ = open.conn.execute_batch("PRAGMA wal_checkpoint(RESTART)");
            }
            Err(error) if error.kind != StoreErrorKind::Busy => *writer = None,
            _ => {}
        }
        result
    }

    /// Sets whether the next commits wait for the disk; outside a transaction.
    fn set_syncs(&self, open: &mut WriteConnection, durable: bool) -> Result<()> {
        let syncs = durable && self.settings.durable;
        if open.syncs != syncs {
            let level = if syncs { "FULL" } else { "NORMAL" };
            open.conn
                .pragma_update(None, "synchronous", level)
                .map_err(|error| errors::of(&self.path, &error))?;
            open.syncs = syncs;
        }
        Ok(())
    }

    /// Takes the lock between processes. The connection is not locked meanwhile, because a fork
    /// waits for it.
    fn acquire_file_lock(&self) -> Result<Held> {
        let mut writer = self.connections.writer.lock();
        self.open(&mut writer)?;
        let Some(lock) = writer.as_ref().map(|open| open.lock.clone()) else {
            return Err(panicked(&self.path));
        };
        drop(writer);
        let wait = self.settings.lock_timeout;
        let held = lock.acquire(wait);
        let held = held.map_err(|error| errors::of_io(&self.path, "its lock file", &error))?;
        held.ok_or_else(|| {
            StoreError::new(
                StoreErrorKind::Busy,
                format!(
                    "jobs database {}: another process of Chaton held its lock for {wait:?}; \
                     it may be stopped or stuck, or the disk is very slow",
                    self.path.display(),
                ),
            )
        })
    }

    fn commit(&self, conn: &Connection, writes: Vec<PendingWrite>) -> Result<()> {
        let sql = |error: rusqlite::Error| errors::of(&self.path, &error);
        let run = |sql: &str| conn.prepare_cached(sql)?.execute([]).map(|_| ());
        let tx = SqliteTransaction::new(conn);
        run("BEGIN IMMEDIATE").map_err(sql)?;
        let ran = writes.into_iter().try_for_each(|write| {
            run("SAVEPOINT one")?;
            if catch_unwind(AssertUnwindSafe(|| (write.run)(&tx))).unwrap_or(false) {
                return run("RELEASE one");
            }
            // Some failures (a full disk) end the transaction for all.
            run("ROLLBACK TO one")?;
            run("RELEASE one")
        });
        if let Err(error) = ran.and_then(|()| run("COMMIT")) {
            if !conn.is_autocommit() {
                let _ = conn.execute_batch("ROLLBACK");
            }
            return Err(sql(error));
        }
        self.commits.fetch_add(1, Ordering::Relaxed);
        if tx.notifies() {
            self.notify_watches();
        }
        Ok(())
    }

    /// Runs `op` on the writing connection, outside a transaction, while no process writes.
    pub fn exclusively<T>(&self, op: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        let _held = self.acquire_file_lock()?;
        let mut writer = self.connections.writer.lock();
        self.open(&mut writer)?;
        let Some(open) = writer.as_ref() else { return Err(panicked(&self.path)) };
        op(&open.conn)
    }

    /// Creates the file if there is none; fails if it was replaced.
    pub fn prepare(&self) -> Result<()> {
        self.open(&mut self.connections.writer.lock())
    }

    /// Opens the file, or checks that it is still the opened one.
    fn open(&self, writer: &mut Option<WriteConnection>) -> Result<()> {
        if !open_files::is_usable() {
            return Err(StoreError::refused(format!(
                "jobs database {}: this process was forked while another thread of its parent \
                 used SQLite, which cannot be used in it any more; fork again, or enqueue in the \
                 parent",
                self.path.display(),
            )));
        }
        match writer.as_ref().map(|open| open.inode) {
            Some(then) if inode(&self.path) == Some(then) => return Ok(()),
            Some(_) => return Err(self.replaced(writer)),
            None => {}
        }
        local_disk::check(&self.path)
            .map_err(|error| errors::of_io(&self.path, "checking its disk", &error))?;
        if let Some(folder) = self.path.parent() {
            std::fs::create_dir_all(folder).map_err(|error| {
                let what = format!("cannot make the directory {}", folder.display());
                errors::of_io(&self.path, &what, &error)
            })?;
        }
        // If the holder died, SQLite rolls back what it left.
        let lock = side_files::open(&self.path, "-lock").and_then(|file| FileLock::open(&file));
        let lock = lock.map_err(|error| errors::of_io(&self.path, "its lock file", &error))?;
        let conn = schema::open(&self.path, self.settings)?;
        let inode = inode(&self.path).unwrap_or_default();
        *writer = Some(WriteConnection { conn, lock, inode, syncs: self.settings.durable });
        Ok(())
    }

    /// The file is not the opened one: reports it once, then opens the new one.
    fn replaced(&self, writer: &mut Option<WriteConnection>) -> StoreError {
        *writer = None;
        *self.change_file.lock() = None;
        let how = if self.path.exists() { "replaced" } else { "removed" };
        StoreError::unavailable(format!(
            "jobs database {}: the file was {how} while in use; the jobs in it are not seen any \
             more. Put it back and restart, else the file that is there (or a new one) is used",
            self.path.display(),
        ))
    }

    /// Reads from the last commit, beside the writing connection.
    pub fn read<T>(&self, op: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        let mut reader = self.connections.reader.lock();
        let now = inode(&self.path);
        if reader.as_ref().is_some_and(|(_, then)| now != Some(*then)) {
            *reader = None;
        }
        if reader.is_none() {
            self.prepare()?;
            let inode = inode(&self.path).unwrap_or_default();
            *reader = Some((schema::open_reader(&self.path, self.settings)?, inode));
        }
        let Some((conn, _)) = reader.as_ref() else { return Err(panicked(&self.path)) };
        let result = op(conn).map_err(|error| errors::of(&self.path, &error));
        if result.is_err() {
            *reader = None;
        }
        drop(reader);
        self.close_after(result.as_ref().err());
        result
    }

    /// Closes both connections after a failure of the disk. While one of them is open SQLite keeps the file's descriptors
    /// of the other one, and uses them again instead of opening the file.
    fn close_after(&self, error: Option<&StoreError>) {
        if error.is_some_and(|error| error.kind == StoreErrorKind::Unavailable) {
            self.connections.close();
        }
    }

    /// Ends the waits for a change in all processes.
    fn notify_watches(&self) {
        let mut file = self.change_file.lock();
        if file.as_ref().is_some_and(ChangeFile::notify) {
            return;
        }
        // A missed notification is made up for by the watch's longest wait.
        *file = ChangeFile::open(&self.path).ok();
        file.as_ref().map(ChangeFile::notify);
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // In a forked child locks may be held for ever.
        if self.made_in != forks::count() {
            return;
        }
        open_files::close(&self.connections);
    }
}

fn panicked(path: &Path) -> StoreError {
    StoreError::unavailable(format!(
        "jobs database {}: an operation panicked; this is a bug, its message is above",
        path.display()
    ))
}
