//! Jobs in a SQLite file: the embedded default, for one machine.
//!
//! The file holds nothing but jobs. Beside it are SQLite's log and index
//! (`-wal`, `-shm`), the lock between processes (`-lock`) and the file whose
//! changes end the waits of other processes (`-wake`).

mod backup;
mod batches;
mod change_file;
mod database;
mod entries;
mod errors;
mod expiring;
mod file_connections;
mod inspect;
mod limits;
mod lines;
mod open_files;
mod owner_lock;
mod processes;
mod queues;
mod rows;
mod schema;
mod side_files;
mod store;
#[cfg(test)]
mod tests;
mod transaction;
mod usage;
mod vacuum;
mod watch;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::StoreError;
use super::options::StoreOptions;
use super::traits::{Result, Store, StoreFactory, StoreWatch};
use database::Database;
use schema::ConnectionSettings;
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
        let settings = ConnectionSettings::of(&self.options);
        Box::new(SqliteWatch::new(Database::shared(&self.path, settings)))
    }

    fn address(&self) -> &str {
        &self.options.url
    }
}
