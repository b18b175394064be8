//! A record of each collection, as in Kiji's summary after a collection.

use std::collections::VecDeque;

use magnus::{Error, RHash, Ruby};

use super::gc_stat::Stats;

/// Summaries kept until they are logged; beyond it the oldest is dropped and counted.
const KEPT_MAX: usize = 512;

/// One collection.
#[derive(Clone, Default)]
pub struct CollectionSummary {
    /// Number of the collection, as `GC.count`.
    pub number: u64,
    /// What triggered it: newobj, malloc, method, …
    pub by: Option<&'static str>,
    /// Why it was a full collection; `None` for a minor one.
    pub major_by: Option<&'static str>,
    /// The unit of work during which it began.
    pub unit: Option<String>,
    /// Time in the collector, lazy sweeping included (ns); 0 if the next collection
    /// began before it could be read.
    pub total_ns: u64,
    /// Slots filled since the previous collection.
    pub filled: u64,
    /// Live slots before it.
    pub live_before: u64,
    /// Live slots after it.
    pub live_after: u64,
    /// Objects freed.
    pub freed: u64,
    /// Promoted objects before it.
    pub old_before: u64,
    /// Promoted objects after it.
    pub old_after: u64,
    /// Pages of the heap.
    pub pages: u64,
    /// Bytes of malloc since the previous collection.
    pub malloc: u64,
}

impl CollectionSummary {
    /// Whether it was a full collection.
    pub fn is_major(&self) -> bool {
        self.major_by.is_some()
    }

    /// A Hash with times in ms.
    pub fn to_hash(&self, ruby: &Ruby) -> Result<RHash, Error> {
        let hash = ruby.hash_new();
        let ms = |ns: u64| (ns as f64 / 1e4).round() / 100.0;
        hash.aset(ruby.to_symbol("number"), self.number)?;
        hash.aset(ruby.to_symbol("kind"), if self.is_major() { "full" } else { "minor" })?;
        hash.aset(ruby.to_symbol("by"), self.by)?;
        hash.aset(ruby.to_symbol("full_by"), self.major_by)?;
        hash.aset(ruby.to_symbol("ms"), ms(self.total_ns))?;
        let promoted = self.old_after.saturating_sub(self.old_before);
        for (name, value) in [
            ("filled", self.filled),
            ("live_before", self.live_before),
            ("live", self.live_after),
            ("freed", self.freed),
            ("promoted", promoted),
            ("old", self.old_after),
            ("pages", self.pages),
            ("malloc", self.malloc),
        ] {
            hash.aset(ruby.to_symbol(name), value)?;
        }
        hash.aset(ruby.to_symbol("unit"), self.unit.as_deref())?;
        Ok(hash)
    }
}

/// A collection whose end has not been observed yet.
pub struct OpenCollection {
    /// The record so far.
    pub summary: CollectionSummary,
    freed_before: u64,
}

impl OpenCollection {
    /// Records the beginning. Call inside the collection.
    pub fn begin(summary: CollectionSummary, stats: &Stats) -> Self {
        let summary = CollectionSummary {
            live_before: stats.live.read(),
            old_before: stats.old.read(),
            ..summary
        };
        Self { summary, freed_before: stats.freed.read() }
    }

    /// Records the end, which left `live` slots.
    pub fn end(self, stats: &Stats, live: u64) -> CollectionSummary {
        CollectionSummary {
            live_after: live,
            freed: stats.freed.read().saturating_sub(self.freed_before),
            old_after: stats.old.read(),
            pages: stats.pages.read(),
            ..self.summary
        }
    }
}

/// Summaries that wait to be logged.
#[derive(Default)]
pub struct SummaryQueue {
    list: VecDeque<CollectionSummary>,
    /// Summaries dropped so far because the queue was full.
    pub dropped: u64,
}

impl SummaryQueue {
    /// Adds a summary.
    pub fn push(&mut self, summary: CollectionSummary) {
        if self.list.len() >= KEPT_MAX {
            self.list.pop_front();
            self.dropped += 1;
        }
        self.list.push_back(summary);
    }

    /// Takes all summaries.
    pub fn take(&mut self) -> Vec<CollectionSummary> {
        self.list.drain(..).collect()
    }
}
