//! Counters of Ruby's collector, read without allocating, so that they can be read
//! inside a collection.

use magnus::rb_sys::{protect, AsRawValue, FromRawValue};
use magnus::{Integer, Ruby, Value};
use rb_sys::VALUE;

/// One counter of `GC.stat`; reads 0 where this Ruby does not have it.
#[derive(Clone, Copy)]
pub struct GcStat(Option<VALUE>);

impl GcStat {
    /// Finds the first of the names that this Ruby knows.
    pub fn find(ruby: &Ruby, names: &[&str]) -> Self {
        let known = names.iter().find_map(|name| {
            let key = ruby.to_symbol(name).as_raw();
            // SAFETY: raises for an unknown key, over a frame that owns nothing.
            let asked = protect(|| unsafe {
                rb_sys::rb_gc_stat(key);
                rb_sys::Qnil as VALUE
            });
            asked.ok().map(|_| key)
        });
        Self(known)
    }

    /// Its value now. Call with the GVL.
    pub fn read(self) -> u64 {
        // SAFETY: a known key as an immediate symbol: reads a counter, allocates nothing.
        self.0.map_or(0, |key| unsafe { rb_sys::rb_gc_stat(key) } as u64)
    }
}

/// The counters.
pub struct Stats {
    /// Objects allocated since the start.
    pub allocated: GcStat,
    /// Objects freed since the start.
    pub freed: GcStat,
    /// Live slots.
    pub live: GcStat,
    /// All slots.
    pub available: GcStat,
    /// Pages (until 3.3), slots (until 4.0) or bytes that may be added without a collection.
    allocatable_pages: GcStat,
    allocatable_slots: GcStat,
    allocatable_bytes: GcStat,
    slots_of_page: u64,
    page_bytes: u64,
    /// Pages of the heap.
    pub pages: GcStat,
    /// Promoted objects.
    pub old: GcStat,
    /// Bytes of malloc since the last collection.
    pub malloc: GcStat,
    /// Bytes of malloc that trigger a collection.
    pub malloc_limit: GcStat,
    /// Collections.
    pub count: GcStat,
    /// Time spent collecting (ms).
    pub time_ms: GcStat,
}

impl Stats {
    /// Finds the counters of this Ruby.
    pub fn find(ruby: &Ruby) -> Self {
        let find = |names: &[&str]| GcStat::find(ruby, names);
        let constant = |name: &str| {
            ruby.eval::<u64>(&format!("GC::INTERNAL_CONSTANTS.fetch(:{name}, 0)")).unwrap_or(0)
        };
        Self {
            allocated: find(&["total_allocated_objects"]),
            freed: find(&["total_freed_objects"]),
            live: find(&["heap_live_slots"]),
            available: find(&["heap_available_slots"]),
            allocatable_pages: find(&["heap_allocatable_pages"]),
            allocatable_slots: find(&["heap_allocatable_slots"]),
            allocatable_bytes: find(&["heap_allocatable_bytes"]),
            slots_of_page: constant("HEAP_PAGE_OBJ_LIMIT"),
            page_bytes: constant("HEAP_PAGE_SIZE"),
            pages: find(&["heap_allocated_pages"]),
            old: find(&["old_objects"]),
            malloc: find(&["malloc_increase_bytes"]),
            malloc_limit: find(&["malloc_increase_bytes_limit"]),
            count: find(&["count"]),
            time_ms: find(&["time"]),
        }
    }

    /// Time spent collecting since the start (ns). Not to be called inside a
    /// collection: it calls a method, because `GC.stat` counts milliseconds only.
    pub fn time_ns(&self) -> u64 {
        let asked = protect(|| {
            // SAFETY: GC.total_time takes nothing; the frame owns nothing.
            unsafe {
                let total = rb_sys::rb_intern(c"total_time".as_ptr());
                rb_sys::rb_funcallv(rb_sys::rb_mGC, total, 0, std::ptr::null())
            }
        });
        // SAFETY: a live value that Ruby has just returned.
        let time = asked.ok().map(|time| unsafe { Value::from_raw(time) });
        time.and_then(Integer::from_value).and_then(|time| time.to_u64().ok()).unwrap_or(0)
    }

    /// Slots that can be filled before Ruby collects, if all slot sizes are used in
    /// proportion to their number.
    pub fn room(&self) -> u64 {
        let available = self.available.read();
        let heap_bytes = (self.pages.read() * self.page_bytes).max(1);
        let more = self.allocatable_slots.read()
            + self.allocatable_pages.read() * self.slots_of_page
            + self.allocatable_bytes.read() * available / heap_bytes;
        available.saturating_sub(self.live.read()) + more
    }
}

/// Values of `GC.latest_gc_info`.
const CAUSES: [&str; 12] = [
    "newobj",
    "malloc",
    "method",
    "capi",
    "stress",
    "nofree",
    "oldgen",
    "oldmalloc",
    "shady",
    "force",
    "none",
    "true",
];

/// Reads `GC.latest_gc_info` without allocating.
pub struct GcCauses {
    words: Vec<(VALUE, &'static str)>,
    major_by: VALUE,
    gc_by: VALUE,
    state: VALUE,
    none: VALUE,
    need_major_by: Option<VALUE>,
}

impl GcCauses {
    /// Creates the symbols.
    pub fn find(ruby: &Ruby) -> Self {
        let symbol = |name: &str| ruby.to_symbol(name).as_raw();
        let need_major_by = symbol("need_major_by");
        // SAFETY: raises for an unknown key (3.1, 3.2), over a frame that owns nothing.
        let known = protect(|| unsafe { rb_sys::rb_gc_latest_gc_info(need_major_by) }).is_ok();
        Self {
            words: CAUSES.iter().map(|word| (symbol(word), *word)).collect(),
            major_by: symbol("major_by"),
            gc_by: symbol("gc_by"),
            state: symbol("state"),
            none: symbol("none"),
            need_major_by: known.then_some(need_major_by),
        }
    }

    /// Why the collection is a full one, `None` for a minor one. Also inside a collection.
    pub fn major_by(&self) -> Option<&'static str> {
        // SAFETY: a known key as an immediate symbol.
        self.word(unsafe { rb_sys::rb_gc_latest_gc_info(self.major_by) })
    }

    /// What triggered it.
    pub fn gc_by(&self) -> Option<&'static str> {
        // SAFETY: as above.
        self.word(unsafe { rb_sys::rb_gc_latest_gc_info(self.gc_by) })
    }

    /// Whether a collection is under way: marking incrementally or sweeping lazily.
    pub fn is_running(&self) -> bool {
        // SAFETY: as above.
        unsafe { rb_sys::rb_gc_latest_gc_info(self.state) != self.none }
    }

    /// Whether Ruby wants the next collection to be a full one (3.3 and later).
    pub fn needs_major(&self) -> bool {
        self.need_major_by.is_some_and(|key| {
            // SAFETY: as above.
            self.word(unsafe { rb_sys::rb_gc_latest_gc_info(key) }).is_some()
        })
    }

    fn word(&self, value: VALUE) -> Option<&'static str> {
        if value == rb_sys::Qnil as VALUE || value == rb_sys::Qfalse as VALUE {
            return None;
        }
        let known = self.words.iter().find(|(symbol, _)| *symbol == value);
        Some(known.map_or("other", |(_, word)| word))
    }
}
