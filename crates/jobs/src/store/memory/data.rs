//! The content of a memory store.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use super::expiring_map::ExpiringMap;
use super::limits::Limits;
use super::lines::MemoryLine;
use super::sorted_set::SortedSet;
use crate::store::options::StoreOptions;
use crate::store::payload::priority_of;
use crate::store::types::{NewBatch, ProcessStatus};

/// One queue.
#[derive(Default)]
pub(super) struct MemoryQueue {
    /// The next one to be claimed is the first.
    pub jobs: VecDeque<Vec<u8>>,
    pub paused: bool,
    /// The count of changes when it last got a job.
    pub changed: u64,
}

/// A claimed job: its queue and its document.
pub(super) type InFlightJob = (Arc<str>, Vec<u8>);

/// One batch.
#[derive(Default)]
pub(super) struct Batch {
    pub description: String,
    pub parent: Option<String>,
    pub created_at: f64,
    /// `(event, queue, document)`.
    pub callbacks: Vec<(String, String, Vec<u8>)>,
    pub total: u64,
    /// Jids of its jobs that have not succeeded.
    pub pending: BTreeSet<String>,
    /// Those whose last run failed.
    pub failed: BTreeSet<String>,
    /// Closed nested batches that have not succeeded.
    pub children: u64,
    /// Closed nested batches that are not complete.
    pub incomplete: u64,
    /// Who will close it.
    pub owner: String,
    pub closed: bool,
    pub complete: bool,
    pub success: bool,
    pub dead: bool,
}

impl Batch {
    pub fn replace(&mut self, new: &NewBatch<'_>) {
        let callback = |(event, queue, payload): &(&str, &str, &[u8])| {
            (event.to_string(), queue.to_string(), payload.to_vec())
        };
        self.callbacks = new.callbacks.iter().map(callback).collect();
        self.description = new.description.to_string();
    }
}

/// An owner of jobs in flight.
pub(super) struct OwnerRecord {
    pub process_key: String,
    pub heartbeat: Instant,
    /// Its last report; `None` before its first heartbeat.
    pub status: Option<ProcessStatus>,
}

/// The content of a memory store.
#[derive(Default)]
pub(super) struct MemoryData {
    pub queues: BTreeMap<String, MemoryQueue>,
    pub schedule: SortedSet,
    pub retry: SortedSet,
    pub dead: SortedSet,
    /// OwnerRecord → ticket → job.
    pub in_flight: HashMap<String, BTreeMap<u64, InFlightJob>>,
    pub owners: BTreeMap<String, OwnerRecord>,
    pub signals: ExpiringMap<VecDeque<String>>,
    pub processed: u64,
    pub failed: u64,
    /// Key → the jid that holds its lock.
    pub locks: ExpiringMap<String>,
    pub limits: Limits,
    /// By [`Limit::line`](crate::limit::Limit::line).
    pub lines: BTreeMap<String, MemoryLine>,
    pub batches: ExpiringMap<Batch>,
    /// Keys of [`crate::store::Store::push_once`].
    pub ticks: ExpiringMap<()>,
    pub cancels: ExpiringMap<()>,
    pub hashes: ExpiringMap<BTreeMap<String, Vec<u8>>>,
    changes: u64,
    other_changed: u64,
}

impl MemoryData {
    /// The count of changes that a watch may wait for.
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
    pub fn filling(&mut self, name: &str) -> &mut MemoryQueue {
        self.changes += 1;
        let queue = self.queues.entry(name.to_string()).or_default();
        queue.changed = self.changes;
        queue
    }

    /// Adds a job at the back of its queue.
    pub fn enqueue(&mut self, queue: &str, payload: Vec<u8>) {
        let jobs = &mut self.filling(queue).jobs;
        let priority = priority_of(&payload);
        jobs.insert(jobs.partition_point(|job| priority_of(job) <= priority), payload);
    }

    /// Adds a job at the front of its queue.
    pub fn put_back(&mut self, queue: &str, payload: Vec<u8>) {
        let jobs = &mut self.filling(queue).jobs;
        let priority = priority_of(&payload);
        jobs.insert(jobs.partition_point(|job| priority_of(job) < priority), payload);
    }

    /// Adds a job to the dead set and trims it.
    pub fn add_dead(&mut self, at: f64, payload: Vec<u8>, options: &StoreOptions) {
        self.dead.add(at, payload);
        self.dead.trim(at - options.dead_age.as_secs_f64(), options.dead_max);
        self.touch();
    }

    /// When the next scheduled job or retry is due.
    pub fn next_at(&self) -> Option<f64> {
        [self.schedule.first(), self.retry.first()].into_iter().flatten().min_by(f64::total_cmp)
    }

    /// Releases a lock if this jid holds it.
    pub fn unlock(&mut self, key: &str, jid: &str) {
        if self.locks.get(key).is_some_and(|holder| holder == jid) {
            self.locks.remove(key);
        }
    }

    /// Drops expired values.
    pub fn prune(&mut self) {
        self.signals.prune();
        self.locks.prune();
        self.batches.prune();
        self.ticks.prune();
        self.cancels.prune();
        self.hashes.prune();
    }
}

/// What all users of one name share.
pub(super) struct SharedData {
    pub data: Mutex<MemoryData>,
    /// Notified when something changed that a watch may wait for.
    pub changed: Condvar,
}
