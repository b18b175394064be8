//! Which code allocated what, and what became of it.
//!
//! A [`Profile`] is told of every N-th object allocated, with the stack that
//! allocated it, and after the marking of each collection of every object it
//! still follows: is it marked, is it old. Nothing is asked when an object is
//! freed; what is not marked dies in this collection, so freed and surviving
//! are known exactly, collection by collection. The sums are estimates: each
//! sample stands for `weight` objects.
//!
//! - [`Profile::sample`] and [`Profile::after_mark`] run inside the allocator
//!   and the collector. They neither call back nor panic, and what they add to
//!   is bounded by [`Limits`].
//! - [`Profile::report`] gives a [`Report`]: plain data with a stable JSON form,
//!   merged over workers by [`Report::merge`] and written out by
//!   [`Report::render`].
//! - [`gvl_times`] holds the other question of the same report: which units of work
//!   waited for the global lock, and which held it.
//!
//! Bounds are kept without a bias: when too many samples live, one of each pair
//! is dropped by lot, the other counts double, and of new ones every second is
//! followed ([`Source::keep_one_in`]). When the stacks come to their limit, of
//! new ones only the innermost frames are kept, below a frame `(other)`.

mod allocation_sites;
pub mod gvl_times;
mod live_samples;
mod measure;
mod recent_collections;
mod render;
mod report;
mod report_merge;
mod stacks;
#[cfg(test)]
mod tests;
mod totals;

use std::time::{SystemTime, UNIX_EPOCH};

use allocation_sites::AllocationSites;
use fastrand::Rng;
use live_samples::{LiveSample, LiveSamples};
use recent_collections::RecentCollections;
pub use recent_collections::{CollectionRecord, RECENT_MAX};
pub use render::{RenderOptions, ReportFormat, SampleType};
pub use report::{Report, SiteRow, Source, SourceInfo};
use serde::{Deserialize, Serialize};
use stacks::Stacks;
pub use totals::{age_bucket, ObjectTotals, SiteTotals, TotalsByAge, AGES, AGE_NAMES};

/// How much a profile may hold.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most samples of living objects followed at a time (32 bytes each).
    pub samples_max: usize,
    /// Most different stacks; twice as many pairs of stack and class, beyond
    /// which the classes of a stack are one.
    pub stacks_max: usize,
    /// Most frames kept of a stack, the innermost ones.
    pub depth_max: usize,
}

/// What a collection made of an object.
#[derive(Clone, Copy, Debug)]
pub struct ObjectState {
    /// Marked: it survives this collection.
    pub alive: bool,
    /// Promoted to the old generation.
    pub old: bool,
    /// Its size now, as far as it is known; 0 = unchanged. Also taken of an
    /// object about to be freed.
    pub bytes: usize,
    /// Its class now; 0 = unchanged.
    pub class: usize,
}

/// Which collection it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CollectionKind {
    /// Young objects only.
    Minor,
    /// A full mark.
    Major,
}

/// The name of a frame: a method or block and where it is defined.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Frame {
    /// `Foo#bar`, `block in Foo#bar`.
    pub label: String,
    /// The source file; empty for a method written in C.
    pub path: String,
    /// The line on which it is defined; 0 = unknown.
    pub line: u32,
}

/// What was counted besides the sites.
#[derive(Clone, Copy, Default)]
struct SampleCounts {
    samples: u64,
    truncated: u64,
    other: u64,
    minor: u64,
    major: u64,
    /// Allocated since the last collection.
    since: ObjectTotals,
}

/// Samples of allocated objects, by the code that allocated them.
pub struct Profile {
    limits: Limits,
    stacks: Stacks,
    sites: AllocationSites,
    live: LiveSamples,
    recent: RecentCollections,
    random: Rng,
    counts: SampleCounts,
}

impl Profile {
    /// An empty profile. Limits below 2 are taken as 2.
    pub fn new(limits: Limits) -> Self {
        let limits = Limits {
            samples_max: limits.samples_max.max(2),
            stacks_max: limits.stacks_max.max(2),
            depth_max: limits.depth_max.max(2),
        };
        Self {
            limits,
            stacks: Stacks::new(limits.stacks_max),
            sites: AllocationSites::new(2 * limits.stacks_max),
            live: LiveSamples::new(limits.samples_max),
            recent: RecentCollections::default(),
            random: Rng::new(),
            counts: SampleCounts::default(),
        }
    }

    /// An object was allocated. `kind` is Ruby's number of its type, `frames`
    /// the stack, innermost first, as pairs of frame and line; `weight` is how
    /// many objects this sample stands for.
    pub fn sample(
        &mut self,
        object: usize,
        class: usize,
        kind: u8,
        bytes: usize,
        frames: &[(usize, u32)],
        weight: f64,
    ) {
        let kept = &frames[..frames.len().min(self.limits.depth_max)];
        self.counts.truncated += u64::from(kept.len() < frames.len());
        let (stack, whole) = self.stacks.find_or_add(kept);
        let (site, own) = self.sites.find_or_add(stack, class, kind);
        self.counts.other += u64::from(!(whole && own));
        self.counts.samples += 1;
        self.counts.since.add(weight, bytes);
        self.sites.allocated(site, weight, bytes);
        let sample = LiveSample { object, bytes, weight, site, age: 0, old: false };
        self.live.follow(sample, &mut self.random);
    }

    /// A collection has marked what lives and has not swept yet. Asks `look` of
    /// every object followed; those not alive count as freed and are forgotten,
    /// the others are one collection older.
    pub fn after_mark(&mut self, kind: CollectionKind, mut look: impl FnMut(usize) -> ObjectState) {
        let mut collected = CollectionRecord::of(kind, unix_s());
        collected.allocated = std::mem::take(&mut self.counts.since);
        collected.followed = self.live.samples.len() as u64;
        let sites = &mut self.sites;
        self.live.samples.retain_mut(|sample| {
            let state = look(sample.object);
            sites.settle(sample, &state, &mut collected)
        });
        self.live.relax();
        let counter = match kind {
            CollectionKind::Minor => &mut self.counts.minor,
            CollectionKind::Major => &mut self.counts.major,
        };
        *counter += 1;
        collected.number = self.counts.minor + self.counts.major;
        self.recent.push(collected);
    }

    /// Objects were moved by a compaction: asks `new_address` of every object,
    /// frame and class (which may answer the same address).
    pub fn relocate(&mut self, mut new_address: impl FnMut(usize) -> usize) {
        for sample in &mut self.live.samples {
            sample.object = new_address(sample.object);
        }
        self.stacks.relocate(&mut new_address);
        self.sites.relocate(&mut new_address);
    }

    /// Visits the frames and classes referred to. They must stay alive, or their
    /// addresses would come to name something else.
    pub fn roots(&self, mut visit: impl FnMut(usize)) {
        self.stacks.frame_ids().for_each(&mut visit);
        self.sites.class_ids().for_each(&mut visit);
    }

    /// Frames that have no name yet. To be named before anything is moved.
    pub fn unnamed_frames(&self) -> Vec<usize> {
        self.stacks.unnamed()
    }

    /// Names a frame; one that is not referred to is passed over.
    pub fn name_frame(&mut self, id: usize, frame: Frame) {
        self.stacks.name(id, frame);
    }

    /// Classes that have no name yet.
    pub fn unnamed_classes(&self) -> Vec<usize> {
        self.sites.unnamed()
    }

    /// Names a class; one that is not referred to is passed over.
    pub fn name_class(&mut self, id: usize, name: String) {
        self.sites.name(id, name);
    }

    /// How many samples of living objects are followed now.
    pub fn followed(&self) -> usize {
        self.live.samples.len()
    }

    /// Samples taken so far.
    pub fn samples(&self) -> u64 {
        self.counts.samples
    }

    /// Memory this profile takes itself, in bytes, about.
    pub fn memory_bytes(&self) -> usize {
        self.stacks.memory_bytes() + self.sites.memory_bytes() + self.live.memory_bytes()
    }

    /// What is known up to now. Frames and classes without a name are called by
    /// what is known of them.
    pub fn report(&self, mut about: SourceInfo) -> Report {
        let gvl = about.gvl.take();
        let stacks = self.stacks.stacks();
        let rows = self.sites.rows(&self.live.samples);
        let collections =
            self.recent.iter().map(|c| CollectionRecord { pid: about.pid, ..*c }).collect();
        let source = Source {
            about,
            samples: self.counts.samples,
            followed: self.live.samples.len() as u64,
            thinned: self.live.thinned,
            keep_one_in: self.live.keep_one_in,
            truncated: self.counts.truncated,
            other: self.counts.other,
            stacks: stacks.len() as u64,
            memory_bytes: self.memory_bytes() as u64,
            minor: self.counts.minor,
            major: self.counts.major,
        };
        let raw = Report {
            sources: vec![source],
            frames: self.stacks.named_frames(),
            locations: self.stacks.locations(),
            stacks,
            classes: self.sites.class_names(),
            rows,
            collections,
            gvl,
            ..Report::default()
        };
        // Names may repeat (a file loaded twice, an anonymous class): merging joins them.
        Report::merge(vec![raw])
    }
}

/// Seconds since 1970.
fn unix_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64())
}
