//! The scoreboard: shared memory, made before the fork, in which every worker
//! publishes its load. Sibling workers read it to decide which of them accepts a
//! connection; the supervisor reads it to answer `status`.
//!
//! All fields are relaxed atomics. Each is a gauge of its own; a reader that sees
//! some old and some new gauges only makes one decision on stale data.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::Arc;

use crate::process::counters::{NameCache, Named, WorkCounters, WorkNames, NAMES_MAX, OTHER};
use crate::process::table::{table, version_of, Counter, Gauge, Table};
use crate::shared_mapping::{Layout, SharedMapping};

/// The name of what is counted together.
const ALL_OTHERS: &str = "other";
/// Names and types of all cells.
const CELLS: [&str; WorkCounters::CELLS.len() + 1] = {
    let mut cells = [WorkerGauges::CELLS; WorkCounters::CELLS.len() + 1];
    cells.split_at_mut(1).1.copy_from_slice(WorkCounters::CELLS);
    cells
};

/// All gauges come first, so that a look at all of them touches few pages, then all counters. The
/// counters of a few more elements are the names of what is counted.
const LAYOUT: Layout = Layout {
    magic: *b"chatscor",
    version: version_of(&CELLS),
    element_bytes: size_of::<WorkerGauges>() + size_of::<WorkCounters>(),
};
/// Tables of names behind the slots.
const NAME_TABLES: usize = WorkCounters::NAME_TABLES;
const _: () = assert!(size_of::<WorkNames>() <= size_of::<WorkCounters>());

table! {
    /// The gauges of one worker. Padded so that two workers never share a cache line.
    #[repr(align(128))]
    WorkerGauges, WorkerTotals {
        pid: AtomicU32, "Process id of the worker, 0 when the slot is free";
        connections: AtomicU32 => "connections", "Open connections of clients";
        unserved: AtomicU32, "Those of them whose first response has not begun, and that have not idled";
        queued: AtomicU32 => "queued", "Requests that wait for a thread";
        running: AtomicU32 => "running", "Requests, jobs and batches that threads run";
        threads: AtomicU32 => "threads", "Threads of the pool";
        queue_age_ms: AtomicU32 => "queue_age" in seconds / 1e3, "Age of the oldest request that waits";
        hogged: AtomicU32, "1 while one thread keeps the CPU, so that waiting work is not taken";
        taken_at_ms: Gauge, "When a Ruby thread last took work, in ms of the monotonic clock";
        accepting: AtomicU32, "1 while the worker accepts connections";
        requests_total: Gauge, "Requests read since the worker started";
        shed_total: Gauge, "Requests answered 503 because the queue was full or too old";
        finished_total: Gauge, "Units of work finished since the worker started";
        jobs_heartbeat_ms: Gauge, "When the last heartbeat reached the job store, in ms since boot; 0: none has";
        jobs_lease_ms: Gauge, "How long jobs stay this worker's after a heartbeat, in ms";
        jobs_failing: AtomicU32, "1 while heartbeats fail";
        groups: AtomicU32, "Consumer groups that the worker reads with";
        groups_joined: AtomicU32, "Those that are joined and whose log has no complaint";
        accepted_at_ms: Gauge, "When the worker last accepted a connection ([`crate::clock::now_ms`])";
        counted: Counter, "1 since a worker has used the slot: its counters may not be 0. It outlives the workers";
        held_bytes: Gauge => "held" in bytes, "Memory for answers that clients do not take and bodies that they do not end";
        spooled_bytes: Gauge => "spooled" in bytes, "The same in temporary files";
        event_streams: Gauge => "event_streams", "Open event streams";
        bound_core: Gauge, "To which core the threads are bound, and until when; 0: none ([`crate::pool`])";
        stop: AtomicU32, "What the supervisor has asked the worker for, see [`WorkerGauges::note_stop`]";
    }
}

/// The supervisor has asked the worker to stop.
const STOP_ASKED: u32 = 1;
/// The same, because another worker replaces it, which nobody waits for.
const STOP_REPLACED: u32 = 2;
/// The supervisor has gone.
const STOP_ORPHANED: u32 = 3;

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
}

/// One [`WorkerGauges`] per worker in shared memory.
///
/// It outlives `fork`: parent and children see the same memory. A process that
/// was executed anew maps it by its inherited descriptor.
pub struct Scoreboard {
    mapping: SharedMapping,
    fd: OwnedFd,
    /// By [`Named::NAMES`].
    names: [NameCache; NAME_TABLES],
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
        Self { mapping, fd, names: Default::default() }
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

    /// The names of the tables of a kind.
    pub fn names<T: Named>(&self) -> &WorkNames {
        // SAFETY: an element that is large enough; its counters are never used.
        unsafe { self.counters_at(self.len() + T::NAMES).cast::<WorkNames>().as_ref() }
    }

    /// What all workers have counted, by name. Two entries with the same name, which is possible, are added up.
    pub fn totals<T: Named>(&self) -> BTreeMap<(String, String), T::Totals> {
        let mut all = BTreeMap::<_, T::Totals>::new();
        let named = (0..NAMES_MAX).filter_map(|at| Some((self.names::<T>().get(at)?, at)));
        let others = T::sum(self.counted().map(|counters| &T::all(counters)[OTHER]));
        let other = |part: &str| if part.is_empty() { "" } else { ALL_OTHERS }.to_owned();
        let [name, place] = T::LABELS.map(other);
        let others = T::is_used(&others).then_some(((name, place), OTHER));
        for (name, at) in named.chain(others) {
            let sum = all.entry(name).or_default();
            self.counted().for_each(|counters| T::all(counters)[at].add_to(sum));
        }
        all
    }

    /// What all workers have counted that has no names.
    pub fn total<T: Table + 'static>(&self, table: fn(&WorkCounters) -> &T) -> T::Totals {
        T::sum(self.counted().map(table))
    }

    /// Frees a slot for the next worker. What was counted stays.
    ///
    /// # Panics
    /// When `index` is not below [`Scoreboard::len`].
    pub fn clear(&self, index: usize) {
        self.slot(index).end();
        if self.slot(index).counted.load(Relaxed) != 0 {
            self.counters(index).end();
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
    /// See [`Scoreboard::siblings`].
    pub fn siblings(&self) -> impl Iterator<Item = &WorkerGauges> {
        self.scoreboard.siblings(self.slot)
    }

    /// What the workers of this slot have done.
    pub fn counters(&self) -> &WorkCounters {
        self.scoreboard.counters(self.slot)
    }

    /// The place of the tables of a name in [`Named::all`].
    pub fn index<T: Named>(&self, name: &str, place: &str) -> usize {
        self.scoreboard.names[T::NAMES].index(self.scoreboard.names::<T>(), name, place)
    }

    /// The table of a name: of a job class and queue, a topic and group, or a broker.
    pub fn named<T: Named>(&self, name: &str, place: &str) -> &T {
        &T::all(self.counters())[self.index::<T>(name, place)]
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
    use crate::process::counters::{ClassCounters, TopicCounters};

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
        scoreboard.clear(1);
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
        own.named::<ClassCounters>("A", "default").done.fetch_add(3, Relaxed);
        own.counters().requests.responded(200);
        let topic = own.named::<TopicCounters>("events", "app");
        topic.lag.store(7, Relaxed);
        topic.records.store(9, Relaxed);
        scoreboard.slot(1).counted.store(1, Relaxed);
        scoreboard.clear(1);
        assert_eq!((topic.lag.load(Relaxed), topic.records.load(Relaxed)), (0, 9));
        let again = Scoreboard::open(scoreboard.fd()).unwrap();
        assert_eq!(
            again.names::<TopicCounters>().get(0),
            Some(("events".to_owned(), "app".to_owned()))
        );
        assert_eq!(
            again.names::<ClassCounters>().get(0),
            Some(("A".to_owned(), "default".to_owned()))
        );
        assert_eq!(again.counters(1).classes[0].done.load(Relaxed), 3);
        assert_eq!(again.counters(1).requests.responses_2xx.load(Relaxed), 1);
        assert_eq!(again.counters(0).classes[0].done.load(Relaxed), 0);
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

    #[test]
    fn the_version_follows_names_and_types_of_the_cells() {
        assert_eq!(CELLS.len(), 12);
        assert!(CELLS[0].starts_with("pid: AtomicU32, connections: AtomicU32,"), "{}", CELLS[0]);
        let mut other = CELLS;
        other[1] = "responses_1xx: Gauge,";
        assert_ne!(version_of(&other), LAYOUT.version);
        assert_eq!(version_of(&CELLS), LAYOUT.version);
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
