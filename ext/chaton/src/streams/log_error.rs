//! Errors of a log as Ruby exceptions.

use chaton_streams::log::{ErrorKind, LogError};
use magnus::Error;

use crate::error;

/// The name of its class in `Chaton`.
pub fn class_name(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Unreachable => "StreamUnavailable",
        ErrorKind::Refused => "StreamRefused",
        ErrorKind::UnknownTopic => "UnknownTopic",
        ErrorKind::Full => "BufferFull",
        ErrorKind::Corrupt => "StreamCorrupt",
        // The partition is given up in both cases, and read again from its commit.
        ErrorKind::Fenced | ErrorKind::Unknown => "StreamFenced",
        ErrorKind::Invalid => "InvalidRecord",
    }
}

/// The exception.
pub fn raised(failed: &LogError) -> Error {
    error::named(class_name(failed.kind), failed.message.as_str())
}
