//! Errors of the operating system as errors of the log.

use std::io;
use std::path::Path;

use crate::log::{Commit, ErrorKind, LogError};

/// An error of a file: what was done to which file, and what to do next.
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
        None if error.kind() == io::ErrorKind::Unsupported => {
            LogError::new(ErrorKind::Refused, format!("{doing} {name}: {error}"))
        }
        Some(libc::EMFILE | libc::ENFILE) => LogError::new(
            ErrorKind::Unreachable,
            format!("{doing} {name}: {error}; raise the limit of open files (ulimit -n)"),
        ),
        _ => LogError::new(ErrorKind::Unreachable, format!("{doing} {name}: {error}")),
    }
}

/// The log's folder is not there any more.
pub(super) fn removed(root: &Path) -> LogError {
    LogError::new(
        ErrorKind::Unreachable,
        format!(
            "the log's folder {} was removed or moved away; put it back, or create an empty one for a \
             new log",
            root.display()
        ),
    )
}

/// Another folder has taken its place.
pub(super) fn replaced(root: &Path) -> LogError {
    LogError::new(
        ErrorKind::Unreachable,
        format!("the log's folder {} was replaced; it is read from the start", root.display()),
    )
}

/// Damage at this byte of a file.
pub(super) fn corrupt(path: &Path, at: u64, what: &str) -> LogError {
    LogError::new(ErrorKind::Corrupt, format!("{} at byte {at}: {what}", path.display()))
}

pub(super) fn lock_timed_out(path: &Path, waited_ms: u128) -> LogError {
    LogError::new(
        ErrorKind::Unreachable,
        format!(
            "{} is held by another process for more than {waited_ms} ms; is one of them stopped \
             (SIGSTOP, a debugger)?",
            path.display()
        ),
    )
}

pub(super) fn unknown_topic(name: &str) -> LogError {
    LogError::new(
        ErrorKind::UnknownTopic,
        format!("there is no topic {name:?}; create it (chaton streams apply) or produce to it"),
    )
}

pub(super) fn unknown_partition(topic: &str, number: i32, count: i32) -> LogError {
    LogError::new(
        ErrorKind::UnknownTopic,
        format!("topic {topic:?} has partitions 0 to {}, and no {number}", count - 1),
    )
}

pub(super) fn invalid(message: impl Into<String>) -> LogError {
    LogError::new(ErrorKind::Invalid, message)
}

/// The partition is owned by another member by now.
pub(super) fn fenced(group: &str, commit: &Commit) -> LogError {
    LogError::new(
        ErrorKind::Fenced,
        format!(
            "{}/{} no longer belongs to this member of group {group:?}; its new owner begins at \
             the committed offset",
            commit.topic, commit.partition
        ),
    )
}
