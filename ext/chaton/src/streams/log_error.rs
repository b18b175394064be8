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
        ErrorKind::Fenced => "LogFenced",
        ErrorKind::Invalid => "InvalidRecord",
    }
}

/// The exception.
pub fn raised(failed: &LogError) -> Error {
    error::named(class_name(failed.kind), failed.message.as_str())
}
