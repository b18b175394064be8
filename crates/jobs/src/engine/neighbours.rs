//! What the other processes on the store tell about this one's queues.

use std::collections::HashSet;

use super::config::Config;
use crate::store::{QueueStatus, Result, Store};

/// The scan, counted from 1, at which unserved queues are named: by then the processes that were started
/// together with this one have sent a heartbeat.
const UNSERVED_SCAN: u32 = 2;
/// Queues that are named at most.
const NAMED_MAX: usize = 20;

/// Finds, at the scans of the maintenance thread, what a person should know once.
#[derive(Default)]
pub(super) struct Neighbours {
    scans: u32,
    warned_of_sidekiq: bool,
}

impl Neighbours {
    /// Lines for the log.
    pub fn scan(&mut self, store: &mut dyn Store, config: &Config) -> Result<Vec<String>> {
        let mut lines = vec![];
        if !self.warned_of_sidekiq {
            let infos = store.sidekiq_processes()?;
            let shared = infos.iter().find_map(|info| shared_queue(info, &config.queues));
            self.warned_of_sidekiq = shared.is_some();
            lines.extend(shared.map(|(identity, queue)| {
                format!(
                    "jobs: the Sidekiq process {identity} works on the queue {queue}, too; it ignores Chaton's \
                     batches, unique locks, limits and expiry, so give jobs that use them queues of their own"
                )
            }));
        }
        if self.scans < UNSERVED_SCAN {
            self.scans += 1;
            if self.scans == UNSERVED_SCAN {
                lines.extend(unserved_line(store)?);
            }
        }
        Ok(lines)
    }
}

fn unserved_line(store: &mut dyn Store) -> Result<Option<String>> {
    let waiting: Vec<_> = store.queues()?.into_iter().filter(|queue| queue.size > 0).collect();
    if waiting.is_empty() {
        return Ok(None);
    }
    let infos: Vec<String> = store.processes()?.into_iter().map(|process| process.info).collect();
    let unserved = unserved(&waiting, &infos);
    let named =
        unserved.iter().take(NAMED_MAX).map(|queue| format!("{} ({})", queue.name, queue.size));
    let named = named.collect::<Vec<_>>().join(", ");
    Ok((!unserved.is_empty()).then(|| {
        format!(
            "jobs: no live process works on these queues, in which jobs wait: {named}; name them in queues, or \
             start a process that does"
        )
    }))
}

/// The queues that none of these processes works on.
fn unserved<'a>(waiting: &'a [QueueStatus], infos: &[String]) -> Vec<&'a QueueStatus> {
    let served: HashSet<String> = infos.iter().flat_map(|info| queues_of(info)).collect();
    waiting.iter().filter(|queue| !served.contains(&queue.name)).collect()
}

fn parsed(info: &str) -> serde_json::Value {
    serde_json::from_str(info).unwrap_or_default()
}

/// The queues that a process works on, by its description.
fn queues_of(info: &str) -> Vec<String> {
    let names = parsed(info)["queues"].as_array().cloned().unwrap_or_default();
    names.iter().filter_map(|name| name.as_str().map(Into::into)).collect()
}

/// The identity of a Sidekiq process and a queue of ours that it works on.
fn shared_queue(info: &str, queues: &[(String, u32)]) -> Option<(String, String)> {
    let theirs = queues_of(info);
    let (queue, _) = queues.iter().find(|(name, _)| theirs.contains(name))?;
    let identity = parsed(info)["identity"].as_str().unwrap_or("?").to_string();
    Some((identity, queue.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_a_queue_that_sidekiq_works_on_too() {
        let queues = [("low".to_string(), 1), ("q".to_string(), 1)];
        let info = r#"{"identity":"host:1:a","queues":["other","q"]}"#;
        assert_eq!(shared_queue(info, &queues), Some(("host:1:a".into(), "q".into())));
        assert_eq!(shared_queue(r#"{"queues":["other"]}"#, &queues), None);
        assert_eq!(shared_queue("broken", &queues), None);
    }

    #[test]
    fn finds_the_queues_that_nobody_works_on() {
        let queue =
            |name: &str| QueueStatus { name: name.into(), size: 1, latency_s: 0.0, paused: false };
        let waiting = ["a", "b", "c"].map(queue);
        let infos = [r#"{"queues":["a"]}"#, "broken", r#"{"queues":["c","d"]}"#].map(String::from);
        let names: Vec<_> = unserved(&waiting, &infos).iter().map(|queue| &*queue.name).collect();
        assert_eq!(names, ["b"]);
    }
}
