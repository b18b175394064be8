//! Event streams without a thread: messages go into one ordered log, and a [`Hub`] in each process passes them on to
//! the connections that are subscribed to their names.
//!
//! * The log: a SQLite file that all processes of the machine share, or a Redis that all machines share. Its offsets are
//!   the order of all messages.
//! * [`Hub`]: reads the log once for a process, on the thread `chaton-live`, and encodes each message once for all of its
//!   subscribers.
//! * [`Subscription`]: what one connection is sent. The connection's task polls it.
//!
//! Nothing is opened and no thread is started before the first use.

#![warn(missing_docs)]

mod admissions;
mod client_address;
mod entrance;
mod file_log;
mod hub;
mod log;
mod message;
mod position;
mod redis_log;
mod row;
mod settings;
mod subscriber;
mod subscription;
mod tail;

pub use admissions::Admissions;
pub use chaton_embedded::{Error, ErrorKind, Result};
pub use entrance::Admission;
pub use hub::{Client, Hub, Refused, Wish};
pub use message::Message;
pub use position::RequestDigest;
pub use row::Position;
pub use settings::{RedisSettings, Settings, SlowClient};
pub use subscription::{Step, Subscription};
