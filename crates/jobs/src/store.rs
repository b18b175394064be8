//! Where jobs live: the [`Store`] trait, and its implementations on SQLite, Redis and PostgreSQL.

use std::sync::Arc;

#[cfg(test)]
pub mod conformance;
#[cfg(test)]
pub mod memory;
pub mod postgres;
pub mod redis;
pub mod sqlite;

mod clock;
mod limiter;
pub(crate) mod line;
mod options;
mod payload;
mod poll;
mod traits;
mod types;

pub use crate::limit::{Limit, LimitRule};
pub use crate::outcome::{Ack, BatchEvent, BatchUpdate, Outcome, SideEffects};
pub(crate) use chaton_redis as error;
pub use chaton_redis::{without_password, StoreError, StoreErrorKind};
pub use options::StoreOptions;
pub use traits::*;
pub use types::*;

/// Opens the store at an address: `sqlite://PATH`, `redis://…`, `rediss://…`,
/// `redis+sentinel://…`, `rediss+sentinel://…`, `unix://PATH?db=N` (a socket of Redis) or
/// `postgres://USER@HOST/DATABASE`.
///
/// # Errors
/// [`StoreErrorKind::Refused`] naming what is wrong with the address or an option.
pub fn open(options: &StoreOptions) -> Result<Arc<dyn StoreFactory>> {
    let scheme = options.url.split(':').next().unwrap_or_default();
    match scheme {
        #[cfg(test)]
        "memory" => memory::factory(options),
        "sqlite" => sqlite::factory(options),
        "redis" | "rediss" | "valkey" | "valkeys" | "redis+sentinel" | "rediss+sentinel"
        | "unix" => redis::factory(options),
        "postgres" | "postgresql" => postgres::factory(options),
        _ => Err(StoreError::refused(format!(
            "store {:?}: unknown kind; use sqlite://PATH, redis://HOST:PORT/DB, rediss://, \
             redis+sentinel://, unix://PATH or postgres://HOST:PORT/DATABASE",
            without_password(&options.url)
        ))),
    }
}
