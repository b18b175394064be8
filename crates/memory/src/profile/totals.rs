//! Sums of objects and bytes, by age and by what became of them.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

/// Objects and their bytes: an estimate, the weights of samples added up.
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

    /// Whether there is nothing.
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
/// What the age classes are called: collections survived.
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

/// Amounts by age class ([`AGE_NAMES`]).
pub type TotalsByAge = [ObjectTotals; AGES];

fn nothing(ages: &TotalsByAge) -> bool {
    ages.iter().all(ObjectTotals::is_zero)
}

/// What was seen of the objects of one stack and class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SiteTotals {
    /// Samples taken: how well the estimates are founded.
    pub samples: u64,
    /// Allocated, with what objects have grown by since.
    pub allocated: ObjectTotals,
    /// Found dead, or shed by objects that shrank.
    pub freed: ObjectTotals,
    /// Not known to be dead.
    pub live: ObjectTotals,
    /// Became old, up to now.
    pub promoted: ObjectTotals,
    /// LiveSamples and old.
    pub old: ObjectTotals,
    /// `freed` by the collections survived before: class 0 died in its first.
    #[serde(skip_serializing_if = "nothing")]
    pub freed_ages: TotalsByAge,
    /// `live` by the collections survived so far: class 0 has seen none yet.
    #[serde(skip_serializing_if = "nothing")]
    pub live_ages: TotalsByAge,
}

impl SiteTotals {
    /// Whether there is nothing to show.
    pub fn is_empty(&self) -> bool {
        let amounts = [self.allocated, self.freed, self.live, self.promoted];
        self.samples == 0 && amounts.iter().all(ObjectTotals::is_zero)
    }

    /// The share of objects still alive, of those that met a collection.
    pub fn survival(&self) -> Option<f64> {
        let alive: f64 = self.live_ages[1..].iter().map(|age| age.objects).sum();
        let met = alive + self.freed.objects;
        (met > 0.0).then(|| alive / met)
    }

    /// The share of objects that died in their first collection, of all that
    /// met one.
    pub fn died_young(&self) -> Option<f64> {
        let alive: f64 = self.live_ages[1..].iter().map(|age| age.objects).sum();
        let met = alive + self.freed.objects;
        (met > 0.0).then(|| self.freed_ages[0].objects / met)
    }

    /// The age class in which the middle one of the live objects is.
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
