//! A simulated process: units fill slots, and collections cost time. The prices of Ruby 3.1 are derived from two
//! measured sizes of eden; those of Ruby 3.4 are assumed, as a variant with cheaper sweeping.

use super::*;

const SLOT_BYTES: u64 = 40;
const SECOND: u64 = 1_000_000_000;
/// As `Chaton::Memory::Eden` has it: Ruby's own limit is not undercut.
const MALLOC_BYTES_MIN: u64 = 32 << 20;

/// What a process does and what its collector costs.
#[derive(Clone, Copy)]
struct Load {
    /// CPU time of a unit without collections (ns), and what it allocates.
    unit_ns: u64,
    unit_slots: u64,
    unit_bytes: u64,
    /// Promoted objects.
    old: u64,
    /// Objects of units that run at the same time.
    young: u64,
    /// Part of the time in which the process computes.
    busy: f64,
}

/// Prices of a collection (ns): for itself, for each live object of a unit, each promoted one, and each slot.
#[derive(Clone, Copy)]
struct Prices {
    fixed: f64,
    young: f64,
    old: f64,
    slot: f64,
}

const RUBY_3_1: Prices = Prices { fixed: 300_000.0, young: 25.0, old: 1.5, slot: 18.0 };
/// Larger slots, lazier sweeping, no promotion while full marks are off.
const RUBY_3_4: Prices = Prices { fixed: 200_000.0, young: 30.0, old: 0.5, slot: 9.0 };

/// Small pages over a small heap; JSON of megabytes; small pages over a catalogue.
const HELLO: Load =
    Load { unit_ns: 12_000, unit_slots: 25, unit_bytes: 0, old: 45_000, young: 500, busy: 0.9 };
const PAYLOADS: Load = Load {
    unit_ns: 15_000_000,
    unit_slots: 25_000,
    unit_bytes: 3_000_000,
    old: 48_000,
    young: 80_000,
    busy: 0.9,
};
const CATALOGUE: Load = Load {
    unit_ns: 250_000,
    unit_slots: 2_571,
    unit_bytes: 0,
    old: 600_000,
    young: 5_000,
    busy: 0.9,
};

struct Process {
    policy: EdenPolicy,
    now: EdenReading,
    prices: Prices,
    filled: u64,
    malloc: u64,
    /// Bytes beside eden.
    base_bytes: u64,
    /// When eden changed, and to what.
    changes: Vec<(u64, u64)>,
    /// The smallest unit as a part of the mean; the largest is as much above it.
    smallest: f64,
    random: u64,
}

impl Process {
    fn new(bytes: u64, prices: Prices) -> Self {
        let now = EdenReading { slot_size: SLOT_BYTES, ..EdenReading::default() };
        let policy = EdenPolicy::new(bytes, &now);
        Self {
            policy,
            now,
            prices,
            filled: 0,
            malloc: 0,
            base_bytes: 50 << 20,
            changes: Vec::new(),
            smallest: 0.01,
            random: 7,
        }
    }

    fn run(&mut self, load: Load, seconds: u64) -> &mut Self {
        let end = self.now.now_ns + seconds * SECOND;
        while self.now.now_ns < end {
            let unit = self.unit(load);
            self.compute(unit.unit_ns, load.busy);
            self.now.slots += unit.unit_slots;
            self.filled += unit.unit_slots;
            self.malloc += unit.unit_bytes;
            let eden = &self.policy;
            if self.filled >= eden.slot_bytes() / SLOT_BYTES
                || self.malloc >= eden.malloc_bytes().max(MALLOC_BYTES_MIN)
            {
                self.collect(load);
            }
            self.now.resident_bytes = self.base_bytes + self.policy.bytes();
            if self.policy.observe(&self.now) {
                self.changes.push((self.now.now_ns, self.policy.bytes()));
            }
        }
        self
    }

    /// The next unit: a linear congruential generator (Knuth's MMIX) chooses its size.
    fn unit(&mut self, load: Load) -> Load {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let size = self.smallest
            + (self.random >> 11) as f64 / (1u64 << 53) as f64 * 2.0 * (1.0 - self.smallest);
        let part = |whole: u64| (whole as f64 * size) as u64;
        Load {
            unit_ns: part(load.unit_ns).max(1_000),
            unit_slots: part(load.unit_slots),
            unit_bytes: part(load.unit_bytes),
            ..load
        }
    }

    fn compute(&mut self, ns: u64, busy: f64) {
        self.now.cpu_ns += ns;
        self.now.now_ns += (ns as f64 / busy) as u64;
    }

    fn collect(&mut self, load: Load) {
        let mark = marking(load, self.prices);
        let cost = mark + self.prices.slot * self.filled as f64;
        self.compute(cost as u64, load.busy);
        self.now.collect_ns += cost as u64;
        self.now.collections += 1;
        self.now.malloc_bytes += self.malloc;
        (self.filled, self.malloc) = (0, 0);
    }

    fn changes_since(&self, ns: u64) -> usize {
        self.changes.iter().filter(|(at, _)| *at > ns).count()
    }
}

/// What a collection costs beside the sweeping of what was allocated.
fn marking(load: Load, prices: Prices) -> f64 {
    let Prices { fixed, young, old, slot } = prices;
    fixed
        + young * load.young as f64
        + old * load.old as f64
        + slot * (load.old + load.young) as f64
}

/// What a second of work costs with this eden, in CPU time and memory together.
fn cost_of(bytes: u64, load: Load, prices: Prices, base_bytes: u64) -> f64 {
    let allocated = (load.unit_slots * SLOT_BYTES + load.unit_bytes) as f64 / load.unit_ns as f64;
    marking(load, prices) * allocated / bytes as f64 + WORTH * bytes as f64 / base_bytes as f64
}

#[test]
fn a_share_that_is_small_keeps_the_smallest_eden() {
    for prices in [RUBY_3_1, RUBY_3_4] {
        let mut process = Process::new(BYTES_MIN, prices);
        process.run(Load { unit_slots: 5, ..HELLO }, 30);
        assert_eq!(process.changes, []);
        assert_eq!(process.policy.reason(), EdenReason::Steady);
    }
}

#[test]
fn no_other_size_costs_much_less() {
    for prices in [RUBY_3_1, RUBY_3_4] {
        for (name, load) in [("payloads", PAYLOADS), ("catalogue", CATALOGUE)] {
            // With a large eden it takes longer, since collections are rare.
            for (begin, seconds) in [(BYTES_MIN, 2), (128 << 20, 30)] {
                let mut process = Process::new(begin, prices);
                process.run(load, seconds);
                let found = process.policy.bytes();
                let own = cost_of(found, load, prices, process.base_bytes);
                let least = (BYTES_MIN >> 20..=BYTES_MAX >> 20)
                    .map(|mib| cost_of(mib << 20, load, prices, process.base_bytes))
                    .fold(f64::MAX, f64::min);
                assert!(own < least * 1.15, "{name} from {begin}: {found} costs {own} of {least}");
            }
        }
    }
}

#[test]
fn a_steady_load_has_a_steady_eden_though_its_units_differ() {
    for prices in [RUBY_3_1, RUBY_3_4] {
        for load in [HELLO, PAYLOADS, CATALOGUE] {
            let mut process = Process::new(BYTES_MIN, prices);
            process.run(load, 5);
            let settled = process.now.now_ns;
            process.run(load, 300);
            assert!(process.changes_since(settled) <= 4, "{:?}", process.changes);
        }
    }
}

#[test]
fn it_follows_a_load_that_changes_and_does_not_swing() {
    let mut process = Process::new(BYTES_MIN, RUBY_3_1);
    process.run(PAYLOADS, 5);
    let large = process.policy.bytes();
    process.run(Load { unit_slots: 5, ..HELLO }, 120);
    assert_eq!(process.policy.bytes(), BYTES_MIN, "{:?}", process.changes);
    process.run(PAYLOADS, 5);
    let again = process.policy.bytes() as f64 / large as f64;
    assert!((0.7..1.4).contains(&again), "{:?}", process.changes);

    // A second of the one, a second of the other.
    let mut process = Process::new(BYTES_MIN, RUBY_3_1);
    for _ in 0..20 {
        process.run(PAYLOADS, 1).run(HELLO, 1);
    }
    let settled = process.now.now_ns;
    for _ in 0..60 {
        process.run(PAYLOADS, 1).run(HELLO, 1);
    }
    assert!(process.changes_since(settled) <= 120, "{:?}", process.changes);
    let most = process.changes.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0);
    assert!(most <= large * 2, "{:?}", process.changes);
}

#[test]
fn idleness_changes_nothing_and_a_burst_begins_with_what_was_found() {
    let mut process = Process::new(BYTES_MIN, RUBY_3_1);
    process.run(PAYLOADS, 5);
    let found = process.policy.bytes();
    process.run(Load { busy: 0.01, ..HELLO }, 60);
    assert_eq!(process.policy.bytes(), found);
}

#[test]
fn a_unit_larger_than_eden_makes_it_no_larger_than_helps() {
    let huge = Load { unit_ns: 3 * SECOND, unit_slots: 20_000_000, young: 2_000_000, ..PAYLOADS };
    let mut process = Process::new(BYTES_MIN, RUBY_3_1);
    process.run(huge, 120);
    assert!(process.policy.bytes() <= BYTES_MIN * 4, "{:?}", process.changes);
}

#[test]
fn a_heap_that_grows_gets_a_larger_eden() {
    let mut process = Process::new(BYTES_MIN, RUBY_3_1);
    let mut found = Vec::new();
    for old in [50_000, 500_000, 2_000_000] {
        process.run(Load { old, young: 2_000, ..CATALOGUE }, 60);
        found.push(process.policy.bytes());
    }
    assert!(found.is_sorted() && found[2] > found[0], "{found:?} {:?}", process.changes);
}

#[test]
fn eden_is_a_fifth_of_the_ceiling_and_gives_way_near_it() {
    let mut process = Process::new(BYTES_MIN, RUBY_3_1);
    process.now.limit_bytes = 100 << 20;
    process.run(PAYLOADS, 10);
    assert!(process.policy.bytes() <= 20 << 20, "{:?}", process.changes);
    process.base_bytes = 95 << 20;
    process.run(PAYLOADS, 2);
    assert_eq!((process.policy.bytes(), process.policy.reason()), (BYTES_MIN, EdenReason::Memory));

    process.base_bytes = 40 << 20;
    let before = process.now.now_ns;
    process.run(PAYLOADS, 8);
    assert_eq!(process.changes_since(before), 0, "it does not swing around the bound");

    let mut process = Process::new(64 << 20, RUBY_3_1);
    process.now.is_pressed = true;
    process.run(PAYLOADS, 2);
    assert_eq!(process.policy.bytes(), BYTES_MIN);
}

#[test]
fn what_was_found_below_a_higher_ceiling_is_not_used() {
    let now = EdenReading { limit_bytes: 100 << 20, ..EdenReading::default() };
    assert_eq!(EdenPolicy::new(64 << 20, &now).bytes(), 20 << 20);
    assert_eq!(EdenPolicy::new(64 << 20, &EdenReading::default()).bytes(), 64 << 20);
}

#[test]
fn no_load_takes_more_than_the_largest_eden() {
    let heavy = Load { old: 60_000_000, ..CATALOGUE };
    let mut process = Process::new(BYTES_MIN, RUBY_3_1);
    process.run(heavy, 200);
    assert_eq!(process.policy.bytes(), BYTES_MAX);
}

#[test]
fn reasons_keep_their_numbers() {
    for (number, reason) in EdenReason::ALL.into_iter().enumerate() {
        assert_eq!(reason as usize, number);
        assert_eq!(EdenReason::of(number as u64), reason);
    }
    assert_eq!(EdenReason::of(77), EdenReason::Configured);
}
