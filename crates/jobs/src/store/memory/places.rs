//! The places where jobs wait, for people and tools.

use std::time::{Duration, SystemTime};

use super::data::{Data, Queue};
use super::set::Set;
use crate::document::{enqueued_at, stamped, Document, Fields};
use crate::store::{
    BatchEvent, BatchUpdate, JobEntry, JobLocation, QueueStatus, Result, Stats, StoreError,
    StoreOptions,
};

impl Data {
    pub fn stats(&self, lease: Duration) -> Stats {
        Stats {
            processed: self.processed,
            failed: self.failed,
            enqueued: self.queues.values().map(|queue| queue.jobs.len() as u64).sum(),
            scheduled: self.schedule.len() as u64,
            retries: self.retry.len() as u64,
            dead: self.dead.len() as u64,
            in_flight: self.flights.values().map(|flights| flights.len() as u64).sum(),
            processes: self.processes(lease).len() as u64,
        }
    }

    pub fn queues_seen(&self) -> Vec<QueueStatus> {
        let now_s = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let seen = |(name, queue): (&String, &Queue)| {
            let since = queue.jobs.front().and_then(|payload| enqueued_at(payload));
            QueueStatus {
                name: name.clone(),
                size: queue.jobs.len() as u64,
                latency_s: since.map_or(0.0, |since| (now_s.as_secs_f64() - since).max(0.0)),
                paused: queue.paused,
            }
        };
        self.queues.iter().map(seen).collect()
    }

    pub fn list(&self, place: &JobLocation, offset: usize, count: usize) -> Vec<JobEntry> {
        let waiting = |payload: &Vec<u8>| JobEntry { score: 0.0, row: 0, payload: payload.clone() };
        match place {
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
        places.into_iter().find_map(|place| {
            let mut entries = self.list(&place, 0, usize::MAX).into_iter();
            let entry = entries.find(|entry| is_job(&entry.payload, jid))?;
            Some((place, entry))
        })
    }

    pub fn remove(&mut self, place: &JobLocation, entry: &JobEntry) -> bool {
        let taken = self.take(place, entry);
        if taken {
            self.discard(&entry.payload);
        }
        taken
    }

    pub fn requeue(
        &mut self,
        place: &JobLocation,
        entry: &JobEntry,
        now_s: f64,
        options: &StoreOptions,
    ) -> Result<bool> {
        let one_less = *place == JobLocation::Retry;
        let ready = match (stamped(&entry.payload, now_s, options.format, one_less), place) {
            // Its back is that of the queue where it stands.
            (Some((_, payload)), JobLocation::Queue(name)) => (name.clone(), payload),
            (None, JobLocation::Queue(name)) => (name.clone(), entry.payload.clone()),
            (Some(ready), _) => ready,
            (None, _) => {
                return Err(StoreError::refused(
                    "this entry is no job document with a queue: it can only be removed",
                ))
            }
        };
        let taken = self.take(place, entry);
        if taken {
            self.enqueue(&ready.0, ready.1);
        }
        Ok(taken)
    }

    pub fn kill(
        &mut self,
        place: &JobLocation,
        entry: &JobEntry,
        now_s: f64,
        options: &StoreOptions,
    ) -> bool {
        let taken = self.take(place, entry);
        if taken {
            self.bury(now_s, entry.payload.clone(), options);
            self.discard(&entry.payload);
        }
        taken
    }

    pub fn clear(&mut self, place: &JobLocation, max: usize) -> usize {
        let max = if max == 0 { usize::MAX } else { max };
        let gone: Vec<Vec<u8>> = match place {
            JobLocation::Queue(name) => {
                let Some(queue) = self.queues.get_mut(name) else { return 0 };
                queue.jobs.drain(..max.min(queue.jobs.len())).collect()
            }
            _ => self.set(place).drain(max).into_iter().map(|entry| entry.payload).collect(),
        };
        gone.iter().for_each(|payload| self.discard(payload));
        gone.len()
    }

    /// A set. A queue has none: callers look at queues first.
    fn set(&mut self, place: &JobLocation) -> &mut Set {
        match place {
            JobLocation::Retry => &mut self.retry,
            JobLocation::Dead => &mut self.dead,
            JobLocation::Scheduled | JobLocation::Queue(_) => &mut self.schedule,
        }
    }

    fn take(&mut self, place: &JobLocation, entry: &JobEntry) -> bool {
        let JobLocation::Queue(name) = place else {
            return self.set(place).take(&entry.payload).is_some();
        };
        let Some(queue) = self.queues.get_mut(name) else { return false };
        let at = queue.jobs.iter().position(|payload| *payload == entry.payload);
        at.and_then(|at| queue.jobs.remove(at)).is_some()
    }

    /// A job is given up by a person: its lock is freed, its batch told.
    fn discard(&mut self, payload: &[u8]) {
        let Ok(doc) = Document::parse(payload.into()) else { return };
        if let Some(lock) = doc.extra().and_then(|extra| extra.lock.as_deref()) {
            self.unlock(lock, doc.jid());
        }
        if let Some(bid) = doc.bid() {
            let (bid, jid) = (bid.to_string(), doc.jid().to_string());
            self.batch_step(&BatchUpdate { bid, jid, event: BatchEvent::Died });
        }
    }
}

fn page(set: &Set, offset: usize, count: usize) -> Vec<JobEntry> {
    set.entries().iter().skip(offset).take(count).cloned().collect()
}

fn is_job(payload: &[u8], jid: &str) -> bool {
    Fields::parse(payload).is_ok_and(|fields| fields.text("jid").as_deref() == Some(jid))
}
