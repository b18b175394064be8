//! The part of Ruby's threads: they start jobs and end them.

use std::sync::Arc;

use super::ledger::CALLBACK;
use super::steps::Op;
use super::world::World;
use crate::document::{stamped, Fields};
use crate::engine::job::Job;
use crate::outcome::Outcome;
use crate::store::{NewJob, StoreErrorKind};

/// Failures after which a job is dead.
const RETRIES_MAX: u32 = 2;

impl World<'_> {
    pub fn start(&mut self) {
        let node = self.pick();
        self.start_on(node);
    }

    /// Starts the next job of an engine; whether there was one.
    fn start_on(&mut self, node: usize) -> bool {
        self.absorb();
        let waited = !self.nodes[node].engine.feed.jobs.lock().is_empty();
        let Some(job) = self.nodes[node].engine.start_one() else { return waited };
        let jid = job.document().jid().to_string();
        self.note(format!("   {} starts {jid}", self.nodes[node].identity()));
        if !job.is_due() {
            self.ledger.check_callback(&jid);
            self.ledger.job(&jid).runs += 1;
        }
        self.nodes[node].running.push(job);
        true
    }

    /// No more jobs run at once than their limits allow, of those that no other process can have.
    pub fn check_limits(&mut self) {
        let mut counts = std::collections::HashMap::<&str, usize>::new();
        for node in &self.nodes {
            for job in node.running.iter().filter(|job| !node.has_lost(job) && !job.is_due()) {
                let model = self.ledger.jobs.get(job.document().jid());
                let Some((key, max)) = model.and_then(|model| model.limit.as_ref()) else {
                    continue;
                };
                let count = counts.entry(key).or_default();
                *count += 1;
                assert!(*count <= *max, "{count} jobs run under the limit {key}, not {max}");
            }
        }
    }

    /// Ends a running job in this way.
    pub fn end_one(&mut self, op: Op) {
        let node = self.pick();
        let count = self.nodes[node].running.len();
        if count > 0 {
            let index = self.random.usize(..count);
            self.end_at(node, index, op);
        }
    }

    fn end_at(&mut self, node: usize, index: usize, op: Op) {
        let job = self.nodes[node].running.swap_remove(index);
        let jid = job.document().jid().to_string();
        if job.is_due() {
            return self.push_due(&job, op);
        }
        // Callbacks end well: their calls are counted by their acknowledgements.
        let ends = job.is_cancelled() || job.is_past_deadline() || jid.starts_with(CALLBACK);
        let op = if ends { Op::End } else { op };
        self.note(format!("   {op:?} of {jid}"));
        let at = self.now_s() + f64::from(self.random.u32(1..50));
        let outcome = match op {
            Op::Raise => failed(&job, at),
            Op::Discard => Outcome::Discard,
            Op::Snooze => Outcome::reschedule(at),
            Op::Interrupt => Outcome::requeue(),
            _ => {
                self.ledger.job(&jid).ran = true;
                Outcome::Ack
            }
        };
        assert!(job.finish(outcome));
        assert!(!job.finish(Outcome::Ack), "a job ends once");
    }

    /// Client middleware lets a due job pass, or stops it; or it cannot be pushed, and is tried again.
    fn push_due(&mut self, job: &Arc<Job>, op: Op) {
        if op == Op::MiddlewareStops {
            self.note(format!("   middleware stops {}", job.document().jid()));
            job.finish(Outcome::Discard);
            return;
        }
        let (queue, payload) = stamped(job.document().payload(), self.now_s(), 7, false)
            .expect("a due job has a queue");
        let new = NewJob { queue: &queue, payload: &payload, at: None, lock: None, bid: None };
        match self.store.push(&[new]) {
            Ok(_) => drop(job.finish(Outcome::Ack)),
            Err(error) => {
                assert_eq!(error.kind, StoreErrorKind::Full, "{error}");
                let at = self.now_s() + 5.0;
                job.finish(Outcome::reschedule(at));
            }
        }
    }

    /// Lets an engine do all that it can do now, each job to a good end.
    pub fn run_all(&mut self, node: usize) {
        self.maintain(node);
        loop {
            self.nodes[node].engine.fetch();
            let started = self.start_on(node);
            if !started && self.nodes[node].running.is_empty() {
                break;
            }
            while !self.nodes[node].running.is_empty() {
                self.end_at(node, 0, Op::End);
            }
        }
        self.nodes[node].engine.fetch();
    }
}

/// What Ruby makes of an exception: a retry, or the dead set.
fn failed(job: &Job, at: f64) -> Outcome {
    let payload = job.document().payload();
    let mut fields = Fields::parse(payload).unwrap();
    let count = fields.number("retry_count").map_or(0, |count| count as u32 + 1);
    fields.set("retry_count", count.to_string());
    fields.set("error_class", "\"RuntimeError\"");
    fields.set("error_message", "\"raised\"");
    let payload = fields.to_vec();
    if count >= RETRIES_MAX {
        return Outcome::Dead { at, payload: Some(payload) };
    }
    Outcome::Retry { at, payload }
}
