//! What is ready becomes turns.

use std::sync::atomic::Ordering;

use super::super::ending::Kind;
use super::strand::{Batch, Give, Piece, State, Why};
use super::{Life, Now, Phase};

/// What may be done with the first batch of a strand.
enum Next {
    /// It is given.
    Give(Batch),
    /// Nothing is left of it.
    Nothing,
    /// Not yet.
    Wait(u64, Why),
}

impl Life {
    /// Begins what may begin now.
    pub fn advance(&mut self, now: Now, gives: &mut Vec<Give>) {
        if matches!(self.phase, Phase::Paused { until_ns } if until_ns <= now.ns) {
            self.phase = Phase::Open;
        }
        for strand in 0..self.strands.len() {
            let state = &mut self.strands[strand].state;
            match state {
                State::Waiting { until_ns, .. } if *until_ns <= now.ns => *state = State::Free,
                State::Free => {}
                _ => continue,
            }
            match self.phase {
                Phase::Open => self.begin(strand, now, gives),
                Phase::Paused { .. } | Phase::Seeking { .. } => {}
                Phase::Ending { notice } => self.tell(strand, Some(notice), gives),
                Phase::Gone { notice } => self.tell(strand, notice, gives),
            }
        }
    }

    fn begin(&mut self, strand: usize, now: Now, gives: &mut Vec<Give>) {
        while let Some(piece) = self.strands[strand].pop() {
            let Piece::Batch(batch) = piece else {
                return self.give(strand, Kind::End, None, gives);
            };
            match self.next(strand, batch, now) {
                Next::Give(batch) => {
                    self.rules.counters.batches.fetch_add(1, Ordering::Relaxed);
                    return self.give(strand, Kind::Records, Some(batch), gives);
                }
                Next::Nothing => {}
                Next::Wait(until_ns, why) => {
                    self.strands[strand].state = State::Waiting { until_ns, why };
                    return;
                }
            }
        }
    }

    /// The part of a batch that may be given now; the rest is ready again.
    fn next(&mut self, strand: usize, batch: Batch, now: Now) -> Next {
        let mut batch = self.without_expired(batch, now);
        if batch.picks.is_empty() {
            return Next::Nothing;
        }
        let due = self.due(&batch, now);
        if due == 0 {
            let first = batch.chunk.entries()[batch.picks[0] as usize].timestamp_ms;
            let at_ms = first.saturating_add_unsigned(self.rules.settings.delay_ms);
            let until_ns = now.ns_at(at_ms).min(self.delayed_until_ns(&batch));
            self.strands[strand].push_front(Piece::Batch(batch));
            return Next::Wait(until_ns, Why::Delay);
        }
        let mut count = if batch.isolated { 1 } else { due };
        if let Some(bucket) = &mut self.bucket {
            count = count.min(bucket.size());
            if let Err(at_ns) = bucket.take(count, now.ns) {
                self.strands[strand].push_front(Piece::Batch(batch));
                return Next::Wait(at_ns, Why::Throttle);
            }
        }
        if count < batch.picks.len() {
            let rest = batch.with(&batch.picks[count..]);
            self.strands[strand].push_front(Piece::Batch(rest));
            batch = batch.with(&batch.picks[..count]);
        }
        Next::Give(batch)
    }

    fn without_expired(&mut self, batch: Batch, now: Now) -> Batch {
        let expires_ms = self.rules.settings.expires_ms;
        if expires_ms == 0 {
            return batch;
        }
        let entries = batch.chunk.entries();
        let oldest = now.ms.saturating_sub_unsigned(expires_ms);
        let expired = |pick: &u32| (0..oldest).contains(&entries[*pick as usize].timestamp_ms);
        let (old, fresh): (Vec<u32>, Vec<u32>) = batch.picks.iter().partition(|p| expired(p));
        if old.is_empty() {
            return batch;
        }
        self.rules.counters.expired.fetch_add(old.len() as u64, Ordering::Relaxed);
        self.settle(&batch, &old);
        batch.with(&fresh)
    }

    /// No record waits longer than the delay here, whatever its timestamp
    /// says and whoever sets the clock.
    fn delayed_until_ns(&self, batch: &Batch) -> u64 {
        let delay_ns = self.rules.settings.delay_ms.saturating_mul(1_000_000);
        batch.fetched_ns.saturating_add(delay_ns)
    }

    /// How many of the first records are old enough. One without a timestamp
    /// is.
    fn due(&self, batch: &Batch, now: Now) -> usize {
        let delay_ms = self.rules.settings.delay_ms;
        if delay_ms == 0 || self.delayed_until_ns(batch) <= now.ns {
            return batch.picks.len();
        }
        let latest = now.ms.saturating_sub_unsigned(delay_ms);
        let entries = batch.chunk.entries();
        let old_enough = |pick: &&u32| entries[**pick as usize].timestamp_ms <= latest;
        batch.picks.iter().take_while(old_enough).count()
    }

    /// The last turn of a strand that had one.
    fn tell(&mut self, strand: usize, notice: Option<Kind>, gives: &mut Vec<Give>) {
        match notice.filter(|_| self.strands[strand].used) {
            Some(kind) => self.give(strand, kind, None, gives),
            None => self.strands[strand].state = State::Over,
        }
    }

    fn give(&mut self, strand: usize, kind: Kind, batch: Option<Batch>, gives: &mut Vec<Give>) {
        let id = self.rules.ids.fetch_add(1, Ordering::Relaxed);
        self.strands[strand].state = State::Out { id, kind, batch: batch.clone() };
        gives.push(Give { id, strand, kind, batch });
    }
}
