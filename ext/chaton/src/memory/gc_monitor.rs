//! Watches the collector: one record per collection, and how much of it fell
//! inside units of work.
//!
//! Ruby's own events of the collector are not used: with a hook on any of them
//! CRuby 3.1 allocates every object the slow way, some 20 ns each. An object of
//! ours is marked in every collection instead, and its mark function notes that
//! one has begun: a [`GcStartMarker`]. Like every mark function it runs with the GVL, on
//! the thread that collects, where no Ruby object may be allocated; it reads
//! counters ([`super::gc_stat`]). How a collection ended is read afterwards.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering::Relaxed, Ordering::Release};
use std::sync::Arc;

use chaton_core::clock;
use chaton_core::pool::thread_record::ThreadRecord;
use chaton_core::pool::Pool;
use chaton_core::process::events::SupportEvent;
use chaton_core::work::Label;
use magnus::{gc, prelude::*, DataTypeFunctions, Error, Ruby, TypedData};
use parking_lot::Mutex;

use super::gvl_tracker;
use super::gc_stat::{GcCauses, Stats};
use super::collection_summary::{SummaryQueue, OpenCollection, CollectionSummary};
use crate::handle::generation;
use crate::unit::{Unit, UnitLabel};

/// So many minor collections may pass while Ruby wants a full one. Few: 3.4 makes
/// its heap larger instead of collecting more often.
const WANTING_MAX: u64 = 2;
/// Summaries are fetched this often at most (ns), and when the process is idle.
const TELL_EVERY_NS: u64 = 1_000_000_000;

thread_local! {
    /// The calling pool thread, while it runs a unit. Owned: a thread may end
    /// without saying so, and its native thread go on under another name.
    static HERE: Cell<Option<Arc<ThreadRecord<UnitLabel>>>> = const { Cell::new(None) };
    /// The calling pool thread has ended a unit, which still counts as running.
    static IN_GAP: Cell<bool> = const { Cell::new(false) };
}

/// The watch of this process; made anew after a fork.
static MONITOR: AtomicPtr<GcMonitor> = AtomicPtr::new(ptr::null_mut());

/// A unit begins on the calling thread.
pub fn unit_begins(thread: &Arc<ThreadRecord<UnitLabel>>) {
    HERE.set(Some(thread.clone()));
    gvl_tracker::unit_begins();
}

/// It has ended; answers whether there was one.
pub fn unit_ends() -> bool {
    // A job's number would make each a kind of its own.
    gvl_tracker::unit_ends(|| {
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

/// What is known of the unit that the calling thread runs.
fn unit() -> Option<String> {
    let here = HERE.try_with(Cell::take).ok()??;
    let current = here.current.lock();
    let unit = current.as_ref().map(|current| current.label.describe());
    drop(current);
    HERE.set(Some(here));
    unit
}

/// Marked in every collection, because it has no write barrier.
#[derive(TypedData)]
#[magnus(class = "Chaton::Native::GcStartMarker", free_immediately, mark)]
pub struct GcStartMarker;

impl DataTypeFunctions for GcStartMarker {
    fn mark(&self, _: &gc::Marker) {
        // SAFETY: stored by `start` and never freed.
        let Some(watch) = (unsafe { MONITOR.load(Relaxed).as_ref() }) else { return };
        // A forked child has locks that nobody will open.
        if watch.made_in == generation() {
            watch.rung();
        }
    }
}

#[derive(Default)]
struct State {
    /// The latest collection, until it is known how it ended.
    open: Option<OpenCollection>,
    kept: SummaryQueue,
    /// Time in the collector that has been booked (ns).
    booked_ns: u64,
}

/// Everything that is kept about collections.
pub struct GcMonitor {
    /// The counters.
    pub stats: Stats,
    /// Facts about the latest collection.
    pub causes: GcCauses,
    pool: Arc<Pool<Unit>>,
    made_in: u32,
    state: Mutex<State>,
    /// Whether the guardian is to be told of each collection.
    lines: AtomicBool,
    /// `Stats::allocated` when the last collection began.
    pub allocated_then: AtomicU64,
    /// Slots that can be filled between two collections, as learned.
    pub eden_slots: AtomicU64,
    /// Number of the latest collection that has begun.
    pub latest: AtomicU64,
    /// Full ones so far.
    pub majors: AtomicU64,
    /// When the guardian may be told next (ns of the clock).
    tell_ns: AtomicU64,
    /// Collections in a row at which Ruby wanted the next one to be full.
    wanting: AtomicU64,
    /// `Stats::time_ms` at the last look.
    ms_seen: AtomicU64,
    /// Bytes of malloc at the last look, and the sum of these at collections.
    pub malloc_seen: AtomicU64,
    /// See `malloc_seen`.
    pub churned: AtomicU64,
}

impl GcMonitor {
    /// Starts to watch this process. What another process watched is forgotten.
    ///
    /// # Errors
    /// What Ruby raises.
    pub fn start(ruby: &Ruby, pool: &Arc<Pool<Unit>>, lines: bool) -> Result<&'static Self, Error> {
        let stats = Stats::find(ruby);
        let state = State { booked_ns: stats.time_ns(), ..State::default() };
        // As long as the process: its bell is never taken down.
        let watch: &'static Self = Box::leak(Box::new(Self {
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
            tell_ns: AtomicU64::new(0),
            wanting: AtomicU64::new(0),
            ms_seen: AtomicU64::new(0),
            malloc_seen: AtomicU64::new(0),
            churned: AtomicU64::new(0),
        }));
        if MONITOR.swap(ptr::from_ref(watch).cast_mut(), Release).is_null() {
            ruby.gc_register_mark_object(ruby.obj_wrap(GcStartMarker).as_value());
        }
        watch.publish();
        Ok(watch)
    }

    /// The guardian is told of each collection from now on, or no more.
    pub fn set_lines(&self, on: bool) {
        self.lines.store(on, Relaxed);
    }

    /// Summaries not fetched before, and how many were dropped.
    pub fn take_summaries(&self) -> (Vec<CollectionSummary>, u64) {
        self.book(true);
        let mut state = self.state.lock();
        (state.kept.take(), state.kept.dropped)
    }

    /// Our object is being marked. Also asked for outside of collections, by
    /// tools that walk the heap, and twice in incremental ones.
    fn rung(&self) {
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
        // All threads stand still: those in the middle of a unit, too.
        let beside = self.pool.load().1 > usize::from(IN_GAP.get());
        self.count(major_by.is_some(), unit.is_some() || beside);
        self.ask_for_full();
        if by == Some("newobj") {
            // Here lies Ruby's own limit; between sizes of slots it may lie
            // below what the sum of free slots says.
            self.eden_slots.fetch_min(filled.max(1), Relaxed);
        }
        // What is counted begins at 0 again: the last look tells, or the limit.
        let seen = self.malloc_seen.swap(0, Relaxed);
        let malloc =
            if by == Some("malloc") { seen.max(self.stats.malloc_limit.read()) } else { seen };
        self.churned.fetch_add(malloc, Relaxed);
        let mut state = self.state.lock();
        if let Some(open) = state.open.take() {
            // How that one ended is what this one found, but for what was filled since.
            let live = self.stats.live.read().saturating_sub(filled);
            state.kept.push(open.end(&self.stats, live));
        }
        let lines = self.lines.load(Relaxed);
        if lines {
            let summary =
                CollectionSummary { number, by, major_by, unit, filled, malloc, ..CollectionSummary::default() };
            state.open = Some(OpenCollection::begin(summary, &self.stats));
        }
        drop(state);
        if lines && self.is_time_to_tell() {
            self.pool.events().post(SupportEvent::Collections);
        }
    }

    /// The guardian needs the GVL for it, and whoever ran waits meanwhile.
    fn is_time_to_tell(&self) -> bool {
        let now = clock::now_ns();
        let due = now >= self.tell_ns.load(Relaxed);
        if due {
            self.tell_ns.store(now + TELL_EVERY_NS, Relaxed);
        }
        due
    }

    /// Where full collections are kept from Ruby and no unit ends, it would wait
    /// for one for ever: the guardian does it in the end.
    fn ask_for_full(&self) {
        if !self.causes.needs_major() {
            self.wanting.store(0, Relaxed);
        } else if self.wanting.fetch_add(1, Relaxed) % WANTING_MAX == WANTING_MAX - 1 {
            self.pool.events().post(SupportEvent::FullWanted);
        }
    }

    fn count(&self, major: bool, inside: bool) {
        let heap = &self.pool.gauges().heap;
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

    /// Whether the collector has been at work since the last [`GcMonitor::book`].
    pub fn is_unbooked(&self) -> bool {
        let ms = self.stats.time_ms.read();
        self.ms_seen.swap(ms, Relaxed) != ms
    }

    /// Books the time that collecting took since the last call, sweeping in
    /// steps included, as spent `inside` of units or between them, and closes
    /// the record of a collection that has ended. Answers the time (ns). With
    /// the GVL, outside of a collection.
    pub fn book(&self, inside: bool) -> u64 {
        // Asks Ruby, so without the lock: a collection would want it.
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
        let heap = &self.pool.gauges().heap;
        let total = if inside { &heap.inside_ns } else { &heap.between_ns };
        total.fetch_add(elapsed, Relaxed);
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

    /// How much can be filled before the next collection: what is free, and what
    /// was filled since the last one. Below a limit that Ruby has shown it rises
    /// slowly, because that may have moved.
    fn learn(&self) {
        let room = self.stats.room() + self.filled();
        let before = self.eden_slots.load(Relaxed);
        self.eden_slots.store(room.min(before + before / 16 + 1024).max(1), Relaxed);
    }

    /// Gauges for `status`.
    pub fn publish(&self) {
        let heap = &self.pool.gauges().heap;
        heap.live_slots.store(self.stats.live.read(), Relaxed);
        heap.old_objects.store(self.stats.old.read(), Relaxed);
        heap.heap_pages.store(self.stats.pages.read(), Relaxed);
    }
}
