//! Sizes of young objects, read before a collection can free them.

use super::{CollectionKind, CollectionRecord, Profile};

impl Profile {
    /// Reads the sizes of the objects sampled since the last collection; `size` returns
    /// 0 for an unknown one. For Rubies where dead objects are recognised only after
    /// sweeping, when their size can no longer be read.
    pub fn measure(&mut self, mut size: impl FnMut(usize) -> usize) {
        let mut sum = CollectionRecord::of(CollectionKind::Minor, 0.0);
        let sites = &mut self.sites;
        // The youngest are last.
        for sample in self.live.samples.iter_mut().rev().take_while(|sample| sample.age == 0) {
            let bytes = size(sample.object);
            if bytes != 0 && bytes != sample.bytes {
                sites.resize(sample, bytes, &mut sum);
            }
        }
        self.counts.since += sum.allocated;
    }

    /// Drops all followed samples, because their objects cannot be found any more.
    pub fn forget(&mut self) {
        self.live.samples.clear();
    }
}
