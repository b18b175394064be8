//! Processes and the jobs that they have in flight.

use std::sync::Arc;
use std::time::Duration;

use chaton_core::calendar::date_text;

use super::scripts::Script;
use super::store::RedisStore;
use crate::document::Fields;
use crate::store::line::LOOKS_MAX;
use crate::store::traits::Result;
use crate::store::types::{
    ClaimedJob, HeartbeatReply, OwnerStatus, ProcessReport, ProcessStatus, RunningJob, SIGNAL_TTL,
};
use chaton_redis::{Pipeline, RespValue};

/// Least time for which Sidekiq's API shows a process.
const SHOWN_S_MIN: u64 = 60;
/// Longer documents are shown without their arguments, since they are written
/// again at each heartbeat.
const SHOWN_BYTES_MAX: usize = 64 * 1024;

/// Processes of Sidekiq that are looked at.
const SIDEKIQ_MAX: usize = 100;
/// Jobs put back by one call of the script, which searches the queue for each.
const RESTORE_MAX: usize = 20;

pub(super) fn heartbeat(
    store: &mut RedisStore,
    report: &ProcessReport<'_>,
) -> Result<HeartbeatReply> {
    let mut pipeline = Pipeline::new();
    let keys = work_keys(store, report.identity);
    let words = 10 + 14 + 1 + keys.len() + 2 * report.work.len();
    store.conn.script(&mut pipeline, Script::Heartbeat, words)?;
    let lease = store.options.lease;
    let ttl = lease.as_secs() + u64::from(lease.subsec_nanos() > 0);
    pipeline.word(report.identity).word(report.process_key).number(ttl.max(SHOWN_S_MIN));
    pipeline.word(date_text(report.now_s)).number(report.processed).number(report.failed);
    pipeline.float(report.now_s).number(LOOKS_MAX as u64).float(lease.as_secs_f64());
    pipeline.number(14).word("info").word(report.info).word("busy").number(report.busy as u64);
    pipeline.word("beat").float(report.now_s).word("rtt_us").number(report.rtt_us);
    pipeline.word("quiet").word(if report.quiet { "true" } else { "false" });
    pipeline.word("rss").number(report.rss_kb);
    pipeline.word("concurrency").number(report.concurrency as u64);
    pipeline.number(keys.len() as u64);
    for key in &keys {
        pipeline.word(key);
    }
    for work in report.work {
        pipeline.word(&work.tid).word(shown(work));
    }
    let mut answer = store.run(&pipeline)?.next().unwrap_or(RespValue::Nil).items().into_iter();
    let is_new = answer.next().is_some_and(|new| new.count() == 1);
    let now_s = answer.next().and_then(|time| time.float()).unwrap_or(report.now_s);
    let mut count = || answer.next().map_or(0, |count| count.count()) as usize;
    let (processes, silent) = (count(), count());
    Ok(HeartbeatReply {
        is_new,
        now_s,
        processes,
        silent,
        signals: answer.map(RespValue::text).collect(),
        shared: false,
        follows: false,
    })
}

/// Sidekiq renamed the key between two patches of 6.4: format 6 writes both.
fn work_keys(store: &RedisStore, identity: &str) -> Vec<String> {
    let mut keys = vec![format!("{identity}:work")];
    if store.options.format < 7 {
        keys.push(format!("{identity}:workers"));
    }
    keys
}

pub(super) fn owners(store: &mut RedisStore) -> Result<Vec<OwnerStatus>> {
    let mut pipeline = Pipeline::new();
    pipeline.command(&[b"TIME"]);
    pipeline.command(&[b"ZRANGE", b"chaton:owners", b"0", b"-1", b"WITHSCORES"]);
    pipeline.command(&[b"HGETALL", b"chaton:places"]);
    let mut replies = store.run(&pipeline)?;
    let time = replies.next().unwrap_or(RespValue::Nil).items();
    let part = |index: usize| time.get(index).and_then(RespValue::float).unwrap_or_default();
    let now_s = part(0) + part(1) / 1e6;
    let owners = replies.next().unwrap_or(RespValue::Nil).scored();
    let places: std::collections::HashMap<String, String> = replies
        .next()
        .unwrap_or(RespValue::Nil)
        .pairs()
        .into_iter()
        .map(|(identity, place)| (identity.text(), place.text()))
        .collect();
    let seen = |(identity, at): (Vec<u8>, f64)| {
        let identity = String::from_utf8_lossy(&identity).into_owned();
        let process_key = places.get(&identity).cloned().unwrap_or_default();
        let heartbeat_age = Duration::try_from_secs_f64(now_s - at).unwrap_or_default();
        OwnerStatus { identity, process_key, heartbeat_age, ended: false }
    };
    Ok(owners.into_iter().map(seen).collect())
}

pub(super) fn sidekiq_processes(store: &mut RedisStore) -> Result<Vec<String>> {
    let mut pipeline = Pipeline::new();
    pipeline.command(&[b"SMEMBERS", b"processes"]);
    pipeline.command(&[b"HKEYS", b"chaton:places"]);
    let mut replies = store.run(&pipeline)?;
    let mut next = || replies.next().unwrap_or(RespValue::Nil).items();
    let (all, ours) = (next(), next());
    let mut pipeline = Pipeline::new();
    for identity in all.into_iter().filter(|identity| !ours.contains(identity)).take(SIDEKIQ_MAX) {
        pipeline.begin(3).word("HGET").word(identity.bytes()).word("info");
    }
    if pipeline.is_empty() {
        return Ok(vec![]);
    }
    let infos = store.run(&pipeline)?.filter(|info| *info != RespValue::Nil);
    Ok(infos.map(RespValue::text).collect())
}

pub(super) fn in_flight(store: &mut RedisStore, owner: &str) -> Result<Vec<ClaimedJob>> {
    let mut pipeline = Pipeline::new();
    pipeline.begin(2).word("HGETALL").parts(&[b"chaton:inflight:", owner.as_bytes()]);
    let hash = store.run(&pipeline)?.next().unwrap_or(RespValue::Nil);
    let mut claimed: Vec<ClaimedJob> = Vec::new();
    for (field, payload) in hash.pairs() {
        let field = field.text();
        let Some((ticket, queue)) = field.split_once(':') else { continue };
        let Ok(ticket) = ticket.parse() else { continue };
        let queue: Arc<str> = match claimed.last() {
            Some(last) if &*last.queue == queue => Arc::clone(&last.queue),
            _ => queue.into(),
        };
        claimed.push(ClaimedJob { ticket, queue, payload: payload.bytes() });
    }
    claimed.sort_by_key(|job| job.ticket);
    Ok(claimed)
}

pub(super) fn restore(store: &mut RedisStore, owner: &str, jobs: &[ClaimedJob]) -> Result<usize> {
    let mut restored = 0;
    for some in jobs.chunks(RESTORE_MAX) {
        let mut pipeline = Pipeline::new();
        store.conn.script(&mut pipeline, Script::Restore, 1 + 3 * some.len())?.word(owner);
        for job in some {
            pipeline.number(job.ticket).word(job.queue.as_bytes()).word(&job.payload);
        }
        restored += store.run(&pipeline)?.next().map_or(0, |count| count.count()) as usize;
    }
    Ok(restored)
}

pub(super) fn processes(store: &mut RedisStore) -> Result<Vec<ProcessStatus>> {
    let mut identities: Vec<String> =
        store.one(&[b"SMEMBERS", b"processes"])?.items().into_iter().map(RespValue::text).collect();
    identities.sort_unstable();
    if identities.is_empty() {
        return Ok(Vec::new());
    }
    let mut pipeline = Pipeline::new();
    for identity in &identities {
        pipeline.begin(2).word("HGETALL").word(identity);
        pipeline.begin(2).word("HGETALL").parts(&[identity.as_bytes(), b":work"]);
        pipeline.begin(2).word("HGETALL").parts(&[identity.as_bytes(), b":workers"]);
    }
    let mut replies = store.run(&pipeline)?;
    let mut next = || replies.next().unwrap_or(RespValue::Nil).pairs();
    let mut processes = Vec::with_capacity(identities.len());
    for identity in identities {
        let (hash, mut work, old) = (next(), next(), next());
        if work.is_empty() {
            work = old;
        }
        processes.extend(process(identity, hash, work));
    }
    Ok(processes)
}

pub(super) fn signal(store: &mut RedisStore, identity: &str, signal: &str) -> Result<()> {
    let key = format!("{identity}-signals");
    let mut pipeline = Pipeline::new();
    pipeline.command(&[b"LPUSH", key.as_bytes(), signal.as_bytes()]);
    pipeline.begin(3).word("EXPIRE").word(&key).number(SIGNAL_TTL.as_secs());
    store.conn.atomic(&pipeline).map(|_| ())
}

/// `None` for a process whose description has expired.
fn process(
    identity: String,
    hash: Vec<(RespValue, RespValue)>,
    work: Vec<(RespValue, RespValue)>,
) -> Option<ProcessStatus> {
    let mut seen = ProcessStatus {
        identity,
        info: String::new(),
        busy: 0,
        quiet: false,
        rss_kb: 0,
        heartbeat_at: 0.0,
        work: work.into_iter().filter_map(read_work).collect(),
    };
    for (field, value) in hash {
        match field.text().as_str() {
            "info" => seen.info = value.text(),
            "busy" => seen.busy = value.count(),
            "quiet" => seen.quiet = value == RespValue::Bulk(b"true".to_vec()),
            "rss" => seen.rss_kb = value.count(),
            "beat" => seen.heartbeat_at = value.float().unwrap_or_default(),
            _ => {}
        }
    }
    seen.work.sort_by(|a, b| a.tid.cmp(&b.tid));
    (!seen.info.is_empty()).then_some(seen)
}

fn read_work((tid, entry): (RespValue, RespValue)) -> Option<RunningJob> {
    let entry = entry.bytes();
    let fields = Fields::parse(&entry).ok()?;
    // A string that holds JSON; older versions hold the object itself.
    let payload = fields
        .text("payload")
        .map(String::into_bytes)
        .or_else(|| Some(fields.get("payload")?.as_bytes().to_vec()))?;
    let run_at = fields.number("run_at").unwrap_or_default() as i64;
    let queue = fields.text("queue").unwrap_or_default().into();
    Some(RunningJob { tid: tid.text(), queue, payload: payload.into(), run_at })
}

/// A running job as Sidekiq's API reads it.
fn shown(work: &RunningJob) -> String {
    let text = if work.payload.len() <= SHOWN_BYTES_MAX {
        String::from_utf8_lossy(&work.payload).into_owned()
    } else {
        short(&work.payload)
    };
    let string = |text: &str| serde_json::to_string(text).unwrap_or_else(|_| "\"\"".into());
    let (queue, payload) = (string(&work.queue), string(&text));
    format!("{{\"queue\":{queue},\"payload\":{payload},\"run_at\":{}}}", work.run_at)
}

fn short(payload: &[u8]) -> String {
    let Ok(mut fields) = Fields::parse(payload) else { return "{}".into() };
    let length = fields.get("args").map_or(0, str::len);
    fields.set("args", format!("[\"({length} bytes)\"]"));
    String::from_utf8(fields.to_vec()).unwrap_or_else(|_| "{}".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_a_long_job_without_its_arguments() {
        let args = "x".repeat(SHOWN_BYTES_MAX);
        let payload = format!("{{\"class\":\"A\",\"args\":[\"{args}\"],\"jid\":\"j\"}}");
        let work = RunningJob {
            tid: "t".into(),
            queue: "q\"".into(),
            payload: payload.into_bytes().into(),
            run_at: 7,
        };
        let expected = r#"{"queue":"q\"","payload":"{\"class\":\"A\",\"args\":[\"(65540 bytes)\"],\"jid\":\"j\"}","run_at":7}"#;
        assert_eq!(shown(&work), expected);
    }
}
