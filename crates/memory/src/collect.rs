//! Decides when to collect, as a pure function of readings, at moments when no unit of
//! work is delayed by it.
//!
//! The budget between two collections is *eden*, in slots and in bytes of malloc. A
//! collection is due when a thread has just finished a unit and most of eden is used;
//! earlier when no work waits. A full collection is due when the promoted objects, or
//! the bytes that the program holds, have grown by *longlife* since the last one; it
//! waits for idleness. If no such moment comes, Ruby collects: its limits are set
//! above ours.

/// The state of the queue when a thread has finished a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadActivity {
    /// Another unit waits.
    Between,
    /// No unit waits; other threads run units.
    Quiet,
    /// No unit waits or runs.
    Idle,
    /// No unit has waited or run for the time that was asked for.
    StillIdle,
}

/// Limits, from the configuration and from the running Ruby.
#[derive(Clone, Copy, Debug)]
pub struct EdenBudget {
    /// Slots that can be filled between two collections; at most as many as Ruby
    /// allows, which is learned.
    pub eden_slots: u64,
    /// Bytes of malloc between two collections.
    pub eden_bytes: u64,
    /// Growth since the last full collection that makes the next one due, as a
    /// share; infinite if Ruby alone decides.
    pub longlife: f64,
}

/// The readings that the decision depends on.
#[derive(Clone, Copy, Debug, Default)]
pub struct GcReading {
    /// Slots filled since the last collection.
    pub filled_slots: u64,
    /// Slots that a unit fills, the recent maximum.
    pub unit_slots: u64,
    /// Bytes of malloc since the last collection.
    pub malloc_bytes: u64,
    /// Promoted objects now.
    pub old_objects: u64,
    /// Promoted objects after the last full collection.
    pub old_objects_then: u64,
    /// Bytes that the program has allocated from the allocator now; 0 if unknown.
    pub held_bytes: u64,
    /// The same after the last full collection.
    pub held_bytes_then: u64,
    /// Bytes of malloc since memory was last returned to the system.
    pub churned_bytes: u64,
    /// Ruby wants its next collection to be a full one.
    pub full_asked: bool,
    /// Ruby leaves full collections to us (3.4 and later), so those between units are the only ones that can be full.
    pub full_is_held: bool,
    /// How long a full collection has been due (ns).
    pub overdue_ns: u64,
    /// For how long nothing has run or waited (ns); with [`ThreadActivity::StillIdle`].
    pub idle_ns: u64,
}

/// The decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GcAction {
    /// Do nothing.
    Nothing,
    /// Collect young objects.
    Minor,
    /// Collect everything.
    Full,
    /// Collect everything, then return free memory to the system.
    FullAndTrim,
    /// Decide again when nothing has run for this long (ns).
    WaitIdle(u64),
}

/// Idle times, from the settings `idle_full_ms` and `trim_idle_s`.
#[derive(Clone, Copy, Debug)]
pub struct IdleDelays {
    /// Idle time before a full collection (ns).
    pub full_ns: u64,
    /// Idle time before memory is returned to the system (ns).
    pub trim_ns: u64,
}

/// Share of eden that must be used for a collection between units.
const BETWEEN_SHARE: f64 = 0.9;
/// The same when no unit waits, and when none runs either.
const QUIET_SHARE: f64 = 0.8;
const IDLE_SHARE: f64 = 0.7;
/// A smaller growth of the held bytes is no reason for a full collection.
const HELD_SLACK_BYTES: u64 = 16 << 20;
/// A smaller growth of old objects is no reason for a full collection.
const OLD_SLACK_OBJECTS: u64 = 20_000;
/// Memory is not returned to the system before this much malloc.
pub const TRIM_BYTES: u64 = 4 << 20;
/// A full collection that is due for this long (ns) without an idle moment is done
/// between two units, before Ruby does it inside one.
const OVERDUE_NS: u64 = 2_000_000_000;

/// Decides what a thread does that has just finished a unit.
pub fn decide(
    activity: ThreadActivity,
    budget: &EdenBudget,
    reading: &GcReading,
    delays: &IdleDelays,
) -> GcAction {
    let full_due = is_full_due(budget, reading);
    // A collection that is asked for is a full one while Ruby wants one, even without full marks (`gc_start` in gc.c).
    // Inside a unit Ruby begins a minor one then.
    let is_minor_full = reading.full_asked && reading.full_is_held && full_due;
    let share = |share| if is_minor_full { 1.0 } else { share };
    match activity {
        ThreadActivity::StillIdle => still_idle(full_due, reading, delays),
        ThreadActivity::Between | ThreadActivity::Quiet
            if full_due && reading.overdue_ns >= OVERDUE_NS =>
        {
            GcAction::Full
        }
        ThreadActivity::Between if is_used(share(BETWEEN_SHARE), budget, reading) => {
            GcAction::Minor
        }
        ThreadActivity::Quiet if is_used(share(QUIET_SHARE), budget, reading) => GcAction::Minor,
        ThreadActivity::Idle if is_used(IDLE_SHARE, budget, reading) && !full_due => {
            GcAction::Minor
        }
        ThreadActivity::Idle if full_due => GcAction::WaitIdle(delays.full_ns),
        ThreadActivity::Idle if reading.churned_bytes >= TRIM_BYTES => {
            GcAction::WaitIdle(delays.trim_ns)
        }
        _ => GcAction::Nothing,
    }
}

fn still_idle(full_due: bool, reading: &GcReading, delays: &IdleDelays) -> GcAction {
    let trim_due = reading.churned_bytes >= TRIM_BYTES;
    if trim_due && reading.idle_ns >= delays.trim_ns {
        return GcAction::FullAndTrim;
    }
    match (full_due, trim_due) {
        (true, _) => GcAction::Full,
        (false, true) => GcAction::WaitIdle(delays.trim_ns),
        (false, false) => GcAction::Nothing,
    }
}

/// Whether a full collection is due by our own rule, or because Ruby wants one.
pub fn is_full_due(budget: &EdenBudget, reading: &GcReading) -> bool {
    if budget.longlife.is_infinite() {
        return false;
    }
    let grown = |now: u64, then: u64, slack: u64| {
        now > then + slack && now as f64 > then as f64 * (1.0 + budget.longlife)
    };
    reading.full_asked
        || grown(reading.old_objects, reading.old_objects_then, OLD_SLACK_OBJECTS)
        || grown(reading.held_bytes, reading.held_bytes_then, HELD_SLACK_BYTES)
}

/// Whether that share of eden is used, or the rest is too small for the next unit.
fn is_used(share: f64, budget: &EdenBudget, reading: &GcReading) -> bool {
    let slots = budget.eden_slots;
    let next = reading.filled_slots + reading.unit_slots;
    // Units that each need a large part of eden would cause a collection after every one.
    let next_fits = reading.unit_slots * 4 > slots || next <= slots;
    reading.filled_slots as f64 >= slots as f64 * share
        || reading.malloc_bytes as f64 >= budget.eden_bytes as f64 * share
        || (!next_fits && reading.filled_slots * 2 >= slots)
}

/// The bytes to subtract from Ruby's counter of malloc, so that its `limit` (of which
/// `counted` are used) does not trigger a collection before eden is used up. Bounded
/// by eden; `forgiven` bytes were subtracted since the last collection.
pub fn forgive(budget: &EdenBudget, counted: u64, limit: u64, forgiven: u64) -> u64 {
    let near = counted >= limit / 2;
    // After that, the rest of eden must still cover the whole limit.
    let room = budget.eden_bytes.saturating_sub(forgiven + limit);
    if near {
        counted.min(room)
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: EdenBudget =
        EdenBudget { eden_slots: 1_000_000, eden_bytes: 64 << 20, longlife: 1.0 };
    const DELAYS: IdleDelays = IdleDelays { full_ns: 50_000_000, trim_ns: 1_000_000_000 };

    fn at(activity: ThreadActivity, reading: GcReading) -> GcAction {
        decide(activity, &BUDGET, &reading, &DELAYS)
    }

    #[test]
    fn a_minor_collection_is_due_at_a_smaller_share_of_eden_when_less_work_waits() {
        for (activity, below, from) in [
            (ThreadActivity::Between, 890_000, 900_000),
            (ThreadActivity::Quiet, 790_000, 800_000),
            (ThreadActivity::Idle, 690_000, 700_000),
        ] {
            let filled = |filled_slots| GcReading { filled_slots, ..GcReading::default() };
            assert_eq!(at(activity, filled(below)), GcAction::Nothing, "{activity:?}");
            assert_eq!(at(activity, filled(from)), GcAction::Minor, "{activity:?}");
            let malloc = |share: u64| GcReading {
                malloc_bytes: BUDGET.eden_bytes * share / 1_000_000,
                ..GcReading::default()
            };
            assert_eq!(at(activity, malloc(below)), GcAction::Nothing, "{activity:?}");
            assert_eq!(at(activity, malloc(from + 1)), GcAction::Minor, "{activity:?}");
        }
    }

    #[test]
    fn a_minor_collection_is_due_when_the_next_unit_would_not_fit() {
        let reading =
            |unit_slots| GcReading { filled_slots: 800_000, unit_slots, ..GcReading::default() };
        assert_eq!(at(ThreadActivity::Between, reading(190_000)), GcAction::Nothing);
        assert_eq!(at(ThreadActivity::Between, reading(210_000)), GcAction::Minor);
        let huge = GcReading { filled_slots: 100, unit_slots: 900_000, ..GcReading::default() };
        assert_eq!(
            at(ThreadActivity::Between, huge),
            GcAction::Nothing,
            "it would collect after every unit"
        );
    }

    #[test]
    fn a_full_collection_waits_for_an_idle_moment_until_it_is_overdue() {
        let grown = GcReading {
            old_objects: 900_000,
            old_objects_then: 400_000,
            filled_slots: 600_000,
            ..GcReading::default()
        };
        assert_eq!(at(ThreadActivity::Between, grown), GcAction::Nothing);
        assert_eq!(at(ThreadActivity::Quiet, grown), GcAction::Nothing);
        assert_eq!(at(ThreadActivity::Idle, grown), GcAction::WaitIdle(DELAYS.full_ns));
        assert_eq!(at(ThreadActivity::StillIdle, grown), GcAction::Full);
        let overdue = GcReading { overdue_ns: OVERDUE_NS, ..grown };
        assert_eq!(at(ThreadActivity::Between, overdue), GcAction::Full);
        assert_eq!(at(ThreadActivity::Quiet, overdue), GcAction::Full);
    }

    #[test]
    fn a_full_collection_that_ruby_wants_is_not_done_as_a_minor_one() {
        use ThreadActivity::{Between, Idle, Quiet};
        let at = |activity, filled_slots, full_is_held, overdue_ns| {
            let reading =
                GcReading { filled_slots, full_is_held, overdue_ns, ..GcReading::default() };
            at(activity, GcReading { full_asked: true, ..reading })
        };
        for activity in [Between, Quiet] {
            assert_eq!(at(activity, 950_000, true, 0), GcAction::Nothing);
            assert_eq!(at(activity, 1_000_000, true, 0), GcAction::Minor, "Ruby would begin one");
            assert_eq!(at(activity, 950_000, true, OVERDUE_NS), GcAction::Full);
            assert_eq!(
                at(activity, 950_000, false, 0),
                GcAction::Minor,
                "Ruby may do it in a unit"
            );
        }
        assert_eq!(at(Idle, 950_000, true, 0), GcAction::WaitIdle(DELAYS.full_ns));
    }

    #[test]
    fn longlife_measures_growth_of_old_objects_and_of_held_bytes() {
        let held = |held_bytes| GcReading {
            held_bytes,
            held_bytes_then: 100 << 20,
            ..GcReading::default()
        };
        assert!(!is_full_due(&BUDGET, &held(200 << 20)));
        assert!(is_full_due(&BUDGET, &held(201 << 20)));
        let small = GcReading { old_objects: 15_000, old_objects_then: 10, ..GcReading::default() };
        assert!(!is_full_due(&BUDGET, &small), "a few thousand are no growth");
        let asked = GcReading { full_asked: true, ..GcReading::default() };
        assert!(is_full_due(&BUDGET, &asked));
        let off = EdenBudget { longlife: f64::INFINITY, ..BUDGET };
        assert!(!is_full_due(&off, &held(1 << 40)) && !is_full_due(&off, &asked));
    }

    #[test]
    fn memory_is_returned_after_a_long_idle_time() {
        let churned =
            |idle_ns| GcReading { churned_bytes: 8 << 20, idle_ns, ..GcReading::default() };
        assert_eq!(at(ThreadActivity::Idle, churned(0)), GcAction::WaitIdle(DELAYS.trim_ns));
        assert_eq!(at(ThreadActivity::StillIdle, churned(1)), GcAction::WaitIdle(DELAYS.trim_ns));
        assert_eq!(at(ThreadActivity::StillIdle, churned(DELAYS.trim_ns)), GcAction::FullAndTrim);
        assert_eq!(at(ThreadActivity::StillIdle, GcReading::default()), GcAction::Nothing);
        assert_eq!(at(ThreadActivity::Idle, GcReading::default()), GcAction::Nothing);
    }

    #[test]
    fn forgiven_malloc_is_bounded_by_eden() {
        let limit = 16 << 20;
        assert_eq!(forgive(&BUDGET, limit / 2 - 1, limit, 0), 0, "not near yet");
        assert_eq!(forgive(&BUDGET, 10 << 20, limit, 0), 10 << 20);
        assert_eq!(forgive(&BUDGET, 10 << 20, limit, 45 << 20), 3 << 20, "what is left of it");
        assert_eq!(forgive(&BUDGET, 10 << 20, limit, 48 << 20), 0);
        let small = EdenBudget { eden_bytes: 8 << 20, ..BUDGET };
        assert_eq!(forgive(&small, 10 << 20, limit, 0), 0, "Ruby's own limit is the wider one");
    }
}
