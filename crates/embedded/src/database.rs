//! One file in this process, with one writing connection that all threads share and group commit.
//!
//! Callers queue their operations. A caller that finds no leader becomes the leader: it takes the
//! lock between processes and then the queued operations, runs them in one transaction (with a
//! savepoint each), commits once and wakes the others. This needs no thread, and a single caller
//! hands nothing over.

use std::collections::HashMap;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use chaton_core::file_lock::{FileLock, Held};
use chaton_core::{forks, local_disk};
use parking_lot::{Condvar, Mutex};
use rusqlite::Connection;

use crate::change_file::ChangeFile;
use crate::checkpoints::Checkpoints;
use crate::connect;
use crate::connections::{FileConnections, ReadConnection, Reader, WriteConnection};
use crate::error::{Error, ErrorKind, Result};
use crate::file::{DatabaseFile, Format};
use crate::open_files;

use crate::side_files::{self, inode};
use crate::transaction::Transaction;

/// Operations in one transaction at most, which bounds the wait of the others.
const GROUP_MAX: usize = 256;

/// An operation whose lifetime was erased, see [`Database::write`]. Returns whether it succeeded.
type Operation = Box<dyn FnOnce(&Transaction<'_>) -> bool + Send>;

/// The result of an operation's transaction; `None` until it has ended.
type CommitResult = Arc<Mutex<Option<Result<()>>>>;

struct PendingWrite {
    run: Operation,
    result: CommitResult,
    /// Its commit waits for the disk.
    durable: bool,
}

#[derive(Default)]
struct WriteQueue {
    writes: Vec<PendingWrite>,
    has_leader: bool,
}

/// How a file is used.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Longest wait for a lock.
    pub lock_timeout: Duration,
    /// A file that takes the place of the opened one is used without an error, if all engines in it want that.
    pub follows: bool,
}

/// One file in this process.
pub struct Database {
    file: DatabaseFile,
    settings: Settings,
    /// See [`Settings::follows`].
    follows: AtomicBool,
    /// The count of forks in the process that opened it; a forked child must not use it.
    pub made_in: u32,
    queue: Mutex<WriteQueue>,
    leader_done: Condvar,
    connections: Arc<FileConnections>,
    reader: Arc<Reader>,
    checkpoints: Arc<Checkpoints>,
    change_files: Mutex<HashMap<u8, ChangeFile>>,
    /// Committed transactions, to see how many callers share one.
    pub commits: AtomicU64,
}

impl Database {
    /// The file at `path`, shared by the whole process. Several engines may share it; its errors name what the first one
    /// keeps in it, with the first one's settings.
    pub fn shared(path: &Path, format: &'static Format, settings: Settings) -> Arc<Self> {
        let file = DatabaseFile::new(path, format);
        let shared = open_files::shared(path, |connections| Self {
            checkpoints: Checkpoints::new(&file, &connections),
            file,
            settings,
            follows: AtomicBool::new(settings.follows),
            made_in: forks::count(),
            queue: Mutex::default(),
            leader_done: Condvar::new(),
            reader: connections.reader(),
            connections,
            change_files: Mutex::default(),
            commits: AtomicU64::new(0),
        });
        shared.follows.fetch_and(settings.follows, Ordering::Relaxed);
        if shared.add(format) {
            // It may have been opened before the tables were made.
            *shared.reader.0.lock() = None;
        }
        shared
    }

    /// Notes an engine that uses the file; whether it is another one.
    fn add(&self, format: &'static Format) -> bool {
        let mut others = self.file.others.lock();
        let is_known = |known: &&Format| known.content == format.content;
        let is_new = !is_known(&self.file.format) && !others.iter().any(is_known);
        others.extend(is_new.then_some(format));
        is_new
    }

    /// Its name.
    pub fn file(&self) -> &DatabaseFile {
        &self.file
    }

    pub(crate) fn settings(&self) -> Settings {
        self.settings
    }

    /// Runs `op` in a transaction, together with all queued operations, and
    /// returns when it is committed. A loss of power, but not the death of a
    /// process, may undo a write that is not `durable`.
    ///
    /// # Errors
    /// That of the operation or of the commit.
    pub fn write<T: Send>(
        &self,
        durable: bool,
        op: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T> + Send,
    ) -> Result<T> {
        self.write_within(self.settings.lock_timeout, durable, op)
    }

    /// The same with a limit for the wait for the lock between processes: then the error is [`ErrorKind::Busy`].
    ///
    /// # Errors
    /// As [`Database::write`].
    pub fn write_within<T: Send>(
        &self,
        timeout: Duration,
        durable: bool,
        op: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T> + Send,
    ) -> Result<T> {
        let mut answer: Option<rusqlite::Result<T>> = None;
        let slot = &mut answer;
        let run: Box<dyn FnOnce(&Transaction<'_>) -> bool + Send + '_> = Box::new(move |tx| {
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
        match (self.wait(&result, timeout), answer) {
            (_, Some(Err(error))) => Err(self.file.sql(&error)),
            (Ok(()), Some(Ok(answer))) => Ok(answer),
            (Err(error), _) => Err(error),
            (Ok(()), None) => Err(self.file.panicked()),
        }
    }

    /// Waits for the result, and leads where there is no leader.
    fn wait(&self, result: &CommitResult, timeout: Duration) -> Result<()> {
        let until = Instant::now() + timeout;
        let mut queue = self.queue.lock();
        loop {
            if let Some(result) = result.lock().take() {
                return result;
            }
            if queue.has_leader {
                let late = self.leader_done.wait_until(&mut queue, until).timed_out();
                // What the leader has taken ends with its transaction.
                let own = |write: &PendingWrite| Arc::ptr_eq(&write.result, result);
                match queue.writes.iter().position(own) {
                    Some(at) if late => {
                        queue.writes.remove(at);
                        return Err(self.busy(timeout));
                    }
                    None if late => self.leader_done.wait(&mut queue),
                    _ => {}
                }
                continue;
            }
            queue.has_leader = true;
            drop(queue);
            let left = until.saturating_duration_since(Instant::now());
            let held = self.acquire_file_lock(left, timeout);
            queue = self.queue.lock();
            match held {
                Ok(held) => {
                    let count = queue.writes.len().min(GROUP_MAX);
                    let writes: Vec<PendingWrite> = queue.writes.drain(..count).collect();
                    drop(queue);
                    self.lead(writes);
                    drop(held);
                    queue = self.queue.lock();
                }
                Err(error) => {
                    self.close_after(Some(&error));
                    queue.writes.retain(|write| !Arc::ptr_eq(&write.result, result));
                    *result.lock() = Some(Err(error));
                }
            }
            queue.has_leader = false;
            self.leader_done.notify_all();
        }
    }

    /// Runs the writes in one transaction and sets the result of each.
    fn lead(&self, writes: Vec<PendingWrite>) {
        let results: Vec<_> = writes.iter().map(|write| write.result.clone()).collect();
        let done = catch_unwind(AssertUnwindSafe(|| self.transact(writes)));
        let done = done.unwrap_or_else(|_| Err(self.file.panicked()));
        self.close_after(done.as_ref().err());
        for result in results {
            *result.lock() = Some(done.clone());
        }
    }

    fn transact(&self, writes: Vec<PendingWrite>) -> Result<()> {
        let mut writer = self.connections.writer.lock();
        self.open(&mut writer)?;
        let Some(open) = writer.as_mut() else { return Err(self.file.panicked()) };
        self.set_syncs(open, writes.iter().any(|write| write.durable))?;
        let result = self.commit(&open.conn, writes);
        let unchanged = inode(&self.file.path) == Some(open.inode);
        match &result {
            // The commit went into a file that nobody will find.
            Ok(()) if !unchanged => return Err(self.replaced(&mut writer)),
            Err(error) if error.kind == ErrorKind::Full => {
                // Makes the log's space usable again, so that what is there can be removed.
                let _ = open.conn.execute_batch("PRAGMA wal_checkpoint(RESTART)");
            }
            Err(error) if error.kind != ErrorKind::Busy => *writer = None,
            Ok(()) if open.pages.is_some() => self.checkpoints.start_if_due(&open.lock),
            _ => {}
        }
        result
    }

    /// Waits until SQLite's log is not too long for another large write; only where a thread makes checkpoints.
    ///
    /// # Errors
    /// `Busy`: a reader that does not end its read keeps the log.
    pub fn wait_for_log_room(&self) -> Result<()> {
        self.checkpoints.wait_for_room(|| self.lock())
    }

    /// The lock between processes.
    fn lock(&self) -> Result<Arc<FileLock>> {
        let mut writer = self.connections.writer.lock();
        self.open(&mut writer)?;
        writer.as_ref().map(|open| open.lock.clone()).ok_or_else(|| self.file.panicked())
    }

    /// Sets whether the next commits wait for the disk; outside a transaction.
    fn set_syncs(&self, open: &mut WriteConnection, syncs: bool) -> Result<()> {
        if open.syncs != syncs {
            let level = if syncs { "FULL" } else { "NORMAL" };
            let set = open.conn.pragma_update(None, "synchronous", level);
            set.map_err(|error| self.file.sql(&error))?;
            open.syncs = syncs;
        }
        Ok(())
    }

    /// Takes the lock between processes in the time that is left of a timeout. The connection is not locked meanwhile, because a fork
    /// waits for it.
    fn acquire_file_lock(&self, left: Duration, timeout: Duration) -> Result<Held> {
        let held = self.lock()?.acquire(left);
        let held = held.map_err(|error| self.file.io("its lock file", &error))?;
        held.ok_or_else(|| self.busy(timeout))
    }

    fn busy(&self, waited: Duration) -> Error {
        Error::new(
            ErrorKind::Busy,
            format!(
                "{}: another process of Chaton held its lock for {waited:?}; it may be stopped or \
                 stuck, or the disk is very slow",
                self.file
            ),
        )
    }

    fn commit(&self, conn: &Connection, writes: Vec<PendingWrite>) -> Result<()> {
        let sql = |error: rusqlite::Error| self.file.sql(&error);
        let run = |sql: &str| conn.prepare_cached(sql)?.execute([]).map(|_| ());
        let tx = Transaction::new(conn);
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
        tx.channels().for_each(|channel| self.notify(channel));
        Ok(())
    }

    /// Runs `op` on the writing connection, outside a transaction, while no process writes.
    ///
    /// # Errors
    /// Those of `op`, and when the file cannot be opened.
    pub fn exclusively<T>(&self, op: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        let timeout = self.settings.lock_timeout;
        let _held = self.acquire_file_lock(timeout, timeout)?;
        let mut writer = self.connections.writer.lock();
        self.open(&mut writer)?;
        let Some(open) = writer.as_ref() else { return Err(self.file.panicked()) };
        op(&open.conn)
    }

    /// Creates the file if there is none; fails if it was replaced.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn prepare(&self) -> Result<()> {
        self.open(&mut self.connections.writer.lock())
    }

    /// Opens the file, or checks that it is still the opened one.
    fn open(&self, writer: &mut Option<WriteConnection>) -> Result<()> {
        let file = &self.file;
        if !open_files::is_usable() {
            return Err(Error::refused(format!(
                "{file}: this process was forked while another thread of its parent used SQLite, \
                 which cannot be used in it any more; fork again, or write in the parent"
            )));
        }
        match writer.as_mut() {
            Some(open) if inode(&file.path) == Some(open.inode) => return self.add_tables(open),
            Some(_) => {
                let error = self.replaced(writer);
                if !self.follows.load(Ordering::Relaxed) {
                    return Err(error);
                }
            }
            None => {}
        }
        local_disk::check(&file.path).map_err(|error| file.io("checking its disk", &error))?;
        if let Some(folder) = file.path.parent() {
            std::fs::create_dir_all(folder).map_err(|error| {
                file.io(&format!("cannot make the directory {}", folder.display()), &error)
            })?;
        }
        // If the holder died, SQLite rolls back what it left.
        let lock = side_files::open(&file.path, "-lock").and_then(|lock| FileLock::open(&lock));
        let lock = lock.map_err(|error| file.io("its lock file", &error))?;
        let conn = connect::open(file, self.settings.lock_timeout)?;
        let inode = inode(&file.path).unwrap_or_default();
        let watch = file.format.checkpoints_beside.then(|| self.checkpoints.watch(&conn));
        let pages = watch.transpose().map_err(|error| file.sql(&error))?;
        let open = WriteConnection { conn, pages, others: 0, lock, inode, syncs: false };
        self.add_tables(writer.insert(open))
    }

    /// Makes the tables of other engines that have come to the file.
    fn add_tables(&self, open: &mut WriteConnection) -> Result<()> {
        // Not locked meanwhile: errors name them.
        let others = self.file.others.lock()[open.others..].to_vec();
        for format in others {
            connect::add_tables(&DatabaseFile::new(&self.file.path, format), &open.conn)?;
            if format.checkpoints_beside && open.pages.is_none() {
                let pages = self.checkpoints.watch(&open.conn);
                open.pages = Some(pages.map_err(|error| self.file.sql(&error))?);
            }
            open.others += 1;
        }
        Ok(())
    }

    /// The file is not the opened one: reports it once, then opens the new one.
    fn replaced(&self, writer: &mut Option<WriteConnection>) -> Error {
        *writer = None;
        self.change_files.lock().clear();
        let how = if self.file.path.exists() { "replaced" } else { "removed" };
        let content = self.file.format.content;
        Error::unavailable(format!(
            "{}: the file was {how} while in use; the {content} in it are not seen any more. Put it \
             back and restart, else the file that is there (or a new one) is used",
            self.file
        ))
    }

    /// Reads from the last commit, beside the writing connection.
    ///
    /// # Errors
    /// That of `op`, and when the file cannot be opened.
    pub fn read<T>(&self, op: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        self.read_by(&self.reader, op)
    }

    /// A reader with a connection of its own.
    pub fn reader(&self) -> Arc<Reader> {
        self.connections.reader()
    }

    /// Reads like [`Database::read`] by another reader.
    ///
    /// # Errors
    /// As [`Database::read`].
    pub fn read_by<T>(
        &self,
        reader: &Reader,
        op: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T> {
        let mut reader = reader.0.lock();
        let conn = self.open_reader(&mut reader)?;
        let result = op(conn).map_err(|error| self.file.sql(&error));
        if result.is_err() {
            *reader = None;
        }
        drop(reader);
        self.close_after(result.as_ref().err());
        result
    }

    fn open_reader<'a>(&self, reader: &'a mut Option<ReadConnection>) -> Result<&'a Connection> {
        let now = inode(&self.file.path);
        if reader.as_ref().is_some_and(|(_, then)| now != Some(*then)) {
            *reader = None;
        }
        if reader.is_none() {
            self.prepare()?;
            let inode = inode(&self.file.path).unwrap_or_default();
            let conn = connect::open_reader(&self.file, self.settings.lock_timeout)?;
            *reader = Some((conn, inode));
        }
        reader.as_ref().map(|(conn, _)| conn).ok_or_else(|| self.file.panicked())
    }

    /// Closes all connections after a failure of the disk. While one of them is open SQLite keeps the file's descriptors
    /// of the other ones, and uses them again instead of opening the file.
    fn close_after(&self, error: Option<&Error>) {
        if error.is_some_and(|error| error.kind == ErrorKind::Unavailable) {
            self.connections.close();
        }
    }

    /// Ends the waits on a channel in all processes.
    fn notify(&self, channel: u8) {
        let mut files = self.change_files.lock();
        if files.get(&channel).is_some_and(ChangeFile::notify) {
            return;
        }
        files.remove(&channel);
        // A missed notification is made up for by the watch's longest wait.
        if let Ok(file) = ChangeFile::open(&self.file.path, channel) {
            file.notify();
            files.insert(channel, file);
        }
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
