//! Lines of jobs behind limits. A job that a limit denies goes into the schedule, where everybody sees it, and into
//! the line of that limit, in the order in which jobs were first denied. When a slot is free, the first one is moved
//! to the front of its queue and has the slot for [`CALLED_S`], within which it asks its limiters again. The first
//! jobs of the line of a rate are given the times in the schedule at which there will be tokens for them.
//!
//! A line of slots is looked at when a job joins it and when a slot is released. Any line is looked at when a job joins
//! it, starts from it or a heartbeat comes, once its `look_at` is over: that of a rate is the time of the last token that
//! was promised. An entry that is gone from the schedule loses its place then. A job that nobody calls is due in the
//! schedule after some time, and asks again.
//!
//! After the clock was set back, what was taken from a rate lies in the future. The next look of a heartbeat counts it as
//! taken now, so that jobs wait for as long as the limit says, and not until the clock is there again. Other looks do not:
//! an acknowledgement that is written late has the time at which its job ended.

use std::collections::BTreeMap;

use crate::limit::{line_of_slots, LimitRule};
use crate::outcome::{Ack, Outcome};

/// How long a called job has its slot, and how long one whose time has come is expected, until it has asked: longer
/// than a process that has a free thread needs for it.
pub(super) const CALLED_S: f64 = 10.0;
/// Jobs called at one look.
pub(super) const CALL_MAX: usize = 100;
/// Jobs of a line that one look reads; further ones at the next.
pub(super) const READ_MAX: usize = 1000;
/// Tokens that come within this time (s) are promised at one look, and at least one.
const AHEAD_S: f64 = 1.0;
/// Longest time between two looks at a line (s), in case one was missed.
pub(super) const LOOK_S: f64 = 60.0;
/// What is later than now by more (s) was written before the clock was set back. The clocks of processes, which take them
/// from the store, differ by less, and no heartbeat is under way for longer.
pub(super) const SKEW_S: f64 = 10.0;
/// Lines looked at in one heartbeat.
pub(super) const LOOKS_MAX: usize = 100;
/// Time between two jobs whose times would be the same (s), so that they keep their order: a time since 1970 has no
/// more digits.
pub(crate) const APART_S: f64 = 1e-6;
/// Times in the schedule that differ by less (s) are the same.
const SAME_S: f64 = 1e-3;
/// Part of a token that may be missing because of rounding.
const BUCKET_SLACK: f64 = 1e-9;

/// Who holds the slot of a job that was called and has not asked yet.
pub(super) fn called(jid: &str) -> String {
    format!("line|{jid}")
}

/// Of two denials the one with the later time, a known one before an unknown one.
pub(super) fn latest(
    before: Option<(usize, Option<f64>)>,
    index: usize,
    at: Option<f64>,
) -> Option<(usize, Option<f64>)> {
    before.filter(|(_, known)| *known >= at).or(Some((index, at)))
}

/// When the last of these jobs ended, and the lines of limits of which they release slots, or that they join; each with
/// whether it is to be looked at whatever its `look_at` is.
pub(super) fn lines_to_look_at(acks: &[Ack]) -> (f64, BTreeMap<String, bool>) {
    let (mut now_s, mut lines) = (0.0_f64, BTreeMap::new());
    for ack in acks {
        if let Some(effects) = ack.effects.as_ref().filter(|effects| !effects.release.is_empty()) {
            now_s = now_s.max(effects.now_s);
            lines.extend(effects.release.iter().map(|key| (line_of_slots(key), true)));
        }
        if let Outcome::Wait(wait) = &ack.outcome {
            now_s = now_s.max(wait.now_s);
            lines.insert(wait.behind.line(), wait.behind.rule.is_concurrent());
        }
    }
    (now_s, lines)
}

/// What was taken from a rate so far.
pub(super) enum Taken {
    /// How many starts are in the window, and the times of those that have to leave it first.
    Window(usize, Vec<f64>),
    /// The level of the bucket.
    Bucket(f64),
}

/// When the token after `index` others is there (s); `None`: not known.
pub(super) fn token_at(rule: LimitRule, taken: &Taken, index: usize, now_s: f64) -> Option<f64> {
    let (max, span_s) = rule.size();
    if max == 0 {
        return Some(now_s + span_s);
    }
    match taken {
        Taken::Window(used, leaving) => match (used + index).checked_sub(max as usize) {
            None => Some(now_s),
            Some(after) => {
                let start = leaving.get(after - used.saturating_sub(max as usize));
                start.map(|start| start + span_s)
            }
        },
        Taken::Bucket(level) => {
            let missing = (index + 1) as f64 - level;
            let wait_s =
                if missing <= BUCKET_SLACK { 0.0 } else { missing * span_s / f64::from(max) };
            Some(now_s + wait_s)
        }
    }
}

/// What becomes of a job in the line of a rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Promise {
    /// It is gone.
    Leave,
    /// It has this time already, or that has come and it has not asked yet.
    Stays,
    /// It gets this time.
    At(f64),
}

/// What becomes of the first jobs of the line of a rate: each with its time, and whether it is in the schedule. And
/// when the line is looked at next.
pub(super) fn promises(
    waiting: impl Iterator<Item = (f64, bool)>,
    rule: LimitRule,
    taken: &Taken,
    now_s: f64,
) -> (Vec<Promise>, f64) {
    let (mut promises, mut token) = (vec![], 0);
    let (mut first, mut last) = (None::<f64>, None::<f64>);
    for (at, is_there) in waiting {
        if !is_there {
            let is_expected = at <= now_s && at > now_s - CALLED_S;
            promises.push(if is_expected { Promise::Stays } else { Promise::Leave });
            if is_expected {
                first = first.or(Some(at));
                token += 1;
            }
            continue;
        }
        let time = token_at(rule, taken, token, now_s);
        let time = time.filter(|time| last.is_none() || *time <= now_s + AHEAD_S);
        let Some(time) = time.filter(|_| token < CALL_MAX) else { break };
        let time = time + token as f64 * APART_S;
        let has_it = (at - time).abs() < SAME_S;
        promises.push(if has_it { Promise::Stays } else { Promise::At(time) });
        first = first.or(Some(time));
        last = Some(time);
        token += 1;
    }
    let missed = first.map_or(now_s, |first| first + CALLED_S);
    (promises, last.map_or(missed, |last| last.min(missed)).min(now_s + LOOK_S))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_in_order() {
        let window = LimitRule::Window { max: 3, per_s: 10.0 };
        let at = |taken: &Taken, index| token_at(window, taken, index, 100.0);
        let taken = Taken::Window(2, vec![95.0, 97.0]);
        assert_eq!(
            [0, 1, 2, 3].map(|i| at(&taken, i)),
            [Some(100.0), Some(105.0), Some(107.0), None]
        );
        let full = Taken::Window(5, vec![95.0, 97.0, 99.0]);
        assert_eq!([0, 1].map(|i| at(&full, i)), [Some(105.0), Some(107.0)]);
        let bucket = LimitRule::Bucket { max: 4, per_s: 8.0 };
        let times = [0, 1, 2].map(|i| token_at(bucket, &Taken::Bucket(1.5), i, 100.0).unwrap());
        assert_eq!(times, [100.0, 101.0, 103.0]);
    }

    #[test]
    fn the_first_jobs_get_the_next_tokens() {
        let rule = LimitRule::Bucket { max: 4, per_s: 8.0 };
        let taken = Taken::Bucket(0.75);
        // Gone; on its way; two that wait, of which the second one gets its time later.
        let waiting = [(500.0, false), (99.0, false), (500.0, true), (500.0, true)];
        let made = |waiting: &[(f64, bool)]| promises(waiting.iter().copied(), rule, &taken, 100.0);
        let (made_now, look_at) = made(&waiting);
        assert_eq!(made_now, [Promise::Leave, Promise::Stays, Promise::At(102.500001)]);
        assert_eq!(look_at, 102.500001);
        let (made_now, look_at) = made(&waiting[2..]);
        assert_eq!(made_now, [Promise::At(100.5)]);
        assert_eq!(look_at, 100.5);
        assert_eq!(made(&[(100.5001, true)]), (vec![Promise::Stays], 100.5));
    }
}
