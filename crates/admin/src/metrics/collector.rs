//! Writes each metric with its description and its values.

use std::fmt;

use chaton_core::clock::wall_s;
use chaton_core::process::counters::{TimeTotals, BOUNDS_S, NAMES_MAX};
use chaton_core::work::Role;
use chaton_memory::eden::EdenReason;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use super::{BrokerTotals, ClassTotals, Scrape, TopicTotals};

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
        self.certificates(&mut encoder)?;
        self.gvl_wait(&mut encoder)?;
        self.jobs(&mut encoder)?;
        self.store(&mut encoder)?;
        self.topics(&mut encoder)?;
        self.brokers(&mut encoder)?;
        self.event_streams(&mut encoder)?;
        self.workers(&mut encoder)?;
        self.heaps(&mut encoder)?;
        self.memory(&mut encoder)?;
        self.statsd(&mut encoder)
    }
}

/// Statuses of responses, by their first digit.
pub(crate) const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

impl Scrape {
    fn requests(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let help =
            "Responses by the first digit of their status; requests whose clients left before \
                    the response began are 4xx";
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
        let help =
            "Requests and bodies refused and answers cut because clients held all the room in memory and files";
        let mut no_room = metric(encoder, "requests_no_room", MetricType::Counter, None, help)?;
        counter(&mut no_room, &[], self.no_room as f64)?;
        let help = "Spans of traces that the collector took, or that were dropped";
        let mut spans = metric(encoder, "trace_spans", MetricType::Counter, None, help)?;
        for (result, count) in self.spans {
            counter(&mut spans, &[("result", result)], count as f64)?;
        }
        Ok(())
    }

    fn certificates(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let help = "When the TLS certificate that is served expires, in seconds since 1970, by bind and file; of several workers the first that expires";
        let unit = Some(&Unit::Seconds);
        let mut all = metric(encoder, "tls_certificate_not_after", MetricType::Gauge, unit, help)?;
        for ((bind, file), until) in &self.certificates {
            let labels = [("bind", bind.as_str()), ("file", file.as_str())];
            gauge(&mut all, &labels, *until as f64)?;
        }
        Ok(())
    }

    /// Roles whose work has not been timed are missing: before CRuby 3.3, and without more threads.
    fn gvl_wait(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let help = "How long requests, jobs and batches have waited for the GVL while they ran, each in all (Ruby 3.3 and later, with several threads)";
        let unit = Some(&Unit::Seconds);
        let mut waits = metric(encoder, "gvl_wait", MetricType::Histogram, unit, help)?;
        for (role, totals) in Role::ALL.into_iter().zip(&self.gvl_wait) {
            if totals.buckets.iter().any(|count| *count > 0) {
                histogram(&mut waits, &[("role", role.name())], totals)?;
            }
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
        self.job_times(encoder, "job_latency", help, |totals| &totals.latency)?;
        let help = "Outcomes of jobs that were not written, because another process had taken the jobs over";
        let mut fenced = metric(encoder, "jobs_fenced", MetricType::Counter, None, help)?;
        counter(&mut fenced, &[], self.jobs_fenced as f64)?;
        let help = "Jobs put back because this release does not know their class or the format of their document";
        let mut put_back = metric(encoder, "jobs_put_back", MetricType::Counter, None, help)?;
        counter(&mut put_back, &[], self.jobs_put_back as f64)
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
        let Some(outbox) = &sizes.outbox else { return Ok(()) };
        let help = "Age of the oldest record that a transaction has stored for the log (outbox: true) and the log does not have";
        let mut lag = metric(encoder, "outbox_lag", MetricType::Gauge, unit, help)?;
        gauge(&mut lag, &[], outbox.lag_s)?;
        let help = "Such records, by state: waiting, refused";
        let mut records = metric(encoder, "outbox_records", MetricType::Gauge, None, help)?;
        for (state, count) in [("waiting", outbox.waiting), ("refused", outbox.refused)] {
            gauge(&mut records, &[("state", state)], count as f64)?;
        }
        Ok(())
    }

    fn topics(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        type Row = (&'static str, &'static str, fn(&TopicTotals) -> u64);
        let rows: [Row; 4] = [
            ("stream_records", "Records that consumers have done", |topic| topic.records),
            ("stream_retries", "Batches that failed and are retried", |topic| topic.retries),
            ("stream_dead_letters", "Records written to a dead-letter topic", |topic| {
                topic.dead_letters
            }),
            (
                "stream_rebalances",
                "Times that partitions were assigned to consumers of this server, revoked or lost",
                |topic| topic.rebalances,
            ),
        ];
        for (name, help, value) in rows {
            let mut one = metric(encoder, name, MetricType::Counter, None, help)?;
            for ((topic, group), totals) in &self.topics {
                let labels = [("topic", topic.as_str()), ("group", group.as_str())];
                counter(&mut one, &labels, value(totals) as f64)?;
            }
        }
        let rows: [Row; 5] = [
            (
                "stream_lag",
                "Records that are not done, in the partitions that this server has; up to 1 s old",
                |topic| topic.lag,
            ),
            ("stream_partitions", "Partitions that this server has", |topic| topic.partitions),
            (
                "stream_stopped_partitions",
                "Those of them that have stopped at lost records (on_gap: :stop)",
                |topic| topic.stopped,
            ),
            ("stream_paused_partitions", "Those of them that their consumer has paused", |topic| {
                topic.paused
            }),
            (
                "stream_overdue_batches",
                "Batches that have been running for longer than max_poll_interval; up to 1 s old",
                |topic| topic.overdue,
            ),
        ];
        for (name, help, value) in rows {
            let mut one = metric(encoder, name, MetricType::Gauge, None, help)?;
            for ((topic, group), totals) in &self.topics {
                let labels = [("topic", topic.as_str()), ("group", group.as_str())];
                gauge(&mut one, &labels, value(totals) as f64)?;
            }
        }
        let help = "Age of the oldest record that is not done";
        let unit = Some(&Unit::Seconds);
        let mut age = metric(encoder, "stream_lag_age", MetricType::Gauge, unit, help)?;
        for ((topic, group), totals) in &self.topics {
            let labels = [("topic", topic.as_str()), ("group", group.as_str())];
            gauge(&mut age, &labels, totals.age_s(wall_s()))?;
        }
        let help = "Records that this server has produced, that were not written, and whose receipts nobody has read";
        let name = "stream_undelivered_records";
        let mut undelivered = metric(encoder, name, MetricType::Counter, None, help)?;
        for (topic, records) in &self.undelivered {
            counter(&mut undelivered, &[("topic", topic)], *records as f64)?;
        }
        Ok(())
    }

    fn brokers(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        type Row = (&'static str, &'static str, fn(&BrokerTotals) -> u64);
        let rows: [Row; 5] = [
            ("kafka_requests", "Requests to brokers of Kafka, by the broker's number", |one| {
                one.requests
            }),
            ("kafka_errors", "Requests and responses that failed", |one| one.errors),
            ("kafka_timeouts", "Requests that were not answered in time", |one| one.timeouts),
            ("kafka_connects", "Attempts to connect", |one| one.connects),
            ("kafka_round_trips", "Answers whose time was taken", |one| one.round_trips),
        ];
        for (name, help, value) in rows {
            let mut one = metric(encoder, name, MetricType::Counter, None, help)?;
            for (broker, totals) in &self.brokers {
                counter(&mut one, &[("broker", broker.as_str())], value(totals) as f64)?;
            }
        }
        let help = "How long these answers took, together";
        let unit = Some(&Unit::Seconds);
        let mut time = metric(encoder, "kafka_round_trip_time", MetricType::Counter, unit, help)?;
        for (broker, totals) in &self.brokers {
            let seconds = totals.round_trips_us as f64 / 1e6;
            counter(&mut time, &[("broker", broker.as_str())], seconds)?;
        }
        Ok(())
    }

    fn event_streams(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let all = &self.event_streams;
        let counters = [
            ("deliveries", all.delivered, "Events that were sent, for each connection"),
            ("gaps", all.gaps, "Times that a client was told that it has missed messages"),
            ("resumes", all.resumed, "Clients that came back without the application"),
            (
                "refusals",
                all.refused,
                "Clients that got no event stream, because there were too many",
            ),
        ];
        for (name, value, help) in counters {
            let name = format!("event_stream_{name}");
            let mut one = metric(encoder, &name, MetricType::Counter, None, help)?;
            counter(&mut one, &[], value as f64)?;
        }
        let help =
            "Messages that the slowest client of an event stream has not been sent; up to 1 s old";
        let mut lag = metric(encoder, "event_stream_lag", MetricType::Gauge, None, help)?;
        gauge(&mut lag, &[], all.lag as f64)?;
        let help = "Messages that the log of the event streams keeps";
        let name = "event_stream_history_messages";
        let mut messages = metric(encoder, name, MetricType::Gauge, None, help)?;
        gauge(&mut messages, &[], all.history_messages as f64)?;
        let (help, unit) = ("Their names and data", Some(&Unit::Bytes));
        let mut bytes = metric(encoder, "event_stream_history", MetricType::Gauge, unit, help)?;
        gauge(&mut bytes, &[], all.history_bytes as f64)
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
        let help = "Ends of workers: asked (to stop), restart (a phased one, or of this worker), memory (above its ceiling), died, hung (no sign of life), killed (it did not stop in time), boot (it did not become ready)";
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
            (
                "held",
                Some(&Unit::Bytes),
                "Memory for answers that clients do not take and bodies that they do not end",
            ),
            ("spooled", Some(&Unit::Bytes), "The same in temporary files"),
            ("event_streams", None, "Open event streams"),
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
        self.eden(encoder)?;
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

    fn eden(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let help = "How much may be allocated between two collections, as configured or found";
        let mut eden = metric(encoder, "eden", MetricType::Gauge, Some(&Unit::Bytes), help)?;
        for worker in &self.workers {
            let figure = |name| worker.heap.get(name).copied().unwrap_or(0);
            let reason = EdenReason::of(figure("eden_reason")).word();
            let labels = [("worker", worker.worker.as_str()), ("reason", reason)];
            gauge(&mut eden, &labels, figure("eden_bytes") as f64)?;
        }
        let help = "Time of collections as a share of the CPU time of the work, when last measured";
        let mut share = metric(encoder, "collection_share_ratio", MetricType::Gauge, None, help)?;
        for worker in &self.workers {
            let ppm = worker.heap.get("gc_share_ppm").copied().unwrap_or(0) as f64;
            gauge(&mut share, &[("worker", worker.worker.as_str())], ppm / 1e6)?;
        }
        Ok(())
    }

    fn statsd(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let Some(counts) = self.statsd else { return Ok(()) };
        let help = "Datagrams with metrics to the StatsD server; failed: not taken by the system, or no address";
        let mut all = metric(encoder, "statsd_datagrams", MetricType::Counter, None, help)?;
        for (result, count) in ["sent", "failed"].into_iter().zip(counts) {
            counter(&mut all, &[("result", result)], count as f64)?;
        }
        Ok(())
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
