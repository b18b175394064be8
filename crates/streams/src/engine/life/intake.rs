//! What was fetched is put on strands, in pieces of a batch.

use std::sync::atomic::Ordering;
use std::sync::Arc;

use super::super::tracker::ranges_of;
use super::strand::{Batch, Hold, Piece};
use super::{Life, Now, Phase};
use crate::log::Limits;
use crate::record::{Chunk, RecordLayout};

impl Life {
    /// How much to fetch now: where little is ready, what is held is within
    /// its bounds, and what is done beyond the head can be noted.
    pub fn wants(&self) -> Option<Limits> {
        if !matches!(self.phase, Phase::Open | Phase::Paused { .. }) {
            return None;
        }
        let settings = &self.rules.settings;
        let (ahead, strands) = (self.rules.ready_batches, self.strands.len());
        let low = self.strands.iter().map(|strand| strand.pieces()).min().unwrap_or(0);
        if low > ahead / 2 || !self.tracker.fits() {
            return None;
        }
        let batches = if strands == 1 { ahead - low } else { strands };
        let ready: usize = self.strands.iter().map(|strand| strand.records()).sum();
        let records_max = settings.batch.saturating_mul(strands).saturating_mul(ahead);
        let bytes_max = settings.batch_bytes.saturating_mul(strands).saturating_mul(ahead + 1);
        let held = self.held.load(Ordering::Relaxed);
        // A few records less than the bound are no reason to fetch a few.
        if ready > 0 && (ready.saturating_add(settings.batch) > records_max || held >= bytes_max) {
            return None;
        }
        Some(Limits {
            records: settings.batch.saturating_mul(batches),
            bytes: settings.batch_bytes.saturating_mul(batches),
        })
    }

    /// These came. What came while it was asked to go elsewhere is not of
    /// there, and left. Answers the position that the log went back from, if
    /// it did.
    pub fn fetched(&mut self, chunk: Chunk, now: Now) -> Option<i64> {
        if !matches!(self.phase, Phase::Open | Phase::Paused { .. }) {
            return None;
        }
        let entries = chunk.entries();
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else { return None };
        let before = self.tracker.position();
        let back = self.tracker.fetched(first.offset, last.offset + 1);
        if back {
            // Other records have these offsets now.
            self.skip.clear();
        }
        let chunk = Arc::new(chunk);
        let all = Batch {
            picks: [].into(),
            _hold: Hold::new(chunk.bytes(), &self.held),
            attempt: 1,
            abandoned: 0,
            isolated: false,
            fetched_ns: now.ns,
            chunk,
        };
        let picks = self.skip_done(all.chunk.entries());
        if self.strands.len() == 1 {
            self.put(0, &all, &picks);
            return before.filter(|_| back);
        }
        let mut parts = vec![Vec::new(); self.strands.len()];
        for pick in picks {
            parts[self.strand_of(&all.chunk, pick)].push(pick);
        }
        for (strand, picks) in parts.iter().enumerate() {
            self.put(strand, &all, picks);
        }
        before.filter(|_| back)
    }

    /// All that there is has been fetched.
    pub fn end_reached(&mut self) {
        if self.is_ending() {
            return;
        }
        let any = self.strands.iter().any(|strand| strand.used || strand.pieces() > 0);
        for (index, strand) in self.strands.iter_mut().enumerate() {
            let hears = strand.used || strand.pieces() > 0 || strand.is_busy();
            if (hears || !any && index == 0) && !strand.ends_with_end() {
                strand.push_back(Piece::End);
            }
        }
    }

    /// The records but those that were done before this assignment.
    fn skip_done(&mut self, entries: &[RecordLayout]) -> Vec<u32> {
        if self.skip.is_empty() {
            return (0..entries.len() as u32).collect();
        }
        let (mut picks, mut done) = (Vec::new(), Vec::new());
        for (index, entry) in entries.iter().enumerate() {
            while self.skip.front().is_some_and(|range| range.1 <= entry.offset) {
                self.skip.pop_front();
            }
            let skipped = self.skip.front().is_some_and(|range| range.0 <= entry.offset);
            if skipped { &mut done } else { &mut picks }.push(index as u32);
        }
        ranges_of(entries, &done, &mut self.scratch);
        self.tracker.done(&self.scratch);
        self.dirty |= !done.is_empty();
        picks
    }

    /// By the hash of its key; not the one that has chosen the partition, or
    /// all keys of a partition might meet in one strand. Without a key by
    /// turns.
    fn strand_of(&mut self, chunk: &Chunk, pick: u32) -> usize {
        let strands = self.strands.len();
        if let Some(key) = chunk.record(pick as usize).key() {
            // The lowest bits of a checksum hardly differ among `k0` … `k9`: mixed first.
            let mixed = u64::from(crc32c::crc32c(key)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
            return (mixed as usize * strands) >> 32;
        }
        self.keyless = (self.keyless + 1) % strands;
        self.keyless
    }

    fn put(&mut self, strand: usize, all: &Batch, picks: &[u32]) {
        let settings = &self.rules.settings;
        let entries = all.chunk.entries();
        let mut rest = picks;
        while !rest.is_empty() {
            let mut count = rest.len().min(settings.batch.max(1));
            if all.chunk.bytes() > settings.batch_bytes {
                let sizes = rest[..count].iter().map(|pick| size(&entries[*pick as usize]));
                count = fitting(sizes, settings.batch_bytes);
            }
            let (piece, after) = rest.split_at(count);
            self.strands[strand].push_back(Piece::Batch(all.with(piece)));
            rest = after;
        }
    }
}

/// How many of the first fit, one at least.
fn fitting(sizes: impl Iterator<Item = usize>, bytes_max: usize) -> usize {
    let mut bytes = 0usize;
    let fit = sizes.take_while(|size| {
        bytes = bytes.saturating_add(*size);
        bytes <= bytes_max
    });
    fit.count().max(1)
}

fn size(entry: &RecordLayout) -> usize {
    let len = |len: u32| if len == u32::MAX { 0 } else { len as usize };
    len(entry.key.len) + len(entry.value.len)
}
