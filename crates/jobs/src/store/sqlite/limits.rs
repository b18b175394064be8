//! Locks of unique jobs.

use rusqlite::{params, OptionalExtension, Result};

use super::transaction::SqliteTransaction;

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
