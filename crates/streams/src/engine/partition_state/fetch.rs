//! Fetched records are put into lanes, in sets of at most one batch.

use std::sync::atomic::Ordering;

use super::super::tracker::ranges_of;
use super::key_lane::ReadyItem;
use super::{Now, PartitionState};
use crate::log::{Limits, LostRecords};
use crate::record::{Chunk, RecordLayout};
use crate::record_set::RecordSet;

impl PartitionState {
    /// How much to fetch now. `None` while enough is ready, the bytes held are at their bound, or
    /// the offsets that are done beyond the head would not fit beside the commit.
    pub fn fetch_limits(&self) -> Option<Limits> {
        if !self.is_fetching() || self.stopped.is_some() {
            return None;
        }
        let settings = &self.route.settings;
        let (ahead, lanes) = (self.route.ready_batches, self.lanes.len());
        let low = self.lanes.iter().map(|lane| lane.ready_items()).min().unwrap_or(0);
        if low > ahead / 2 || !self.tracker.fits() {
            return None;
        }
        let batches = if lanes == 1 { ahead - low } else { lanes };
        let ready: usize = self.lanes.iter().map(|lane| lane.ready_records()).sum();
        let records_max = settings.batch.saturating_mul(lanes).saturating_mul(ahead);
        let bytes_max = settings.batch_bytes.saturating_mul(lanes).saturating_mul(ahead + 1);
        let held = self.held.load(Ordering::Relaxed);
        // Fetches less than a whole batch only when nothing is ready.
        if ready > 0 && (ready.saturating_add(settings.batch) > records_max || held >= bytes_max) {
            return None;
        }
        Some(Limits {
            records: settings.batch.saturating_mul(batches),
            bytes: settings.batch_bytes.saturating_mul(batches),
        })
    }

    /// Where reading was to continue; `None` before the first record, and after a seek until the
    /// log has said where it continues.
    pub fn expected(&self) -> Option<i64> {
        let asked = !self.is_fetching() || self.tracker.is_asked();
        self.tracker.position().filter(|_| !asked)
    }

    /// Fetches nothing behind the records before these.
    pub fn stop_at(&mut self, lost: LostRecords) {
        if self.is_fetching() {
            self.tracker.begin_at(lost.from);
            self.stopped = Some(lost);
            self.dirty = true;
        }
    }

    /// Goes on behind lost records.
    pub fn pass_over(&mut self, lost: &LostRecords) {
        if self.is_fetching() {
            self.tracker.fetched(lost.from, lost.until);
            self.tracker.done(&[(lost.from, lost.until)]);
            self.dirty = true;
        }
    }

    /// Takes fetched records. Those fetched before a seek are dropped. Returns the position that
    /// the log went back from, if it did.
    pub fn fetched(&mut self, chunk: Chunk, now: Now) -> Option<i64> {
        if !self.is_fetching() {
            return None;
        }
        let entries = chunk.entries();
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else { return None };
        let before = self.tracker.position();
        let went_back = self.tracker.fetched(first.offset, last.offset + 1);
        if went_back {
            // Other records have these offsets now.
            self.skip.clear();
        }
        let all = RecordSet::fetched(chunk, &self.held, now.ns);
        let picks = self.skip_done(all.chunk.entries());
        if self.lanes.len() == 1 {
            self.put(0, &all, &picks);
        } else {
            let mut by_lane = vec![Vec::new(); self.lanes.len()];
            for pick in picks {
                by_lane[self.lane_of(&all.chunk, pick)].push(pick);
            }
            for (lane, picks) in by_lane.iter().enumerate() {
                self.put(lane, &all, picks);
            }
        }
        before.filter(|_| went_back)
    }

    /// There are no records between the position and this offset, up to which the log was read: markers of
    /// transactions, for example. They are done with what is before them.
    pub fn read_up_to(&mut self, offset: i64) {
        let continues = self.is_fetching() && self.stopped.is_none();
        self.dirty |= continues && self.tracker.read_up_to(offset);
    }

    /// The log has no more records now.
    pub fn end_reached(&mut self) {
        if self.is_draining() {
            return;
        }
        let any = self.lanes.iter().any(|lane| lane.used || lane.ready_items() > 0);
        for (index, lane) in self.lanes.iter_mut().enumerate() {
            let is_concerned = lane.used || lane.ready_items() > 0 || lane.is_busy();
            if (is_concerned || !any && index == 0) && !lane.ends_with_end() {
                lane.push_back(ReadyItem::End);
            }
        }
    }

    /// The records that were not consumed before this assignment.
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

    /// The lane of a record: by the hash of its key, without a key in turn. The hash differs from
    /// the one that chose the partition; otherwise all keys of a partition could share a lane.
    fn lane_of(&mut self, chunk: &Chunk, pick: u32) -> usize {
        let lanes = self.lanes.len();
        if let Some(key) = chunk.record(pick as usize).key() {
            // Mixed, because the lowest bits of the checksums of `k0` … `k9` hardly differ.
            let hash = u64::from(crc32c::crc32c(key)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
            return (hash as usize * lanes) >> 32;
        }
        self.keyless_lane = (self.keyless_lane + 1) % lanes;
        self.keyless_lane
    }

    fn put(&mut self, lane: usize, all: &RecordSet, picks: &[u32]) {
        let settings = &self.route.settings;
        let entries = all.chunk.entries();
        let mut rest = picks;
        while !rest.is_empty() {
            let mut count = rest.len().min(settings.batch.max(1));
            if all.chunk.bytes() > settings.batch_bytes {
                let sizes = rest[..count].iter().map(|pick| size(&entries[*pick as usize]));
                count = count_within(sizes, settings.batch_bytes);
            }
            let (set, after) = rest.split_at(count);
            self.lanes[lane].push_back(ReadyItem::Records(all.with(set)));
            rest = after;
        }
    }
}

/// How many of the first sizes fit into `bytes_max`, at least one.
fn count_within(sizes: impl Iterator<Item = usize>, bytes_max: usize) -> usize {
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
