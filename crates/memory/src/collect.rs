//! When to collect: a pure function of what was read, for the moments at which
//! no unit of work suffers from it.
//!
//! The budget between two collections is *eden*, in slots and in bytes of
//! malloc. Collecting is due when most of it is used and a thread has just
//! finished a unit; earlier when nothing waits. A full collection is due when
//! what was promoted, or what the program holds, has grown by *longlife* since
//! the last one; it waits for idleness. What is done when no such moment comes
//! is Ruby's own business: its limits lie behind ours.

/// What a thread is about to do when it asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// It takes the next unit: another one waits already.
    Between,
    /// It found nothing to take, while other threads run units.
    Quiet,
    /// It found nothing to take, and nothing runs.
    Idle,
    /// Nothing was run or waited for as long as was asked for.
    StillIdle,
}

/// Limits, from the configuration and from what the running Ruby allows.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Slots that can be filled between two collections; what Ruby itself would
    /// allow, as learned.
    pub eden_slots: u64,
    /// Bytes of malloc between two collections.
    pub eden_bytes: u64,
    /// Growth since the last full collection that makes the next one due, as a
    /// share; infinite where Ruby decides alone.
    pub longlife: f64,
}

/// What was read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reading {
    /// Slots filled since the last collection.
    pub filled_slots: u64,
    /// Slots that a unit fills at most, as seen lately.
    pub unit_slots: u64,
    /// Bytes of malloc since the last collection.
    pub malloc_bytes: u64,
    /// Promoted objects now.
    pub old_objects: u64,
    /// Promoted objects after the last full collection.
    pub old_objects_then: u64,
    /// Bytes that the program holds of the allocator now, 0 where unknown.
    pub held_bytes: u64,
    /// The same after the last full collection.
    pub held_bytes_then: u64,
    /// Bytes of malloc that were freed or kept since memory was last given back.
    pub churned_bytes: u64,
    /// Ruby has said that its next collection has to be a full one.
    pub full_asked: bool,
    /// How long a full collection has been due without a moment for it (ns).
    pub overdue_ns: u64,
    /// Since when nothing runs or waits (ns); of [`Moment::StillIdle`].
    pub idle_ns: u64,
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Go on.
    Nothing,
    /// Collect young objects.
    Minor,
    /// Collect everything.
    Full,
    /// Collect everything, then give free memory back.
    FullAndTrim,
    /// Ask again when nothing has run for this long (ns).
    WaitIdle(u64),
}

/// How the moments are told apart; the settings `idle_full_ms` and `trim_idle_s`.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Idle time before a full collection (ns).
    pub full_ns: u64,
    /// Idle time before memory is given back (ns).
    pub trim_ns: u64,
}

/// Share of eden that is used before a collection between units.
const BETWEEN_SHARE: f64 = 0.9;
/// The same where nothing waits in the queue, and where nothing runs either.
const QUIET_SHARE: f64 = 0.8;
const IDLE_SHARE: f64 = 0.7;
/// Growth of what the program holds below this is no reason to collect.
const HELD_SLACK_BYTES: u64 = 16 << 20;
/// Growth of old objects below this is none either.
const OLD_SLACK_OBJECTS: u64 = 20_000;
/// Less malloc than this is not worth giving back.
pub const TRIM_BYTES: u64 = 4 << 20;
/// A full collection that found no idle moment for this long (ns) takes place
/// between two units, so that Ruby does not do it inside one.
const OVERDUE_NS: u64 = 2_000_000_000;

/// Decides what a thread that has just finished a unit does about memory.
pub fn decide(moment: Moment, budget: &Budget, reading: &Reading, patience: &Patience) -> Action {
    let full_due = is_full_due(budget, reading);
    match moment {
        Moment::StillIdle => still_idle(full_due, reading, patience),
        // Whoever waits has waited long enough for a better moment.
        Moment::Between | Moment::Quiet if full_due && reading.overdue_ns >= OVERDUE_NS => {
            Action::Full
        }
        Moment::Between if is_used(BETWEEN_SHARE, budget, reading) => Action::Minor,
        Moment::Quiet if is_used(QUIET_SHARE, budget, reading) => Action::Minor,
        Moment::Idle if is_used(IDLE_SHARE, budget, reading) && !full_due => Action::Minor,
        Moment::Idle if full_due => Action::WaitIdle(patience.full_ns),
        Moment::Idle if reading.churned_bytes >= TRIM_BYTES => Action::WaitIdle(patience.trim_ns),
        _ => Action::Nothing,
    }
}

fn still_idle(full_due: bool, reading: &Reading, patience: &Patience) -> Action {
    let trim_due = reading.churned_bytes >= TRIM_BYTES;
    if trim_due && reading.idle_ns >= patience.trim_ns {
        return Action::FullAndTrim;
    }
    match (full_due, trim_due) {
        (true, _) => Action::Full,
        (false, true) => Action::WaitIdle(patience.trim_ns),
        (false, false) => Action::Nothing,
    }
}

/// Whether a full collection is due by our own rule, or by Ruby's word.
pub fn is_full_due(budget: &Budget, reading: &Reading) -> bool {
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

/// Whether that share of eden is used, or what is left would not last for the
/// next unit.
fn is_used(share: f64, budget: &Budget, reading: &Reading) -> bool {
    let slots = budget.eden_slots;
    let next = reading.filled_slots + reading.unit_slots;
    // A unit that needs a large part of eden by itself is no measure.
    let next_fits = reading.unit_slots * 4 > slots || next <= slots;
    reading.filled_slots as f64 >= slots as f64 * share
        || reading.malloc_bytes as f64 >= budget.eden_bytes as f64 * share
        || (!next_fits && reading.filled_slots * 2 >= slots)
}

/// How many bytes of malloc Ruby is to forget, so that its own limit (`limit`,
/// of which `counted` are used) does not collect before eden is used up. Bounded
/// by eden: `forgiven` were forgotten since the last collection.
pub fn forgive(budget: &Budget, counted: u64, limit: u64, forgiven: u64) -> u64 {
    let near = counted >= limit / 2;
    // What eden has left after that must still hold what the limit lets through.
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

    const BUDGET: Budget = Budget { eden_slots: 1_000_000, eden_bytes: 64 << 20, longlife: 1.0 };
    const PATIENCE: Patience = Patience { full_ns: 50_000_000, trim_ns: 1_000_000_000 };

    fn at(moment: Moment, reading: Reading) -> Action {
        decide(moment, &BUDGET, &reading, &PATIENCE)
    }

    #[test]
    fn the_share_of_eden_that_counts_depends_on_who_would_wait() {
        for (moment, below, from) in [
            (Moment::Between, 890_000, 900_000),
            (Moment::Quiet, 790_000, 800_000),
            (Moment::Idle, 690_000, 700_000),
        ] {
            let filled = |filled_slots| Reading { filled_slots, ..Reading::default() };
            assert_eq!(at(moment, filled(below)), Action::Nothing, "{moment:?}");
            assert_eq!(at(moment, filled(from)), Action::Minor, "{moment:?}");
            let malloc = |share: u64| Reading {
                malloc_bytes: BUDGET.eden_bytes * share / 1_000_000,
                ..Reading::default()
            };
            assert_eq!(at(moment, malloc(below)), Action::Nothing, "{moment:?}");
            assert_eq!(at(moment, malloc(from + 1)), Action::Minor, "{moment:?}");
        }
    }

    #[test]
    fn what_is_left_must_last_for_the_next_unit() {
        let reading =
            |unit_slots| Reading { filled_slots: 800_000, unit_slots, ..Reading::default() };
        assert_eq!(at(Moment::Between, reading(190_000)), Action::Nothing);
        assert_eq!(at(Moment::Between, reading(210_000)), Action::Minor);
        let huge = Reading { filled_slots: 100, unit_slots: 900_000, ..Reading::default() };
        assert_eq!(at(Moment::Between, huge), Action::Nothing, "it would collect after every unit");
    }

    #[test]
    fn a_full_collection_waits_for_idleness_but_not_for_ever() {
        let grown = Reading {
            old_objects: 900_000,
            old_objects_then: 400_000,
            filled_slots: 600_000,
            ..Reading::default()
        };
        assert_eq!(at(Moment::Between, grown), Action::Nothing);
        assert_eq!(at(Moment::Quiet, grown), Action::Nothing);
        assert_eq!(at(Moment::Idle, grown), Action::WaitIdle(PATIENCE.full_ns));
        assert_eq!(at(Moment::StillIdle, grown), Action::Full);
        let overdue = Reading { overdue_ns: OVERDUE_NS, ..grown };
        assert_eq!(at(Moment::Between, overdue), Action::Full);
        assert_eq!(at(Moment::Quiet, overdue), Action::Full);
    }

    #[test]
    fn longlife_measures_growth_of_old_objects_and_of_held_bytes() {
        let held =
            |held_bytes| Reading { held_bytes, held_bytes_then: 100 << 20, ..Reading::default() };
        assert!(!is_full_due(&BUDGET, &held(200 << 20)));
        assert!(is_full_due(&BUDGET, &held(201 << 20)));
        let small = Reading { old_objects: 15_000, old_objects_then: 10, ..Reading::default() };
        assert!(!is_full_due(&BUDGET, &small), "a few thousand are no growth");
        let asked = Reading { full_asked: true, ..Reading::default() };
        assert!(is_full_due(&BUDGET, &asked));
        let off = Budget { longlife: f64::INFINITY, ..BUDGET };
        assert!(!is_full_due(&off, &held(1 << 40)) && !is_full_due(&off, &asked));
    }

    #[test]
    fn memory_is_given_back_once_it_has_been_idle_for_long() {
        let churned = |idle_ns| Reading { churned_bytes: 8 << 20, idle_ns, ..Reading::default() };
        assert_eq!(at(Moment::Idle, churned(0)), Action::WaitIdle(PATIENCE.trim_ns));
        assert_eq!(at(Moment::StillIdle, churned(1)), Action::WaitIdle(PATIENCE.trim_ns));
        assert_eq!(at(Moment::StillIdle, churned(PATIENCE.trim_ns)), Action::FullAndTrim);
        assert_eq!(at(Moment::StillIdle, Reading::default()), Action::Nothing);
        assert_eq!(at(Moment::Idle, Reading::default()), Action::Nothing);
    }

    #[test]
    fn ruby_forgets_no_more_than_eden() {
        let limit = 16 << 20;
        assert_eq!(forgive(&BUDGET, limit / 2 - 1, limit, 0), 0, "not near yet");
        assert_eq!(forgive(&BUDGET, 10 << 20, limit, 0), 10 << 20);
        assert_eq!(forgive(&BUDGET, 10 << 20, limit, 45 << 20), 3 << 20, "what is left of it");
        assert_eq!(forgive(&BUDGET, 10 << 20, limit, 48 << 20), 0);
        let small = Budget { eden_bytes: 8 << 20, ..BUDGET };
        assert_eq!(forgive(&small, 10 << 20, limit, 0), 0, "Ruby's own limit is the wider one");
    }
}
