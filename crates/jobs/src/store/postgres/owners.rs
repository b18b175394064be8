//! Owners of jobs in flight, and their leases, by the clock of the server.

use std::collections::HashMap;
use std::time::Duration;

use tokio_postgres::Row;

use super::connection::{args, Call};
use super::jobs::Result;
use super::limits::NOW;
use crate::store::types::*;

/// Age of a heartbeat (s).
const AGE: &str = "greatest(extract(epoch FROM clock_timestamp()-beat_at), 0)::float8";

/// One statement for all that a heartbeat writes and asks. Jobs that run are only written when there are any, or were.
pub(super) fn heartbeat(call: &mut Call<'_>, report: &ProcessReport<'_>) -> Result<HeartbeatReply> {
    let tids: Vec<&str> = report.work.iter().map(|job| &*job.tid).collect();
    let queues: Vec<&str> = report.work.iter().map(|job| &*job.queue).collect();
    let payloads: Vec<&[u8]> = report.work.iter().map(|job| &*job.payload).collect();
    let times: Vec<i64> = report.work.iter().map(|job| job.run_at).collect();
    let row = call.one(
        &format!(
            "WITH before AS (SELECT place FROM chaton.owners WHERE identity=$1),
             beat AS (INSERT INTO chaton.owners(identity, place, info, busy, quiet, rss_kb, reported_at)
                 VALUES($1, $2, $3, $4, $5, $6, $13)
                 ON CONFLICT (identity) DO UPDATE SET place=$2, info=$3, busy=$4, quiet=$5, rss_kb=$6, reported_at=$13,
                 beat_at=clock_timestamp()),
             ended AS (DELETE FROM chaton.work WHERE owner=$1 AND tid<>ALL($7)),
             runs AS (INSERT INTO chaton.work(owner, tid, queue, payload, run_at)
                 SELECT DISTINCT ON (tid) $1, tid, queue, payload, run_at FROM unnest($7, $8, $9, $10)
                 WITH ORDINALITY AS u(tid, queue, payload, run_at, n) ORDER BY tid, n DESC ON CONFLICT (owner, tid) DO UPDATE
                 SET queue=excluded.queue, payload=excluded.payload, run_at=excluded.run_at),
             counted AS (INSERT INTO chaton.counters AS c (name, value)
                 SELECT * FROM (VALUES('failed', $12), ('processed', $11)) n(name, value) WHERE value>0
                 ON CONFLICT (name) DO UPDATE SET value=c.value+excluded.value),
             left_for AS (DELETE FROM chaton.signals WHERE identity=$1 OR until<={NOW} RETURNING id, identity, name, until)
             SELECT (SELECT place FROM before) IS NULL, extract(epoch FROM clock_timestamp())::float8,
             (SELECT count(*) FROM chaton.owners) + (NOT EXISTS(SELECT 1 FROM before))::int,
             ARRAY(SELECT name FROM left_for WHERE identity=$1 AND until>{NOW} ORDER BY id)"
        ),
        args![
            report.identity,
            report.process_key,
            report.info,
            report.busy as i64,
            report.quiet,
            report.rss_kb as i64,
            tids,
            queues,
            payloads,
            times,
            report.processed as i64,
            report.failed as i64,
            report.now_s
        ],
    )?;
    Ok(row.map_or_else(HeartbeatReply::default, |row| HeartbeatReply {
        is_new: row.get(0),
        now_s: row.get(1),
        processes: row.get::<_, i64>(2) as usize,
        silent: 0,
        signals: row.get(3),
    }))
}

/// All owners. Also those that have jobs in flight and were forgotten: one that claimed while another process took it
/// for dead.
pub(super) fn owners(call: &mut Call<'_>) -> Result<Vec<OwnerStatus>> {
    let rows = call.rows(
        &format!(
            "SELECT identity, coalesce(place, ''), {AGE} FROM chaton.owners UNION ALL
             SELECT DISTINCT owner, '', 'infinity'::float8 FROM chaton.jobs j WHERE place=1
             AND NOT EXISTS(SELECT 1 FROM chaton.owners o WHERE o.identity=j.owner) ORDER BY 1"
        ),
        &[],
    )?;
    let status = |row: &Row| OwnerStatus {
        identity: row.get(0),
        process_key: row.get(1),
        heartbeat_age: Duration::try_from_secs_f64(row.get(2)).unwrap_or(Duration::MAX),
        ended: false,
    };
    Ok(rows.iter().map(status).collect())
}

pub(super) fn forget(call: &mut Call<'_>, identity: &str) -> Result<bool> {
    let busy =
        call.any("SELECT 1 FROM chaton.jobs WHERE place=1 AND owner=$1 LIMIT 1", args![identity])?;
    if busy {
        return Ok(false);
    }
    call.rows(
        "WITH work AS (DELETE FROM chaton.work WHERE owner=$1),
         signals AS (DELETE FROM chaton.signals WHERE identity=$1)
         DELETE FROM chaton.owners WHERE identity=$1",
        args![identity],
    )?;
    Ok(true)
}

pub(super) fn signal(call: &mut Call<'_>, identity: &str, name: &str) -> Result<()> {
    call.rows(
        &format!("INSERT INTO chaton.signals(identity, name, until) VALUES($1, $2, {NOW}+$3)"),
        args![identity, name, SIGNAL_TTL.as_secs_f64()],
    )
    .map(drop)
}

/// Owners whose lease has not expired.
pub(super) fn processes(call: &mut Call<'_>, lease_s: f64) -> Result<Vec<ProcessStatus>> {
    let rows = call.rows(
        &format!(
            "SELECT identity, info, busy, quiet, rss_kb, coalesce(reported_at, 0) FROM chaton.owners
             WHERE place IS NOT NULL AND {AGE}<=$1 ORDER BY identity"
        ),
        args![lease_s],
    )?;
    let mut work: HashMap<String, Vec<RunningJob>> = HashMap::new();
    for row in
        call.rows("SELECT owner, tid, queue, payload, run_at FROM chaton.work ORDER BY tid", &[])?
    {
        let (queue, payload): (&str, &[u8]) = (row.get(2), row.get(3));
        let job = RunningJob {
            tid: row.get(1),
            queue: queue.into(),
            payload: payload.into(),
            run_at: row.get(4),
        };
        work.entry(row.get(0)).or_default().push(job);
    }
    let seen = |row: &Row| ProcessStatus {
        identity: row.get(0),
        info: row.get(1),
        busy: row.get::<_, i64>(2) as u64,
        quiet: row.get(3),
        rss_kb: row.get::<_, i64>(4) as u64,
        heartbeat_at: row.get(5),
        work: work.remove(row.get::<_, &str>(0)).unwrap_or_default(),
    };
    Ok(rows.iter().map(seen).collect())
}
