//! Tracks which records of a partition are done.
//!
//! Records are fetched by rising offset and finish in any order. The *head* is the first record
//! that is not done; its offset is committed. Records that are done beyond the head are listed in
//! the metadata of the commit ([`metadata`]). Offsets without a record (transaction markers,
//! compacted records) count as part of the record before them that was fetched in the same chunk, or
//! are passed when the log is read up to an offset behind them.

pub(super) mod metadata;

use std::collections::VecDeque;

use crate::record::RecordLayout;

/// Offsets from the first up to and without the second.
pub(super) type OffsetRange = (i64, i64);

/// The tracker of one assigned partition.
#[derive(Clone, Debug, Default)]
pub(super) struct Tracker {
    /// The first offset that was not fetched.
    position: Option<i64>,
    /// Fetched and not done; rising, and no range touches the next.
    undone: VecDeque<OffsetRange>,
    /// Changes whenever records are done.
    version: u64,
    /// The position is that of a seek and nothing was fetched since: the log may continue at
    /// another one.
    asked: bool,
}

impl Tracker {
    /// A partition whose group has committed this offset.
    pub fn new(committed: Option<i64>) -> Self {
        Self { position: committed, ..Self::default() }
    }

    /// A partition after a seek.
    pub fn asked(position: Option<i64>) -> Self {
        Self { position, asked: true, ..Self::default() }
    }

    /// Records from `first` up to and without `end` were fetched. Returns whether the log went
    /// back, which means that `first` lies before the position.
    pub fn fetched(&mut self, first: i64, end: i64) -> bool {
        let back = self.position.is_some_and(|position| first < position);
        if back {
            // Everything from `first` on is fetched again. If the old position were kept, records
            // written before it would count as done.
            let kept = self.undone.partition_point(|range| range.0 < first);
            self.undone.truncate(kept);
            if let Some(last) = self.undone.back_mut() {
                last.1 = last.1.min(first);
            }
        }
        match self.undone.back_mut() {
            Some(last) if last.1 == first => last.1 = end,
            _ => self.undone.push_back((first, end)),
        }
        self.position = Some(end);
        self.asked = false;
        back
    }

    /// Nothing was fetched before this offset.
    pub fn begin_at(&mut self, offset: i64) {
        self.position.get_or_insert(offset);
        self.asked = false;
    }

    /// There are no records between the position and `end`. Returns whether that moves the head.
    pub fn read_up_to(&mut self, end: i64) -> bool {
        // The log may continue a seek elsewhere.
        if self.asked || end <= self.position.unwrap_or(0) {
            return false;
        }
        self.position = Some(end);
        self.version += 1;
        self.undone.is_empty()
    }

    /// Tracks these ranges as done. They rise and do not overlap; they may contain offsets that
    /// were not fetched or were done before.
    pub fn done(&mut self, ranges: &[OffsetRange]) {
        self.version += u64::from(!ranges.is_empty());
        match ranges {
            [] => {}
            [range] => self.subtract(*range),
            _ => self.subtract_all(ranges),
        }
    }

    fn subtract(&mut self, (start, end): OffsetRange) {
        let mut at = self.undone.partition_point(|range| range.1 <= start);
        while let Some(&(from, to)) = self.undone.get(at).filter(|range| range.0 < end) {
            match (from < start, to > end) {
                (false, false) => {
                    self.undone.remove(at);
                }
                (false, true) => self.undone[at].0 = end,
                (true, false) => {
                    self.undone[at].1 = start;
                    at += 1;
                }
                (true, true) => {
                    self.undone[at].1 = start;
                    self.undone.insert(at + 1, (end, to));
                    return;
                }
            }
        }
    }

    /// One pass over both lists.
    fn subtract_all(&mut self, ranges: &[OffsetRange]) {
        let mut left = VecDeque::with_capacity(self.undone.len() + ranges.len());
        let mut at = 0;
        for &(from, to) in &self.undone {
            let mut from = from;
            while at < ranges.len() && ranges[at].0 < to {
                let (start, end) = ranges[at];
                if start > from {
                    left.push_back((from, start));
                }
                from = from.max(end);
                if end > to {
                    break;
                }
                at += 1;
            }
            if from < to {
                left.push_back((from, to));
            }
        }
        self.undone = left;
    }

    /// The offset to commit; `None` before the first record of a group that has committed nothing,
    /// and after a seek before the first fetch.
    pub fn head(&self) -> Option<i64> {
        let fetched = self.position.filter(|_| !self.asked);
        self.undone.front().map(|range| range.0).or(fetched)
    }

    /// The first offset that was not fetched.
    pub fn position(&self) -> Option<i64> {
        self.position
    }

    /// Whether nothing was fetched since a seek.
    pub fn is_asked(&self) -> bool {
        self.asked
    }

    /// Changes whenever records are done.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The same, as if it was read up to these ranges too, and they were done.
    pub fn with_done(&self, ranges: &VecDeque<OffsetRange>) -> Self {
        let mut tracker = self.clone();
        for range in ranges {
            if let Some(position) = tracker.position.filter(|position| *position < range.1) {
                tracker.fetched(position, range.1);
                tracker.done(&[*range]);
            }
        }
        tracker
    }

    /// Whether the record with this offset was fetched and is not done.
    pub fn is_undone(&self, offset: i64) -> bool {
        let at = self.undone.partition_point(|range| range.1 <= offset);
        self.undone.get(at).is_some_and(|range| range.0 <= offset)
    }

    /// Whether the list of records done beyond the head fits into a commit, with room for those
    /// that are in flight.
    pub fn fits(&self) -> bool {
        metadata::fits(&self.undone, self.position)
    }

    /// The metadata of a commit.
    pub fn metadata(&self) -> String {
        metadata::encode(&self.undone, self.position)
    }
}

/// The offset ranges of these records of a chunk, each up to the next record of the chunk. Ranges
/// that touch are joined.
pub(super) fn ranges_of(entries: &[RecordLayout], picks: &[u32], ranges: &mut Vec<OffsetRange>) {
    ranges.clear();
    let (Some(first), Some(last)) = (picks.first(), picks.last()) else { return };
    if (last - first) as usize + 1 == picks.len() {
        ranges.push((entries[*first as usize].offset, end_of(entries, *last)));
        return;
    }
    for pick in picks {
        let start = entries[*pick as usize].offset;
        let end = end_of(entries, *pick);
        match ranges.last_mut() {
            Some(before) if before.1 == start => before.1 = end,
            _ => ranges.push((start, end)),
        }
    }
}

/// The end of the record's offset range.
pub(super) fn end_of(entries: &[RecordLayout], pick: u32) -> i64 {
    let next = entries.get(pick as usize + 1);
    next.map_or_else(|| entries[pick as usize].offset + 1, |entry| entry.offset)
}

#[cfg(test)]
mod tests;
