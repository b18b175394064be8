//! Due jobs of the retry set and the schedule.
//!
//! The new `enqueued_at` is written into the document here and not in the script, because Lua's
//! JSON library changes documents: `[]` turns into `{}` and long numbers lose digits. The script
//! moves an entry only if it is still there, so that two processes may try the same one. While one does,
//! the others do not read the documents.

use std::time::Duration;

use super::scripts::Script;
use super::store::{ms, RedisStore};
use crate::document::stamped;
use crate::store::payload::JobResources;
use crate::store::traits::Result;
use crate::store::types::{ClaimedJob, DueSummary};
use chaton_redis::{Pipeline, RespValue};

/// Jobs moved by one call of the script, which blocks the server meanwhile.
const MOVE_MAX: usize = 500;
/// How long other processes wait for the one that moves due jobs.
const MOVER_TIMEOUT: Duration = Duration::from_secs(1);
/// The sets, in the order in which they are read.
const SETS: [&str; 2] = ["retry", "schedule"];

struct DueEntry {
    set: &'static str,
    score: f64,
    payload: Vec<u8>,
    /// Its queue and its new document; `None` when it is malformed.
    requeued: Option<(String, Vec<u8>)>,
}

pub(super) fn move_due(store: &mut RedisStore, now_s: f64, max: usize) -> Result<DueSummary> {
    let (entries, mut due) = due(store, now_s, max)?;
    let mut rest = &entries[..];
    while !rest.is_empty() {
        let some = &rest[..rest.len().min(MOVE_MAX)];
        rest = &rest[some.len()..];
        let mut pipeline = Pipeline::new();
        store.conn.script(&mut pipeline, Script::MoveDue, 3 + 5 * some.len())?;
        add_dead_limits(store, &mut pipeline, now_s);
        for entry in some {
            pipeline.word(entry.set).word(&entry.payload);
            match &entry.requeued {
                Some((queue, payload)) => pipeline.word("push").word(queue).word(payload),
                None => pipeline.word("dead").word("").word(""),
            };
        }
        if rest.is_empty() {
            pipeline.command(&[b"DEL", b"chaton:mover"]);
            add_next_at(&mut pipeline);
        }
        let mut replies = store.run(&pipeline)?;
        let mut counts = replies.next().unwrap_or(RespValue::Nil).items().into_iter();
        due.moved += counts.next().map_or(0, |moved| moved.count()) as usize;
        let misplaced: Vec<_> =
            counts.filter_map(|number| some.get(number.count() as usize)).collect();
        release_misplaced(store, &misplaced)?;
        if rest.is_empty() {
            due.next_at = read_next_at(replies.skip(1));
        }
    }
    Ok(due)
}

/// Ends what jobs hold that are in the dead set because the key of their queue holds something else.
fn release_misplaced(store: &mut RedisStore, jobs: &[&DueEntry]) -> Result<()> {
    for (queue, _) in jobs.iter().filter_map(|job| job.requeued.as_ref()) {
        chaton_core::log::warn(&format!(
            "jobs: {}: the key queue:{queue} holds no jobs but something of the application; a due job that \
             was to go there is in the dead set. Rename the key or the queue, then retry the job",
            store.conn.address().shown
        ));
    }
    let held: Vec<_> = jobs.iter().map(|job| JobResources::of(&job.payload)).collect();
    super::entries::release(store, &held)
}

pub(super) fn claim_due(
    store: &mut RedisStore,
    owner: &str,
    first_ticket: u64,
    now_s: f64,
    max: usize,
) -> Result<(Vec<ClaimedJob>, DueSummary)> {
    let (entries, mut due) = due(store, now_s, max)?;
    if entries.is_empty() {
        return Ok((Vec::new(), due));
    }
    let mut pipeline = Pipeline::new();
    store.conn.script(&mut pipeline, Script::ClaimDue, 5 + 3 * entries.len())?;
    add_dead_limits(store, &mut pipeline, now_s);
    pipeline.word(owner).number(first_ticket);
    for entry in &entries {
        pipeline.word(entry.set).word(&entry.payload);
        pipeline.word(if entry.requeued.is_some() { "claim" } else { "dead" });
    }
    pipeline.command(&[b"DEL", b"chaton:mover"]);
    add_next_at(&mut pipeline);
    let mut replies = store.run(&pipeline)?;
    let there = replies.next().unwrap_or(RespValue::Nil).items();
    due.next_at = read_next_at(replies.skip(1));
    let mut claimed = Vec::with_capacity(entries.len());
    let mut ticket = first_ticket;
    for (entry, there) in entries.into_iter().zip(there) {
        if there.count() == 0 {
            continue;
        }
        due.moved += 1;
        if entry.requeued.is_some() {
            claimed.push(ClaimedJob { ticket, queue: "".into(), payload: entry.payload });
            ticket += 1;
        }
    }
    Ok((claimed, due))
}

/// The due entries, longest due first, and when the next one is due.
fn due(store: &mut RedisStore, now_s: f64, max: usize) -> Result<(Vec<DueEntry>, DueSummary)> {
    let mut pipeline = Pipeline::new();
    store.conn.script(&mut pipeline, Script::Due, 3)?;
    pipeline.float(now_s).number(max as u64).number(ms(MOVER_TIMEOUT));
    add_next_at(&mut pipeline);
    let mut replies = store.run(&pipeline)?;
    let sets = replies.next().unwrap_or(RespValue::Nil);
    let mut due = DueSummary { next_at: read_next_at(replies), ..DueSummary::default() };
    if sets == RespValue::Nil {
        // The watch reports what the other process has moved.
        due.next_at = due.next_at.map(|at| at.max(now_s + MOVER_TIMEOUT.as_secs_f64()));
        return Ok((Vec::new(), due));
    }
    let mut entries = Vec::new();
    for (set, found) in SETS.into_iter().zip(sets.items()) {
        let mut words = found.items().into_iter();
        while let (Some(payload), Some(score)) = (words.next(), words.next()) {
            let (payload, score) = (payload.bytes(), score.float().unwrap_or_default());
            entries.push(DueEntry { set, score, payload, requeued: None });
        }
    }
    entries.sort_by(|a, b| a.score.total_cmp(&b.score));
    entries.truncate(max);
    for entry in &mut entries {
        due.lag_max_s = due.lag_max_s.max(now_s - entry.score);
        entry.requeued = stamped(&entry.payload, now_s, store.options.format, false);
    }
    Ok((entries, due))
}

/// Adds the arguments with which a script adds to the dead set.
pub(super) fn add_dead_limits(store: &RedisStore, pipeline: &mut Pipeline, now_s: f64) {
    pipeline.float(now_s).number(store.options.dead_max as u64);
    pipeline.number(store.options.dead_age.as_secs());
}

fn add_next_at(pipeline: &mut Pipeline) {
    for set in SETS {
        pipeline.begin(5).word("ZRANGE").word(set).word("0").word("0").word("WITHSCORES");
    }
}

pub(super) fn read_next_at(replies: impl Iterator<Item = RespValue>) -> Option<f64> {
    let scores = replies.take(2).flat_map(|reply| reply.scored()).map(|(_, score)| score);
    scores.min_by(f64::total_cmp)
}
