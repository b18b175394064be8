//! Redis or Valkey: Sidekiq's keys, and Chaton's own under `chaton:`.
//!
//! | key | content |
//! |---|---|
//! | `chaton:high:QUEUE`, `chaton:low:QUEUE` | lists of the queue's jobs with a priority below 0 and above 0; the others are in `queue:QUEUE` |
//! | `chaton:inflight:IDENTITY` | hash `TICKET:QUEUE` → document of the jobs it claimed |
//! | `chaton:owners` | set of owners by the time of their last heartbeat or first claim (server's clock) |
//! | `chaton:places` | hash identity → boot id, pid namespace, pid and start time |
//! | `chaton:lock:KEY`, `chaton:tick:KEY` | the jid that holds a lock; that a tick was pushed |
//! | `chaton:slots:KEY`, `chaton:window:KEY`, `chaton:bucket:KEY` | limiters |
//! | `chaton:batch:BID`, `…:calls`, `…:failed` | a batch, its callbacks, its failed jids |
//! | `chaton:turn:QUEUE`, `chaton:mover` | that one of the idle processes is about to claim, or to move due jobs |
//! | `chaton:cancels` | set of cancelled jids by time |
//!
//! The transport is our own (`transport`, `resp_stream`): a watch waits for the
//! server and for its own process at once, one reply has one deadline, and
//! after a failed pipeline it is known which parts ran.

mod ack_and_claim;
mod batches;
mod connection;
mod due;
mod entries;
mod errors;
mod limits;
mod processes;
mod push;
mod redis_address;
mod resp;
mod resp_stream;
mod rights;
mod scripts;
mod server;
mod store;
#[cfg(test)]
mod tests;
mod transport;
mod watch;

use std::sync::Arc;

use super::options::StoreOptions;
use super::payload;
use super::traits::{Result, Store, StoreFactory, StoreWatch};
use connection::RedisConnection;
use redis_address::RedisAddress;
use server::ServerHandle;
use store::RedisStore;
use watch::RedisWatch;

/// What the keys of a queue's lists begin with, in the order in which jobs are claimed: those with a priority below 0,
/// those without one, those above 0.
const LISTS: [&str; 3] = ["chaton:high:", "queue:", "chaton:low:"];

/// The list of [`LISTS`] that a job belongs to.
fn list_of(payload: &[u8]) -> &'static str {
    LISTS[(payload::priority_of(payload).signum() + 1) as usize]
}

/// Opens connections to one server.
struct RedisFactory {
    server: Arc<ServerHandle>,
    options: Arc<StoreOptions>,
}

impl RedisFactory {
    fn new(options: &StoreOptions) -> Result<Self> {
        let server = ServerHandle::new(RedisAddress::read(options)?, options.forks);
        let server = Arc::new(server);
        Ok(Self { server, options: Arc::new(options.clone()) })
    }
}

/// The factory for an address. It does not connect yet.
///
/// # Errors
/// [`super::StoreErrorKind::Refused`] naming what is wrong with the address.
pub fn factory(options: &StoreOptions) -> Result<Arc<dyn StoreFactory>> {
    Ok(Arc::new(RedisFactory::new(options)?))
}

impl StoreFactory for RedisFactory {
    fn store(&self) -> Box<dyn Store> {
        let conn = RedisConnection::new(self.server.clone(), false);
        Box::new(RedisStore { conn, options: self.options.clone(), filled: String::new() })
    }

    fn watch(&self) -> Box<dyn StoreWatch> {
        Box::new(RedisWatch::new(self.server.clone()))
    }

    fn address(&self) -> &str {
        &self.server.address.shown
    }
}
