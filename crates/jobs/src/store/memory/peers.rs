//! Who is there and what they hold.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::data::Data;
use crate::store::{ClaimedJob, HeartbeatReply, OwnerStatus, ProcessReport, ProcessStatus};

/// How long a signal waits for its process.
const SIGNAL_KEPT: Duration = Duration::from_secs(60);

/// An owner of jobs in flight.
pub(super) struct Owner {
    place: String,
    beat: Instant,
    /// What it said of itself; none before its first beat.
    shown: Option<ProcessStatus>,
}

impl Data {
    /// Notes an owner that has not yet given a sign of life.
    pub fn know(&mut self, owner: &str) {
        if !self.owners.contains_key(owner) {
            let new = Owner { place: String::new(), beat: Instant::now(), shown: None };
            self.owners.insert(owner.to_string(), new);
        }
    }

    pub fn heartbeat(&mut self, beat: &ProcessReport<'_>) -> HeartbeatReply {
        self.prune(beat.now_s);
        self.processed += beat.processed;
        self.failed += beat.failed;
        let work = beat
            .work
            .iter()
            .map(|one| (one.tid.clone(), one.queue.to_string(), one.payload.to_vec(), one.run_at));
        let shown = ProcessStatus {
            identity: beat.identity.to_string(),
            info: beat.info.to_string(),
            busy: beat.busy as u64,
            quiet: beat.quiet,
            rss_kb: beat.rss_kb,
            heartbeat_at: beat.now_s,
            work: work.collect(),
        };
        let now =
            Owner { place: beat.process_key.into(), beat: Instant::now(), shown: Some(shown) };
        let before = self.owners.insert(beat.identity.to_string(), now);
        let signals = self.signals.get_mut(beat.identity).map(std::mem::take).unwrap_or_default();
        HeartbeatReply {
            is_new: before.is_none_or(|owner| owner.shown.is_none()),
            signals: signals.into(),
        }
    }

    pub fn owners_seen(&self) -> Vec<OwnerStatus> {
        let seen = |(identity, owner): (&String, &Owner)| OwnerStatus {
            identity: identity.clone(),
            process_key: owner.place.clone(),
            heartbeat_age: owner.beat.elapsed(),
        };
        self.owners.iter().map(seen).collect()
    }

    pub fn in_flight(&self, owner: &str) -> Vec<ClaimedJob> {
        let flights = self.flights.get(owner).into_iter().flatten();
        let claimed = |(ticket, (queue, payload)): (&u64, &(Arc<str>, Vec<u8>))| ClaimedJob {
            ticket: *ticket,
            queue: Arc::clone(queue),
            payload: payload.clone(),
        };
        flights.map(claimed).collect()
    }

    pub fn forget(&mut self, owner: &str) -> bool {
        if self.flights.get(owner).is_some_and(|flights| !flights.is_empty()) {
            return false;
        }
        self.flights.remove(owner);
        self.owners.remove(owner);
        self.signals.remove(owner);
        true
    }

    /// Processes whose last beat is not older than the lease.
    pub fn processes(&self, lease: Duration) -> Vec<ProcessStatus> {
        let living = self.owners.values().filter(|owner| owner.beat.elapsed() <= lease);
        living.filter_map(|owner| owner.shown.clone()).collect()
    }

    pub fn signal(&mut self, identity: &str, signal: &str) {
        let mut signals: VecDeque<String> = self.signals.get(identity).cloned().unwrap_or_default();
        signals.push_back(signal.to_string());
        self.signals.put(identity, signals, SIGNAL_KEPT);
    }
}
