//! One file in this process: a writer that all threads share, and how they
//! commit together.
//!
//! Callers put their operations in a line; whoever finds nobody leading takes
//! the whole line, carries it out in one transaction (a savepoint for each),
//! commits once and wakes the others. No thread is needed for it, and while
//! there is one caller nothing is handed over.

use std::os::unix::fs::MetadataExt;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use chaton_core::file_lock::FileLock;
use parking_lot::{Condvar, Mutex};
use rusqlite::Connection;

use super::connections::{Connections, Writer};
use super::schema::{self, Manner};
use super::wake::Wake;
use super::{beside, failure, registry, Tx};
use crate::store::{Result, StoreError, StoreErrorKind};

/// Operations carried out by one transaction at most: the others' wait is
/// bounded by it.
const GROUP_MAX: usize = 256;

/// An operation whose borrows were erased: see [`Db::write`].
type Run = Box<dyn FnOnce(&Tx<'_>) -> bool + Send>;

/// What became of an operation's transaction; `None` while it is open.
type Fate = Arc<Mutex<Option<Result<()>>>>;

struct Task {
    run: Run,
    fate: Fate,
    /// Its commit has to reach the disk, where the settings ask for that.
    durable: bool,
}

#[derive(Default)]
struct Line {
    tasks: Vec<Task>,
    leading: bool,
}

/// The file.
pub(super) struct Db {
    path: PathBuf,
    manner: Manner,
    /// The process that made it: another one must not touch it.
    pub pid: u32,
    line: Mutex<Line>,
    turn: Condvar,
    connections: Arc<Connections>,
    wake: Mutex<Option<Wake>>,
    /// Transactions committed, to see how many callers share one.
    pub commits: AtomicU64,
}

impl Db {
    pub fn new(path: PathBuf, manner: Manner) -> Self {
        Self {
            path,
            manner,
            pid: std::process::id(),
            line: Mutex::default(),
            turn: Condvar::new(),
            connections: Arc::default(),
            wake: Mutex::new(None),
            commits: AtomicU64::new(0),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn manner(&self) -> Manner {
        self.manner
    }

    /// Carries out `op` in a transaction, together with whatever else waits.
    /// Returns when it is committed. Not `durable`: a loss of power may undo
    /// it (the death of processes cannot), as it may undo a claim, which
    /// leaves the job in its queue.
    pub fn write<T: Send>(
        &self,
        durable: bool,
        op: impl FnOnce(&Tx<'_>) -> rusqlite::Result<T> + Send,
    ) -> Result<T> {
        let mut answer: Option<rusqlite::Result<T>> = None;
        let place = &mut answer;
        let run: Box<dyn FnOnce(&Tx<'_>) -> bool + Send + '_> = Box::new(move |tx| {
            let result = op(tx);
            let worked = result.is_ok();
            *place = Some(result);
            worked
        });
        // SAFETY: the box borrows from this frame. It is run or dropped before
        // its fate is known, and this frame waits for that below.
        let run: Run = unsafe { std::mem::transmute(run) };
        let fate = Fate::default();
        self.line.lock().tasks.push(Task { run, fate: fate.clone(), durable });
        let fate = self.wait(&fate);
        match (fate, answer) {
            (_, Some(Err(error))) => Err(failure::of(&self.path, &error)),
            (Ok(()), Some(Ok(answer))) => Ok(answer),
            (Err(error), _) => Err(error),
            (Ok(()), None) => Err(panicked(&self.path)),
        }
    }

    fn wait(&self, fate: &Fate) -> Result<()> {
        let mut line = self.line.lock();
        loop {
            if let Some(fate) = fate.lock().take() {
                return fate;
            }
            if line.leading {
                self.turn.wait(&mut line);
                continue;
            }
            line.leading = true;
            let count = line.tasks.len().min(GROUP_MAX);
            let tasks: Vec<Task> = line.tasks.drain(..count).collect();
            drop(line);
            self.lead(tasks);
            line = self.line.lock();
            line.leading = false;
            self.turn.notify_all();
        }
    }

    /// One transaction for all. Every fate is known when it returns.
    fn lead(&self, tasks: Vec<Task>) {
        let fates: Vec<_> = tasks.iter().map(|task| task.fate.clone()).collect();
        let done = catch_unwind(AssertUnwindSafe(|| self.transact(tasks)));
        let done = done.unwrap_or_else(|_| Err(panicked(&self.path)));
        for fate in fates {
            *fate.lock() = Some(done.clone());
        }
    }

    fn transact(&self, tasks: Vec<Task>) -> Result<()> {
        let mut writer = self.connections.writer.lock();
        self.open(&mut writer)?;
        let Some(open) = writer.as_mut() else { return Err(panicked(&self.path)) };
        self.set_waits(open, tasks.iter().any(|task| task.durable))?;
        let result = self.locked(open, tasks);
        let still = inode(&self.path) == Some(open.inode);
        match &result {
            // What was committed went into a file that nobody will find.
            Ok(()) if !still => return Err(self.vanished(&mut writer)),
            Err(error) if error.kind == StoreErrorKind::Full => {
                // Makes the log's own room usable again, to drain the queues.
                let _ = open.conn.execute_batch("PRAGMA wal_checkpoint(RESTART)");
            }
            Err(error) if error.kind != StoreErrorKind::Busy => *writer = None,
            _ => {}
        }
        result
    }

    /// Whether the next commits wait for the disk; only outside a transaction.
    fn set_waits(&self, open: &mut Writer, durable: bool) -> Result<()> {
        let waits = durable && self.manner.durable;
        if open.waits != waits {
            let level = if waits { "FULL" } else { "NORMAL" };
            open.conn
                .pragma_update(None, "synchronous", level)
                .map_err(|error| failure::of(&self.path, &error))?;
            open.waits = waits;
        }
        Ok(())
    }

    /// Holds the lock between processes for one transaction.
    fn locked(&self, open: &Writer, tasks: Vec<Task>) -> Result<()> {
        let wait = self.manner.busy;
        let lock = open.lock.acquire(wait);
        let lock = lock.map_err(|error| failure::of_io(&self.path, "its lock file", &error))?;
        let Some(_held) = lock else {
            return Err(StoreError::new(
                StoreErrorKind::Busy,
                format!(
                    "jobs database {}: another process of ours held its lock for {wait:?}; \
                     it may be stopped or stuck, or the disk is very slow",
                    self.path.display(),
                ),
            ));
        };
        self.commit(&open.conn, tasks)
    }

    fn commit(&self, conn: &Connection, tasks: Vec<Task>) -> Result<()> {
        let sql = |error: rusqlite::Error| failure::of(&self.path, &error);
        let run = |sql: &str| conn.prepare_cached(sql)?.execute([]).map(|_| ());
        let tx = Tx::new(conn);
        run("BEGIN IMMEDIATE").map_err(sql)?;
        let ran = tasks.into_iter().try_for_each(|task| {
            run("SAVEPOINT one")?;
            if catch_unwind(AssertUnwindSafe(|| (task.run)(&tx))).unwrap_or(false) {
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
        if tx.wakes() {
            self.wake_others();
        }
        Ok(())
    }

    /// Makes the file where there is none, and says when it is not the one it was.
    pub fn prepare(&self) -> Result<()> {
        self.open(&mut self.connections.writer.lock())
    }

    /// Opens the file, or makes sure that it is still the one that was opened.
    fn open(&self, writer: &mut Option<Writer>) -> Result<()> {
        match writer.as_ref().map(|open| open.inode) {
            Some(then) if inode(&self.path) == Some(then) => return Ok(()),
            Some(_) => return Err(self.vanished(writer)),
            None => {}
        }
        if let Some(folder) = self.path.parent() {
            std::fs::create_dir_all(folder).map_err(|error| {
                let what = format!("cannot make the directory {}", folder.display());
                failure::of_io(&self.path, &what, &error)
            })?;
        }
        // Of one that died while it held it, SQLite itself rolls back what it left.
        let lock = beside::open(&self.path, "-lock").and_then(|file| FileLock::open(&file));
        let lock = lock.map_err(|error| failure::of_io(&self.path, "its lock file", &error))?;
        let conn = schema::open(&self.path, self.manner)?;
        let inode = inode(&self.path).unwrap_or_default();
        *writer = Some(Writer { conn, lock, inode, waits: self.manner.durable });
        Ok(())
    }

    /// The file is not the one that was opened: told once, then opened anew.
    fn vanished(&self, writer: &mut Option<Writer>) -> StoreError {
        *writer = None;
        *self.wake.lock() = None;
        let how = if self.path.exists() { "replaced" } else { "removed" };
        StoreError::unavailable(format!(
            "jobs database {}: the file was {how} while in use; the jobs in it are not seen any \
             more. Put it back and restart, else the file that is there (or a new one) is used",
            self.path.display(),
        ))
    }

    /// Reads beside the writer, from the last commit.
    pub fn read<T>(&self, op: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        let mut reader = self.connections.reader.lock();
        let now = inode(&self.path);
        if reader.as_ref().is_some_and(|(_, then)| now != Some(*then)) {
            *reader = None;
        }
        if reader.is_none() {
            self.prepare()?;
            let inode = inode(&self.path).unwrap_or_default();
            *reader = Some((schema::open_reader(&self.path, self.manner)?, inode));
        }
        let Some((conn, _)) = reader.as_ref() else { return Err(panicked(&self.path)) };
        let result = op(conn).map_err(|error| failure::of(&self.path, &error));
        if result.is_err() {
            *reader = None;
        }
        result
    }

    /// Rings for whoever waits for a change, in any process.
    fn wake_others(&self) {
        let mut wake = self.wake.lock();
        if wake.as_ref().is_some_and(Wake::notify) {
            return;
        }
        // Who misses it looks by himself after his longest wait.
        *wake = Wake::open(&self.path).ok();
        wake.as_ref().map(Wake::notify);
    }

    /// What is open of it, for the registry.
    pub fn connections(&self) -> &Arc<Connections> {
        &self.connections
    }
}

impl Drop for Db {
    fn drop(&mut self) {
        // One that a fork left has nothing open, and locks that nobody frees.
        if self.pid != std::process::id() {
            return;
        }
        registry::close(&self.connections);
    }
}

fn panicked(path: &Path) -> StoreError {
    StoreError::unavailable(format!(
        "jobs database {}: an operation panicked; this is a bug, its message is above",
        path.display()
    ))
}

/// Device and number of a file. (Never by opening it: closing any descriptor
/// of the file would drop SQLite's locks in this process.)
pub(super) fn inode(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|about| (about.dev(), about.ino()))
}
