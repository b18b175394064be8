//! Reads for people; pauses, cancels, hashes of iterable jobs and cron ticks; the removal of expired rows.

use super::connection::{args, Call, NOW};
use super::errors::Result;
use super::jobs::{push, read_entry};
use super::rows::place;
use super::{batches, owners};
use crate::document::enqueued_at;
use crate::store::payload::has_jid;
use crate::store::types::*;

pub(super) fn stats(call: &mut Call<'_>, lease_s: f64) -> Result<Stats> {
    let row = call.one(
        "SELECT ARRAY[
         (SELECT coalesce(sum(value), 0)::bigint FROM chaton.counters WHERE name='processed'),
         (SELECT coalesce(sum(value), 0)::bigint FROM chaton.counters WHERE name='failed'),
         (SELECT count(*) FROM chaton.jobs WHERE place=0), (SELECT count(*) FROM chaton.jobs WHERE place>=2 AND place=2),
         (SELECT count(*) FROM chaton.jobs WHERE place>=2 AND place=3),
         (SELECT count(*) FROM chaton.jobs WHERE place>=2 AND place=4),
         (SELECT count(*) FROM chaton.jobs WHERE place=1)]",
        &[],
    )?;
    let counts: Vec<i64> = row.map_or_else(|| vec![0; 7], |row| row.get(0));
    let [processed, failed, enqueued, scheduled, retries, dead, in_flight] =
        std::array::from_fn(|index| counts[index] as u64);
    let processes = owners::processes(call, lease_s)?.len() as u64;
    Ok(Stats { processed, failed, enqueued, scheduled, retries, dead, in_flight, processes })
}

pub(super) fn queues(call: &mut Call<'_>, now_s: f64) -> Result<Vec<QueueStatus>> {
    let rows = call.rows(
        "SELECT k.name, k.paused, coalesce(n.size, 0), (SELECT payload FROM chaton.jobs w WHERE w.place=0
             AND w.queue=k.name ORDER BY priority, id LIMIT 1)
         FROM chaton.queues k LEFT JOIN (SELECT queue, count(*) AS size FROM chaton.jobs WHERE place=0 GROUP BY queue) n
         ON n.queue=k.name ORDER BY k.name",
        &[],
    )?;
    let seen = |row: &tokio_postgres::Row| {
        let next: Option<&[u8]> = row.get(3);
        let latency_s = next.and_then(enqueued_at).map_or(0.0, |at| (now_s - at).max(0.0));
        QueueStatus {
            name: row.get(0),
            size: row.get::<_, i64>(2) as u64,
            latency_s,
            paused: row.get(1),
        }
    };
    Ok(rows.iter().map(seen).collect())
}

pub(super) fn list(
    call: &mut Call<'_>,
    from: &JobLocation,
    offset: usize,
    count: usize,
) -> Result<Vec<JobEntry>> {
    let bound = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
    let (offset, count) = (bound(offset), bound(count));
    let rows = match from {
        JobLocation::Queue(name) => call.rows(
            "SELECT id, NULL::float8, payload FROM chaton.jobs WHERE place=0 AND queue=$1
             ORDER BY priority, id LIMIT $2 OFFSET $3",
            args![name.as_str(), count, offset],
        )?,
        set => {
            let order = if *set == JobLocation::Dead { "DESC" } else { "ASC" };
            call.rows(
                &format!(
                    "SELECT id, at, payload FROM chaton.jobs WHERE place>=2 AND place=$1
                     ORDER BY at {order}, id {order} LIMIT $2 OFFSET $3"
                ),
                args![place(set), count, offset],
            )?
        }
    };
    Ok(rows.iter().map(read_entry).collect())
}

/// Finds a job by its jid.
pub(super) fn find(call: &mut Call<'_>, jid: &str) -> Result<Option<(JobLocation, JobEntry)>> {
    if jid.is_empty() {
        return Ok(None);
    }
    let rows = call.rows(
        "SELECT id, at, payload, place, queue FROM chaton.jobs WHERE place<>1 AND position($1 IN payload)>0
         ORDER BY CASE place WHEN 3 THEN 1 WHEN 2 THEN 2 WHEN 4 THEN 3 ELSE 4 END, id",
        args![jid.as_bytes()],
    )?;
    let found = rows.iter().find(|row| has_jid(row.get(2), jid));
    Ok(found.map(|row| {
        let location = match row.get::<_, i16>(3) {
            0 => JobLocation::Queue(row.get(4)),
            2 => JobLocation::Scheduled,
            3 => JobLocation::Retry,
            _ => JobLocation::Dead,
        };
        (location, read_entry(row))
    }))
}

pub(super) fn pause(call: &mut Call<'_>, queue: &str, paused: bool) -> Result<()> {
    call.tell("");
    call.exec(
        "INSERT INTO chaton.queues(name, paused) VALUES($1, $2) ON CONFLICT (name) DO UPDATE SET paused=$2",
        args![queue, paused],
    )
}

pub(super) fn cancel(call: &mut Call<'_>, jid: &str) -> Result<()> {
    call.tell("");
    call.exec(
        &format!(
            "INSERT INTO chaton.cancels(jid, until) VALUES($1, {NOW}+$2)
             ON CONFLICT (jid) DO UPDATE SET until=excluded.until"
        ),
        args![jid, CANCEL_TTL.as_secs_f64()],
    )
}

pub(super) fn cancelled(call: &mut Call<'_>, jids: &[&str]) -> Result<Vec<bool>> {
    let found = call.value(
        &format!(
            "SELECT ARRAY(SELECT EXISTS(SELECT 1 FROM chaton.cancels c WHERE c.jid=u.jid AND c.until>{NOW})
             FROM unnest($1) WITH ORDINALITY u(jid, n) ORDER BY n)"
        ),
        args![jids],
    )?;
    Ok(found.unwrap_or_default())
}

pub(super) fn load(call: &mut Call<'_>, key: &str) -> Result<Vec<(String, Vec<u8>)>> {
    let rows = call.rows(
        &format!(
            "SELECT field, value FROM chaton.hashes WHERE key=$1 AND until>{NOW} ORDER BY field"
        ),
        args![key],
    )?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}

pub(super) fn save(
    call: &mut Call<'_>,
    key: &str,
    fields: &[(&str, &[u8])],
    ttl_s: f64,
) -> Result<()> {
    call.rows(&format!("DELETE FROM chaton.hashes WHERE key=$1 AND until<={NOW}"), args![key])?;
    call.rows(&format!("UPDATE chaton.hashes SET until={NOW}+$2 WHERE key=$1"), args![key, ttl_s])?;
    // One field may be named twice: the last value counts.
    let fields: std::collections::BTreeMap<&str, &[u8]> = fields.iter().copied().collect();
    let (names, values): (Vec<&str>, Vec<&[u8]>) = fields.into_iter().unzip();
    call.exec(
        &format!(
            "INSERT INTO chaton.hashes(key, field, value, until) SELECT $1, u.field, u.value, {NOW}+$4
             FROM unnest($2, $3) AS u(field, value)
             ON CONFLICT (key, field) DO UPDATE SET value=excluded.value, until=excluded.until"
        ),
        args![key, names, values, ttl_s],
    )
}

pub(super) fn push_once(
    call: &mut Call<'_>,
    key: &str,
    ttl_s: f64,
    job: &NewJob<'_>,
) -> Result<bool> {
    let is_first = call.any(
        &format!(
            "INSERT INTO chaton.ticks AS t (key, until) VALUES($1, {NOW}+$2) ON CONFLICT (key) DO UPDATE
             SET until=excluded.until WHERE t.until<={NOW} RETURNING 1"
        ),
        args![key, ttl_s],
    )?;
    Ok(is_first && push(call, std::slice::from_ref(job))? == [PushResult::Stored])
}

/// Removes expired rows, which reads ignore already.
pub(super) fn remove_expired(call: &mut Call<'_>) -> Result<()> {
    for table in ["locks", "slots", "starts", "buckets", "hashes", "ticks", "cancels", "signals"] {
        call.rows(&format!("DELETE FROM chaton.{table} WHERE until<={NOW}"), &[])?;
    }
    batches::forget_expired(call)
}
