//! Errors of stores.

use std::fmt;

pub use chaton_embedded::ErrorKind as StoreErrorKind;

/// The result of a call.
pub type Result<T> = std::result::Result<T, StoreError>;

/// An error, with a sentence for the log.
#[derive(Clone, Debug)]
pub struct StoreError {
    /// Its kind.
    pub kind: StoreErrorKind,
    /// What happened, where, and what to do next. No password in it.
    pub message: String,
    /// The command was sent and its reply was lost, so it may have been executed.
    pub in_doubt: bool,
}

impl StoreError {
    /// An error of that kind.
    pub fn new(kind: StoreErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), in_doubt: false }
    }

    /// Whether any other call would fail, too.
    pub fn is_outage(&self) -> bool {
        matches!(self.kind, StoreErrorKind::Unavailable | StoreErrorKind::Busy)
    }

    /// [`StoreErrorKind::Refused`].
    pub fn refused(message: impl Into<String>) -> Self {
        Self::new(StoreErrorKind::Refused, message)
    }

    /// [`StoreErrorKind::Unavailable`].
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StoreErrorKind::Unavailable, message)
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for StoreError {}

impl From<chaton_embedded::Error> for StoreError {
    fn from(error: chaton_embedded::Error) -> Self {
        Self::new(error.kind, error.message)
    }
}

impl From<StoreError> for chaton_embedded::Error {
    fn from(error: StoreError) -> Self {
        Self::new(error.kind, error.message)
    }
}
