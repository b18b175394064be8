//! A lock between processes on a file of the log, with errors that name it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use chaton_core::file_lock::FileLock;
pub(super) use chaton_core::file_lock::Held;

use super::{errors, files};
use crate::log::{LogError, Result};

pub(super) struct PathLock {
    lock: Arc<FileLock>,
    path: PathBuf,
}

impl PathLock {
    /// Opens the lock's file and creates it if needed.
    pub fn open(path: &Path) -> Result<Arc<Self>> {
        files::open_or_create(path)
            .and_then(|file| FileLock::open(&file))
            .map(|lock| Arc::new(Self { lock, path: path.to_path_buf() }))
            .map_err(|error| errors::io(path, "opening the lock", &error))
    }

    pub fn acquire(&self, timeout: Duration) -> Result<Held> {
        self.acquire_within(timeout)?.ok_or_else(|| self.timed_out(timeout))
    }

    /// The same; `None` when the time is up.
    pub fn acquire_within(&self, timeout: Duration) -> Result<Option<Held>> {
        self.lock.acquire(timeout).map_err(|error| errors::io(&self.path, "locking", &error))
    }

    /// The error after waiting this long.
    pub fn timed_out(&self, waited: Duration) -> LogError {
        errors::lock_timed_out(&self.path, waited.as_millis())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_names_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let (one, two) = (PathLock::open(&path).unwrap(), PathLock::open(&path).unwrap());
        let _held = one.acquire(Duration::from_secs(5)).unwrap();
        let error = std::thread::scope(|scope| {
            let wait = || two.acquire(Duration::from_millis(5)).err().unwrap();
            scope.spawn(wait).join().unwrap()
        });
        assert!(error.message.contains("lock is held by another process"), "{error}");
        assert!(error.message.contains(&path.display().to_string()), "{error}");
    }
}
