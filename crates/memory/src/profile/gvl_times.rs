//! Who waits for Ruby's global lock, and who holds it: times per kind of unit.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

/// Number of classes of waiting time.
pub const WAIT_CLASSES: usize = 24;
/// The label of kinds that found no room.
const OTHER: &str = "(other)";

/// The class of a waiting time: class 0 is below a microsecond, class n from
/// 2^(n-1) to 2^n microseconds, the last one without an end.
pub fn wait_class(waiting_ns: u64) -> usize {
    let us = waiting_ns / 1000;
    ((u64::BITS - us.leading_zeros()) as usize).min(WAIT_CLASSES - 1)
}

/// Times of one kind of unit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkTimes {
    /// Which kind: `GET /path`, `ResizeJob`.
    pub label: String,
    /// Units finished.
    pub count: u64,
    /// Time in which they waited for the lock.
    pub waiting_ns: u64,
    /// Time in which they held it.
    pub holding_ns: u64,
    /// Time from their beginnings to their ends.
    pub total_ns: u64,
    /// Units by how long they waited ([`wait_class`]).
    pub waits: [u64; WAIT_CLASSES],
}

impl WorkTimes {
    fn add(&mut self, other: &WorkTimes) {
        self.count += other.count;
        self.waiting_ns = self.waiting_ns.saturating_add(other.waiting_ns);
        self.holding_ns = self.holding_ns.saturating_add(other.holding_ns);
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        for (mine, theirs) in self.waits.iter_mut().zip(other.waits) {
            *mine += theirs;
        }
    }

    /// A bound on the wait of all but the given share of units (0.01 = the
    /// slowest hundredth), in nanoseconds: the upper edge of its class.
    pub fn wait_bound_ns(&self, share: f64) -> u64 {
        let rest = share * self.count as f64;
        let mut above = 0;
        for class in (0..WAIT_CLASSES).rev() {
            above += self.waits[class];
            if above as f64 > rest {
                return 1000 << class;
            }
        }
        0
    }
}

/// Gathers times; the number of kinds is bounded.
pub struct GvlTimes {
    labels_max: usize,
    units: HashMap<String, WorkTimes>,
}

impl GvlTimes {
    /// An empty table of at most `labels_max` kinds, besides `(other)`.
    pub fn new(labels_max: usize) -> Self {
        Self { labels_max, units: HashMap::new() }
    }

    /// Adds a unit that has finished.
    pub fn record(&mut self, label: &str, waiting_ns: u64, holding_ns: u64, total_ns: u64) {
        let mut waits = [0; WAIT_CLASSES];
        waits[wait_class(waiting_ns)] = 1;
        let one =
            WorkTimes { label: String::new(), count: 1, waiting_ns, holding_ns, total_ns, waits };
        let full = self.units.len() >= self.labels_max;
        let label = if full && !self.units.contains_key(label) { OTHER } else { label };
        match self.units.get_mut(label) {
            Some(unit) => unit.add(&one),
            None => drop(self.units.insert(label.into(), WorkTimes { label: label.into(), ..one })),
        }
    }

    /// What was gathered.
    pub fn waits(&self) -> GvlReport {
        GvlReport::of(self.units.values().cloned().collect())
    }
}

/// Times by kind of unit, most waiting first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GvlReport {
    /// The kinds.
    pub units: Vec<WorkTimes>,
}

impl GvlReport {
    fn of(mut units: Vec<WorkTimes>) -> Self {
        units.sort_by(|a, b| b.waiting_ns.cmp(&a.waiting_ns).then_with(|| a.label.cmp(&b.label)));
        Self { units }
    }

    /// The times of two processes together.
    pub(super) fn join(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        let (Some(one), Some(other)) = (&one, &other) else { return one.or(other) };
        let mut units: HashMap<&str, WorkTimes> = HashMap::new();
        for unit in one.units.iter().chain(&other.units) {
            let empty = || WorkTimes { label: unit.label.clone(), ..WorkTimes::default() };
            units.entry(&unit.label).or_insert_with(empty).add(unit);
        }
        Some(Self::of(units.into_values().collect()))
    }
}
