//! What is ready becomes batches.

use std::sync::atomic::Ordering;
use std::sync::Arc;

use super::key_lane::{LaneState, ReadyItem, WaitReason};
use super::{Now, PartitionPhase, PartitionState};
use crate::batch::{Batch, BatchKind};
use crate::record_set::RecordSet;

/// What is done with the first records of a lane.
pub(super) enum NextStep {
    Deliver(RecordSet),
    /// Nothing is left of them.
    Skip,
    Wait(u64, WaitReason),
    /// The first one becomes a dead letter.
    DeadLetter,
}

impl PartitionState {
    /// Adds the batches that can be handed out now.
    pub fn advance(&mut self, now: Now, batches: &mut Vec<Batch>) {
        if matches!(self.phase, PartitionPhase::Paused { until_ns } if until_ns <= now.ns) {
            self.phase = PartitionPhase::Open;
        }
        for lane in 0..self.lanes.len() {
            let state = &mut self.lanes[lane].state;
            match state {
                LaneState::Waiting { until_ns, .. } if *until_ns <= now.ns => {
                    *state = LaneState::Free;
                }
                LaneState::Free => {}
                _ => continue,
            }
            match self.phase {
                PartitionPhase::Open => batches.extend(self.next_batch(lane, now)),
                PartitionPhase::Paused { .. } | PartitionPhase::Seeking { .. } => {}
                PartitionPhase::Draining { notice } => {
                    batches.extend(self.last_notice(lane, Some(notice)));
                }
                PartitionPhase::Revoked { notice } => {
                    batches.extend(self.last_notice(lane, notice));
                }
            }
        }
    }

    fn next_batch(&mut self, lane: usize, now: Now) -> Option<Batch> {
        loop {
            let ReadyItem::Records(records) = self.lanes[lane].pop()? else {
                return Some(self.batch(lane, BatchKind::End, None));
            };
            match self.next_step(lane, records, now) {
                NextStep::Deliver(records) => {
                    self.route.counters.batches.fetch_add(1, Ordering::Relaxed);
                    return Some(self.batch(lane, BatchKind::Records, Some(records)));
                }
                NextStep::Skip => {}
                NextStep::Wait(until_ns, reason) => {
                    self.lanes[lane].state = LaneState::Waiting { until_ns, reason };
                    return None;
                }
                NextStep::DeadLetter => return None,
            }
        }
    }

    /// Takes the part of these records that is handed out now; the rest goes back to the front.
    fn next_step(&mut self, lane: usize, records: RecordSet, now: Now) -> NextStep {
        let mut records = self.without_expired(records, now);
        if records.is_empty() {
            return NextStep::Skip;
        }
        let due = self.due(&records, now);
        if due == 0 {
            let first = records.chunk.entries()[records.picks[0] as usize].timestamp_ms;
            let at_ms = first.saturating_add_unsigned(self.route.settings.delay_ms);
            let until_ns = now.ns_at(at_ms).min(self.delayed_until_ns(&records));
            self.lanes[lane].push_front(ReadyItem::Records(records));
            return NextStep::Wait(until_ns, WaitReason::Delay);
        }
        let mut count = if records.isolated { 1 } else { due };
        let deaths = self.route.suspects.of(self.route.source, &self.partition, now.ms);
        if let Some(deaths) = deaths {
            match self.without_suspects(lane, &mut records, &deaths, now) {
                Ok(harmless) => count = count.min(harmless),
                Err(step) => return step,
            }
        }
        if let Some(throttle) = &mut self.throttle {
            count = count.min(throttle.size());
            if let Err(at_ns) = throttle.take(count, now.ns) {
                self.end_alone(lane);
                self.lanes[lane].push_front(ReadyItem::Records(records));
                return NextStep::Wait(at_ns, WaitReason::Throttle);
            }
        }
        if count < records.len() {
            let rest = records.with(&records.picks[count..]);
            self.lanes[lane].push_front(ReadyItem::Records(rest));
            records = records.with(&records.picks[..count]);
        }
        NextStep::Deliver(records)
    }

    fn without_expired(&mut self, records: RecordSet, now: Now) -> RecordSet {
        let expires_ms = self.route.settings.expires_ms;
        if expires_ms == 0 {
            return records;
        }
        let entries = records.chunk.entries();
        let oldest = now.ms.saturating_sub_unsigned(expires_ms);
        let is_expired = |pick: &u32| (0..oldest).contains(&entries[*pick as usize].timestamp_ms);
        let (expired, fresh): (Vec<u32>, Vec<u32>) =
            records.picks.iter().partition(|pick| is_expired(pick));
        if expired.is_empty() {
            return records;
        }
        self.route.counters.expired.fetch_add(expired.len() as u64, Ordering::Relaxed);
        self.track_done(&records, &expired);
        records.with(&fresh)
    }

    /// No record waits here for longer than the delay, even if its timestamp lies in the future or
    /// the clock is set back.
    fn delayed_until_ns(&self, records: &RecordSet) -> u64 {
        let delay_ns = self.route.settings.delay_ms.saturating_mul(1_000_000);
        records.fetched_ns.saturating_add(delay_ns)
    }

    /// How many of the first records are old enough; a record without a timestamp always is.
    fn due(&self, records: &RecordSet, now: Now) -> usize {
        let delay_ms = self.route.settings.delay_ms;
        if delay_ms == 0 || self.delayed_until_ns(records) <= now.ns {
            return records.len();
        }
        let latest = now.ms.saturating_sub_unsigned(delay_ms);
        let entries = records.chunk.entries();
        let is_due = |pick: &&u32| entries[**pick as usize].timestamp_ms <= latest;
        records.picks.iter().take_while(is_due).count()
    }

    /// The last batch of a lane that has had one before.
    fn last_notice(&mut self, lane: usize, notice: Option<BatchKind>) -> Option<Batch> {
        let Some(kind) = notice.filter(|_| self.lanes[lane].used) else {
            self.lanes[lane].state = LaneState::Over;
            return None;
        };
        Some(self.batch(lane, kind, None))
    }

    fn batch(&mut self, lane: usize, kind: BatchKind, records: Option<RecordSet>) -> Batch {
        let id = self.route.batch_ids.fetch_add(1, Ordering::Relaxed);
        let contents = records.clone().unwrap_or_else(|| RecordSet::all(Arc::default()));
        self.lanes[lane].state = LaneState::InFlight { id, kind, records };
        let mut batch = Batch::new(self.partition.clone(), kind, contents);
        batch.id = id;
        batch.lane = lane;
        batch.generation = self.generation;
        batch.route = self.route.number;
        batch
    }
}
