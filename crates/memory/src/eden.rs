//! Finds the size of *eden*, the budget of fresh objects between two collections, from what collecting
//! costs, as a pure function of readings.
//!
//! With eden `e`, the time `t` of a collection and `a` bytes allocated in a second of work, collecting takes
//! `t * a / e` of the work's CPU time, and eden makes the process larger by `e / m`, where `m` is its memory
//! without eden. The sum of the first and [`WORTH`] times the second is least at `e = sqrt(t * a * m / WORTH)`.
//! `t` includes sweeping, of which a larger eden saves nothing, so eden is somewhat larger than the least.
//! This is the square-root rule of Kirisame, Shenoy and Panchekha (Optimal heap limits for reducing browser memory
//! use, OOPSLA 2022), with memory counted in parts of the process instead of bytes. The root halves the errors of the
//! readings, and no other size has to be tried.
//!
//! Bytes are those of slots and of malloc together. Each has the part of eden that it had in what was allocated.

/// The part of the CPU time that is given for memory as large as the process is: two percent of work for five of
/// memory. For JSON of 10 KB to 2 MB in 25 threads (Ruby 3.1) this finds 20 to 40 MB, where half of it costs 4 % of
/// the work, and twice as much gains 1 % for 15 % more memory.
const WORTH: f64 = 0.4;
/// Eden changes when another size differs by more than this factor: the readings are no better.
const CHANGE: f64 = 1.33;
/// And by no more than this one at a time: from 4 to 256 MiB in six steps, of which
const GROWTH: f64 = 2.0;
/// each needs so many collections
const COLLECTIONS_MIN: u64 = 4;
/// and so much time (ns).
const WINDOW_NS: u64 = 200_000_000;
/// With fewer collections the costs are known after this time, too (ns).
const WINDOW_MAX_NS: u64 = 10_000_000_000;
/// What was read before the last decision counts this much: a unit may allocate a hundred times as much as another.
const KEPT: f64 = 0.7;
/// A window in which the process computed for less than this part of the time says nothing of its work.
const BUSY_MIN: f64 = 0.05;
/// The memory of a process without eden is at least this part of all.
const BASE_MIN: f64 = 0.25;
/// Eden shrinks when the process has this part of its ceiling,
const MEMORY_HIGH: f64 = 0.9;
/// does not grow above this one,
const MEMORY_FULL: f64 = 0.75;
/// and not for this time (ns) after it had to shrink.
const HOLD_NS: u64 = 60_000_000_000;
/// The part of the ceiling that eden may be.
const LIMIT_SHARE: f64 = 0.2;
/// The smallest eden that is found, and the largest.
pub const BYTES_MIN: u64 = 4 << 20;
/// See [`BYTES_MIN`].
pub const BYTES_MAX: u64 = 256 << 20;

/// Sums since the process began, and facts of now.
#[derive(Clone, Copy, Debug, Default)]
pub struct EdenReading {
    /// The monotonic clock (ns).
    pub now_ns: u64,
    /// CPU time of the process (ns), without full collections: one of them costs many times as much as a minor one,
    /// whatever eden's size is.
    pub cpu_ns: u64,
    /// The part of it that minor collections took (ns).
    pub collect_ns: u64,
    /// Collections.
    pub collections: u64,
    /// Slots that were filled.
    pub slots: u64,
    /// Bytes of a slot of late, as a mean.
    pub slot_size: u64,
    /// Bytes of malloc.
    pub malloc_bytes: u64,
    /// Bytes of memory that the process has.
    pub resident_bytes: u64,
    /// Its ceiling; 0: there is none.
    pub limit_bytes: u64,
    /// The container's memory is nearly used up.
    pub is_pressed: bool,
}

/// Why eden has its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum EdenReason {
    /// The setting says so.
    Configured,
    /// As derived from what was alive after boot, or as learned before.
    Start,
    /// Collecting less often is worth more than the memory.
    Growing,
    /// Another size would cost more.
    Steady,
    /// Collecting costs so little that the memory is worth more.
    Shrinking,
    /// The process, or its container, has little memory left.
    Memory,
}

impl EdenReason {
    /// Every reason, in the order of its number.
    pub const ALL: [Self; 6] =
        [Self::Configured, Self::Start, Self::Growing, Self::Steady, Self::Shrinking, Self::Memory];

    /// The reason with this number; the first one for another number.
    pub fn of(number: u64) -> Self {
        usize::try_from(number)
            .ok()
            .and_then(|at| Self::ALL.get(at))
            .copied()
            .unwrap_or(Self::Configured)
    }

    /// A word for `status` and metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::Configured => "configured",
            Self::Start => "start",
            Self::Growing => "growing",
            Self::Steady => "steady",
            Self::Shrinking => "shrinking",
            Self::Memory => "memory",
        }
    }
}

/// What collecting costs, as sums in which the past counts less and less.
#[derive(Clone, Copy, Debug, Default)]
struct Costs {
    collect_ns: f64,
    work_ns: f64,
    collections: f64,
    slot_bytes: f64,
    malloc_bytes: f64,
}

/// The size of eden of one process; see the module.
#[derive(Debug)]
pub struct EdenPolicy {
    bytes: u64,
    reason: EdenReason,
    costs: Costs,
    since: EdenReading,
    /// Eden does not grow until then (ns).
    held_until_ns: u64,
}

impl EdenPolicy {
    /// Begins with `bytes` of eden, or with what the ceiling allows: it may be lower than when that was found.
    pub fn new(bytes: u64, now: &EdenReading) -> Self {
        Self {
            bytes: bytes.min(most(now)),
            reason: EdenReason::Start,
            costs: Costs::default(),
            since: *now,
            held_until_ns: 0,
        }
    }

    /// Bytes that may be allocated between two collections.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The part of them in slots; all of them until it is known.
    pub fn slot_bytes(&self) -> u64 {
        (self.bytes as f64 * self.costs.slot_share()) as u64
    }

    /// The part of them from malloc; all of them until it is known.
    pub fn malloc_bytes(&self) -> u64 {
        match self.costs.bytes() {
            0.0 => self.bytes,
            _ => self.bytes - self.slot_bytes(),
        }
    }

    /// Why.
    pub fn reason(&self) -> EdenReason {
        self.reason
    }

    /// The collector's time of late as a share of the work's CPU time.
    pub fn share(&self) -> f64 {
        self.costs.collect_ns / self.costs.work_ns.max(1.0)
    }

    /// Whether [`Self::observe`] may decide: it is not worth a reading before.
    pub fn is_due(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.since.now_ns) >= WINDOW_NS
    }

    /// Decides anew, if enough has happened since the last time; true when eden has another size now.
    pub fn observe(&mut self, now: &EdenReading) -> bool {
        let elapsed = now.now_ns.saturating_sub(self.since.now_ns);
        if elapsed < WINDOW_NS {
            return false;
        }
        if is_short_of_memory(now) {
            self.since = *now;
            self.held_until_ns = now.now_ns + HOLD_NS;
            let bytes = (self.bytes / 2).max(BYTES_MIN).min(self.bytes);
            return self.set(bytes, EdenReason::Memory);
        }
        let collections = now.collections.saturating_sub(self.since.collections);
        if collections < COLLECTIONS_MIN && elapsed < WINDOW_MAX_NS {
            return false;
        }
        let since = std::mem::replace(&mut self.since, *now);
        let is_busy = now.cpu_ns.saturating_sub(since.cpu_ns) as f64 >= elapsed as f64 * BUSY_MIN;
        is_busy && self.costs.add(&since, now) && self.decide(now)
    }

    fn decide(&mut self, now: &EdenReading) -> bool {
        let best =
            (self.costs.best(now.resident_bytes) as u64).clamp(BYTES_MIN, most(now).max(BYTES_MIN));
        // Where single units allocate more than eden has, a larger one changes nothing.
        let given = (self.bytes as f64).max(self.costs.bytes() / self.costs.collections);
        if best as f64 > given * CHANGE || (best > self.bytes && best == BYTES_MAX) {
            let is_held = now.now_ns < self.held_until_ns
                || now.resident_bytes >= part(now.limit_bytes, MEMORY_FULL);
            let bytes = best.min((self.bytes as f64 * GROWTH) as u64);
            return !is_held && self.set(bytes, EdenReason::Growing);
        }
        if (best as f64) < self.bytes as f64 / CHANGE || (best < self.bytes && best == BYTES_MIN) {
            let bytes = best.max((self.bytes as f64 / GROWTH) as u64);
            return self.set(bytes, EdenReason::Shrinking);
        }
        self.reason = EdenReason::Steady;
        false
    }

    fn set(&mut self, bytes: u64, reason: EdenReason) -> bool {
        self.reason = reason;
        std::mem::replace(&mut self.bytes, bytes) != bytes
    }
}

impl Costs {
    /// Adds what has happened between two readings; false while nothing was collected.
    fn add(&mut self, since: &EdenReading, now: &EdenReading) -> bool {
        let add = |sum: &mut f64, now: u64, then: u64| {
            *sum = sum.mul_add(KEPT, now.saturating_sub(then) as f64);
        };
        let collect_ns = |reading: &EdenReading| reading.collect_ns.min(reading.cpu_ns);
        add(&mut self.collect_ns, now.collect_ns, since.collect_ns);
        add(&mut self.work_ns, now.cpu_ns - collect_ns(now), since.cpu_ns - collect_ns(since));
        add(&mut self.collections, now.collections, since.collections);
        add(&mut self.slot_bytes, now.slots.saturating_sub(since.slots) * now.slot_size, 0);
        add(&mut self.malloc_bytes, now.malloc_bytes, since.malloc_bytes);
        self.collections > 0.0
    }

    fn bytes(&self) -> f64 {
        self.slot_bytes + self.malloc_bytes
    }

    fn slot_share(&self) -> f64 {
        match self.bytes() {
            0.0 => 1.0,
            bytes => self.slot_bytes / bytes,
        }
    }

    /// The size that costs least in CPU time and memory.
    fn best(&self, resident_bytes: u64) -> f64 {
        let (time, rate) =
            (self.collect_ns / self.collections, self.bytes() / self.work_ns.max(1.0));
        let resident = resident_bytes as f64;
        let base = (resident - self.bytes() / self.collections).max(resident * BASE_MIN);
        (time * rate * base / WORTH).sqrt()
    }
}

fn is_short_of_memory(now: &EdenReading) -> bool {
    now.is_pressed || now.resident_bytes >= part(now.limit_bytes, MEMORY_HIGH)
}

/// The largest eden below this ceiling.
fn most(now: &EdenReading) -> u64 {
    BYTES_MAX.min(part(now.limit_bytes, LIMIT_SHARE))
}

/// A part of the ceiling; without a ceiling as much as there can be.
fn part(limit_bytes: u64, share: f64) -> u64 {
    match limit_bytes {
        0 => u64::MAX,
        limit => (limit as f64 * share) as u64,
    }
}

#[cfg(test)]
mod tests;
