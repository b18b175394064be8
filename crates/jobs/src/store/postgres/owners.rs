//! Owners of jobs in flight, and their leases, by the clock of the server.

use std::collections::HashMap;
use std::time::Duration;

use chaton_core::clock::boot_ns;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio_postgres::Row;

use super::connection::{args, Call, NOW};
use super::errors::Result;
use crate::store::line::LOOK_S;
use crate::store::types::*;

/// Age of a heartbeat (s).
const AGE: &str = "greatest(extract(epoch FROM clock_timestamp()-beat_at), 0)::float8";

/// A heartbeat, as one process may hand it to another one: what [`BEAT`] reads, and when it was made (ns since boot).
#[derive(Deserialize, Serialize)]
pub(super) struct Beat {
    pub identity: String,
    pub sent_ns: u64,
    #[serde(flatten)]
    rest: serde_json::Value,
}

impl Beat {
    pub fn new(report: &ProcessReport<'_>) -> Self {
        let work = report.work.iter().map(|job| {
            let payload = String::from_utf8_lossy(&job.payload);
            json!([job.tid, &*job.queue, payload, job.run_at])
        });
        let work: Vec<_> = work.collect();
        let rest = json!({
            "place": report.process_key, "info": report.info, "busy": report.busy, "quiet": report.quiet,
            "rss_kb": report.rss_kb, "work": work, "processed": report.processed, "failed": report.failed,
            "now_s": report.now_s,
        });
        Self { identity: report.identity.into(), sent_ns: boot_ns(), rest }
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
        let Self { is_new, now_s, processes, signals, by, .. } = self;
        let (processes, follows) = (processes as usize, by != id);
        HeartbeatReply { is_new, now_s, processes, silent: 0, signals, shared, follows }
    }
}

/// One statement for all that heartbeats (`$1`, see [`beats`]; `$2`: [`LOOK_S`]) write and ask. Owners in their order, so that no two
/// statements wait for each other.
pub(super) const BEAT: &str = include_str!("sql/heartbeat.sql");

/// Heartbeats as the argument of [`BEAT`].
pub(super) fn beats<'a>(beats: impl Iterator<Item = &'a Beat>) -> String {
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
    let beats = beats(std::iter::once(beat));
    let row = call.one(BEAT, args![beats, LOOK_S])?;
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
