//! Errors of logs.

/// Which way out an error has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// Nobody answers, or not in time; trying again may help.
    Unreachable,
    /// The log does not take what was asked: settings, credentials, rights.
    Refused,
    /// No such topic or partition.
    UnknownTopic,
    /// No room: the disk, or the producer's buffer for longer than its limit.
    Full,
    /// What was read is damaged.
    Corrupt,
    /// Another one has taken this place: a rebalance, a newer transaction.
    Fenced,
    /// An argument is wrong, as a record larger than the log takes.
    Invalid,
}

/// What went wrong, to which thing, and what to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogError {
    /// Which way out there is.
    pub kind: ErrorKind,
    /// A sentence.
    pub message: String,
}

impl LogError {
    /// An error.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}

impl std::fmt::Display for LogError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for LogError {}

/// Of a log.
pub type Result<T> = std::result::Result<T, LogError>;
