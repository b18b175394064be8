//! Finds the size of *eden*, the budget of fresh objects between two collections, from what collecting
//! costs, as a pure function of readings.
//!
//! A collection marks what is alive and so costs about the same whatever eden's size is; sweeping and
//! fresh pages cost in proportion to what was allocated. A larger eden therefore lowers the collector's
//! share until sweeping is most of it, and from there on only costs memory. The policy doubles eden
//! while collecting takes more than [`SHARE_HIGH`] of the CPU time of the work itself, keeps a doubling
//! only if it lowered that share, and makes eden smaller again while the share is below [`SHARE_LOW`] or
//! memory runs out. MMTk's Ruby binding steers the size of its heap by the collector's share of the CPU time, too
//! (its heap mode `cpu`).

/// Above this share of the work's CPU time a larger eden is tried: at most a twentieth is left to gain. With
/// Ruby's own sizes a large heap takes 35 % (docs/decisions/015).
const SHARE_HIGH: f64 = 0.05;
/// Below this share eden shrinks. A doubling halves the share at most, so that a share of [`SHARE_HIGH`]
/// never becomes one that makes eden shrink again.
const SHARE_LOW: f64 = 0.02;
/// Eden grows by this factor: from 4 to 256 MiB in six steps.
const GROWTH: f64 = 2.0;
/// And shrinks by this one, which raises the share less than a growth lowers it.
const SHRINK: f64 = 0.75;
/// A doubling is kept when the share becomes smaller than this part of what it was. Where marking is all
/// the cost it becomes half of it, where sweeping is, it stays. Payloads of 10 KB to 2 MB on Ruby 3.1 took 3 ms
/// for a collection of 30,000 slots and 11 ms for one of 440,000; a line through both gives 0.60, 0.67, 0.76,
/// 0.84 and 0.90 for the doublings from 30,000 on, of which the last one is not worth 20 MB.
const GAIN: f64 = 0.85;
/// A decision needs so many collections, since a single one may meet a large unit,
const COLLECTIONS_MIN: u64 = 4;
/// and so much time since the last decision (ns): six doublings take 1.2 s.
const WINDOW_NS: u64 = 200_000_000;
/// With fewer collections the share is known after this time, too (ns): a single collection says nothing of
/// one second, but enough of ten.
const WINDOW_MAX_NS: u64 = 10_000_000_000;
/// The heap has this part of eden, or had this time to get it (ns), before a new size is judged.
const ROOM: f64 = 0.85;
const SETTLE_NS: u64 = 300_000_000;
/// A window in which the process computed for less than this part of the time says nothing of its work.
const BUSY_MIN: f64 = 0.05;
/// After a doubling that gained nothing the next one is tried after this time (ns), which doubles each time,
const HOLD_NS: u64 = 4_000_000_000;
/// up to this time.
const HOLD_MAX_NS: u64 = 640_000_000_000;
/// It is tried at once when units allocate by this factor more or less, or the share has changed by it.
const CHANGE: f64 = 2.0;
/// Eden shrinks when the process has this part of its ceiling,
const MEMORY_HIGH: f64 = 0.9;
/// and does not grow above this one.
const MEMORY_FULL: f64 = 0.75;
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
    /// Slots filled.
    pub slots: u64,
    /// Bytes of slots that Ruby's heap has between two collections.
    pub room_bytes: u64,
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
    /// Collecting costs enough that a larger one is tried.
    Growing,
    /// Collecting costs little enough, or a larger one gained nothing.
    Steady,
    /// Collecting costs so little that a smaller one does.
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

/// A doubling that is on trial.
#[derive(Clone, Copy, Debug)]
struct Trial {
    /// Eden before it.
    bytes: u64,
    /// The collector's share before it.
    share: f64,
}

/// After a doubling that gained nothing, or when memory had run out.
#[derive(Clone, Copy, Debug)]
struct Hold {
    until_ns: u64,
    time_ns: u64,
    /// The share, and the slots filled in a second of the work's CPU time, whose change ends it early.
    load: Option<(f64, f64)>,
}

/// The size of eden of one process; see the module.
#[derive(Debug)]
pub struct EdenPolicy {
    bytes: u64,
    reason: EdenReason,
    /// The collector's time in the last window as a share of the work's CPU time, and the slots that a second of
    /// the latter filled.
    share: f64,
    slots_per_cpu_s: f64,
    since: EdenReading,
    trial: Option<Trial>,
    /// Eden does not have this size everywhere: the first collection after a change still belongs to the old
    /// size, and the heap may lack pages.
    settling: bool,
    hold: Option<Hold>,
}

impl EdenPolicy {
    /// Begins with `bytes` of eden, or with what the ceiling allows: it may be lower than when that was found.
    pub fn new(bytes: u64, now: &EdenReading) -> Self {
        Self {
            bytes: bytes.min(most(now)),
            reason: EdenReason::Start,
            share: 0.0,
            slots_per_cpu_s: 0.0,
            since: *now,
            trial: None,
            settling: false,
            hold: None,
        }
    }

    /// Bytes that may be allocated between two collections.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Why.
    pub fn reason(&self) -> EdenReason {
        self.reason
    }

    /// The collector's time in the last window as a share of the work's CPU time.
    pub fn share(&self) -> f64 {
        self.share
    }

    /// Whether [`Self::observe`] may decide: it is not worth a reading before.
    pub fn is_due(&self, now_ns: u64) -> bool {
        self.settling || now_ns.saturating_sub(self.since.now_ns) >= WINDOW_NS
    }

    /// Decides anew, if enough has happened since the last time; true when eden has another size now.
    pub fn observe(&mut self, now: &EdenReading) -> bool {
        if is_short_of_memory(now) {
            return self.give_way(now);
        }
        let since = self.since;
        let elapsed = now.now_ns.saturating_sub(since.now_ns);
        let collections = now.collections.saturating_sub(since.collections);
        if self.settling && collections > 0 {
            // The heap gets its pages little by little.
            let has_room = now.room_bytes as f64 >= self.bytes as f64 * ROOM;
            self.settling = !has_room && elapsed < SETTLE_NS;
            if !self.settling {
                self.since = *now;
            }
            return false;
        }
        let is_known = collections >= COLLECTIONS_MIN && elapsed >= WINDOW_NS;
        if !is_known && elapsed < WINDOW_MAX_NS {
            return false;
        }
        self.since = *now;
        let cpu = now.cpu_ns.saturating_sub(since.cpu_ns) as f64;
        if cpu < elapsed as f64 * BUSY_MIN {
            return false;
        }
        let collect = now.collect_ns.saturating_sub(since.collect_ns) as f64;
        // At least a nanosecond, where the two clocks differ a little.
        let work = (cpu - collect).max(1.0);
        self.share = collect / work;
        self.slots_per_cpu_s = now.slots.saturating_sub(since.slots) as f64 * 1e9 / work;
        self.decide(now)
    }

    fn decide(&mut self, now: &EdenReading) -> bool {
        let share = self.share;
        if let Some(trial) = self.trial.take() {
            if share > trial.share * GAIN && share > SHARE_HIGH {
                self.hold_back(now.now_ns, Some((trial.share, self.slots_per_cpu_s)));
                return self.set(trial.bytes, EdenReason::Steady);
            }
        }
        if self.hold.is_some_and(|hold| hold.is_over(now.now_ns, share, self.slots_per_cpu_s)) {
            // The next time is longer if nothing but time has passed.
            self.hold = self.hold.filter(|hold| now.now_ns >= hold.until_ns);
        } else if self.hold.is_some() && share >= SHARE_LOW {
            self.reason = EdenReason::Steady;
            return false;
        }
        if share > SHARE_HIGH {
            let bytes = ((self.bytes as f64 * GROWTH) as u64).min(most(now));
            if bytes > self.bytes && now.resident_bytes < part(now.limit_bytes, MEMORY_FULL) {
                self.trial = Some(Trial { bytes: self.bytes, share });
                return self.set(bytes, EdenReason::Growing);
            }
        }
        if share < SHARE_LOW && self.bytes > BYTES_MIN {
            self.hold = None;
            let bytes = (self.bytes as f64 * SHRINK) as u64;
            return self.set(bytes.max(BYTES_MIN), EdenReason::Shrinking);
        }
        self.reason = EdenReason::Steady;
        false
    }

    /// Does not grow for some time.
    fn hold_back(&mut self, now_ns: u64, load: Option<(f64, f64)>) {
        let time_ns = self.hold.map_or(HOLD_NS, |hold| (hold.time_ns * 2).min(HOLD_MAX_NS));
        self.hold = Some(Hold { until_ns: now_ns + time_ns, time_ns, load });
    }

    /// Halves eden.
    fn give_way(&mut self, now: &EdenReading) -> bool {
        if now.now_ns.saturating_sub(self.since.now_ns) < WINDOW_NS {
            return false;
        }
        self.since = *now;
        self.trial = None;
        self.hold_back(now.now_ns, None);
        let bytes = (self.bytes / 2).max(BYTES_MIN).min(self.bytes);
        self.set(bytes, EdenReason::Memory)
    }

    fn set(&mut self, bytes: u64, reason: EdenReason) -> bool {
        self.reason = reason;
        let is_other = bytes != self.bytes;
        self.settling |= is_other;
        self.bytes = bytes;
        is_other
    }
}

impl Hold {
    fn is_over(&self, now_ns: u64, share: f64, slots_per_cpu_s: f64) -> bool {
        let changed = |now: f64, then: f64| now > then * CHANGE || now * CHANGE < then;
        now_ns >= self.until_ns
            || self.load.is_some_and(|(share_then, slots_then)| {
                changed(share, share_then) || changed(slots_per_cpu_s, slots_then)
            })
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
