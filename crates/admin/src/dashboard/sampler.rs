//! Takes the points of the curves: samples the server, and writes the history's file.

use std::time::Duration;

use chaton_core::clock::wall_s;
use chaton_core::process::counters::{ClassCounters, TopicCounters};

use super::history::{write, Reading, RINGS, SAVED_EVERY};
use crate::state::State;

/// Samples the server until the endpoint ends.
pub(crate) async fn run(state: &State) {
    let history = &state.dashboard.history;
    if let Err(why) = history.lock().load() {
        state.dashboard.warn(why);
    }
    let every = Duration::from_secs(u64::from(RINGS[0].0));
    let mut tick = tokio::time::interval(every);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    let mut saved_at = wall_s() as u32;
    loop {
        tick.tick().await;
        let reading = read(state).await;
        let save = reading.at.abs_diff(saved_at) >= SAVED_EVERY;
        let Some((path, bytes)) = history.lock().take(&reading, save) else { continue };
        saved_at = reading.at;
        let written = tokio::task::spawn_blocking(move || {
            write(&path, &bytes).map_err(|error| (path, error))
        })
        .await;
        if let Ok(Err((path, error))) = written {
            state.dashboard.warn(format!("{} cannot be written: {error}", path.display()));
        }
    }
}

async fn read(state: &State) -> Reading {
    let waiting = match &state.queues {
        Some(queues) => queues.read().await.ok(),
        None => None,
    };
    let (report, _) = state.report();
    let processes = state.process_memory.lock().read(&report);
    let requests = state.scoreboard.total(|counters| &counters.requests);
    let jobs = state.scoreboard.totals::<ClassCounters>();
    let topics = state.scoreboard.totals::<TopicCounters>();
    Reading {
        at: wall_s() as u32,
        requests: requests.responses(),
        errors: requests.responses_5xx,
        jobs: jobs.values().map(|one| one.done + one.failed).sum(),
        failed: jobs.values().map(|one| one.failed).sum(),
        records: topics.values().map(|one| one.records).sum(),
        lag: topics.values().map(|one| one.lag).sum(),
        waiting: waiting.map(|sizes| sizes.queues.iter().map(|one| one.size).sum()),
        memory: processes.iter().map(|one| one.proportional.unwrap_or(one.resident)).sum(),
        duration: requests.duration,
        queue_time: requests.queue_time,
    }
}
