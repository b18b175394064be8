//! A dead letter that is not written yet.

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

/// How much of the record is written. The topic may refuse the headers that are added, or the whole
/// record, as too large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum LetterSize {
    Whole,
    /// With the beginning of the error message.
    ShortMessage,
    /// Without the value and headers of the record.
    NoValue,
}

/// How writing a dead letter has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum LetterEnd {
    Durable,
    /// The topic does not take it like this, for example because it is too large.
    Invalid,
    Failed,
}

/// A dead letter that is not written yet.
#[derive(Clone)]
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
    pub size: LetterSize,
}

impl PendingDeadLetter {
    pub fn record(&self) -> Record<'_> {
        self.records.chunk.record(self.records.picks[0] as usize)
    }

    pub fn attempts(&self) -> u32 {
        self.records.attempt
    }

    /// The next smaller one, if there is one.
    pub fn smaller(&self) -> Option<Self> {
        let size = match self.size {
            LetterSize::Whole => LetterSize::ShortMessage,
            LetterSize::ShortMessage => LetterSize::NoValue,
            LetterSize::NoValue => return None,
        };
        Some(Self { size, ..self.clone() })
    }
}
