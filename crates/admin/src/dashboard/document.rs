//! What the page shows, as one JSON document.

use std::path::Path;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use chaton_core::clock::wall_s;
use chaton_core::process::counters::{
    ClassCounters, HeapGauges, LiveCounters, Named, RequestCounters, TimeTotals, TopicCounters,
    BOUNDS_S,
};
use chaton_core::process::scoreboard::{Scoreboard, WorkerGauges};
use chaton_core::process::table::{Reading, Row, Table};
use chaton_memory::eden::EdenReason;
use chaton_memory::readings::{age_s, is_stopped, resident, ROOT};
use serde_json::{json, Map, Value};

use crate::config::Config;
use crate::dashboard::control::WorkerAnswers;
use crate::health::{self, boot_ms};
use crate::metrics::heap;
use crate::queues::StoreSizes;
use crate::state::State;
use crate::tree::WorkerEntry;

/// Queues in the document at most; classes and topics are bounded where they are counted.
const QUEUES_MAX: usize = 200;

/// The server as it is now. Counters start with the server; who wants rates reads it twice.
pub(crate) async fn document(state: &State) -> Value {
    let store = match &state.queues {
        Some(queues) => Some(queues.read().await),
        None => None,
    };
    let running = state.dashboard.control.running().await;
    let (report, silence) = state.report();
    let (config, scoreboard) = (&state.config, &state.scoreboard);
    let live = health::live(&report, silence, config);
    let ready = health::ready(&report, scoreboard, config, None, boot_ms());
    let root = Path::new(ROOT);
    let processes: Vec<_> = state
        .process_memory
        .lock()
        .read(&report)
        .into_iter()
        // Without workers the main process is the only worker.
        .filter(|one| {
            one.name == "main" || !report.workers.iter().any(|it| it.pid == Some(report.pid))
        })
        .map(|one| {
            json!({ "name": one.name, "resident": one.resident, "proportional": one.proportional,
                    "private": one.private })
        })
        .collect();
    let workers: Vec<_> =
        report.workers.iter().map(|entry| worker(entry, scoreboard, config, &running)).collect();
    let now_s = wall_s();
    json!({
        "at": now_s,
        "server": { "facts": config.dashboard.facts, "state": report.state, "pid": report.pid,
                    "age_s": age_s(root, report.pid), "roles": config.roles, "exits": report.exits,
                    "deaths": report.deaths, "running_error": running.error },
        "history_note": *state.dashboard.note.lock(),
        "live": live,
        "ready": ready,
        "workers": workers,
        "processes": processes,
        "bounds_s": BOUNDS_S,
        "web": figures::<RequestCounters>(&scoreboard.total(|counters| &counters.requests), |_| true),
        "event_streams": figures::<LiveCounters>(&scoreboard.total(|counters| &counters.live), |_| true),
        "jobs": {
            "crons": config.dashboard.crons.len(),
            "store_error": store.as_ref().and_then(|sizes| sizes.as_ref().err()),
            "store": store.as_ref().and_then(|sizes| sizes.as_ref().ok()).map(stored),
            "classes": named::<ClassCounters>(scoreboard),
        },
        "streams": named::<TopicCounters>(scoreboard),
    })
}

/// What a table shows.
fn figures<T: Table>(totals: &T::Totals, shows: fn(&Row<T::Totals>) -> bool) -> Map<String, Value> {
    let mut figures = Map::new();
    for row in T::ROWS.iter().filter(|row| shows(row)) {
        let value = match (row.read)(totals) {
            Reading::Number(number) => json!(number),
            Reading::Seconds(seconds) => json!(seconds),
            Reading::Times(all) => times(all),
        };
        match row.key.split_once('.') {
            Some((object, key)) => figures.entry(object).or_insert_with(|| json!({}))[key] = value,
            None => _ = figures.insert(row.key.to_owned(), value),
        }
    }
    figures
}

/// What each name of a table shows, with the name.
fn named<T: Named>(scoreboard: &Scoreboard) -> Vec<Map<String, Value>> {
    let shown = |((name, place), totals)| {
        let mut shown = figures::<T>(&totals, |_| true);
        shown.extend(T::LABELS.into_iter().map(str::to_owned).zip([json!(name), json!(place)]));
        shown
    };
    scoreboard.totals::<T>().into_iter().map(shown).collect()
}

/// The counts of a histogram's buckets; `bounds_s` of the document has their bounds.
fn times(totals: &TimeTotals) -> Value {
    json!({ "buckets": totals.buckets, "sum_s": totals.sum_ns as f64 / 1e9 })
}

fn stored(sizes: &StoreSizes) -> Value {
    let queues = sizes.queues.iter().take(QUEUES_MAX).map(|queue| {
        json!({ "name": queue.name, "size": queue.size, "latency_s": queue.latency_s,
                "paused": queue.paused, "served": queue.served })
    });
    let sets: Map<_, _> =
        sizes.sets.iter().map(|(name, size)| ((*name).to_owned(), json!(size))).collect();
    let outbox = sizes.outbox.map(|outbox| {
        json!({ "lag_s": outbox.lag_s, "waiting": outbox.waiting, "refused": outbox.refused })
    });
    json!({ "queues": queues.collect::<Vec<_>>(), "queues_total": sizes.queues.len(), "sets": sets, "outbox": outbox })
}

fn worker(
    entry: &WorkerEntry,
    scoreboard: &Scoreboard,
    config: &Config,
    running: &WorkerAnswers,
) -> Value {
    let root = Path::new(ROOT);
    let mut shown = json!({
        "worker": entry.worker, "pid": entry.pid, "state": entry.state, "roles": entry.roles,
        "resident": entry.pid.and_then(|pid| resident(root, pid)),
        "age_s": entry.pid.and_then(|pid| age_s(root, pid)),
        "stopped": entry.pid.is_some_and(|pid| is_stopped(root, pid)),
        "reasons": health::reasons(entry, scoreboard, config, boot_ms()),
    });
    // A process that has not answered has no `running`.
    let answers = &mut running.answers.iter();
    let answer = answers.find(|one| one["pid"] == json!(entry.pid) && one["ok"] == true);
    if let Some(answer) = answer {
        for name in ["running", "partitions", "partitions_total", "troubles"] {
            if let Some(said) = answer.get(name) {
                shown[name] = said.clone();
            }
        }
    } else if let Some(silent_s) = running.silent_s(entry.worker) {
        shown["silent_s"] = json!(silent_s);
    }
    if entry.slot >= scoreboard.len() {
        return shown;
    }
    let gauges = scoreboard.slot(entry.slot);
    let number = |gauge: &AtomicU32| gauge.load(Relaxed);
    let totals = WorkerGauges::sum([gauges].into_iter());
    for (name, figure) in figures::<WorkerGauges>(&totals, |row| !row.name.is_empty()) {
        // What it runs is a list.
        shown[if name == "running" { "busy" } else { name.as_str() }] = figure;
    }
    shown["groups"] = json!(number(&gauges.groups));
    shown["groups_joined"] = json!(number(&gauges.groups_joined));
    shown["accepting"] = json!(number(&gauges.accepting) != 0);
    shown["hogged"] = json!(number(&gauges.hogged) != 0);
    shown["requests_total"] = json!(gauges.requests_total.load(Relaxed));
    shown["finished_total"] = json!(gauges.finished_total.load(Relaxed));
    let heap = heap(scoreboard, entry.slot);
    shown["heap"] = Value::Object(figures::<HeapGauges>(&heap, |_| true));
    shown["heap"]["eden_reason"] = json!(EdenReason::of(heap.eden_reason).word());
    shown
}
