//! Watches the collector: hooks on the events of Ruby's own tracing interface,
//! one record per collection, and how much of it fell inside units of work.
//!
//! The hooks run with the GVL, on the thread that collects, where no Ruby object
//! may be allocated. They read counters ([`super::stat`]) and clocks.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering::Relaxed, Ordering::Release};
use std::sync::Arc;

use chaton_core::clock;
use chaton_core::executor::Executor;
use chaton_core::guard::Event;
use chaton_core::hub::Hub;
use chaton_core::work::Label;
use magnus::rb_sys::protect;
use magnus::{Error, Ruby};
use parking_lot::Mutex;
use rb_sys::VALUE;

use super::gvl_view;
use super::stat::{Causes, Stats};
use super::summary::{Kept, Summary};
use crate::handle::generation;
use crate::unit::{Unit, UnitLabel};

const START: u32 = rb_sys::RUBY_INTERNAL_EVENT_GC_START as u32;
const END_MARK: u32 = rb_sys::RUBY_INTERNAL_EVENT_GC_END_MARK as u32;
const END_SWEEP: u32 = rb_sys::RUBY_INTERNAL_EVENT_GC_END_SWEEP as u32;
const ENTER: u32 = rb_sys::RUBY_INTERNAL_EVENT_GC_ENTER as u32;
const EXIT: u32 = rb_sys::RUBY_INTERNAL_EVENT_GC_EXIT as u32;

thread_local! {
    /// The calling pool thread, while it runs a unit.
    static HERE: Cell<*const Executor<UnitLabel>> = const { Cell::new(ptr::null()) };
    /// Time spent collecting inside this unit so far (ns).
    static UNIT_NS: Cell<u64> = const { Cell::new(0) };
    /// When this thread entered the collector (ns of the clock).
    static ENTERED_NS: Cell<u64> = const { Cell::new(0) };
}

/// The watch of this process; made anew after a fork.
static WATCH: AtomicPtr<Watch> = AtomicPtr::new(ptr::null_mut());

/// A unit begins on the calling thread, whose executor stays until it has ended.
pub fn unit_begins(executor: &Arc<Executor<UnitLabel>>) {
    HERE.set(Arc::as_ptr(executor));
    UNIT_NS.set(0);
    gvl_view::unit_begins();
}

/// It has ended, if there was one; answers the time it spent collecting (ns).
pub fn unit_ends() -> Option<u64> {
    // A job's number would make each a kind of its own.
    gvl_view::unit_ends(|| {
        unit().map_or_else(String::new, |unit| {
            unit.split(" jid=").next().unwrap_or_default().to_owned()
        })
    });
    let here = HERE.replace(ptr::null());
    (!here.is_null()).then(|| UNIT_NS.get())
}

/// What is known of the unit that the calling thread runs.
fn unit() -> Option<String> {
    // SAFETY: set by this thread while its seat holds the executor.
    let executor = unsafe { HERE.get().as_ref() }?;
    let current = executor.current.lock();
    Some(current.as_ref().map_or_else(String::new, |current| current.label.describe()))
}

/// A collection that has begun.
#[derive(Default)]
struct Open {
    summary: Summary,
    started_ns: u64,
    freed_before: u64,
    swept: bool,
}

#[derive(Default)]
struct State {
    open: Option<Open>,
    kept: Kept,
    /// `Stats::malloc` when the collector was entered: it begins at 0 again.
    malloc: u64,
}

/// Everything that is kept about collections.
pub struct Watch {
    /// The counters.
    pub stats: Stats,
    /// Facts about the latest collection.
    pub causes: Causes,
    hub: Arc<Hub<Unit>>,
    made_in: u32,
    state: Mutex<State>,
    /// Whether the guardian is to be told of each collection.
    lines: AtomicBool,
    /// `Stats::allocated` when the last collection began.
    pub allocated_then: AtomicU64,
    /// Slots that can be filled between two collections, as learned; 0 at first.
    pub eden_slots: AtomicU64,
    /// Collections that began.
    pub begun: AtomicU64,
    /// Full ones of them.
    pub majors: AtomicU64,
    /// Bytes of malloc before all collections so far.
    pub churned: AtomicU64,
}

impl Watch {
    /// Starts to watch this process. What another process watched is forgotten.
    ///
    /// # Errors
    /// What Ruby raises.
    pub fn start(ruby: &Ruby, hub: &Arc<Hub<Unit>>, lines: bool) -> Result<&'static Self, Error> {
        let stats = Stats::find(ruby);
        let allocated_then = AtomicU64::new(stats.allocated.read());
        // Lives as long as its hooks, and they are never removed.
        let watch: &'static Self = Box::leak(Box::new(Self {
            eden_slots: AtomicU64::new(stats.room()),
            stats,
            causes: Causes::find(ruby),
            hub: hub.clone(),
            made_in: generation(),
            state: Mutex::default(),
            lines: AtomicBool::new(lines),
            allocated_then,
            begun: AtomicU64::new(0),
            majors: AtomicU64::new(0),
            churned: AtomicU64::new(0),
        }));
        WATCH.store(ptr::from_ref(watch).cast_mut(), Release);
        install()?;
        watch.publish();
        Ok(watch)
    }

    /// The guardian is told of each collection from now on, or no more.
    pub fn set_lines(&self, on: bool) {
        self.lines.store(on, Relaxed);
    }

    /// Summaries not fetched before, and how many were dropped.
    pub fn take_summaries(&self) -> (Vec<Summary>, u64) {
        let mut state = self.state.lock();
        (state.kept.take(), state.kept.dropped)
    }

    fn enter(&self) {
        ENTERED_NS.set(clock::now_ns());
        self.state.lock().malloc = self.stats.malloc.read();
    }

    fn begin(&self) {
        let allocated = self.stats.allocated.read();
        let filled = allocated.saturating_sub(self.allocated_then.swap(allocated, Relaxed));
        let major_by = self.causes.major_by();
        let by = self.causes.gc_by();
        let unit = unit();
        self.begun.fetch_add(1, Relaxed);
        let heap = &self.hub.board_slot().heap;
        if major_by.is_some() {
            self.majors.fetch_add(1, Relaxed);
            heap.major_total.fetch_add(1, Relaxed);
            if unit.is_some() {
                heap.major_inside_total.fetch_add(1, Relaxed);
            }
        } else {
            heap.minor_total.fetch_add(1, Relaxed);
        }
        if by == Some("newobj") {
            // Here lies Ruby's own limit; between sizes of slots it may lie
            // below what the sum of free slots says.
            self.eden_slots.fetch_min(filled.max(1), Relaxed);
        }
        let mut state = self.state.lock();
        self.churned.fetch_add(state.malloc, Relaxed);
        state.open = Some(Open {
            summary: Summary {
                number: self.stats.count.read(),
                by,
                major_by,
                unit,
                filled,
                live_before: self.stats.live.read(),
                old_before: self.stats.old.read(),
                malloc: state.malloc,
                ..Summary::default()
            },
            started_ns: clock::now_ns(),
            freed_before: self.stats.freed.read(),
            swept: false,
        });
    }

    fn marked(&self) {
        if let Some(open) = &mut self.state.lock().open {
            open.summary.mark_ns = clock::now_ns().saturating_sub(open.started_ns);
            open.summary.old_after = self.stats.old.read();
        }
    }

    fn swept(&self) {
        if let Some(open) = &mut self.state.lock().open {
            open.summary.live_after = self.stats.live.read();
            open.summary.freed = self.stats.freed.read().saturating_sub(open.freed_before);
            open.summary.pages = self.stats.pages.read();
            open.swept = true;
        }
    }

    fn exit(&self) {
        let elapsed = clock::now_ns().saturating_sub(ENTERED_NS.get());
        let heap = &self.hub.board_slot().heap;
        if HERE.get().is_null() {
            heap.between_ns.fetch_add(elapsed, Relaxed);
        } else {
            UNIT_NS.set(UNIT_NS.get() + elapsed);
            heap.inside_ns.fetch_add(elapsed, Relaxed);
        }
        let mut state = self.state.lock();
        let Some(open) = &mut state.open else { return };
        open.summary.total_ns += elapsed;
        if !open.swept {
            return;
        }
        let summary = state.open.take().map(|open| open.summary).unwrap_or_default();
        let lines = self.lines.load(Relaxed);
        if lines {
            state.kept.push(summary);
        }
        drop(state);
        self.learn();
        self.publish();
        if lines {
            self.hub.guard().post(Event::Collections);
        }
    }

    /// How much can be filled before the next collection: what is free, and what
    /// was filled since this one began. Below a limit that Ruby has shown it
    /// rises slowly, because that may have moved.
    fn learn(&self) {
        let filled = self.stats.allocated.read().saturating_sub(self.allocated_then.load(Relaxed));
        let room = self.stats.room() + filled;
        let before = self.eden_slots.load(Relaxed);
        self.eden_slots.store(room.min(before + before / 16 + 1024).max(1), Relaxed);
    }

    /// Gauges for `status`.
    pub fn publish(&self) {
        let heap = &self.hub.board_slot().heap;
        heap.live_slots.store(self.stats.live.read(), Relaxed);
        heap.old_objects.store(self.stats.old.read(), Relaxed);
        heap.heap_pages.store(self.stats.pages.read(), Relaxed);
    }
}

/// Adds the hooks, once in the life of the program: forks inherit them.
fn install() -> Result<(), Error> {
    static DONE: AtomicBool = AtomicBool::new(false);
    if DONE.swap(true, Relaxed) {
        return Ok(());
    }
    let events = START | END_MARK | END_SWEEP | ENTER | EXIT;
    protect(|| {
        // SAFETY: with the GVL; the hook has the type asked for and owns nothing
        // here. Registered for good, so that it is not collected.
        unsafe {
            let point = rb_sys::rb_tracepoint_new(
                rb_sys::Qnil as VALUE,
                events,
                Some(happened),
                ptr::null_mut(),
            );
            rb_sys::rb_gc_register_mark_object(point);
            rb_sys::rb_tracepoint_enable(point)
        }
    })
    .map(drop)
}

unsafe extern "C" fn happened(point: VALUE, _: *mut c_void) {
    // SAFETY: stored by `start` and never freed.
    let Some(watch) = (unsafe { WATCH.load(Relaxed).as_ref() }) else { return };
    // A forked child has locks that nobody will open.
    if watch.made_in != generation() {
        return;
    }
    // SAFETY: Ruby passes the tracepoint whose hook runs.
    let event =
        unsafe { rb_sys::rb_tracearg_event_flag(rb_sys::rb_tracearg_from_tracepoint(point)) };
    match event as u32 {
        ENTER => watch.enter(),
        START => watch.begin(),
        END_MARK => watch.marked(),
        END_SWEEP => watch.swept(),
        EXIT => watch.exit(),
        _ => {}
    }
}
