//! What is known of the files that were asked for lately; the content of small ones, too.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::resource::Resource;

/// What an entry takes besides the content of its files.
const ENTRY_BYTES: usize = 1024;
/// Shortest time between two sweeps, so that a full cache costs little.
const SWEEP_PAUSE: Duration = Duration::from_secs(1);

struct CachedResource {
    resource: Arc<Resource>,
    checked_at: Instant,
    /// Since the last sweep.
    is_used: bool,
    bytes: usize,
}

/// Resources by the path of the request, as it was sent.
pub(super) struct ResourceCache {
    entries: HashMap<Box<[u8]>, CachedResource>,
    bytes: usize,
    bytes_max: usize,
    fresh: Duration,
    swept_at: Option<Instant>,
}

impl ResourceCache {
    /// Holds `bytes_max` at most, and believes an entry for the time `fresh`.
    pub fn new(bytes_max: usize, fresh: Duration) -> Self {
        Self { entries: HashMap::new(), bytes: 0, bytes_max, fresh, swept_at: None }
    }

    /// The entry, and whether it was compared with the disk a short time ago.
    pub fn get(&mut self, path: &[u8], now: Instant) -> Option<(Arc<Resource>, bool)> {
        let entry = self.entries.get_mut(path)?;
        entry.is_used = true;
        let is_fresh = now.saturating_duration_since(entry.checked_at) < self.fresh;
        Some((Arc::clone(&entry.resource), is_fresh))
    }

    /// Keeps a resource that was compared with the disk now, if there is room.
    pub fn insert(&mut self, path: &[u8], resource: &Arc<Resource>, now: Instant) {
        self.remove(path);
        let bytes = ENTRY_BYTES + path.len() + resource.bytes();
        if self.bytes + bytes > self.bytes_max {
            self.sweep(now);
        }
        if self.bytes + bytes > self.bytes_max {
            return;
        }
        self.bytes += bytes;
        let resource = Arc::clone(resource);
        let entry = CachedResource { resource, checked_at: now, is_used: true, bytes };
        self.entries.insert(path.into(), entry);
    }

    pub fn remove(&mut self, path: &[u8]) {
        if let Some(entry) = self.entries.remove(path) {
            self.bytes -= entry.bytes;
        }
    }

    /// Drops what was not asked for since the last sweep.
    fn sweep(&mut self, now: Instant) {
        if self.swept_at.is_some_and(|at| now.saturating_duration_since(at) < SWEEP_PAUSE) {
            return;
        }
        self.swept_at = Some(now);
        let bytes = &mut self.bytes;
        self.entries.retain(|_, entry| {
            let keep = std::mem::take(&mut entry.is_used);
            *bytes -= if keep { 0 } else { entry.bytes };
            keep
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource() -> Arc<Resource> {
        Arc::new(Resource::for_tests(vec![0; 1000]))
    }

    #[test]
    fn it_stays_within_its_bytes_and_drops_what_nobody_asks_for() {
        let mut cache = ResourceCache::new(3 * (ENTRY_BYTES + 1001), Duration::from_secs(1));
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        for path in [b"a", b"b", b"c"] {
            cache.insert(path, &resource(), at(0));
        }
        // The first sweep only forgets who was used.
        cache.insert(b"d", &resource(), at(0));
        assert!(cache.get(b"d", at(0)).is_none());
        assert!(cache.get(b"a", at(1)).is_some());
        cache.insert(b"d", &resource(), at(0));
        assert!(cache.get(b"d", at(0)).is_none(), "swept a short time ago");
        cache.insert(b"d", &resource(), at(2));
        let held = [b"a", b"b", b"c", b"d"].map(|path| cache.get(path, at(2)).is_some());
        assert_eq!(held, [true, false, false, true]);
        assert_eq!(cache.bytes, 2 * (ENTRY_BYTES + 1001));
        cache.insert(b"a", &resource(), at(2));
        assert_eq!(cache.bytes, 2 * (ENTRY_BYTES + 1001));
        cache.remove(b"a");
        cache.remove(b"d");
        assert_eq!(cache.bytes, 0);
    }

    #[test]
    fn an_entry_is_believed_for_a_time() {
        let mut cache = ResourceCache::new(1 << 20, Duration::from_secs(1));
        let start = Instant::now();
        cache.insert(b"a", &resource(), start);
        let is_fresh = |cache: &mut ResourceCache, ms| {
            cache.get(b"a", start + Duration::from_millis(ms)).map(|(_, is_fresh)| is_fresh)
        };
        assert_eq!(is_fresh(&mut cache, 999), Some(true));
        assert_eq!(is_fresh(&mut cache, 1000), Some(false));
    }
}
