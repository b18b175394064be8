//! Decides whether a server lives and is ready. Pure: it gets what is known, and the time.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use chaton_core::clock::boot_ns;
use chaton_core::process::counters::WorkCounters;
use chaton_core::process::scoreboard::{Scoreboard, WorkerGauges};
use serde::Serialize;

use crate::config::Config;
use crate::tree::{ServerPhase, TreeReport, WorkerEntry, WorkerPhase};

/// The answer to `/live`.
#[derive(Debug, Serialize)]
pub struct Liveness {
    /// `live` or `hung`.
    pub status: &'static str,
    /// What the server does.
    pub state: ServerPhase,
    /// Why it does not live.
    pub reasons: Vec<String>,
}

/// The answer to `/ready`.
#[derive(Debug, Serialize)]
pub struct Readiness {
    /// `ready` or `unready`.
    pub status: &'static str,
    /// What the server does.
    pub state: ServerPhase,
    /// Why it is not ready, as a whole.
    pub reasons: Vec<String>,
    /// Each role.
    pub roles: BTreeMap<String, RoleReadiness>,
}

/// Whether a role does its work: whether at least one worker does.
#[derive(Debug, Serialize)]
pub struct RoleReadiness {
    /// Whether one does.
    pub ready: bool,
    /// Workers of the role.
    pub workers: usize,
    /// Those of them that do its work.
    pub ready_workers: usize,
    /// Why the others do not.
    pub reasons: Vec<String>,
}

/// [`Readiness`] for `chaton status`, which has it from here so that it says the same as `/ready`.
#[derive(Serialize)]
struct ServerReadiness {
    #[serde(flatten)]
    server: Readiness,
    /// Of each worker of the report, why it does not do its work.
    workers: Vec<Vec<String>>,
}

/// The readiness of a server as JSON; settings and report are those that the admin endpoint gets.
///
/// # Errors
/// When the settings or the report cannot be read.
pub fn document(
    settings: &str,
    report: &str,
    scoreboard: &Scoreboard,
) -> serde_json::Result<String> {
    let (config, report): (Config, TreeReport) =
        (serde_json::from_str(settings)?, serde_json::from_str(report)?);
    let now_ms = boot_ms();
    let server = ready(&report, scoreboard, &config, None, now_ms);
    let workers = report.workers.iter().map(|one| reasons(one, scoreboard, &config, now_ms));
    serde_json::to_string(&ServerReadiness { server, workers: workers.collect() })
}

/// Whether the supervisor reports. While it starts it waits for the application and cannot.
pub fn live(report: &TreeReport, silence: Duration, config: &Config) -> Liveness {
    let starting = report.state == ServerPhase::Starting;
    let limit = config.alive_timeout.filter(|limit| silence > *limit && !starting);
    let reasons: Vec<_> = limit
        .map(|limit| {
            let (silent, limit) = (silence.as_secs_f64(), limit.as_secs_f64());
            format!("the main process has shown no sign of life for {silent:.0} s (alive_timeout_s is {limit})")
        })
        .into_iter()
        .collect();
    let status = if reasons.is_empty() { "live" } else { "hung" };
    Liveness { status, state: report.state, reasons }
}

/// Whether each role, or the one that is asked for, does its work. `now_ms`: time since boot.
pub fn ready(
    report: &TreeReport,
    scoreboard: &Scoreboard,
    config: &Config,
    role: Option<&str>,
    now_ms: u64,
) -> Readiness {
    let asked = config.roles.iter().filter(|name| role.is_none_or(|one| one == *name));
    let roles: BTreeMap<_, _> = asked
        .map(|role| (role.clone(), role_readiness(role, report, scoreboard, config, now_ms)))
        .collect();
    let mut reasons: Vec<String> = match report.state {
        ServerPhase::Stopping => vec!["the server is stopping".to_owned()],
        ServerPhase::Restarting => vec!["the server is restarting".to_owned()],
        ServerPhase::Starting | ServerPhase::Running => vec![],
    };
    let idle = roles.iter().filter(|(_, one)| !one.ready);
    reasons.extend(idle.map(|(name, one)| {
        let why = if one.reasons.is_empty() {
            "there is no worker for it".to_owned()
        } else {
            one.reasons.join("; ")
        };
        format!("{name} is not ready: {why}")
    }));
    let status = if reasons.is_empty() { "ready" } else { "unready" };
    Readiness { status, state: report.state, reasons, roles }
}

fn role_readiness(
    role: &str,
    report: &TreeReport,
    scoreboard: &Scoreboard,
    config: &Config,
    now_ms: u64,
) -> RoleReadiness {
    let workers: Vec<_> =
        report.workers.iter().filter(|one| one.roles.iter().any(|name| name == role)).collect();
    let mut reasons: Vec<String> = workers
        .iter()
        .filter_map(|one| Some((one, unready(role, one, scoreboard, config, now_ms)?)))
        .map(|(one, why)| format!("worker {} {why}", one.worker))
        .collect();
    let ready_workers = workers.len() - reasons.len();
    let given_up = report.given_up.iter().filter(|one| one.roles.iter().any(|name| name == role));
    reasons.extend(given_up.map(|one| {
        format!("worker {} failed to boot too often and was given up; the log says why", one.worker)
    }));
    RoleReadiness { ready: ready_workers > 0, workers: workers.len(), ready_workers, reasons }
}

/// Why a worker does not do the work of its roles; empty where it does.
pub(crate) fn reasons(
    entry: &WorkerEntry,
    scoreboard: &Scoreboard,
    config: &Config,
    now_ms: u64,
) -> Vec<String> {
    let each =
        entry.roles.iter().filter_map(|role| unready(role, entry, scoreboard, config, now_ms));
    let mut found: Vec<_> = each.collect();
    // A worker that boots does so for all roles.
    found.dedup();
    found
}

/// Why a worker does not do the work of a role.
fn unready(
    role: &str,
    entry: &WorkerEntry,
    scoreboard: &Scoreboard,
    config: &Config,
    now_ms: u64,
) -> Option<String> {
    match entry.state {
        WorkerPhase::Asked => return Some("is about to start".into()),
        WorkerPhase::Booting => return Some("is booting".into()),
        WorkerPhase::Stopping => return Some("is stopping".into()),
        WorkerPhase::Ready => {}
    }
    if entry.slot >= scoreboard.len() {
        return Some("has no row on the scoreboard".into());
    }
    let gauges = scoreboard.slot(entry.slot);
    match role {
        "web" => web(gauges, config),
        "jobs" => jobs(gauges, now_ms),
        "streams" => streams(gauges, scoreboard.counters(entry.slot), config),
        _ => None,
    }
}

fn web(gauges: &WorkerGauges, config: &Config) -> Option<String> {
    if gauges.accepting.load(Relaxed) == 0 {
        return Some("accepts no connections".into());
    }
    let age_ms = gauges.queue_age_ms.load(Relaxed);
    (u128::from(age_ms) >= config.queue_age.as_millis()).then(|| {
        let seconds = f64::from(age_ms) / 1000.0;
        format!("is too busy: a request has waited for {seconds:.1} s")
    })
}

fn jobs(gauges: &WorkerGauges, now_ms: u64) -> Option<String> {
    let heartbeat_ms = gauges.jobs_heartbeat_ms.load(Relaxed);
    if heartbeat_ms == 0 {
        return Some("has not reached the job store yet".into());
    }
    let age_ms = now_ms.saturating_sub(heartbeat_ms);
    let late = age_ms >= gauges.jobs_lease_ms.load(Relaxed);
    (late || gauges.jobs_failing.load(Relaxed) != 0).then(|| {
        let seconds = age_ms as f64 / 1000.0;
        format!("cannot reach the job store; its last heartbeat was {seconds:.1} s ago")
    })
}

/// The reason names no topic, because health checks need no password.
fn streams(gauges: &WorkerGauges, counters: &WorkCounters, config: &Config) -> Option<String> {
    let (groups, joined) = (gauges.groups.load(Relaxed), gauges.groups_joined.load(Relaxed));
    if joined < groups || groups == 0 {
        return Some(format!("reads with {joined} of its {groups} consumer groups"));
    }
    let stopped: u64 = counters.topics.iter().map(|topic| topic.stopped.load(Relaxed)).sum();
    if stopped > 0 {
        let partitions = if stopped == 1 { "partition" } else { "partitions" };
        return Some(format!(
            "has stopped {stopped} {partitions} at lost records (on_gap: :stop); `chaton streams lag` \
             names them"
        ));
    }
    let lag_max = config.lag_max?;
    let lag = counters.topics.iter().map(|topic| topic.lag.load(Relaxed)).max().unwrap_or(0);
    (lag > lag_max)
        .then(|| format!("is {lag} records behind in one of its topics (lag_max is {lag_max})"))
}

/// Time since boot, as the scoreboard has it.
pub(crate) fn boot_ms() -> u64 {
    boot_ns() / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::GivenUp;

    fn config() -> Config {
        Config {
            listeners: vec![],
            hosts: vec![],
            connections_max: 1,
            timeout: Duration::from_secs(1),
            token: None,
            store: serde_json::Value::Null,
            dashboard: crate::config::DashboardConfig::default(),
            alive_timeout: Some(Duration::from_secs(60)),
            queue_age: Duration::from_secs(5),
            lag_max: Some(1_000),
            statsd: None,
            roles: ["web", "jobs", "streams"].map(str::to_owned).to_vec(),
        }
    }

    fn entry(worker: usize, state: WorkerPhase, role: &str) -> WorkerEntry {
        WorkerEntry { worker, slot: worker, state, pid: None, roles: vec![role.to_owned()] }
    }

    fn running(workers: Vec<WorkerEntry>) -> TreeReport {
        TreeReport { state: ServerPhase::Running, workers, ..TreeReport::default() }
    }

    fn check(report: &TreeReport, scoreboard: &Scoreboard, role: &str) -> Readiness {
        ready(report, scoreboard, &config(), Some(role), 100_000)
    }

    #[test]
    fn web_is_ready_with_one_worker_that_accepts_and_has_a_young_queue() {
        let scoreboard = Scoreboard::new(2).unwrap();
        let report = running(vec![
            entry(0, WorkerPhase::Booting, "web"),
            entry(1, WorkerPhase::Ready, "web"),
        ]);
        let before = check(&report, &scoreboard, "web");
        assert_eq!(before.status, "unready");
        let why = "web is not ready: worker 0 is booting; worker 1 accepts no connections";
        assert_eq!(before.reasons, [why]);

        scoreboard.slot(1).accepting.store(1, Relaxed);
        let after = check(&report, &scoreboard, "web");
        assert_eq!((after.status, after.roles["web"].ready_workers), ("ready", 1));
        assert_eq!(after.roles["web"].reasons, ["worker 0 is booting"]);

        scoreboard.slot(1).queue_age_ms.store(5_000, Relaxed);
        let busy = check(&report, &scoreboard, "web");
        assert!(busy.reasons[0].contains("a request has waited for 5.0 s"), "{busy:?}");
    }

    #[test]
    fn jobs_are_ready_while_heartbeats_reach_the_store() {
        let scoreboard = Scoreboard::new(1).unwrap();
        let report = running(vec![entry(0, WorkerPhase::Ready, "jobs")]);
        let gauges = scoreboard.slot(0);
        gauges.jobs_lease_ms.store(30_000, Relaxed);
        assert!(check(&report, &scoreboard, "jobs").reasons[0].contains("not reached"));

        gauges.jobs_heartbeat_ms.store(90_000, Relaxed);
        assert_eq!(check(&report, &scoreboard, "jobs").status, "ready");
        gauges.jobs_failing.store(1, Relaxed);
        let failing = check(&report, &scoreboard, "jobs");
        assert!(failing.reasons[0].contains("last heartbeat was 10.0 s ago"), "{failing:?}");

        gauges.jobs_failing.store(0, Relaxed);
        gauges.jobs_heartbeat_ms.store(70_000, Relaxed);
        assert_eq!(check(&report, &scoreboard, "jobs").status, "unready");
    }

    #[test]
    fn streams_are_ready_when_every_group_of_a_worker_is_joined() {
        let scoreboard = Scoreboard::new(1).unwrap();
        let report = running(vec![entry(0, WorkerPhase::Ready, "streams")]);
        scoreboard.slot(0).groups.store(2, Relaxed);
        scoreboard.slot(0).groups_joined.store(1, Relaxed);
        let half = check(&report, &scoreboard, "streams");
        assert!(half.reasons[0].contains("1 of its 2 consumer groups"), "{half:?}");
        scoreboard.slot(0).groups_joined.store(2, Relaxed);
        assert_eq!(check(&report, &scoreboard, "streams").status, "ready");
    }

    #[test]
    fn streams_are_not_ready_while_a_topic_is_behind_by_more_than_the_bound() {
        let scoreboard = Scoreboard::new(2).unwrap();
        let entries = [0, 1].map(|worker| entry(worker, WorkerPhase::Ready, "streams"));
        let report = running(entries.into());
        for slot in [0, 1] {
            scoreboard.slot(slot).groups.store(1, Relaxed);
            scoreboard.slot(slot).groups_joined.store(1, Relaxed);
            let topics = &scoreboard.counters(slot).topics;
            topics[0].lag.store(1_000, Relaxed);
            topics[1].lag.store(900, Relaxed);
        }
        assert_eq!(check(&report, &scoreboard, "streams").status, "ready");
        scoreboard.counters(0).topics[1].lag.store(1_001, Relaxed);
        let one = check(&report, &scoreboard, "streams");
        assert_eq!((one.status, one.roles["streams"].ready_workers), ("ready", 1));
        scoreboard.counters(1).topics[0].lag.store(5_000, Relaxed);
        let both = check(&report, &scoreboard, "streams");
        assert!(both.reasons[0].contains("worker 0 is 1001 records behind"), "{both:?}");
        let off = Config { lag_max: None, ..config() };
        assert_eq!(ready(&report, &scoreboard, &off, Some("streams"), 0).status, "ready");
    }

    #[test]
    fn streams_are_not_ready_while_a_partition_has_stopped_at_lost_records() {
        let scoreboard = Scoreboard::new(1).unwrap();
        let report = running(vec![entry(0, WorkerPhase::Ready, "streams")]);
        scoreboard.slot(0).groups.store(1, Relaxed);
        scoreboard.slot(0).groups_joined.store(1, Relaxed);
        scoreboard.counters(0).topics[3].stopped.store(1, Relaxed);
        let stopped = check(&report, &scoreboard, "streams");
        assert!(stopped.reasons[0].contains("worker 0 has stopped 1 partition at lost records"));
        scoreboard.counters(0).topics[3].stopped.store(0, Relaxed);
        assert_eq!(check(&report, &scoreboard, "streams").status, "ready");
    }

    #[test]
    fn each_worker_says_why_it_does_not_do_its_work() {
        let scoreboard = Scoreboard::new(2).unwrap();
        let both = |worker, state| WorkerEntry {
            roles: ["web", "jobs"].map(str::to_owned).to_vec(),
            ..entry(worker, state, "web")
        };
        let of = |one: &WorkerEntry| reasons(one, &scoreboard, &config(), 100_000);
        assert_eq!(of(&both(0, WorkerPhase::Booting)), ["is booting"]);
        let ready = both(1, WorkerPhase::Ready);
        assert_eq!(of(&ready), ["accepts no connections", "has not reached the job store yet"]);
        let gauges = scoreboard.slot(1);
        gauges.accepting.store(1, Relaxed);
        gauges.jobs_lease_ms.store(30_000, Relaxed);
        gauges.jobs_heartbeat_ms.store(99_000, Relaxed);
        assert!(of(&ready).is_empty());
    }

    #[test]
    fn a_server_that_stops_is_not_ready_though_its_workers_are() {
        let scoreboard = Scoreboard::new(1).unwrap();
        scoreboard.slot(0).accepting.store(1, Relaxed);
        let mut report = running(vec![entry(0, WorkerPhase::Ready, "web")]);
        report.state = ServerPhase::Stopping;
        let answer = check(&report, &scoreboard, "web");
        assert_eq!((answer.status, answer.roles["web"].ready), ("unready", true));
        assert_eq!(answer.reasons, ["the server is stopping"]);
    }

    #[test]
    fn a_number_that_was_given_up_is_named() {
        let scoreboard = Scoreboard::new(1).unwrap();
        let mut report = running(vec![]);
        report.given_up = vec![GivenUp { worker: 0, roles: vec!["web".to_owned()] }];
        let answer = check(&report, &scoreboard, "web");
        assert!(answer.reasons[0].contains("worker 0 failed to boot too often"), "{answer:?}");
    }

    #[test]
    fn a_main_process_that_reports_nothing_is_hung_unless_it_starts() {
        let mut report = running(vec![]);
        let (short, long) = (Duration::from_secs(60), Duration::from_secs(61));
        assert_eq!(live(&report, short, &config()).status, "live");
        let hung = live(&report, long, &config());
        assert_eq!(hung.status, "hung");
        assert!(hung.reasons[0].contains("61 s (alive_timeout_s is 60)"), "{hung:?}");
        assert_eq!(live(&report, long, &Config { alive_timeout: None, ..config() }).status, "live");
        report.state = ServerPhase::Starting;
        assert_eq!(live(&report, long, &config()).status, "live");
    }
}
