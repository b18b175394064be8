//! Locks of unique jobs, and limits: how many at once, how many in a time.

use rusqlite::{params, OptionalExtension, Result};

use super::{owners, queues, Tx};
use crate::store::{Ask, Grant, Limit, LimitRule};

/// Takes a lock; answers who holds it when that is somebody else.
pub(super) fn lock(
    tx: &Tx<'_>,
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
    if let Some(holder) = holder.filter(|holder| holder != jid) {
        return Ok(Some(holder));
    }
    tx.conn
        .prepare_cached("INSERT OR REPLACE INTO locks(key, jid, until) VALUES(?1, ?2, ?3)")?
        .execute(params![key, jid, until])?;
    Ok(None)
}

/// Gives a lock up, if this jid holds it.
pub(super) fn unlock(tx: &Tx<'_>, key: &str, jid: &str) -> Result<()> {
    tx.conn
        .prepare_cached("DELETE FROM locks WHERE key=?1 AND jid=?2")?
        .execute([key, jid])
        .map(|_| ())
}

/// Frees the slot that a job in flight holds.
pub(super) fn release(tx: &Tx<'_>, key: &str, flight: i64) -> Result<()> {
    tx.conn
        .prepare_cached("DELETE FROM slots WHERE key=?1 AND flight=?2")?
        .execute(params![key, flight])
        .map(|_| ())
}

pub(super) fn acquire(
    tx: &Tx<'_>,
    owner: &str,
    asks: &[Ask<'_>],
    now_s: f64,
) -> Result<Vec<Grant>> {
    let owner = owners::id_of(tx, owner)?;
    asks.iter()
        .map(|ask| {
            let flight = queues::flight(owner, ask.ticket);
            // All are asked before one is used: together or not at all.
            let mut wait: Option<Option<f64>> = None;
            for limit in ask.limits {
                if let Grant::At(at) = look(tx, limit, now_s)? {
                    wait = Some(later(wait, at));
                }
            }
            match wait {
                Some(at) => Ok(Grant::At(at)),
                None => {
                    ask.limits.iter().try_for_each(|limit| use_up(tx, limit, flight, now_s))?;
                    Ok(Grant::Now)
                }
            }
        })
        .collect()
}

/// The later of two times; a known one beats an unknown one.
fn later(one: Option<Option<f64>>, other: Option<f64>) -> Option<f64> {
    match (one.flatten(), other) {
        (Some(one), Some(other)) => Some(one.max(other)),
        (one, other) => one.or(other),
    }
}

fn look(tx: &Tx<'_>, limit: &Limit, now_s: f64) -> Result<Grant> {
    let key = &limit.key;
    match limit.rule {
        LimitRule::Concurrent { max, .. } => {
            tx.conn
                .prepare_cached("DELETE FROM slots WHERE key=?1 AND until<=?2")?
                .execute(params![key, now_s])?;
            let used: i64 = tx
                .conn
                .prepare_cached("SELECT count(*) FROM slots WHERE key=?1")?
                .query_row([key], |row| row.get(0))?;
            Ok(if used < i64::from(max) { Grant::Now } else { Grant::At(None) })
        }
        LimitRule::Window { max, per_s } => {
            tx.conn
                .prepare_cached("DELETE FROM starts WHERE key=?1 AND at<=?2")?
                .execute(params![key, now_s - per_s])?;
            // The start whose end makes room: the one `max` places before the next.
            let oldest: Option<f64> = tx
                .conn
                .prepare_cached(
                    "SELECT at FROM starts WHERE key=?1 ORDER BY at DESC, id DESC LIMIT 1 OFFSET ?2",
                )?
                .query_row(params![key, i64::from(max) - 1], |row| row.get(0))
                .optional()?;
            Ok(oldest.map_or(Grant::Now, |at| Grant::At(Some(at + per_s))))
        }
        LimitRule::Bucket { max, per_s } => {
            let level = level(tx, key, max, per_s, now_s)?;
            let rate = f64::from(max) / per_s;
            let short = 1.0 - level;
            Ok(if short <= 1e-9 { Grant::Now } else { Grant::At(Some(now_s + short / rate)) })
        }
    }
}

/// What a bucket holds now.
fn level(tx: &Tx<'_>, key: &str, max: u32, per_s: f64, now_s: f64) -> Result<f64> {
    let row: Option<(f64, f64)> = tx
        .conn
        .prepare_cached("SELECT level, at FROM buckets WHERE key=?1")?
        .query_row([key], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let full = f64::from(max);
    Ok(row.map_or(full, |(level, at)| full.min(level + (now_s - at).max(0.0) * full / per_s)))
}

fn use_up(tx: &Tx<'_>, limit: &Limit, flight: i64, now_s: f64) -> Result<()> {
    let key = &limit.key;
    let done = match limit.rule {
        LimitRule::Concurrent { hold_s, .. } => tx
            .conn
            .prepare_cached("INSERT OR REPLACE INTO slots(key, flight, until) VALUES(?1, ?2, ?3)")?
            .execute(params![key, flight, now_s + hold_s]),
        LimitRule::Window { .. } => tx
            .conn
            .prepare_cached("INSERT OR REPLACE INTO starts(key, at, id) VALUES(?1, ?2, ?3)")?
            .execute(params![key, now_s, flight]),
        LimitRule::Bucket { max, per_s } => {
            let level = level(tx, key, max, per_s, now_s)? - 1.0;
            tx.conn
                .prepare_cached("INSERT OR REPLACE INTO buckets(key, level, at) VALUES(?1, ?2, ?3)")?
                .execute(params![key, level, now_s])
        }
    };
    done.map(|_| ())
}
