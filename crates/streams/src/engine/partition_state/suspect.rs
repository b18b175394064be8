//! Records that were being consumed when workers died.

use std::sync::atomic::Ordering;
use std::sync::Arc;

use chaton_core::calendar::iso_8601;

use super::super::suspects::{lane_id, PartitionDeaths, POISON_DEATHS, SUSPECT_DEATHS};
use super::deliver::NextStep;
use super::key_lane::{LaneState, ReadyItem, WaitReason};
use super::pending_dead_letter::{DeadLetterStep, LetterSize, PendingDeadLetter};
use super::{Now, PartitionState};
use crate::record_set::RecordSet;

/// How long a suspect waits while another one runs, before it looks again.
const ALONE_WAIT_MS: u64 = 100;

impl PartitionState {
    /// How many of these records are handed out together: those before the first one with a death,
    /// or one. Otherwise the step that follows, for which the records are put away.
    pub(super) fn without_suspects(
        &mut self,
        lane: usize,
        records: &mut RecordSet,
        deaths: &PartitionDeaths,
        now: Now,
    ) -> Result<usize, NextStep> {
        let count = |pick: &u32| deaths.count(records.offset_of(*pick));
        let harmless = records.picks.iter().take_while(|pick| count(pick) == 0).count();
        let of_first = count(&records.picks[0]);
        records.attempt = records.attempt.max(of_first as u32 + 1);
        if harmless > 0 {
            return Ok(harmless);
        }
        let offset = records.offset_of(records.picks[0]);
        if deaths.is_poison(offset) {
            self.poisoned(lane, offset, records, deaths, now)?;
        }
        let alone = of_first < SUSPECT_DEATHS
            || self.route.suspects.begin_alone(lane_id(self.generation, lane));
        if alone {
            return Ok(1);
        }
        self.lanes[lane].push_front(ReadyItem::Records(records.clone()));
        Err(NextStep::Wait(now.ns_after(ALONE_WAIT_MS), WaitReason::Retry))
    }

    /// The suspect of this lane, if it ran one, has ended.
    pub(super) fn end_alone(&self, lane: usize) {
        self.route.suspects.end_alone(lane_id(self.generation, lane));
    }

    /// The first record becomes a dead letter. Without a topic for it, it is tried again after a
    /// pause that grows with the deaths, and not before this is logged: it may end this worker at
    /// once.
    fn poisoned(
        &mut self,
        lane: usize,
        offset: i64,
        records: &RecordSet,
        deaths: &PartitionDeaths,
        now: Now,
    ) -> Result<(), NextStep> {
        let (story, count) = (deaths.story(offset, iso_8601), deaths.count(offset));
        if self.poison_seen.replace((offset, count)) != Some((offset, count)) {
            self.route.counters.poisoned.fetch_add(1, Ordering::Relaxed);
            self.poison = Some((offset, story.clone()));
        }
        let settings = &self.route.settings;
        let Some(topic) = settings.dead_letter.clone() else {
            let doublings = count.saturating_sub(POISON_DEATHS).min(30);
            let pause_ms = settings.backoff_ms.saturating_mul(1 << doublings);
            let pause_ms = pause_ms.min(settings.backoff_max_ms);
            let until_ms = deaths.last_at_ms(offset).saturating_add_unsigned(pause_ms);
            if until_ms <= now.ms && self.poison.is_none() {
                return Ok(());
            }
            self.lanes[lane].push_front(ReadyItem::Records(records.clone()));
            return Err(NextStep::Wait(now.ns_at(until_ms), WaitReason::Retry));
        };
        if records.len() > 1 {
            let rest = RecordSet { attempt: 1, ..records.with(&records.picks[1..]) };
            self.lanes[lane].push_front(ReadyItem::Records(rest));
        }
        let attempt = count as u32;
        let letter = PendingDeadLetter {
            batch: self.route.batch_ids.fetch_add(1, Ordering::Relaxed),
            lane,
            topic,
            class: "Chaton::Streams::Poison".into(),
            message: story,
            failed_at_ms: now.ms,
            size: LetterSize::Whole,
            records: RecordSet { attempt, ..records.with(&records.picks[..1]) },
        };
        self.lanes[lane].state =
            LaneState::DeadLetter { letter: Arc::new(letter), step: DeadLetterStep::Due };
        Err(NextStep::DeadLetter)
    }
}
