//! Locks of unique jobs, and which jobs limits let through.

use rusqlite::{params, OptionalExtension, Result};

use super::transaction::SqliteTransaction;
use super::{lines, usage};
use crate::limit::{Limit, LimitRule};
use crate::store::line::{called, latest, token_at};
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

pub(super) fn acquire(
    tx: &SqliteTransaction<'_>,
    owner: &str,
    requests: &[LimitRequest<'_>],
    now_s: f64,
) -> Result<Vec<Grant>> {
    let one = |request: &LimitRequest<'_>| {
        let holder = usage::holder(owner, request.ticket);
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
                usage::release(tx, &limit.key, &called(request.jid))?;
            }
            usage::use_up(tx, limit, &holder, now_s)?;
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
        let (used, _) = usage::held(tx, &limit.key, now_s)?;
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
    let taken = usage::taken(tx, limit, now_s)?;
    let at = token_at(limit.rule, &taken, ahead, now_s).unwrap_or(now_s + limit.rule.size().1);
    Ok((at > now_s).then_some(Some(at)))
}
