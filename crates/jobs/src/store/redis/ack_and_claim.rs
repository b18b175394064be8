//! Acknowledge and claim, in one round trip.
//!
//! Plain acknowledgements are one HDEL. The others go through a script that moves a job only if its
//! in-flight entry was still there. The claim comes last, in the same script if there is one, so that it
//! sees jobs that were requeued or called. If any part fails, the call fails: jobs claimed by it are in the in-flight set
//! then, where [`crate::store::Store::in_flight`] finds them. Nothing is sent twice.

use std::sync::Arc;

use super::scripts::Script;
use super::store::RedisStore;
use crate::outcome::{Ack, BatchEvent, Outcome, SideEffects};
use crate::store::payload::named_queue;
use crate::store::traits::Result;
use crate::store::types::{ClaimReply, ClaimRequest, ClaimedJob, CLAIM_MAX};
use chaton_redis::{decimal, Pipeline, RespValue};

/// Jobs acknowledged by one call of the script.
const ACK_MAX: usize = 200;
/// Bytes of jobs after which a claim ends early; the last few may exceed it.
const CLAIM_BYTES_MAX: u64 = 16 * 1024 * 1024;

pub(super) fn ack_and_claim(
    store: &mut RedisStore,
    owner: &str,
    acks: &[Ack],
    request: Option<&ClaimRequest<'_>>,
) -> Result<ClaimReply> {
    store.conn.ensure()?;
    let mut pipeline = Pipeline::new();
    let (plain, others) = Ack::in_order(acks);
    if !plain.is_empty() {
        pipeline.begin(2 + plain.len());
        pipeline.word("HDEL").parts(&[b"chaton:inflight:", owner.as_bytes()]);
        for ack in &plain {
            let ticket = &mut [0; 20];
            pipeline.parts(&[decimal(ticket, ack.ticket), b":", ack.queue.as_bytes()]);
        }
    }
    let scripts = others.len().div_ceil(ACK_MAX);
    for (index, some) in others.chunks(ACK_MAX).enumerate() {
        let last = index + 1 == scripts;
        add_acks(store, &mut pipeline, owner, some, request.filter(|_| last))?;
    }
    if let Some(request) = request.filter(|_| others.is_empty()) {
        store.conn.script(&mut pipeline, Script::Claim, 1 + claim_words(request))?;
        add_claim(pipeline.word(owner), request);
    }
    if pipeline.is_empty() {
        return Ok(ClaimReply::default());
    }
    let mut replies = store.run(&pipeline)?;
    let mut claimed = ClaimReply::default();
    if !plain.is_empty() {
        let removed = replies.next().map_or(0, |reply| reply.count()) as usize;
        claimed.fenced = plain.len().saturating_sub(removed);
    }
    let mut last = None;
    for _ in 0..scripts {
        let mut parts = replies.next().unwrap_or(RespValue::Nil).items().into_iter();
        claimed.fenced += parts.next().map_or(0, |fenced| fenced.count()) as usize;
        last = parts.next();
    }
    if let Some((request, reply)) = request.zip(last.or_else(|| replies.next())) {
        read_claim(&mut claimed, request, reply);
    }
    Ok(claimed)
}

fn add_acks(
    store: &mut RedisStore,
    pipeline: &mut Pipeline,
    owner: &str,
    acks: &[&Ack],
    request: Option<&ClaimRequest<'_>>,
) -> Result<()> {
    let none = SideEffects::default();
    let slots = |ack: &Ack| ack.effects.as_deref().map_or(0, |effects| effects.release.len());
    let more = |ack: &Ack| {
        usize::from(slots(ack) > 0) + if matches!(ack.outcome, Outcome::Wait(_)) { 5 } else { 0 }
    };
    let words = acks.iter().map(|ack| 13 + slots(ack) + more(ack)).sum::<usize>();
    let claim = request.map_or(0, claim_words);
    store.conn.script(pipeline, Script::Ack, 5 + words + claim)?;
    let options = &store.options;
    pipeline.word(owner).number(options.dead_max as u64).number(options.dead_age.as_secs());
    pipeline.float(acks.iter().map(|ack| ended_at(ack)).fold(0.0, f64::max));
    pipeline.number(5 + words as u64);
    for ack in acks {
        pipeline.number(ack.ticket).word(ack.queue.as_bytes());
        let (name, at, payload) = outcome(&ack.outcome);
        pipeline.word(name).float(at);
        match payload {
            Some(payload) => pipeline.word("1").word(payload),
            None => pipeline.word("0").word(""),
        };
        match &ack.outcome {
            Outcome::Requeue { queue: Some(queue), .. } if ack.queue.is_empty() => {
                pipeline.word(&**queue)
            }
            Outcome::Wait(wait) if ack.queue.is_empty() => {
                pipeline.word(named_queue(&wait.payload))
            }
            _ => pipeline.word(&*ack.queue),
        };
        add_effects(pipeline, ack.effects.as_deref().unwrap_or(&none));
        if let Outcome::Wait(wait) = &ack.outcome {
            let (max, span_s) = wait.behind.rule.size();
            pipeline.word(wait.behind.line()).word(&wait.jid).float(wait.place);
            pipeline.word(format!("{max} {span_s:?}")).word(if wait.is_new { "1" } else { "0" });
        }
    }
    if let Some(request) = request {
        add_claim(pipeline, request);
    }
    Ok(())
}

/// Words of [`add_claim`].
fn claim_words(request: &ClaimRequest<'_>) -> usize {
    3 + request.queues.len()
}

fn add_claim(pipeline: &mut Pipeline, request: &ClaimRequest<'_>) {
    pipeline.number(request.first_ticket);
    pipeline.number(request.count.clamp(1, CLAIM_MAX) as u64).number(CLAIM_BYTES_MAX);
    for queue in request.queues {
        pipeline.word(queue.as_bytes());
    }
}

/// When a job ended that joins or calls a line.
fn ended_at(ack: &Ack) -> f64 {
    match &ack.outcome {
        Outcome::Wait(wait) => wait.now_s,
        _ => ack.effects.as_deref().map_or(0.0, |effects| effects.now_s),
    }
}

/// Name, time and document of an outcome, as the script reads them.
fn outcome(outcome: &Outcome) -> (&'static str, f64, Option<&[u8]>) {
    match outcome {
        Outcome::Ack | Outcome::Discard => ("ack", 0.0, None),
        Outcome::Retry { at, payload } => ("retry", *at, Some(payload)),
        Outcome::Reschedule { at, payload } => ("reschedule", *at, payload.as_deref()),
        Outcome::Wait(wait) => ("wait", wait.at, Some(&wait.payload)),
        Outcome::Dead { payload, at } => ("dead", *at, payload.as_deref()),
        Outcome::Requeue { payload, .. } => ("requeue", 0.0, payload.as_deref()),
    }
}

fn add_effects(pipeline: &mut Pipeline, effects: &SideEffects) {
    match &effects.unlock {
        Some((key, jid)) => pipeline.word(key).word(jid),
        None => pipeline.word("").word(""),
    };
    pipeline.number(effects.release.len() as u64);
    if !effects.release.is_empty() {
        pipeline.word(&effects.jid);
    }
    for key in &effects.release {
        pipeline.word(key);
    }
    match &effects.batch {
        Some(update) => pipeline.word(&update.bid).word(&update.jid).word(match update.event {
            BatchEvent::Done => "done",
            BatchEvent::Failed => "failed",
            BatchEvent::Died => "died",
        }),
        None => pipeline.word("").word("").word(""),
    };
}

fn read_claim(claimed: &mut ClaimReply, request: &ClaimRequest<'_>, reply: RespValue) {
    let mut parts = reply.items().into_iter();
    claimed.drained = parts.next().is_some_and(|drained| drained.count() == 1);
    let mut ticket = request.first_ticket;
    while let (Some(index), Some(jobs)) = (parts.next(), parts.next()) {
        let Some(queue) = request.queues.get(index.count() as usize) else { continue };
        let jobs = jobs.items();
        claimed.jobs.reserve(jobs.len());
        for job in jobs {
            claimed.jobs.push(ClaimedJob {
                ticket,
                queue: Arc::clone(queue),
                payload: job.bytes(),
            });
            ticket += 1;
        }
    }
}
