//! Sizes of young objects, read while they are certainly there; and giving up.

use super::{CollectionKind, CollectionRecord, Profile};

impl Profile {
    /// Reads the sizes of objects that no collection has seen yet: `size` is
    /// asked of each and answers 0 where it does not know. Where freed objects
    /// are found out only after they have gone, their size is not to be had
    /// then. Call it before a collection could have freed them.
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

    /// Gives up all that is followed: it cannot be found any more.
    pub fn forget(&mut self) {
        self.live.samples.clear();
    }
}
