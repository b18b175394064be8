//! Jobs in PostgreSQL, in tables of the schema `chaton` (see `schema`).
//!
//! Claims take rows that nobody else holds (`FOR UPDATE SKIP LOCKED`), many at once, with the acknowledgements of the
//! jobs that ended in the same statement. Changes are told by `NOTIFY` after the commit.

mod address;
mod advice;
mod batches;
mod connection;
mod constants;
mod errors;
mod floors;
mod inspect;
mod jobs;
mod limits;
mod lines;
mod outbox;
mod own;
mod owners;
mod relay;
mod rows;
mod schema;
mod server;
mod store;
#[cfg(test)]
pub(crate) mod tests;
mod tree;
mod watch;

use std::sync::Arc;

use chaton_core::outbox::Outlet;

use super::error::StoreError;
use super::options::StoreOptions;
use super::traits::{Result, Store, StoreFactory, StoreWatch};
use address::PostgresAddress;
use server::Server;
use store::PostgresStore;
use watch::PostgresWatch;

struct PostgresFactory {
    server: Arc<Server>,
}

/// The factory for `postgres://…`. It does not connect yet.
///
/// # Errors
/// [`super::StoreErrorKind::Refused`] naming what is wrong with the address.
pub fn factory(options: &StoreOptions) -> Result<Arc<dyn StoreFactory>> {
    let address = PostgresAddress::read(options)?;
    Ok(Arc::new(PostgresFactory {
        server: Arc::new(Server::new(address, Arc::new(options.clone()))),
    }))
}

/// The statements that make the tables: those with which a transaction begins, then a script for each version. In the end
/// the number in `chaton.version` is that of the scripts.
pub fn schema() -> Vec<&'static str> {
    [&[schema::BEGIN], schema::STEPS].concat()
}

impl StoreFactory for PostgresFactory {
    fn store(&self) -> Box<dyn Store> {
        Box::new(PostgresStore::new(self.server.clone()))
    }

    fn watch(&self) -> Box<dyn StoreWatch> {
        Box::new(PostgresWatch::new(self.server.clone()))
    }

    fn address(&self) -> &str {
        &self.server.address.shown
    }

    fn relay(&self, outlet: Box<dyn Outlet>) -> Result<Option<Box<dyn FnOnce() + Send>>> {
        let started = relay::start(&self.server, outlet);
        started.map(Some).map_err(|error| {
            StoreError::unavailable(format!("no thread for the relay of the outbox: {error}"))
        })
    }
}
