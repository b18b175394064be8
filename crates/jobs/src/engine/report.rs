//! What a heartbeat reports: Sidekiq's `info`, the running jobs, the memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;

use super::config::QueueMode;
use super::state::EngineState;
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
        "embedded": false,
        "capsules": {"default": {
            "concurrency": config.concurrency, "mode": config.mode, "weights": weights,
        }},
    })
    .to_string()
}

/// The jobs that run now.
pub(super) fn running_jobs(state: &EngineState) -> Vec<RunningJob> {
    let jobs: Vec<_> = state.locked.lock().jobs.values().cloned().collect();
    jobs.iter()
        .filter(|job| job.is_running())
        .map(|job| RunningJob {
            tid: format!("{:x}t{}", std::process::id(), job.thread()),
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

/// The identity of a Sidekiq process and a queue of ours that it works on.
pub(super) fn shared_queue(info: &str, queues: &[(String, u32)]) -> Option<(String, String)> {
    let info: serde_json::Value = serde_json::from_str(info).ok()?;
    let theirs = info.get("queues")?.as_array()?;
    let (queue, _) = queues.iter().find(|(name, _)| theirs.iter().any(|theirs| theirs == name))?;
    let identity = info.get("identity").and_then(|identity| identity.as_str()).unwrap_or("?");
    Some((identity.to_string(), queue.clone()))
}

#[cfg(test)]
mod tests {
    use super::shared_queue;

    #[test]
    fn finds_a_queue_that_sidekiq_works_on_too() {
        let queues = [("low".to_string(), 1), ("q".to_string(), 1)];
        let info = r#"{"identity":"host:1:a","queues":["other","q"]}"#;
        assert_eq!(shared_queue(info, &queues), Some(("host:1:a".into(), "q".into())));
        assert_eq!(shared_queue(r#"{"queues":["other"]}"#, &queues), None);
        assert_eq!(shared_queue("broken", &queues), None);
    }
}
