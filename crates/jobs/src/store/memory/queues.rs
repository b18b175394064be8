//! The way of a job: pushed, claimed, settled.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use super::data::Data;
use crate::document::Document;
use crate::store::{
    Ack, ClaimReply, ClaimRequest, ClaimedJob, NewJob, Outcome, PushResult, SideEffects,
    StoreOptions,
};

/// The queue of a document that names none.
const DEFAULT_QUEUE: &str = "default";

impl Data {
    pub fn push(&mut self, jobs: &[NewJob<'_>]) -> Vec<PushResult> {
        jobs.iter().map(|job| self.push_one(job)).collect()
    }

    pub fn push_once(&mut self, key: &str, ttl: Duration, job: &NewJob<'_>) -> bool {
        if self.ticks.get(key).is_some() {
            return false;
        }
        self.ticks.put(key, (), ttl);
        self.push_one(job);
        true
    }

    fn push_one(&mut self, job: &NewJob<'_>) -> PushResult {
        if let Some(lock) = job.lock {
            // Its own lock does not hold it up: it was claimed when it became
            // due, and is pushed again.
            match self.locks.get(lock.key) {
                Some(holder) if holder != lock.jid => return PushResult::Locked(holder.clone()),
                _ => self.locks.put(lock.key, lock.jid.to_string(), lock.ttl),
            }
        }
        if let Some(bid) = job.bid {
            self.batch_add(bid);
        }
        match job.at {
            Some(at) => {
                self.schedule.add(at, job.payload.to_vec());
                self.touch();
            }
            None => self.enqueue(job.queue, job.payload.to_vec()),
        }
        PushResult::Stored
    }

    pub fn ack_and_claim(
        &mut self,
        owner: &str,
        settles: &[Ack],
        want: Option<&ClaimRequest<'_>>,
        options: &StoreOptions,
    ) -> ClaimReply {
        let mut turn = ClaimReply::default();
        let is_back = |settle: &&Ack| matches!(settle.outcome, Outcome::Requeue { .. });
        let (mut back, rest): (Vec<&Ack>, Vec<&Ack>) = settles.iter().partition(is_back);
        // Each goes before the last one: the lowest ticket last.
        back.sort_by_key(|settle| Reverse(settle.ticket));
        for settle in rest.into_iter().chain(back) {
            if !self.settle(owner, settle, options) {
                turn.fenced += 1;
            }
        }
        if let Some(want) = want {
            self.claim(owner, want, &mut turn);
        }
        turn
    }

    /// `false`: the entry was gone.
    fn settle(&mut self, owner: &str, settle: &Ack, options: &StoreOptions) -> bool {
        let flights = self.flights.get_mut(owner);
        let Some((from, was)) = flights.and_then(|flights| flights.remove(&settle.ticket)) else {
            return false;
        };
        match &settle.outcome {
            Outcome::Ack | Outcome::Discard => {}
            Outcome::Retry { at, payload } => {
                self.retry.add(*at, payload.clone());
                self.touch();
            }
            Outcome::Reschedule { at } => {
                self.schedule.add(*at, was);
                self.touch();
            }
            Outcome::Dead { payload, at } => {
                self.bury(*at, payload.clone().unwrap_or(was), options);
            }
            Outcome::Requeue { payload, queue } => {
                let payload = payload.clone().unwrap_or(was);
                let queue = home(&from, queue.as_deref(), &payload);
                self.filling(&queue).jobs.push_front(payload);
            }
        }
        if let Some(effects) = &settle.effects {
            self.set_free(owner, settle.ticket, effects);
        }
        true
    }

    fn set_free(&mut self, owner: &str, ticket: u64, effects: &SideEffects) {
        if let Some((key, jid)) = &effects.unlock {
            self.unlock(key, jid);
        }
        for key in &effects.release {
            self.limits.release(key, owner, ticket);
        }
        if let Some(step) = &effects.batch {
            self.batch_step(step);
        }
    }

    fn claim(&mut self, owner: &str, want: &ClaimRequest<'_>, turn: &mut ClaimReply) {
        let mut ticket = want.first_ticket;
        for name in want.queues {
            while turn.jobs.len() < want.count {
                let queue = self.queues.get_mut(&**name).filter(|queue| !queue.paused);
                let Some(payload) = queue.and_then(|queue| queue.jobs.pop_front()) else { break };
                self.fly(owner, ticket, Arc::clone(name), payload.clone());
                turn.jobs.push(ClaimedJob { ticket, queue: Arc::clone(name), payload });
                ticket += 1;
            }
        }
        turn.drained = !want.queues.iter().any(|name| self.has_work(name));
    }

    /// Into the owner's in-flight set.
    pub fn fly(&mut self, owner: &str, ticket: u64, queue: Arc<str>, payload: Vec<u8>) {
        self.know(owner);
        let flights = self.flights.entry(owner.to_string()).or_default();
        flights.insert(ticket, (queue, payload));
    }

    /// Whether a queue that is not paused holds a job.
    pub fn has_work(&self, queue: &str) -> bool {
        self.queues.get(queue).is_some_and(|queue| !queue.paused && !queue.jobs.is_empty())
    }

    pub fn pause(&mut self, queue: &str, paused: bool) {
        self.queues.entry(queue.to_string()).or_default().paused = paused;
        self.touch();
    }
}

/// Where a job goes back to: where it came from, else where it is told to,
/// else where it says itself.
fn home(from: &str, told: Option<&str>, payload: &[u8]) -> String {
    if !from.is_empty() {
        return from.to_string();
    }
    if let Some(told) = told.filter(|told| !told.is_empty()) {
        return told.to_string();
    }
    let named = Document::parse(payload.into()).ok().map(|doc| doc.queue().to_string());
    named.filter(|name| !name.is_empty()).unwrap_or_else(|| DEFAULT_QUEUE.to_string())
}
