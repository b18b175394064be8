//! Profiles of allocations: which code allocated objects, and how long they live.
//!
//! A [`Profile`] records every N-th allocated object with the stack that allocated
//! it. At the end of each collection's marking it checks every object it follows:
//! an unmarked one dies in this collection, so freed and surviving objects are known
//! exactly. The totals are estimates: each sample stands for `weight` objects.
//!
//! - [`Profile::sample`] and [`Profile::after_mark`] run inside the allocator
//!   and the collector. They do not call back or panic, and their memory is
//!   bounded by [`Limits`].
//! - [`Profile::report`] returns a [`Report`]: plain data with a stable JSON form,
//!   merged over workers by [`Report::merge`] and written by [`Report::render`].
//! - [`gvl_times`] is the report's part about waiting for the global lock.
//!
//! The bounds cause no bias: when there are too many live samples, one of each pair
//! is dropped at random, the other counts double, and every second new one is
//! followed ([`Source::keep_one_in`]). When the table of stacks is nearly full, only
//! the innermost frames of new stacks are kept, below a frame `(other)`.

mod allocation_sites;
pub mod gvl_times;
mod live_samples;
mod measure;
mod recent_collections;
mod render;
mod report;
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

/// Bounds of a profile.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Live objects followed at a time (32 bytes each).
    pub samples_max: usize,
    /// Different stacks. Of pairs of stack and class twice as many are kept; beyond
    /// that, further classes of a stack share one.
    pub stacks_max: usize,
    /// Innermost frames kept of a stack.
    pub depth_max: usize,
}

/// The state of an object after a collection's marking.
#[derive(Clone, Copy, Debug)]
pub struct ObjectState {
    /// Marked: it survives this collection.
    pub alive: bool,
    /// Promoted to the old generation.
    pub old: bool,
    /// Its size now, also of an object about to be freed; 0 = unchanged or unknown.
    pub bytes: usize,
    /// Its class now; 0 = unchanged.
    pub class: usize,
}

/// Minor or major collection.
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

/// Counters of samples and collections.
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

    /// Records an allocated object, which stands for `weight` objects. `kind` is Ruby's
    /// number of its type, `frames` the stack as pairs of frame and line, innermost first.
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

    /// Updates all followed objects after a collection has marked and before it
    /// sweeps: dead ones count as freed and are dropped, the others age by one.
    pub fn after_mark(
        &mut self,
        kind: CollectionKind,
        mut state_of: impl FnMut(usize) -> ObjectState,
    ) {
        let mut collected = CollectionRecord::of(kind, unix_s());
        collected.allocated = std::mem::take(&mut self.counts.since);
        collected.followed = self.live.samples.len() as u64;
        let sites = &mut self.sites;
        self.live.samples.retain_mut(|sample| {
            let state = state_of(sample.object);
            sites.update(sample, &state, &mut collected)
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

    /// Updates the addresses of all objects, frames and classes after a compaction.
    pub fn relocate(&mut self, mut new_address: impl FnMut(usize) -> usize) {
        for sample in &mut self.live.samples {
            sample.object = new_address(sample.object);
        }
        self.stacks.relocate(&mut new_address);
        self.sites.relocate(&mut new_address);
    }

    /// Visits the frames and classes referred to. They must be kept alive, or their
    /// addresses would be reused.
    pub fn roots(&self, mut visit: impl FnMut(usize)) {
        self.stacks.frame_ids().for_each(&mut visit);
        self.sites.class_ids().for_each(&mut visit);
    }

    /// Frames that have no name yet. Name them before the next compaction.
    pub fn unnamed_frames(&self) -> Vec<usize> {
        self.stacks.unnamed()
    }

    /// Names a frame; an unknown one is ignored.
    pub fn name_frame(&mut self, id: usize, frame: Frame) {
        self.stacks.name(id, frame);
    }

    /// Classes that have no name yet.
    pub fn unnamed_classes(&self) -> Vec<usize> {
        self.sites.unnamed()
    }

    /// Names a class; an unknown one is ignored.
    pub fn name_class(&mut self, id: usize, name: String) {
        self.sites.name(id, name);
    }

    /// The number of objects followed now.
    pub fn followed(&self) -> usize {
        self.live.samples.len()
    }

    /// Samples taken so far.
    pub fn samples(&self) -> u64 {
        self.counts.samples
    }

    /// Approximate memory of this profile, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.stacks.memory_bytes() + self.sites.memory_bytes() + self.live.memory_bytes()
    }

    /// The report up to now.
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
        // Names may repeat (a file loaded twice, anonymous classes): merging joins these rows.
        Report::merge(vec![raw])
    }
}

/// Seconds since 1970.
fn unix_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64())
}
