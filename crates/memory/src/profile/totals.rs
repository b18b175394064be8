//! Totals of objects and bytes, by age.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

/// A number of objects and their bytes, estimated from weighted samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "(f64, f64)", into = "(f64, f64)")]
pub struct ObjectTotals {
    /// Number of objects.
    pub objects: f64,
    /// Their bytes.
    pub bytes: f64,
}

impl ObjectTotals {
    /// Adds a sample that stands for `weight` objects of `bytes` each.
    pub fn add(&mut self, weight: f64, bytes: usize) {
        self.objects += weight;
        self.bytes += weight * bytes as f64;
    }

    /// Bytes or objects.
    pub fn of(&self, bytes: bool) -> f64 {
        if bytes {
            self.bytes
        } else {
            self.objects
        }
    }

    /// Whether both are zero.
    pub fn is_zero(&self) -> bool {
        self.objects == 0.0 && self.bytes == 0.0
    }
}

impl AddAssign for ObjectTotals {
    fn add_assign(&mut self, other: Self) {
        self.objects += other.objects;
        self.bytes += other.bytes;
    }
}

impl From<(f64, f64)> for ObjectTotals {
    fn from((objects, bytes): (f64, f64)) -> Self {
        Self { objects, bytes }
    }
}

impl From<ObjectTotals> for (f64, f64) {
    fn from(amount: ObjectTotals) -> Self {
        (amount.objects, amount.bytes)
    }
}

/// Number of age classes.
pub const AGES: usize = 7;
/// Names of the age classes: collections survived.
pub const AGE_NAMES: [&str; AGES] = ["0", "1", "2", "3-5", "6-10", "11-30", "31+"];

/// The age class of an object that survived `age` collections.
pub fn age_bucket(age: u16) -> usize {
    match age {
        0..=2 => usize::from(age),
        3..=5 => 3,
        6..=10 => 4,
        11..=30 => 5,
        _ => 6,
    }
}

/// Totals by age class ([`AGE_NAMES`]).
pub type TotalsByAge = [ObjectTotals; AGES];

fn all_zero(ages: &TotalsByAge) -> bool {
    ages.iter().all(ObjectTotals::is_zero)
}

/// Totals of the objects of one stack and class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SiteTotals {
    /// The number of samples behind the estimates.
    pub samples: u64,
    /// Allocated, including the later growth of objects.
    pub allocated: ObjectTotals,
    /// Found dead, including the shrinking of objects.
    pub freed: ObjectTotals,
    /// Not known to be dead.
    pub live: ObjectTotals,
    /// Became old.
    pub promoted: ObjectTotals,
    /// Live and old.
    pub old: ObjectTotals,
    /// `freed` by the collections survived before: age 0 died in its first.
    #[serde(skip_serializing_if = "all_zero")]
    pub freed_ages: TotalsByAge,
    /// `live` by the collections survived so far: age 0 has survived none yet.
    #[serde(skip_serializing_if = "all_zero")]
    pub live_ages: TotalsByAge,
}

impl SiteTotals {
    /// Whether all totals are zero.
    pub fn is_empty(&self) -> bool {
        let amounts = [self.allocated, self.freed, self.live, self.promoted];
        self.samples == 0 && amounts.iter().all(ObjectTotals::is_zero)
    }

    /// The share of live objects among those that a collection has checked.
    pub fn survival(&self) -> Option<f64> {
        let alive: f64 = self.live_ages[1..].iter().map(|age| age.objects).sum();
        let met = alive + self.freed.objects;
        (met > 0.0).then(|| alive / met)
    }

    /// The share that died in their first collection, among the same objects.
    pub fn died_young(&self) -> Option<f64> {
        let alive: f64 = self.live_ages[1..].iter().map(|age| age.objects).sum();
        let met = alive + self.freed.objects;
        (met > 0.0).then(|| self.freed_ages[0].objects / met)
    }

    /// The age class of the median live object.
    pub fn median_age(&self) -> Option<&'static str> {
        let half = self.live.objects / 2.0;
        let mut sum = 0.0;
        let position = self.live_ages.iter().position(|age| {
            sum += age.objects;
            sum > 0.0 && sum >= half
        });
        position.map(|bucket| AGE_NAMES[bucket])
    }
}

impl AddAssign<&SiteTotals> for SiteTotals {
    fn add_assign(&mut self, other: &SiteTotals) {
        self.samples += other.samples;
        self.allocated += other.allocated;
        self.freed += other.freed;
        self.live += other.live;
        self.promoted += other.promoted;
        self.old += other.old;
        for (mine, theirs) in self.freed_ages.iter_mut().zip(other.freed_ages) {
            *mine += theirs;
        }
        for (mine, theirs) in self.live_ages.iter_mut().zip(other.live_ages) {
            *mine += theirs;
        }
    }
}
