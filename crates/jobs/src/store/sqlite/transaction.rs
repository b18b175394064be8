//! A transaction that several operations share.

use std::cell::Cell;

use rusqlite::Connection;

/// A transaction, and what remains to be done at its end.
pub(super) struct SqliteTransaction<'a> {
    /// The connection that it runs on.
    pub conn: &'a Connection,
    notifies: Cell<bool>,
    dead_added_at: Cell<Option<f64>>,
}

impl<'a> SqliteTransaction<'a> {
    pub fn new(conn: &'a Connection) -> Self {
        Self { conn, notifies: Cell::new(false), dead_added_at: Cell::new(None) }
    }

    /// Other processes may wait for this change.
    pub fn notify(&self) {
        self.notifies.set(true);
    }

    /// Whether other processes are notified after the commit.
    pub fn notifies(&self) -> bool {
        self.notifies.get()
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
