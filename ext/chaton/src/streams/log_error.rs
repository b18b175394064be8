//! Errors of a log as Ruby exceptions.

use chaton_streams::log::{ErrorKind, LogError};
use magnus::Error;

use crate::error;

/// The name of its class in `Chaton`.
pub fn class_name(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Unreachable => "LogUnavailable",
        ErrorKind::Refused => "LogRefused",
        ErrorKind::UnknownTopic => "UnknownTopic",
        ErrorKind::Full => "BufferFull",
        ErrorKind::Corrupt => "LogCorrupt",
        // The partition is given up in both cases, and read again from its commit.
        ErrorKind::Fenced | ErrorKind::Unknown => "LogFenced",
        ErrorKind::Invalid => "InvalidRecord",
    }
}

/// The exception.
pub fn raised(failed: &LogError) -> Error {
    error::named(class_name(failed.kind), failed.message.as_str())
}
