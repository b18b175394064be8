//! Everything that one place holds.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use super::batches::Batch;
use super::fading::Fading;
use super::limits::Limits;
use super::peers::Owner;
use super::set::Set;
use crate::store::StoreOptions;

/// One queue.
#[derive(Default)]
pub(super) struct Queue {
    /// The next one to be claimed is the first.
    pub jobs: VecDeque<Vec<u8>>,
    pub paused: bool,
    /// The count of changes when it last got a job.
    pub changed: u64,
}

/// A claimed job: the queue it came from, and its document.
pub(super) type Flight = (Arc<str>, Vec<u8>);

/// Everything that one place holds.
#[derive(Default)]
pub(super) struct Data {
    pub queues: BTreeMap<String, Queue>,
    pub schedule: Set,
    pub retry: Set,
    pub dead: Set,
    /// Owner → ticket → job.
    pub flights: HashMap<String, BTreeMap<u64, Flight>>,
    pub owners: BTreeMap<String, Owner>,
    pub signals: Fading<VecDeque<String>>,
    pub processed: u64,
    pub failed: u64,
    /// What is locked → the jid that holds it.
    pub locks: Fading<String>,
    pub limits: Limits,
    pub batches: Fading<Batch>,
    /// Keys of [`crate::store::Store::push_once`].
    pub ticks: Fading<()>,
    pub cancels: Fading<()>,
    pub hashes: Fading<BTreeMap<String, Vec<u8>>>,
    changes: u64,
    other_changed: u64,
}

impl Data {
    /// Counts what a watcher may wait for.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// The count of changes when something else than a queue last changed.
    pub fn other_changed(&self) -> u64 {
        self.other_changed
    }

    /// Something else than a queue changed.
    pub fn touch(&mut self) {
        self.changes += 1;
        self.other_changed = self.changes;
    }

    /// A queue that gets a job now.
    pub fn filling(&mut self, name: &str) -> &mut Queue {
        self.changes += 1;
        let queue = self.queues.entry(name.to_string()).or_default();
        queue.changed = self.changes;
        queue
    }

    /// A job to the back of its queue.
    pub fn enqueue(&mut self, queue: &str, payload: Vec<u8>) {
        self.filling(queue).jobs.push_back(payload);
    }

    /// A job into the dead set, within its bounds.
    pub fn bury(&mut self, at: f64, payload: Vec<u8>, options: &StoreOptions) {
        self.dead.add(at, payload);
        self.dead.trim(at - options.dead_age.as_secs_f64(), options.dead_max);
        self.touch();
    }

    /// When the next scheduled job or retry is due.
    pub fn next_at(&self) -> Option<f64> {
        [self.schedule.first(), self.retry.first()].into_iter().flatten().min_by(f64::total_cmp)
    }

    /// Gives a lock up, if it is this jid that holds it.
    pub fn unlock(&mut self, key: &str, jid: &str) {
        if self.locks.get(key).is_some_and(|holder| holder == jid) {
            self.locks.remove(key);
        }
    }

    /// Frees what has ended by itself.
    pub fn prune(&mut self, now_s: f64) {
        self.signals.prune();
        self.locks.prune();
        self.batches.prune();
        self.ticks.prune();
        self.cancels.prune();
        self.hashes.prune();
        self.limits.prune(now_s);
    }
}
