//! The rules of limits and of the lines of jobs behind them (see [`super::line`]), for stores that keep both in tables.

use super::line::*;
use super::types::{Grant, LimitRequest};
use crate::limit::{Limit, LimitRule};

/// A job in a line.
pub(super) struct Waiting {
    pub jid: String,
    /// The number of its entry in the schedule, and its time.
    pub entry: i64,
    pub at: f64,
    pub queue: String,
    /// The entry is still in the schedule.
    pub is_there: bool,
}

/// What is kept of limits and lines, in a transaction beside which nobody changes it.
pub(super) trait LimitTables {
    type Error;
    /// What was taken out of the schedule.
    type Taken;

    /// How many slots are held, and when the first hold ends.
    fn held(&mut self, key: &str, now_s: f64) -> Result<(usize, Option<f64>), Self::Error>;
    /// Whether one of these has a slot.
    fn holds(&mut self, key: &str, holders: [&str; 2]) -> Result<bool, Self::Error>;
    /// Gives a slot.
    fn hold(&mut self, key: &str, holder: &str, until_s: f64) -> Result<(), Self::Error>;
    /// Releases a slot.
    fn release(&mut self, key: &str, holder: &str) -> Result<(), Self::Error>;
    /// How many starts are in a window since this time, and the first of them after `max` others.
    fn starts(
        &mut self,
        key: &str,
        since_s: f64,
        max: u32,
    ) -> Result<(usize, Vec<f64>), Self::Error>;
    /// Notes a start, which is forgotten some time.
    fn start(
        &mut self,
        key: &str,
        at_s: f64,
        holder: &str,
        until_s: f64,
    ) -> Result<(), Self::Error>;
    /// The level of a bucket, and when it had that.
    fn bucket(&mut self, key: &str) -> Result<Option<(f64, f64)>, Self::Error>;
    /// Sets them.
    fn fill(&mut self, key: &str, level: f64, at_s: f64, until_s: f64) -> Result<(), Self::Error>;
    /// What was taken from a rate later than now counts as taken now: the clock was set back.
    fn set_back(&mut self, table: &str, key: &str, now_s: f64) -> Result<(), Self::Error>;

    /// A job leaves a line, which goes with its last one. Whether it was in it.
    fn leave(&mut self, line: &str, jid: &str) -> Result<bool, Self::Error>;
    /// How many jobs stand in a line before this place, counted up to `max`.
    fn ahead(&mut self, line: &str, place: f64, max: u32) -> Result<usize, Self::Error>;
    /// Whether the time has come to look at a line.
    fn is_due(&mut self, line: &str, now_s: f64) -> Result<bool, Self::Error>;
    /// The lines whose time has come, or cannot have been set by this clock.
    fn due(&mut self, now_s: f64) -> Result<Vec<String>, Self::Error>;
    /// The size of a line's limit.
    fn size(&mut self, line: &str) -> Result<Option<(u32, f64)>, Self::Error>;
    /// When a line is looked at next, if a job is left in it.
    fn look_next(&mut self, line: &str, at_s: f64) -> Result<(), Self::Error>;
    /// The first jobs of a line.
    fn first(&mut self, line: &str, count: usize) -> Result<Vec<Waiting>, Self::Error>;
    /// Takes a job out of the schedule if it is still there. With whether its queue is paused.
    fn take(&mut self, one: &Waiting) -> Result<Option<(Self::Taken, bool)>, Self::Error>;
    /// Puts it to the front of its queue.
    fn prepend(&mut self, one: &Waiting, taken: Self::Taken) -> Result<(), Self::Error>;
    /// Gives a job another time.
    fn promise(&mut self, line: &str, one: &Waiting, at_s: f64) -> Result<(), Self::Error>;
}

/// The name of the holder of a slot.
pub(super) fn holder(owner: &str, ticket: u64) -> String {
    format!("{owner}|{ticket}")
}

/// Asks limits for claimed jobs: see [`super::Store::acquire`].
pub(super) fn acquire<T: LimitTables>(
    tables: &mut T,
    owner: &str,
    requests: &[LimitRequest<'_>],
    now_s: f64,
) -> Result<Vec<Grant>, T::Error> {
    let one = |request: &LimitRequest<'_>| {
        let holder = holder(owner, request.ticket);
        let mut denied = None;
        // All are checked before one is used up: together or not at all.
        for (index, limit) in request.limits.iter().enumerate() {
            if let Some(at) = denial(tables, limit, &holder, request, now_s)? {
                denied = latest(denied, index, at);
            }
        }
        if let Some((limit, at)) = denied {
            return Ok(Grant::Behind { limit, at });
        }
        for limit in request.limits {
            let waited = tables.leave(&limit.line(), request.jid)?;
            if limit.rule.is_concurrent() {
                tables.release(&limit.key, &called(request.jid))?;
            }
            use_up(tables, limit, &holder, now_s)?;
            if waited && !limit.rule.is_concurrent() {
                look_if_due(tables, &limit.line(), now_s)?;
            }
        }
        Ok(Grant::Now)
    };
    requests.iter().map(one).collect()
}

/// `None` when granted, else when to ask again, if that is known.
fn denial<T: LimitTables>(
    tables: &mut T,
    limit: &Limit,
    holder: &str,
    request: &LimitRequest<'_>,
    now_s: f64,
) -> Result<Option<Option<f64>>, T::Error> {
    let ahead = tables.ahead(&limit.line(), request.place, limit.rule.size().0)?;
    if let LimitRule::Concurrent { max, .. } = limit.rule {
        let (used, _) = tables.held(&limit.key, now_s)?;
        if used + ahead < max as usize {
            return Ok(None);
        }
        // A job that requests again keeps its slot, and a called one has it already.
        let own = tables.holds(&limit.key, [holder, &called(request.jid)])?;
        return Ok((!own).then_some(None));
    }
    let taken = taken(tables, limit, now_s)?;
    let at = token_at(limit.rule, &taken, ahead, now_s).unwrap_or(now_s + limit.rule.size().1);
    Ok((at > now_s).then_some(Some(at)))
}

/// What was taken from a rate.
fn taken<T: LimitTables>(tables: &mut T, limit: &Limit, now_s: f64) -> Result<Taken, T::Error> {
    let (max, span_s) = limit.rule.size();
    if let LimitRule::Bucket { .. } = limit.rule {
        return Ok(Taken::Bucket(level(tables, &limit.key, max, span_s, now_s)?.0));
    }
    let (used, leaving) = tables.starts(&limit.key, now_s - span_s, max)?;
    Ok(Taken::Window(used, leaving))
}

/// Level of a bucket, and the latest time it was asked with (clocks differ).
fn level<T: LimitTables>(
    tables: &mut T,
    key: &str,
    max: u32,
    per_s: f64,
    now_s: f64,
) -> Result<(f64, f64), T::Error> {
    let full = f64::from(max);
    Ok(tables.bucket(key)?.map_or((full, now_s), |(level, at)| {
        let since_s = (now_s - at).max(0.0);
        (full.min(level + since_s * full / per_s), at.max(now_s))
    }))
}

/// Uses a limit up by one.
fn use_up<T: LimitTables>(
    tables: &mut T,
    limit: &Limit,
    holder: &str,
    now_s: f64,
) -> Result<(), T::Error> {
    let key = &limit.key;
    match limit.rule {
        LimitRule::Concurrent { hold_s, .. } => tables.hold(key, holder, now_s + hold_s),
        LimitRule::Window { per_s, .. } => tables.start(key, now_s, holder, now_s + per_s),
        LimitRule::Bucket { max, per_s } => {
            let (level, at) = level(tables, key, max, per_s, now_s)?;
            tables.fill(key, (level - 1.0).max(0.0), at, at + per_s)
        }
    }
}

/// Looks at a line if its time has come.
pub(super) fn look_if_due<T: LimitTables>(
    tables: &mut T,
    line: &str,
    now_s: f64,
) -> Result<(), T::Error> {
    if tables.is_due(line, now_s)? {
        look_at(tables, line, now_s)?;
    }
    Ok(())
}

/// Looks at the lines whose time has come, or cannot have been set by this clock.
pub(super) fn look_at_all<T: LimitTables>(tables: &mut T, now_s: f64) -> Result<(), T::Error> {
    for line in tables.due(now_s)? {
        match line.split_once(':') {
            Some(("window", key)) => tables.set_back("starts", key, now_s)?,
            Some(("bucket", key)) => tables.set_back("buckets", key, now_s)?,
            _ => {}
        }
        look_at(tables, &line, now_s)?;
    }
    Ok(())
}

/// Calls the first jobs of a line, as far as there are slots, or gives them their times.
pub(super) fn look_at<T: LimitTables>(
    tables: &mut T,
    line: &str,
    now_s: f64,
) -> Result<(), T::Error> {
    let (Some((max, span_s)), Some((kind, key))) = (tables.size(line)?, line.split_once(':'))
    else {
        return Ok(());
    };
    let behind = Limit { key: key.into(), rule: LimitRule::of(kind, max, span_s) };
    let look_at = match behind.rule {
        LimitRule::Concurrent { max, .. } => call(tables, line, (key, max), now_s)?,
        _ => promise(tables, line, &behind, now_s)?,
    };
    tables.look_next(line, look_at)
}

fn call<T: LimitTables>(
    tables: &mut T,
    line: &str,
    (key, max): (&str, u32),
    now_s: f64,
) -> Result<f64, T::Error> {
    let (held, mut next) = tables.held(key, now_s)?;
    let mut free = (max as usize).saturating_sub(held);
    let (mut jobs, mut read) = (vec![], 0);
    while free > 0 && jobs.len() < CALL_MAX && read < READ_MAX {
        let waiting = tables.first(line, free.min(CALL_MAX - jobs.len()))?;
        if waiting.is_empty() {
            break;
        }
        read += waiting.len();
        for one in waiting {
            tables.leave(line, &one.jid)?;
            let Some((taken, is_paused)) = tables.take(&one)? else { continue };
            // One whose queue is paused waits there, and holds nothing up.
            if !is_paused {
                tables.hold(key, &called(&one.jid), now_s + CALLED_S)?;
                next = Some(next.unwrap_or(f64::MAX).min(now_s + CALLED_S));
                free -= 1;
            }
            jobs.push((one, taken));
        }
    }
    while let Some((one, taken)) = jobs.pop() {
        tables.prepend(&one, taken)?;
    }
    Ok(next.filter(|_| free == 0).unwrap_or(now_s).min(now_s + LOOK_S))
}

fn promise<T: LimitTables>(
    tables: &mut T,
    line: &str,
    behind: &Limit,
    now_s: f64,
) -> Result<f64, T::Error> {
    let taken = taken(tables, behind, now_s)?;
    let first = tables.first(line, READ_MAX)?;
    let waiting = first.iter().map(|one| (one.at, one.is_there));
    let (promises, look_at) = promises(waiting, behind.rule, &taken, now_s);
    for (one, promise) in first.iter().zip(promises) {
        match promise {
            Promise::Leave => drop(tables.leave(line, &one.jid)?),
            Promise::At(at) => tables.promise(line, one, at)?,
            Promise::Stays => {}
        }
    }
    Ok(look_at)
}
