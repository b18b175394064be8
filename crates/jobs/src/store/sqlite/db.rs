//! One file in this process: a writer that all threads share, and how they
//! commit together.
//!
//! Callers put their operations in a list; whoever finds nobody leading takes
//! the whole list, carries it out in one transaction (a savepoint for each),
//! commits once and wakes the others. No thread is needed for it, and while
//! there is one caller nothing is handed over.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use parking_lot::{Condvar, Mutex};
use rusqlite::Connection;

use super::lock::FileLock;
use super::schema::{self, Manner};
use super::wake::Wake;
use super::{failure, Tx};
use crate::store::{Kind, Result, StoreError, StoreOptions};

/// An operation whose borrows were erased: see [`Db::write`].
type Run = Box<dyn FnOnce(&Tx<'_>) -> bool + Send>;

/// What became of an operation's transaction.
#[derive(Default)]
struct Fate(Mutex<Option<Option<StoreError>>>);

struct Task {
    run: Run,
    fate: Arc<Fate>,
}

#[derive(Default)]
struct Line {
    tasks: Vec<Task>,
    leading: bool,
}

struct Writer {
    conn: Connection,
    lock: FileLock,
    /// Device and number of the file it was opened as.
    inode: (u64, u64),
}

/// The file.
pub(super) struct Db {
    path: PathBuf,
    manner: Manner,
    line: Mutex<Line>,
    turn: Condvar,
    writer: Mutex<Option<Writer>>,
    reader: Mutex<Option<Connection>>,
    wake: Mutex<Option<Wake>>,
    /// Transactions committed, for tests of their grouping.
    pub commits: std::sync::atomic::AtomicU64,
}

static OPEN: Mutex<Option<Registry>> = Mutex::new(None);

struct Registry {
    pid: u32,
    files: HashMap<PathBuf, Weak<Db>>,
}

impl Db {
    /// The file at `path` in this process: the same one for everybody.
    pub fn shared(path: &Path, options: &StoreOptions) -> Arc<Self> {
        let mut open = OPEN.lock();
        let pid = std::process::id();
        if open.as_ref().is_none_or(|registry| registry.pid != pid) {
            // What a parent process opened is left alone: never used, and not
            // closed either, which would drop the parent's locks.
            std::mem::forget(open.replace(Registry { pid, files: HashMap::new() }));
        }
        let Some(registry) = open.as_mut() else { unreachable!("made above") };
        if let Some(db) = registry.files.get(path).and_then(Weak::upgrade) {
            return db;
        }
        let manner = Manner { durable: options.durable, busy: options.lock_timeout };
        let db = Arc::new(Self {
            path: path.to_path_buf(),
            manner,
            line: Mutex::default(),
            turn: Condvar::new(),
            writer: Mutex::new(None),
            reader: Mutex::new(None),
            wake: Mutex::new(None),
            commits: std::sync::atomic::AtomicU64::new(0),
        });
        registry.files.retain(|_, db| db.strong_count() > 0);
        registry.files.insert(path.to_path_buf(), Arc::downgrade(&db));
        db
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Carries out `op` in a transaction, together with whatever else waits.
    /// Returns when it is committed.
    pub fn write<T: Send>(
        &self,
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
        // its fate is known, and this frame stays until then.
        let run: Run = unsafe { std::mem::transmute(run) };
        let fate = Arc::new(Fate::default());
        self.line.lock().tasks.push(Task { run, fate: fate.clone() });
        let failed = self.wait(&fate);
        match (failed, answer) {
            (_, Some(Err(error))) => Err(failure::of(&self.path, &error)),
            (None, Some(Ok(answer))) => Ok(answer),
            (Some(error), _) => Err(error),
            (None, None) => Err(StoreError::unavailable("an operation on the jobs database panicked")),
        }
    }

    fn wait(&self, fate: &Fate) -> Option<StoreError> {
        let mut line = self.line.lock();
        loop {
            if let Some(failed) = fate.0.lock().take() {
                return failed;
            }
            if line.leading {
                self.turn.wait(&mut line);
                continue;
            }
            line.leading = true;
            let tasks = std::mem::take(&mut line.tasks);
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
        let failed = self.transact(tasks).err();
        for fate in fates {
            *fate.0.lock() = Some(failed.clone());
        }
    }

    fn transact(&self, tasks: Vec<Task>) -> Result<()> {
        let mut writer = self.writer.lock();
        self.open(&mut writer)?;
        let Some(open) = writer.as_ref() else { unreachable!("opened above") };
        let busy = || {
            StoreError::new(
                Kind::Busy,
                format!(
                    "jobs database {}: another process held its lock for {:?}; it may be stopped or stuck",
                    self.path.display(),
                    self.manner.busy
                ),
            )
        };
        let lock = open.lock.acquire(self.manner.busy);
        let lock = lock.map_err(|error| failure::of_io(&self.path, "its lock", &error))?;
        let held = lock.ok_or_else(busy)?;
        let result = self.commit(&open.conn, tasks);
        drop(held);
        if let Err(error) = &result {
            if matches!(error.kind, Kind::Corrupt | Kind::Unavailable | Kind::Refused) {
                *writer = None;
            }
        }
        result
    }

    fn commit(&self, conn: &Connection, tasks: Vec<Task>) -> Result<()> {
        let sql = |error: rusqlite::Error| failure::of(&self.path, &error);
        let tx = Tx::new(conn);
        conn.execute_batch("BEGIN IMMEDIATE").map_err(sql)?;
        let several = tasks.len() > 1;
        let ran = tasks.into_iter().try_for_each(|task| {
            if several {
                conn.execute_batch("SAVEPOINT one")?;
            }
            let worked = catch_unwind(AssertUnwindSafe(|| (task.run)(&tx))).unwrap_or(false);
            match (several, worked) {
                (true, true) => conn.execute_batch("RELEASE one"),
                (true, false) => conn.execute_batch("ROLLBACK TO one; RELEASE one"),
                // Its own error is told to its caller; nothing of it stays.
                (false, false) => Err(rusqlite::Error::ExecuteReturnedResults),
                (false, true) => Ok(()),
            }
        });
        let done = ran.and_then(|()| conn.execute_batch("COMMIT"));
        if let Err(error) = done {
            if !conn.is_autocommit() {
                let _ = conn.execute_batch("ROLLBACK");
            }
            if matches!(error, rusqlite::Error::ExecuteReturnedResults) {
                return Ok(());
            }
            return Err(sql(error));
        }
        self.commits.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        if tx.wakes() {
            self.wake_others();
        }
        Ok(())
    }

    /// Opens the file, or makes sure that it is still the one that was opened.
    fn open(&self, writer: &mut Option<Writer>) -> Result<()> {
        let now = inode(&self.path);
        match writer.as_ref().map(|open| open.inode) {
            Some(then) if now == Some(then) => return Ok(()),
            Some(_) => {
                *writer = None;
                *self.reader.lock() = None;
                *self.wake.lock() = None;
                return Err(StoreError::unavailable(format!(
                    "jobs database {}: the file was {} while in use; put it back and restart, or its \
                     jobs are lost (a new file is used from the next try on)",
                    self.path.display(),
                    if now.is_some() { "replaced" } else { "removed" }
                )));
            }
            None => {}
        }
        if let Some(folder) = self.path.parent() {
            std::fs::create_dir_all(folder)
                .map_err(|error| failure::of_io(&self.path, "its directory cannot be made", &error))?;
        }
        let lock = FileLock::open(&self.path);
        let lock = lock.map_err(|error| failure::of_io(&self.path, "its lock file", &error))?;
        let conn = schema::open(&self.path, self.manner)?;
        let inode = inode(&self.path).unwrap_or_default();
        *writer = Some(Writer { conn, lock, inode });
        Ok(())
    }

    /// Reads beside the writer, from the last commit.
    pub fn read<T>(&self, op: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        let mut reader = self.reader.lock();
        if reader.is_none() {
            // A file that is not there yet has to be made by a writer.
            if !self.path.exists() {
                self.write(|_| Ok(()))?;
            }
            *reader = Some(schema::open_reader(&self.path, self.manner)?);
        }
        let Some(conn) = reader.as_ref() else { unreachable!("opened above") };
        let result = op(conn).map_err(|error| failure::of(&self.path, &error));
        if result.is_err() {
            *reader = None;
        }
        result
    }

    /// Rings for whoever waits for a change, in any process.
    fn wake_others(&self) {
        let mut wake = self.wake.lock();
        if wake.is_none() {
            *wake = Wake::open(&self.path).ok();
        }
        // Who misses it looks by himself after the watcher's longest wait.
        wake.iter().for_each(Wake::ring);
    }
}

fn inode(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|about| (about.dev(), about.ino()))
}
