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
mod watch;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use chaton_embedded::{one_path, Database, Settings, Transaction};

use super::clock::unix_s;
use super::options::StoreOptions;
use super::traits::{Result, Store, StoreFactory, StoreWatch};
use super::types::NewJob;
use super::StoreError;
use store::SqliteStore;
use transaction::SqliteTransaction;
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
    let path = one_path(Path::new(path))
        .map_err(|error| StoreError::refused(format!("store {:?}: {error}", options.url)))?;
    Ok(Arc::new(SqliteFactory { path, options: Arc::new(options.clone()) }))
}

/// Pushes jobs without locks and batches in a transaction of another engine.
///
/// # Errors
/// Those of SQLite.
pub fn push_in(tx: &Transaction<'_>, jobs: &[NewJob<'_>]) -> rusqlite::Result<()> {
    queues::push(&SqliteTransaction::new(tx), jobs, unix_s()).map(drop)
}

/// The file, as this process uses it.
fn database(path: &Path, options: &StoreOptions) -> Arc<Database> {
    let settings = Settings { lock_timeout: options.lock_timeout, follows: false };
    Database::shared(path, &schema::FORMAT, settings)
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
