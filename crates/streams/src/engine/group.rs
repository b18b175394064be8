//! A consumer group's side that others than its thread look at.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

use chaton_core::event_fd::EventFd;
use parking_lot::Mutex;

use super::backoff::Backoff;
use super::cell::Cell;
use super::life::{Now, Rules};
use super::shared::Shared;
use super::stats::GroupStats;
use super::transactors::Transactors;
use crate::record::Chunk;
use crate::settings::GroupSettings;

/// One of its topics.
pub(super) struct Route {
    pub rules: Arc<Rules>,
    pub transactors: Transactors,
}

/// Of one group.
pub(super) struct Group {
    pub settings: GroupSettings,
    pub routes: Vec<Arc<Route>>,
    pub shared: Arc<Shared>,
    pub bell: Arc<EventFd>,
    /// Of notices.
    pub no_records: Arc<Chunk>,
    /// Its thread waits, or is about to.
    asleep: AtomicBool,
    /// Until then; all ones while it looks for what is due.
    sleep_until_ns: AtomicU64,
    /// When the next commit may be said.
    commit_at_ns: AtomicU64,
    /// A commit is being said.
    committing: AtomicBool,
    cells: Mutex<Vec<Arc<Cell>>>,
    identity: Mutex<Vec<u8>>,
    /// The log took it for an older one's.
    identity_doubted: AtomicBool,
    connected: AtomicBool,
    trouble: Mutex<Option<String>>,
    /// What writing dead letters met with.
    letters: Mutex<Backoff>,
}

impl Group {
    pub fn new(
        settings: GroupSettings,
        routes: Vec<Arc<Route>>,
        shared: &Arc<Shared>,
        bell: EventFd,
    ) -> Arc<Self> {
        Arc::new(Self {
            settings,
            routes,
            shared: shared.clone(),
            bell: Arc::new(bell),
            no_records: Arc::default(),
            letters: Mutex::new(Backoff::new(shared.group_retry_max_ms)),
            asleep: AtomicBool::new(false),
            sleep_until_ns: AtomicU64::new(u64::MAX),
            commit_at_ns: AtomicU64::new(0),
            committing: AtomicBool::new(false),
            cells: Mutex::default(),
            identity: Mutex::default(),
            identity_doubted: AtomicBool::new(false),
            connected: AtomicBool::new(false),
            trouble: Mutex::default(),
        })
    }

    /// Half of the time after which the log takes a silent member for dead.
    pub fn drain_time(&self) -> Duration {
        Duration::from_millis(self.settings.max_poll_interval_ms / 2)
    }

    /// The route of a topic.
    pub fn route(&self, topic: &str) -> Option<&Arc<Route>> {
        self.routes.iter().find(|route| route.rules.settings.topic == topic)
    }

    /// Wakes the group's thread if it waits.
    pub fn notify(&self) {
        if self.asleep.swap(false, Ordering::SeqCst) {
            self.bell.notify();
        }
    }

    /// Whether its thread waits, and would wake too late for this.
    pub fn oversleeps(&self, at_ns: u64) -> bool {
        self.asleep.load(Ordering::SeqCst) && at_ns < self.sleep_until_ns.load(Ordering::SeqCst)
    }

    /// The thread is about to wait and looks a last time: whoever has
    /// something for it rings from here on.
    pub fn falls_asleep(&self) {
        self.sleep_until_ns.store(u64::MAX, Ordering::SeqCst);
        self.asleep.store(true, Ordering::SeqCst);
    }

    /// Whether somebody has rung since it fell asleep.
    pub fn was_rung(&self) -> bool {
        !self.asleep.load(Ordering::SeqCst)
    }

    pub fn sleeps_until(&self, at_ns: u64) {
        self.sleep_until_ns.store(at_ns, Ordering::SeqCst);
    }

    pub fn wakes(&self) {
        self.asleep.store(false, Ordering::SeqCst);
    }

    /// When the next commit may be said.
    pub fn commit_at_ns(&self) -> u64 {
        self.commit_at_ns.load(Ordering::Relaxed)
    }

    pub fn commit_not_before(&self, at_ns: u64) {
        self.commit_at_ns.store(at_ns, Ordering::Relaxed);
    }

    /// A dead letter was written, or was not.
    pub fn letter_ended(&self, topic: &str, failure: Option<&str>) {
        let mut letters = self.letters.lock();
        let Some(why) = failure else {
            letters.worked();
            return;
        };
        let (_, news) = letters.failed(why);
        drop(letters);
        if news {
            let name = &self.settings.name;
            let what = format!("group {name}: writing a dead letter to {topic}");
            self.shared.warn(&format!("{what}: {why}; its partition waits, trying again"));
        }
    }

    pub fn set_committing(&self, yes: bool) {
        self.committing.store(yes, Ordering::SeqCst);
        if !yes {
            self.shared.ended();
        }
    }

    /// What the member has got now.
    pub fn cells(&self) -> Vec<Arc<Cell>> {
        self.cells.lock().clone()
    }

    pub fn add(&self, cell: Arc<Cell>) {
        self.cells.lock().push(cell);
    }

    /// Forgets partitions whose last turn has ended.
    pub fn forget_over(&self) {
        self.cells.lock().retain(|cell| !cell.is_over());
    }

    pub fn identity(&self) -> Vec<u8> {
        self.identity.lock().clone()
    }

    pub fn set_identity(&self, identity: Vec<u8>) {
        *self.identity.lock() = identity;
    }

    /// A generation may pass without an event for this member: its thread
    /// asks who it is now.
    pub fn doubt_identity(&self) {
        self.identity_doubted.store(true, Ordering::SeqCst);
        self.notify();
    }

    /// Whether somebody does; once.
    pub fn was_identity_doubted(&self) -> bool {
        self.identity_doubted.swap(false, Ordering::SeqCst)
    }

    /// How it stands with the log.
    pub fn set_trouble(&self, trouble: Option<String>) {
        *self.trouble.lock() = trouble;
    }

    pub fn set_connected(&self, yes: bool) {
        self.connected.store(yes, Ordering::Relaxed);
    }

    pub fn is_idle(&self) -> bool {
        let cells = self.cells();
        cells.iter().all(|cell| cell.is_idle()) && !self.committing.load(Ordering::SeqCst)
    }

    pub fn stats(&self, now: Now) -> GroupStats {
        GroupStats {
            name: self.settings.name.clone(),
            connected: self.connected.load(Ordering::Relaxed),
            trouble: self.trouble.lock().clone(),
            partitions: self.cells().iter().map(|cell| cell.picture(now)).collect(),
        }
    }
}
