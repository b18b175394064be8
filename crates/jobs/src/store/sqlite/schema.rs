//! Opening the file, and its tables. Queues and in-flight sets are ordered by
//! their rowid, which holds queue and position, or owner and ticket: a job that
//! is pushed, claimed and acknowledged updates no index.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::errors;
use crate::store::error::{StoreError, StoreErrorKind};
use crate::store::options::StoreOptions;
use crate::store::traits::Result;

/// "CHTN": marks the file as ours.
const APPLICATION: i32 = 0x4348_544E;
/// Version of the tables. (1 was never released.)
const VERSION: i32 = 2;
/// Pages of the log after which a commit copies it back: 16 MB.
const CHECKPOINT_PAGES: i32 = 4000;
/// Size to which the log's file is cut afterwards.
const LOG_BYTES_MAX: i64 = 64 << 20;
/// Page cache of a connection (KB).
const CACHE_KB: i32 = 16 << 10;
/// Prepared statements kept by a connection: there are fewer.
const STATEMENTS_MAX: usize = 128;

const TABLES: &str = "
CREATE TABLE queues(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE,
    paused INTEGER NOT NULL DEFAULT 0);
CREATE TABLE waiting(id INTEGER PRIMARY KEY, payload BLOB NOT NULL);
CREATE TABLE flights(id INTEGER PRIMARY KEY, queue INTEGER NOT NULL, payload BLOB NOT NULL);
CREATE TABLE entries(id INTEGER PRIMARY KEY, kind INTEGER NOT NULL, at REAL NOT NULL,
    payload BLOB NOT NULL);
CREATE INDEX entries_by_time ON entries(kind, at, id);
CREATE TABLE owners(id INTEGER PRIMARY KEY, identity TEXT NOT NULL UNIQUE, place TEXT,
    boot TEXT NOT NULL, clock REAL NOT NULL, beat_at REAL NOT NULL, info TEXT NOT NULL DEFAULT '',
    busy INTEGER NOT NULL DEFAULT 0, quiet INTEGER NOT NULL DEFAULT 0,
    rss_kb INTEGER NOT NULL DEFAULT 0);
CREATE TABLE work(owner INTEGER NOT NULL, tid TEXT NOT NULL, queue TEXT NOT NULL,
    payload BLOB NOT NULL, run_at INTEGER NOT NULL, PRIMARY KEY(owner, tid)) WITHOUT ROWID;
CREATE TABLE signals(id INTEGER PRIMARY KEY, identity TEXT NOT NULL, name TEXT NOT NULL,
    until REAL NOT NULL);
CREATE TABLE counters(name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE locks(key TEXT PRIMARY KEY, jid TEXT NOT NULL, until REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE slots(key TEXT NOT NULL, holder TEXT NOT NULL, until REAL NOT NULL,
    PRIMARY KEY(key, holder)) WITHOUT ROWID;
CREATE TABLE starts(key TEXT NOT NULL, at REAL NOT NULL, holder TEXT NOT NULL, until REAL NOT NULL,
    PRIMARY KEY(key, at, holder)) WITHOUT ROWID;
CREATE TABLE buckets(key TEXT PRIMARY KEY, level REAL NOT NULL, at REAL NOT NULL,
    until REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE batches(bid TEXT PRIMARY KEY, description TEXT NOT NULL, parent TEXT,
    created_at REAL NOT NULL, until REAL NOT NULL, closed INTEGER NOT NULL DEFAULT 0,
    total INTEGER NOT NULL DEFAULT 0, pending INTEGER NOT NULL DEFAULT 0,
    children INTEGER NOT NULL DEFAULT 0, running INTEGER NOT NULL DEFAULT 0,
    complete INTEGER NOT NULL DEFAULT 0, success INTEGER NOT NULL DEFAULT 0,
    dead INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;
CREATE TABLE batch_failures(bid TEXT NOT NULL, jid TEXT NOT NULL,
    PRIMARY KEY(bid, jid)) WITHOUT ROWID;
CREATE TABLE batch_callbacks(bid TEXT NOT NULL, event TEXT NOT NULL, number INTEGER NOT NULL,
    queue TEXT NOT NULL, payload BLOB NOT NULL, PRIMARY KEY(bid, event, number)) WITHOUT ROWID;
CREATE TABLE hashes(key TEXT NOT NULL, field TEXT NOT NULL, value BLOB NOT NULL,
    until REAL NOT NULL, PRIMARY KEY(key, field)) WITHOUT ROWID;
CREATE TABLE ticks(key TEXT PRIMARY KEY, until REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE cancels(jid TEXT PRIMARY KEY, until REAL NOT NULL) WITHOUT ROWID;
";

/// Tables that an older version does not know: it ignores them, and can use the same file at the same time.
/// `listed` and `unlisted`: jobs that were ever in `batch_jobs`, and jobs pushed by an older version that
/// have succeeded. `owner` is set while the batch is open. `holes`: rows between those of a queue's jobs whose job a
/// person has removed. `line_jobs` has the row and the time of each waiting job's entry; another entry may get the row
/// later, but hardly with the same time.
const LATER_TABLES: &str = "
CREATE TABLE IF NOT EXISTS batch_jobs(bid TEXT NOT NULL, jid TEXT NOT NULL,
    PRIMARY KEY(bid, jid)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS batch_lists(bid TEXT PRIMARY KEY, listed INTEGER NOT NULL DEFAULT 0,
    unlisted INTEGER NOT NULL DEFAULT 0, owner TEXT, opened_at REAL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS holes(id INTEGER PRIMARY KEY);
CREATE TABLE IF NOT EXISTS lines(name TEXT PRIMARY KEY, max INTEGER NOT NULL, span REAL NOT NULL,
    look_at REAL NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS lines_by_look ON lines(look_at);
CREATE TABLE IF NOT EXISTS line_jobs(name TEXT NOT NULL, jid TEXT NOT NULL, place REAL NOT NULL,
    entry INTEGER NOT NULL, at REAL NOT NULL, queue TEXT NOT NULL, PRIMARY KEY(name, jid)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS line_jobs_by_place ON line_jobs(name, place, jid);
CREATE TABLE IF NOT EXISTS owner_locks(identity TEXT PRIMARY KEY, file TEXT NOT NULL, byte INTEGER NOT NULL)
    WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS open_batches ON batch_lists(opened_at) WHERE owner IS NOT NULL;
";

/// How a connection is opened.
#[derive(Clone, Copy)]
pub(super) struct ConnectionSettings {
    /// Commits wait for the disk.
    pub durable: bool,
    /// Longest wait for a lock.
    pub lock_timeout: Duration,
}

impl ConnectionSettings {
    pub fn of(options: &StoreOptions) -> Self {
        Self { durable: options.durable, lock_timeout: options.lock_timeout }
    }
}

/// Opens the file for writing; creates its tables if it is new.
pub(super) fn open(path: &Path, settings: ConnectionSettings) -> Result<Connection> {
    let sql = |error: rusqlite::Error| errors::of(path, &error);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags).map_err(sql)?;
    conn.busy_timeout(settings.lock_timeout).map_err(sql)?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    check(path, &conn)?;
    let mode: String =
        conn.query_row("PRAGMA journal_mode=WAL", [], |row| row.get(0)).map_err(sql)?;
    if mode != "wal" {
        return Err(StoreError::refused(format!(
            "jobs database {}: its disk does not support SQLite's write-ahead log; \
             put it on a local disk",
            path.display()
        )));
    }
    let synchronous = if settings.durable { "FULL" } else { "NORMAL" };
    conn.execute_batch(&format!(
        "PRAGMA synchronous={synchronous}; PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES};
         PRAGMA journal_size_limit={LOG_BYTES_MAX}; PRAGMA cache_size=-{CACHE_KB};
         PRAGMA temp_store=MEMORY;"
    ))
    .map_err(sql)?;
    create_tables(&conn).map_err(sql)?;
    conn.execute_batch(LATER_TABLES).map_err(sql)?;
    check(path, &conn)?;
    Ok(conn)
}

/// Opens the file for reading only.
pub(super) fn open_reader(path: &Path, settings: ConnectionSettings) -> Result<Connection> {
    let sql = |error: rusqlite::Error| errors::of(path, &error);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags).map_err(sql)?;
    conn.busy_timeout(settings.lock_timeout).map_err(sql)?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    Ok(conn)
}

fn number(path: &Path, conn: &Connection, query: &str) -> Result<i64> {
    conn.query_row(query, [], |row| row.get(0)).map_err(|error| errors::of(path, &error))
}

fn check(path: &Path, conn: &Connection) -> Result<()> {
    let file = path.display();
    let application = number(path, conn, "PRAGMA application_id")?;
    let version = number(path, conn, "PRAGMA user_version")?;
    let tables = number(path, conn, "SELECT count(*) FROM sqlite_schema")?;
    if application != i64::from(APPLICATION) && (application != 0 || version != 0 || tables > 0) {
        return Err(StoreError::refused(format!(
            "jobs database {file}: this file belongs to another program; \
             the jobs need a file of their own, name another one as store"
        )));
    }
    if version > i64::from(VERSION) {
        return Err(StoreError::refused(format!(
            "jobs database {file}: it was written by a newer Chaton (tables {version}, known \
             {VERSION}); use that one, or name another file as store"
        )));
    }
    if version > 0 && version < i64::from(VERSION) {
        return Err(StoreError::refused(format!(
            "jobs database {file}: it was written by a Chaton before the first release; \
             move it away to begin anew"
        )));
    }
    // A truncated file of ours still has its first page.
    if version == i64::from(VERSION) && tables == 0 {
        return Err(StoreError::new(
            StoreErrorKind::Corrupt,
            format!("jobs database {file}: its tables are gone; restore a copy of it"),
        ));
    }
    Ok(())
}

fn create_tables(conn: &Connection) -> rusqlite::Result<()> {
    let version = || conn.query_row("PRAGMA user_version", [], |row| row.get::<_, i32>(0));
    if version()? == VERSION {
        return Ok(());
    }
    conn.execute_batch("BEGIN IMMEDIATE")?;
    // Another process may have created them meanwhile.
    let made = version().and_then(|version| {
        if version >= VERSION {
            return Ok(());
        }
        conn.execute_batch(&format!(
            "{TABLES} PRAGMA application_id={APPLICATION}; PRAGMA user_version={VERSION};"
        ))
    });
    let end = conn.execute_batch(if made.is_ok() { "COMMIT" } else { "ROLLBACK" });
    made.and(end)
}
