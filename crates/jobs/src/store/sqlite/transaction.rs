//! A transaction, and what an operation of the jobs remembers in it.

use std::cell::Cell;

use chaton_embedded::Transaction;
use rusqlite::Connection;

/// The channel of all changes that other processes may wait for.
pub(super) const CHANNEL: u8 = 0;

/// A transaction, and what remains to be done at the operation's end.
pub(super) struct SqliteTransaction<'a> {
    /// The connection that it runs on.
    pub conn: &'a Connection,
    transaction: &'a Transaction<'a>,
    dead_added_at: Cell<Option<f64>>,
}

impl<'a> SqliteTransaction<'a> {
    pub fn new(transaction: &'a Transaction<'a>) -> Self {
        Self { conn: transaction.conn, transaction, dead_added_at: Cell::new(None) }
    }

    /// Other processes may wait for this change.
    pub fn notify(&self) {
        self.transaction.notify(CHANNEL);
    }

    /// The dead set grew, at this time.
    pub fn dead_added(&self, at: f64) {
        self.dead_added_at.set(Some(self.dead_added_at.get().map_or(at, |last| last.max(at))));
    }

    /// When the dead set last grew; forgets it.
    pub fn take_dead_added_at(&self) -> Option<f64> {
        self.dead_added_at.take()
    }
}
