//! The client of Redis and Valkey: addresses, sentinels, connections, and the wire format.
//!
//! * [`RedisAddress`]: where the server is, and how to get in.
//! * [`ServerHandle`]: what all connections of a process to one server share. It follows a failover.
//! * [`RedisConnection`]: sends a [`Pipeline`] of commands and reads the replies, or waits for what the server pushes.
//!
//! The transport is our own: a wait ends with the server and with its own process at once, one reply has one deadline,
//! and after a failed pipeline it is known which parts ran. Errors of stores and TLS settings are here, too, because
//! clients of other servers share them.

#![warn(missing_docs)]

mod address;
mod connection;
mod error;
mod errors;
mod resp;
mod resp_stream;
mod scripts;
mod server;
pub mod tls;
mod transport;

pub use address::{without_password, AddressOptions, RedisAddress};
pub use connection::RedisConnection;
pub use error::{Result, StoreError, StoreErrorKind};
pub use resp::{decimal, Pipeline, RespValue};
pub use scripts::ScriptSource;
pub use server::ServerHandle;
pub use transport::PollResult;
