//! How much of request bodies a client may send before it is read.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::Arc;
use std::task::Waker;

use crate::server_state::ServerState;

/// Bytes of one request body on their way: 10 MB/s from a client 100 ms away.
pub(super) const STREAM_BYTES: u32 = 1 << 20;
/// The same for all bodies of a connection, as long as none has a share. Frames that nobody reads
/// stay in memory up to this: 75 MiB of 300 connections.
pub(super) const CONNECTION_BYTES: u32 = 256 << 10;
/// A body of which so much has arrived adds the window of its stream to that of the connection. So
/// one that nobody reads uses up what it has added, and nothing of the others'.
const SHARE_AFTER: usize = 16 << 10;
/// Bodies of one connection that do so.
const SHARES_MAX: usize = 8;
/// Bodies of the process that do so: 128 MiB, where neither the application nor the disk takes them.
const SHARES_OF_PROCESS_MAX: usize = 128;

/// The receive window of a connection. Its streams and its task are on one thread.
pub(super) struct ReceiveWindow {
    shares: AtomicUsize,
    /// Bodies without a share of which nothing is read: they may use up the window of the others.
    unread: AtomicUsize,
    /// How often there was the first or the last of them.
    changes: AtomicUsize,
    /// Of the connection's task, which opens the window.
    connection: Waker,
}

impl ReceiveWindow {
    pub fn new(connection: Waker) -> Self {
        let (shares, unread, changes) = Default::default();
        Self { shares, unread, changes, connection }
    }

    pub fn bytes(&self) -> u32 {
        CONNECTION_BYTES + STREAM_BYTES * self.shares.load(Relaxed) as u32
    }
}

/// The part of a body in it.
pub(super) struct BodyWindow {
    shared: Arc<ServerState>,
    window: Arc<ReceiveWindow>,
    arrived: usize,
    has_share: bool,
    is_unread: bool,
    /// How often the window was opened when the current time began.
    openings: Option<usize>,
}

impl BodyWindow {
    pub fn new(shared: Arc<ServerState>, window: Arc<ReceiveWindow>) -> Self {
        Self { shared, window, arrived: 0, has_share: false, is_unread: false, openings: None }
    }

    pub fn add(&mut self, bytes: usize) {
        self.arrived = self.arrived.saturating_add(bytes);
        if self.arrived > SHARE_AFTER {
            self.take_share();
        }
    }

    /// Nothing is read for now.
    pub fn pause(&mut self) {
        self.take_share();
        if !self.has_share && !std::mem::replace(&mut self.is_unread, true) {
            self.count(self.window.unread.fetch_add(1, Relaxed));
        }
    }

    /// What arrives is read.
    pub fn go_on(&mut self) {
        if std::mem::take(&mut self.is_unread) {
            self.count(self.window.unread.fetch_sub(1, Relaxed) - 1);
        }
    }

    /// [`BodyWindow::was_open`] is asked of the time from now on.
    pub fn begin_time(&mut self) {
        self.openings = self.openings();
    }

    /// Whether the client could send all the time.
    pub fn was_open(&self) -> bool {
        self.openings.is_some() && self.openings == self.openings()
    }

    /// None as long as the client perhaps can't send, because others have used up the window.
    fn openings(&self) -> Option<usize> {
        let is_open = self.window.unread.load(Relaxed) == 0;
        is_open.then(|| self.window.changes.load(Relaxed))
    }

    fn count(&self, others: usize) {
        if others == 0 {
            self.window.changes.fetch_add(1, Relaxed);
        }
    }

    fn take_share(&mut self) {
        let (ours, all) = (&self.window.shares, &self.shared.http2_shares);
        let is_free = ours.load(Relaxed) < SHARES_MAX && all.load(Relaxed) < SHARES_OF_PROCESS_MAX;
        if is_free && !std::mem::replace(&mut self.has_share, true) {
            ours.fetch_add(1, Relaxed);
            all.fetch_add(1, Relaxed);
            self.window.connection.wake_by_ref();
        }
    }
}

impl Drop for BodyWindow {
    fn drop(&mut self) {
        self.go_on();
        if self.has_share {
            self.window.shares.fetch_sub(1, Relaxed);
            self.shared.http2_shares.fetch_sub(1, Relaxed);
        }
    }
}
