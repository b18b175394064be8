//! Lines of jobs behind limits: see [`crate::store::line`].

use rusqlite::{params, OptionalExtension, Result};

use super::transaction::SqliteTransaction;
use super::{rows, usage};
use crate::limit::{Limit, LimitRule};
use crate::outcome::Wait;
use crate::store::line::*;
use crate::store::types::JobLocation;

/// A job in a line.
struct Waiting {
    jid: String,
    /// The row of its entry in the schedule, and its time.
    entry: i64,
    at: f64,
    queue: String,
}

/// A job joins the line of a limit that has denied it.
pub(super) fn join(tx: &SqliteTransaction<'_>, wait: &Wait, queue: &str) -> Result<()> {
    rows::add_to_set(tx, &JobLocation::Scheduled, wait.at, &wait.payload)?;
    let (name, entry, (max, span_s)) =
        (wait.behind.line(), tx.conn.last_insert_rowid(), wait.behind.rule.size());
    tx.conn
        .prepare_cached(
            "INSERT INTO lines(name, max, span, look_at) VALUES(?1, ?2, ?3, 0)
             ON CONFLICT(name) DO UPDATE SET max=?2, span=?3, look_at=0
             WHERE ?4 AND (max<>?2 OR span<>?3)",
        )?
        .execute(params![name, max, span_s, wait.is_new])?;
    tx.conn
        .prepare_cached(
            "INSERT OR REPLACE INTO line_jobs(name, jid, place, entry, at, queue)
             VALUES(?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![name, wait.jid, wait.place, entry, wait.at, queue])
        .map(|_| ())
}

/// A job leaves a line. Whether it was in it.
pub(super) fn leave(tx: &SqliteTransaction<'_>, name: &str, jid: &str) -> Result<bool> {
    let left = tx
        .conn
        .prepare_cached("DELETE FROM line_jobs WHERE name=?1 AND jid=?2")?
        .execute([name, jid])?;
    if left > 0 {
        remove_if_empty(tx, name)?;
    }
    Ok(left > 0)
}

fn remove_if_empty(tx: &SqliteTransaction<'_>, name: &str) -> Result<()> {
    tx.conn
        .prepare_cached(
            "DELETE FROM lines WHERE name=?1
             AND NOT EXISTS(SELECT 1 FROM line_jobs WHERE name=?1)",
        )?
        .execute([name])
        .map(|_| ())
}

/// How many jobs stand in the line before this place, counted up to `max`.
pub(super) fn ahead(tx: &SqliteTransaction<'_>, name: &str, place: f64, max: u32) -> Result<usize> {
    tx.conn
        .prepare_cached(
            "SELECT count(*) FROM (SELECT 1 FROM line_jobs WHERE name=?1 AND place<?2 LIMIT ?3)",
        )?
        .query_row(params![name, place, max], |row| Ok(row.get::<_, i64>(0)? as usize))
}

/// Looks at a line if its time has come.
pub(super) fn look_if_due(tx: &SqliteTransaction<'_>, name: &str, now_s: f64) -> Result<()> {
    let due = tx
        .conn
        .prepare_cached("SELECT 1 FROM lines WHERE name=?1 AND look_at<=?2")?
        .exists(params![name, now_s])?;
    if due {
        look_at(tx, name, now_s)?;
    }
    Ok(())
}

/// Looks at the lines whose time has come, or cannot have been set by this clock.
pub(super) fn look_at_all(tx: &SqliteTransaction<'_>, now_s: f64) -> Result<()> {
    let due: Vec<String> = tx
        .conn
        .prepare_cached(
            "SELECT name FROM lines WHERE look_at<=?1 OR look_at>?1+?2 ORDER BY look_at LIMIT ?3",
        )?
        .query_map(params![now_s, LOOK_S, LOOKS_MAX as i64], |row| row.get(0))?
        .collect::<Result<_>>()?;
    due.iter().try_for_each(|name| {
        usage::set_back(tx, name, now_s)?;
        look_at(tx, name, now_s)
    })
}

/// Calls the first jobs of a line, as far as there are slots, or gives them their times.
pub(super) fn look_at(tx: &SqliteTransaction<'_>, name: &str, now_s: f64) -> Result<()> {
    let size: Option<(u32, f64)> = tx
        .conn
        .prepare_cached("SELECT max, span FROM lines WHERE name=?1")?
        .query_row([name], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let (Some((max, span_s)), Some((kind, key))) = (size, name.split_once(':')) else {
        return Ok(());
    };
    let behind = Limit { key: key.into(), rule: LimitRule::of(kind, max, span_s) };
    let look_at = match behind.rule {
        LimitRule::Concurrent { max, .. } => call(tx, name, (key, max), now_s)?,
        _ => promise(tx, name, &behind, now_s)?,
    };
    tx.conn
        .prepare_cached("UPDATE lines SET look_at=?2 WHERE name=?1")?
        .execute(params![name, look_at])?;
    remove_if_empty(tx, name)
}

/// The first jobs of a line.
const FIRST: &str =
    "SELECT jid, entry, at, queue FROM line_jobs WHERE name=?1 ORDER BY place, jid LIMIT ?2";

impl Waiting {
    fn read(row: &rusqlite::Row<'_>) -> Result<Self> {
        Ok(Self { jid: row.get(0)?, entry: row.get(1)?, at: row.get(2)?, queue: row.get(3)? })
    }
}

fn call(
    tx: &SqliteTransaction<'_>,
    name: &str,
    (key, max): (&str, u32),
    now_s: f64,
) -> Result<f64> {
    let (held, mut next) = usage::held(tx, key, now_s)?;
    let mut free = (max as usize).saturating_sub(held);
    let (mut jobs, mut read) = (vec![], 0);
    while free > 0 && jobs.len() < CALL_MAX && read < READ_MAX {
        let waiting: Vec<Waiting> = tx
            .conn
            .prepare_cached(FIRST)?
            .query_map(params![name, free.min(CALL_MAX - jobs.len()) as i64], Waiting::read)?
            .collect::<Result<_>>()?;
        if waiting.is_empty() {
            break;
        }
        read += waiting.len();
        for one in waiting {
            leave(tx, name, &one.jid)?;
            let Some(payload) = take(tx, &one)? else { continue };
            // One whose queue is paused waits there, and holds nothing up.
            if !is_paused(tx, &one.queue)? {
                usage::hold(tx, key, &called(&one.jid), now_s + CALLED_S)?;
                next = Some(next.unwrap_or(f64::MAX).min(now_s + CALLED_S));
                free -= 1;
            }
            jobs.push((one.queue, payload));
        }
    }
    for (queue, payload) in jobs.iter().rev() {
        rows::prepend(tx, queue, payload)?;
    }
    Ok(next.filter(|_| free == 0).unwrap_or(now_s).min(now_s + LOOK_S))
}

/// Takes the job's entry out of the schedule, if it is still there.
fn take(tx: &SqliteTransaction<'_>, one: &Waiting) -> Result<Option<Vec<u8>>> {
    tx.conn
        .prepare_cached("DELETE FROM entries WHERE id=?1 AND kind=0 AND at=?2 RETURNING payload")?
        .query_row(params![one.entry, one.at], |row| row.get(0))
        .optional()
}

fn is_paused(tx: &SqliteTransaction<'_>, queue: &str) -> Result<bool> {
    tx.conn
        .prepare_cached("SELECT EXISTS(SELECT 1 FROM queues WHERE name=?1 AND paused)")?
        .query_row([queue], |row| row.get(0))
}

fn promise(tx: &SqliteTransaction<'_>, name: &str, behind: &Limit, now_s: f64) -> Result<f64> {
    let taken = usage::taken(tx, behind, now_s)?;
    let mut exists = tx
        .conn
        .prepare_cached("SELECT EXISTS(SELECT 1 FROM entries WHERE id=?1 AND kind=0 AND at=?2)")?;
    let mut select = tx.conn.prepare_cached(FIRST)?;
    let mut first = vec![];
    let waiting = select.query_map(params![name, READ_MAX as i64], Waiting::read)?.map(|one| {
        let one = one?;
        let is_there = exists.query_row(params![one.entry, one.at], |row| row.get(0))?;
        first.push(one);
        Ok::<_, rusqlite::Error>((first[first.len() - 1].at, is_there))
    });
    let (promises, look_at) = promises(waiting, behind.rule, &taken, now_s)?;
    for (one, promise) in first.iter().zip(promises) {
        match promise {
            Promise::Leave => {
                leave(tx, name, &one.jid)?;
            }
            Promise::At(at) => {
                tx.notify();
                tx.conn
                    .prepare_cached("UPDATE entries SET at=?1 WHERE id=?2")?
                    .execute(params![at, one.entry])?;
                tx.conn
                    .prepare_cached("UPDATE line_jobs SET at=?1 WHERE name=?2 AND jid=?3")?
                    .execute(params![at, name, one.jid])?;
            }
            _ => {}
        }
    }
    Ok(look_at)
}
