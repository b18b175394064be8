//! Merges reports of several processes.

use std::collections::hash_map::Entry;
use std::hash::Hash;

use super::report::{Report, SiteRow};
use super::{gvl_times, Frame, SiteTotals};
use rustc_hash::FxHashMap;

/// A list without duplicates, and the index of each element.
struct Interner<T> {
    list: Vec<T>,
    index: FxHashMap<T, u32>,
}

impl<T: Clone + Eq + Hash> Interner<T> {
    fn new() -> Self {
        Self { list: Vec::new(), index: FxHashMap::default() }
    }

    fn number(&mut self, thing: &T) -> u32 {
        if let Some(&known) = self.index.get(thing) {
            return known;
        }
        let number = self.list.len() as u32;
        self.list.push(thing.clone());
        self.index.insert(thing.clone(), number);
        number
    }
}

struct ReportMerge {
    frames: Interner<Frame>,
    locations: Interner<(u32, u32)>,
    stacks: Interner<Vec<u32>>,
    classes: Interner<String>,
    rows: FxHashMap<(u32, u32), SiteTotals>,
}

impl ReportMerge {
    fn add(&mut self, report: &Report) {
        for row in &report.rows {
            let tally = &row.tally;
            if tally.is_empty() {
                continue;
            }
            let mut stack = Vec::new();
            for (frame, line) in report.stack(row.stack) {
                let location = (self.frames.number(frame), line);
                stack.push(self.locations.number(&location));
            }
            let stack = self.stacks.number(&stack);
            let class = self.classes.number(&report.class(row.class).to_owned());
            match self.rows.entry((stack, class)) {
                Entry::Occupied(mut sums) => *sums.get_mut() += tally,
                Entry::Vacant(place) => drop(place.insert(tally.clone())),
            }
        }
    }

    fn rows(&mut self) -> Vec<SiteRow> {
        let sums = std::mem::take(&mut self.rows);
        let mut rows: Vec<SiteRow> = sums
            .into_iter()
            .map(|((stack, class), tally)| SiteRow { stack, class, tally })
            .collect();
        rows.sort_by(|a, b| {
            let weight = |row: &SiteRow| (row.tally.live.bytes, row.tally.allocated.bytes);
            let order = weight(b).partial_cmp(&weight(a)).unwrap_or(std::cmp::Ordering::Equal);
            order.then((a.stack, a.class).cmp(&(b.stack, b.class)))
        });
        rows
    }
}

impl Report {
    /// Merges reports; the same code and class become one row.
    pub fn merge(reports: Vec<Report>) -> Report {
        let mut merge = ReportMerge {
            frames: Interner::new(),
            locations: Interner::new(),
            stacks: Interner::new(),
            classes: Interner::new(),
            rows: FxHashMap::default(),
        };
        let mut merged = Report::default();
        for mut report in reports {
            merge.add(&report);
            merged.sources.append(&mut report.sources);
            merged.collections.append(&mut report.collections);
            merged.gvl = gvl_times::GvlReport::join(merged.gvl.take(), report.gvl.take());
        }
        merged.sources.sort_by_key(|s| (s.about.worker.unwrap_or(u32::MAX), s.about.pid));
        merged.collections.sort_by(|a, b| a.unix_s.total_cmp(&b.unix_s));
        merged.rows = merge.rows();
        merged.frames = merge.frames.list;
        merged.locations = merge.locations.list;
        merged.stacks = merge.stacks.list;
        merged.classes = merge.classes.list;
        merged
    }
}
