//! What `/metrics` answers: the counters of the scoreboard, the workers' gauges, and the memory of the
//! processes, as OpenMetrics text.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::atomic::Ordering::Relaxed;

use chaton_core::process::counters::{RequestCounters, TimeTotals, BOUNDS_S, NAMES_MAX, OTHER};
use chaton_core::process::scoreboard::Scoreboard;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{text, DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use crate::queues::{QueueSize, StoreSizes};
use crate::tree::{one_of_each_number, TreeReport, WorkerEntry, WorkerPhase};

/// The text's media type.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The name of what is counted together.
const ALL_OTHERS: &str = "other";

/// Memory of one process in bytes; the exact figures are read less often.
#[derive(Clone, Debug)]
pub struct ProcessFigures {
    /// `supervisor`, `admin`, or `worker` and its number.
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
struct ClassTotals {
    done: u64,
    failed: u64,
    run_time: TimeTotals,
    latency: TimeTotals,
}

/// Records of a topic and group in all workers.
#[derive(Clone, Debug, Default)]
struct TopicTotals {
    records: u64,
    retries: u64,
    dead_letters: u64,
    lag: u64,
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
    responses: [u64; 5],
    shed: u64,
    /// Spans of traces: sent and dropped.
    spans: [(&'static str, u64); 2],
    duration: TimeTotals,
    queue_time: TimeTotals,
    jobs: BTreeMap<(String, String), ClassTotals>,
    /// By topic and group.
    topics: BTreeMap<(String, String), TopicTotals>,
    workers: Vec<WorkerFigures>,
    states: [(&'static str, u64); 4],
    ready: Vec<(String, bool)>,
    exits: BTreeMap<String, u64>,
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
        }
        scrape.spans = [("sent", sent), ("dropped", dropped)];
        scrape.add_jobs(scoreboard);
        scrape.add_topics(scoreboard);
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
            for topic in scoreboard.counted().map(|counters| &counters.topics[index]) {
                totals.records += topic.records.load(Relaxed);
                totals.retries += topic.retries.load(Relaxed);
                totals.dead_letters += topic.dead_letters.load(Relaxed);
                totals.lag += topic.lag.load(Relaxed);
            }
            if index != OTHER || totals.records + totals.lag > 0 {
                let sum = self.topics.entry(name).or_default();
                sum.records += totals.records;
                sum.retries += totals.retries;
                sum.dead_letters += totals.dead_letters;
                sum.lag += totals.lag;
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

fn figures(worker: usize, scoreboard: &Scoreboard, row: usize) -> WorkerFigures {
    let gauges = scoreboard.slot(row);
    let number = |gauge: &std::sync::atomic::AtomicU32| f64::from(gauge.load(Relaxed));
    let gauges_of = vec![
        ("connections", number(&gauges.connections)),
        ("queued", number(&gauges.queued)),
        ("running", number(&gauges.running)),
        ("threads", number(&gauges.threads)),
        ("queue_age", number(&gauges.queue_age_ms) / 1000.0),
    ];
    let heap = gauges.heap.gauges().into_iter();
    WorkerFigures {
        worker: worker.to_string(),
        gauges: gauges_of,
        heap: heap.map(|(name, gauge)| (name, gauge.load(Relaxed))).collect(),
    }
}

type Encoded = Result<(), fmt::Error>;

/// Writes the head of one metric and then its values.
fn metric<'a>(
    encoder: &'a mut DescriptorEncoder<'_>,
    name: &'a str,
    kind: MetricType,
    unit: Option<&'a Unit>,
    help: &str,
) -> Result<MetricEncoder<'a>, fmt::Error> {
    encoder.encode_descriptor(name, help, unit, kind)
}

/// Labels with their values.
type Labels<'a> = &'a [(&'a str, &'a str)];

fn histogram(encoder: &mut MetricEncoder<'_>, labels: Labels<'_>, totals: &TimeTotals) -> Encoded {
    let bounds = BOUNDS_S.iter().copied().chain([f64::INFINITY]);
    let buckets: Vec<_> = bounds.zip(totals.buckets).collect();
    let (sum_s, count) = (totals.sum_ns as f64 / 1e9, totals.buckets.iter().sum());
    if labels.is_empty() {
        return encoder.encode_histogram::<NoLabelSet>(sum_s, count, &buckets, None);
    }
    encoder.encode_family(&labels)?.encode_histogram::<NoLabelSet>(sum_s, count, &buckets, None)
}

fn counter(encoder: &mut MetricEncoder<'_>, labels: Labels<'_>, value: f64) -> Encoded {
    if labels.is_empty() {
        return encoder.encode_counter::<NoLabelSet, _, f64>(&value, None);
    }
    encoder.encode_family(&labels)?.encode_counter::<NoLabelSet, _, f64>(&value, None)
}

fn gauge(encoder: &mut MetricEncoder<'_>, labels: Labels<'_>, value: f64) -> Encoded {
    if labels.is_empty() {
        return encoder.encode_gauge(&value);
    }
    encoder.encode_family(&labels)?.encode_gauge(&value)
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Encoded {
        self.requests(&mut encoder)?;
        self.jobs(&mut encoder)?;
        self.store(&mut encoder)?;
        self.topics(&mut encoder)?;
        self.workers(&mut encoder)?;
        self.heaps(&mut encoder)?;
        self.memory(&mut encoder)
    }
}

const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

impl Scrape {
    fn requests(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let help = "Responses by the first digit of their status";
        let mut responses = metric(encoder, "responses", MetricType::Counter, None, help)?;
        for (class, count) in CLASSES.iter().zip(self.responses) {
            counter(&mut responses, &[("class", *class)], count as f64)?;
        }
        let seconds = Some(&Unit::Seconds);
        let help = "From the arrival of a request to the end of its response";
        let mut duration =
            metric(encoder, "request_duration", MetricType::Histogram, seconds, help)?;
        histogram(&mut duration, &[], &self.duration)?;
        let help = "From X-Request-Start of the proxy, else from the arrival of a request, to the start of the application";
        let mut queued =
            metric(encoder, "request_queue_time", MetricType::Histogram, seconds, help)?;
        histogram(&mut queued, &[], &self.queue_time)?;
        let help = "Requests answered 503 because the queue was full or too old";
        let mut shed = metric(encoder, "requests_shed", MetricType::Counter, None, help)?;
        counter(&mut shed, &[], self.shed as f64)?;
        let help = "Spans of traces that the collector took, or that were dropped";
        let mut spans = metric(encoder, "trace_spans", MetricType::Counter, None, help)?;
        for (result, count) in self.spans {
            counter(&mut spans, &[("result", result)], count as f64)?;
        }
        Ok(())
    }

    fn jobs(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let help = "Runs of jobs that ended, by class, queue and result; a job that is tried again counts each time";
        let mut jobs = metric(encoder, "jobs", MetricType::Counter, None, help)?;
        for ((class, queue), totals) in &self.jobs {
            for (result, count) in [("done", totals.done), ("failed", totals.failed)] {
                let labels =
                    [("class", class.as_str()), ("queue", queue.as_str()), ("result", result)];
                counter(&mut jobs, &labels, count as f64)?;
            }
        }
        let help = "How long runs of jobs took";
        self.job_times(encoder, "job_run_time", help, |totals| &totals.run_time)?;
        let help = "From the enqueueing of jobs to their start";
        self.job_times(encoder, "job_latency", help, |totals| &totals.latency)
    }

    fn job_times(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
        times_of: fn(&ClassTotals) -> &TimeTotals,
    ) -> Encoded {
        let unit = Some(&Unit::Seconds);
        let mut times = metric(encoder, name, MetricType::Histogram, unit, help)?;
        for ((class, queue), totals) in &self.jobs {
            let labels = [("class", class.as_str()), ("queue", queue.as_str())];
            histogram(&mut times, &labels, times_of(totals))?;
        }
        Ok(())
    }

    /// Without an answer of the store its sizes are missing, not 0.
    fn store(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let Some(sizes) = &self.store else { return Ok(()) };
        let help = "Whether the store of the jobs has answered this scrape within a second";
        let mut answers = metric(encoder, "job_store_answers", MetricType::Gauge, None, help)?;
        gauge(&mut answers, &[], f64::from(u8::from(sizes.is_some())))?;
        let Some(sizes) = sizes else { return Ok(()) };
        let queues = &sizes.queues[..sizes.queues.len().min(NAMES_MAX)];
        let help = "Jobs that wait in a queue; of the first 200 queues";
        let mut size = metric(encoder, "job_queue_size", MetricType::Gauge, None, help)?;
        for queue in queues {
            gauge(&mut size, &[("queue", queue.name.as_str())], queue.size as f64)?;
        }
        let help = "Age of the next job of a queue";
        let unit = Some(&Unit::Seconds);
        let mut latency = metric(encoder, "job_queue_latency", MetricType::Gauge, unit, help)?;
        for queue in queues {
            gauge(&mut latency, &[("queue", queue.name.as_str())], queue.latency_s)?;
        }
        let help = "Jobs outside of the queues";
        let mut sets = metric(encoder, "job_set_size", MetricType::Gauge, None, help)?;
        for (set, size) in &sizes.sets {
            gauge(&mut sets, &[("set", *set)], *size as f64)?;
        }
        Ok(())
    }

    fn topics(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        type Row = (&'static str, &'static str, fn(&TopicTotals) -> u64);
        let rows: [Row; 3] = [
            ("stream_records", "Records that consumers have done", |topic| topic.records),
            ("stream_retries", "Batches that failed and are retried", |topic| topic.retries),
            ("stream_dead_letters", "Records written to a dead-letter topic", |topic| {
                topic.dead_letters
            }),
        ];
        for (name, help, value) in rows {
            let mut one = metric(encoder, name, MetricType::Counter, None, help)?;
            for ((topic, group), totals) in &self.topics {
                let labels = [("topic", topic.as_str()), ("group", group.as_str())];
                counter(&mut one, &labels, value(totals) as f64)?;
            }
        }
        let help =
            "Records that are not done, in the partitions that this server has; up to 1 s old";
        let mut lag = metric(encoder, "stream_lag", MetricType::Gauge, None, help)?;
        for ((topic, group), totals) in &self.topics {
            let labels = [("topic", topic.as_str()), ("group", group.as_str())];
            gauge(&mut lag, &labels, totals.lag as f64)?;
        }
        Ok(())
    }

    fn workers(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let help = "Workers by state: asked (to be forked), booting, ready, stopping";
        let mut states = metric(encoder, "workers", MetricType::Gauge, None, help)?;
        for (state, count) in self.states {
            gauge(&mut states, &[("state", state)], count as f64)?;
        }
        let help = "Whether /ready is 200 for the role";
        let mut ready = metric(encoder, "ready", MetricType::Gauge, None, help)?;
        for (role, found) in &self.ready {
            gauge(&mut ready, &[("role", role.as_str())], f64::from(u8::from(*found)))?;
        }
        let help = "Ends of workers: asked (to stop), died, killed (hung or too slow), boot (it did not become ready)";
        let mut exits = metric(encoder, "worker_exits", MetricType::Counter, None, help)?;
        for (reason, count) in &self.exits {
            counter(&mut exits, &[("reason", reason.as_str())], *count as f64)?;
        }
        let gauges = [
            ("connections", None, "Open connections of clients"),
            ("queued", None, "Requests that wait for a thread"),
            ("running", None, "Requests, jobs and batches that threads run"),
            ("threads", None, "Threads of the pool"),
            ("queue_age", Some(&Unit::Seconds), "Age of the oldest request that waits"),
        ];
        for (name, unit, help) in gauges {
            let mut one = metric(encoder, name, MetricType::Gauge, unit, help)?;
            for worker in &self.workers {
                let value = worker.gauges.iter().find(|(other, _)| *other == name);
                let value = value.map_or(0.0, |(_, value)| *value);
                gauge(&mut one, &[("worker", worker.worker.as_str())], value)?;
            }
        }
        Ok(())
    }

    /// Values of heaps: each row is a label with the gauge it shows.
    fn heap(
        &self,
        encoder: &mut MetricEncoder<'_>,
        label: &str,
        values: &[(&str, &str)],
        write: impl Fn(&mut MetricEncoder<'_>, Labels<'_>, f64) -> Encoded,
    ) -> Encoded {
        for worker in &self.workers {
            for (value, name) in values {
                let labels = [("worker", worker.worker.as_str()), (label, *value)];
                write(encoder, &labels, worker.heap.get(name).copied().unwrap_or(0) as f64)?;
            }
        }
        Ok(())
    }

    fn heaps(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let help = "Garbage collections since the worker started; major_inside are the major ones that began inside of work";
        let mut runs = metric(encoder, "collections", MetricType::Counter, None, help)?;
        let kinds = [
            ("minor", "gc_minor_total"),
            ("major", "gc_major_total"),
            ("major_inside", "gc_major_inside_total"),
        ];
        self.heap(&mut runs, "kind", &kinds, counter)?;
        let help = "Time of garbage collections inside of work and between";
        let unit = Some(&Unit::Seconds);
        let mut time = metric(encoder, "collection_time", MetricType::Counter, unit, help)?;
        let kinds = [("inside", "gc_inside_ns"), ("between", "gc_between_ns")];
        self.heap(&mut time, "when", &kinds, |out, labels, ns| counter(out, labels, ns / 1e9))?;
        let help = "Ruby's heap: slots that hold objects, objects that were promoted, pages";
        let mut heap = metric(encoder, "heap", MetricType::Gauge, None, help)?;
        let kinds =
            [("live_slots", "live_slots"), ("old_objects", "old_objects"), ("pages", "heap_pages")];
        self.heap(&mut heap, "kind", &kinds, gauge)?;
        let help = "Memory of the allocator: allocated, in pages that are in use, resident, kept as addresses";
        let unit = Some(&Unit::Bytes);
        let mut bytes = metric(encoder, "allocator", MetricType::Gauge, unit, help)?;
        let kinds = [
            ("allocated", "allocator_allocated"),
            ("active", "allocator_active"),
            ("resident", "allocator_resident"),
            ("retained", "allocator_retained"),
        ];
        self.heap(&mut bytes, "kind", &kinds, gauge)
    }

    fn memory(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let help = "Memory of processes: resident, proportional (PSS) and private";
        let mut memory = metric(encoder, "memory", MetricType::Gauge, Some(&Unit::Bytes), help)?;
        for process in &self.processes {
            let kinds = [
                ("resident", Some(process.resident)),
                ("proportional", process.proportional),
                ("private", process.private),
            ];
            for (kind, bytes) in kinds {
                let Some(bytes) = bytes else { continue };
                let labels = [("process", process.name.as_str()), ("kind", kind)];
                gauge(&mut memory, &labels, bytes as f64)?;
            }
        }
        Ok(())
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
    let exits = ["asked", "boot", "died", "killed"].map(|reason| (reason.to_owned(), 0));
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
    let names = ["main", "admin", "worker 0"].map(str::to_owned);
    scrape.processes = names
        .map(|name| ProcessFigures { name, resident: 0, proportional: Some(0), private: Some(0) })
        .into();
    let queue = QueueSize { name: "default".to_owned(), size: 0, latency_s: 0.0 };
    let sets = ["scheduled", "retries", "dead", "in_flight"].map(|set| (set, 0));
    scrape.store = Some(Some(StoreSizes { queues: vec![queue], sets: sets.into() }));
    scrape.encode().map_err(io::Error::other)
}

#[cfg(test)]
mod tests;
