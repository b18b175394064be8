//! Counters of the work that was done, in shared memory beside the gauges.
//!
//! They belong to a row of the scoreboard, not to a worker: the next worker of the row goes on
//! counting, so that the sum over all rows never falls. The buckets of a histogram and its sum are
//! separate atomics; a reader may see one without the other for a moment.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;

use super::table::{table, Counter, Earliest, Gauge, Highest, Oldest, Table, WorkerCounter};
pub use super::times::{add, TimeHistogram, TimeTotals, BOUNDS_S};
use crate::atomic_text::AtomicText;
use crate::work::Role;

/// Pairs of job class and queue, of topic and group, and brokers that are counted by name; the others are
/// counted together.
pub const NAMES_MAX: usize = 200;
/// The entry of all others.
pub const OTHER: usize = NAMES_MAX;
/// Longest name in bytes; the rest is cut off.
pub const NAME_BYTES_MAX: usize = 96;

table! {
    /// Requests. One thread of the worker writes them, but for `shed` and `no_room`.
    RequestCounters, RequestTotals {
        responses_1xx: Counter as "responses.1xx" => "responses" {class = "1xx"}, "Responses by the first digit of their status; requests whose clients left before the response began are 4xx";
        responses_2xx: Counter as "responses.2xx" => "responses" {class = "2xx"}, "Successes";
        responses_3xx: Counter as "responses.3xx" => "responses" {class = "3xx"}, "Redirections";
        responses_4xx: Counter as "responses.4xx" => "responses" {class = "4xx"}, "Errors of clients";
        responses_5xx: Counter as "responses.5xx" => "responses" {class = "5xx"}, "Errors of the server";
        duration: TimeHistogram => "request_duration" in seconds, "From the arrival of a request to the end of its response";
        queue_time: TimeHistogram => "request_queue_time" in seconds, "From X-Request-Start of the proxy, else from the arrival of a request, to the start of the application";
        shed: Counter => "requests_shed", "Requests answered 503 because the queue was full or too old";
        no_room: Counter => "requests_no_room", "Requests and bodies refused and answers cut because clients held all the room in memory and files";
    }
}

impl RequestCounters {
    /// Counts a final response.
    pub fn responded(&self, status: u16) {
        match status / 100 {
            1 => add(&self.responses_1xx, 1),
            2 => add(&self.responses_2xx, 1),
            3 => add(&self.responses_3xx, 1),
            4 => add(&self.responses_4xx, 1),
            5 => add(&self.responses_5xx, 1),
            _ => {}
        }
    }
}

impl RequestTotals {
    /// All responses.
    pub fn responses(&self) -> u64 {
        let fine = self.responses_1xx + self.responses_2xx + self.responses_3xx;
        fine + self.responses_4xx + self.responses_5xx
    }
}

table! {
    /// Spans of traces. Several threads write them.
    TraceCounters, TraceTotals {
        sent: Counter => "trace_spans" {result = "sent"}, "Spans of traces that the collector took, or that were dropped";
        dropped: Counter => "trace_spans" {result = "dropped"}, "Lost: the queue was full, or the collector did not take them";
    }
}

table! {
    /// A TLS certificate.
    CertificateCounters, CertificateTotals {
        not_after: Earliest => "tls_certificate_not_after" in seconds, "When the TLS certificate that is served expires, in seconds since 1970, by bind and file; of several workers the first that expires";
    }
}

table! {
    /// Work of a role. Written with the pool's lock.
    WaitCounters, WaitTotals {
        gvl_wait: TimeHistogram => "gvl_wait" in seconds, "How long requests, jobs and batches have waited for the GVL while they ran, each in all (Ruby 3.3 and later, with several threads)";
    }
}

table! {
    /// Jobs of one class and queue. Written with the lock of the jobs engine.
    ClassCounters, ClassTotals {
        done: Counter => "jobs" {result = "done"}, "Runs of jobs that ended, by class, queue and result; a job that is tried again counts each time";
        failed: Counter => "jobs" {result = "failed"}, "Failed; one that is tried again counts each time";
        run_time: TimeHistogram => "job_run_time" in seconds, "How long runs of jobs took";
        latency: TimeHistogram => "job_latency" in seconds, "From the enqueueing of jobs to their start";
    }
}

table! {
    /// All jobs.
    JobCounters, JobTotals {
        fenced: Counter => "jobs_fenced", "Outcomes of jobs that were not written, because another process had taken the jobs over";
        put_back: Counter => "jobs_put_back", "Jobs put back because this release does not know their class or the format of their document";
    }
}

table! {
    /// Records of one topic and group.
    TopicCounters, TopicTotals {
        records: Counter => "stream_records", "Records that consumers have done";
        retries: Counter => "stream_retries", "Batches that failed and are retried";
        dead_letters: Counter => "stream_dead_letters", "Records written to a dead-letter topic";
        expired: Counter => "stream_expired", "Records that were skipped because they were older than expires";
        rebalances: Counter => "stream_rebalances", "Times that partitions were assigned to consumers of this server, revoked or lost";
        lag: Gauge => "stream_lag", "Records that are not done, in the partitions that this server has; up to 1 s old";
        partitions: Gauge => "stream_partitions", "Partitions that this server has";
        stopped: Gauge => "stream_stopped_partitions", "Those of them that have stopped at lost records (on_gap: :stop)";
        paused: Gauge => "stream_paused_partitions", "Those of them that their consumer has paused";
        overdue: Gauge => "stream_overdue_batches", "Batches that have been running for longer than max_poll_interval; up to 1 s old";
        oldest_ms: Oldest as "lag_age_s" => "stream_lag_age" in seconds, "Age of the oldest record that is not done";
    }
}

table! {
    /// Records that were produced to one topic.
    ProducedCounters, ProducedTotals {
        undelivered: Counter => "stream_undelivered_records", "Records that this server has produced, that were not written, and whose receipts nobody has read";
    }
}

table! {
    /// What Kafka's clients do with one broker.
    BrokerCounters, BrokerTotals {
        requests: Counter => "kafka_requests", "Requests to brokers of Kafka, by the broker's number";
        errors: Counter => "kafka_errors", "Requests and responses that failed";
        timeouts: Counter => "kafka_timeouts", "Requests that were not answered in time";
        connects: Counter => "kafka_connects", "Attempts to connect";
        round_trips: Counter => "kafka_round_trips", "Answers whose time was taken";
        round_trips_us: Counter => "kafka_round_trip_time" in seconds / 1e6, "How long these answers took, together";
    }
}

table! {
    /// Event streams. Several threads write them.
    LiveCounters, LiveTotals {
        open: Gauge, "Event streams that are open";
        delivered: Counter => "event_stream_deliveries", "Events that were sent, for each connection";
        gaps: Counter => "event_stream_gaps", "Times that a client was told that it has missed messages";
        resumed: Counter => "event_stream_resumes", "Clients that came back without the application";
        refused: Counter => "event_stream_refusals", "Clients that got no event stream, because there were too many";
        lag: Highest => "event_stream_lag", "Messages that the slowest client of an event stream has not been sent; up to 1 s old";
        history_messages: Highest => "event_stream_history_messages", "Messages that the log of the event streams keeps";
        history_bytes: Highest => "event_stream_history" in bytes, "Their names and data";
    }
}

table! {
    /// A worker's garbage collections, heap and allocator.
    HeapGauges, HeapTotals {
        minor_total: WorkerCounter as "gc_minor_total" => "collections" {kind = "minor"}, "Garbage collections since the worker started; major_inside are the major ones that began inside of work";
        major_total: WorkerCounter as "gc_major_total" => "collections" {kind = "major"}, "Full collections";
        major_inside_total: WorkerCounter as "gc_major_inside_total" => "collections" {kind = "major_inside"}, "Full collections that began inside a unit of work";
        inside_ns: WorkerCounter as "gc_inside_ns" => "collection_time" {when = "inside"} in seconds / 1e9, "Time of garbage collections inside of work and between";
        between_ns: WorkerCounter as "gc_between_ns" => "collection_time" {when = "between"} in seconds / 1e9, "Time spent collecting outside of work";
        live_slots: Gauge => "heap" {kind = "live_slots"}, "Ruby's heap: slots that hold objects, objects that were promoted, pages";
        old_objects: Gauge => "heap" {kind = "old_objects"}, "Objects that were promoted";
        heap_pages: Gauge => "heap" {kind = "pages"}, "Pages of the heap";
        eden_bytes: Gauge => "eden" in bytes, "How much may be allocated between two collections, as configured or found";
        gc_share_ppm: Gauge => "collection_share_ratio" / 1e6, "Time of collections as a share of the CPU time of the work, when last measured";
        allocated_bytes: Gauge as "allocator_allocated" => "allocator" {kind = "allocated"} in bytes, "Memory of the allocator: allocated, in pages that are in use, resident, kept as addresses";
        active_bytes: Gauge as "allocator_active" => "allocator" {kind = "active"} in bytes, "Bytes in pages with at least one allocation";
        resident_bytes: Gauge as "allocator_resident" => "allocator" {kind = "resident"} in bytes, "Bytes of physical memory held by the allocator";
        retained_bytes: Gauge as "allocator_retained" => "allocator" {kind = "retained"} in bytes, "Bytes whose memory was given back but whose addresses are kept";
        eden_reason: Gauge, "Why eden has its size, as the number of a reason in `chaton_memory::eden`";
    }
}

/// A table that is kept for each name, beside one for all names that have no place.
pub trait Named: Table + Sized + 'static {
    /// The place of its [`WorkNames`].
    const NAMES: usize;
    /// What the two parts of a name are; empty: there is only one.
    const LABELS: [&'static str; 2];

    /// All tables of a row of the scoreboard; the last one is that of all others.
    fn all(counters: &WorkCounters) -> &[Self; NAMES_MAX + 1];
}

/// Defines the counters of a row: tables, and tables by name.
macro_rules! work_counters {
    ($($one:ident: $of:ty,)* ; $($many:ident: $table:ty, $names:literal, $labels:expr;)*) => {
        /// The counters of one row.
        #[repr(C, align(128))]
        pub struct WorkCounters {
            $(#[doc = concat!("See [`", stringify!($of), "`].")] pub $one: $of,)*
            /// By [`Role`].
            pub waits: [WaitCounters; Role::ALL.len()],
            $(#[doc = concat!("See [`", stringify!($table), "`].")] pub $many: [$table; NAMES_MAX + 1],)*
        }

        impl WorkCounters {
            /// Their worker has ended.
            pub(super) fn end(&self) {
                $(self.$one.end();)*
                $(self.$many.iter().for_each(Table::end);)*
            }

            pub(super) const CELLS: &'static [&'static str] =
                &[$(<$of>::CELLS,)* WaitCounters::CELLS, $(<$table>::CELLS,)*];
            /// Tables of names.
            pub(super) const NAME_TABLES: usize = [$($names,)*].len();
        }

        $(impl Named for $table {
            const NAMES: usize = $names;
            const LABELS: [&'static str; 2] = $labels;

            fn all(counters: &WorkCounters) -> &[Self; NAMES_MAX + 1] {
                &counters.$many
            }
        })*
    };
}

work_counters! {
    requests: RequestCounters, traces: TraceCounters, jobs: JobCounters, live: LiveCounters, heap: HeapGauges,;
    classes: ClassCounters, 0, ["class", "queue"];
    topics: TopicCounters, 1, ["topic", "group"];
    brokers: BrokerCounters, 2, ["broker", ""];
    certificates: CertificateCounters, 3, ["bind", "file"];
    produced: ProducedCounters, 4, ["topic", ""];
}

const FREE: u32 = 0;
const CLAIMED: u32 = 1;
const READY: u32 = 2;

#[repr(C)]
struct NameEntry {
    state: AtomicU32,
    /// A job class, a topic, a broker, or a listening address.
    name: AtomicText<{ NAME_BYTES_MAX / 8 }>,
    /// Its queue, its group, or the file of its certificate; empty for a broker.
    place: AtomicText<{ NAME_BYTES_MAX / 8 }>,
}

/// The names of what is counted, which all processes share: the first ones that any of them uses.
#[repr(C, align(128))]
pub struct WorkNames {
    entries: [NameEntry; NAMES_MAX],
}

impl WorkNames {
    /// Class and queue, or topic and group, of an entry, once they are written.
    pub fn get(&self, index: usize) -> Option<(String, String)> {
        let entry = self.entries.get(index)?;
        (entry.state.load(Ordering::Acquire) == READY)
            .then(|| (entry.name.get(), entry.place.get()))
    }

    /// The entry of a class and queue, or a topic and group, which takes a free one. Two processes that use a name first at
    /// the same moment may take two; an entry whose process died while it wrote stays empty.
    pub fn enter(&self, class: &str, queue: &str) -> usize {
        for (index, entry) in self.entries.iter().enumerate() {
            let (order, state) = (Ordering::Acquire, &entry.state);
            match state.compare_exchange(FREE, CLAIMED, order, order) {
                Ok(_) => {
                    entry.name.set(class.as_bytes());
                    entry.place.set(queue.as_bytes());
                    state.store(READY, Ordering::Release);
                    return index;
                }
                Err(READY) if entry.name.get() == class && entry.place.get() == queue => {
                    return index;
                }
                Err(_) => {}
            }
        }
        OTHER
    }
}

/// A text that fits, without half a character and without zeros, which would end it.
fn cut(text: &str) -> &str {
    let text = text.split('\0').next().unwrap_or_default();
    let mut end = text.len().min(NAME_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Queues with their entries.
type QueueEntries = Vec<(Box<str>, usize)>;

/// The entries of [`WorkNames`] that this process knows.
#[derive(Default)]
pub struct NameCache {
    /// By class, each queue with its entry; as written, not cut.
    known: RwLock<FxHashMap<Box<str>, QueueEntries>>,
    /// All entries are taken, and known: no further name gets one.
    full: AtomicBool,
    entering: Mutex<()>,
}

impl NameCache {
    /// The entry of a class and queue.
    pub fn index(&self, names: &WorkNames, class: &str, queue: &str) -> usize {
        // Almost all names are known as they are.
        if let Some(index) = self.known(class, queue) {
            return index;
        }
        let (class, queue) = (cut(class), cut(queue));
        if let Some(index) = self.find(class, queue) {
            return index;
        }
        let _one_at_a_time = self.entering.lock();
        if let Some(index) = self.find(class, queue) {
            return index;
        }
        let index = names.enter(class, queue);
        if index == OTHER {
            let all = (0..NAMES_MAX).filter_map(|index| Some((names.get(index)?, index)));
            all.for_each(|((class, queue), index)| self.learn(&class, &queue, index));
            self.full.store(true, Ordering::Release);
        } else {
            self.learn(class, queue, index);
        }
        index
    }

    fn learn(&self, class: &str, queue: &str, index: usize) {
        if self.known(class, queue).is_none() {
            self.known.write().entry(class.into()).or_default().push((queue.into(), index));
        }
    }

    fn find(&self, class: &str, queue: &str) -> Option<usize> {
        let full = self.full.load(Ordering::Acquire);
        self.known(class, queue).or(full.then_some(OTHER))
    }

    fn known(&self, class: &str, queue: &str) -> Option<usize> {
        let known = self.known.read();
        let queues = known.get(class)?;
        queues.iter().find(|(name, _)| **name == *queue).map(|(_, index)| *index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Box<WorkNames> {
        // SAFETY: zeros are valid atomics.
        unsafe { Box::new(std::mem::zeroed()) }
    }

    #[test]
    fn names_beyond_the_bound_are_counted_together() {
        let (names, cache) = (names(), NameCache::default());
        for number in 0..10_000 {
            let index = cache.index(&names, &format!("Job{number}"), "default");
            assert_eq!(index, number.min(OTHER));
        }
        assert_eq!(cache.index(&names, "Job7", "default"), 7);
        assert_eq!(cache.index(&names, "Job7", "low"), OTHER);
        assert_eq!(names.get(7), Some(("Job7".into(), "default".into())));
        assert_eq!(cache.known.read().len(), NAMES_MAX);
        let later = NameCache::default();
        assert_eq!(later.index(&names, "Job9999", "default"), OTHER);
        assert_eq!(later.index(&names, "Job199", "default"), 199);
    }

    #[test]
    fn processes_share_the_names() {
        let names = names();
        let (one, other) = (NameCache::default(), NameCache::default());
        assert_eq!(one.index(&names, "A", "default"), 0);
        assert_eq!(other.index(&names, "B", "default"), 1);
        assert_eq!(other.index(&names, "A", "default"), 0);
        assert_eq!(one.index(&names, "B", "default"), 1);
    }

    #[test]
    fn long_names_are_cut_between_characters() {
        let names = names();
        let long = format!("{}ä", "x".repeat(NAME_BYTES_MAX - 1));
        assert_eq!(NameCache::default().index(&names, &long, "q\0r"), 0);
        let entry = ("x".repeat(NAME_BYTES_MAX - 1), "q".to_owned());
        assert_eq!(names.get(0), Some(entry));
        assert_eq!(NameCache::default().index(&names, &long, "q\0r"), 0);
    }
}
