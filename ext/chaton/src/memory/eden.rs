//! Eden of this process: as configured, or as `chaton_memory::eden` finds it while units run, with room for it
//! in Ruby's heap.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use chaton_core::clock;
use chaton_core::process::counters::HeapGauges;
use chaton_memory::eden::{EdenPolicy, EdenReading, EdenReason, BYTES_MAX};
use chaton_memory::readings::{self, Cgroup, ProcessMemory, ROOT};
use magnus::rb_sys::protect;
use magnus::{prelude::*, Error, RHash, Ruby};
use parking_lot::Mutex;
use rb_sys::VALUE;

use super::gc_monitor::GcMonitor;

/// Bytes of malloc between two collections at least: the upper end of Ruby's own limit.
const MALLOC_BYTES_MIN: u64 = 32 << 20;
/// Slots that are added at one time, between two units: an estimated 5 ms.
const ADDED_MAX: u64 = 200_000;
/// Fills for one size of eden, beside twice as many as it needs: objects that stay alive take some of the slots.
const FILLS_MAX: u64 = 4;
/// The heap is made larger when it has less than this part of eden.
const ENOUGH: f64 = 0.9;
/// The container's memory is nearly used up from this part of its limit on.
const PRESSED: f64 = 0.9;
/// The kernel's figures that cost most are read this seldom (ns): the container's, and the process's private memory.
const COSTLY_EVERY_NS: u64 = 2_000_000_000;
/// Up to this part of the ceiling the resident memory, which is never less than the private, says enough.
const CLOSE_TO_LIMIT: f64 = 0.7;
/// The largest object that a String is within its slot has this much less than the slot.
const STRING_HEAD_BYTES: u64 = 25;
/// Objects without instance variables are in slots of this size.
const OBJECT_SLOT_BYTES: u64 = 40;

/// Eden, and how it is found.
pub struct Eden {
    /// Slots at most.
    slots_max: AtomicU64,
    /// Bytes of malloc.
    malloc_bytes: AtomicU64,
    /// Only tried: it is held while Ruby is called, which may switch to another thread that comes here.
    auto: Option<Mutex<AutoEden>>,
}

/// What the policy needs.
struct AutoEden {
    policy: EdenPolicy,
    /// The ceiling of this process; 0: none.
    limit_bytes: u64,
    costly_at_ns: u64,
    is_pressed: bool,
    /// Private and shared memory, where the resident was close to the ceiling.
    proportional_bytes: u64,
    pools: Vec<SlotPool>,
    /// Times that the heap was filled since eden has this size, or since memory was given back.
    fills: u64,
    fills_for: u64,
}

/// One size of slots: bytes, slots, objects allocated and freed since the start.
#[derive(Clone, Copy, Default)]
struct SlotPool {
    slot_bytes: u64,
    slots: u64,
    allocated: u64,
    freed: u64,
}

impl Eden {
    /// As configured: slots, and bytes of malloc.
    pub fn fixed(slots_max: u64, malloc_bytes: u64) -> Self {
        let slots_max = AtomicU64::new(slots_max);
        Self { slots_max, malloc_bytes: AtomicU64::new(malloc_bytes), auto: None }
    }

    /// Begins with `bytes` and finds the size by itself, below the ceiling of `limit_bytes` (0: none).
    pub fn auto(bytes: u64, limit_bytes: u64, monitor: &GcMonitor) -> Self {
        let pools = pools(monitor);
        let now = EdenReading {
            now_ns: clock::now_ns(),
            cpu_ns: clock::process_cpu_ns(),
            collections: monitor.stats.count.read(),
            malloc_bytes: monitor.churned.load(Relaxed),
            slots: monitor.stats.allocated.read(),
            slot_size: mean_slot_bytes(&pools),
            limit_bytes,
            ..EdenReading::default()
        };
        // Slots that are there already are used.
        let room = monitor.eden_slots.load(Relaxed) * mean_slot_bytes(&pools);
        let policy = EdenPolicy::new(bytes.max(room.min(BYTES_MAX)), &now);
        let malloc_bytes = AtomicU64::new(policy.malloc_bytes().max(MALLOC_BYTES_MIN));
        let auto = AutoEden {
            policy,
            limit_bytes,
            costly_at_ns: 0,
            is_pressed: false,
            proportional_bytes: 0,
            pools,
            fills: 0,
            fills_for: 0,
        };
        let slots_max = AtomicU64::new(auto.slots());
        Self { slots_max, malloc_bytes, auto: Some(Mutex::new(auto)) }
    }

    /// Slots that may be filled between two collections, of `room` that Ruby has.
    pub fn slots(&self, room: u64) -> u64 {
        room.min(self.slots_max.load(Relaxed))
    }

    /// Bytes of malloc between two collections.
    pub fn malloc_bytes(&self) -> u64 {
        self.malloc_bytes.load(Relaxed)
    }

    /// Publishes size and reason.
    pub fn publish(&self, heap: &HeapGauges) {
        match self.auto.as_ref() {
            Some(auto) => auto.try_lock().iter().for_each(|auto| auto.publish(heap)),
            None => {
                heap.eden_bytes.store(self.malloc_bytes(), Relaxed);
                heap.eden_reason.store(EdenReason::Configured as u64, Relaxed);
            }
        }
    }

    /// After a collection: finds the size anew if enough has happened. Call with the GVL.
    pub fn after_collection(&self, monitor: &GcMonitor, heap: &HeapGauges, now_ns: u64) {
        let Some(mut auto) = self.auto.as_ref().and_then(Mutex::try_lock) else { return };
        if !auto.policy.is_due(now_ns) {
            return;
        }
        let reading = auto.read(monitor, heap, now_ns);
        auto.policy.observe(&reading);
        self.slots_max.store(auto.slots(), Relaxed);
        self.malloc_bytes.store(auto.policy.malloc_bytes().max(MALLOC_BYTES_MIN), Relaxed);
        auto.publish(heap);
    }

    /// Before a collection that the slots made due: gives Ruby's heap the slots that it lacks for eden. Call with
    /// the GVL, between units. `old` objects were there after the last full collection: what was promoted since is
    /// garbage for the most part, and the next one makes room there.
    pub fn make_room(&self, monitor: &GcMonitor, old: u64) {
        let Some(mut auto) = self.auto.as_ref().and_then(Mutex::try_lock) else { return };
        let room = monitor.eden_slots.load(Relaxed);
        let wanted = auto.slots();
        // The room is used up, or it would cost more to use it up than to collect.
        let left = room.saturating_sub(monitor.filled());
        let is_short = (room as f64) < wanted as f64 * ENOUGH
            && monitor.stats.available.read() < old + 2 * wanted;
        if is_short && left <= ADDED_MAX && auto.may_fill(wanted) {
            let added = auto.fill(monitor);
            monitor.eden_slots.fetch_add(added, Relaxed);
        }
    }

    /// Free memory was given back, with pages of the heap.
    pub fn after_trim(&self) {
        if let Some(mut auto) = self.auto.as_ref().and_then(Mutex::try_lock) {
            auto.fills = 0;
        }
    }
}

impl AutoEden {
    fn read(&mut self, monitor: &GcMonitor, heap: &HeapGauges, now_ns: u64) -> EdenReading {
        let resident = readings::resident(Path::new(ROOT), std::process::id()).unwrap_or(0);
        let is_close = resident as f64 >= self.limit_bytes as f64 * CLOSE_TO_LIMIT;
        if now_ns >= self.costly_at_ns {
            self.costly_at_ns = now_ns + COSTLY_EVERY_NS;
            let group = Cgroup::read(Path::new(ROOT));
            self.is_pressed = group.is_some_and(|group| {
                group.limit.is_some_and(|limit| group.current as f64 >= limit as f64 * PRESSED)
            });
            self.proportional_bytes = resident;
            if self.limit_bytes > 0 && is_close {
                let memory = ProcessMemory::read(Path::new(ROOT), std::process::id());
                self.proportional_bytes = memory.map_or(resident, |memory| memory.pss);
            }
        }
        let majors_ns = monitor.majors_ns.load(Relaxed);
        let collect_ns = heap.inside_ns.load(Relaxed) + heap.between_ns.load(Relaxed);
        EdenReading {
            now_ns,
            cpu_ns: clock::process_cpu_ns().saturating_sub(majors_ns),
            collect_ns: collect_ns.saturating_sub(majors_ns),
            collections: monitor.stats.count.read(),
            slots: monitor.stats.allocated.read(),
            slot_size: mean_slot_bytes(&self.pools),
            malloc_bytes: monitor.churned.load(Relaxed),
            resident_bytes: if is_close { self.proportional_bytes } else { resident },
            limit_bytes: self.limit_bytes,
            is_pressed: self.is_pressed,
        }
    }

    fn slots(&self) -> u64 {
        self.policy.slot_bytes() / mean_slot_bytes(&self.pools)
    }

    fn publish(&self, heap: &HeapGauges) {
        heap.eden_bytes.store(self.policy.bytes(), Relaxed);
        heap.eden_reason.store(self.policy.reason() as u64, Relaxed);
        heap.gc_share_ppm.store((self.policy.share() * 1e6) as u64, Relaxed);
    }

    /// Whether filling may help: Ruby gives the pages back at once where a variable of the user says so.
    fn may_fill(&mut self, wanted: u64) -> bool {
        if self.fills_for.abs_diff(wanted) * 4 > wanted {
            (self.fills, self.fills_for) = (0, wanted);
        }
        self.fills += 1;
        self.fills <= FILLS_MAX + 2 * wanted / ADDED_MAX
    }

    /// Fills each size of slots with garbage until the heap has its part of eden; returns the slots added.
    fn fill(&mut self, monitor: &GcMonitor) -> u64 {
        // Finishes sweeping, so that the figures are right.
        without_collecting(|| ());
        // This may switch to another thread.
        let before = std::mem::replace(&mut self.pools, pools(monitor));
        let filled: Vec<u64> = self
            .pools
            .iter()
            .enumerate()
            .map(|(at, pool)| pool.allocated - before.get(at).map_or(0, |then| then.allocated))
            .collect();
        let slots = filled.iter().sum::<u64>().max(1) as f64;
        let bytes: u64 = self.pools.iter().zip(&filled).map(|(pool, n)| pool.slot_bytes * n).sum();
        let eden_slots = self.policy.slot_bytes() as f64 / (bytes as f64 / slots).max(1.0);
        let mut added = 0;
        for (pool, filled) in self.pools.iter().zip(&filled) {
            let part = *filled as f64 / slots;
            let free = pool.slots.saturating_sub(pool.allocated.saturating_sub(pool.freed));
            let room = free + (monitor.filled() as f64 * part) as u64;
            let missing = ((eden_slots * part) as u64).saturating_sub(room).min(ADDED_MAX - added);
            if missing > 0 && free <= ADDED_MAX {
                // Ruby adds pages.
                without_collecting(|| allocate(pool.slot_bytes, free + missing));
                added += missing;
            }
        }
        added
    }
}

/// Runs `work`, which must not switch to another thread, while nothing is collected. Call with the GVL.
fn without_collecting(work: impl FnOnce()) {
    // SAFETY: with the GVL; the state of before is restored.
    let was_off = unsafe { rb_sys::rb_gc_disable() } == rb_sys::Qtrue as VALUE;
    work();
    if !was_off {
        // SAFETY: as above.
        unsafe { rb_sys::rb_gc_enable() };
    }
}

/// Bytes of a slot, by what has been allocated.
fn mean_slot_bytes(pools: &[SlotPool]) -> u64 {
    let bytes: u64 = pools.iter().map(|pool| pool.slot_bytes * pool.allocated).sum();
    let slots: u64 = pools.iter().map(|pool| pool.allocated).sum();
    (bytes / slots.max(1)).max(OBJECT_SLOT_BYTES)
}

/// Makes so many objects of this size of slot, which are garbage at once.
fn allocate(slot_bytes: u64, count: u64) {
    let _ = protect(|| {
        for _ in 0..count {
            // SAFETY: with the GVL; the frame owns nothing, if memory runs out.
            unsafe {
                if slot_bytes <= OBJECT_SLOT_BYTES {
                    rb_sys::rb_obj_alloc(rb_sys::rb_cObject);
                } else {
                    rb_sys::rb_str_buf_new((slot_bytes - STRING_HEAD_BYTES) as i64);
                }
            }
        }
        rb_sys::Qnil as VALUE
    });
}

/// The sizes of slots now: one in Ruby 3.1, those of `GC.stat_heap` later.
fn pools(monitor: &GcMonitor) -> Vec<SlotPool> {
    let stats = &monitor.stats;
    let whole = SlotPool {
        slot_bytes: OBJECT_SLOT_BYTES,
        slots: stats.available.read(),
        allocated: stats.allocated.read(),
        freed: stats.freed.read(),
    };
    // SAFETY: called with the GVL.
    let ruby = unsafe { Ruby::get_unchecked() };
    match ruby.module_gc().respond_to("stat_heap", false) {
        Ok(true) => read_pools(&ruby).unwrap_or_else(|_| vec![whole]),
        _ => vec![whole],
    }
}

/// # Errors
/// What Ruby raised meanwhile: interrupts.
fn read_pools(ruby: &Ruby) -> Result<Vec<SlotPool>, Error> {
    let heap: RHash = ruby.module_gc().funcall("stat_heap", ())?;
    let mut pools = Vec::with_capacity(heap.len());
    heap.foreach(|_: u64, pool: RHash| {
        let figure = |name: &str| pool.lookup::<_, Option<u64>>(ruby.to_symbol(name));
        pools.push(SlotPool {
            slot_bytes: figure("slot_size")?.unwrap_or(OBJECT_SLOT_BYTES),
            slots: figure("heap_eden_slots")?.unwrap_or(0),
            allocated: figure("total_allocated_objects")?.unwrap_or(0),
            freed: figure("total_freed_objects")?.unwrap_or(0),
        });
        Ok(magnus::r_hash::ForEach::Continue)
    })?;
    Ok(pools)
}
