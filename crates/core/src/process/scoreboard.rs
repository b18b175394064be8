//! The scoreboard: shared memory, made before the fork, in which every worker
//! publishes its load. Sibling workers read it to decide which of them accepts a
//! connection; the supervisor reads it to answer `status`.
//!
//! All fields are relaxed atomics. Each is a gauge of its own; a reader that sees
//! some old and some new gauges only makes one decision on stale data.

use std::fmt;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::Arc;

use crate::process::counters::{
    BrokerCounters, ClassCounters, NameCache, WorkCounters, WorkNames, NAMES_MAX,
};
use crate::shared_mapping::{Layout, SharedMapping};

/// Raise the version with every change of [`WorkerGauges`], [`WorkCounters`] or [`WorkNames`].
///
/// All gauges come first, so that a look at all of them touches few pages, then all counters. The
/// counters of four more elements are the names of what is counted: of jobs, topics, brokers and certificates.
const LAYOUT: Layout = Layout {
    magic: *b"chatscor",
    version: 13,
    element_bytes: size_of::<WorkerGauges>() + size_of::<WorkCounters>(),
};
/// Tables of names behind the slots.
const NAME_TABLES: usize = 4;
const _: () = assert!(size_of::<WorkNames>() <= size_of::<WorkCounters>());

/// The gauges of one worker. Padded so that two workers never share a cache line.
#[repr(C, align(128))]
#[derive(Default)]
pub struct WorkerGauges {
    /// Process id of the worker, 0 when the slot is free.
    pub pid: AtomicU32,
    /// Open client connections.
    pub connections: AtomicU32,
    /// Those of them whose first response has not begun, and that have not idled.
    pub unserved: AtomicU32,
    /// Interactive units of work in the queue.
    pub queued: AtomicU32,
    /// Units of work that Ruby threads are running.
    pub running: AtomicU32,
    /// Ruby threads in the pool.
    pub threads: AtomicU32,
    /// Age in ms of the oldest waiting unit of work, at the last observation.
    pub queue_age_ms: AtomicU32,
    /// 1 while one thread keeps the CPU, so that waiting work is not taken.
    pub hogged: AtomicU32,
    /// When a Ruby thread last took work, in ms of the monotonic clock.
    pub taken_at_ms: AtomicU64,
    /// 1 while the worker accepts connections.
    pub accepting: AtomicU32,
    /// Requests read since the worker started.
    pub requests_total: AtomicU64,
    /// Requests answered 503 because the queue was full or too old.
    pub shed_total: AtomicU64,
    /// Units of work finished since the worker started.
    pub finished_total: AtomicU64,
    /// Garbage collections and the heap.
    pub heap: HeapGauges,
    /// When the last heartbeat reached the job store, in ms since boot; 0: none has.
    pub jobs_heartbeat_ms: AtomicU64,
    /// How long jobs stay this worker's after a heartbeat, in ms.
    pub jobs_lease_ms: AtomicU64,
    /// 1 while heartbeats fail.
    pub jobs_failing: AtomicU32,
    /// Consumer groups that the worker reads with.
    pub groups: AtomicU32,
    /// Those that are joined and whose log has no complaint.
    pub groups_joined: AtomicU32,
    /// When the worker last accepted a connection ([`crate::clock::now_ms`]).
    pub accepted_at_ms: AtomicU64,
    /// 1 since a worker has used the slot: its counters may not be 0. It outlives the workers.
    pub counted: AtomicU32,
    /// Bytes in memory of answers that clients do not take, and of bodies that they do not end.
    pub held_bytes: AtomicU64,
    /// Bytes of the same in files.
    pub spooled_bytes: AtomicU64,
    /// Open event streams.
    pub event_streams: AtomicU64,
    /// Messages of their log that the client which is furthest behind has not been sent.
    pub event_stream_lag: AtomicU64,
    /// Messages that the log of the event streams keeps, as far as the worker has read it.
    pub history_messages: AtomicU64,
    /// Their bytes.
    pub history_bytes: AtomicU64,
    /// What the supervisor has asked the worker for, see [`WorkerGauges::note_stop`].
    stop: AtomicU32,
}

/// The supervisor has asked the worker to stop.
const STOP_ASKED: u32 = 1;
/// The same, because another worker replaces it, which nobody waits for.
const STOP_REPLACED: u32 = 2;
/// The supervisor has gone.
const STOP_ORPHANED: u32 = 3;

/// A worker's garbage collections, heap and allocator.
#[repr(C)]
#[derive(Default)]
pub struct HeapGauges {
    /// Minor collections.
    pub minor_total: AtomicU64,
    /// Full collections.
    pub major_total: AtomicU64,
    /// Full collections that began inside a unit of work.
    pub major_inside_total: AtomicU64,
    /// Time spent collecting inside units of work (ns).
    pub inside_ns: AtomicU64,
    /// Time spent collecting outside of them (ns).
    pub between_ns: AtomicU64,
    /// Slots that hold objects.
    pub live_slots: AtomicU64,
    /// Objects that were promoted.
    pub old_objects: AtomicU64,
    /// Pages of the heap.
    pub heap_pages: AtomicU64,
    /// Bytes that the program has allocated and not freed.
    pub allocated_bytes: AtomicU64,
    /// Bytes in pages with at least one allocation.
    pub active_bytes: AtomicU64,
    /// Bytes of physical memory held by the allocator.
    pub resident_bytes: AtomicU64,
    /// Bytes whose memory was given back but whose addresses are kept.
    pub retained_bytes: AtomicU64,
    /// Bytes that may be allocated between two collections.
    pub eden_bytes: AtomicU64,
    /// The collector's time as a share of the CPU time of the work, in millionths.
    pub gc_share_ppm: AtomicU64,
    /// Why eden has its size, as the number of a reason in `chaton_memory::eden`.
    pub eden_reason: AtomicU64,
}

impl HeapGauges {
    /// Every gauge but the reason of eden, with its name in Ruby and in `status`.
    pub fn gauges(&self) -> [(&'static str, &AtomicU64); 14] {
        [
            ("gc_minor_total", &self.minor_total),
            ("gc_major_total", &self.major_total),
            ("gc_major_inside_total", &self.major_inside_total),
            ("gc_inside_ns", &self.inside_ns),
            ("gc_between_ns", &self.between_ns),
            ("live_slots", &self.live_slots),
            ("old_objects", &self.old_objects),
            ("heap_pages", &self.heap_pages),
            ("allocator_allocated", &self.allocated_bytes),
            ("allocator_active", &self.active_bytes),
            ("allocator_resident", &self.resident_bytes),
            ("allocator_retained", &self.retained_bytes),
            ("eden_bytes", &self.eden_bytes),
            ("gc_share_ppm", &self.gc_share_ppm),
        ]
    }
}

impl WorkerGauges {
    /// Time in ms for which work has been running without other work being taken: a new
    /// connection may wait behind it. `now_ms` is the monotonic clock
    /// ([`crate::clock::now_ns`] in ms).
    pub fn hogged_ms(&self, now_ms: u64) -> u64 {
        if self.running.load(Relaxed) == 0 {
            return 0;
        }
        now_ms.saturating_sub(self.taken_at_ms.load(Relaxed))
    }

    /// Notes that the supervisor asks the worker to stop. `replaced`: as part of a planned replacement.
    pub fn note_stop(&self, replaced: bool) {
        self.stop.store(if replaced { STOP_REPLACED } else { STOP_ASKED }, Relaxed);
    }

    /// Notes that the worker stops because its supervisor has gone.
    pub fn note_orphaned(&self) {
        self.stop.store(STOP_ORPHANED, Relaxed);
    }

    /// Whether the supervisor has gone.
    pub fn is_orphaned(&self) -> bool {
        self.stop.load(Relaxed) == STOP_ORPHANED
    }

    /// Whether the supervisor has asked the worker to stop, or has gone: not if somebody else has sent it a signal.
    pub fn is_asked_to_stop(&self) -> bool {
        self.stop.load(Relaxed) != 0
    }

    /// Whether it was asked to stop because another worker replaces it.
    pub fn is_replaced(&self) -> bool {
        self.stop.load(Relaxed) == STOP_REPLACED
    }

    /// Sets every gauge to 0 and so frees the slot for the next worker.
    pub fn clear(&self) {
        for gauge in [
            &self.pid,
            &self.connections,
            &self.unserved,
            &self.queued,
            &self.running,
            &self.threads,
            &self.queue_age_ms,
            &self.hogged,
            &self.accepting,
            &self.jobs_failing,
            &self.groups,
            &self.groups_joined,
            &self.stop,
        ] {
            gauge.store(0, Relaxed);
        }
        for total in [
            &self.requests_total,
            &self.shed_total,
            &self.finished_total,
            &self.taken_at_ms,
            &self.accepted_at_ms,
            &self.jobs_heartbeat_ms,
            &self.jobs_lease_ms,
            &self.held_bytes,
            &self.spooled_bytes,
            &self.event_streams,
            &self.event_stream_lag,
            &self.history_messages,
            &self.history_bytes,
        ] {
            total.store(0, Relaxed);
        }
        for (_, gauge) in self.heap.gauges() {
            gauge.store(0, Relaxed);
        }
        self.heap.eden_reason.store(0, Relaxed);
    }
}

/// How far a topic is in a group, in all workers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicProgress {
    /// The topic.
    pub topic: String,
    /// The group.
    pub group: String,
    /// Records that are not done, in the partitions that the workers have.
    pub lag: u64,
    /// These partitions.
    pub partitions: u64,
    /// Those of them that have stopped at lost records.
    pub stopped: u64,
    /// Those of them that their consumer has paused.
    pub paused: u64,
}

/// Event streams in all workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventStreams {
    /// Those that are open.
    pub open: u64,
    /// Messages of the log that the client which is furthest behind has not been sent.
    pub lag: u64,
    /// Messages that the log keeps, as the worker says that has read most of it.
    pub history_messages: u64,
    /// Their bytes.
    pub history_bytes: u64,
    /// Events that were sent, for each connection.
    pub delivered: u64,
    /// Times that a client was told that it has missed messages.
    pub gaps: u64,
    /// Clients that came back without the application.
    pub resumed: u64,
    /// Clients that got no stream, because there were too many.
    pub refused: u64,
}

impl EventStreams {
    /// All figures, with their names in `status`.
    pub fn figures(&self) -> [(&'static str, u64); 8] {
        [
            ("open", self.open),
            ("lag", self.lag),
            ("delivered", self.delivered),
            ("gaps", self.gaps),
            ("resumed", self.resumed),
            ("refused", self.refused),
            ("history_messages", self.history_messages),
            ("history_bytes", self.history_bytes),
        ]
    }
}

/// One [`WorkerGauges`] per worker in shared memory.
///
/// It outlives `fork`: parent and children see the same memory. A process that
/// was executed anew maps it by its inherited descriptor.
pub struct Scoreboard {
    mapping: SharedMapping,
    fd: OwnedFd,
    class_names: NameCache,
    topic_names: NameCache,
    broker_names: NameCache,
    certificate_names: NameCache,
}

impl Scoreboard {
    /// Maps a scoreboard of `len` slots, all zero. Call before the fork.
    ///
    /// # Errors
    /// The operating system's error when the mapping is refused.
    pub fn new(len: usize) -> io::Result<Self> {
        let (mapping, fd) =
            SharedMapping::create(c"chaton-scoreboard", LAYOUT, len.max(1) + NAME_TABLES)?;
        Ok(Self::with(mapping, fd))
    }

    /// Maps the scoreboard behind an inherited descriptor, which stays the caller's.
    ///
    /// # Errors
    /// `InvalidInput` when it is not a scoreboard of this layout, else the operating system's error.
    pub fn open(inherited: RawFd) -> io::Result<Self> {
        let (mapping, fd) = SharedMapping::open(inherited, LAYOUT)?;
        Ok(Self::with(mapping, fd))
    }

    fn with(mapping: SharedMapping, fd: OwnedFd) -> Self {
        let (class_names, topic_names, broker_names, certificate_names) = Default::default();
        Self { mapping, fd, class_names, topic_names, broker_names, certificate_names }
    }

    /// The descriptor by which a process that is executed anew maps the same scoreboard.
    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Random bytes that only the processes with this scoreboard know.
    pub fn secret(&self) -> [u8; 32] {
        self.mapping.secret()
    }

    /// Takes over the secret of the run before; call before another process or an engine has the scoreboard.
    pub fn set_secret(&self, secret: [u8; 32]) {
        self.mapping.set_secret(secret);
    }

    /// Number of slots.
    #[allow(clippy::len_without_is_empty)] // never empty: at least one slot
    pub fn len(&self) -> usize {
        self.mapping.count(LAYOUT.element_bytes) - NAME_TABLES
    }

    /// The slot of worker `index`.
    ///
    /// # Panics
    /// When `index` is not below [`Scoreboard::len`].
    pub fn slot(&self, index: usize) -> &WorkerGauges {
        assert!(index < self.len(), "scoreboard has {} slots, asked for {index}", self.len());
        // SAFETY: in bounds, aligned, mapped until drop; zeros are valid atomics.
        unsafe { self.mapping.elements().cast::<WorkerGauges>().add(index).as_ref() }
    }

    fn counters_at(&self, index: usize) -> NonNull<WorkCounters> {
        let gauges = (self.len() + NAME_TABLES) * size_of::<WorkerGauges>();
        // SAFETY: the gauges end within the mapping, which has as many counters after them.
        unsafe { self.mapping.elements().add(gauges).cast::<WorkCounters>().add(index) }
    }

    /// What the workers of this slot have done, one after the other.
    ///
    /// # Panics
    /// When `index` is not below [`Scoreboard::len`].
    pub fn counters(&self, index: usize) -> &WorkCounters {
        assert!(index < self.len(), "scoreboard has {} slots, asked for {index}", self.len());
        // SAFETY: in bounds, aligned, mapped until drop; zeros are valid atomics.
        unsafe { self.counters_at(index).as_ref() }
    }

    /// The slots that have had a worker, with their counters. Those of other slots were never touched, and
    /// take no memory.
    pub fn counted(&self) -> impl Iterator<Item = &WorkCounters> {
        let counted = |index: &usize| self.slot(*index).counted.load(Relaxed) != 0;
        (0..self.len()).filter(counted).map(|index| self.counters(index))
    }

    /// The job classes that are counted, with their queues.
    pub fn class_names(&self) -> &WorkNames {
        // SAFETY: an element that is large enough; its counters are never used.
        unsafe { self.counters_at(self.len()).cast::<WorkNames>().as_ref() }
    }

    /// The topics that are counted, with their groups.
    pub fn topic_names(&self) -> &WorkNames {
        // SAFETY: as above.
        unsafe { self.counters_at(self.len() + 1).cast::<WorkNames>().as_ref() }
    }

    /// The brokers of Kafka that are counted.
    pub fn broker_names(&self) -> &WorkNames {
        // SAFETY: as above.
        unsafe { self.counters_at(self.len() + 2).cast::<WorkNames>().as_ref() }
    }

    /// The TLS certificates that are served: addresses and files.
    pub fn certificate_names(&self) -> &WorkNames {
        // SAFETY: as above.
        unsafe { self.counters_at(self.len() + 3).cast::<WorkNames>().as_ref() }
    }

    /// How far the topics are that the workers read, by topic and group; those that share the entry
    /// of all others are left out.
    pub fn topics(&self) -> Vec<TopicProgress> {
        let named = (0..NAMES_MAX).filter_map(|at| Some((self.topic_names().get(at)?, at)));
        let read = named.filter(|((_, group), _)| !group.is_empty());
        read.map(|((topic, group), at)| {
            let mut sum = TopicProgress { topic, group, ..TopicProgress::default() };
            for counters in self.counted().map(|counters| &counters.topics[at]) {
                sum.lag += counters.lag.load(Relaxed);
                sum.partitions += counters.partitions.load(Relaxed);
                sum.stopped += counters.stopped.load(Relaxed);
                sum.paused += counters.paused.load(Relaxed);
            }
            sum
        })
        .collect()
    }

    /// Event streams in all workers.
    pub fn event_streams(&self) -> EventStreams {
        let mut all = EventStreams::default();
        for gauges in (0..self.len()).map(|index| self.slot(index)) {
            all.open += gauges.event_streams.load(Relaxed);
            all.lag = all.lag.max(gauges.event_stream_lag.load(Relaxed));
            // They read the same log.
            all.history_messages = all.history_messages.max(gauges.history_messages.load(Relaxed));
            all.history_bytes = all.history_bytes.max(gauges.history_bytes.load(Relaxed));
        }
        for counters in self.counted().map(|counters| &counters.live) {
            all.delivered += counters.delivered.load(Relaxed);
            all.gaps += counters.gaps.load(Relaxed);
            all.resumed += counters.resumed.load(Relaxed);
            all.refused += counters.refused.load(Relaxed);
        }
        all
    }

    /// Frees a slot for the next worker. What was counted stays.
    ///
    /// # Panics
    /// When `index` is not below [`Scoreboard::len`].
    pub fn clear(&self, index: usize) {
        self.slot(index).clear();
        if self.slot(index).counted.load(Relaxed) != 0 {
            for topic in &self.counters(index).topics {
                for gauge in [
                    &topic.lag,
                    &topic.oldest_ms,
                    &topic.partitions,
                    &topic.stopped,
                    &topic.paused,
                    &topic.overdue,
                ] {
                    gauge.store(0, Relaxed);
                }
            }
            self.counters(index).certificates.iter().for_each(|until| until.store(0, Relaxed));
        }
    }

    /// The slots of the other workers that are alive.
    pub fn siblings(&self, index: usize) -> impl Iterator<Item = &WorkerGauges> {
        (0..self.len())
            .filter(move |i| *i != index)
            .map(|i| self.slot(i))
            .filter(|slot| slot.pid.load(Relaxed) != 0)
    }
}

/// The gauges of this process, for its engines.
#[derive(Clone)]
pub struct OwnGauges {
    scoreboard: Arc<Scoreboard>,
    slot: usize,
}

impl OwnGauges {
    /// Those of worker `slot`.
    pub fn new(scoreboard: Arc<Scoreboard>, slot: usize) -> Self {
        Self { scoreboard, slot }
    }
}

impl Deref for OwnGauges {
    type Target = WorkerGauges;

    fn deref(&self) -> &WorkerGauges {
        self.scoreboard.slot(self.slot)
    }
}

impl OwnGauges {
    /// What the workers of this slot have done.
    pub fn counters(&self) -> &WorkCounters {
        self.scoreboard.counters(self.slot)
    }

    /// The counters of a job class and queue.
    pub fn class_counters(&self, class: &str, queue: &str) -> &ClassCounters {
        let scoreboard = &self.scoreboard;
        let index = scoreboard.class_names.index(scoreboard.class_names(), class, queue);
        &self.counters().jobs[index]
    }

    /// The counters of a broker of Kafka.
    pub fn broker_counters(&self, broker: &str) -> &BrokerCounters {
        let scoreboard = &self.scoreboard;
        let index = scoreboard.broker_names.index(scoreboard.broker_names(), broker, "");
        &self.counters().brokers[index]
    }

    /// Publishes until when (s since 1970) the certificate in `file`, which `address` serves, is valid.
    pub fn set_certificate(&self, address: &str, file: &str, until_s: u64) {
        let scoreboard = &self.scoreboard;
        let names = scoreboard.certificate_names();
        let index = scoreboard.certificate_names.index(names, address, file);
        self.counters().certificates[index].store(until_s, Relaxed);
    }

    /// The place of the counters of a topic and group in [`WorkCounters::topics`].
    pub fn topic_index(&self, topic: &str, group: &str) -> usize {
        let scoreboard = &self.scoreboard;
        scoreboard.topic_names.index(scoreboard.topic_names(), topic, group)
    }
}

impl fmt::Debug for OwnGauges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnGauges({})", self.slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forked_child_writes_what_the_parent_reads() {
        let scoreboard = Scoreboard::new(2).unwrap();
        // SAFETY: the child only stores to the mapping and leaves.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            scoreboard.slot(1).queued.store(7, Relaxed);
            // SAFETY: leaves without running the test harness's handlers.
            unsafe { libc::_exit(0) };
        }
        // SAFETY: waits for the child made above.
        unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
        assert_eq!(scoreboard.slot(1).queued.load(Relaxed), 7);
        scoreboard.slot(1).clear();
        assert_eq!(scoreboard.slot(1).queued.load(Relaxed), 0);
    }

    #[test]
    fn an_inherited_descriptor_maps_the_same_scoreboard() {
        let scoreboard = Scoreboard::new(3).unwrap();
        let again = Scoreboard::open(scoreboard.fd()).unwrap();
        assert_eq!(again.len(), 3);
        again.slot(2).running.store(4, Relaxed);
        assert_eq!(scoreboard.slot(2).running.load(Relaxed), 4);
    }

    #[test]
    fn counters_outlive_the_worker_of_a_slot() {
        let scoreboard = Arc::new(Scoreboard::new(2).unwrap());
        let own = OwnGauges::new(scoreboard.clone(), 1);
        own.class_counters("A", "default").done.fetch_add(3, Relaxed);
        own.counters().requests.responded(200);
        let topic = &own.counters().topics[own.topic_index("events", "app")];
        topic.lag.store(7, Relaxed);
        topic.records.store(9, Relaxed);
        scoreboard.slot(1).counted.store(1, Relaxed);
        scoreboard.clear(1);
        assert_eq!((topic.lag.load(Relaxed), topic.records.load(Relaxed)), (0, 9));
        let again = Scoreboard::open(scoreboard.fd()).unwrap();
        assert_eq!(again.topic_names().get(0), Some(("events".to_owned(), "app".to_owned())));
        assert_eq!(again.class_names().get(0), Some(("A".to_owned(), "default".to_owned())));
        assert_eq!(again.counters(1).jobs[0].done.load(Relaxed), 3);
        assert_eq!(again.counters(1).requests.responses[1].load(Relaxed), 1);
        assert_eq!(again.counters(0).jobs[0].done.load(Relaxed), 0);
    }

    #[test]
    fn a_scoreboard_of_another_layout_is_refused() {
        let others = [
            Layout { version: LAYOUT.version + 1, ..LAYOUT },
            Layout { magic: *b"chatothr", ..LAYOUT },
            Layout { element_bytes: LAYOUT.element_bytes / 2, ..LAYOUT },
            Layout { element_bytes: 5, ..LAYOUT },
        ];
        for other in others {
            let (_, file) = SharedMapping::create(c"no-scoreboard", other, 2).unwrap();
            let error = Scoreboard::open(file.as_raw_fd()).err().unwrap();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            assert!(error.to_string().contains("chaton restart --full"), "{error}");
        }
        assert!(Scoreboard::open(-1).is_err());
    }

    /// Fails when a gauge was added, removed or moved: raise the version of [`LAYOUT`] then.
    #[test]
    fn the_layout_of_this_version_is_this_one() {
        let gauges = WorkerGauges::default();
        let start = &raw const gauges as usize;
        let at = |gauge: usize| gauge - start;
        let places = [
            at(&raw const gauges.pid as usize),
            at(&raw const gauges.connections as usize),
            at(&raw const gauges.unserved as usize),
            at(&raw const gauges.queued as usize),
            at(&raw const gauges.running as usize),
            at(&raw const gauges.threads as usize),
            at(&raw const gauges.queue_age_ms as usize),
            at(&raw const gauges.hogged as usize),
            at(&raw const gauges.taken_at_ms as usize),
            at(&raw const gauges.accepting as usize),
            at(&raw const gauges.requests_total as usize),
            at(&raw const gauges.shed_total as usize),
            at(&raw const gauges.finished_total as usize),
            at(&raw const gauges.jobs_heartbeat_ms as usize),
            at(&raw const gauges.jobs_lease_ms as usize),
            at(&raw const gauges.jobs_failing as usize),
            at(&raw const gauges.groups as usize),
            at(&raw const gauges.groups_joined as usize),
            at(&raw const gauges.accepted_at_ms as usize),
            at(&raw const gauges.counted as usize),
            at(&raw const gauges.held_bytes as usize),
            at(&raw const gauges.spooled_bytes as usize),
            at(&raw const gauges.stop as usize),
        ];
        assert_eq!((LAYOUT.version, size_of::<WorkerGauges>()), (13, 384));
        assert_eq!((size_of::<WorkCounters>(), size_of::<WorkNames>()), (94_208, 40_064));
        assert_eq!(
            places,
            [
                0, 4, 8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 192, 200, 208, 212, 216, 224, 232,
                240, 248, 256
            ]
        );
        let heap = gauges.heap.gauges().map(|(_, gauge)| at(gauge as *const AtomicU64 as usize));
        assert_eq!(heap, std::array::from_fn(|i| 72 + 8 * i));
    }

    #[test]
    fn siblings_are_the_other_live_workers() {
        let scoreboard = Scoreboard::new(3).unwrap();
        scoreboard.slot(0).pid.store(10, Relaxed);
        scoreboard.slot(2).pid.store(12, Relaxed);
        assert_eq!(scoreboard.siblings(0).count(), 1);
        assert_eq!(scoreboard.siblings(1).count(), 2);
    }

    #[test]
    #[should_panic(expected = "scoreboard has 2 slots")]
    fn an_unknown_slot_is_refused() {
        let scoreboard = Scoreboard::new(2).unwrap();
        let _ = scoreboard.slot(2);
    }
}
