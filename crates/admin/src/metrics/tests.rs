use super::*;
use std::collections::BTreeMap;
use std::sync::Arc;

use chaton_core::process::scoreboard::OwnGauges;

use crate::process_reader::ProcessReader;

fn scrape(scoreboard: &Scoreboard) -> String {
    Metrics::read(&TreeReport::default(), scoreboard, &Surroundings::default()).encode()
}

#[test]
fn rows_are_added_up() {
    let scoreboard = Arc::new(Scoreboard::new(2).unwrap());
    for slot in 0..2 {
        scoreboard.slot(slot).counted.store(1, Relaxed);
        let own = OwnGauges::new(scoreboard.clone(), slot);
        own.counters().requests.responded(204);
        own.counters().requests.duration.add_alone(2_000_000);
        let counters = own.named::<ClassCounters>("A\"", "low");
        counters.done.fetch_add(2, Relaxed);
        counters.run_time.add(30_000_000_000);
    }
    let text = scrape(&scoreboard);
    for line in [
        "chaton_responses_total{class=\"2xx\"} 2",
        "chaton_request_duration_seconds_bucket{le=\"0.001\"} 0",
        "chaton_request_duration_seconds_bucket{le=\"0.0025\"} 2",
        "chaton_request_duration_seconds_bucket{le=\"+Inf\"} 2",
        "chaton_request_duration_seconds_sum 0.004",
        "chaton_jobs_total{class=\"A\\\"\",queue=\"low\",result=\"done\"} 4",
        "chaton_job_run_time_seconds_count{class=\"A\\\"\",queue=\"low\"} 2",
        "# EOF",
    ] {
        assert!(
            text.lines().any(|one| one == line || one.replace(".0", "") == line),
            "{line}\n{text}"
        );
    }
}

#[test]
fn classes_beyond_the_bound_are_one_series() {
    let scoreboard = Arc::new(Scoreboard::new(1).unwrap());
    scoreboard.slot(0).counted.store(1, Relaxed);
    let own = OwnGauges::new(scoreboard.clone(), 0);
    for number in 0..10_000 {
        own.named::<ClassCounters>(&format!("Job{number}"), "default").done.fetch_add(1, Relaxed);
    }
    let text = scrape(&scoreboard);
    let series = text.lines().filter(|line| line.starts_with("chaton_jobs_total{")).count();
    assert_eq!(series, 2 * (NAMES_MAX + 1));
    let other = "chaton_jobs_total{class=\"other\",queue=\"other\",result=\"done\"} 9800";
    assert!(text.lines().any(|line| line.starts_with(other)), "{text}");
}

#[test]
fn topics_and_groups_beyond_the_bound_are_one_series() {
    let scoreboard = Arc::new(Scoreboard::new(1).unwrap());
    scoreboard.slot(0).counted.store(1, Relaxed);
    let own = OwnGauges::new(scoreboard.clone(), 0);
    for number in 0..10_000 {
        let (topic, group) = (format!("topic{number}"), format!("group{number}"));
        let topic = own.named::<TopicCounters>(&topic, &group);
        topic.records.fetch_add(1, Relaxed);
        topic.lag.fetch_add(1, Relaxed);
    }
    let text = scrape(&scoreboard);
    for name in
        ["chaton_stream_records_total", "chaton_stream_lag", "chaton_stream_lag_age_seconds"]
    {
        let start = format!("{name}{{");
        let series = text.lines().filter(|line| line.starts_with(&start)).count();
        assert_eq!(series, NAMES_MAX + 1, "{name}");
    }
    let other = "chaton_stream_lag{topic=\"other\",group=\"other\"} 9800";
    assert!(text.lines().any(|line| line.starts_with(other)), "{text}");
}

#[test]
fn a_certificate_expires_when_the_first_worker_serves_an_expired_one() {
    let scoreboard = Arc::new(Scoreboard::new(2).unwrap());
    for (slot, until) in [(0, 9), (1, 7)] {
        scoreboard.slot(slot).counted.store(1, Relaxed);
        let own = OwnGauges::new(scoreboard.clone(), slot);
        let certificate = own.named::<CertificateCounters>("https://a", "/a.pem");
        certificate.not_after.store(until, Relaxed);
    }
    let name = "chaton_tls_certificate_not_after_seconds{bind=\"https://a\",file=\"/a.pem\"}";
    assert!(scrape(&scoreboard).contains(&format!("{name} 7.0\n")));
    scoreboard.clear(1);
    assert!(scrape(&scoreboard).contains(&format!("{name} 9.0\n")));
}

#[test]
fn event_streams_of_all_workers_are_added_up() {
    let scoreboard = Arc::new(Scoreboard::new(2).unwrap());
    for slot in 0..2 {
        scoreboard.slot(slot).counted.store(1, Relaxed);
        let own = OwnGauges::new(scoreboard.clone(), slot);
        let live = &own.counters().live;
        live.open.store(5, Relaxed);
        live.lag.store(7 * slot as u64, Relaxed);
        live.history_bytes.store(100 + slot as u64, Relaxed);
        live.delivered.fetch_add(20, Relaxed);
    }
    let names = [
        "event_stream_deliveries_total 40.0",
        "event_stream_lag 7.0",
        "event_stream_history_bytes 101.0",
    ];
    let text = scrape(&scoreboard);
    for name in names {
        assert!(text.contains(&format!("\nchaton_{name}\n")), "{name}\n{text}");
    }
    // Deliveries were made; the streams of the worker that ended are not open.
    scoreboard.clear(1);
    let left = scoreboard.total(|counters| &counters.live);
    assert_eq!((left.open, left.delivered, left.lag), (5, 40, 0));
}

#[test]
fn the_sample_has_all_metrics() {
    let text = sample().unwrap();
    assert!(text.ends_with("# EOF\n") && text.contains("class=\"HardJob\""), "{text}");
    let names = TopicCounters::ROWS.iter().map(|row| row.name);
    for name in names.chain(["event_streams", "outbox_lag_seconds", "statsd_datagrams"]) {
        assert!(text.contains(&format!("# HELP chaton_{name}")), "{name}\n{text}");
    }
}

fn entry(slot: usize, state: WorkerPhase) -> WorkerEntry {
    let roles = vec!["web".to_owned()];
    WorkerEntry { worker: 0, slot, state, pid: Some(std::process::id()), roles }
}

/// Connections that the only worker shows; fails when a series appears twice.
fn connections_of(workers: Vec<WorkerEntry>) -> String {
    let scoreboard = Scoreboard::new(3).unwrap();
    for slot in 0..3 {
        scoreboard.slot(slot).connections.store(slot as u32 + 1, Relaxed);
    }
    let pid = std::process::id();
    let report = TreeReport { workers, pid, preloaders: vec![pid, pid], ..TreeReport::default() };
    let processes = ProcessReader::default().read(&report);
    let around = Surroundings { processes, ..Surroundings::default() };
    let text = Metrics::read(&report, &scoreboard, &around).encode();
    for name in ["main", "preloader", "worker 0"] {
        assert!(text.contains(&format!("process=\"{name}\"")), "{text}");
    }
    let values = text.lines().filter(|line| !line.starts_with('#'));
    let mut seen = BTreeMap::new();
    for (series, value) in values.filter_map(|line| line.rsplit_once(' ')) {
        assert!(seen.insert(series, value).is_none(), "{series} appears twice\n{text}");
    }
    seen["chaton_connections{worker=\"0\"}"].replace(".0", "")
}

#[test]
fn a_worker_and_its_successor_are_one_series() {
    use WorkerPhase::{Asked, Booting, Ready, Stopping};
    for (states, shown) in [
        (vec![Ready, Asked], "1"),
        (vec![Ready, Booting], "1"),
        (vec![Stopping, Booting], "1"),
        (vec![Ready, Ready], "2"),
        (vec![Stopping, Ready], "2"),
        (vec![Ready, Stopping], "1"),
        (vec![Stopping, Stopping, Booting], "2"),
    ] {
        let workers = states.iter().enumerate().map(|(slot, state)| entry(slot, *state));
        assert_eq!(connections_of(workers.collect()), shown, "{states:?}");
    }
}
