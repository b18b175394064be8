//! The rows of jobs: in queues, in flight and in sets. The rowid of a job in a
//! queue holds queue, priority and position, that of a job in flight owner and ticket.

use rusqlite::{params, Connection, OptionalExtension, Result};

use super::transaction::SqliteTransaction;
use crate::store::options::StoreOptions;
use crate::store::payload::{priority_of, PRIORITY_MAX};
use crate::store::types::JobLocation;

/// Rowids of one owner's in-flight set, and half of those of a queue. Leaves
/// room for a million owners, half a million queues and 8 × 10¹² jobs in each.
const SPAN: i64 = 1 << 43;
/// The queue id of a job that was claimed from the schedule or the retry set.
pub(super) const NO_QUEUE: i64 = 0;

/// Rowids of one priority other than 0: room for 10¹⁰ jobs until it is empty once.
const BAND: i64 = 1 << 34;
/// Rowids of all priorities on one side of 0.
const SIDE: i64 = (PRIORITY_MAX as i64 + 1) * BAND;

/// First and last rowid of a queue. Smaller priorities come first, so that the order of rowids is the order of claims.
pub(super) fn queue_rows(queue: i64) -> (i64, i64) {
    (queue * 2 * SPAN, (queue + 1) * 2 * SPAN - 1)
}

/// The rowids of the jobs of one priority of a queue. Positions grow from the start both ways.
#[derive(Clone, Copy)]
struct Band {
    first: i64,
    start: i64,
    last: i64,
}

impl Band {
    fn of(queue: i64, priority: i16) -> Self {
        let (first, last) = queue_rows(queue);
        let (first, last) = match i64::from(priority) {
            0 => return Self { first: first + SIDE, start: first + SPAN, last: last - SIDE },
            before @ ..0 => (first + SIDE + before * BAND, first + SIDE + (before + 1) * BAND - 1),
            after => (last - SIDE + 1 + (after - 1) * BAND, last - SIDE + after * BAND),
        };
        Self { first, start: first + BAND / 4, last }
    }

    /// The one that a rowid belongs to.
    fn at(row: i64) -> Self {
        let (queue, place) = (row / (2 * SPAN), row % (2 * SPAN));
        let priority = match place {
            before if before < SIDE => before / BAND - SIDE / BAND,
            after if after >= 2 * SPAN - SIDE => (after - 2 * SPAN + SIDE) / BAND + 1,
            _ => 0,
        };
        Self::of(queue, priority as i16)
    }
}

/// First and last rowid of an owner's in-flight set.
pub(super) fn in_flight_rows(owner: i64) -> (i64, i64) {
    (owner * SPAN, (owner + 1) * SPAN - 1)
}

/// The rowid of a job in flight.
pub(super) fn in_flight_row(owner: i64, ticket: u64) -> i64 {
    owner * SPAN + (ticket as i64 & (SPAN - 1))
}

/// The ticket of a job in flight.
pub(super) fn ticket_of(row: i64) -> u64 {
    (row % SPAN) as u64
}

/// The id of a queue, made on first use.
pub(super) fn queue_id(tx: &SqliteTransaction<'_>, name: &str) -> Result<i64> {
    if let Some(id) = known_queue_id(tx.conn, name)? {
        return Ok(id);
    }
    tx.conn.prepare_cached("INSERT INTO queues(name) VALUES(?1)")?.execute([name])?;
    Ok(tx.conn.last_insert_rowid())
}

/// The id of a queue that was ever used.
pub(super) fn known_queue_id(conn: &Connection, name: &str) -> Result<Option<i64>> {
    conn.prepare_cached("SELECT id FROM queues WHERE name=?1")?
        .query_row([name], |row| row.get(0))
        .optional()
}

/// Whether a queue holds a job.
pub(super) fn holds_any(conn: &Connection, queue: i64) -> Result<bool> {
    conn.prepare_cached("SELECT EXISTS(SELECT 1 FROM waiting WHERE id BETWEEN ?1 AND ?2)")?
        .query_row(queue_rows(queue), |row| row.get(0))
}

/// The first and the last row of jobs between two rows; `None`: there are none.
fn ends(conn: &Connection, rows: (i64, i64)) -> Result<Option<(i64, i64)>> {
    let ends: (Option<i64>, Option<i64>) = conn
        .prepare_cached(
            "SELECT (SELECT min(id) FROM waiting WHERE id BETWEEN ?1 AND ?2),
             (SELECT max(id) FROM waiting WHERE id BETWEEN ?1 AND ?2)",
        )?
        .query_row(rows, |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(ends.0.zip(ends.1))
}

/// How many jobs a queue holds, without looking at each: the rows of a priority follow each other, but for the holes.
pub(super) fn size(conn: &Connection, queue: i64) -> Result<i64> {
    let (mut next, end) = queue_rows(queue);
    let mut size = 0;
    while let Some((first, _)) = ends(conn, (next, end))? {
        let band = Band::at(first);
        let last = ends(conn, (first, band.last))?.map_or(first, |(_, last)| last);
        let holes: i64 = conn
            .prepare_cached("SELECT count(*) FROM holes WHERE id BETWEEN ?1 AND ?2")?
            .query_row([first, last], |row| row.get(0))?;
        size += last - first + 1 - holes;
        next = band.last + 1;
    }
    Ok(size)
}

/// Notes that a person has removed the job of this row. Holes that are not between jobs any more are forgotten: their
/// rows are used again. [`back`] and [`prepend`] forget those that claims have left behind.
pub(super) fn note_hole(tx: &SqliteTransaction<'_>, row: i64) -> Result<()> {
    tx.conn.prepare_cached("INSERT OR IGNORE INTO holes(id) VALUES(?1)")?.execute([row])?;
    let Band { first, last, .. } = Band::at(row);
    let Some((min, max)) = ends(tx.conn, (first, last))? else {
        return forget_holes(tx, first, last);
    };
    forget_holes(tx, first, min)?;
    forget_holes(tx, max, last)
}

fn forget_holes(tx: &SqliteTransaction<'_>, first: i64, last: i64) -> Result<()> {
    tx.conn
        .prepare_cached("DELETE FROM holes WHERE id BETWEEN ?1 AND ?2")?
        .execute([first, last])
        .map(|_| ())
}

/// Adds a job at the back of a queue.
pub(super) fn append(tx: &SqliteTransaction<'_>, queue: &str, payload: &[u8]) -> Result<()> {
    let row = back(tx, queue_id(tx, queue)?, priority_of(payload))?;
    insert(tx, row, payload)
}

/// Adds a job at the front of a queue.
pub(super) fn prepend(tx: &SqliteTransaction<'_>, queue: &str, payload: &[u8]) -> Result<()> {
    let Band { first, start, last } = Band::of(queue_id(tx, queue)?, priority_of(payload));
    let min: Option<i64> = tx
        .conn
        .prepare_cached("SELECT min(id) FROM waiting WHERE id BETWEEN ?1 AND ?2")?
        .query_row([first, last], |row| row.get(0))?;
    forget_holes(tx, first, min.map_or(last, |min| min - 1))?;
    insert(tx, min.map_or(start, |min| min - 1), payload)
}

/// The next row at the back of the jobs with this priority.
pub(super) fn back(tx: &SqliteTransaction<'_>, queue: i64, priority: i16) -> Result<i64> {
    let Band { first, start, last } = Band::of(queue, priority);
    let max: Option<i64> = tx
        .conn
        .prepare_cached("SELECT max(id) FROM waiting WHERE id BETWEEN ?1 AND ?2")?
        .query_row([first, last], |row| row.get(0))?;
    if max.is_none() {
        forget_holes(tx, first, last)?;
    }
    Ok(max.map_or(start, |max| max + 1))
}

/// Adds a job to its queue as this row.
pub(super) fn insert(tx: &SqliteTransaction<'_>, row: i64, payload: &[u8]) -> Result<()> {
    tx.notify();
    tx.conn
        .prepare_cached("INSERT INTO waiting(id, payload) VALUES(?1, ?2)")?
        .execute(params![row, payload])
        .map(|_| ())
}

/// Adds a job to an in-flight set.
pub(super) fn insert_in_flight(
    tx: &SqliteTransaction<'_>,
    row: i64,
    queue: i64,
    payload: &[u8],
) -> Result<()> {
    tx.conn
        .prepare_cached("INSERT INTO flights(id, queue, payload) VALUES(?1, ?2, ?3)")?
        .execute(params![row, queue, payload])
        .map(|_| ())
}

/// The number of a set in the table of entries; `None` for a queue.
pub(super) fn set_kind(location: &JobLocation) -> Option<i64> {
    match location {
        JobLocation::Queue(_) => None,
        JobLocation::Scheduled => Some(0),
        JobLocation::Retry => Some(1),
        JobLocation::Dead => Some(2),
    }
}

/// Adds a job to a set.
pub(super) fn add_to_set(
    tx: &SqliteTransaction<'_>,
    set: &JobLocation,
    at: f64,
    payload: &[u8],
) -> Result<()> {
    match set {
        JobLocation::Dead => tx.dead_added(at),
        _ => tx.notify(),
    }
    tx.conn
        .prepare_cached("INSERT INTO entries(kind, at, payload) VALUES(?1, ?2, ?3)")?
        .execute(params![set_kind(set), at, payload])
        .map(|_| ())
}

/// Trims the dead set, once for all that an operation added.
pub(super) fn trim_dead(tx: &SqliteTransaction<'_>, options: &StoreOptions) -> Result<()> {
    let Some(at) = tx.take_dead_added_at() else { return Ok(()) };
    tx.conn
        .prepare_cached("DELETE FROM entries WHERE kind=2 AND at<?1")?
        .execute([at - options.dead_age.as_secs_f64()])?;
    tx.conn
        .prepare_cached(
            "DELETE FROM entries WHERE id IN (SELECT id FROM entries WHERE kind=2
             ORDER BY at DESC, id DESC LIMIT -1 OFFSET ?1)",
        )?
        .execute([options.dead_max as i64])
        .map(|_| ())
}

/// When the next job of the schedule or the retry set is due.
pub(super) fn next_at(conn: &Connection) -> Result<Option<f64>> {
    let mut select = conn.prepare_cached("SELECT min(at) FROM entries WHERE kind=?1")?;
    let times = [0, 1].map(|kind| select.query_row([kind], |row| row.get::<_, Option<f64>>(0)));
    let times = times.into_iter().collect::<Result<Vec<_>>>()?;
    Ok(times.into_iter().flatten().min_by(f64::total_cmp))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rows_of_priorities_follow_each_other() {
        for queue in [1, 7, 400_000] {
            let (mut next, end) = queue_rows(queue);
            for priority in -PRIORITY_MAX - 1..=PRIORITY_MAX + 1 {
                let band = Band::of(queue, priority);
                assert_eq!(band.first, next, "{priority}");
                for row in [band.first, band.start, band.last] {
                    let same = Band::at(row);
                    let ends = (band.first, band.start, band.last);
                    assert_eq!((same.first, same.start, same.last), ends);
                }
                next = band.last + 1;
            }
            assert_eq!(next, end + 1);
            // As before there were priorities.
            assert_eq!(Band::of(queue, 0).start, queue_rows(queue).0 + SPAN);
        }
    }
}
