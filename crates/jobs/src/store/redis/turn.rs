//! Ack and claim, in one round trip.
//!
//! Plain ends are one HDEL. Others go through a script that puts the job where
//! it belongs only if its entry was still there. The claim comes last in the
//! pipeline, so that it sees what was given back. When any part failed, the
//! whole call did: what was claimed then stands in the in-flight set, where
//! [`crate::store::Store::in_flight`] finds it; nothing is sent twice.

use std::sync::Arc;

use super::resp::{Pack, Value};
use super::scripts::Script;
use super::RedisStore;
use crate::store::{
    Ack, BatchEvent, ClaimReply, ClaimRequest, ClaimedJob, Outcome, Result, SideEffects,
};

/// Jobs settled by one call of the script.
const SETTLE_MAX: usize = 200;
/// Jobs claimed at once: with their fields fewer than Lua can unpack (8,000).
const CLAIM_MAX: usize = 1000;
/// Bytes of jobs after which a claim ends early; the last few may exceed it.
const CLAIM_BYTES_MAX: u64 = 16 * 1024 * 1024;

impl RedisStore {
    pub(super) fn take_turn(
        &mut self,
        owner: &str,
        settles: &[Ack],
        want: Option<&ClaimRequest<'_>>,
    ) -> Result<ClaimReply> {
        self.conn.ensure()?;
        let mut pack = Pack::new();
        let plain = settles.iter().filter(|settle| is_plain(settle)).count();
        if plain > 0 {
            pack.begin(2 + plain).word("HDEL").parts(&[b"chaton:inflight:", owner.as_bytes()]);
            for settle in settles.iter().filter(|settle| is_plain(settle)) {
                field(&mut pack, settle);
            }
        }
        let mut others: Vec<&Ack> = settles.iter().filter(|s| !is_plain(s)).collect();
        // The one put back last is at the front: the lowest ticket.
        others.sort_by_key(|s| {
            matches!(s.outcome, Outcome::Requeue { .. }).then_some(u64::MAX - s.ticket)
        });
        for some in others.chunks(SETTLE_MAX) {
            self.settle(&mut pack, owner, some)?;
        }
        if let Some(want) = want {
            let queues = want.queues;
            self.conn.script(&mut pack, Script::Claim, 5 + queues.len())?;
            pack.parts(&[b"chaton:inflight:", owner.as_bytes()]).word(owner);
            pack.number(want.first_ticket).number(want.count.clamp(1, CLAIM_MAX) as u64);
            pack.number(CLAIM_BYTES_MAX);
            for queue in queues {
                pack.word(queue.as_bytes());
            }
        }
        if pack.is_empty() {
            return Ok(ClaimReply::default());
        }
        let mut replies = self.run(&pack)?;
        let mut turn = ClaimReply::default();
        if plain > 0 {
            let gone = replies.next().map_or(0, |reply| reply.count());
            turn.fenced = plain.saturating_sub(gone as usize);
        }
        for _ in others.chunks(SETTLE_MAX) {
            turn.fenced += replies.next().map_or(0, |reply| reply.count()) as usize;
        }
        if let Some(want) = want {
            read_claim(&mut turn, want, replies.next().unwrap_or(Value::Nil));
        }
        Ok(turn)
    }

    fn settle(&mut self, pack: &mut Pack, owner: &str, settles: &[&Ack]) -> Result<()> {
        let none = SideEffects::default();
        let effects = |settle: &Ack| settle.effects.as_deref().unwrap_or(&none).release.len();
        let words = settles.iter().map(|settle| 13 + effects(settle)).sum::<usize>();
        self.conn.script(pack, Script::Ack, 3 + words)?;
        pack.word(owner).number(self.rules.dead_max as u64).number(self.rules.dead_age.as_secs());
        for settle in settles {
            pack.number(settle.ticket).word(settle.queue.as_bytes());
            let (name, at, payload) = outcome(&settle.outcome);
            pack.word(name).float(at);
            match payload {
                Some(payload) => pack.word("1").word(payload),
                None => pack.word("0").word(""),
            };
            pack.word(match &settle.outcome {
                Outcome::Requeue { queue: Some(queue), .. } if settle.queue.is_empty() => queue,
                _ => &*settle.queue,
            });
            add_effects(pack, settle.effects.as_deref().unwrap_or(&none));
        }
        Ok(())
    }
}

fn is_plain(settle: &Ack) -> bool {
    settle.outcome.is_removal() && settle.effects.is_none()
}

fn field(pack: &mut Pack, settle: &Ack) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    let mut rest = settle.ticket;
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    pack.parts(&[&digits[at..], b":", settle.queue.as_bytes()]);
}

fn outcome(outcome: &Outcome) -> (&'static str, f64, Option<&[u8]>) {
    match outcome {
        Outcome::Ack | Outcome::Discard => ("done", 0.0, None),
        Outcome::Retry { at, payload } => ("retry", *at, Some(payload)),
        Outcome::Reschedule { at } => ("later", *at, None),
        Outcome::Dead { payload, at } => ("dead", *at, payload.as_deref()),
        Outcome::Requeue { payload, .. } => ("back", 0.0, payload.as_deref()),
    }
}

fn add_effects(pack: &mut Pack, effects: &SideEffects) {
    match &effects.unlock {
        Some((key, jid)) => pack.word(key).word(jid),
        None => pack.word("").word(""),
    };
    pack.number(effects.release.len() as u64);
    for key in &effects.release {
        pack.word(key);
    }
    match &effects.batch {
        Some(step) => pack.word(&step.bid).word(&step.jid).word(match step.event {
            BatchEvent::Done => "done",
            BatchEvent::Failed => "failed",
            BatchEvent::Died => "died",
        }),
        None => pack.word("").word("").word(""),
    };
}

fn read_claim(turn: &mut ClaimReply, want: &ClaimRequest<'_>, reply: Value) {
    let mut parts = reply.items().into_iter();
    turn.drained = parts.next().is_some_and(|drained| drained.count() == 1);
    let mut ticket = want.first_ticket;
    while let (Some(index), Some(jobs)) = (parts.next(), parts.next()) {
        let Some(queue) = want.queues.get(index.count() as usize) else { continue };
        let jobs = jobs.items();
        turn.jobs.reserve(jobs.len());
        for job in jobs {
            turn.jobs.push(ClaimedJob { ticket, queue: Arc::clone(queue), payload: job.bytes() });
            ticket += 1;
        }
    }
}
