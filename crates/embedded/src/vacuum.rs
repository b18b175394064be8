//! Shrinks the file while it is in use. SQLite itself keeps the space of removed rows for later ones.

use rusqlite::Connection;

use crate::database::Database;
use crate::error::{Error, ErrorKind, Result};

/// Bytes that are copied within the time for which other processes wait to write.
const COPIED_MAX: i64 = 256 << 20;

/// Shrinks the file; returns the bytes of the database before, which may be in its log still, and of the
/// file after.
///
/// # Errors
/// `Refused` for a large file, unless `force`; `Busy`.
pub fn vacuum(db: &Database, force: bool) -> Result<(u64, u64)> {
    db.exclusively(|conn| {
        let before = shrink(db, conn, force)?;
        Ok((before, std::fs::metadata(&db.file().path).map_or(0, |file| file.len())))
    })
}

fn shrink(db: &Database, conn: &Connection, force: bool) -> Result<u64> {
    let file = db.file();
    let sql = |error: rusqlite::Error| db.file().sql(&error);
    let number = |query: &str| conn.query_row(query, [], |row| row.get::<_, i64>(0)).map_err(sql);
    let (pages, page) = (number("PRAGMA page_count")?, number("PRAGMA page_size")?);
    let used = (pages - number("PRAGMA freelist_count")?) * page;
    if used > COPIED_MAX && !force {
        return Err(Error::refused(format!(
            "{file}: its {} take {} MB; to copy them would keep all processes from writing for \
             some seconds, and clients whose lock_timeout is shorter would fail. --yes does it nevertheless",
            file.format.content,
            used >> 20
        )));
    }
    // The copy may be larger than the memory.
    conn.execute_batch("PRAGMA temp_store=FILE").map_err(sql)?;
    let copied = conn.execute_batch("VACUUM").map_err(sql);
    conn.execute_batch("PRAGMA temp_store=MEMORY").map_err(sql)?;
    copied?;
    match number("PRAGMA wal_checkpoint(TRUNCATE)")? {
        0 => Ok((pages * page) as u64),
        _ => Err(Error::new(
            ErrorKind::Busy,
            format!("{file}: another process reads it all the time; try again later"),
        )),
    }
}
