//! Tests of the whole log.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::*;
use crate::log::conformance::fixture::LogFixture;

/// A log in a folder that goes with it.
pub(super) struct TempLog(tempfile::TempDir);

impl TempLog {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Where there is a file system in memory: for tests that write thousands
    /// of files and sync none.
    pub fn in_memory() -> Self {
        let memory = Path::new("/dev/shm");
        let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        Self(made.unwrap())
    }

    pub fn path(&self) -> &Path {
        self.0.path()
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

mod members;
mod producing;
mod recovery;
mod removal;
mod retention;
mod transactions;

mod suite {
    crate::conformance!(|| super::Shared);
}
