//! Owners of jobs in flight, and their leases, by the clock of the server.

use std::collections::HashMap;
use std::sync::LazyLock;
use std::time::Duration;

use chaton_core::clock::boot_ns;
use serde::{Deserialize, Serialize};
use tokio_postgres::Row;

use super::connection::{args, Call, NOW};
use super::errors::Result;
use crate::store::line::LOOK_S;
use crate::store::types::*;

/// Age of a heartbeat (s).
const AGE: &str = "greatest(extract(epoch FROM clock_timestamp()-beat_at), 0)::float8";

/// A heartbeat, as one process may hand it to another one.
#[derive(Deserialize, Serialize)]
pub(super) struct Beat {
    pub identity: String,
    place: String,
    info: String,
    busy: i64,
    quiet: bool,
    rss_kb: i64,
    /// Running jobs: thread, queue, document, begin.
    work: Vec<(String, String, String, i64)>,
    processed: i64,
    failed: i64,
    now_s: f64,
    /// When it was made (ns since boot).
    pub sent_ns: u64,
}

impl Beat {
    pub fn new(report: &ProcessReport<'_>) -> Self {
        let work = report.work.iter().map(|job| {
            let payload = String::from_utf8_lossy(&job.payload).into_owned();
            (job.tid.clone(), job.queue.to_string(), payload, job.run_at)
        });
        Self {
            identity: report.identity.into(),
            place: report.process_key.into(),
            info: report.info.into(),
            busy: report.busy as i64,
            quiet: report.quiet,
            rss_kb: report.rss_kb as i64,
            work: work.collect(),
            processed: report.processed as i64,
            failed: report.failed as i64,
            now_s: report.now_s,
            sent_ns: boot_ns(),
        }
    }
}

/// What a heartbeat found.
#[derive(Deserialize, Serialize)]
pub(super) struct BeatReply {
    is_new: bool,
    now_s: f64,
    processes: i64,
    signals: Vec<String>,
    /// A line of jobs behind a limit is due.
    pub lines_are_due: bool,
    /// [`Tree::id`](super::tree::Tree) of the process that has written it.
    pub by: u64,
}

impl BeatReply {
    /// For a process with this id.
    pub fn into_reply(self, id: u64, shared: bool) -> HeartbeatReply {
        let reply = self;
        HeartbeatReply {
            is_new: reply.is_new,
            now_s: reply.now_s,
            processes: reply.processes as usize,
            silent: 0,
            signals: reply.signals,
            shared,
            follows: reply.by != id,
        }
    }
}

/// One statement for all that heartbeats (`$1`, see [`json`]) write and ask. Owners in their order, so that no two
/// statements wait for each other.
pub(super) static BEAT: LazyLock<String> = LazyLock::new(|| {
    format!(
        "WITH r AS MATERIALIZED (SELECT * FROM json_to_recordset($1::json) AS u(identity text, place text, info text,
             busy bigint, quiet boolean, rss_kb bigint, work json, processed bigint, failed bigint, now_s float8)),
         job AS MATERIALIZED (SELECT DISTINCT ON (identity, w->>0) identity AS owner, w->>0 AS tid, w->>1 AS queue,
             convert_to(w->>2, 'UTF8') AS payload, (w->>3)::bigint AS run_at FROM r, json_array_elements(work)
             WITH ORDINALITY AS u(w, n) ORDER BY identity, w->>0, n DESC),
         before AS MATERIALIZED (SELECT identity, place FROM chaton.owners WHERE identity IN (SELECT identity FROM r)),
         beat AS (INSERT INTO chaton.owners(identity, place, info, busy, quiet, rss_kb, reported_at)
             SELECT identity, place, info, busy, quiet, rss_kb, now_s FROM r ORDER BY identity
             ON CONFLICT (identity) DO UPDATE SET place=excluded.place,
             info=excluded.info, busy=excluded.busy, quiet=excluded.quiet, rss_kb=excluded.rss_kb,
             reported_at=excluded.reported_at, beat_at=clock_timestamp()),
         runs AS (INSERT INTO chaton.work(owner, tid, queue, payload, run_at) SELECT * FROM job
             ON CONFLICT (owner, tid) DO UPDATE
             SET queue=excluded.queue, payload=excluded.payload, run_at=excluded.run_at),
         ended AS (DELETE FROM chaton.work w WHERE owner IN (SELECT identity FROM r)
             AND NOT EXISTS(SELECT 1 FROM job WHERE job.owner=w.owner AND job.tid=w.tid)),
         counted AS (INSERT INTO chaton.counters AS c (name, value)
             SELECT * FROM (SELECT 'failed', sum(failed)::bigint AS value FROM r
                 UNION ALL SELECT 'processed', sum(processed)::bigint FROM r) n WHERE value>0
             ON CONFLICT (name) DO UPDATE SET value=c.value+excluded.value),
         left_for AS (DELETE FROM chaton.signals WHERE identity IN (SELECT identity FROM r) OR until<={NOW}
             RETURNING id, identity, name, until)
         SELECT r.identity, (SELECT place FROM before b WHERE b.identity=r.identity) IS NULL,
         extract(epoch FROM clock_timestamp())::float8, (SELECT count(*) FROM chaton.owners)
             + (SELECT count(*) FROM r) - (SELECT count(*) FROM before),
         ARRAY(SELECT name FROM left_for l WHERE l.identity=r.identity AND until>{NOW} ORDER BY id),
         EXISTS(SELECT 1 FROM chaton.lines WHERE look_at<=(SELECT max(now_s) FROM r)
             OR look_at>(SELECT max(now_s) FROM r)+{LOOK_S}) FROM r"
    )
});

/// Heartbeats as the argument of [`BEAT`].
pub(super) fn json<'a>(beats: impl Iterator<Item = &'a Beat>) -> String {
    // There are no maps with other keys than strings.
    serde_json::to_string(&beats.collect::<Vec<_>>()).unwrap_or_default()
}

/// The owner of a heartbeat, and its answer.
pub(super) fn read_beat(row: &Row, by: u64) -> (&str, BeatReply) {
    let reply = BeatReply {
        is_new: row.get(1),
        now_s: row.get(2),
        processes: row.get(3),
        signals: row.get(4),
        lines_are_due: row.get(5),
        by,
    };
    (row.get(0), reply)
}

pub(super) fn heartbeat(call: &mut Call<'_>, beat: &Beat, by: u64) -> Result<Option<BeatReply>> {
    let beats = json(std::iter::once(beat));
    let row = call.one(&BEAT, args![beats])?;
    Ok(row.map(|row| read_beat(&row, by).1))
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
    call.exec(
        &format!("INSERT INTO chaton.signals(identity, name, until) VALUES($1, $2, {NOW}+$3)"),
        args![identity, name, SIGNAL_TTL.as_secs_f64()],
    )
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
