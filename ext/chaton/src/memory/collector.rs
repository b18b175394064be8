//! `Chaton::Native::Collector`: runs the garbage collector between units of work, as
//! `chaton_memory::collect` decides, and lowers Ruby's counter of malloc so that it
//! does not trigger a collection inside a unit.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::Duration;

use chaton_core::clock;
use chaton_core::pool::Pool;
use chaton_core::settings::{millis, nullable, seconds};
use chaton_memory::collect::{self, EdenBudget, GcAction, GcReading, IdleDelays, ThreadActivity};
use magnus::rb_sys::{protect, AsRawValue};
use magnus::{function, method, prelude::*, Error, RArray, RHash, RModule, Ruby};
use parking_lot::Mutex;
use rb_sys::VALUE;
use serde::Deserialize;

use super::allocator;
use super::eden::Eden;
use super::gc_monitor::{self, GcMonitor};
use super::tracer_hooks;
use crate::gvl::without_gvl;
use crate::handle::Handle;
use crate::pool::{BetweenUnits, RbPool};
use crate::scoreboard::set_heap;

/// Shortest time between two readings of the allocator's figures (ns), which cost microseconds.
const HELD_EVERY_NS: u64 = 100_000_000;
/// At most one part in so many of the time is spent on these readings: glibc walks all free chunks.
const HELD_SHARE: u64 = 200;
/// If a reading takes this long (ns), the next one is done without the GVL.
const HELD_SLOW_NS: u64 = 200_000;
/// Full collections for one trim, while each frees so many pages that this part of them or less is left.
const TRIM_ROUNDS_MAX: usize = 12;
const TRIM_WORTH: f64 = 0.95;
/// After a smaller unit, `unit_slots` shrinks by one part in so many.
const UNIT_DECAY: u64 = 64;

/// Changes from unit to unit. Locked with the GVL, never across a call of Ruby.
#[derive(Default)]
struct CollectorState {
    /// `Stats::allocated` at the last reading.
    allocated: u64,
    /// Slots that a unit fills, the recent maximum.
    unit_slots: u64,
    /// `GcMonitor::latest` at the last reading.
    latest: u64,
    /// `GcMonitor::majors` at the last full collection.
    majors: u64,
    /// Bytes taken from Ruby's counter of malloc since the last collection.
    forgiven: u64,
    /// Promoted objects after the last full collection.
    old_then: u64,
    /// Bytes allocated from the allocator, now and after the last full collection.
    held: u64,
    held_then: u64,
    /// When `held` is read again, and how long the last reading took (ns).
    held_next_ns: u64,
    held_cost_ns: u64,
    /// `GcMonitor::churned` when memory was last returned to the system.
    churned_then: u64,
    full_due_since_ns: Option<u64>,
}

/// The collector of one process.
pub struct Collector {
    monitor: &'static GcMonitor,
    pool: Arc<Pool>,
    between: bool,
    eden: Eden,
    longlife: f64,
    delays: IdleDelays,
    minor: VALUE,
    /// Whether Ruby leaves full collections to us while there is work.
    full_is_held: bool,
    seen: Mutex<CollectorState>,
    units: AtomicU64,
    units_hit: AtomicU64,
    unit_max_ns: AtomicU64,
    trims: AtomicU64,
    forgiven_total: AtomicU64,
}

// SAFETY: `minor` is a frozen Hash registered for good; everything else is atomic or locked.
unsafe impl Send for Collector {}
// SAFETY: as above.
unsafe impl Sync for Collector {}

impl BetweenUnits for Collector {
    /// Counts a finished unit and collects if that is due. Call with the GVL, on the
    /// thread that ran the unit, before it takes the next one.
    ///
    /// # Errors
    /// What Ruby raised or threw meanwhile: interrupts, finalizers.
    fn after_unit(&self) -> Result<(), Error> {
        self.units.fetch_add(1, Relaxed);
        let reading = self.read();
        let budget = self.budget();
        if !self.between {
            return self.ask_to_trim(&reading);
        }
        self.forgive(&budget, &reading);
        if !self.may_be_due(&budget, &reading) {
            return Ok(());
        }
        // The thread's own unit still counts as running.
        let activity = match self.pool.load() {
            (0, 0 | 1) => ThreadActivity::Idle,
            (0, _) => ThreadActivity::Quiet,
            _ => ThreadActivity::Between,
        };
        let action = collect::decide(activity, &budget, &reading, &self.delays);
        gc_monitor::in_gap(|| self.act(action))?;
        if action == GcAction::Minor && activity == ThreadActivity::Idle {
            return self.ask_to_trim(&reading);
        }
        Ok(())
    }
}

impl Collector {
    fn ask_to_trim(&self, reading: &GcReading) -> Result<(), Error> {
        if reading.churned_bytes >= collect::TRIM_BYTES {
            self.pool.set_idle_timer(self.delays.trim_ns);
        }
        Ok(())
    }

    /// Returns free memory to the system without collecting first.
    fn trim_only(&self) {
        without_gvl(allocator::release_free, &|| {});
        self.trims.fetch_add(1, Relaxed);
        let malloc = self.monitor.stats.malloc.read();
        self.seen.lock().churned_then = self.monitor.churned.load(Relaxed) + malloc;
    }

    /// Collects or trims after the idle time that was asked for. Runs on the support thread.
    ///
    /// # Errors
    /// As [`Collector::after_unit`].
    fn after_idleness(&self) -> Result<(), Error> {
        let Some(since) = self.pool.idle_since_ns() else { return Ok(()) };
        if !self.between {
            self.trim_only();
            return Ok(());
        }
        for _ in 0..2 {
            let mut reading = self.read();
            reading.idle_ns = clock::now_ns().saturating_sub(since);
            let budget = self.budget();
            let action =
                collect::decide(ThreadActivity::StillIdle, &budget, &reading, &self.delays);
            self.act(action)?;
            // After a full collection, trimming may be due later.
            if action != GcAction::Full {
                break;
            }
        }
        Ok(())
    }

    fn act(&self, action: GcAction) -> Result<(), Error> {
        match action {
            GcAction::Nothing => Ok(()),
            GcAction::WaitIdle(ns) => {
                self.pool.set_idle_timer(ns);
                Ok(())
            }
            GcAction::Minor => self.collect_young(),
            GcAction::Full => self.collect_all(),
            GcAction::FullAndTrim => self.trim(),
        }
    }

    fn trim(&self) -> Result<(), Error> {
        // Each full collection gives back a part of the pages that are free: those above a share of the heap that
        // became smaller by it. A heap that is ten times too large needs ten.
        for _ in 0..TRIM_ROUNDS_MAX {
            let pages = self.monitor.stats.pages.read();
            self.collect_all()?;
            let is_smaller = self.monitor.stats.pages.read() as f64 <= pages as f64 * TRIM_WORTH;
            if !is_smaller || self.pool.idle_since_ns().is_none() {
                break;
            }
        }
        without_gvl(allocator::release_free, &|| {});
        self.trims.fetch_add(1, Relaxed);
        self.eden.after_trim();
        self.read_held();
        self.seen.lock().churned_then = self.monitor.churned.load(Relaxed);
        Ok(())
    }

    /// Sweeps lazily, page by page as slots are needed: an immediate sweep takes
    /// several times as long as marking.
    fn collect_young(&self) -> Result<(), Error> {
        if is_disabled() {
            return Ok(());
        }
        let minor = self.minor;
        self.monitor.book(true);
        let old = self.seen.lock().old_then;
        self.eden.make_room(self.monitor, old);
        protect(|| {
            // SAFETY: GC.start with its keywords; the frame owns nothing.
            unsafe {
                let start = rb_sys::rb_intern(c"start".as_ptr());
                rb_sys::rb_funcallv_kw(rb_sys::rb_mGC, start, 1, &raw const minor, 1)
            }
        })?;
        self.monitor.book(false);
        self.read();
        Ok(())
    }

    fn collect_all(&self) -> Result<(), Error> {
        if is_disabled() {
            return Ok(());
        }
        self.monitor.book(true);
        protect(|| {
            // SAFETY: a full collection, swept at once.
            unsafe { rb_sys::rb_gc_start() }
        })?;
        self.monitor.book(false);
        self.read();
        self.read_held();
        let mut seen = self.seen.lock();
        self.note_full(&mut seen);
        Ok(())
    }

    /// Takes the current values as those that growth is measured against.
    fn note_full(&self, seen: &mut CollectorState) {
        seen.majors = self.monitor.majors.load(Relaxed);
        seen.old_then = self.monitor.stats.old.read();
        seen.held_then = seen.held;
        seen.full_due_since_ns = None;
    }

    fn read_held(&self) {
        let began = clock::now_ns();
        let slow = self.seen.lock().held_cost_ns >= HELD_SLOW_NS;
        let read =
            if slow { without_gvl(allocator::read, &|| {}) } else { Some(allocator::read()) };
        // An interrupt was pending, so nothing was read: the next call will.
        let Some(figures) = read else { return };
        let heap = &self.pool.counters().heap;
        heap.allocated_bytes.store(figures.allocated, Relaxed);
        heap.active_bytes.store(figures.active, Relaxed);
        heap.resident_bytes.store(figures.resident, Relaxed);
        heap.retained_bytes.store(figures.retained, Relaxed);
        let mut seen = self.seen.lock();
        seen.held = figures.allocated;
        let now = clock::now_ns();
        seen.held_cost_ns = now - began;
        seen.held_next_ns = now + HELD_EVERY_NS.max(seen.held_cost_ns * HELD_SHARE);
    }

    fn budget(&self) -> EdenBudget {
        EdenBudget {
            eden_slots: self.eden.slots(self.monitor.eden_slots.load(Relaxed)),
            eden_bytes: self.eden.malloc_bytes(),
            longlife: self.longlife,
        }
    }

    /// Reads what `decide` needs, most of it only after a collection.
    fn read(&self) -> GcReading {
        let monitor = self.monitor;
        let allocated = monitor.stats.allocated.read();
        let malloc = monitor.stats.malloc.read();
        let latest = monitor.latest.load(Relaxed);
        monitor.malloc_seen.store(malloc, Relaxed);
        let collected = self.seen.lock().latest != latest;
        if monitor.is_unbooked() || collected {
            self.note_unit(monitor.book(true));
        }
        if collected {
            tracer_hooks::after_collections();
            let heap = &self.pool.counters().heap;
            self.eden.after_collection(monitor, heap, clock::now_ns());
        }
        let mut seen = self.seen.lock();
        let unit = allocated.saturating_sub(seen.allocated);
        seen.allocated = allocated;
        seen.unit_slots = unit.max(seen.unit_slots - seen.unit_slots / UNIT_DECAY);
        if collected {
            seen.latest = latest;
            seen.forgiven = 0;
            if clock::now_ns() >= seen.held_next_ns {
                drop(seen);
                self.read_held();
                seen = self.seen.lock();
            }
            // A full collection that Ruby began by itself.
            if monitor.majors.load(Relaxed) != seen.majors {
                self.note_full(&mut seen);
            }
        }
        let mut reading = GcReading {
            filled_slots: allocated.saturating_sub(monitor.allocated_then.load(Relaxed)),
            unit_slots: seen.unit_slots,
            malloc_bytes: malloc + seen.forgiven,
            old_objects: monitor.stats.old.read(),
            old_objects_then: seen.old_then,
            held_bytes: seen.held,
            held_bytes_then: seen.held_then,
            churned_bytes: monitor.churned.load(Relaxed).saturating_sub(seen.churned_then) + malloc,
            full_asked: monitor.causes.needs_major(),
            full_is_held: self.full_is_held,
            ..GcReading::default()
        };
        if collect::is_full_due(&self.budget(), &reading) {
            let now = clock::now_ns();
            // Another thread may have set it after this one read the clock.
            let since = *seen.full_due_since_ns.get_or_insert(now);
            reading.overdue_ns = now.saturating_sub(since);
        } else {
            seen.full_due_since_ns = None;
        }
        reading
    }

    /// Counts a unit that collections delayed by this time (ns).
    fn note_unit(&self, ns: u64) {
        if ns > 0 {
            self.units_hit.fetch_add(1, Relaxed);
            self.unit_max_ns.fetch_max(ns, Relaxed);
        }
    }

    /// A cheap check that does not read the queue; false after most units.
    fn may_be_due(&self, budget: &EdenBudget, reading: &GcReading) -> bool {
        reading.filled_slots * 2 >= budget.eden_slots
            || reading.malloc_bytes * 2 >= budget.eden_bytes
            || ((collect::is_full_due(budget, reading)
                || reading.churned_bytes >= collect::TRIM_BYTES)
                && (!self.pool.is_idle_timer_set() || reading.overdue_ns > 0))
    }

    /// Lowers Ruby's counter of malloc, so that eden and not Ruby's limit decides.
    fn forgive(&self, budget: &EdenBudget, reading: &GcReading) {
        let mut seen = self.seen.lock();
        let counted = reading.malloc_bytes.saturating_sub(seen.forgiven);
        // Reading the limit is cheap, but not needed after every unit.
        if counted * 4 < budget.eden_bytes.min(8 << 20) {
            return;
        }
        let limit = self.monitor.stats.malloc_limit.read();
        let bytes = collect::forgive(budget, counted, limit, seen.forgiven);
        if bytes > 0 {
            seen.forgiven += bytes;
            self.forgiven_total.fetch_add(bytes, Relaxed);
            self.monitor.churned.fetch_add(bytes, Relaxed);
            // SAFETY: with the GVL; subtracts from a counter.
            unsafe { rb_sys::rb_gc_adjust_memory_usage(-(bytes as i64)) };
        }
    }
}

/// Whether the application has called `GC.disable`. Ruby has no call that only reads it.
fn is_disabled() -> bool {
    // SAFETY: with the GVL, which both calls keep, so that no thread sees the state between.
    unsafe {
        let disabled = rb_sys::rb_gc_enable() == rb_sys::Qtrue as VALUE;
        if disabled {
            rb_sys::rb_gc_disable();
        }
        disabled
    }
}

/// When garbage is collected.
#[derive(PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum CollectTime {
    /// Between units of work.
    Between,
    /// When Ruby decides.
    Off,
}

/// The section `memory` of the document.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CollectorSettings {
    summary: bool,
    collect: CollectTime,
    /// Growth of old objects that starts a full collection; none where Ruby alone decides.
    #[serde(deserialize_with = "nullable")]
    longlife: Option<f64>,
    #[serde(rename = "idle_full_ms", deserialize_with = "millis")]
    idle_full: Duration,
    #[serde(rename = "trim_idle_s", deserialize_with = "seconds")]
    trim_idle: Duration,
}

/// The Ruby object of a [`Collector`].
#[magnus::wrap(class = "Chaton::Native::Collector", free_immediately, size)]
pub struct RbCollector(Handle<&'static Collector>);

impl RbCollector {
    /// `Collector.start(pool, slots_max, bytes, limit_bytes)`: without `slots_max` eden begins with so many bytes
    /// and finds its size by itself below that ceiling.
    fn start(
        ruby: &Ruby,
        pool: &RbPool,
        slots_max: Option<u64>,
        bytes: u64,
        limit_bytes: Option<u64>,
    ) -> Result<Self, Error> {
        let parts = pool.0.get()?;
        let settings: CollectorSettings = parts.document.section("memory")?;
        let monitor = GcMonitor::start(ruby, &parts.pool, settings.summary)?;
        let minor = ruby.hash_new();
        minor.aset(ruby.to_symbol("full_mark"), false)?;
        minor.aset(ruby.to_symbol("immediate_sweep"), false)?;
        minor.freeze();
        ruby.gc_register_mark_object(minor);
        // Never freed, because pool threads keep it.
        let collector: &'static Collector = Box::leak(Box::new(Collector {
            monitor,
            pool: parts.pool.clone(),
            between: settings.collect == CollectTime::Between,
            eden: match slots_max {
                Some(slots) => Eden::fixed(slots, bytes),
                None => Eden::auto(bytes, limit_bytes.unwrap_or(0), monitor),
            },
            longlife: settings.longlife.unwrap_or(f64::INFINITY),
            delays: IdleDelays {
                full_ns: settings.idle_full.as_nanos() as u64,
                trim_ns: settings.trim_idle.as_nanos() as u64,
            },
            minor: minor.as_raw(),
            full_is_held: settings.longlife.is_some()
                && (rb_sys::RUBY_API_VERSION_MAJOR, rb_sys::RUBY_API_VERSION_MINOR) >= (3, 4),
            seen: Mutex::default(),
            units: AtomicU64::new(0),
            units_hit: AtomicU64::new(0),
            unit_max_ns: AtomicU64::new(0),
            trims: AtomicU64::new(0),
            forgiven_total: AtomicU64::new(0),
        }));
        collector.read_held();
        let mut seen = collector.seen.lock();
        seen.latest = monitor.latest.load(Relaxed);
        seen.allocated = monitor.stats.allocated.read();
        collector.note_full(&mut seen);
        drop(seen);
        collector.eden.publish(&parts.pool.counters().heap);
        let _ = parts.between_units.set(collector);
        Ok(Self(Handle::new(collector)))
    }

    /// Summaries to be logged: `[[Hash, …], dropped so far]`.
    fn summaries(ruby: &Ruby, rb_self: &Self) -> Result<RArray, Error> {
        // Taken before Ruby is called, because a collection takes the same lock.
        let (summaries, dropped) = rb_self.0.get()?.monitor.take_summaries();
        let list = ruby.ary_new_capa(summaries.len());
        for summary in summaries {
            list.push(summary.to_hash(ruby)?)?;
        }
        Ok(ruby.ary_new_from_values(&[list.as_value(), ruby.into_value(dropped)]))
    }

    fn lines(&self, on: bool) -> Result<(), Error> {
        self.0.get()?.monitor.set_lines(on);
        Ok(())
    }

    /// Runs the full collection that Ruby wants but may not begin by itself.
    fn full(&self) -> Result<(), Error> {
        let collector = *self.0.get()?;
        if collector.monitor.causes.needs_major() {
            collector.collect_all()
        } else {
            Ok(())
        }
    }

    fn idle_work(&self) -> Result<(), Error> {
        self.0.get()?.after_idleness()
    }

    fn trim(&self) -> Result<(), Error> {
        self.0.get()?.trim()
    }

    fn stats(ruby: &Ruby, rb_self: &Self) -> Result<RHash, Error> {
        let collector = *rb_self.0.get()?;
        collector.monitor.book(true);
        collector.read_held();
        let hash = ruby.hash_new();
        set_heap(ruby, hash, &collector.pool.counters().heap)?;
        let add = |name: &str, value: u64| hash.aset(ruby.to_symbol(name), value);
        add("eden_slots", collector.budget().eden_slots)?;
        add("eden_malloc_bytes", collector.eden.malloc_bytes())?;
        add("units", collector.units.load(Relaxed))?;
        add("units_with_gc", collector.units_hit.load(Relaxed))?;
        add("unit_gc_ns_max", collector.unit_max_ns.load(Relaxed))?;
        add("trims", collector.trims.load(Relaxed))?;
        add("malloc_forgiven_bytes", collector.forgiven_total.load(Relaxed))?;
        Ok(hash)
    }
}

/// Defines the class.
pub fn define(ruby: &Ruby, native: RModule) -> Result<(), Error> {
    native.define_class("GcStartMarker", ruby.class_object())?.undef_default_alloc_func();
    let class = native.define_class("Collector", ruby.class_object())?;
    class.undef_default_alloc_func();
    class.define_singleton_method("start", function!(RbCollector::start, 4))?;
    class.define_method("summaries", method!(RbCollector::summaries, 0))?;
    class.define_method("lines", method!(RbCollector::lines, 1))?;
    class.define_method("idle_work", method!(RbCollector::idle_work, 0))?;
    class.define_method("full", method!(RbCollector::full, 0))?;
    class.define_method("trim", method!(RbCollector::trim, 0))?;
    class.define_method("stats", method!(RbCollector::stats, 0))?;
    Ok(())
}
