//! A record on its way to the dead-letter topic.

use std::sync::Arc;

use super::super::backoff::pause_ms;
use super::key_lane::LaneState;
use super::{Now, PartitionPhase, PartitionState};
use crate::record::Record;
use crate::record_set::RecordSet;

/// How far a dead letter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeadLetterStep {
    /// It is to be sent.
    Due,
    /// The producer has it.
    Sent { failures: u32 },
    /// It was not written, and is sent again then.
    Waiting { until_ns: u64, failures: u32 },
}

/// A dead letter that is not written yet.
pub(in super::super) struct PendingDeadLetter {
    /// The batch that failed.
    pub batch: u64,
    pub lane: usize,
    /// One record.
    pub(super) records: RecordSet,
    pub topic: String,
    pub class: String,
    pub message: String,
    pub failed_at_ms: i64,
}

impl PendingDeadLetter {
    pub fn record(&self) -> Record<'_> {
        self.records.chunk.record(self.records.picks[0] as usize)
    }

    pub fn attempts(&self) -> u32 {
        self.records.attempt
    }
}

impl PartitionState {
    /// A dead letter that is to be sent now. It counts as sent from here on.
    pub fn dead_letter_due(&mut self, now: Now) -> Option<Arc<PendingDeadLetter>> {
        for lane in &mut self.lanes {
            let LaneState::DeadLetter { letter, step } = &mut lane.state else { continue };
            let failures = match *step {
                DeadLetterStep::Due => 0,
                DeadLetterStep::Waiting { until_ns, failures } if until_ns <= now.ns => failures,
                DeadLetterStep::Sent { .. } | DeadLetterStep::Waiting { .. } => continue,
            };
            *step = DeadLetterStep::Sent { failures };
            return Some(letter.clone());
        }
        None
    }

    /// The dead letter is durable, or could not be written and is sent again after a pause.
    pub fn dead_letter_ended(&mut self, ended: &PendingDeadLetter, durable: bool, now: Now) {
        let LaneState::DeadLetter { letter, step } = &mut self.lanes[ended.lane].state else {
            return;
        };
        let DeadLetterStep::Sent { failures } = *step else { return };
        if letter.batch != ended.batch {
            return;
        }
        if durable {
            let records = letter.records.clone();
            self.track_done(&records, &records.picks);
            self.lanes[ended.lane].state = LaneState::Free;
            return;
        }
        if matches!(self.phase, PartitionPhase::Draining { .. }) {
            // The next member of the group hands the record out again.
            self.lanes[ended.lane].state = LaneState::Free;
            return;
        }
        let failures = failures + 1;
        let settings = &self.route.settings;
        let (first_ms, max_ms) = (settings.backoff_ms.max(1), settings.backoff_max_ms);
        let until_ns = now.ns_after(pause_ms(first_ms, max_ms, failures, &mut self.random));
        *step = DeadLetterStep::Waiting { until_ns, failures };
    }
}
