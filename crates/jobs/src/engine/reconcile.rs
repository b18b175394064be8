//! Compares the jobs that the store has in flight in this engine's name with those that the engine
//! has in hand. They differ when the reply to a claim was lost, and when the store lost its last
//! writes: Redis was restored from an older file, or a replica took over that was behind.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use super::hand::{Doubts, Hand};
use super::state::EngineState;
use crate::document::Document;
use crate::outcome::{Ack, Outcome, SideEffects};
use crate::store::{ClaimedJob, Result, Store};

/// What the comparison found.
#[derive(Default)]
struct Differences {
    /// In flight, though the engine never got them.
    lost_claims: Vec<ClaimedJob>,
    /// In flight, though they have ended and that was written.
    ended: Vec<Ack>,
    /// In hand, but not in flight.
    missing: Vec<ClaimedJob>,
}

/// Ends jobs that are in flight again though they have ended, puts those that run back into the in-flight
/// set, and returns those whose claim had no reply. `in_write`: acknowledgements that are not in [`Hand::acks`] now.
/// `settle` takes the messages about what is in hand.
pub(super) fn reconcile(
    state: &EngineState,
    store: &mut dyn Store,
    in_write: &[Ack],
    settle: impl FnOnce(),
) -> Result<Vec<ClaimedJob>> {
    // Taken first: a claim that fails meanwhile asks for another comparison.
    let doubts = std::mem::take(&mut state.hand.write().doubts);
    let result = compare(state, store, in_write, doubts.lost_from, settle);
    if result.is_err() {
        state.hand.write().doubts.add(Doubts { compare: true, ..doubts });
    }
    result
}

fn compare(
    state: &EngineState,
    store: &mut dyn Store,
    in_write: &[Ack],
    lost_from: Option<u64>,
    settle: impl FnOnce(),
) -> Result<Vec<ClaimedJob>> {
    let owner = &state.identity.name;
    let in_flight = store.in_flight(owner)?;
    // What was claimed before that is in hand now.
    settle();
    let found = differences(state, in_flight, in_write, lost_from);
    if !found.ended.is_empty() {
        let removals = found.ended.iter().filter(|ack| ack.outcome == Outcome::Ack).count();
        let fenced = store.ack(owner, &found.ended)?;
        state.feed.warn(&format!(
            "jobs: the store lost its last writes: {} jobs that had ended were in flight again; {removals} \
             of them are removed, the others run again ({fenced} were gone)",
            found.ended.len(),
        ));
    }
    let restored = store.restore(owner, &found.missing)?;
    if restored > 0 {
        state.feed.warn(&format!(
            "jobs: the store lost its last writes: {restored} jobs that are in hand were not in flight any more \
             and are put back"
        ));
    }
    Ok(found.lost_claims)
}

fn differences(
    state: &EngineState,
    in_flight: Vec<ClaimedJob>,
    in_write: &[Ack],
    lost_from: Option<u64>,
) -> Differences {
    let (hand, now_s, holds_lease) = (state.hand.read(), state.now_s(), state.holds_lease());
    let leased_from = state.leased_from.load(Ordering::SeqCst);
    let mut found = Differences::default();
    let stored: HashSet<u64> = in_flight.iter().map(|job| job.ticket).collect();
    let unwritten: HashSet<u64> = in_write.iter().chain(&hand.acks).map(|a| a.ticket).collect();
    let is_reserved = |ticket| hand.due_claim.is_some_and(|(a, b)| (a..b).contains(&ticket));
    let is_in_hand = |ticket| {
        let is_open = hand.jobs.contains_key(&ticket) || hand.left.contains(&ticket);
        is_open || unwritten.contains(&ticket) || is_reserved(ticket)
    };
    for job in in_flight {
        let ticket = job.ticket;
        if is_in_hand(ticket) {
            continue;
        }
        if lost_from.is_some_and(|from| ticket >= from) {
            found.lost_claims.push(job);
        } else {
            found.ended.push(end_again(&hand, job, now_s));
        }
    }
    // Once a lease has run out, another process may have reclaimed the jobs.
    let is_missing = |ticket| holds_lease && ticket >= leased_from && !stored.contains(&ticket);
    let jobs = hand.jobs.values().filter(|job| is_missing(job.ticket()));
    found.missing.extend(jobs.map(|job| {
        let (queue, payload) = (job.stored_queue(), job.document().payload().to_vec());
        ClaimedJob { ticket: job.ticket(), queue, payload }
    }));
    for ack in in_write.iter().chain(&hand.acks).filter(|ack| is_missing(ack.ticket)) {
        if let Outcome::Retry { payload, .. } = &ack.outcome {
            let (queue, payload) = (ack.queue.clone(), payload.clone());
            found.missing.push(ClaimedJob { ticket: ack.ticket, queue, payload });
        }
    }
    found
}

/// Ends a job as it had ended. Only acknowledgements are known for certain: other jobs go back to where
/// they were, and so do due jobs, since the store may have lost their push, too.
fn end_again(hand: &Hand, job: ClaimedJob, now_s: f64) -> Ack {
    let ClaimedJob { ticket, queue, payload } = job;
    let Ok(doc) = Document::parse(payload.into()) else {
        let outcome = Outcome::Dead { payload: None, at: now_s };
        return Ack { ticket, queue, outcome, effects: None };
    };
    let (outcome, event) = match (queue.is_empty(), hand.was_acknowledged(ticket)) {
        (true, _) => (Outcome::back_to_set(&doc, None, now_s), None),
        (false, true) => (Outcome::Ack, Outcome::Ack.batch_event()),
        (false, false) => (Outcome::requeue(), None),
    };
    let effects = SideEffects::of(&doc, event, Some(now_s));
    Ack { ticket, queue, outcome, effects }
}
