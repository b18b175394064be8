//! Tests of the whole log.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use chaton_core::file_lock::{FileLock, Held};
use rusqlite::Connection;

use super::*;
use crate::log::conformance::fixture::*;

/// A log in a folder that goes with it.
pub(super) struct TempLog(tempfile::TempDir);

impl TempLog {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn database(&self) -> PathBuf {
        self.path().join("log.db")
    }

    /// While what is returned lives, nothing can be written.
    pub fn lock(&self) -> Held {
        let path = self.path().join("log.db-lock");
        let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
        FileLock::open(&file).unwrap().acquire(PATIENCE).unwrap().unwrap()
    }

    /// Changes the database from outside.
    pub fn change(&self, sql: &str) {
        let _held = self.lock();
        let conn = Connection::open(self.database()).unwrap();
        conn.busy_timeout(PATIENCE).unwrap();
        conn.execute_batch(sql).unwrap();
    }
}

impl LogFixture for TempLog {
    fn open(&self, change: &dyn Fn(&mut LogSettings)) -> Arc<dyn RecordLog> {
        let mut settings = LogSettings::for_tests(&format!("log://{}", self.path().display()));
        change(&mut settings);
        Arc::new(LocalLog::open(&settings).unwrap())
    }
}

/// One for all cases: they run side by side on it.
struct Shared;

impl LogFixture for Shared {
    fn open(&self, change: &dyn Fn(&mut LogSettings)) -> Arc<dyn RecordLog> {
        static PLACE: OnceLock<TempLog> = OnceLock::new();
        PLACE.get_or_init(TempLog::new).open(change)
    }
}

mod clock;
mod members;
mod producing;
mod recovery;
mod removal;
mod retention;
mod transactions;

mod suite {
    crate::conformance!(|| super::Shared);
}
