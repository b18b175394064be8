//! What `/metrics` answers and StatsD gets: the counters of the scoreboard, the workers' gauges, and the memory of
//! the processes. The scoreboard's tables say how most of it is shown; what no table has is here.

mod openmetrics;

use std::io;
use std::sync::atomic::Ordering::Relaxed;

use chaton_core::outbox::OutboxStatus;
use chaton_core::process::counters::{
    BrokerCounters, CertificateCounters, ClassCounters, HeapGauges, HeapTotals, JobCounters,
    LiveCounters, Named, ProducedCounters, RequestCounters, TimeTotals, TopicCounters,
    TraceCounters, WaitCounters, NAMES_MAX,
};
use chaton_core::process::scoreboard::{Scoreboard, WorkerGauges};
use chaton_core::process::table::{Kind, Reading, Table};
use chaton_core::work::Role;
use chaton_memory::eden::EdenReason;

use crate::queues::{QueueSize, StoreSizes};
use crate::tree::{one_of_each_number, TreeReport, WorkerEntry, WorkerPhase};
pub use openmetrics::CONTENT_TYPE;

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

/// Names and values.
pub(crate) type Labels = Vec<(&'static str, String)>;

/// A value of a series.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Number(f64),
    Times(TimeTotals),
}

/// One metric.
#[derive(Clone, Debug)]
pub(crate) struct Family {
    /// Without unit and prefix.
    pub name: &'static str,
    pub kind: Kind,
    pub unit: &'static str,
    pub help: &'static str,
    pub series: Vec<(Labels, Value)>,
}

/// What the scoreboard does not know.
#[derive(Debug, Default)]
pub(crate) struct Surroundings {
    /// Whether each role is ready.
    pub ready: Vec<(String, bool)>,
    /// Datagrams that were sent to StatsD, and that were not; `None` without it.
    pub statsd: Option<[u64; 2]>,
    pub processes: Vec<ProcessFigures>,
    /// What the store of the jobs holds; `Some(None)`: it does not answer.
    pub store: Option<Option<StoreSizes>>,
}

/// All metrics, in their order.
#[derive(Debug)]
pub(crate) struct Metrics(pub Vec<Family>);

impl Metrics {
    /// Reads the scoreboard.
    pub fn read(report: &TreeReport, scoreboard: &Scoreboard, around: &Surroundings) -> Self {
        let mut all = Self(Vec::new());
        all.table::<RequestCounters>(&[(vec![], scoreboard.total(|counters| &counters.requests))]);
        all.table::<TraceCounters>(&[(vec![], scoreboard.total(|counters| &counters.traces))]);
        let mut certificates = named::<CertificateCounters>(scoreboard);
        certificates.retain(|(_, totals)| CertificateCounters::is_used(totals));
        all.table::<CertificateCounters>(&certificates);
        // Roles whose work has not been timed are missing: before CRuby 3.3, and without more threads.
        let waits = Role::ALL.into_iter().map(|role| {
            let waits = scoreboard.counted().map(|counters| &counters.waits[role as usize]);
            (vec![("role", role.name().to_owned())], WaitCounters::sum(waits))
        });
        let waits: Vec<_> = waits.filter(|(_, totals)| WaitCounters::is_used(totals)).collect();
        all.table::<WaitCounters>(&waits);
        all.table::<ClassCounters>(&named::<ClassCounters>(scoreboard));
        all.table::<JobCounters>(&[(vec![], scoreboard.total(|counters| &counters.jobs))]);
        all.store(around.store.as_ref());
        all.table::<TopicCounters>(&named::<TopicCounters>(scoreboard));
        all.table::<ProducedCounters>(&named::<ProducedCounters>(scoreboard));
        all.table::<BrokerCounters>(&named::<BrokerCounters>(scoreboard));
        all.table::<LiveCounters>(&[(vec![], scoreboard.total(|counters| &counters.live))]);
        all.workers(report, scoreboard, &around.ready);
        all.processes(&around.processes);
        if let Some(counts) = around.statsd {
            let help = "Datagrams with metrics to the StatsD server; failed: not taken by the system, or no address";
            let series = label("result", ["sent", "failed"].into_iter().zip(counts));
            all.add("statsd_datagrams", Kind::Counter, "", help, series);
        }
        all
    }

    /// Adds series to each metric of a table.
    fn table<T: Table>(&mut self, series: &[(Labels, T::Totals)]) {
        for row in T::ROWS.iter().filter(|row| !row.name.is_empty()) {
            let shown = series.iter().map(|(labels, totals)| {
                let value = match (row.read)(totals) {
                    Reading::Number(number) => Value::Number(number as f64 / row.scale),
                    Reading::Seconds(seconds) => Value::Number(seconds),
                    Reading::Times(times) => Value::Times(times.clone()),
                };
                let more = row.label.map(|(name, value)| (name, value.to_owned()));
                (labels.iter().cloned().chain(more).collect(), value)
            });
            self.add(row.name, row.kind, row.unit, row.help, shown);
        }
    }

    /// Adds a metric, or series to the one before if it has this name.
    fn add(
        &mut self,
        name: &'static str,
        kind: Kind,
        unit: &'static str,
        help: &'static str,
        series: impl IntoIterator<Item = (Labels, Value)>,
    ) {
        match self.0.last_mut() {
            Some(last) if last.name == name => last.series.extend(series),
            _ => {
                let series = series.into_iter().collect();
                self.0.push(Family { name, kind, unit, help, series });
            }
        }
    }

    /// Without an answer of the store its sizes are missing, not 0.
    fn store(&mut self, sizes: Option<&Option<StoreSizes>>) {
        let Some(sizes) = sizes else { return };
        let help = "Whether the store of the jobs has answered this scrape within a second";
        let answers = [(vec![], Value::Number(f64::from(u8::from(sizes.is_some()))))];
        self.add("job_store_answers", Kind::Gauge, "", help, answers);
        let Some(sizes) = sizes else { return };
        let queues = sizes.queues.iter().take(NAMES_MAX);
        let help = "Jobs that wait in a queue; of the first 200 queues";
        let waiting = queues.clone().map(|queue| (&queue.name, queue.size));
        self.add("job_queue_size", Kind::Gauge, "", help, label("queue", waiting));
        let age = |queue: &QueueSize| {
            (vec![("queue", queue.name.clone())], Value::Number(queue.latency_s))
        };
        let help = "Age of the next job of a queue";
        self.add("job_queue_latency", Kind::Gauge, "seconds", help, queues.map(age));
        let sets = label("set", sizes.sets.iter().copied());
        self.add("job_set_size", Kind::Gauge, "", "Jobs outside of the queues", sets);
        let Some(outbox) = sizes.outbox else { return };
        let help = "Age of the oldest record that a transaction has stored for the log (outbox: true) and the log does not have";
        let lag = [(vec![], Value::Number(outbox.lag_s))];
        self.add("outbox_lag", Kind::Gauge, "seconds", help, lag);
        let records = label("state", [("waiting", outbox.waiting), ("refused", outbox.refused)]);
        let help = "Such records, by state: waiting, refused";
        self.add("outbox_records", Kind::Gauge, "", help, records);
    }

    fn workers(&mut self, report: &TreeReport, scoreboard: &Scoreboard, ready: &[(String, bool)]) {
        let phases = [
            ("asked", WorkerPhase::Asked),
            ("booting", WorkerPhase::Booting),
            ("ready", WorkerPhase::Ready),
            ("stopping", WorkerPhase::Stopping),
        ];
        let states = phases.map(|(name, phase)| {
            (name, report.workers.iter().filter(|one| one.state == phase).count() as u64)
        });
        let help = "Workers by state: asked (to be forked), booting, ready, stopping";
        self.add("workers", Kind::Gauge, "", help, label("state", states));
        let ready = ready.iter().map(|(role, ready)| (role, u64::from(*ready)));
        self.add(
            "ready",
            Kind::Gauge,
            "",
            "Whether /ready is 200 for the role",
            label("role", ready),
        );
        let help = "Ends of workers: asked (to stop), restart (a phased one, or of this worker), memory (above its ceiling), died, hung (no sign of life), killed (it did not stop in time), boot (it did not become ready)";
        let exits = report.exits.iter().map(|(reason, count)| (reason, *count));
        self.add("worker_exits", Kind::Counter, "", help, label("reason", exits));
        let rows = report.workers.iter().filter(|one| one.slot < scoreboard.len());
        let working =
            rows.filter(|one| matches!(one.state, WorkerPhase::Ready | WorkerPhase::Stopping));
        let working: Vec<_> = one_of_each_number(working)
            .map(|one| (vec![("worker", one.worker.to_string())], one.slot))
            .collect();
        let gauges = working.iter().map(|(labels, slot)| {
            (labels.clone(), WorkerGauges::sum([scoreboard.slot(*slot)].into_iter()))
        });
        self.table::<WorkerGauges>(&gauges.collect::<Vec<_>>());
        let heaps = working.into_iter().map(|(labels, slot)| (labels, heap(scoreboard, slot)));
        let heaps: Vec<_> = heaps.collect();
        self.table::<HeapGauges>(&heaps);
        let eden = self.0.iter_mut().find(|one| one.name == "eden").into_iter();
        for ((labels, _), (_, heap)) in eden.flat_map(|eden| &mut eden.series).zip(&heaps) {
            labels.push(("reason", EdenReason::of(heap.eden_reason).word().to_owned()));
        }
    }

    fn processes(&mut self, processes: &[ProcessFigures]) {
        let series = processes.iter().flat_map(|process| {
            let kinds = [
                ("resident", Some(process.resident)),
                ("proportional", process.proportional),
                ("private", process.private),
            ];
            kinds.into_iter().filter_map(|(kind, bytes)| {
                let labels = vec![("process", process.name.clone()), ("kind", kind.to_owned())];
                Some((labels, Value::Number(bytes? as f64)))
            })
        });
        let help = "Memory of processes: resident, proportional (PSS) and private";
        self.add("memory", Kind::Gauge, "bytes", help, series);
    }
}

/// A series for each value of a label.
fn label(
    name: &'static str,
    values: impl IntoIterator<Item = (impl ToString, u64)>,
) -> impl Iterator<Item = (Labels, Value)> {
    let series = move |(value, number): (_, u64)| {
        (vec![(name, ToString::to_string(&value))], Value::Number(number as f64))
    };
    values.into_iter().map(series)
}

/// The sums of each name.
fn named<T: Named>(scoreboard: &Scoreboard) -> Vec<(Labels, T::Totals)> {
    let labels = |(name, place)| {
        let all = T::LABELS.into_iter().zip([name, place]);
        all.filter(|(label, _)| !label.is_empty()).collect()
    };
    scoreboard.totals::<T>().into_iter().map(|(name, totals)| (labels(name), totals)).collect()
}

/// The heap of the worker in a slot.
pub(crate) fn heap(scoreboard: &Scoreboard, slot: usize) -> HeapTotals {
    HeapGauges::sum([&scoreboard.counters(slot).heap].into_iter())
}

/// A scrape of an imagined server that has all metrics, from which their list is made.
///
/// # Errors
/// When the system gives no memory.
pub fn sample() -> io::Result<String> {
    Ok(sample_metrics()?.encode())
}

pub(crate) fn sample_metrics() -> io::Result<Metrics> {
    let scoreboard = Scoreboard::new(1)?;
    scoreboard.names::<ClassCounters>().enter("HardJob", "default");
    scoreboard.names::<TopicCounters>().enter("events", "app");
    scoreboard.names::<ProducedCounters>().enter("events", "");
    scoreboard.names::<BrokerCounters>().enter("1", "");
    scoreboard
        .names::<CertificateCounters>()
        .enter("https://0.0.0.0:443", "/etc/app/fullchain.pem");
    scoreboard.counters(0).certificates[0].not_after.store(1, Relaxed);
    scoreboard.slot(0).counted.store(1, Relaxed);
    scoreboard.counters(0).waits.iter().for_each(|one| one.gvl_wait.add(1));
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
    let names = ["main", "preloader", "admin", "worker 0"].map(str::to_owned);
    let processes = names.map(|name| ProcessFigures {
        name,
        resident: 0,
        proportional: Some(0),
        private: Some(0),
    });
    let queue = QueueSize { name: "default".to_owned(), ..QueueSize::default() };
    let sets = ["scheduled", "retries", "dead", "in_flight"].map(|set| (set, 0));
    let around = Surroundings {
        ready: ["jobs", "streams", "web"].map(|role| (role.to_owned(), true)).into(),
        statsd: Some([0; 2]),
        processes: processes.into(),
        store: Some(Some(StoreSizes {
            queues: vec![queue],
            sets: sets.into(),
            outbox: Some(OutboxStatus::default()),
        })),
    };
    Ok(Metrics::read(&report, &scoreboard, &around))
}

#[cfg(test)]
mod tests;
