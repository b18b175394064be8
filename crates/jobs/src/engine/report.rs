//! What the engine tells of itself: Sidekiq's `info`, its running jobs, its
//! memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;

use super::config::QueueMode;
use super::state::EngineState;
use crate::store::RunningJob;

/// The process's description: the fields of every generation side by side,
/// since readers take what they know.
pub(super) fn info(shared: &EngineState) -> String {
    let config = &shared.config;
    let queues: Vec<&str> = config.queues.iter().map(|(name, _)| &**name).collect();
    let weights: BTreeMap<&str, u32> = config
        .queues
        .iter()
        .map(|(name, weight)| (&**name, if config.mode == QueueMode::Strict { 0 } else { *weight }))
        .collect();
    let mode = match config.mode {
        QueueMode::Strict => "strict",
        QueueMode::Weighted => "weighted",
        QueueMode::Random => "random",
    };
    let started_at = shared.started_at_s;
    json!({
        "hostname": shared.identity.host,
        "started_at": started_at,
        "pid": std::process::id(),
        "tag": config.tag,
        "concurrency": config.concurrency,
        "queues": queues,
        "weights": [weights],
        "labels": config.labels,
        "identity": shared.identity.name,
        "version": config.version,
        "embedded": false,
        "capsules": {"default": {
            "concurrency": config.concurrency, "mode": mode, "weights": weights,
        }},
    })
    .to_string()
}

/// What runs now.
pub(super) fn work(shared: &EngineState) -> Vec<RunningJob> {
    let jobs: Vec<_> = shared.locked.lock().jobs.values().cloned().collect();
    jobs.iter()
        .filter(|job| job.is_running())
        .map(|job| RunningJob {
            tid: format!("{:x}t{}", std::process::id(), job.executor()),
            queue: job.queue().clone(),
            payload: Arc::clone(job.document().payload()),
            run_at: job.started_at_s(),
        })
        .collect()
}

/// Resident memory in KB.
pub(super) fn rss_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
