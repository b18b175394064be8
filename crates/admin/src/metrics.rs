//! What `/metrics` answers: the counters of the scoreboard, the workers' gauges, and the memory of the
//! processes, as OpenMetrics text.

mod collector;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::atomic::Ordering::Relaxed;

use chaton_core::process::counters::{RequestCounters, TimeTotals, NAMES_MAX, OTHER};
use chaton_core::process::scoreboard::{EventStreams, Scoreboard};
use chaton_core::work::Role;
use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;

use crate::queues::{Outbox, QueueSize, StoreSizes};
use crate::tree::{one_of_each_number, TreeReport, WorkerEntry, WorkerPhase};
pub(crate) use collector::CLASSES;

/// The text's media type.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The name of what is counted together.
const ALL_OTHERS: &str = "other";

/// Memory of one process in bytes; the exact figures are read less often.
#[derive(Clone, Debug)]
pub struct ProcessFigures {
    /// `main`, `preloader`, `admin`, or `worker` and its number.
    pub name: String,
    /// Pages in memory.
    pub resident: u64,
    /// The same, each shared page divided by the number of its users.
    pub proportional: Option<u64>,
    /// Pages that no other process has.
    pub private: Option<u64>,
}

/// Jobs of a class and queue in all workers.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClassTotals {
    pub done: u64,
    pub failed: u64,
    pub run_time: TimeTotals,
    pub latency: TimeTotals,
}

/// Records of a topic and group in all workers.
#[derive(Clone, Debug, Default)]
pub(crate) struct TopicTotals {
    pub records: u64,
    pub retries: u64,
    pub dead_letters: u64,
    pub lag: u64,
    /// Partitions that its workers have.
    pub partitions: u64,
    /// Those that have stopped at lost records.
    pub stopped: u64,
    /// Those that their consumer has paused.
    pub paused: u64,
    /// The time of the oldest record that is not done (ms since 1970); 0 without one.
    pub oldest_ms: u64,
    pub rebalances: u64,
    pub overdue: u64,
}

impl TopicTotals {
    /// Age of the oldest record that is not done (s); 0 without one.
    pub fn age_s(&self, now_s: f64) -> f64 {
        // The clock of the writer may be ahead.
        if self.oldest_ms == 0 {
            0.0
        } else {
            (now_s - self.oldest_ms as f64 / 1e3).max(0.0)
        }
    }
}

/// Traffic of all workers with a broker of Kafka.
#[derive(Clone, Debug, Default)]
struct BrokerTotals {
    requests: u64,
    errors: u64,
    timeouts: u64,
    connects: u64,
    round_trips: u64,
    round_trips_us: u64,
}

/// The gauges of one worker.
#[derive(Clone, Debug)]
struct WorkerFigures {
    worker: String,
    gauges: Vec<(&'static str, f64)>,
    heap: BTreeMap<&'static str, u64>,
}

/// All that one scrape shows.
#[derive(Debug, Default)]
pub struct Scrape {
    pub(crate) responses: [u64; 5],
    pub(crate) shed: u64,
    no_room: u64,
    /// Spans of traces: sent and dropped.
    spans: [(&'static str, u64); 2],
    pub(crate) duration: TimeTotals,
    pub(crate) queue_time: TimeTotals,
    /// By [`Role`].
    gvl_wait: [TimeTotals; Role::ALL.len()],
    jobs_fenced: u64,
    jobs_put_back: u64,
    pub(crate) jobs: BTreeMap<(String, String), ClassTotals>,
    /// By topic and group.
    pub(crate) topics: BTreeMap<(String, String), TopicTotals>,
    /// Records that were produced, not written, and whose receipt nobody has read, by topic.
    undelivered: BTreeMap<String, u64>,
    brokers: BTreeMap<String, BrokerTotals>,
    pub(crate) event_streams: EventStreams,
    /// When certificates expire (s since 1970), by address and file.
    certificates: BTreeMap<(String, String), u64>,
    workers: Vec<WorkerFigures>,
    states: [(&'static str, u64); 4],
    ready: Vec<(String, bool)>,
    exits: BTreeMap<String, u64>,
    /// Datagrams that were sent to StatsD, and that were not; `None` without it.
    pub(crate) statsd: Option<[u64; 2]>,
    pub(crate) processes: Vec<ProcessFigures>,
    /// What the store of the jobs holds; `Some(None)`: it does not answer.
    pub(crate) store: Option<Option<StoreSizes>>,
}

impl Scrape {
    /// Reads the scoreboard. `ready`: whether each role is.
    pub fn read(report: &TreeReport, scoreboard: &Scoreboard, ready: &[(&str, bool)]) -> Self {
        let mut scrape = Self { exits: report.exits.clone(), ..Self::default() };
        scrape.ready = ready.iter().map(|(role, ready)| ((*role).to_owned(), *ready)).collect();
        let phases = [
            ("asked", WorkerPhase::Asked),
            ("booting", WorkerPhase::Booting),
            ("ready", WorkerPhase::Ready),
            ("stopping", WorkerPhase::Stopping),
        ];
        scrape.states = phases.map(|(name, phase)| {
            (name, report.workers.iter().filter(|one| one.state == phase).count() as u64)
        });
        let (mut sent, mut dropped) = (0, 0);
        for counters in scoreboard.counted() {
            scrape.add_requests(&counters.requests);
            sent += counters.traces.sent.load(Relaxed);
            dropped += counters.traces.dropped.load(Relaxed);
            let waits = counters.gvl_wait.iter().zip(&mut scrape.gvl_wait);
            waits.for_each(|(histogram, totals)| histogram.sum_into(totals));
            scrape.jobs_fenced += counters.jobs_fenced.load(Relaxed);
            scrape.jobs_put_back += counters.jobs_put_back.load(Relaxed);
        }
        scrape.event_streams = scoreboard.event_streams();
        scrape.spans = [("sent", sent), ("dropped", dropped)];
        scrape.add_jobs(scoreboard);
        scrape.add_topics(scoreboard);
        scrape.add_brokers(scoreboard);
        scrape.add_certificates(scoreboard);
        let rows = report.workers.iter().filter(|one| one.slot < scoreboard.len());
        let working =
            rows.filter(|one| matches!(one.state, WorkerPhase::Ready | WorkerPhase::Stopping));
        scrape.workers = one_of_each_number(working)
            .map(|one| figures(one.worker, scoreboard, one.slot))
            .collect();
        scrape
    }

    fn add_requests(&mut self, requests: &RequestCounters) {
        for (sum, counter) in self.responses.iter_mut().zip(&requests.responses) {
            *sum += counter.load(Relaxed);
        }
        self.shed += requests.shed.load(Relaxed);
        self.no_room += requests.no_room.load(Relaxed);
        requests.duration.sum_into(&mut self.duration);
        requests.queue_time.sum_into(&mut self.queue_time);
    }

    /// Two entries with the same name, which is possible, are added up.
    fn add_jobs(&mut self, scoreboard: &Scoreboard) {
        let other = || (ALL_OTHERS.to_owned(), ALL_OTHERS.to_owned());
        let named =
            (0..NAMES_MAX).filter_map(|index| Some((scoreboard.class_names().get(index)?, index)));
        for (name, index) in named.chain([(other(), OTHER)]) {
            let mut totals = ClassTotals::default();
            for counters in scoreboard.counted() {
                let counters = &counters.jobs[index];
                totals.done += counters.done.load(Relaxed);
                totals.failed += counters.failed.load(Relaxed);
                counters.run_time.sum_into(&mut totals.run_time);
                counters.latency.sum_into(&mut totals.latency);
            }
            if index != OTHER || totals.done + totals.failed > 0 {
                let sum = self.jobs.entry(name).or_default();
                sum.done += totals.done;
                sum.failed += totals.failed;
                sum.run_time.add(&totals.run_time);
                sum.latency.add(&totals.latency);
            }
        }
    }

    fn add_topics(&mut self, scoreboard: &Scoreboard) {
        let other = (ALL_OTHERS.to_owned(), ALL_OTHERS.to_owned());
        let named =
            (0..NAMES_MAX).filter_map(|index| Some((scoreboard.topic_names().get(index)?, index)));
        for (name, index) in named.chain([(other, OTHER)]) {
            let mut totals = TopicTotals::default();
            let mut undelivered = 0;
            for topic in scoreboard.counted().map(|counters| &counters.topics[index]) {
                totals.records += topic.records.load(Relaxed);
                totals.retries += topic.retries.load(Relaxed);
                totals.dead_letters += topic.dead_letters.load(Relaxed);
                totals.lag += topic.lag.load(Relaxed);
                totals.partitions += topic.partitions.load(Relaxed);
                totals.stopped += topic.stopped.load(Relaxed);
                totals.paused += topic.paused.load(Relaxed);
                totals.overdue += topic.overdue.load(Relaxed);
                totals.rebalances += topic.rebalances.load(Relaxed);
                totals.oldest_ms = older(totals.oldest_ms, topic.oldest_ms.load(Relaxed));
                undelivered += topic.undelivered.load(Relaxed);
            }
            if undelivered > 0 || name.1.is_empty() {
                *self.undelivered.entry(name.0.clone()).or_default() += undelivered;
            }
            if name.1.is_empty() {
                continue;
            }
            if index != OTHER || totals.records + totals.lag > 0 {
                let sum = self.topics.entry(name).or_default();
                sum.records += totals.records;
                sum.retries += totals.retries;
                sum.dead_letters += totals.dead_letters;
                sum.lag += totals.lag;
                sum.partitions += totals.partitions;
                sum.stopped += totals.stopped;
                sum.paused += totals.paused;
                sum.rebalances += totals.rebalances;
                sum.overdue += totals.overdue;
                sum.oldest_ms = older(sum.oldest_ms, totals.oldest_ms);
            }
        }
    }

    fn add_brokers(&mut self, scoreboard: &Scoreboard) {
        let name = |index| Some((scoreboard.broker_names().get(index)?.0, index));
        let named = (0..NAMES_MAX).filter_map(name);
        for (name, index) in named.chain([(ALL_OTHERS.to_owned(), OTHER)]) {
            let mut totals = BrokerTotals::default();
            for broker in scoreboard.counted().map(|counters| &counters.brokers[index]) {
                totals.requests += broker.requests.load(Relaxed);
                totals.errors += broker.errors.load(Relaxed);
                totals.timeouts += broker.timeouts.load(Relaxed);
                totals.connects += broker.connects.load(Relaxed);
                totals.round_trips += broker.round_trips.load(Relaxed);
                totals.round_trips_us += broker.round_trips_us.load(Relaxed);
            }
            // Two entries with the same name, which is possible, are added up.
            if index != OTHER || totals.connects > 0 {
                let sum = self.brokers.entry(name).or_default();
                sum.requests += totals.requests;
                sum.errors += totals.errors;
                sum.timeouts += totals.timeouts;
                sum.connects += totals.connects;
                sum.round_trips += totals.round_trips;
                sum.round_trips_us += totals.round_trips_us;
            }
        }
    }

    /// Of workers that serve different ones, the one that expires first.
    fn add_certificates(&mut self, scoreboard: &Scoreboard) {
        for index in 0..NAMES_MAX {
            let Some(name) = scoreboard.certificate_names().get(index) else { continue };
            let served = scoreboard.counted().map(|one| one.certificates[index].load(Relaxed));
            if let Some(until) = served.filter(|until| *until != 0).min() {
                self.certificates.insert(name, until);
            }
        }
    }

    /// The text.
    ///
    /// # Errors
    /// Never: it is written into memory.
    pub fn encode(self) -> Result<String, fmt::Error> {
        let mut registry = Registry::with_prefix("chaton");
        registry.register_collector(Box::new(self));
        let mut text = String::new();
        text::encode(&mut text, &registry)?;
        Ok(text)
    }
}

/// The smaller one of two times that are not 0.
fn older(one: u64, other: u64) -> u64 {
    if one == 0 || other == 0 {
        one.max(other)
    } else {
        one.min(other)
    }
}

fn figures(worker: usize, scoreboard: &Scoreboard, row: usize) -> WorkerFigures {
    let gauges = scoreboard.slot(row);
    let number = |gauge: &std::sync::atomic::AtomicU32| f64::from(gauge.load(Relaxed));
    let gauges_of = vec![
        ("connections", number(&gauges.connections)),
        ("queued", number(&gauges.queued)),
        ("running", number(&gauges.running)),
        ("threads", number(&gauges.threads)),
        ("queue_age", number(&gauges.queue_age_ms) / 1000.0),
        ("held", gauges.held_bytes.load(Relaxed) as f64),
        ("spooled", gauges.spooled_bytes.load(Relaxed) as f64),
        ("event_streams", gauges.event_streams.load(Relaxed) as f64),
    ];
    let reason = ("eden_reason", &gauges.heap.eden_reason);
    let heap = gauges.heap.gauges().into_iter().chain([reason]);
    WorkerFigures {
        worker: worker.to_string(),
        gauges: gauges_of,
        heap: heap.map(|(name, gauge)| (name, gauge.load(Relaxed))).collect(),
    }
}

/// A scrape of an imagined server that has all metrics, from which their list is made.
///
/// # Errors
/// When the system gives no memory.
pub fn sample() -> io::Result<String> {
    let scoreboard = Scoreboard::new(1)?;
    scoreboard.class_names().enter("HardJob", "default");
    scoreboard.topic_names().enter("events", "app");
    scoreboard.topic_names().enter("events", "");
    scoreboard.broker_names().enter("1", "");
    scoreboard.certificate_names().enter("https://0.0.0.0:443", "/etc/app/fullchain.pem");
    scoreboard.counters(0).certificates[0].store(1, Relaxed);
    scoreboard.slot(0).counted.store(1, Relaxed);
    scoreboard.counters(0).gvl_wait.iter().for_each(|histogram| histogram.add(1));
    let reasons = ["asked", "boot", "died", "hung", "killed", "memory", "restart"];
    let exits = reasons.map(|reason| (reason.to_owned(), 0));
    let entry = WorkerEntry {
        worker: 0,
        slot: 0,
        pid: None,
        state: WorkerPhase::Ready,
        roles: vec!["jobs".to_owned()],
    };
    let report = TreeReport { workers: vec![entry], exits: exits.into(), ..TreeReport::default() };
    let mut scrape =
        Scrape::read(&report, &scoreboard, &["jobs", "streams", "web"].map(|role| (role, true)));
    let names = ["main", "preloader", "admin", "worker 0"].map(str::to_owned);
    scrape.processes = names
        .map(|name| ProcessFigures { name, resident: 0, proportional: Some(0), private: Some(0) })
        .into();
    scrape.statsd = Some([0; 2]);
    let queue = QueueSize { name: "default".to_owned(), ..QueueSize::default() };
    let sets = ["scheduled", "retries", "dead", "in_flight"].map(|set| (set, 0));
    scrape.store = Some(Some(StoreSizes {
        queues: vec![queue],
        sets: sets.into(),
        outbox: Some(Outbox::default()),
    }));
    scrape.encode().map_err(io::Error::other)
}

#[cfg(test)]
mod tests;
