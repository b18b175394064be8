//! Jobs in queues and sets, for people and tools.

use std::time::Duration;

use super::data::{MemoryData, MemoryQueue};
use super::sorted_set::SortedSet;
use crate::document::enqueued_at;
use crate::outcome::{BatchEvent, BatchUpdate};
use crate::store::clock::unix_s;
use crate::store::options::StoreOptions;
use crate::store::payload::{has_jid, requeued, JobResources};
use crate::store::traits::Result;
use crate::store::types::{JobEntry, JobLocation, QueueStatus, Stats};

impl MemoryData {
    pub fn stats(&self, lease: Duration) -> Stats {
        Stats {
            processed: self.processed,
            failed: self.failed,
            enqueued: self.queues.values().map(|queue| queue.jobs.len() as u64).sum(),
            scheduled: self.schedule.len() as u64,
            retries: self.retry.len() as u64,
            dead: self.dead.len() as u64,
            in_flight: self.in_flight.values().map(|flights| flights.len() as u64).sum(),
            processes: self.processes(lease).len() as u64,
        }
    }

    pub fn queue_statuses(&self) -> Vec<QueueStatus> {
        let now_s = unix_s();
        let seen = |(name, queue): (&String, &MemoryQueue)| {
            let since = queue.jobs.front().and_then(|payload| enqueued_at(payload));
            QueueStatus {
                name: name.clone(),
                size: queue.jobs.len() as u64,
                latency_s: since.map_or(0.0, |since| (now_s - since).max(0.0)),
                paused: queue.paused,
            }
        };
        self.queues.iter().map(seen).collect()
    }

    pub fn list(&self, location: &JobLocation, offset: usize, count: usize) -> Vec<JobEntry> {
        let waiting = |payload: &Vec<u8>| JobEntry { score: 0.0, row: 0, payload: payload.clone() };
        match location {
            JobLocation::Queue(name) => {
                let jobs = self.queues.get(name).into_iter().flat_map(|queue| &queue.jobs);
                jobs.skip(offset).take(count).map(waiting).collect()
            }
            JobLocation::Dead => {
                self.dead.entries().iter().rev().skip(offset).take(count).cloned().collect()
            }
            JobLocation::Scheduled => page(&self.schedule, offset, count),
            JobLocation::Retry => page(&self.retry, offset, count),
        }
    }

    pub fn find(&self, jid: &str) -> Option<(JobLocation, JobEntry)> {
        let queues = self.queues.keys().map(|name| JobLocation::Queue(name.clone()));
        let places = [JobLocation::Scheduled, JobLocation::Retry, JobLocation::Dead]
            .into_iter()
            .chain(queues);
        places.into_iter().find_map(|location| {
            let mut entries = self.list(&location, 0, usize::MAX).into_iter();
            let entry = entries.find(|entry| has_jid(&entry.payload, jid))?;
            Some((location, entry))
        })
    }

    pub fn remove(&mut self, location: &JobLocation, entry: &JobEntry) -> bool {
        let taken = self.take(location, entry);
        if taken {
            self.release(&entry.payload);
        }
        taken
    }

    pub fn enqueue_entry(
        &mut self,
        location: &JobLocation,
        entry: &JobEntry,
        now_s: f64,
        options: &StoreOptions,
    ) -> Result<bool> {
        let (queue, payload) = requeued(location, entry, now_s, options.format)?;
        let taken = self.take(location, entry);
        if taken {
            self.enqueue(&queue, payload);
        }
        Ok(taken)
    }

    pub fn kill(
        &mut self,
        location: &JobLocation,
        entry: &JobEntry,
        now_s: f64,
        options: &StoreOptions,
    ) -> bool {
        let taken = self.take(location, entry);
        if taken {
            self.add_dead(now_s, entry.payload.clone(), options);
            self.release(&entry.payload);
        }
        taken
    }

    pub fn add_entry(
        &mut self,
        location: &JobLocation,
        at: f64,
        payload: &[u8],
        options: &StoreOptions,
    ) {
        if *location == JobLocation::Dead {
            return self.add_dead(at, payload.to_vec(), options);
        }
        self.set(location).add(at, payload.to_vec());
        self.touch();
    }

    pub fn reschedule(&mut self, location: &JobLocation, entry: &JobEntry, at: f64) -> bool {
        let Some(found) = self.set(location).take(&entry.payload) else { return false };
        self.set(location).add(at, found.payload);
        self.touch();
        true
    }

    pub fn clear(&mut self, location: &JobLocation, max: usize) -> usize {
        let max = if max == 0 { usize::MAX } else { max };
        let gone: Vec<Vec<u8>> = match location {
            JobLocation::Queue(name) => {
                let Some(queue) = self.queues.get_mut(name) else { return 0 };
                queue.jobs.drain(..max.min(queue.jobs.len())).collect()
            }
            _ => self.set(location).drain(max).into_iter().map(|entry| entry.payload).collect(),
        };
        gone.iter().for_each(|payload| self.release(payload));
        gone.len()
    }

    /// A set. Must not be called for a queue.
    fn set(&mut self, location: &JobLocation) -> &mut SortedSet {
        match location {
            JobLocation::Retry => &mut self.retry,
            JobLocation::Dead => &mut self.dead,
            JobLocation::Scheduled | JobLocation::Queue(_) => &mut self.schedule,
        }
    }

    fn take(&mut self, location: &JobLocation, entry: &JobEntry) -> bool {
        let JobLocation::Queue(name) = location else {
            return self.set(location).take(&entry.payload).is_some();
        };
        let Some(queue) = self.queues.get_mut(name) else { return false };
        let at = queue.jobs.iter().position(|payload| *payload == entry.payload);
        at.and_then(|at| queue.jobs.remove(at)).is_some()
    }

    /// Releases the lock of a removed job and counts it as dead in its batch.
    fn release(&mut self, payload: &[u8]) {
        let JobResources { jid, lock, bid } = JobResources::of(payload);
        if let Some(lock) = lock {
            self.unlock(&lock, &jid);
        }
        if let Some(bid) = bid {
            self.batch_step(&BatchUpdate { bid, jid, event: BatchEvent::Died });
        }
    }
}

fn page(set: &SortedSet, offset: usize, count: usize) -> Vec<JobEntry> {
    set.entries().iter().skip(offset).take(count).cloned().collect()
}
