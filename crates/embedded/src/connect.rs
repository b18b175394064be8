//! Opens a database: checks whose it is, and makes its tables.

use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::error::{Error, ErrorKind, Result};
use crate::file::{DatabaseFile, Format, APPLICATION};

/// Size to which the log's file is cut after a checkpoint.
const LOG_BYTES_MAX: i64 = 64 << 20;
/// Page cache of a connection (KB).
const CACHE_KB: i32 = 16 << 10;
/// Prepared statements kept by a connection: there are fewer.
const STATEMENTS_MAX: usize = 128;

/// Bytes of the log after which it is copied back into the file.
pub(crate) const CHECKPOINT_BYTES: i32 = 16 << 20;

/// Opens the file for writing; creates its tables if it is new.
pub(crate) fn open(file: &DatabaseFile, lock_timeout: Duration) -> Result<Connection> {
    let sql = |error: rusqlite::Error| file.sql(&error);
    let format = file.format;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = connect(file, flags, lock_timeout)?;
    check(file, &conn)?;
    conn.pragma_update(None, "page_size", format.page_bytes).map_err(sql)?;
    if log_ahead(&conn, lock_timeout).map_err(sql)? != "wal" {
        return Err(Error::refused(format!(
            "{file}: its disk does not support SQLite's write-ahead log; put it on a local disk"
        )));
    }
    let pages = CHECKPOINT_BYTES / page_bytes(&conn).map_err(sql)?;
    conn.execute_batch(&format!(
        "PRAGMA synchronous=NORMAL; PRAGMA wal_autocheckpoint={pages};
         PRAGMA journal_size_limit={LOG_BYTES_MAX}; PRAGMA cache_size=-{CACHE_KB};
         PRAGMA temp_store=MEMORY;"
    ))
    .map_err(sql)?;
    add_tables(file, &conn)?;
    Ok(conn)
}

/// Switches to the write-ahead log and returns the mode that the file has. SQLite does not wait for the lock that the
/// switch of a new file takes while another process opens it, too: to begin a transaction does.
fn log_ahead(conn: &Connection, lock_timeout: Duration) -> rusqlite::Result<String> {
    let until = Instant::now() + lock_timeout;
    loop {
        let mode = conn.query_row("PRAGMA journal_mode=WAL", [], |row| row.get(0));
        match mode.as_ref().err().and_then(rusqlite::Error::sqlite_error_code) {
            Some(ErrorCode::DatabaseBusy) if Instant::now() < until => {
                conn.execute_batch("BEGIN EXCLUSIVE; ROLLBACK")?;
            }
            _ => return mode,
        }
    }
}

/// Bytes of a page: another engine may have made the file.
pub(crate) fn page_bytes(conn: &Connection) -> rusqlite::Result<i32> {
    conn.query_row("PRAGMA page_size", [], |row| row.get(0))
}

/// Checks the tables of the file's format, and creates them if there are none.
pub(crate) fn add_tables(file: &DatabaseFile, conn: &Connection) -> Result<()> {
    check(file, conn)?;
    let made = create_tables(file.format, conn);
    made.and_then(|()| conn.execute_batch(file.format.later_tables))
        .map_err(|error| file.sql(&error))?;
    check(file, conn)
}

/// Opens the file for reading only.
pub(crate) fn open_reader(file: &DatabaseFile, lock_timeout: Duration) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    connect(file, flags, lock_timeout)
}

fn connect(file: &DatabaseFile, flags: OpenFlags, lock_timeout: Duration) -> Result<Connection> {
    let sql = |error: rusqlite::Error| file.sql(&error);
    let conn = Connection::open_with_flags(&file.path, flags).map_err(sql)?;
    conn.busy_timeout(lock_timeout).map_err(sql)?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    Ok(conn)
}

fn check(file: &DatabaseFile, conn: &Connection) -> Result<()> {
    let number = |query: &str| -> Result<i64> {
        conn.query_row(query, [], |row| row.get(0)).map_err(|error| file.sql(&error))
    };
    // One state of the file: another process may be making the tables.
    let _state = conn.unchecked_transaction().map_err(|error| file.sql(&error))?;
    let Format { content, setting, version: known, .. } = *file.format;
    let application = number("PRAGMA application_id")?;
    if is_former(file.format, application as i32) {
        return Ok(());
    }
    let all = number("PRAGMA user_version")?;
    let tables = number("SELECT count(*) FROM sqlite_schema")?;
    if application != i64::from(APPLICATION) && (application != 0 || all != 0 || tables > 0) {
        return Err(Error::refused(format!(
            "{file}: this file belongs to another program; the {content} need a file of their own, \
             name another one as {setting}"
        )));
    }
    let (version, known) = (i64::from(own_version(file.format, all as i32)), i64::from(known));
    if version > known {
        return Err(Error::refused(format!(
            "{file}: it was written by a newer Chaton (tables {version}, known {known}); use that \
             one, or name another file as {setting}"
        )));
    }
    if version > 0 && version < known {
        return Err(Error::refused(format!(
            "{file}: it was written by a Chaton before the first release; move it away to begin anew"
        )));
    }
    // A truncated file of ours still has its first page.
    if version == known && tables == 0 {
        return Err(Error::new(
            ErrorKind::Corrupt,
            format!("{file}: its tables are gone; restore a copy of it"),
        ));
    }
    Ok(())
}

fn is_former(format: &Format, application: i32) -> bool {
    format.former.is_some_and(|(former, _)| former == application)
}

/// The format's part of the `user_version`.
fn own_version(format: &Format, all: i32) -> i32 {
    all >> format.version_bit & 0xffff
}

fn create_tables(format: &Format, conn: &Connection) -> rusqlite::Result<()> {
    let number = |query: &str| conn.query_row(query, [], |row| row.get::<_, i32>(0));
    // What is to be run, and the versions after it.
    let missing = || -> rusqlite::Result<Option<(&str, i32)>> {
        let (all, known) = (number("PRAGMA user_version")?, format.version << format.version_bit);
        Ok(match format.former {
            Some((former, upgrade)) if number("PRAGMA application_id")? == former => {
                Some((upgrade, known))
            }
            _ if own_version(format, all) >= format.version => None,
            _ => Some((format.tables, all | known)),
        })
    };
    if missing()?.is_none() {
        return Ok(());
    }
    conn.execute_batch("BEGIN IMMEDIATE")?;
    // Another process may have created them meanwhile.
    let made = missing().and_then(|missing| {
        let Some((sql, versions)) = missing else { return Ok(()) };
        conn.execute_batch(&format!(
            "{sql} PRAGMA application_id={APPLICATION}; PRAGMA user_version={versions};"
        ))
    });
    let end = conn.execute_batch(if made.is_ok() { "COMMIT" } else { "ROLLBACK" });
    made.and(end)
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    /// Without a wait for the lock at least one of so many files was refused in each run.
    const ROUNDS: usize = 200;
    /// Longest wait for a lock.
    const PATIENCE: Duration = Duration::from_secs(30);

    static FORMAT: Format = Format {
        content: "numbers",
        setting: "file",
        advice_when_corrupt: "it is damaged",
        version: 1,
        version_bit: 0,
        former: None,
        tables: "CREATE TABLE numbers(n INTEGER);",
        later_tables: "",
        page_bytes: 4096,
        checkpoints_beside: true,
    };

    #[test]
    fn several_open_a_new_file_at_the_same_time() {
        for _ in 0..ROUNDS {
            let folder = tempfile::tempdir().unwrap();
            let file = DatabaseFile::new(&folder.path().join("numbers.db"), &FORMAT);
            let begin = Barrier::new(4);
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        begin.wait();
                        open(&file, PATIENCE).unwrap();
                    });
                }
            });
        }
    }
}
