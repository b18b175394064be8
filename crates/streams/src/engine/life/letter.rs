//! A record on its way to the dead letters.

use std::sync::Arc;

use super::super::backoff::pause_ms;
use super::strand::{Batch, State};
use super::{Life, Now};

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// To be sent at once.
    Due,
    /// With the producer.
    Sent { failures: u32 },
    /// It was not written, and is sent again then.
    Waiting { until_ns: u64, failures: u32 },
}

/// What is to be written.
pub(in super::super) struct Letter {
    /// The turn that failed.
    pub id: u64,
    pub strand: usize,
    /// Of one record.
    pub(super) batch: Batch,
    pub topic: String,
    pub attempts: u32,
    pub class: String,
    pub message: String,
    pub failed_at_ms: i64,
}

impl Letter {
    pub fn record(&self) -> crate::record::Record<'_> {
        self.batch.chunk.record(self.batch.picks[0] as usize)
    }
}

impl Life {
    /// A letter that is to be sent now; it counts as sent from here on.
    pub fn letter_due(&mut self, now: Now) -> Option<Arc<Letter>> {
        for strand in &mut self.strands {
            let State::Dead { letter, step } = &mut strand.state else { continue };
            let failures = match *step {
                Step::Due => 0,
                Step::Waiting { until_ns, failures } if until_ns <= now.ns => failures,
                Step::Sent { .. } | Step::Waiting { .. } => continue,
            };
            *step = Step::Sent { failures };
            return Some(letter.clone());
        }
        None
    }

    /// It is durable, or it is not.
    pub fn letter_ended(&mut self, strand: usize, id: u64, durable: bool, now: Now) {
        let State::Dead { letter, step: Step::Sent { failures } } = &self.strands[strand].state
        else {
            return;
        };
        if letter.id != id {
            return;
        }
        if durable {
            let letter = letter.clone();
            self.settle(&letter.batch, &letter.batch.picks);
            self.strands[strand].state = State::Free;
            return;
        }
        let failures = failures + 1;
        let settings = &self.rules.settings;
        let pause = pause_ms(
            settings.backoff_ms.max(1),
            settings.backoff_max_ms,
            failures,
            &mut self.random,
        );
        let until_ns = now.ns.saturating_add(pause.saturating_mul(1_000_000));
        let state = &mut self.strands[strand].state;
        if let State::Dead { step, .. } = state {
            *step = Step::Waiting { until_ns, failures };
        }
        if matches!(self.phase, super::Phase::Ending { .. }) {
            // Whoever has the partition next tries it.
            *state = State::Free;
        }
    }
}
