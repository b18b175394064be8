//! What follows when a batch ends.

use std::sync::atomic::Ordering;
use std::sync::Arc;

use super::super::settings::RecordOrder;
use super::super::tracker::end_of;
use super::key_lane::{LaneState, ReadyItem, WaitReason};
use super::pending_dead_letter::{DeadLetterStep, LetterSize, PendingDeadLetter};
use super::{Now, PartitionPhase, PartitionState};
use crate::batch::{Batch, BatchKind, BatchOutcome, BatchVerdict};
use crate::record_set::RecordSet;
use chaton_core::backoff::pause_ms;

/// A batch that is abandoned this often in a row is paused before it is handed out again.
const ABANDONED_AT_ONCE: u32 = 2;

impl PartitionState {
    /// The batch has ended; `started`: a thread had taken it.
    pub fn finish(
        &mut self,
        batch: &Batch,
        outcome: BatchOutcome,
        started: bool,
        now: Now,
    ) -> BatchVerdict {
        self.end_alone(batch.lane);
        let Some((kind, records)) = self.take_in_flight(batch) else {
            return BatchVerdict::Dropped;
        };
        let abandoned = outcome == BatchOutcome::Abandoned;
        let lane = &mut self.lanes[batch.lane];
        lane.used |= kind == BatchKind::Records && (started || !abandoned);
        let Some(records) = records else {
            // The last notice of a lane is its last batch.
            if kind != BatchKind::End {
                lane.state = LaneState::Over;
            }
            return if abandoned { BatchVerdict::Dropped } else { BatchVerdict::Done };
        };
        if abandoned {
            self.abandoned(batch.lane, &records, started, now);
            return BatchVerdict::Dropped;
        }
        if self.is_revoked() {
            return BatchVerdict::Dropped;
        }
        let requests = batch.requests();
        if let Some(time) = requests.pause {
            self.pause(now.ns.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)));
        }
        let verdict = match outcome {
            BatchOutcome::Failed { class, message } => {
                self.failed(batch, &records, (class, message), now)
            }
            BatchOutcome::Done | BatchOutcome::Abandoned => {
                self.route.count_records(records.len());
                if !self.route.settings.manual {
                    self.track_done(&records, &records.picks);
                }
                BatchVerdict::Done
            }
        };
        if let Some(position) = requests.seek {
            self.seek(position);
        }
        verdict
    }

    /// Hands out again what was not marked: at once, or after a pause when it is abandoned again
    /// and again.
    fn abandoned(&mut self, lane: usize, records: &RecordSet, started: bool, now: Now) {
        let rest = self.unmarked(records);
        if !self.is_fetching() || rest.is_empty() {
            return;
        }
        let got_on = rest.len() < records.len();
        let attempt = if got_on { 1 } else { records.attempt };
        let abandoned = if got_on { 0 } else { records.abandoned } + u32::from(started);
        let rest = RecordSet { attempt, abandoned, ..records.with(&rest) };
        self.put_back(lane, rest);
        if abandoned >= ABANDONED_AT_ONCE {
            let until_ns = now.ns_after(self.pause_ms(abandoned + 1 - ABANDONED_AT_ONCE));
            self.lanes[lane].state = LaneState::Waiting { until_ns, reason: WaitReason::Retry };
        }
    }

    /// The queue had no room for the batch.
    pub fn refused(&mut self, batch: &Batch) {
        self.end_alone(batch.lane);
        match self.take_in_flight(batch) {
            Some((_, Some(records))) if self.is_fetching() => {
                self.route.counters.batches.fetch_sub(1, Ordering::Relaxed);
                self.put_back(batch.lane, records);
            }
            Some((BatchKind::End, None)) => self.lanes[batch.lane].push_front(ReadyItem::End),
            _ => {}
        }
    }

    /// Marks records of a batch in flight: with `alone` the one with this offset, otherwise all up
    /// to it. False when that does not count.
    pub fn mark(&mut self, batch: &Batch, offset: i64, alone: bool) -> bool {
        if self.is_revoked() || !self.lanes[batch.lane].has_in_flight(batch.id) {
            return false;
        }
        let records = batch.records();
        let count = records.count_through(offset);
        let first = if alone { count.saturating_sub(1) } else { 0 };
        let picks = &records.picks[first..count];
        let has_offset = picks.last().is_some_and(|pick| records.offset_of(*pick) == offset);
        if batch.is_empty() || alone && !has_offset {
            return false;
        }
        if !alone && self.route.settings.order == RecordOrder::Partition {
            // This includes what earlier batches left unmarked.
            let entries = records.chunk.entries();
            let end = picks.last().map_or(offset.saturating_add(1), |pick| end_of(entries, *pick));
            self.tracker.done(&[(i64::MIN, end)]);
            self.dirty = true;
        } else {
            self.track_done(records, picks);
        }
        true
    }

    fn failed(
        &mut self,
        batch: &Batch,
        records: &RecordSet,
        (class, message): (String, String),
        now: Now,
    ) -> BatchVerdict {
        let rest = self.unmarked(records);
        if rest.is_empty() {
            return BatchVerdict::Done;
        }
        if matches!(self.phase, PartitionPhase::Draining { .. }) {
            return BatchVerdict::Dropped;
        }
        self.route.count_retry();
        // When records were marked, another one is the first now and its attempts start at 1.
        let attempt = if rest.len() < records.len() { 1 } else { records.attempt };
        let rest = RecordSet { attempt, abandoned: 0, ..records.with(&rest) };
        let settings = &self.route.settings;
        let exhausted = settings.attempts_max.is_some_and(|max| attempt >= max);
        let dead_letter = settings.dead_letter.clone();
        let Some(topic) = dead_letter.filter(|_| rest.isolated || exhausted) else {
            let in_ms = if exhausted { settings.backoff_max_ms } else { self.pause_ms(attempt) };
            let attempt = self.retry_in(batch.lane, rest, in_ms, now);
            return BatchVerdict::Retry { in_ms, attempt };
        };
        if rest.len() > 1 {
            let in_ms = self.pause_ms(attempt);
            self.retry_in(batch.lane, RecordSet { isolated: true, ..rest }, in_ms, now);
            return BatchVerdict::Isolated { in_ms };
        }
        let letter = PendingDeadLetter {
            batch: batch.id,
            lane: batch.lane,
            topic: topic.clone(),
            class,
            message,
            failed_at_ms: now.ms,
            size: LetterSize::Whole,
            records: rest,
        };
        self.lanes[batch.lane].state =
            LaneState::DeadLetter { letter: Arc::new(letter), step: DeadLetterStep::Due };
        BatchVerdict::DeadLetter { topic }
    }

    /// The records that are not done; those that are get counted.
    fn unmarked(&self, records: &RecordSet) -> Vec<u32> {
        let undone = |pick: &u32| self.tracker.is_undone(records.offset_of(*pick));
        let rest: Vec<u32> = records.picks.iter().copied().filter(undone).collect();
        let done = records.len() - rest.len();
        self.route.count_records(done);
        rest
    }

    fn pause_ms(&mut self, failures: u32) -> u64 {
        let settings = &self.route.settings;
        pause_ms(settings.backoff_ms, settings.backoff_max_ms, failures, &mut self.random)
    }

    /// Hands the records out again as the next attempt, after a pause; returns its number.
    fn retry_in(&mut self, lane: usize, records: RecordSet, in_ms: u64, now: Now) -> u32 {
        let attempt = records.attempt.saturating_add(1);
        let lane = &mut self.lanes[lane];
        lane.push_front(ReadyItem::Records(RecordSet { attempt, ..records }));
        let until_ns = now.ns_after(in_ms);
        lane.state = LaneState::Waiting { until_ns, reason: WaitReason::Retry };
        attempt
    }

    fn put_back(&mut self, lane: usize, records: RecordSet) {
        if let Some(throttle) = &mut self.throttle {
            throttle.put_back(records.len());
        }
        self.lanes[lane].push_front(ReadyItem::Records(records));
    }

    /// Frees the lane of this batch; `None` when the batch is not in flight.
    fn take_in_flight(&mut self, batch: &Batch) -> Option<(BatchKind, Option<RecordSet>)> {
        let lane = self.lanes.get_mut(batch.lane).filter(|lane| lane.has_in_flight(batch.id))?;
        match std::mem::take(&mut lane.state) {
            LaneState::InFlight { kind, records, .. } => Some((kind, records)),
            _ => None,
        }
    }
}
