//! What each of the last collections freed and left.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::{CollectionKind, ObjectTotals};

/// Collections remembered one by one.
pub const RECENT_MAX: usize = 256;

/// What one collection did, estimated from the objects followed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CollectionRecord {
    /// The process.
    pub pid: u32,
    /// Counted from 1 since the profile began.
    pub number: u64,
    /// Minor or major.
    pub kind: CollectionKind,
    /// When, in seconds since 1970.
    pub unix_s: f64,
    /// Samples looked at: how well the estimates are founded.
    pub followed: u64,
    /// Allocated since the collection before.
    pub allocated: ObjectTotals,
    /// Found dead.
    pub freed: ObjectTotals,
    /// Of these, old.
    pub freed_old: ObjectTotals,
    /// Found alive.
    pub surviving: ObjectTotals,
    /// Of these, old.
    pub old: ObjectTotals,
    /// Became old by this collection.
    pub promoted: ObjectTotals,
}

impl CollectionRecord {
    /// A collection that has done nothing yet.
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
        // At once: it is added to inside the collector.
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
