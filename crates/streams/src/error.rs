//! Errors of logs.

/// What kind of error it is, by what the caller can do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// No answer in time; trying again may help.
    Unreachable,
    /// The log does not accept the request: settings, credentials, rights.
    Refused,
    /// No such topic or partition.
    UnknownTopic,
    /// The disk or the producer's buffer is full.
    Full,
    /// The data is damaged.
    Corrupt,
    /// A newer group member or transactional producer has taken over.
    Fenced,
    /// It may have been done or not, and cannot be found out now.
    Unknown,
    /// An argument is wrong, for example a record that is too large.
    Invalid,
}

/// An error of a log. The message says what happened to which thing, and what to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogError {
    /// What kind of error it is.
    pub kind: ErrorKind,
    /// A sentence for people.
    pub message: String,
    /// It is about one record: others may be accepted.
    pub of_record: bool,
}

impl LogError {
    /// An error of this kind.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), of_record: false }
    }

    /// The same about one record.
    pub fn of_record(self) -> Self {
        Self { of_record: true, ..self }
    }
}

impl std::fmt::Display for LogError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for LogError {}

/// The result of a call to a log.
pub type Result<T> = std::result::Result<T, LogError>;
