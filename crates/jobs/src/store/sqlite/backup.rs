//! A copy of the file while it is in use.

use std::path::Path;
use std::time::Duration;

use rusqlite::backup::{Backup, StepResult};
use rusqlite::Connection;

use super::beside::with_suffix;
use super::db::Db;
use super::{failure, schema};
use crate::store::{Result, StoreError};

/// Pages copied in one step.
const STEP_PAGES: i32 = 256;
/// Between two tries to read a file that another program has locked.
const LOCKED_PAUSE: Duration = Duration::from_millis(20);

/// Copies the database to `target`, which must not be there yet. The process
/// must not fork meanwhile: the child would inherit SQLite's locks.
pub(super) fn run(db: &Db, target: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
    if target.exists() {
        return Err(StoreError::refused(format!(
            "backup: {} is there already; name a new file",
            target.display()
        )));
    }
    // Makes sure that the file is there, is ours and can be read.
    db.read(|_| Ok(()))?;
    let part = with_suffix(target, ".part");
    let _ = std::fs::remove_file(&part);
    let copied = copy(db, &part, progress).and_then(|()| {
        let synced = std::fs::File::open(&part).and_then(|file| file.sync_all());
        synced
            .and_then(|()| std::fs::rename(&part, target))
            .map_err(|error| failure::of_io(target, "its copy", &error))
    });
    if copied.is_err() {
        let _ = std::fs::remove_file(&part);
    }
    copied
}

fn copy(db: &Db, part: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
    let of_source = |error: rusqlite::Error| failure::of(db.path(), &error);
    let of_copy = |error: rusqlite::Error| failure::of(part, &error);
    let source = schema::open_reader(db.path(), db.manner())?;
    // One state of the file from begin to end: a copy that follows its changes
    // begins anew with each of them, and never ends on a busy file.
    source.execute_batch("BEGIN").map_err(of_source)?;
    source.query_row("SELECT count(*) FROM queues", [], |_| Ok(())).map_err(of_source)?;
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
