//! A transaction that several operations share.

use std::cell::Cell;

use rusqlite::Connection;

use crate::error::Result;

/// What another engine writes in a transaction of the file that both have their tables in.
pub trait Enlisted: Send + Sync {
    /// Writes it.
    ///
    /// # Errors
    /// The transaction is undone.
    fn write(&self, tx: &Transaction<'_>) -> Result<()>;
}

/// A transaction, and which waits end after its commit.
pub struct Transaction<'a> {
    /// The connection that it runs on.
    pub conn: &'a Connection,
    channels: Cell<u128>,
}

impl<'a> Transaction<'a> {
    pub(crate) fn new(conn: &'a Connection) -> Self {
        Self { conn, channels: Cell::new(0) }
    }

    /// Other processes may wait on this channel, below 128, for this change: see
    /// [`change_file`](crate::change_file).
    pub fn notify(&self, channel: u8) {
        self.channels.set(self.channels.get() | 1 << channel);
    }

    /// The channels to be notified after the commit.
    pub(crate) fn channels(&self) -> impl Iterator<Item = u8> {
        let channels = self.channels.get();
        (0..128).filter(move |channel| channels >> channel & 1 == 1)
    }
}
