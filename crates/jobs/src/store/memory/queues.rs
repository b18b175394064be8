//! Pushing, claiming and acknowledging jobs.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use super::data::MemoryData;
use super::limits::holder;
use crate::outcome::{Ack, Outcome, SideEffects};
use crate::store::line::{called, lines_to_look_at};
use crate::store::options::StoreOptions;
use crate::store::payload::named_queue;
use crate::store::types::{ClaimReply, ClaimRequest, ClaimedJob, NewJob, PushResult};

impl MemoryData {
    pub fn push(&mut self, jobs: &[NewJob<'_>]) -> Vec<PushResult> {
        jobs.iter().map(|job| self.push_one(job)).collect()
    }

    pub fn push_once(&mut self, key: &str, ttl: Duration, job: &NewJob<'_>) -> bool {
        if self.ticks.get(key).is_some() {
            return false;
        }
        self.ticks.put(key, (), ttl);
        self.push_one(job) == PushResult::Stored
    }

    fn push_one(&mut self, job: &NewJob<'_>) -> PushResult {
        if let Some(lock) = job.lock {
            // A scheduled job that is pushed when it is due holds its own lock.
            match self.locks.get(lock.key) {
                Some(holder) if holder != lock.jid => return PushResult::Locked(holder.clone()),
                _ => self.locks.put(lock.key, lock.jid.to_string(), lock.ttl),
            }
        }
        if let Some(bid) = job.bid {
            self.batch_add(bid, job.payload);
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
        acks: &[Ack],
        request: Option<&ClaimRequest<'_>>,
        options: &StoreOptions,
    ) -> ClaimReply {
        let mut reply = ClaimReply::default();
        let is_back = |ack: &&Ack| matches!(ack.outcome, Outcome::Requeue { .. });
        let (mut back, rest): (Vec<&Ack>, Vec<&Ack>) = acks.iter().partition(is_back);
        // The last requeued job is at the front: the lowest ticket.
        back.sort_by_key(|ack| Reverse(ack.ticket));
        for ack in rest.into_iter().chain(back) {
            if !self.ack_one(owner, ack, options) {
                reply.fenced += 1;
            }
        }
        let (now_s, names) = lines_to_look_at(acks);
        names.iter().for_each(|(name, always)| self.look_at_line(name, now_s, *always));
        if let Some(request) = request {
            self.claim(owner, request, &mut reply);
        }
        reply
    }

    /// `false` when the in-flight entry was gone.
    fn ack_one(&mut self, owner: &str, ack: &Ack, options: &StoreOptions) -> bool {
        let flights = self.in_flight.get_mut(owner);
        let Some((from, was)) = flights.and_then(|flights| flights.remove(&ack.ticket)) else {
            return false;
        };
        match &ack.outcome {
            Outcome::Ack | Outcome::Discard => {}
            Outcome::Retry { at, payload } => {
                self.retry.add(*at, payload.clone());
                self.touch();
            }
            Outcome::Reschedule { at, payload } => {
                self.schedule.add(*at, payload.clone().unwrap_or(was));
                self.touch();
            }
            Outcome::Wait(wait) => self.join_line(wait, &home(&from, None, &wait.payload)),
            Outcome::Dead { payload, at } => {
                self.add_dead(*at, payload.clone().unwrap_or(was), options);
            }
            Outcome::Requeue { payload, queue } => {
                let payload = payload.clone().unwrap_or(was);
                let queue = home(&from, queue.as_deref(), &payload);
                self.put_back(&queue, payload);
            }
        }
        if let Some(effects) = &ack.effects {
            self.apply_effects(owner, ack.ticket, effects);
        }
        true
    }

    fn apply_effects(&mut self, owner: &str, ticket: u64, effects: &SideEffects) {
        if let Some((key, jid)) = &effects.unlock {
            self.unlock(key, jid);
        }
        for key in &effects.release {
            self.limits.release(key, &holder(owner, ticket));
            self.limits.release(key, &called(&effects.jid));
        }
        if let Some(step) = &effects.batch {
            self.batch_step(step);
        }
    }

    fn claim(&mut self, owner: &str, request: &ClaimRequest<'_>, reply: &mut ClaimReply) {
        let mut ticket = request.first_ticket;
        for name in request.queues {
            while reply.jobs.len() < request.count {
                let queue = self.queues.get_mut(&**name).filter(|queue| !queue.paused);
                let Some(payload) = queue.and_then(|queue| queue.jobs.pop_front()) else { break };
                self.add_in_flight(owner, ticket, Arc::clone(name), payload.clone());
                reply.jobs.push(ClaimedJob { ticket, queue: Arc::clone(name), payload });
                ticket += 1;
            }
        }
        reply.drained = !request.queues.iter().any(|name| self.has_work(name));
    }

    /// Adds a job to the owner's in-flight set.
    pub fn add_in_flight(&mut self, owner: &str, ticket: u64, queue: Arc<str>, payload: Vec<u8>) {
        self.add_owner(owner);
        let flights = self.in_flight.entry(owner.to_string()).or_default();
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

/// The queue that a job is requeued to: where it came from, else the given one,
/// else the one its document names.
fn home(from: &str, given: Option<&str>, payload: &[u8]) -> String {
    match (from, given) {
        ("", None | Some("")) => named_queue(payload),
        ("", Some(given)) => given.to_string(),
        (from, _) => from.to_string(),
    }
}
