//! Who may write: the lock of a file, and what is said when it is not to be had.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub(super) use chaton_core::file_lock::Held;

use super::{errors, files};
use crate::log::{LogError, Result};

/// A lock of the log.
pub(super) struct PathLock {
    lock: Arc<chaton_core::file_lock::FileLock>,
    path: PathBuf,
}

impl PathLock {
    /// Opens the file, made on first use.
    pub fn open(path: &Path) -> Result<Arc<Self>> {
        files::open_or_create(path)
            .and_then(|file| chaton_core::file_lock::FileLock::open(&file))
            .map(|lock| Arc::new(Self { lock, path: path.to_path_buf() }))
            .map_err(|error| errors::io(path, "opening the lock", &error))
    }

    /// Waits for the lock.
    pub fn acquire(&self, timeout: Duration) -> Result<Held> {
        self.acquire_within(timeout)?.ok_or_else(|| self.busy(timeout))
    }

    /// Says that it was not to be had for so long.
    pub fn busy(&self, waited: Duration) -> LogError {
        errors::locked(&self.path, waited.as_millis())
    }

    /// Waits for the lock; `None` when time is up.
    pub fn acquire_within(&self, timeout: Duration) -> Result<Option<Held>> {
        self.lock.acquire(timeout).map_err(|error| errors::io(&self.path, "locking", &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_whose_lock_was_not_to_be_had() {
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
