use super::*;
use std::sync::Arc;

use chaton_core::process::scoreboard::OwnGauges;

fn scrape(scoreboard: &Scoreboard) -> String {
    Scrape::read(&TreeReport::default(), scoreboard, &[]).encode().unwrap()
}

#[test]
fn rows_are_added_up() {
    let scoreboard = Arc::new(Scoreboard::new(2).unwrap());
    for slot in 0..2 {
        scoreboard.slot(slot).counted.store(1, Relaxed);
        let own = OwnGauges::new(scoreboard.clone(), slot);
        own.counters().requests.responded(204);
        own.counters().requests.duration.add_alone(2_000_000);
        let counters = own.class_counters("A\"", "low");
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
        own.class_counters(&format!("Job{number}"), "default").done.fetch_add(1, Relaxed);
    }
    let text = scrape(&scoreboard);
    let series = text.lines().filter(|line| line.starts_with("chaton_jobs_total{")).count();
    assert_eq!(series, 2 * (NAMES_MAX + 1));
    let other = "chaton_jobs_total{class=\"other\",queue=\"other\",result=\"done\"} 9800";
    assert!(text.lines().any(|line| line.starts_with(other)), "{text}");
}

#[test]
fn the_sample_has_all_metrics() {
    let text = sample().unwrap();
    assert!(text.ends_with("# EOF\n") && text.contains("class=\"HardJob\""), "{text}");
    let heads = text.lines().filter(|line| line.starts_with("# HELP ")).count();
    assert_eq!(heads, 28, "{text}");
}
