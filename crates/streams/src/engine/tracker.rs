//! What of a partition is done, and so how far its group has come.
//!
//! Records are fetched by rising offset and end in any order. The *head* is
//! the first that is not done; it is what gets committed. What is done beyond
//! it is noted beside the commit ([`metadata`]). Offsets that stand for no
//! record (transaction markers, what compaction left out) hold nothing up: a
//! record reaches to the next one that was fetched with it.

pub(super) mod metadata;

use std::collections::VecDeque;

use crate::record::RecordLayout;

/// Offsets from the first up to and without the second.
pub(super) type Range = (i64, i64);

/// The tracker of one assigned partition.
#[derive(Clone, Debug, Default)]
pub(super) struct Tracker {
    /// The first offset that was not fetched.
    position: Option<i64>,
    /// Fetched and not done: rising, none touches the next.
    undone: VecDeque<Range>,
    /// How often something was done.
    version: u64,
    /// The position is where the log was asked to go, and nothing has come
    /// from there: the log may go somewhere else.
    asked: bool,
}

impl Tracker {
    /// Of a group that has come this far.
    pub fn new(committed: Option<i64>) -> Self {
        Self { position: committed, ..Self::default() }
    }

    /// Of a partition whose log was asked to go there.
    pub fn asked(position: Option<i64>) -> Self {
        Self { position, asked: true, ..Self::default() }
    }

    /// Records from `first` to before `end` were fetched. Answers whether the
    /// log went back: it was thought to be behind `first`.
    pub fn fetched(&mut self, first: i64, end: i64) -> bool {
        let back = self.position.is_some_and(|position| first < position);
        if back {
            // What there is from here on comes, or comes again: a position
            // that was kept would count as done what is written below it.
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

    /// These are done: rising, apart from each other. What was not fetched, or
    /// was done before, does no harm.
    pub fn done(&mut self, ranges: &[Range]) {
        self.version += u64::from(!ranges.is_empty());
        match ranges {
            [] => {}
            [range] => self.subtract(*range),
            _ => self.subtract_all(ranges),
        }
    }

    fn subtract(&mut self, (start, end): Range) {
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
    fn subtract_all(&mut self, ranges: &[Range]) {
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

    /// Where the next process shall begin; `None` before the first record of a
    /// group that has committed nothing, and where the log was only asked to
    /// go.
    pub fn head(&self) -> Option<i64> {
        let fetched = self.position.filter(|_| !self.asked);
        self.undone.front().map(|range| range.0).or(fetched)
    }

    /// The first offset that was not fetched.
    pub fn position(&self) -> Option<i64> {
        self.position
    }

    /// Changes whenever something was done.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Whether the record with this offset was fetched and is not done.
    pub fn is_undone(&self, offset: i64) -> bool {
        let at = self.undone.partition_point(|range| range.1 <= offset);
        self.undone.get(at).is_some_and(|range| range.0 <= offset)
    }

    /// Whether what is done beyond the head still fits beside a commit, with
    /// room for what may end until the next one.
    pub fn fits(&self) -> bool {
        metadata::fits(&self.undone, self.position)
    }

    /// The note beside a commit.
    pub fn metadata(&self) -> String {
        metadata::encode(&self.undone, self.position)
    }
}

/// The offsets that these records of a chunk stand for, each up to the next
/// record of the chunk, put together where they touch.
pub(super) fn ranges_of(entries: &[RecordLayout], picks: &[u32], ranges: &mut Vec<Range>) {
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

/// Where the record's offsets end.
pub(super) fn end_of(entries: &[RecordLayout], pick: u32) -> i64 {
    let next = entries.get(pick as usize + 1);
    next.map_or_else(|| entries[pick as usize].offset + 1, |entry| entry.offset)
}

#[cfg(test)]
mod tests;
