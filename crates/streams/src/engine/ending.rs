//! How a turn ends, and what the engine makes of it.

use std::time::Duration;

use crate::log::Position;
use crate::record::OwnedRecord;

/// What a turn is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Records to be worked on.
    Records,
    /// Notice: the partition was taken away. The last turn of its generation.
    Revoked,
    /// Notice: every record that there is has been worked on.
    End,
    /// Notice: the process ends. The last turn of its partition.
    Shutdown,
}

/// How a turn ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Well.
    Done,
    /// What was not marked is tried again.
    Failed {
        /// Class of the error.
        class: String,
        /// Its message.
        message: String,
    },
}

/// What comes of an ending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is done.
    Done,
    /// The rest is given again.
    Retry {
        /// In so many ms.
        in_ms: u64,
        /// As this attempt.
        attempt: u32,
    },
    /// The rest is given again, one record at a time.
    Isolated {
        /// In so many ms.
        in_ms: u64,
    },
    /// The record goes to this topic.
    DeadLetter {
        /// Its name.
        topic: String,
    },
    /// The partition was taken away meanwhile: the ending does not count.
    Dropped,
}

/// What happened to a detached turn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Offsets that were marked, in the order of the calls.
    pub marked: Vec<i64>,
    /// How long it asked to pause.
    pub pause: Option<Duration>,
    /// Where it asked to go on.
    pub seek: Option<Position>,
    /// What it wrote in transactions.
    pub written: Vec<OwnedRecord>,
    /// How it ended.
    pub ending: Option<Ending>,
}
