//! Reclaims the jobs that a dead owner had in flight.
//!
//! A death counts against the jobs that were running when the supervisor saw it: a crash, or a kill because
//! the worker gave no sign of life or took too much memory. The second such death within 72 hours makes a
//! job a suspect, which runs alone; the third sends it to the dead set. A stop that somebody asked for, and a
//! machine that vanished, are only noted. Where the supervisor died too, or there is none, nobody knows which
//! jobs were running: see [`unseen`].

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use chrono::DateTime;

use crate::document::{Document, Extra, Fields};
use crate::outcome::{Ack, Outcome, SideEffects};
use crate::store::{ClaimedJob, Result, Store};

/// After so many deaths a job goes to the dead set.
pub const DEATHS_MAX: u32 = 3;
/// After so many deaths of workers a job is a suspect.
const SUSPECT_DEATHS: u32 = 2;
/// After so many stops that no supervisor asked for a job goes behind the others, and is a suspect.
const SUSPECT_STOPS: u32 = 3;
/// After so many of them it goes to the dead set: half of them it ran alone.
const STOPS_MAX: u32 = 6;
/// The field of the note.
const TICKET: &str = "ticket";
/// Jobs acknowledged in one call.
const CHUNK: usize = 500;

/// The cause of a crash that no supervisor saw.
const UNSEEN: &str = "its process is gone, nobody saw how";
/// How long an engine's note of the suspect that runs alone is kept.
const NOTE_KEPT: Duration = Duration::from_secs(72 * 3600);

/// A worker that died, as its supervisor saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerDeath {
    /// Its engine: `HOST:PID:NONCE`.
    pub identity: String,
    /// What it died of (`SIGSEGV`, `exit 3`, no sign of life); `None`: it was asked to stop, and
    /// the death counts against no job.
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

/// The death of an owner that no supervisor has reported. If it crashed, all jobs that it had claimed
/// count as running, since nobody knows which of them were. That makes suspects of some that were not, but
/// the third death is proven: a suspect counts only if it is noted as the one that was started alone.
pub(super) fn unseen(
    store: &mut dyn Store,
    identity: String,
    crashed: bool,
) -> Result<WorkerDeath> {
    if !crashed {
        return Ok(WorkerDeath { identity, ..WorkerDeath::default() });
    }
    let note: HashMap<_, _> = store.load(&note_key(&identity))?.into_iter().collect();
    let alone = note.get(TICKET).and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
    let may_have_run = |job: &ClaimedJob| {
        let is_suspect =
            Document::parse(job.payload.as_slice().into()).is_ok_and(|doc| is_suspect(&doc));
        !job.queue.is_empty() && (!is_suspect || alone == Some(job.ticket))
    };
    let jobs = store.in_flight(&identity)?;
    let tickets = jobs.iter().filter(|job| may_have_run(job)).map(|job| job.ticket).collect();
    Ok(WorkerDeath { identity, cause: Some(UNSEEN.into()), tickets })
}

/// Notes in the store which suspect is about to be started alone.
pub(super) fn note_alone(store: &mut dyn Store, identity: &str, ticket: u64) -> Result<()> {
    store.save(&note_key(identity), &[(TICKET, ticket.to_string().as_bytes())], NOTE_KEPT)
}

/// Removes this note.
pub(super) fn remove_note(store: &mut dyn Store, identity: &str) -> Result<()> {
    store.remove_hash(&note_key(identity))
}

/// Whether so many workers died or were stopped while they ran the job that it has to run alone.
pub(super) fn is_suspect(doc: &Document) -> bool {
    doc.extra()
        .is_some_and(|extra| extra.deaths >= SUSPECT_DEATHS || extra.unasked >= SUSPECT_STOPS)
}

fn note_key(identity: &str) -> String {
    format!("chaton:alone:{identity}")
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
            let started = started.contains(&job.ticket);
            ack(job, started, death.cause.as_deref(), now_s, &mut reclaimed)
        })
        .collect();
    // Each chunk goes to the front of its queue, so the last one is written first.
    while !acks.is_empty() {
        let chunk = acks.split_off(acks.len().saturating_sub(CHUNK));
        let fenced = store.ack(&death.identity, &chunk)?;
        reclaimed.returned = reclaimed.returned.saturating_sub(fenced);
    }
    remove_note(store, &death.identity)?;
    store.forget(&death.identity)?;
    Ok(reclaimed)
}

/// The acknowledgement of a job in the dead owner's place. `started`: it was running.
fn ack(
    job: ClaimedJob,
    started: bool,
    cause: Option<&str>,
    now_s: f64,
    reclaimed: &mut Reclaimed,
) -> Ack {
    let ClaimedJob { ticket, queue, payload } = job;
    let cause = cause.filter(|_| started);
    let Ok(doc) = Document::parse(payload.as_slice().into()) else {
        // A malformed job: no worker could run it.
        reclaimed.dead += 1;
        let outcome = Outcome::Dead { payload: None, at: now_s };
        return Ack { ticket, queue, outcome, effects: None };
    };
    let named = Some(doc.queue()).filter(|name| !name.is_empty()).unwrap_or("default");
    let home = queue.is_empty().then(|| named.into());
    let outcome = match cause {
        None if home.is_some() => Outcome::back_to_set(&doc, None, now_s),
        None if started => stopped(&doc, true, now_s),
        None => Outcome::Requeue { payload: None, queue: home },
        Some(cause) => {
            let mut extra = doc.extra().cloned().unwrap_or_default();
            extra.count_death(now_s, cause);
            let is_dead = extra.deaths >= DEATHS_MAX;
            let story = is_dead.then(|| story(&extra));
            let payload = poisoned(&doc, &extra, story.as_deref(), now_s);
            if let Some(story) = story {
                reclaimed.lines.push(dead_line(&doc, &story));
                Outcome::Dead { payload, at: now_s }
            } else {
                Outcome::Requeue { payload, queue: home }
            }
        }
    };
    let is_dead = matches!(outcome, Outcome::Dead { .. });
    let count = if is_dead { &mut reclaimed.dead } else { &mut reclaimed.returned };
    *count += 1;
    // A job that goes back to the retry set has not failed again.
    let event = outcome.batch_event().filter(|_| is_dead);
    let effects = SideEffects::of(&doc, event, Some(now_s));
    Ack { ticket, queue, outcome, effects }
}

/// The document of a suspect that has found no moment in which it could run alone.
pub(super) fn visited(doc: &Document) -> Option<Vec<u8>> {
    let mut extra = doc.extra().cloned().unwrap_or_default();
    extra.visits += 1;
    mark(doc, &extra, None)
}

/// What follows when a stop has ended a run of a job. `asked`: the supervisor asked for it. A signal that came from
/// somewhere else may come again because of the job, by a watcher of memory or by itself: the others go before it then,
/// and in the end it is dead. The end of a queue is reached through the schedule.
pub(super) fn stopped(doc: &Document, asked: bool, now_s: f64) -> Outcome {
    let mut extra = doc.extra().cloned().unwrap_or_default();
    extra.stops += 1;
    extra.unasked += u32::from(!asked);
    let is_dead = !asked && extra.unasked >= STOPS_MAX;
    let story = is_dead.then(|| stops_story(&extra));
    let payload = poisoned(doc, &extra, story.as_deref(), now_s);
    match extra.unasked {
        _ if is_dead => Outcome::Dead { payload, at: now_s },
        unasked if !asked && unasked >= SUSPECT_STOPS => Outcome::Reschedule { payload, at: now_s },
        _ => Outcome::Requeue { payload, queue: None },
    }
}

/// The line for the log about a job that [`stopped`] has sent to the dead set.
pub(super) fn stopped_line(doc: &Document, outcome: &Outcome) -> Option<String> {
    let Outcome::Dead { payload: Some(payload), .. } = outcome else { return None };
    let story = Fields::parse(payload).ok()?.text("error_message")?;
    Some(dead_line(doc, &story))
}

fn dead_line(doc: &Document, story: &str) -> String {
    format!("jobs: {} jid={}: {story}; it is in the dead set", doc.class(), doc.jid())
}

fn stops_story(extra: &Extra) -> String {
    format!(
        "the worker got a signal to stop while it ran this job, {} times, and not from its supervisor: from a \
         watcher of memory, say, or from the job",
        extra.unasked
    )
}

/// How often, when and of what the workers of a job died.
fn story(extra: &Extra) -> String {
    let times = extra.died.iter().map(|(at_s, cause)| {
        let at = DateTime::from_timestamp(*at_s as i64, 0).unwrap_or_default();
        format!("{cause} at {}", at.format("%Y-%m-%dT%H:%M:%SZ"))
    });
    let times: Vec<_> = times.collect();
    format!(
        "the worker died while it ran this job, {} times within 72 hours: {}",
        extra.deaths,
        times.join(", ")
    )
}

/// The document with these counts; and with this story when the job is dead for what happened to its workers.
fn poisoned(doc: &Document, extra: &Extra, story: Option<&str>, now_s: f64) -> Option<Vec<u8>> {
    mark(doc, extra, story.map(|story| ("Chaton::Jobs::Poison", story.to_string(), now_s)))
}

/// The document with these counts; and with an error (class, message, time) when the job is dead.
pub(super) fn mark(
    doc: &Document,
    extra: &Extra,
    error: Option<(&str, String, f64)>,
) -> Option<Vec<u8>> {
    let mut fields = doc.counted(extra).ok()?;
    if let Some((class, message, now_s)) = error {
        fields.set("error_class", format!("\"{class}\""));
        fields.set("error_message", serde_json::to_string(&message).ok()?);
        if fields.get("failed_at").is_none() {
            fields.set("failed_at", format!("{now_s:.3}"));
        }
    }
    Some(fields.to_vec())
}
