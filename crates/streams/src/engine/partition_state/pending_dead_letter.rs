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
