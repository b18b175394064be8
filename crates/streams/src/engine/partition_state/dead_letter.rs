//! Writing a record to the dead-letter topic.

use std::sync::Arc;

use super::key_lane::LaneState;
use super::pending_dead_letter::{DeadLetterStep, LetterEnd, PendingDeadLetter};
use super::{Now, PartitionPhase, PartitionState};
use chaton_core::backoff::pause_ms;

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

    /// The dead letter is durable, is sent again at once in a smaller size, or could not be written and is
    /// sent again after a pause.
    pub fn dead_letter_ended(&mut self, ended: &PendingDeadLetter, end: LetterEnd, now: Now) {
        let LaneState::DeadLetter { letter, step } = &mut self.lanes[ended.lane].state else {
            return;
        };
        let DeadLetterStep::Sent { failures } = *step else { return };
        if letter.batch != ended.batch {
            return;
        }
        if end == LetterEnd::Durable {
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
        if let Some(smaller) = letter.smaller().filter(|_| end == LetterEnd::Invalid) {
            (*letter, *step) = (Arc::new(smaller), DeadLetterStep::Due);
            return;
        }
        let failures = failures + 1;
        let settings = &self.route.settings;
        let (first_ms, max_ms) = (settings.backoff_ms.max(1), settings.backoff_max_ms);
        let until_ns = now.ns_after(pause_ms(first_ms, max_ms, failures, &mut self.random));
        *step = DeadLetterStep::Waiting { until_ns, failures };
    }
}
