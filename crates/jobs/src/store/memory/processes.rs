//! Processes and the jobs that they have in flight.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::data::{MemoryData, OwnerRecord};
use crate::store::clock::unix_s;
use crate::store::types::{
    ClaimedJob, HeartbeatReply, OwnerStatus, ProcessReport, ProcessStatus, SIGNAL_TTL,
};

impl MemoryData {
    /// Puts jobs back into an in-flight set that has lost them, unless they will be claimed.
    pub fn restore(&mut self, owner: &str, jobs: &[ClaimedJob]) -> usize {
        let mut restored = 0;
        for ClaimedJob { ticket, queue, payload } in jobs {
            let sets = [&self.retry, &self.schedule];
            let known = self.in_flight.get(owner).is_some_and(|jobs| jobs.contains_key(ticket))
                || sets.iter().any(|set| set.entries().iter().any(|one| one.payload == *payload))
                || self.queues.get(&**queue).is_some_and(|queue| queue.jobs.contains(payload));
            if !known {
                self.add_in_flight(owner, *ticket, queue.clone(), payload.clone());
                restored += 1;
            }
        }
        restored
    }

    /// Adds an owner that has claimed and not sent a heartbeat.
    pub fn add_owner(&mut self, owner: &str) {
        if !self.owners.contains_key(owner) {
            let new =
                OwnerRecord { process_key: String::new(), heartbeat: Instant::now(), status: None };
            self.owners.insert(owner.to_string(), new);
        }
    }

    pub fn heartbeat(&mut self, report: &ProcessReport<'_>) -> HeartbeatReply {
        self.prune();
        self.look_at_lines(report.now_s);
        self.processed += report.processed;
        self.failed += report.failed;
        let status = ProcessStatus {
            identity: report.identity.to_string(),
            info: report.info.to_string(),
            busy: report.busy as u64,
            quiet: report.quiet,
            rss_kb: report.rss_kb,
            heartbeat_at: report.now_s,
            work: report.work.to_vec(),
        };
        let now = OwnerRecord {
            process_key: report.process_key.into(),
            heartbeat: Instant::now(),
            status: Some(status),
        };
        let before = self.owners.insert(report.identity.to_string(), now);
        let signals = self.signals.get_mut(report.identity).map(std::mem::take).unwrap_or_default();
        HeartbeatReply {
            is_new: before.is_none_or(|owner| owner.status.is_none()),
            now_s: unix_s(),
            processes: self.owners.len(),
            silent: 0,
            signals: signals.into(),
            shared: false,
            follows: false,
        }
    }

    pub fn owner_statuses(&self) -> Vec<OwnerStatus> {
        let seen = |(identity, owner): (&String, &OwnerRecord)| OwnerStatus {
            identity: identity.clone(),
            process_key: owner.process_key.clone(),
            heartbeat_age: owner.heartbeat.elapsed(),
            ended: false,
        };
        self.owners.iter().map(seen).collect()
    }

    pub fn in_flight(&self, owner: &str) -> Vec<ClaimedJob> {
        let flights = self.in_flight.get(owner).into_iter().flatten();
        let claimed = |(ticket, (queue, payload)): (&u64, &(Arc<str>, Vec<u8>))| ClaimedJob {
            ticket: *ticket,
            queue: Arc::clone(queue),
            payload: payload.clone(),
        };
        flights.map(claimed).collect()
    }

    pub fn forget(&mut self, owner: &str) -> bool {
        if self.in_flight.get(owner).is_some_and(|flights| !flights.is_empty()) {
            return false;
        }
        self.in_flight.remove(owner);
        self.owners.remove(owner);
        self.signals.remove(owner);
        true
    }

    /// Processes whose lease has not expired.
    pub fn processes(&self, lease: Duration) -> Vec<ProcessStatus> {
        let alive = self.owners.values().filter(|owner| owner.heartbeat.elapsed() <= lease);
        alive.filter_map(|owner| owner.status.clone()).collect()
    }

    pub fn signal(&mut self, identity: &str, signal: &str) {
        let mut signals: VecDeque<String> = self.signals.get(identity).cloned().unwrap_or_default();
        signals.push_back(signal.to_string());
        self.signals.put(identity, signals, SIGNAL_TTL);
    }
}
