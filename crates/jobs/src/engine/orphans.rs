//! Reclaims the jobs that a dead owner had in flight.
//!
//! A death counts against the jobs that were running only when the supervisor
//! saw it and did not cause it. The second such death makes a job a suspect,
//! which runs alone; the third sends it to the dead set.

use std::collections::HashSet;

use crate::document::{Document, Extra, Fields};
use crate::outcome::{Ack, Outcome, SideEffects};
use crate::store::{ClaimedJob, Result, Store};

/// After so many deaths a job goes to the dead set.
pub const DEATHS_MAX: u32 = 3;
/// Jobs acknowledged in one call.
const CHUNK: usize = 500;

/// A worker that died, as its supervisor saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerDeath {
    /// Its engine: `HOST:PID:NONCE`.
    pub identity: String,
    /// What it died of (`SIGSEGV`, `exit 3`); `None`: it was ended on purpose,
    /// and the death counts against no job.
    pub cause: Option<String>,
    /// Tickets of the jobs that were running.
    pub tickets: Vec<u64>,
}

/// The result of [`reclaim`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reclaimed {
    /// Jobs back in their queues.
    pub returned: usize,
    /// Jobs moved to the dead set.
    pub dead: usize,
    /// A line for the log for each job that died of its workers' deaths.
    pub lines: Vec<String>,
}

/// Reclaims everything that `death.identity` had in flight and removes the
/// owner. May run twice, also at once: each entry is acknowledged once.
pub(super) fn reclaim(store: &mut dyn Store, death: &WorkerDeath, now_s: f64) -> Result<Reclaimed> {
    let started: HashSet<u64> = death.tickets.iter().copied().collect();
    let jobs = store.in_flight(&death.identity)?;
    let mut reclaimed = Reclaimed::default();
    let mut acks: Vec<Ack> = jobs
        .into_iter()
        .map(|job| {
            let cause = started.contains(&job.ticket).then_some(death.cause.as_deref()).flatten();
            ack(job, cause, now_s, &mut reclaimed)
        })
        .collect();
    // Each chunk goes to the front of its queue, so the last one is written first.
    while !acks.is_empty() {
        let chunk = acks.split_off(acks.len().saturating_sub(CHUNK));
        let fenced = store.ack(&death.identity, &chunk)?;
        reclaimed.returned = reclaimed.returned.saturating_sub(fenced);
    }
    store.forget(&death.identity)?;
    Ok(reclaimed)
}

/// The acknowledgement of a job in the dead owner's place. `cause`: of the
/// death, when it counts against the job.
fn ack(job: ClaimedJob, cause: Option<&str>, now_s: f64, reclaimed: &mut Reclaimed) -> Ack {
    let ClaimedJob { ticket, queue, payload } = job;
    let Ok(doc) = Document::parse(payload.as_slice().into()) else {
        // A malformed job: no worker could run it.
        reclaimed.dead += 1;
        let outcome = Outcome::Dead { payload: None, at: now_s };
        return Ack { ticket, queue, outcome, effects: None };
    };
    let named = Some(doc.queue()).filter(|name| !name.is_empty()).unwrap_or("default");
    let home = queue.is_empty().then(|| named.into());
    let outcome = match cause {
        None => Outcome::Requeue { payload: None, queue: home },
        Some(cause) => {
            let mut extra = doc.extra().cloned().unwrap_or_default();
            extra.deaths += 1;
            let is_dead = extra.deaths >= DEATHS_MAX;
            let payload = mark(&payload, &extra, is_dead.then_some(cause), now_s);
            if is_dead {
                reclaimed.lines.push(format!(
                    "jobs: {} jid={} was running in {} workers when they died ({cause} the last \
                     time): it is in the dead set",
                    doc.class(),
                    doc.jid(),
                    extra.deaths
                ));
                Outcome::Dead { payload, at: now_s }
            } else {
                Outcome::Requeue { payload, queue: home }
            }
        }
    };
    let count = if outcome.is_failure() { &mut reclaimed.dead } else { &mut reclaimed.returned };
    *count += 1;
    let effects = SideEffects::of(&doc, outcome.batch_event(), true);
    Ack { ticket, queue, outcome, effects }
}

/// The document with its count of deaths, and with an error when `cause` is given.
fn mark(payload: &[u8], extra: &Extra, cause: Option<&str>, now_s: f64) -> Option<Vec<u8>> {
    let mut fields = Fields::parse(payload).ok()?;
    fields.set("chaton", extra.to_json());
    if let Some(cause) = cause {
        let message = format!(
            "the worker died while it ran this job, {} times; the last time of {cause}",
            extra.deaths
        );
        fields.set("error_class", "\"Chaton::Jobs::Poison\"");
        fields.set("error_message", serde_json::to_string(&message).ok()?);
        if fields.get("failed_at").is_none() {
            fields.set("failed_at", format!("{now_s:.3}"));
        }
    }
    Some(fields.to_vec())
}
