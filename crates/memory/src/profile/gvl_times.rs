//! How long units of work wait for Ruby's global lock and hold it, by label.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

/// Number of classes of waiting time.
pub const WAIT_CLASSES: usize = 24;
/// The label of units whose own label found no room.
const OTHER: &str = "(other)";

/// The class of a waiting time: class 0 is below a microsecond, class n from
/// 2^(n-1) to 2^n microseconds, the last one is unbounded.
pub fn wait_class(waiting_ns: u64) -> usize {
    let us = waiting_ns / 1000;
    ((u64::BITS - us.leading_zeros()) as usize).min(WAIT_CLASSES - 1)
}

/// Total times of the units with one label.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkTimes {
    /// `GET /path`, `ResizeJob`.
    pub label: String,
    /// Units finished.
    pub count: u64,
    /// Time they waited for the lock.
    pub waiting_ns: u64,
    /// Time they held it.
    pub holding_ns: u64,
    /// Time they took in all.
    pub total_ns: u64,
    /// Units by waiting time ([`wait_class`]).
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

    /// An upper bound of the waiting time (ns) of all but the given share of units (0.01 =
    /// the slowest hundredth).
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

/// Times by label; the number of labels is bounded.
pub struct GvlTimes {
    labels_max: usize,
    units: HashMap<String, WorkTimes>,
}

impl GvlTimes {
    /// An empty table of at most `labels_max` labels, besides `(other)`.
    pub fn new(labels_max: usize) -> Self {
        Self { labels_max, units: HashMap::new() }
    }

    /// Adds a finished unit.
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

    /// The times so far.
    pub fn waits(&self) -> GvlReport {
        GvlReport::of(self.units.values().cloned().collect())
    }
}

/// Times by label, most waiting first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GvlReport {
    /// One entry for each label.
    pub units: Vec<WorkTimes>,
}

impl GvlReport {
    fn of(mut units: Vec<WorkTimes>) -> Self {
        units.sort_by(|a, b| b.waiting_ns.cmp(&a.waiting_ns).then_with(|| a.label.cmp(&b.label)));
        Self { units }
    }

    /// Adds up the times of two processes.
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
