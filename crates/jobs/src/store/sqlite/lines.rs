//! The tables of limits and of the lines of jobs behind them.

use rusqlite::{params, OptionalExtension, Result};

use super::rows;
use super::transaction::SqliteTransaction;
use crate::outcome::Wait;
use crate::store::limiter::{LimitTables, Waiting};
use crate::store::line::*;
use crate::store::types::JobLocation;

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

fn remove_if_empty(tx: &SqliteTransaction<'_>, line: &str) -> Result<()> {
    tx.conn
        .prepare_cached(
            "DELETE FROM lines WHERE name=?1
             AND NOT EXISTS(SELECT 1 FROM line_jobs WHERE name=?1)",
        )?
        .execute([line])
        .map(|_| ())
}

impl LimitTables for &SqliteTransaction<'_> {
    type Error = rusqlite::Error;
    type Taken = Vec<u8>;

    fn held(&mut self, key: &str, now_s: f64) -> Result<(usize, Option<f64>)> {
        self.conn
            .prepare_cached("DELETE FROM slots WHERE key=?1 AND until<=?2")?
            .execute(params![key, now_s])?;
        self.conn
            .prepare_cached("SELECT count(*), min(until) FROM slots WHERE key=?1")?
            .query_row([key], |row| Ok((row.get::<_, i64>(0)? as usize, row.get(1)?)))
    }

    fn holds(&mut self, key: &str, [one, other]: [&str; 2]) -> Result<bool> {
        self.conn
            .prepare_cached("SELECT 1 FROM slots WHERE key=?1 AND holder IN (?2, ?3)")?
            .exists([key, one, other])
    }

    fn hold(&mut self, key: &str, holder: &str, until_s: f64) -> Result<()> {
        self.conn
            .prepare_cached("INSERT OR REPLACE INTO slots(key, holder, until) VALUES(?1, ?2, ?3)")?
            .execute(params![key, holder, until_s])
            .map(|_| ())
    }

    fn release(&mut self, key: &str, holder: &str) -> Result<()> {
        self.conn
            .prepare_cached("DELETE FROM slots WHERE key=?1 AND holder=?2")?
            .execute([key, holder])
            .map(|_| ())
    }

    fn starts(&mut self, key: &str, since_s: f64, max: u32) -> Result<(usize, Vec<f64>)> {
        self.conn
            .prepare_cached("DELETE FROM starts WHERE key=?1 AND at<=?2")?
            .execute(params![key, since_s])?;
        let used: i64 = self
            .conn
            .prepare_cached("SELECT count(*) FROM starts WHERE key=?1")?
            .query_row([key], |row| row.get(0))?;
        let over = (used - i64::from(max)).max(0);
        let leaving = self
            .conn
            .prepare_cached("SELECT at FROM starts WHERE key=?1 ORDER BY at LIMIT ?2 OFFSET ?3")?
            .query_map(params![key, CALL_MAX as i64, over], |row| row.get(0))?
            .collect::<Result<_>>()?;
        Ok((used as usize, leaving))
    }

    fn start(&mut self, key: &str, at_s: f64, holder: &str, until_s: f64) -> Result<()> {
        self.conn
            .prepare_cached(
                "INSERT OR REPLACE INTO starts(key, at, holder, until) VALUES(?1, ?2, ?3, ?4)",
            )?
            .execute(params![key, at_s, holder, until_s])
            .map(|_| ())
    }

    fn bucket(&mut self, key: &str) -> Result<Option<(f64, f64)>> {
        self.conn
            .prepare_cached("SELECT level, at FROM buckets WHERE key=?1")?
            .query_row([key], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()
    }

    fn fill(&mut self, key: &str, level: f64, at_s: f64, until_s: f64) -> Result<()> {
        self.conn
            .prepare_cached(
                "INSERT OR REPLACE INTO buckets(key, level, at, until) VALUES(?1, ?2, ?3, ?4)",
            )?
            .execute(params![key, level, at_s, until_s])
            .map(|_| ())
    }

    fn set_back(&mut self, table: &str, key: &str, now_s: f64) -> Result<()> {
        self.conn
            .prepare_cached(&format!("UPDATE {table} SET at=?2 WHERE key=?1 AND at>?2+?3"))?
            .execute(params![key, now_s, SKEW_S])
            .map(|_| ())
    }

    fn leave(&mut self, line: &str, jid: &str) -> Result<bool> {
        let left = self
            .conn
            .prepare_cached("DELETE FROM line_jobs WHERE name=?1 AND jid=?2")?
            .execute([line, jid])?;
        if left > 0 {
            remove_if_empty(self, line)?;
        }
        Ok(left > 0)
    }

    fn ahead(&mut self, line: &str, place: f64, max: u32) -> Result<usize> {
        self.conn
            .prepare_cached(
                "SELECT count(*) FROM (SELECT 1 FROM line_jobs WHERE name=?1 AND place<?2 LIMIT ?3)",
            )?
            .query_row(params![line, place, max], |row| Ok(row.get::<_, i64>(0)? as usize))
    }

    fn is_due(&mut self, line: &str, now_s: f64) -> Result<bool> {
        self.conn
            .prepare_cached("SELECT 1 FROM lines WHERE name=?1 AND look_at<=?2")?
            .exists(params![line, now_s])
    }

    fn due(&mut self, now_s: f64) -> Result<Vec<String>> {
        self.conn
            .prepare_cached(
                "SELECT name FROM lines WHERE look_at<=?1 OR look_at>?1+?2 ORDER BY look_at LIMIT ?3",
            )?
            .query_map(params![now_s, LOOK_S, LOOKS_MAX as i64], |row| row.get(0))?
            .collect()
    }

    fn size(&mut self, line: &str) -> Result<Option<(u32, f64)>> {
        self.conn
            .prepare_cached("SELECT max, span FROM lines WHERE name=?1")?
            .query_row([line], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()
    }

    fn look_next(&mut self, line: &str, at_s: f64) -> Result<()> {
        self.conn
            .prepare_cached("UPDATE lines SET look_at=?2 WHERE name=?1")?
            .execute(params![line, at_s])?;
        remove_if_empty(self, line)
    }

    fn first(&mut self, line: &str, count: usize) -> Result<Vec<Waiting>> {
        self.conn
            .prepare_cached(
                "SELECT jid, entry, at, queue,
                 EXISTS(SELECT 1 FROM entries e WHERE e.id=entry AND e.kind=0 AND e.at=l.at)
                 FROM line_jobs l WHERE name=?1 ORDER BY place, jid LIMIT ?2",
            )?
            .query_map(params![line, count as i64], |row| {
                let (jid, entry, at) = (row.get(0)?, row.get(1)?, row.get(2)?);
                Ok(Waiting { jid, entry, at, queue: row.get(3)?, is_there: row.get(4)? })
            })?
            .collect()
    }

    fn take(&mut self, one: &Waiting) -> Result<Option<(Vec<u8>, bool)>> {
        self.conn
            .prepare_cached(
                "DELETE FROM entries WHERE id=?1 AND kind=0 AND at=?2
                 RETURNING payload, EXISTS(SELECT 1 FROM queues WHERE name=?3 AND paused)",
            )?
            .query_row(params![one.entry, one.at, one.queue], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()
    }

    fn prepend(&mut self, one: &Waiting, payload: Vec<u8>) -> Result<()> {
        rows::prepend(self, &one.queue, &payload)
    }

    fn promise(&mut self, line: &str, one: &Waiting, at_s: f64) -> Result<()> {
        self.notify();
        self.conn
            .prepare_cached("UPDATE entries SET at=?1 WHERE id=?2")?
            .execute(params![at_s, one.entry])?;
        self.conn
            .prepare_cached("UPDATE line_jobs SET at=?1 WHERE name=?2 AND jid=?3")?
            .execute(params![at_s, line, one.jid])
            .map(|_| ())
    }
}
