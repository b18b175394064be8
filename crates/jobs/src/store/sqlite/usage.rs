//! What of each limit is used: slots, and what was taken from a rate.

use rusqlite::{params, OptionalExtension, Result};

use super::transaction::SqliteTransaction;
use crate::limit::{Limit, LimitRule};
use crate::store::line::{Taken, CALL_MAX, SKEW_S};

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

/// What was taken from a rate later than now counts as taken now: the clock was set back.
pub(super) fn set_back(tx: &SqliteTransaction<'_>, line: &str, now_s: f64) -> Result<()> {
    let (table, key) = match line.split_once(':') {
        Some(("window", key)) => ("starts", key),
        Some(("bucket", key)) => ("buckets", key),
        _ => return Ok(()),
    };
    tx.conn
        .prepare_cached(&format!("UPDATE {table} SET at=?2 WHERE key=?1 AND at>?2+?3"))?
        .execute(params![key, now_s, SKEW_S])
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

/// Uses a limit up by one.
pub(super) fn use_up(
    tx: &SqliteTransaction<'_>,
    limit: &Limit,
    holder: &str,
    now_s: f64,
) -> Result<()> {
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
