//! Locks of unique jobs, and limiters.

use rusqlite::{params, OptionalExtension, Result};

use super::transaction::SqliteTransaction;
use crate::limit::{Limit, LimitRule};
use crate::store::types::{Grant, LimitRequest};

/// Part of a token that may be missing because of rounding.
const BUCKET_SLACK: f64 = 1e-9;

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

/// Releases the slot of a job in flight.
pub(super) fn release(
    tx: &SqliteTransaction<'_>,
    key: &str,
    owner: &str,
    ticket: u64,
) -> Result<()> {
    tx.conn
        .prepare_cached("DELETE FROM slots WHERE key=?1 AND holder=?2")?
        .execute(params![key, holder(owner, ticket)])
        .map(|_| ())
}

fn holder(owner: &str, ticket: u64) -> String {
    format!("{owner}|{ticket}")
}

pub(super) fn acquire(
    tx: &SqliteTransaction<'_>,
    owner: &str,
    requests: &[LimitRequest<'_>],
    now_s: f64,
) -> Result<Vec<Grant>> {
    let one = |request: &LimitRequest<'_>| {
        let holder = holder(owner, request.ticket);
        let mut waits = Vec::new();
        // All are checked before one is used up: together or not at all.
        for limit in request.limits {
            match check(tx, limit, &holder, now_s)? {
                Grant::Now => {}
                Grant::At(at) => waits.push(at),
            }
        }
        if waits.is_empty() {
            request.limits.iter().try_for_each(|limit| use_up(tx, limit, &holder, now_s))?;
            return Ok(Grant::Now);
        }
        // The latest of the known times.
        Ok(Grant::At(waits.into_iter().flatten().max_by(f64::total_cmp)))
    };
    requests.iter().map(one).collect()
}

fn check(tx: &SqliteTransaction<'_>, limit: &Limit, holder: &str, now_s: f64) -> Result<Grant> {
    let key = &limit.key;
    match limit.rule {
        LimitRule::Concurrent { max, .. } => {
            tx.conn
                .prepare_cached("DELETE FROM slots WHERE key=?1 AND until<=?2")?
                .execute(params![key, now_s])?;
            // A job that requests again keeps its slot.
            let (used, own): (i64, bool) = tx
                .conn
                .prepare_cached(
                    "SELECT count(*), coalesce(max(holder=?2), 0) FROM slots WHERE key=?1",
                )?
                .query_row([key, holder], |row| Ok((row.get(0)?, row.get(1)?)))?;
            Ok(if own || used < i64::from(max) { Grant::Now } else { Grant::At(None) })
        }
        LimitRule::Window { max: 0, per_s } => Ok(Grant::At(Some(now_s + per_s))),
        LimitRule::Window { max, per_s } => {
            tx.conn
                .prepare_cached("DELETE FROM starts WHERE key=?1 AND at<=?2")?
                .execute(params![key, now_s - per_s])?;
            // The start that has to leave the window to make room.
            let nth: Option<f64> = tx
                .conn
                .prepare_cached(
                    "SELECT at FROM starts WHERE key=?1 ORDER BY at DESC LIMIT 1 OFFSET ?2",
                )?
                .query_row(params![key, i64::from(max) - 1], |row| row.get(0))
                .optional()?;
            Ok(nth.map_or(Grant::Now, |at| Grant::At(Some(at + per_s))))
        }
        LimitRule::Bucket { max: 0, per_s } => Ok(Grant::At(Some(now_s + per_s))),
        LimitRule::Bucket { max, per_s } => {
            let (level, _) = level(tx, key, max, per_s, now_s)?;
            let short = 1.0 - level;
            let at = now_s + short * per_s / f64::from(max);
            Ok(if short <= BUCKET_SLACK { Grant::Now } else { Grant::At(Some(at)) })
        }
    }
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
        LimitRule::Concurrent { hold_s, .. } => tx
            .conn
            .prepare_cached("INSERT OR REPLACE INTO slots(key, holder, until) VALUES(?1, ?2, ?3)")?
            .execute(params![key, holder, now_s + hold_s]),
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
