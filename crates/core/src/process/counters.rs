//! Counters of the work that was done, in shared memory beside the gauges.
//!
//! They belong to a row of the scoreboard, not to a worker: the next worker of the row goes on
//! counting, so that the sum over all rows never falls. The buckets of a histogram and its sum are
//! separate atomics; a reader may see one without the other for a moment.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;

use crate::atomic_text::AtomicText;
use crate::work::Role;

/// Pairs of job class and queue, of topic and group, and brokers that are counted by name; the others are
/// counted together.
pub const NAMES_MAX: usize = 200;
/// The entry of all others.
pub const OTHER: usize = NAMES_MAX;
/// Longest name in bytes; the rest is cut off.
pub const NAME_BYTES_MAX: usize = 96;

const BUCKETS: usize = 17;
/// Upper bounds of the buckets (s); what is longer is in one more. The page shows percentiles as ranges between
/// them, so that also those of jobs that run for minutes say something.
pub const BOUNDS_S: [f64; BUCKETS] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0,
    300.0,
];

/// Adds to a counter that only one thread writes at a time, without a locked instruction.
pub fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
}

/// How many times took how long.
#[repr(C)]
#[derive(Default)]
pub struct TimeHistogram {
    buckets: [AtomicU64; BUCKETS + 1],
    sum_ns: AtomicU64,
}

impl TimeHistogram {
    fn bucket(ns: u64) -> usize {
        let seconds = ns as f64 / 1e9;
        BOUNDS_S.iter().position(|bound| seconds <= *bound).unwrap_or(BUCKETS)
    }

    /// Adds a time; any thread may.
    pub fn add(&self, ns: u64) {
        self.buckets[Self::bucket(ns)].fetch_add(1, Ordering::Relaxed);
        self.sum_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// Adds a time, where only one thread does at a time.
    pub fn add_alone(&self, ns: u64) {
        add(&self.buckets[Self::bucket(ns)], 1);
        add(&self.sum_ns, ns);
    }

    /// Adds what it has counted to `totals`.
    pub fn sum_into(&self, totals: &mut TimeTotals) {
        for (sum, bucket) in totals.buckets.iter_mut().zip(&self.buckets) {
            *sum += bucket.load(Ordering::Relaxed);
        }
        totals.sum_ns += self.sum_ns.load(Ordering::Relaxed);
    }
}

/// The sum of several [`TimeHistogram`]s.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimeTotals {
    /// Times in each bucket, the last one without a bound.
    pub buckets: [u64; BUCKETS + 1],
    /// Their sum (ns).
    pub sum_ns: u64,
}

impl TimeTotals {
    /// Adds others.
    pub fn add(&mut self, others: &Self) {
        self.buckets.iter_mut().zip(others.buckets).for_each(|(sum, more)| *sum += more);
        self.sum_ns += others.sum_ns;
    }
}

/// Requests. One thread of the worker writes them.
#[repr(C)]
#[derive(Default)]
pub struct RequestCounters {
    /// Final responses by the first digit of their status.
    pub responses: [AtomicU64; 5],
    /// From the arrival of a request to the end of its response.
    pub duration: TimeHistogram,
    /// From the stamp of a proxy, or else the arrival, to the start of the application.
    pub queue_time: TimeHistogram,
    /// Requests that were answered 503 because the queue was full or too old. Several threads write it.
    pub shed: AtomicU64,
    /// Bodies and answers for which there was no room. Several threads write it.
    pub no_room: AtomicU64,
}

impl RequestCounters {
    /// Counts a final response.
    pub fn responded(&self, status: u16) {
        if let Some(counter) = self.responses.get((status / 100).wrapping_sub(1) as usize) {
            add(counter, 1);
        }
    }
}

/// Jobs of one class and queue. Written with the lock of the jobs engine.
#[repr(C)]
#[derive(Default)]
pub struct ClassCounters {
    /// Ended without a failure.
    pub done: AtomicU64,
    /// Failed; one that is tried again counts each time.
    pub failed: AtomicU64,
    /// How long they ran.
    pub run_time: TimeHistogram,
    /// From the enqueueing to the start.
    pub latency: TimeHistogram,
}

/// Records of one topic and group.
#[repr(C)]
#[derive(Default)]
pub struct TopicCounters {
    /// Records that are done.
    pub records: AtomicU64,
    /// Batches that failed and are retried.
    pub retries: AtomicU64,
    /// Records written to a dead-letter topic.
    pub dead_letters: AtomicU64,
    /// A gauge: records that are not done, in the partitions that the worker has.
    pub lag: AtomicU64,
    /// A gauge: the time of the oldest of them (ms since 1970); 0 without one.
    pub oldest_ms: AtomicU64,
    /// A gauge: partitions that the worker has.
    pub partitions: AtomicU64,
    /// A gauge: those that have stopped at lost records.
    pub stopped: AtomicU64,
    /// A gauge: those that their consumer has paused.
    pub paused: AtomicU64,
    /// A gauge: batches that have been running for longer than `max_poll_interval`.
    pub overdue: AtomicU64,
    /// Times that partitions were assigned, revoked or lost.
    pub rebalances: AtomicU64,
    /// Records that this worker has produced, that were not written, and whose receipt nobody has read. Counted
    /// at the entry of the topic without a group.
    pub undelivered: AtomicU64,
}

/// Spans of traces. Several threads write them.
#[repr(C)]
#[derive(Default)]
pub struct TraceCounters {
    /// Taken by the collector.
    pub sent: AtomicU64,
    /// Lost: the queue was full, or the collector did not take them.
    pub dropped: AtomicU64,
}

/// Event streams. Several threads write them.
#[repr(C)]
#[derive(Default)]
pub struct LiveCounters {
    /// Events that went to a connection, for each connection.
    pub delivered: AtomicU64,
    /// Times that a client was told that it has missed messages.
    pub gaps: AtomicU64,
    /// Clients that came back without the application.
    pub resumed: AtomicU64,
    /// Clients that got no stream, because there were too many.
    pub refused: AtomicU64,
}

/// What Kafka's clients do with one broker.
#[repr(C)]
#[derive(Default)]
pub struct BrokerCounters {
    /// Requests that were sent.
    pub requests: AtomicU64,
    /// Requests and responses that failed.
    pub errors: AtomicU64,
    /// Requests without an answer in time.
    pub timeouts: AtomicU64,
    /// Attempts to connect.
    pub connects: AtomicU64,
    /// Round trips that were timed.
    pub round_trips: AtomicU64,
    /// How long they took together (µs).
    pub round_trips_us: AtomicU64,
}

/// The counters of one row.
#[repr(C, align(128))]
pub struct WorkCounters {
    /// Requests.
    pub requests: RequestCounters,
    /// Spans.
    pub traces: TraceCounters,
    /// Event streams.
    pub live: LiveCounters,
    /// How long work has waited for the GVL, by [`Role`]. Written with the pool's lock.
    pub gvl_wait: [TimeHistogram; Role::ALL.len()],
    /// Outcomes of jobs that were not written, because another process has taken the jobs over.
    pub jobs_fenced: AtomicU64,
    /// Jobs that this release does not know, put back for another one.
    pub jobs_put_back: AtomicU64,
    /// Jobs, in the order of [`WorkNames`]; the last entry is that of all others.
    pub jobs: [ClassCounters; NAMES_MAX + 1],
    /// Records, in the order of their [`WorkNames`].
    pub topics: [TopicCounters; NAMES_MAX + 1],
    /// Kafka's brokers, in the order of their [`WorkNames`].
    pub brokers: [BrokerCounters; NAMES_MAX + 1],
    /// Gauges: when the TLS certificates that are served expire (s since 1970), in the order of their
    /// [`WorkNames`]; 0: not served.
    pub certificates: [AtomicU64; NAMES_MAX + 1],
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
    fn a_time_is_in_the_first_bucket_that_it_fits_into() {
        let histogram = TimeHistogram::default();
        histogram.add(1_000_000);
        histogram.add_alone(1_000_001);
        histogram.add(301_000_000_000);
        let mut totals = TimeTotals::default();
        histogram.sum_into(&mut totals);
        assert_eq!((totals.buckets[0], totals.buckets[1], totals.buckets[BUCKETS]), (1, 1, 1));
        assert_eq!(totals.sum_ns, 301_002_000_001);
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
