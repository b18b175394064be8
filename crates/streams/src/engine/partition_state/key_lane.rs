//! A key lane: the part of a partition whose batches run one after the other.

use std::collections::VecDeque;
use std::sync::Arc;

use super::pending_dead_letter::{DeadLetterStep, PendingDeadLetter};
use crate::batch::BatchKind;
use crate::record_set::RecordSet;

/// What a lane hands out next.
pub enum ReadyItem {
    Records(RecordSet),
    /// The end of the partition was reached behind what comes before.
    End,
}

/// Why a lane waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitReason {
    Retry,
    Delay,
    Throttle,
}

/// What a lane does.
#[derive(Default)]
pub enum LaneState {
    /// It hands out what is ready.
    #[default]
    Free,
    /// Its batch is in flight; a notice has no records.
    InFlight { id: u64, kind: BatchKind, records: Option<RecordSet> },
    /// It hands out nothing until then.
    Waiting { until_ns: u64, reason: WaitReason },
    /// A record is being written to the dead-letter topic.
    DeadLetter { letter: Arc<PendingDeadLetter>, step: DeadLetterStep },
    /// Its last batch has ended.
    Over,
}

/// A key lane.
#[derive(Default)]
pub struct KeyLane {
    pub state: LaneState,
    /// It has had a batch with records, and gets a last notice.
    pub used: bool,
    ready: VecDeque<ReadyItem>,
    ready_records: usize,
}

impl KeyLane {
    pub fn push_back(&mut self, item: ReadyItem) {
        self.ready_records += len(&item);
        self.ready.push_back(item);
    }

    pub fn push_front(&mut self, item: ReadyItem) {
        self.ready_records += len(&item);
        self.ready.push_front(item);
    }

    pub fn pop(&mut self) -> Option<ReadyItem> {
        let item = self.ready.pop_front()?;
        self.ready_records -= len(&item);
        Some(item)
    }

    pub fn ready_items(&self) -> usize {
        self.ready.len()
    }

    pub fn ready_records(&self) -> usize {
        self.ready_records
    }

    pub fn first(&self) -> Option<&ReadyItem> {
        self.ready.front()
    }

    /// The records that it has: in flight, being written to the dead-letter topic, or ready.
    pub fn record_sets(&self) -> impl Iterator<Item = &RecordSet> {
        let current = match &self.state {
            LaneState::InFlight { records, .. } => records.as_ref(),
            LaneState::DeadLetter { letter, .. } => Some(&letter.records),
            LaneState::Free | LaneState::Waiting { .. } | LaneState::Over => None,
        };
        let ready = self.ready.iter().filter_map(|item| match item {
            ReadyItem::Records(records) => Some(records),
            ReadyItem::End => None,
        });
        current.into_iter().chain(ready)
    }

    pub fn ends_with_end(&self) -> bool {
        matches!(self.ready.back(), Some(ReadyItem::End))
    }

    /// Drops what is ready. A dead letter that is being written, or about to be, stays.
    pub fn drop_ready(&mut self) {
        self.ready.clear();
        self.ready_records = 0;
        let waits = match &self.state {
            LaneState::Waiting { .. } => true,
            LaneState::DeadLetter { step, .. } => matches!(step, DeadLetterStep::Waiting { .. }),
            LaneState::Free | LaneState::InFlight { .. } | LaneState::Over => false,
        };
        if waits {
            self.state = LaneState::Free;
        }
    }

    /// Drops what is ready, and a dead letter.
    pub fn drop_all(&mut self) {
        self.drop_ready();
        if matches!(self.state, LaneState::DeadLetter { .. }) {
            self.state = LaneState::Free;
        }
    }

    /// Whether something is under way that counts when it ends.
    pub fn is_busy(&self) -> bool {
        let records = matches!(self.state, LaneState::InFlight { records: Some(_), .. });
        records || matches!(self.state, LaneState::DeadLetter { .. })
    }

    /// When it goes on by itself.
    pub fn wakes_ns(&self) -> Option<u64> {
        match self.state {
            LaneState::Waiting { until_ns, .. } => Some(until_ns),
            _ => self.dead_letter_ns(),
        }
    }

    /// When its dead letter is written, or written again.
    pub fn dead_letter_ns(&self) -> Option<u64> {
        let LaneState::DeadLetter { step, .. } = &self.state else { return None };
        match *step {
            DeadLetterStep::Due => Some(0),
            DeadLetterStep::Waiting { until_ns, .. } => Some(until_ns),
            DeadLetterStep::Sent { .. } => None,
        }
    }

    /// Whether the batch with this number is in flight.
    pub fn has_in_flight(&self, batch: u64) -> bool {
        matches!(self.state, LaneState::InFlight { id, .. } if id == batch)
    }
}

fn len(item: &ReadyItem) -> usize {
    match item {
        ReadyItem::Records(records) => records.len(),
        ReadyItem::End => 0,
    }
}
