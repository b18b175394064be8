//! A report of a profile, as plain data.

use std::collections::hash_map::Entry;
use std::hash::Hash;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::gvl_times::GvlReport;
use super::{gvl_times, CollectionRecord, Frame, ObjectTotals, SiteTotals};

/// The process and the settings of a profile.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SourceInfo {
    /// The process.
    pub pid: u32,
    /// Its number among the workers, if it is one.
    pub worker: Option<u32>,
    /// Ruby's version.
    pub ruby: String,
    /// When the tracer was started, in seconds since 1970.
    pub started_unix_s: f64,
    /// How long it ran.
    pub seconds: f64,
    /// One of so many objects is sampled while a window is open.
    pub every: u32,
    /// The share of time in which a window is open.
    pub duty: f64,
    /// Times of the global lock; moves to [`Report::gvl`].
    #[serde(skip)]
    pub gvl: Option<GvlReport>,
    /// A remark for the reader of the report.
    pub note: Option<String>,
}

/// One process of a report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Source {
    /// The process and the settings.
    #[serde(flatten)]
    pub about: SourceInfo,
    /// Samples taken.
    pub samples: u64,
    /// Samples of objects not known to be dead.
    pub followed: u64,
    /// How often half of the followed samples were dropped for lack of room.
    pub thinned: u64,
    /// One of so many new samples was followed at the end.
    pub keep_one_in: u32,
    /// Samples whose stack was cut to the deepest allowed.
    pub truncated: u64,
    /// Samples whose whole stack or whose class was not kept, for lack of room.
    pub other: u64,
    /// Different stacks.
    pub stacks: u64,
    /// Memory the profile itself took.
    pub memory_bytes: u64,
    /// Minor collections seen.
    pub minor: u64,
    /// Full collections seen.
    pub major: u64,
}

/// Totals of one stack and class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SiteRow {
    /// Index into [`Report::stacks`].
    pub stack: u32,
    /// Index into [`Report::classes`].
    pub class: u32,
    /// The totals.
    #[serde(flatten)]
    pub tally: SiteTotals,
}

/// The report of one or several processes.
///
/// Its JSON has the fields below by their names. Totals are pairs
/// `[objects, bytes]`, locations pairs `[index of frame, line]`; totals by
/// age are lists in the order of [`AGE_NAMES`](super::AGE_NAMES), left out
/// if all are zero. Fields may be added; none changes its meaning within a
/// `version`.
///
/// ```json
/// {"version": 1,
///  "sources": [{"pid": 7, "worker": 0, "ruby": "3.1.2", "started_unix_s": 0.0, "seconds": 60.0,
///               "every": 64, "duty": 0.05, "note": null, "samples": 1, "followed": 1, "thinned": 0,
///               "keep_one_in": 1, "truncated": 0, "other": 0, "stacks": 1, "memory_bytes": 4096,
///               "minor": 3, "major": 0}],
///  "frames": [{"label": "Foo#bar", "path": "/app/foo.rb", "line": 10}],
///  "locations": [[0, 12]],
///  "stacks": [[0]],
///  "classes": ["String"],
///  "rows": [{"stack": 0, "class": 0, "samples": 1, "allocated": [1280.0, 51200.0],
///            "freed": [0.0, 0.0], "live": [1280.0, 51200.0], "promoted": [0.0, 0.0],
///            "old": [0.0, 0.0], "live_ages": [[1280.0, 51200.0], …]}],
///  "collections": [{"pid": 7, "number": 1, "kind": "minor", "unix_s": 0.0, "followed": 1,
///                   "allocated": […], "freed": […], "freed_old": […], "surviving": […],
///                   "old": […], "promoted": […]}],
///  "gvl": {"units": [{"label": "GET /", "count": 1, "waiting_ns": 5, "holding_ns": 900,
///                     "total_ns": 1000, "waits": [1, 0, …]}]}}
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Version of this format.
    pub version: u32,
    /// The processes, by worker and pid.
    pub sources: Vec<Source>,
    /// Methods and blocks.
    pub frames: Vec<Frame>,
    /// Lines in them: index of the frame, line executed.
    pub locations: Vec<(u32, u32)>,
    /// Lists of locations, innermost first.
    pub stacks: Vec<Vec<u32>>,
    /// Names of classes.
    pub classes: Vec<String>,
    /// Totals by stack and class, most live bytes first.
    pub rows: Vec<SiteRow>,
    /// The last collections of each process, oldest first.
    pub collections: Vec<CollectionRecord>,
    /// Waiting for the global lock, if it was measured.
    pub gvl: Option<GvlReport>,
}

impl Default for Report {
    fn default() -> Self {
        Self {
            version: 1,
            sources: Vec::new(),
            frames: Vec::new(),
            locations: Vec::new(),
            stacks: Vec::new(),
            classes: Vec::new(),
            rows: Vec::new(),
            collections: Vec::new(),
            gvl: None,
        }
    }
}

impl Report {
    /// The sum of all rows.
    pub fn total(&self) -> SiteTotals {
        let mut total = SiteTotals::default();
        self.rows.iter().for_each(|row| total += &row.tally);
        total
    }

    /// Objects freed by the collections in [`Report::collections`].
    pub fn freed_lately(&self) -> ObjectTotals {
        let mut freed = ObjectTotals::default();
        self.collections.iter().for_each(|collected| freed += collected.freed);
        freed
    }

    /// A stack's frames and the lines executed in them, innermost first. Invalid
    /// indices (of a damaged report) are left out.
    pub fn stack(&self, index: u32) -> impl DoubleEndedIterator<Item = (&Frame, u32)> + '_ {
        let stack = self.stacks.get(index as usize).map_or(&[][..], Vec::as_slice);
        stack.iter().filter_map(|&location| {
            let &(frame, line) = self.locations.get(location as usize)?;
            Some((self.frames.get(frame as usize)?, line))
        })
    }

    /// The name of a class.
    pub fn class(&self, index: u32) -> &str {
        self.classes.get(index as usize).map_or("(unknown)", String::as_str)
    }
}

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
