//! Due jobs, and single jobs that people remove, requeue or kill.

use rusqlite::{params, Result};

use super::transaction::SqliteTransaction;
use super::{batches, limits, processes, rows};
use crate::document::stamped;
use crate::outcome::{BatchEvent, BatchUpdate};
use crate::store::options::StoreOptions;
use crate::store::payload::JobResources;
use crate::store::types::{ClaimedJob, DueSummary, JobEntry, JobLocation};

/// Takes due entries out of both sets, earliest first, and passes each to
/// `accept`; those that are no job with a queue go to the dead set.
fn take_due(
    tx: &SqliteTransaction<'_>,
    now_s: f64,
    max: usize,
    options: &StoreOptions,
    mut accept: impl FnMut(JobEntry, (String, Vec<u8>)) -> Result<()>,
) -> Result<DueSummary> {
    let mut select = tx.conn.prepare_cached(
        "SELECT id, at, payload FROM entries WHERE kind=?1 AND at<=?2 ORDER BY at, id LIMIT ?3",
    )?;
    let mut entries = Vec::new();
    for kind in [1, 0] {
        let found = select.query_map(params![kind, now_s, max as i64], read_entry)?;
        entries.extend(found.collect::<Result<Vec<_>>>()?);
    }
    entries.sort_by(|a, b| a.score.total_cmp(&b.score));
    entries.truncate(max);
    let mut due = DueSummary { moved: entries.len(), ..DueSummary::default() };
    for entry in entries {
        tx.conn.prepare_cached("DELETE FROM entries WHERE id=?1")?.execute([entry.row])?;
        due.lag_max_s = due.lag_max_s.max(now_s - entry.score);
        match stamped(&entry.payload, now_s, options.format, false) {
            Some(enqueued) => accept(entry, enqueued)?,
            None => rows::add_to_set(tx, &JobLocation::Dead, now_s, &entry.payload)?,
        }
    }
    rows::trim_dead(tx, options)?;
    due.next_at = rows::next_at(tx.conn)?;
    Ok(due)
}

/// An entry from the columns row, score and document.
pub(super) fn read_entry(row: &rusqlite::Row<'_>) -> Result<JobEntry> {
    Ok(JobEntry { row: row.get(0)?, score: row.get(1)?, payload: row.get(2)? })
}

pub(super) fn move_due(
    tx: &SqliteTransaction<'_>,
    now_s: f64,
    max: usize,
    options: &StoreOptions,
) -> Result<DueSummary> {
    take_due(tx, now_s, max, options, |_, (queue, payload)| rows::append(tx, &queue, &payload))
}

pub(super) fn claim_due(
    tx: &SqliteTransaction<'_>,
    owner: &str,
    first_ticket: u64,
    now_s: f64,
    max: usize,
    options: &StoreOptions,
) -> Result<(Vec<ClaimedJob>, DueSummary)> {
    let mut jobs: Vec<ClaimedJob> = Vec::new();
    let due = take_due(tx, now_s, max, options, |entry, _| {
        let ticket = first_ticket + jobs.len() as u64;
        let row = rows::in_flight_row(processes::id_of(tx, owner)?, ticket);
        rows::insert_in_flight(tx, row, rows::NO_QUEUE, &entry.payload)?;
        jobs.push(ClaimedJob { ticket, queue: "".into(), payload: entry.payload });
        Ok(())
    })?;
    Ok((jobs, due))
}

/// Takes one entry out of its queue or set; `false` when it is gone.
fn take(tx: &SqliteTransaction<'_>, from: &JobLocation, entry: &JobEntry) -> Result<bool> {
    let taken = match rows::set_kind(from) {
        None => tx
            .conn
            .prepare_cached("DELETE FROM waiting WHERE id=?1 AND payload=?2")?
            .execute(params![entry.row, entry.payload])?,
        kind => tx
            .conn
            .prepare_cached("DELETE FROM entries WHERE id=?1 AND kind=?2 AND payload=?3")?
            .execute(params![entry.row, kind, entry.payload])?,
    };
    if taken > 0 && matches!(from, JobLocation::Queue(_)) {
        rows::note_hole(tx, entry.row)?;
    }
    Ok(taken > 0)
}

pub(super) fn remove(
    tx: &SqliteTransaction<'_>,
    from: &JobLocation,
    entry: &JobEntry,
) -> Result<bool> {
    let taken = take(tx, from, entry)?;
    if taken {
        release(tx, &entry.payload)?;
    }
    Ok(taken)
}

/// Moves an entry with its new document to the back of a queue.
pub(super) fn enqueue_entry(
    tx: &SqliteTransaction<'_>,
    from: &JobLocation,
    entry: &JobEntry,
    (queue, payload): (&str, &[u8]),
) -> Result<bool> {
    let taken = take(tx, from, entry)?;
    if taken {
        rows::append(tx, queue, payload)?;
    }
    Ok(taken)
}

pub(super) fn kill(
    tx: &SqliteTransaction<'_>,
    from: &JobLocation,
    entry: &JobEntry,
    now_s: f64,
    options: &StoreOptions,
) -> Result<bool> {
    let taken = take(tx, from, entry)?;
    if taken {
        rows::add_to_set(tx, &JobLocation::Dead, now_s, &entry.payload)?;
        release(tx, &entry.payload)?;
        rows::trim_dead(tx, options)?;
    }
    Ok(taken)
}

/// Gives an entry of a set another time.
pub(super) fn reschedule(
    tx: &SqliteTransaction<'_>,
    from: &JobLocation,
    entry: &JobEntry,
    at: f64,
) -> Result<bool> {
    tx.notify();
    let changed = tx
        .conn
        .prepare_cached("UPDATE entries SET at=?1 WHERE id=?2 AND kind=?3 AND payload=?4")?
        .execute(params![at, entry.row, rows::set_kind(from), entry.payload])?;
    Ok(changed > 0)
}

/// Removes up to `max` entries.
pub(super) fn clear(tx: &SqliteTransaction<'_>, from: &JobLocation, max: usize) -> Result<usize> {
    let removed: Vec<Vec<u8>> = match from {
        JobLocation::Queue(name) => {
            let Some(queue) = rows::known_queue_id(tx.conn, name)? else { return Ok(0) };
            let (first, last) = rows::queue_rows(queue);
            tx.conn
                .prepare_cached(
                    "DELETE FROM waiting WHERE id IN (SELECT id FROM waiting
                     WHERE id BETWEEN ?1 AND ?2 ORDER BY id LIMIT ?3) RETURNING payload",
                )?
                .query_map(params![first, last, max as i64], |row| row.get(0))?
                .collect::<Result<_>>()?
        }
        set => tx
            .conn
            .prepare_cached(
                "DELETE FROM entries WHERE id IN (SELECT id FROM entries WHERE kind=?1
                 ORDER BY at, id LIMIT ?2) RETURNING payload",
            )?
            .query_map(params![rows::set_kind(set), max as i64], |row| row.get(0))?
            .collect::<Result<_>>()?,
    };
    removed.iter().try_for_each(|payload| release(tx, payload))?;
    Ok(removed.len())
}

/// Releases the lock of a removed job and counts it as dead in its batch.
fn release(tx: &SqliteTransaction<'_>, payload: &[u8]) -> Result<()> {
    let JobResources { jid, lock, bid } = JobResources::of(payload);
    if let Some(lock) = lock {
        limits::unlock(tx, &lock, &jid)?;
    }
    let Some(bid) = bid else { return Ok(()) };
    batches::update(tx, &BatchUpdate { bid, jid, event: BatchEvent::Died })
}
