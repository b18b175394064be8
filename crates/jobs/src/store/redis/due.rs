//! What is due: from the retry set and the schedule.
//!
//! A job's time of enqueueing is written into its document here and not in the
//! script: what Lua decodes and encodes again is another document (`[]` turns
//! `{}`, long numbers lose digits). The script moves a member only if it is
//! still there, so two processes may try the same one.

use super::resp::{Pack, Value};
use super::scripts::Script;
use super::RedisStore;
use crate::document::stamped;
use crate::store::{ClaimedJob, DueSummary, Result};

/// Jobs moved by one call of the script: it holds up the server no longer.
const MOVE_MAX: usize = 500;
/// The sets, in the order in which they are looked at.
const SETS: [&str; 2] = ["retry", "schedule"];

struct Member {
    set: &'static str,
    score: f64,
    payload: Vec<u8>,
    /// Its queue and its new document; none when it is malformed.
    ready: Option<(String, Vec<u8>)>,
}

impl RedisStore {
    pub(super) fn move_due_jobs(&mut self, now_s: f64, max: usize) -> Result<DueSummary> {
        let (members, mut due) = self.due(now_s, max)?;
        let mut rest = &members[..];
        while !rest.is_empty() {
            let some = &rest[..rest.len().min(MOVE_MAX)];
            rest = &rest[some.len()..];
            let mut pack = Pack::new();
            self.conn.script(&mut pack, Script::MoveDue, 3 + 5 * some.len())?;
            self.burial(&mut pack, now_s);
            for member in some {
                pack.word(member.set).word(&member.payload);
                match &member.ready {
                    Some((queue, payload)) => pack.word("push").word(queue).word(payload),
                    None => pack.word("bury").word("").word(""),
                };
            }
            if rest.is_empty() {
                next(&mut pack);
            }
            let mut replies = self.run(&pack)?;
            due.moved += replies.next().map_or(0, |moved| moved.count()) as usize;
            if rest.is_empty() {
                due.next_at = read_next(replies);
            }
        }
        Ok(due)
    }

    pub(super) fn claim_due_jobs(
        &mut self,
        owner: &str,
        first_ticket: u64,
        now_s: f64,
        max: usize,
    ) -> Result<(Vec<ClaimedJob>, DueSummary)> {
        let (members, mut due) = self.due(now_s, max)?;
        if members.is_empty() {
            return Ok((Vec::new(), due));
        }
        let mut pack = Pack::new();
        self.conn.script(&mut pack, Script::ClaimDue, 5 + 3 * members.len())?;
        self.burial(&mut pack, now_s);
        pack.word(owner).number(first_ticket);
        for member in &members {
            pack.word(member.set).word(&member.payload);
            pack.word(if member.ready.is_some() { "take" } else { "bury" });
        }
        next(&mut pack);
        let mut replies = self.run(&pack)?;
        let there = replies.next().unwrap_or(Value::Nil).items();
        due.next_at = read_next(replies);
        let mut claimed = Vec::with_capacity(members.len());
        let mut ticket = first_ticket;
        for (member, there) in members.into_iter().zip(there) {
            if there.count() == 0 {
                continue;
            }
            due.moved += 1;
            if member.ready.is_some() {
                claimed.push(ClaimedJob { ticket, queue: "".into(), payload: member.payload });
                ticket += 1;
            }
        }
        Ok((claimed, due))
    }

    /// What is due, and when the next one is if nothing is.
    fn due(&mut self, now_s: f64, max: usize) -> Result<(Vec<Member>, DueSummary)> {
        let mut pack = Pack::new();
        for set in SETS {
            pack.begin(8).word("ZRANGEBYSCORE").word(set).word("-inf").float(now_s);
            pack.word("WITHSCORES").word("LIMIT").word("0").number(max as u64);
        }
        next(&mut pack);
        let mut replies = self.run(&pack)?;
        let mut members = Vec::new();
        let mut due = DueSummary::default();
        for set in SETS {
            for (payload, score) in replies.next().unwrap_or(Value::Nil).scored() {
                members.push(Member { set, score, payload, ready: None });
            }
        }
        // The one that is due for longest first, whichever set it is in.
        members.sort_by(|a, b| a.score.total_cmp(&b.score));
        members.truncate(max);
        for member in &mut members {
            due.lag_max_s = due.lag_max_s.max(now_s - member.score);
            member.ready = stamped(&member.payload, now_s, self.rules.format, false);
        }
        due.next_at = read_next(replies);
        Ok((members, due))
    }

    /// What a script needs to put a job into the dead set.
    pub(super) fn burial(&self, pack: &mut Pack, now_s: f64) {
        pack.float(now_s).number(self.rules.dead_max as u64);
        pack.number(self.rules.dead_age.as_secs());
    }
}

fn next(pack: &mut Pack) {
    for set in SETS {
        pack.begin(5).word("ZRANGE").word(set).word("0").word("0").word("WITHSCORES");
    }
}

pub(super) fn read_next(replies: impl Iterator<Item = Value>) -> Option<f64> {
    let scores = replies.take(2).flat_map(|reply| reply.scored()).map(|(_, score)| score);
    scores.min_by(f64::total_cmp)
}
