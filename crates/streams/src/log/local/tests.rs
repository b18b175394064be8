//! Tests of the whole log.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use super::*;
use crate::log::conformance::bench::Bench;

/// A log in a folder that goes with it.
pub(super) struct Temporary(tempfile::TempDir);

impl Temporary {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Bench for Temporary {
    fn open(&self, change: &dyn Fn(&mut LogSettings)) -> Arc<dyn Log> {
        let mut settings = LogSettings::new(&format!("log://{}", self.path().display()));
        change(&mut settings);
        Arc::new(LocalLog::open(&settings).unwrap())
    }
}

/// One for all cases: they run side by side on it.
struct Shared;

impl Bench for Shared {
    fn open(&self, change: &dyn Fn(&mut LogSettings)) -> Arc<dyn Log> {
        static PLACE: OnceLock<Temporary> = OnceLock::new();
        PLACE.get_or_init(Temporary::new).open(change)
    }
}

mod suite {
    crate::conformance!(|| super::Shared);
}
