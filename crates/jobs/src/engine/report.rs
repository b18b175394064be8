//! What a heartbeat reports: Sidekiq's `info`, the running jobs, the memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;

use super::config::QueueMode;
use super::state::EngineState;
use crate::document::FORMAT;
use crate::store::RunningJob;

/// The process's description, with the fields of all generations of Sidekiq.
pub(super) fn process_info(state: &EngineState) -> String {
    let config = &state.config;
    let queues: Vec<&str> = config.queues.iter().map(|(name, _)| &**name).collect();
    let weights: BTreeMap<&str, u32> = config
        .queues
        .iter()
        .map(|(name, weight)| (&**name, if config.mode == QueueMode::Strict { 0 } else { *weight }))
        .collect();
    let started_at = state.started_at_s;
    json!({
        "hostname": state.identity.host,
        "started_at": started_at,
        "pid": std::process::id(),
        "tag": config.tag,
        "concurrency": config.concurrency,
        "queues": queues,
        "weights": [weights],
        "labels": config.labels,
        "identity": state.identity.name,
        "version": config.version,
        "format": FORMAT,
        "embedded": false,
        "capsules": {"default": {
            "concurrency": config.concurrency, "mode": config.mode, "weights": weights,
        }},
    })
    .to_string()
}

/// The jobs that run now.
pub(super) fn running_jobs(state: &EngineState) -> Vec<RunningJob> {
    state
        .running_jobs()
        .iter()
        .map(|job| RunningJob {
            tid: format!("{:x}t{}", std::process::id(), job.thread()),
            queue: job.queue().clone(),
            payload: Arc::clone(job.document().payload()),
            run_at: job.started_at_s() as i64,
        })
        .collect()
}

/// Resident memory in KB.
pub(super) fn rss_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
