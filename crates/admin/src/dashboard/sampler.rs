//! Takes the points of the curves: samples the server, and writes the history's file.

use std::time::Duration;

use chaton_core::clock::wall_s;

use super::history::{write, Reading, RINGS, SAVED_EVERY};
use crate::metrics::Scrape;
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
    let scrape = Scrape::read(&report, &state.scoreboard, &[]);
    let jobs = scrape.jobs.values();
    let topics = scrape.topics.values();
    Reading {
        at: wall_s() as u32,
        requests: scrape.responses.iter().sum(),
        errors: scrape.responses[4],
        jobs: jobs.clone().map(|one| one.done + one.failed).sum(),
        failed: jobs.map(|one| one.failed).sum(),
        records: topics.clone().map(|one| one.records).sum(),
        lag: topics.map(|one| one.lag).sum(),
        waiting: waiting.map(|sizes| sizes.queues.iter().map(|one| one.size).sum()),
        memory: processes.iter().map(|one| one.proportional.unwrap_or(one.resident)).sum(),
        duration: scrape.duration,
        queue_time: scrape.queue_time,
    }
}
