//! Records of one fetched chunk that belong together, and how often they were tried.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use crate::record::Chunk;

/// Counts the bytes of chunks that a partition holds in memory.
pub(crate) type HeldBytes = Arc<AtomicUsize>;

/// A chunk's share of [`HeldBytes`], given back when the last of its record sets is dropped.
pub(crate) struct ByteShare {
    bytes: usize,
    held: HeldBytes,
}

impl Drop for ByteShare {
    fn drop(&mut self) {
        self.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Records of one chunk, as they are handed out together.
#[derive(Clone)]
pub(crate) struct RecordSet {
    pub chunk: Arc<Chunk>,
    /// Indexes into the chunk, rising.
    pub picks: Arc<[u32]>,
    /// The number of the next attempt, from 1.
    pub attempt: u32,
    /// How often in a row it was started and neither finished nor got on.
    pub abandoned: u32,
    /// When it was fetched, on the monotonic clock.
    pub fetched_ns: u64,
    /// Its records are handed out one at a time.
    pub isolated: bool,
    pub _share: Option<Arc<ByteShare>>,
}

impl RecordSet {
    /// All records of a chunk.
    pub fn all(chunk: Arc<Chunk>) -> Self {
        let picks = (0..chunk.len() as u32).collect();
        Self {
            chunk,
            picks,
            attempt: 1,
            abandoned: 0,
            fetched_ns: 0,
            isolated: false,
            _share: None,
        }
    }

    /// None of the records of a fetched chunk yet; see [`RecordSet::with`]. The chunk's bytes count
    /// as held until the last set of it is dropped.
    pub fn fetched(chunk: Chunk, held: &HeldBytes, now_ns: u64) -> Self {
        let bytes = chunk.bytes();
        held.fetch_add(bytes, Ordering::Relaxed);
        let share = Some(Arc::new(ByteShare { bytes, held: held.clone() }));
        let chunk = Arc::new(chunk);
        Self { chunk, fetched_ns: now_ns, _share: share, ..Self::all(Arc::default()) }
    }

    /// Other records of the same chunk.
    pub fn with(&self, picks: &[u32]) -> Self {
        Self { picks: picks.into(), ..self.clone() }
    }

    pub fn len(&self) -> usize {
        self.picks.len()
    }

    pub fn is_empty(&self) -> bool {
        self.picks.is_empty()
    }

    /// Its share of the chunk's bytes.
    pub fn bytes(&self) -> usize {
        (self.chunk.bytes() / self.chunk.len().max(1)).saturating_mul(self.picks.len())
    }

    /// The offset of a picked record.
    pub fn offset_of(&self, pick: u32) -> i64 {
        self.chunk.entries()[pick as usize].offset
    }

    /// The offsets of its records.
    pub fn offsets(&self) -> impl DoubleEndedIterator<Item = i64> + '_ {
        self.picks.iter().map(|pick| self.offset_of(*pick))
    }

    /// How many of its records have this offset or a smaller one.
    pub fn count_through(&self, offset: i64) -> usize {
        self.picks.partition_point(|pick| self.offset_of(*pick) <= offset)
    }
}
