//! The tables of limits and of the lines of jobs behind them. Callers have [`super::limits::serialize_limits`].

use tokio_postgres::Row;

use super::connection::{args, Call};
use super::errors::{Failure, Result};
use super::rows::know_queue;
use crate::outcome::Wait;
use crate::store::limiter::{LimitTables, Waiting};
use crate::store::line::*;

/// A job, which is this entry of the schedule, joins the line of a limit that has denied it.
pub(super) fn join(call: &mut Call<'_>, wait: &Wait, entry: i64, queue: &str) -> Result<()> {
    let (name, (max, span_s)) = (wait.behind.line(), wait.behind.rule.size());
    call.rows(
        "INSERT INTO chaton.lines AS l (name, max, span, look_at) VALUES($1, $2, $3, 0)
         ON CONFLICT (name) DO UPDATE SET max=$2, span=$3, look_at=0 WHERE $4 AND (l.max<>$2 OR l.span<>$3)",
        args![name, i64::from(max), span_s, wait.is_new],
    )?;
    call.exec(
        "INSERT INTO chaton.line_jobs(name, jid, place, entry, at, queue) VALUES($1, $2, $3, $4, $5, $6)
         ON CONFLICT (name, jid) DO UPDATE SET place=$3, entry=$4, at=$5, queue=$6",
        args![name, wait.jid, wait.place, entry, wait.at, queue],
    )
}

fn remove_if_empty(call: &mut Call<'_>, line: &str) -> Result<()> {
    call.exec(
        "DELETE FROM chaton.lines WHERE name=$1 AND NOT EXISTS(SELECT 1 FROM chaton.line_jobs WHERE name=$1)",
        args![line],
    )
}

impl LimitTables for Call<'_> {
    type Error = Failure;
    type Taken = ();

    fn held(&mut self, key: &str, now_s: f64) -> Result<(usize, Option<f64>)> {
        let row = self.one(
            "WITH over AS (DELETE FROM chaton.slots WHERE key=$1 AND until<=$2)
             SELECT count(*), min(until) FROM chaton.slots WHERE key=$1 AND until>$2",
            args![key, now_s],
        )?;
        Ok(row.map_or((0, None), |row| (row.get::<_, i64>(0) as usize, row.get(1))))
    }

    fn holds(&mut self, key: &str, holders: [&str; 2]) -> Result<bool> {
        self.any(
            "SELECT 1 FROM chaton.slots WHERE key=$1 AND holder=ANY($2)",
            args![key, &holders[..]],
        )
    }

    fn hold(&mut self, key: &str, holder: &str, until_s: f64) -> Result<()> {
        self.exec(
            "INSERT INTO chaton.slots(key, holder, until) VALUES($1, $2, $3)
             ON CONFLICT (key, holder) DO UPDATE SET until=excluded.until",
            args![key, holder, until_s],
        )
    }

    fn release(&mut self, key: &str, holder: &str) -> Result<()> {
        self.exec("DELETE FROM chaton.slots WHERE key=$1 AND holder=$2", args![key, holder])
    }

    fn starts(&mut self, key: &str, since_s: f64, max: u32) -> Result<(usize, Vec<f64>)> {
        self.rows("DELETE FROM chaton.starts WHERE key=$1 AND at<=$2", args![key, since_s])?;
        let row = self.one(
            "SELECT count(*), ARRAY(SELECT at FROM chaton.starts WHERE key=$1 ORDER BY at LIMIT $3
             OFFSET (SELECT greatest(count(*) - $2, 0) FROM chaton.starts WHERE key=$1))
             FROM chaton.starts WHERE key=$1",
            args![key, i64::from(max), CALL_MAX as i64],
        )?;
        Ok(row.map_or((0, vec![]), |row| (row.get::<_, i64>(0) as usize, row.get(1))))
    }

    fn start(&mut self, key: &str, at_s: f64, holder: &str, until_s: f64) -> Result<()> {
        self.exec(
            "INSERT INTO chaton.starts(key, at, holder, until) VALUES($1, $2, $3, $4)
             ON CONFLICT (key, at, holder) DO UPDATE SET until=excluded.until",
            args![key, at_s, holder, until_s],
        )
    }

    fn bucket(&mut self, key: &str) -> Result<Option<(f64, f64)>> {
        let row = self.one("SELECT level, at FROM chaton.buckets WHERE key=$1", args![key])?;
        Ok(row.map(|row| (row.get(0), row.get(1))))
    }

    fn fill(&mut self, key: &str, level: f64, at_s: f64, until_s: f64) -> Result<()> {
        self.exec(
            "INSERT INTO chaton.buckets(key, level, at, until) VALUES($1, $2, $3, $4)
             ON CONFLICT (key) DO UPDATE SET level=excluded.level, at=excluded.at, until=excluded.until",
            args![key, level, at_s, until_s],
        )
    }

    fn set_back(&mut self, table: &str, key: &str, now_s: f64) -> Result<()> {
        self.exec(
            &format!("UPDATE chaton.{table} SET at=$2 WHERE key=$1 AND at>$2+$3"),
            args![key, now_s, SKEW_S],
        )
    }

    fn leave(&mut self, line: &str, jid: &str) -> Result<bool> {
        let sql = "DELETE FROM chaton.line_jobs WHERE name=$1 AND jid=$2 RETURNING 1";
        let left = self.any(sql, args![line, jid])?;
        if left {
            remove_if_empty(self, line)?;
        }
        Ok(left)
    }

    fn ahead(&mut self, line: &str, place: f64, max: u32) -> Result<usize> {
        let count: Option<i64> = self.value(
            "SELECT count(*) FROM (SELECT 1 FROM chaton.line_jobs WHERE name=$1 AND place<$2 LIMIT $3) jobs",
            args![line, place, i64::from(max)],
        )?;
        Ok(count.unwrap_or(0) as usize)
    }

    fn is_due(&mut self, line: &str, now_s: f64) -> Result<bool> {
        self.any("SELECT 1 FROM chaton.lines WHERE name=$1 AND look_at<=$2", args![line, now_s])
    }

    fn due(&mut self, now_s: f64) -> Result<Vec<String>> {
        let due = self.rows(
            "SELECT name FROM chaton.lines WHERE look_at<=$1 OR look_at>$1+$2 ORDER BY look_at LIMIT $3",
            args![now_s, LOOK_S, LOOKS_MAX as i64],
        )?;
        Ok(due.iter().map(|row| row.get(0)).collect())
    }

    fn size(&mut self, line: &str) -> Result<Option<(u32, f64)>> {
        let row = self.one("SELECT max, span FROM chaton.lines WHERE name=$1", args![line])?;
        let max = |row: &Row| u32::try_from(row.get::<_, i64>(0)).unwrap_or(u32::MAX);
        Ok(row.map(|row| (max(&row), row.get(1))))
    }

    fn look_next(&mut self, line: &str, at_s: f64) -> Result<()> {
        self.rows("UPDATE chaton.lines SET look_at=$2 WHERE name=$1", args![line, at_s])?;
        remove_if_empty(self, line)
    }

    fn first(&mut self, line: &str, count: usize) -> Result<Vec<Waiting>> {
        let rows = self.rows(
            "SELECT l.jid, l.entry, l.at, l.queue,
             EXISTS(SELECT 1 FROM chaton.jobs j WHERE j.id=l.entry AND j.place=2 AND j.at=l.at)
             FROM chaton.line_jobs l WHERE l.name=$1 ORDER BY l.place, l.jid LIMIT $2",
            args![line, count as i64],
        )?;
        let waiting = |row: &Row| Waiting {
            jid: row.get(0),
            entry: row.get(1),
            at: row.get(2),
            queue: row.get(3),
            is_there: row.get(4),
        };
        Ok(rows.iter().map(waiting).collect())
    }

    /// One that is being moved or removed just now is not taken.
    fn take(&mut self, one: &Waiting) -> Result<Option<((), bool)>> {
        let is_paused = self.value(
            "SELECT EXISTS(SELECT 1 FROM chaton.queues WHERE name=$3 AND paused) FROM chaton.jobs
             WHERE id=$1 AND place=2 AND at=$2 FOR UPDATE SKIP LOCKED",
            args![one.entry, one.at, one.queue],
        )?;
        Ok(is_paused.map(|is_paused| ((), is_paused)))
    }

    fn prepend(&mut self, one: &Waiting, (): ()) -> Result<()> {
        know_queue(self, &one.queue)?;
        self.tell(&one.queue);
        self.exec(
            "UPDATE chaton.jobs SET place=0, queue=$2, at=NULL, id=-nextval('chaton.front') WHERE id=$1",
            args![one.entry, one.queue],
        )
    }

    fn promise(&mut self, line: &str, one: &Waiting, at_s: f64) -> Result<()> {
        self.tell("");
        self.exec(
            "WITH entry AS (UPDATE chaton.jobs SET at=$1 WHERE id=$2 AND place=2)
             UPDATE chaton.line_jobs SET at=$1 WHERE name=$3 AND jid=$4",
            args![at_s, one.entry, line, one.jid],
        )
    }
}
