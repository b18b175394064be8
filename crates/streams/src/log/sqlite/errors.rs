//! Errors of the operating system as errors of the log.

use std::io;
use std::path::Path;

use chaton_embedded as embedded;

use crate::log::{Commit, ErrorKind, LogError, Partition};

/// What to do about a full disk.
const KEEP_LESS: &str =
    "; free some space or keep less (retention_bytes, retention_s), writing goes on by itself then";

impl From<embedded::Error> for LogError {
    fn from(error: embedded::Error) -> Self {
        let (kind, advice) = match error.kind {
            embedded::ErrorKind::Unavailable | embedded::ErrorKind::Busy => {
                (ErrorKind::Unreachable, "")
            }
            embedded::ErrorKind::Full => (ErrorKind::Full, KEEP_LESS),
            embedded::ErrorKind::Corrupt => (ErrorKind::Corrupt, ""),
            embedded::ErrorKind::Refused => (ErrorKind::Refused, ""),
        };
        Self::new(kind, error.message + advice)
    }
}

/// An error of a file: what was done to which file, and what to do next.
pub(super) fn io(path: &Path, doing: &str, error: &io::Error) -> LogError {
    let name = path.display();
    match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT) => {
            LogError::new(ErrorKind::Full, format!("{doing} {name}: {error}{KEEP_LESS}"))
        }
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

/// Damage in the database.
pub(super) fn corrupt(what: &str) -> LogError {
    LogError::new(ErrorKind::Corrupt, what)
}

/// A damaged or missing batch.
pub(super) fn damaged(path: &Path, batch: i64, partition: &Partition, what: &str) -> LogError {
    corrupt(&format!("{}, batch {batch} ({partition}): {what}", path.display()))
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
