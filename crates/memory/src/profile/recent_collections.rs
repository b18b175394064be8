//! Records of the last collections.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::{CollectionKind, ObjectTotals};

/// The number of collections kept.
pub const RECENT_MAX: usize = 256;

/// One collection, estimated from the followed objects.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CollectionRecord {
    /// The process.
    pub pid: u32,
    /// Counted from 1 since the profile began.
    pub number: u64,
    /// Minor or major.
    pub kind: CollectionKind,
    /// Its time, in seconds since 1970.
    pub unix_s: f64,
    /// The number of samples behind the estimates.
    pub followed: u64,
    /// Allocated since the previous collection.
    pub allocated: ObjectTotals,
    /// Found dead.
    pub freed: ObjectTotals,
    /// Old ones of those found dead.
    pub freed_old: ObjectTotals,
    /// Found alive.
    pub surviving: ObjectTotals,
    /// Old ones of those found alive.
    pub old: ObjectTotals,
    /// Became old by this collection.
    pub promoted: ObjectTotals,
}

impl CollectionRecord {
    /// A record without objects.
    pub(super) fn of(kind: CollectionKind, unix_s: f64) -> Self {
        let none = ObjectTotals::default();
        Self {
            pid: 0,
            number: 0,
            kind,
            unix_s,
            followed: 0,
            allocated: none,
            freed: none,
            freed_old: none,
            surviving: none,
            old: none,
            promoted: none,
        }
    }
}

/// The last collections, oldest first.
pub(super) struct RecentCollections(VecDeque<CollectionRecord>);

impl Default for RecentCollections {
    fn default() -> Self {
        // Allocated up front, because records are added inside the collector.
        Self(VecDeque::with_capacity(RECENT_MAX))
    }
}

impl RecentCollections {
    pub(super) fn push(&mut self, collected: CollectionRecord) {
        if self.0.len() == RECENT_MAX {
            self.0.pop_front();
        }
        self.0.push_back(collected);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &CollectionRecord> {
        self.0.iter()
    }
}
