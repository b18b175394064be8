//! What an owner that died had in flight goes back to its queues.
//!
//! Only a death that the supervisor saw, and did not cause, is held against
//! the jobs that were running; the second makes a job a suspect, which runs
//! alone, the third sends it to the dead set.

use std::collections::HashSet;

use crate::document::{Document, Extra, Fields};
use crate::outcome::{Ack, Outcome, SideEffects};
use crate::store::{ClaimedJob, Result, Store};

/// Deaths after which a job is given up.
pub const DEATHS_MAX: u32 = 3;
/// Jobs returned in one call.
const CHUNK: usize = 500;

/// A worker that died, as its supervisor saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerDeath {
    /// Its engine: `HOST:PID:NONCE`.
    pub identity: String,
    /// What it died of (`SIGSEGV`, `exit 3`); `None`: somebody ended it, and
    /// no job is to blame.
    pub cause: Option<String>,
    /// Tickets of the jobs that it was running.
    pub tickets: Vec<u64>,
}

/// What a recovery did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Recovery {
    /// Jobs back in their queues.
    pub returned: usize,
    /// Jobs in the dead set.
    pub buried: usize,
    /// Those, for the log.
    pub lines: Vec<String>,
}

/// Returns everything that `death.identity` had in flight and forgets it. Safe
/// to run twice, or by two at once: each entry is settled once.
pub(super) fn recover(store: &mut dyn Store, death: &WorkerDeath, now_s: f64) -> Result<Recovery> {
    let started: HashSet<u64> = death.tickets.iter().copied().collect();
    let jobs = store.in_flight(&death.identity)?;
    let mut recovered = Recovery::default();
    let mut acks: Vec<Ack> = jobs
        .into_iter()
        .map(|job| {
            let blamed = started.contains(&job.ticket).then_some(death.cause.as_deref()).flatten();
            ack(job, blamed, now_s, &mut recovered)
        })
        .collect();
    // Each chunk goes to the front: the last one written is taken first.
    while !acks.is_empty() {
        let chunk = acks.split_off(acks.len().saturating_sub(CHUNK));
        let fenced = store.ack_and_claim(&death.identity, &chunk, None)?.fenced;
        recovered.returned = recovered.returned.saturating_sub(fenced);
    }
    store.forget(&death.identity)?;
    Ok(recovered)
}

/// How a job of the owner that died ends. `cause`: the job was running then,
/// and is held responsible.
fn ack(job: ClaimedJob, cause: Option<&str>, now_s: f64, recovered: &mut Recovery) -> Ack {
    let ClaimedJob { ticket, queue, payload } = job;
    let Ok(doc) = Document::parse(payload.as_slice().into()) else {
        // No worker could run it from its queue either.
        recovered.buried += 1;
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
            let dead = extra.deaths >= DEATHS_MAX;
            let payload = mark(&payload, &extra, dead.then_some(cause), now_s);
            if dead {
                recovered.lines.push(format!(
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
    let count = if outcome.is_failure() { &mut recovered.buried } else { &mut recovered.returned };
    *count += 1;
    let effects = SideEffects::of(&doc, outcome.batch_event(), true);
    Ack { ticket, queue, outcome, effects }
}

/// The document with its deaths, and with the error when they were too many.
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
