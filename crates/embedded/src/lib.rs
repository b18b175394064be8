//! SQLite files that the processes of one machine share: jobs and records each live in one.
//!
//! A [`Database`] is one file in this process. Its writes are collected and committed together
//! ([`Database::write`]), under a lock between processes that a waiter sleeps on; its readers
//! ([`Database::reader`]) do not wait for writers. Beside the file are SQLite's log and index
//! (`-wal`, `-shm`), the lock (`-lock`) and the files whose changes end the waits of other
//! processes (`-wake`, [`change_file`]). Each engine names its tables in a [`Format`]; several may share a file.

#![warn(missing_docs)]

mod backup;
pub mod change_file;
mod change_watch;
mod checkpoints;
mod connect;
mod connections;
mod database;
mod error;
mod file;
mod open_files;
mod owner_lock;
mod side_files;
mod transaction;
mod vacuum;

pub use backup::backup;
pub use change_watch::ChangeWatch;
pub use connections::Reader;
pub use database::{Database, Settings};
pub use error::{Error, ErrorKind, Result};
pub use file::{DatabaseFile, Format, APPLICATION};
pub use open_files::FORK_WAIT_MAX_MS;
pub use owner_lock::{is_free, LockPlace, OwnerLock};
pub use side_files::{inode, one_path, with_suffix};
pub use transaction::{Enlisted, Transaction};
pub use vacuum::vacuum;
