//! Shrinks the file while it is in use. SQLite itself keeps the space of removed jobs for later ones.

use rusqlite::Connection;

use super::database::Database;
use super::errors;
use crate::store::error::{StoreError, StoreErrorKind};
use crate::store::traits::Result;

/// Bytes of jobs that are copied within the time for which other processes wait to write.
const JOBS_MAX: i64 = 256 << 20;

/// Bytes of the database before, which may be in its log still, and of the file after.
pub(super) fn run(db: &Database, force: bool) -> Result<(u64, u64)> {
    db.exclusively(|conn| {
        let before = shrink(db, conn, force)?;
        Ok((before, std::fs::metadata(db.path()).map_or(0, |file| file.len())))
    })
}

fn shrink(db: &Database, conn: &Connection, force: bool) -> Result<u64> {
    let file = db.path().display();
    let sql = |error: rusqlite::Error| errors::of(db.path(), &error);
    let number = |query: &str| conn.query_row(query, [], |row| row.get::<_, i64>(0)).map_err(sql);
    let (pages, page) = (number("PRAGMA page_count")?, number("PRAGMA page_size")?);
    let jobs = (pages - number("PRAGMA freelist_count")?) * page;
    if jobs > JOBS_MAX && !force {
        return Err(StoreError::refused(format!(
            "jobs database {file}: its jobs take {} MB; to copy them would keep all processes from writing for \
             some seconds, and clients whose lock_timeout is shorter would fail. --yes does it nevertheless",
            jobs >> 20
        )));
    }
    // The copy may be larger than the memory.
    conn.execute_batch("PRAGMA temp_store=FILE").map_err(sql)?;
    let copied = conn.execute_batch("VACUUM").map_err(sql);
    conn.execute_batch("PRAGMA temp_store=MEMORY").map_err(sql)?;
    copied?;
    match number("PRAGMA wal_checkpoint(TRUNCATE)")? {
        0 => Ok((pages * page) as u64),
        _ => Err(StoreError::new(
            StoreErrorKind::Busy,
            format!("jobs database {file}: another process reads it all the time; try again later"),
        )),
    }
}
