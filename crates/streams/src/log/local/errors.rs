//! What the operating system says, as errors of a log.

use std::io;
use std::path::Path;

use crate::log::{ErrorKind, LogError};

/// An error of a file: what was being done to which one, and what to do next.
pub(super) fn io(path: &Path, doing: &str, error: &io::Error) -> LogError {
    let name = path.display();
    match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => LogError::new(
            ErrorKind::Full,
            format!(
                "no room left for {name} ({doing}: {error}); free some space or keep less \
                 (retention_bytes, retention_ms), writing goes on by itself then"
            ),
        ),
        Some(libc::EACCES | libc::EPERM | libc::EROFS) => LogError::new(
            ErrorKind::Refused,
            format!("{doing} {name}: {error}; let this user read and write the log's folder"),
        ),
        Some(libc::EMFILE | libc::ENFILE) => LogError::new(
            ErrorKind::Unreachable,
            format!("{doing} {name}: {error}; raise the limit of open files (ulimit -n)"),
        ),
        _ => LogError::new(ErrorKind::Unreachable, format!("{doing} {name}: {error}")),
    }
}

/// Damage found in a file.
pub(super) fn corrupt(path: &Path, at: u64, what: &str) -> LogError {
    LogError::new(ErrorKind::Corrupt, format!("{} at byte {at}: {what}", path.display()))
}

/// A lock was not to be had in time.
pub(super) fn locked(path: &Path, waited_ms: u128) -> LogError {
    LogError::new(
        ErrorKind::Unreachable,
        format!(
            "{} is held by another process for more than {waited_ms} ms; is one of them stopped \
             (SIGSTOP, a debugger)?",
            path.display()
        ),
    )
}

/// There is no such topic.
pub(super) fn unknown_topic(name: &str) -> LogError {
    LogError::new(
        ErrorKind::UnknownTopic,
        format!("there is no topic {name:?}; make it (chaton streams apply) or produce to it"),
    )
}

/// There is no such partition.
pub(super) fn unknown_partition(topic: &str, number: i32, count: i32) -> LogError {
    LogError::new(
        ErrorKind::UnknownTopic,
        format!("topic {topic:?} has partitions 0 to {}, and no {number}", count - 1),
    )
}

/// An argument is wrong.
pub(super) fn invalid(message: impl Into<String>) -> LogError {
    LogError::new(ErrorKind::Invalid, message)
}
