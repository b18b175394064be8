//! Deaths of processes that no supervisor reports.

use super::stepped_engine::{config, factory, jids, push, queue, SteppedEngine};
use crate::engine::maintenance::Maintenance;
use crate::outcome::Outcome;
use crate::store::{open, JobLocation, ProcessReport, Store, StoreFactory, StoreOptions};
use chaton_core::process::scoreboard::{OwnGauges, Scoreboard};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What the documents promise.
const RECLAIMED_WITHIN: Duration = Duration::from_secs(5);
/// Time in which a supervisor reports first, at least.
const GRACE: Duration = Duration::from_secs(1);

/// Writes a heartbeat after which the engine's process is gone: another one has its pid. `end` is the end of its place.
fn vanish(engine: &SteppedEngine, store: &mut dyn Store, end: &str) {
    beat_with(engine, store, (3, "1"), end);
}

/// Writes a heartbeat with this part of the place.
fn beat_with(
    engine: &SteppedEngine,
    store: &mut dyn Store,
    (index, part): (usize, &str),
    end: &str,
) {
    let place = engine.state.identity.place(false);
    let mut parts: Vec<&str> = place.split(' ').collect();
    parts[index] = part;
    let report = ProcessReport {
        identity: &engine.state.identity.name,
        process_key: &format!("{}{end}", parts.join(" ")),
        info: "{}",
        concurrency: 1,
        busy: 1,
        quiet: false,
        rss_kb: 0,
        rtt_us: 0,
        work: &[],
        processed: 0,
        failed: 0,
        now_s: engine.state.now_s(),
    };
    store.heartbeat(&report).unwrap();
}

fn documents(store: &mut dyn Store, place: &JobLocation) -> Vec<String> {
    let entries = store.list(place, 0, 10).unwrap();
    entries.iter().map(|entry| String::from_utf8_lossy(&entry.payload).into_owned()).collect()
}

/// Claims until a job has been started, and then dies.
fn die_running(factory: &Arc<dyn StoreFactory>, jid: &str, end: &str) {
    let mut engine = SteppedEngine::new(factory, config(), 1);
    engine.fetch();
    engine.fetch();
    let running = engine.start_one().unwrap();
    assert_eq!(running.document().jid(), jid);
    vanish(&engine, &mut *factory.store(), end);
    // Whoever comes next looks for dead processes first.
    SteppedEngine::new(factory, config(), 2);
}

#[test]
fn the_third_crash_counts_only_against_the_job_that_ran_alone() {
    let factory = factory("unseen");
    let mut store = factory.store();
    for jid in ["poison", "innocent"] {
        push(&mut *store, "low", jid, "", None);
    }
    for death in 1..=2 {
        die_running(&factory, "poison", "");
        for text in documents(&mut *store, &queue("low")) {
            assert!(text.contains(&format!(r#""deaths":{death}"#)), "both were claimed: {text}");
        }
        assert_eq!(jids(&mut *store, &queue("low")), ["poison", "innocent"]);
    }
    die_running(&factory, "poison", "");
    assert_eq!(jids(&mut *store, &JobLocation::Dead), ["poison"]);
    let story = "3 times within 72 hours: its process is gone, nobody saw how at 20";
    let dead = documents(&mut *store, &JobLocation::Dead);
    assert!(dead[0].contains(story), "{dead:?}");
    let waiting = documents(&mut *store, &queue("low"));
    assert!(waiting.len() == 1 && waiting[0].contains(r#""deaths":2"#), "{waiting:?}");
    let mut engine = SteppedEngine::new(&factory, config(), 3);
    engine.fetch();
    engine.fetch();
    assert!(engine.start_one().unwrap().finish(Outcome::Ack));
    engine.fetch();
    assert_eq!(store.stats().unwrap().in_flight, 0);
}

#[test]
fn a_process_that_was_asked_to_stop_has_not_crashed() {
    let factory = factory("unseen-stops");
    let mut store = factory.store();
    push(&mut *store, "low", "a", "", None);
    for _ in 0..3 {
        die_running(&factory, "a", " stopping");
        let waiting = documents(&mut *store, &queue("low"));
        assert!(waiting.len() == 1 && !waiting[0].contains("chaton"), "{waiting:?}");
    }
}

#[test]
fn a_process_in_another_pid_namespace_has_crashed_when_its_lock_is_free() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", dir.path().join("jobs.db").display());
    let factory = open(&StoreOptions::for_tests(url)).unwrap();
    push(&mut *factory.store(), "low", "a", "", None);
    let mut dying = SteppedEngine::new(&factory, config(), 1);
    dying.fetch();
    dying.fetch();
    dying.start_one().unwrap();
    let mut container = factory.store();
    beat_with(&dying, &mut *container, (1, "pid:[1]"), "");
    drop(dying);
    let mut other = SteppedEngine::new(&factory, config(), 2);
    other.maintenance = Maintenance::new(&other.state, factory.store(), true);
    other.maintenance.round();
    let in_flight = || factory.store().stats().unwrap().in_flight;
    assert_eq!(in_flight(), 1);
    drop(container);
    let died = Instant::now();
    while in_flight() > 0 {
        assert!(died.elapsed() < RECLAIMED_WITHIN);
        other.maintenance.round();
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(died.elapsed() > GRACE, "its supervisor had no time to report");
    let waiting = documents(&mut *factory.store(), &queue("low"));
    assert!(waiting.len() == 1 && waiting[0].contains(r#""deaths":1"#), "{waiting:?}");
}

#[test]
fn only_a_quiet_process_that_has_claimed_was_asked_to_stop() {
    let factory = factory("unseen-quiet");
    let gauges = OwnGauges::new(Arc::new(Scoreboard::new(1).unwrap()), 0);
    let ours = Some(gauges.clone());
    let settings = crate::engine::Config { begins_quiet: true, gauges: ours, ..config() };
    let mut engine = SteppedEngine::new(&factory, settings, 1);
    let states = |engine: &SteppedEngine| engine.state.quiet_and_stops();
    assert_eq!(states(&engine), (true, false), "it is about to begin");
    engine.state.quiet.store(false, Ordering::SeqCst);
    engine.fetch();
    assert_eq!(states(&engine), (false, false));
    engine.state.quiet.store(true, Ordering::SeqCst);
    assert_eq!(states(&engine), (true, true));
    engine.state.chores.lock().heartbeat = true;
    engine.maintenance.round();
    let owners = factory.store().owners().unwrap();
    assert!(owners[0].process_key.ends_with(" stopping"), "{owners:?}");
    gauges.note_orphaned();
    engine.state.chores.lock().heartbeat = true;
    engine.maintenance.round();
    let owners = factory.store().owners().unwrap();
    assert!(!owners[0].process_key.ends_with(" stopping"), "nobody asked it: {owners:?}");
}
