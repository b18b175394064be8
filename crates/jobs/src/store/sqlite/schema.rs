//! The tables. Queues and in-flight sets are ordered by their rowid, which
//! holds queue and position (or owner and ticket): no index is kept on the way
//! of a job.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::failure;
use crate::store::{Result, StoreError};

/// "CHTN": tells our files from others'.
const APPLICATION: i32 = 0x4348_544E;
/// Version of the tables.
const VERSION: i32 = 1;
/// Pages of the log after which a commit copies it back: 16 MB.
const CHECKPOINT_PAGES: i32 = 4000;
/// What is kept of the log afterwards.
const LOG_BYTES: i64 = 64 << 20;
/// Bytes of pages kept in memory.
const CACHE_KB: i32 = 16 << 10;

const TABLES: &str = "
CREATE TABLE queues(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, paused INTEGER NOT NULL DEFAULT 0);
CREATE TABLE waiting(id INTEGER PRIMARY KEY, payload BLOB NOT NULL);
CREATE TABLE flights(id INTEGER PRIMARY KEY, queue INTEGER NOT NULL, payload BLOB NOT NULL);
CREATE TABLE entries(id INTEGER PRIMARY KEY AUTOINCREMENT, kind INTEGER NOT NULL, at REAL NOT NULL,
                     payload BLOB NOT NULL);
CREATE INDEX entries_by_time ON entries(kind, at, id);
CREATE TABLE owners(id INTEGER PRIMARY KEY AUTOINCREMENT, identity TEXT NOT NULL UNIQUE, place TEXT NOT NULL,
                    beat_ms INTEGER NOT NULL, lease_ms INTEGER NOT NULL, beat_at REAL NOT NULL,
                    info TEXT NOT NULL, busy INTEGER NOT NULL, quiet INTEGER NOT NULL, rss_kb INTEGER NOT NULL);
CREATE TABLE work(owner INTEGER NOT NULL, tid TEXT NOT NULL, queue TEXT NOT NULL, payload BLOB NOT NULL,
                  run_at INTEGER NOT NULL, PRIMARY KEY(owner, tid)) WITHOUT ROWID;
CREATE TABLE signals(id INTEGER PRIMARY KEY AUTOINCREMENT, identity TEXT NOT NULL, name TEXT NOT NULL,
                     until REAL NOT NULL);
CREATE TABLE counters(name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE locks(key TEXT PRIMARY KEY, jid TEXT NOT NULL, until REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE slots(key TEXT NOT NULL, flight INTEGER NOT NULL, until REAL NOT NULL,
                   PRIMARY KEY(key, flight)) WITHOUT ROWID;
CREATE TABLE starts(key TEXT NOT NULL, at REAL NOT NULL, id INTEGER NOT NULL,
                    PRIMARY KEY(key, at, id)) WITHOUT ROWID;
CREATE TABLE buckets(key TEXT PRIMARY KEY, level REAL NOT NULL, at REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE batches(bid TEXT PRIMARY KEY, description TEXT NOT NULL, parent TEXT, created_at REAL NOT NULL,
                     until REAL NOT NULL, open INTEGER NOT NULL, total INTEGER NOT NULL DEFAULT 0,
                     pending INTEGER NOT NULL DEFAULT 0, children_pending INTEGER NOT NULL DEFAULT 0,
                     children_running INTEGER NOT NULL DEFAULT 0, complete INTEGER NOT NULL DEFAULT 0,
                     success INTEGER NOT NULL DEFAULT 0, dead INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;
CREATE TABLE batch_failures(bid TEXT NOT NULL, jid TEXT NOT NULL, PRIMARY KEY(bid, jid)) WITHOUT ROWID;
CREATE TABLE batch_callbacks(id INTEGER PRIMARY KEY, bid TEXT NOT NULL, event TEXT NOT NULL, queue TEXT NOT NULL,
                             payload BLOB NOT NULL);
CREATE INDEX callbacks_by_batch ON batch_callbacks(bid, event);
CREATE TABLE hashes(key TEXT NOT NULL, field TEXT NOT NULL, value BLOB NOT NULL, until REAL NOT NULL,
                    PRIMARY KEY(key, field)) WITHOUT ROWID;
CREATE TABLE once(key TEXT PRIMARY KEY, until REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE cancels(jid TEXT PRIMARY KEY, until REAL NOT NULL) WITHOUT ROWID;
";

/// How a connection is opened.
#[derive(Clone, Copy)]
pub(super) struct Manner {
    pub durable: bool,
    pub busy: Duration,
}

/// Opens the file for writing, and makes its tables if it is new.
pub(super) fn open(path: &Path, manner: Manner) -> Result<Connection> {
    let sql = |error: rusqlite::Error| failure::of(path, &error);
    let conn = Connection::open(path).map_err(sql)?;
    conn.busy_timeout(manner.busy).map_err(sql)?;
    conn.set_prepared_statement_cache_capacity(128);
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
    let synchronous = if manner.durable { "FULL" } else { "NORMAL" };
    conn.execute_batch(&format!(
        "PRAGMA synchronous={synchronous}; PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES};
         PRAGMA journal_size_limit={LOG_BYTES}; PRAGMA cache_size=-{CACHE_KB};
         PRAGMA temp_store=MEMORY;"
    ))
    .map_err(sql)?;
    make(&conn).map_err(sql)?;
    Ok(conn)
}

/// Opens the file for reading only.
pub(super) fn open_reader(path: &Path, manner: Manner) -> Result<Connection> {
    let sql = |error: rusqlite::Error| failure::of(path, &error);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags).map_err(sql)?;
    conn.busy_timeout(manner.busy).map_err(sql)?;
    Ok(conn)
}

fn pragma(path: &Path, conn: &Connection, name: &str) -> Result<i32> {
    conn.query_row(&format!("PRAGMA {name}"), [], |row| row.get(0))
        .map_err(|error| failure::of(path, &error))
}

fn check(path: &Path, conn: &Connection) -> Result<()> {
    let file = path.display();
    let application = pragma(path, conn, "application_id")?;
    let version = pragma(path, conn, "user_version")?;
    let tables: i64 = conn
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .map_err(|error| failure::of(path, &error))?;
    if application != APPLICATION && (application != 0 || tables > 0) {
        return Err(StoreError::refused(format!(
            "jobs database {file}: this file belongs to another program; \
             the jobs need a file of their own, name another one as store"
        )));
    }
    if version > VERSION {
        return Err(StoreError::refused(format!(
            "jobs database {file}: it was written by a newer Chaton (tables {version}, known \
             {VERSION}); use that one, or name another file as store"
        )));
    }
    Ok(())
}

fn make(conn: &Connection) -> rusqlite::Result<()> {
    let version: i32 = conn.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    if version == VERSION {
        return Ok(());
    }
    conn.execute_batch("BEGIN IMMEDIATE")?;
    // Somebody may have been faster.
    let version: i32 = conn.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    let made = if version == VERSION {
        Ok(())
    } else {
        conn.execute_batch(&format!(
            "{TABLES} PRAGMA application_id={APPLICATION}; PRAGMA user_version={VERSION};"
        ))
    };
    conn.execute_batch(if made.is_ok() { "COMMIT" } else { "ROLLBACK" })?;
    made
}
