//! Records each collection and how much of its time fell inside units of work.
//!
//! Ruby's GC events are not used: with a hook on any of them CRuby 3.1 allocates every object on
//! its slow path, some 20 ns each. Instead an object of ours, the [`GcStartMarker`], is marked in
//! every collection, and its mark function records the beginning. A mark function runs with the GVL
//! on the collecting thread and may not allocate Ruby objects, so it only reads counters
//! ([`super::gc_stat`]). The end of a collection is read afterwards.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering::Relaxed, Ordering::Release};
use std::sync::Arc;

use chaton_core::clock;
use chaton_core::pool::thread_record::ThreadRecord;
use chaton_core::pool::Pool;
use chaton_core::process::events::SupportEvent;
use magnus::{gc, prelude::*, DataTypeFunctions, Error, Ruby, TypedData};
use parking_lot::Mutex;

use super::collection_summary::{CollectionSummary, OpenCollection, SummaryQueue};
use super::gc_stat::{GcCauses, Stats};
use super::gvl_timer;
use crate::handle::generation;

/// Collections that may pass while Ruby wants a full one. Few, because Ruby 3.4
/// grows its heap instead of collecting more often.
const WANTING_MAX: u64 = 2;
/// Shortest time between two requests to log summaries (ns).
const LOG_EVERY_NS: u64 = 1_000_000_000;

thread_local! {
    /// The calling pool thread, while it runs a unit. Owned, because a Ruby thread may
    /// be killed within a unit and its native thread be reused.
    static HERE: Cell<Option<Arc<ThreadRecord>>> = const { Cell::new(None) };
    /// The calling pool thread has finished a unit that the pool still counts as running.
    static IN_GAP: Cell<bool> = const { Cell::new(false) };
}

/// The monitor of this process; a new one is made after a fork.
static MONITOR: AtomicPtr<GcMonitor> = AtomicPtr::new(ptr::null_mut());

/// Call when work begins on the calling thread.
pub fn work_begins(thread: &Arc<ThreadRecord>) {
    HERE.set(Some(thread.clone()));
    gvl_timer::work_begins();
}

/// Call when the unit has ended; returns whether there was one.
pub fn work_ends() -> bool {
    // The label goes without the job's id, so that jobs of one class are summed up.
    gvl_timer::work_ends(|| {
        unit().map_or_else(String::new, |unit| {
            unit.split(" jid=").next().unwrap_or_default().to_owned()
        })
    });
    HERE.take().is_some()
}

/// Runs `work` on a pool thread between two units.
pub fn in_gap<T>(work: impl FnOnce() -> T) -> T {
    IN_GAP.set(true);
    let answer = work();
    IN_GAP.set(false);
    answer
}

/// The description of the unit that the calling thread runs.
fn unit() -> Option<String> {
    let here = HERE.try_with(Cell::take).ok()??;
    let current = here.current.lock();
    let unit = current.as_ref().map(|(work, _)| work.describe());
    drop(current);
    HERE.set(Some(here));
    unit
}

/// An object that every collection marks, because it has no write barrier.
#[derive(TypedData)]
#[magnus(class = "Chaton::Native::GcStartMarker", free_immediately, mark)]
pub struct GcStartMarker;

impl DataTypeFunctions for GcStartMarker {
    fn mark(&self, _: &gc::Marker) {
        // SAFETY: stored by `start` and never freed.
        let Some(monitor) = (unsafe { MONITOR.load(Relaxed).as_ref() }) else { return };
        // In a forked child, until it has a monitor of its own, locks may be held for ever.
        if monitor.made_in == generation() {
            monitor.marked();
        }
    }
}

#[derive(Default)]
struct State {
    /// The latest collection, until its end has been read.
    open: Option<OpenCollection>,
    kept: SummaryQueue,
    /// Time in the collector that has been booked (ns).
    booked_ns: u64,
}

/// The records and counters about collections.
pub struct GcMonitor {
    /// The counters.
    pub stats: Stats,
    /// Facts about the latest collection.
    pub causes: GcCauses,
    pool: Arc<Pool>,
    made_in: u32,
    state: Mutex<State>,
    /// Whether a line is logged for each collection.
    lines: AtomicBool,
    /// `Stats::allocated` when the last collection began.
    pub allocated_then: AtomicU64,
    /// Slots that can be filled between two collections, as learned.
    pub eden_slots: AtomicU64,
    /// Number of the latest collection that has begun.
    pub latest: AtomicU64,
    /// Full collections so far, and the time that they took (ns).
    pub majors: AtomicU64,
    pub majors_ns: AtomicU64,
    /// The latest collection is a full one.
    is_major: AtomicBool,
    /// Earliest time of the next request to log summaries (ns of the clock).
    log_next_ns: AtomicU64,
    /// Collections in a row after which Ruby wanted a full one.
    wanting: AtomicU64,
    /// `Stats::time_ms` when it was last read.
    ms_seen: AtomicU64,
    /// Bytes of malloc since the last collection, when last read.
    pub malloc_seen: AtomicU64,
    /// The sum of `malloc_seen` over all collections.
    pub churned: AtomicU64,
}

impl GcMonitor {
    /// Starts to monitor this process, with empty records.
    pub fn start(ruby: &Ruby, pool: &Arc<Pool>, lines: bool) -> Result<&'static Self, Error> {
        let stats = Stats::find(ruby);
        let state = State { booked_ns: stats.time_ns(), ..State::default() };
        // Never freed, because the marker refers to it.
        let monitor: &'static Self = Box::leak(Box::new(Self {
            allocated_then: AtomicU64::new(stats.allocated.read()),
            eden_slots: AtomicU64::new(stats.room().max(1)),
            latest: AtomicU64::new(stats.count.read()),
            stats,
            causes: GcCauses::find(ruby),
            pool: pool.clone(),
            made_in: generation(),
            state: Mutex::new(state),
            lines: AtomicBool::new(lines),
            majors: AtomicU64::new(0),
            majors_ns: AtomicU64::new(0),
            is_major: AtomicBool::new(false),
            log_next_ns: AtomicU64::new(0),
            wanting: AtomicU64::new(0),
            ms_seen: AtomicU64::new(0),
            malloc_seen: AtomicU64::new(0),
            churned: AtomicU64::new(0),
        }));
        if MONITOR.swap(ptr::from_ref(monitor).cast_mut(), Release).is_null() {
            ruby.gc_register_mark_object(ruby.obj_wrap(GcStartMarker).as_value());
        }
        monitor.publish();
        Ok(monitor)
    }

    /// Switches the log lines about collections on or off.
    pub fn set_lines(&self, on: bool) {
        self.lines.store(on, Relaxed);
    }

    /// The summaries since the last call, and how many were dropped so far.
    pub fn take_summaries(&self) -> (Vec<CollectionSummary>, u64) {
        self.book(true);
        let mut state = self.state.lock();
        (state.kept.take(), state.kept.dropped)
    }

    /// The marker is being marked: once or twice in a collection, and outside of
    /// collections when a tool walks the heap.
    fn marked(&self) {
        let number = self.stats.count.read();
        if self.latest.swap(number, Relaxed) != number {
            self.begin(number);
        }
    }

    fn begin(&self, number: u64) {
        let allocated = self.stats.allocated.read();
        let filled = allocated.saturating_sub(self.allocated_then.swap(allocated, Relaxed));
        let major_by = self.causes.major_by();
        let by = self.causes.gc_by();
        let unit = unit();
        // A collection stops all threads, so it also delays units on other threads.
        let beside = self.pool.load().1 > usize::from(IN_GAP.get());
        self.count(major_by.is_some(), unit.is_some() || beside);
        self.ask_for_full();
        if by == Some("newobj") {
            // This is Ruby's own limit. With several slot sizes it may lie below the sum
            // of free slots.
            self.eden_slots.fetch_min(filled.max(1), Relaxed);
        }
        // The counter has just been reset: take its last reading, or the limit.
        let seen = self.malloc_seen.swap(0, Relaxed);
        let malloc =
            if by == Some("malloc") { seen.max(self.stats.malloc_limit.read()) } else { seen };
        self.churned.fetch_add(malloc, Relaxed);
        let mut state = self.state.lock();
        if let Some(open) = state.open.take() {
            // Its end was not read: what was live then is live now, less what was filled since.
            let live = self.stats.live.read().saturating_sub(filled);
            state.kept.push(open.end(&self.stats, live));
        }
        let lines = self.lines.load(Relaxed);
        if lines {
            let summary = CollectionSummary {
                number,
                by,
                major_by,
                unit,
                filled,
                malloc,
                ..CollectionSummary::default()
            };
            state.open = Some(OpenCollection::begin(summary, &self.stats));
        }
        drop(state);
        if lines && self.is_time_to_log() {
            self.pool.events.post(SupportEvent::Collections);
        }
    }

    /// Rate limit: to log, the support thread takes the GVL from a thread that works.
    fn is_time_to_log(&self) -> bool {
        let now = clock::now_ns();
        let due = now >= self.log_next_ns.load(Relaxed);
        if due {
            self.log_next_ns.store(now + LOG_EVERY_NS, Relaxed);
        }
        due
    }

    /// While Ruby may not begin full collections and no unit ends, none would take
    /// place: the support thread is asked for one.
    fn ask_for_full(&self) {
        if !self.causes.needs_major() {
            self.wanting.store(0, Relaxed);
        } else if self.wanting.fetch_add(1, Relaxed) % WANTING_MAX == WANTING_MAX - 1 {
            self.pool.events.post(SupportEvent::FullWanted);
        }
    }

    fn count(&self, major: bool, inside: bool) {
        let heap = &self.pool.counters().heap;
        self.is_major.store(major, Relaxed);
        if !major {
            heap.minor_total.fetch_add(1, Relaxed);
            return;
        }
        self.majors.fetch_add(1, Relaxed);
        heap.major_total.fetch_add(1, Relaxed);
        if inside {
            heap.major_inside_total.fetch_add(1, Relaxed);
        }
    }

    /// Whether the collector has worked since the last call.
    pub fn is_unbooked(&self) -> bool {
        let ms = self.stats.time_ms.read();
        self.ms_seen.swap(ms, Relaxed) != ms
    }

    /// Books the time of collecting and lazy sweeping since the last call as spent
    /// inside of units or between them, closes the record of a collection that has
    /// ended, and returns the time (ns). Call with the GVL, outside of a collection.
    pub fn book(&self, inside: bool) -> u64 {
        // Calls Ruby, so the lock is not held: a collection takes it.
        let time = self.stats.time_ns();
        let ended = !self.causes.is_running();
        let mut state = self.state.lock();
        let elapsed = time.saturating_sub(state.booked_ns);
        state.booked_ns = time;
        if let Some(open) = &mut state.open {
            open.summary.total_ns += elapsed;
        }
        if let Some(open) = if ended { state.open.take() } else { None } {
            let live = self.stats.live.read().saturating_sub(self.filled());
            state.kept.push(open.end(&self.stats, live));
        }
        drop(state);
        let heap = &self.pool.counters().heap;
        let total = if inside { &heap.inside_ns } else { &heap.between_ns };
        total.fetch_add(elapsed, Relaxed);
        if self.is_major.load(Relaxed) {
            self.majors_ns.fetch_add(elapsed, Relaxed);
        }
        if ended {
            self.learn();
        }
        self.publish();
        elapsed
    }

    /// Slots filled since the last collection began.
    pub fn filled(&self) -> u64 {
        self.stats.allocated.read().saturating_sub(self.allocated_then.load(Relaxed))
    }

    /// Learns how many slots can be filled between two collections: those free now and
    /// those filled since the last one. The value rises slowly above a limit that Ruby
    /// has shown, because that limit may have moved.
    fn learn(&self) {
        let room = self.stats.room() + self.filled();
        let before = self.eden_slots.load(Relaxed);
        self.eden_slots.store(room.min(before + before / 16 + 1024).max(1), Relaxed);
    }

    /// Updates the gauges.
    pub fn publish(&self) {
        let heap = &self.pool.counters().heap;
        heap.live_slots.store(self.stats.live.read(), Relaxed);
        heap.old_objects.store(self.stats.old.read(), Relaxed);
        heap.heap_pages.store(self.stats.pages.read(), Relaxed);
    }
}
