//! Locks of unique jobs, and limiters.

use rusqlite::{params, OptionalExtension, Result};

use super::lines;
use super::transaction::SqliteTransaction;
use crate::limit::{Limit, LimitRule};
use crate::store::line::{called, latest, token_at, Taken, CALL_MAX, SKEW_S};
use crate::store::types::{Grant, LimitRequest};

/// Takes a lock; returns the holder when it is held by another job.
pub(super) fn lock(
    tx: &SqliteTransaction<'_>,
    key: &str,
    jid: &str,
    until: f64,
    now_s: f64,
) -> Result<Option<String>> {
    let holder: Option<String> = tx
        .conn
        .prepare_cached("SELECT jid FROM locks WHERE key=?1 AND until>?2")?
        .query_row(params![key, now_s], |row| row.get(0))
        .optional()?;
    // A scheduled job that is pushed when it is due holds its own lock.
    if let Some(holder) = holder.filter(|holder| holder != jid) {
        return Ok(Some(holder));
    }
    tx.conn
        .prepare_cached("INSERT OR REPLACE INTO locks(key, jid, until) VALUES(?1, ?2, ?3)")?
        .execute(params![key, jid, until])?;
    Ok(None)
}

/// Releases a lock if this jid holds it.
pub(super) fn unlock(tx: &SqliteTransaction<'_>, key: &str, jid: &str) -> Result<()> {
    tx.conn
        .prepare_cached("DELETE FROM locks WHERE key=?1 AND jid=?2")?
        .execute([key, jid])
        .map(|_| ())
}

/// Releases a slot.
pub(super) fn release(tx: &SqliteTransaction<'_>, key: &str, holder: &str) -> Result<()> {
    tx.conn
        .prepare_cached("DELETE FROM slots WHERE key=?1 AND holder=?2")?
        .execute([key, holder])
        .map(|_| ())
}

/// The name of the holder of a slot.
pub(super) fn holder(owner: &str, ticket: u64) -> String {
    format!("{owner}|{ticket}")
}

/// Gives a slot.
pub(super) fn hold(
    tx: &SqliteTransaction<'_>,
    key: &str,
    holder: &str,
    until_s: f64,
) -> Result<()> {
    tx.conn
        .prepare_cached("INSERT OR REPLACE INTO slots(key, holder, until) VALUES(?1, ?2, ?3)")?
        .execute(params![key, holder, until_s])
        .map(|_| ())
}

/// How many slots are held, and when the first hold ends.
pub(super) fn held(
    tx: &SqliteTransaction<'_>,
    key: &str,
    now_s: f64,
) -> Result<(usize, Option<f64>)> {
    tx.conn
        .prepare_cached("DELETE FROM slots WHERE key=?1 AND until<=?2")?
        .execute(params![key, now_s])?;
    tx.conn
        .prepare_cached("SELECT count(*), min(until) FROM slots WHERE key=?1")?
        .query_row([key], |row| Ok((row.get::<_, i64>(0)? as usize, row.get(1)?)))
}

pub(super) fn acquire(
    tx: &SqliteTransaction<'_>,
    owner: &str,
    requests: &[LimitRequest<'_>],
    now_s: f64,
) -> Result<Vec<Grant>> {
    let one = |request: &LimitRequest<'_>| {
        let holder = holder(owner, request.ticket);
        let mut denied = None;
        // All are checked before one is used up: together or not at all.
        for (index, limit) in request.limits.iter().enumerate() {
            if let Some(at) = denial(tx, limit, &holder, request, now_s)? {
                denied = latest(denied, index, at);
            }
        }
        if let Some((limit, at)) = denied {
            return Ok(Grant::Behind { limit, at });
        }
        for limit in request.limits {
            let waited = lines::leave(tx, &limit.line(), request.jid)?;
            if limit.rule.is_concurrent() {
                release(tx, &limit.key, &called(request.jid))?;
            }
            use_up(tx, limit, &holder, now_s)?;
            if waited && !limit.rule.is_concurrent() {
                lines::look_if_due(tx, &limit.line(), now_s)?;
            }
        }
        Ok(Grant::Now)
    };
    requests.iter().map(one).collect()
}

/// `None` when granted, else when to ask again, if that is known.
fn denial(
    tx: &SqliteTransaction<'_>,
    limit: &Limit,
    holder: &str,
    request: &LimitRequest<'_>,
    now_s: f64,
) -> Result<Option<Option<f64>>> {
    let ahead = lines::ahead(tx, &limit.line(), request.place, limit.rule.size().0)?;
    if let LimitRule::Concurrent { max, .. } = limit.rule {
        let (used, _) = held(tx, &limit.key, now_s)?;
        if used + ahead < max as usize {
            return Ok(None);
        }
        // A job that requests again keeps its slot, and a called one has it already.
        let own: bool = tx
            .conn
            .prepare_cached(
                "SELECT EXISTS(SELECT 1 FROM slots WHERE key=?1 AND holder IN (?2, ?3))",
            )?
            .query_row(params![limit.key, holder, called(request.jid)], |row| row.get(0))?;
        return Ok((!own).then_some(None));
    }
    let taken = taken(tx, limit, now_s)?;
    let at = token_at(limit.rule, &taken, ahead, now_s).unwrap_or(now_s + limit.rule.size().1);
    Ok((at > now_s).then_some(Some(at)))
}

/// What was taken from a rate later than now counts as taken now: the clock was set back.
pub(super) fn set_back(tx: &SqliteTransaction<'_>, limit: &Limit, now_s: f64) -> Result<()> {
    let is_bucket = matches!(limit.rule, LimitRule::Bucket { .. });
    let table = if is_bucket { "buckets" } else { "starts" };
    tx.conn
        .prepare_cached(&format!("UPDATE {table} SET at=?2 WHERE key=?1 AND at>?2+?3"))?
        .execute(params![limit.key, now_s, SKEW_S])
        .map(|_| ())
}

/// What was taken from a rate.
pub(super) fn taken(tx: &SqliteTransaction<'_>, limit: &Limit, now_s: f64) -> Result<Taken> {
    let (key, (max, span_s)) = (&limit.key, limit.rule.size());
    if let LimitRule::Bucket { .. } = limit.rule {
        return Ok(Taken::Bucket(level(tx, key, max, span_s, now_s)?.0));
    }
    tx.conn
        .prepare_cached("DELETE FROM starts WHERE key=?1 AND at<=?2")?
        .execute(params![key, now_s - span_s])?;
    let used: i64 = tx
        .conn
        .prepare_cached("SELECT count(*) FROM starts WHERE key=?1")?
        .query_row([key], |row| row.get(0))?;
    let over = (used - i64::from(max)).max(0);
    let leaving = tx
        .conn
        .prepare_cached("SELECT at FROM starts WHERE key=?1 ORDER BY at LIMIT ?2 OFFSET ?3")?
        .query_map(params![key, CALL_MAX as i64, over], |row| row.get(0))?
        .collect::<Result<_>>()?;
    Ok(Taken::Window(used as usize, leaving))
}

/// Level of a bucket, and the latest time it was asked with (clocks differ).
fn level(
    tx: &SqliteTransaction<'_>,
    key: &str,
    max: u32,
    per_s: f64,
    now_s: f64,
) -> Result<(f64, f64)> {
    let row: Option<(f64, f64)> = tx
        .conn
        .prepare_cached("SELECT level, at FROM buckets WHERE key=?1")?
        .query_row([key], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let full = f64::from(max);
    Ok(row.map_or((full, now_s), |(level, at)| {
        let since_s = (now_s - at).max(0.0);
        (full.min(level + since_s * full / per_s), at.max(now_s))
    }))
}

fn use_up(tx: &SqliteTransaction<'_>, limit: &Limit, holder: &str, now_s: f64) -> Result<()> {
    let key = &limit.key;
    let done = match limit.rule {
        LimitRule::Concurrent { hold_s, .. } => return hold(tx, key, holder, now_s + hold_s),
        LimitRule::Window { per_s, .. } => tx
            .conn
            .prepare_cached(
                "INSERT OR REPLACE INTO starts(key, at, holder, until) VALUES(?1, ?2, ?3, ?4)",
            )?
            .execute(params![key, now_s, holder, now_s + per_s]),
        LimitRule::Bucket { max, per_s } => {
            let (level, at) = level(tx, key, max, per_s, now_s)?;
            let level = (level - 1.0).max(0.0);
            tx.conn
                .prepare_cached(
                    "INSERT OR REPLACE INTO buckets(key, level, at, until) VALUES(?1, ?2, ?3, ?4)",
                )?
                .execute(params![key, level, at, at + per_s])
        }
    };
    done.map(|_| ())
}
