//! Jobs in a SQLite file: the embedded default, for one machine.
//!
//! The file holds nothing but jobs. Beside it are SQLite's log and index
//! (`-wal`, `-shm`), the lock between processes (`-lock`) and the file whose
//! changes end the waits of other processes (`-wake`).

mod batches;
mod entries;
mod expiring;
mod inspect;
mod limits;
mod lines;
mod processes;
mod queues;
mod rows;
mod schema;
mod store;
#[cfg(test)]
mod tests;
mod transaction;
mod usage;
mod watch;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use chaton_embedded::{Database, ErrorKind, Settings};

use super::error::{StoreError, StoreErrorKind};
use super::options::StoreOptions;
use super::traits::{Result, Store, StoreFactory, StoreWatch};
use store::SqliteStore;
use watch::SqliteWatch;

const SCHEME: &str = "sqlite://";

struct SqliteFactory {
    path: PathBuf,
    options: Arc<StoreOptions>,
}

/// The factory for `sqlite://PATH`.
///
/// # Errors
/// When the address has no path.
pub fn factory(options: &StoreOptions) -> Result<Arc<dyn StoreFactory>> {
    let path = options.url.strip_prefix(SCHEME).unwrap_or_default();
    if path.is_empty() || path.ends_with('/') {
        return Err(StoreError::refused(format!(
            "store {:?}: no file is named; write sqlite://storage/chaton.db",
            options.url
        )));
    }
    let path = canonical(Path::new(path))
        .map_err(|error| StoreError::refused(format!("store {:?}: {error}", options.url)))?;
    Ok(Arc::new(SqliteFactory { path, options: Arc::new(options.clone()) }))
}

/// The file, as this process uses it.
fn database(path: &Path, options: &StoreOptions) -> Arc<Database> {
    let settings =
        Settings { durable: options.durable, lock_timeout: options.lock_timeout, follows: false };
    Database::shared(path, &schema::FORMAT, settings)
}

impl From<chaton_embedded::Error> for StoreError {
    fn from(error: chaton_embedded::Error) -> Self {
        let kind = match error.kind {
            ErrorKind::Unavailable => StoreErrorKind::Unavailable,
            ErrorKind::Full => StoreErrorKind::Full,
            ErrorKind::Busy => StoreErrorKind::Busy,
            ErrorKind::Corrupt => StoreErrorKind::Corrupt,
            ErrorKind::Refused => StoreErrorKind::Refused,
        };
        Self::new(kind, error.message)
    }
}

/// One path for each file, as far as it exists yet.
fn canonical(path: &Path) -> std::io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    if let Ok(path) = path.canonicalize() {
        return Ok(path);
    }
    match (path.parent().and_then(|folder| folder.canonicalize().ok()), path.file_name()) {
        (Some(folder), Some(name)) => Ok(folder.join(name)),
        _ => Ok(path),
    }
}

impl StoreFactory for SqliteFactory {
    fn store(&self) -> Box<dyn Store> {
        Box::new(SqliteStore::new(self.path.clone(), self.options.clone()))
    }

    fn watch(&self) -> Box<dyn StoreWatch> {
        Box::new(SqliteWatch::new(database(&self.path, &self.options)))
    }

    fn address(&self) -> &str {
        &self.options.url
    }
}
