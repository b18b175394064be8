//! A copy of the file while it is in use.

use std::path::Path;
use std::time::Duration;

use rusqlite::backup::{Backup, StepResult};
use rusqlite::Connection;

use crate::connect;
use crate::database::Database;
use crate::error::{Error, Result};
use crate::file::DatabaseFile;

use crate::side_files::with_suffix;

/// Pages copied in one step.
const STEP_PAGES: i32 = 256;
/// Between two tries to read a file that another program has locked.
const LOCKED_PAUSE: Duration = Duration::from_millis(20);

/// Copies the database to `target`, which must not exist. The process must not
/// fork meanwhile: the child would inherit SQLite's locks.
///
/// # Errors
/// When it cannot be read or written.
pub fn backup(db: &Database, target: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
    if target.exists() {
        return Err(Error::refused(format!(
            "backup: {} is there already; name a new file",
            target.display()
        )));
    }
    // Fails if the file cannot be read or is not ours.
    db.read(|_| Ok(()))?;
    let part = with_suffix(target, ".part");
    let _ = std::fs::remove_file(&part);
    let copied = copy(db, &part, progress).and_then(|()| {
        let synced = std::fs::File::open(&part).and_then(|file| file.sync_all());
        synced
            .and_then(|()| std::fs::rename(&part, target))
            .map_err(|error| DatabaseFile::new(target, db.file().format).io("its copy", &error))
    });
    if copied.is_err() {
        let _ = std::fs::remove_file(&part);
    }
    copied
}

fn copy(db: &Database, part: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
    let copied = DatabaseFile::new(part, db.file().format);
    let of_source = |error: rusqlite::Error| db.file().sql(&error);
    let of_copy = |error: rusqlite::Error| copied.sql(&error);
    let source = connect::open_reader(db.file(), db.settings().lock_timeout)?;
    // One snapshot for the whole copy: a copy that follows changes restarts at
    // each of them and never ends on a busy file.
    source.execute_batch("BEGIN").map_err(of_source)?;
    source.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(())).map_err(of_source)?;
    let mut copy = Connection::open(part).map_err(of_copy)?;
    let backup = Backup::new(&source, &mut copy).map_err(of_copy)?;
    loop {
        let step = backup.step(STEP_PAGES).map_err(of_copy)?;
        let about = backup.progress();
        let pages = about.pagecount.max(0) as u64;
        progress(pages - about.remaining.max(0) as u64, pages);
        match step {
            StepResult::Done => return Ok(()),
            StepResult::More => {}
            _ => std::thread::sleep(LOCKED_PAUSE),
        }
    }
}
