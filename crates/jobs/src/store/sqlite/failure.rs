//! SQLite's errors in our words.

use std::path::Path;

use rusqlite::{Error, ErrorCode};

use crate::store::{Kind, StoreError};

/// An error of SQLite about this file, with what to do next.
pub(super) fn of(path: &Path, error: &Error) -> StoreError {
    let file = path.display();
    let code = error.sqlite_error_code();
    let (kind, advice) = match code {
        Some(ErrorCode::DiskFull) => (
            Kind::Full,
            "the disk is full; free some space: nothing that was stored is lost, and jobs go on then",
        ),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => (
            Kind::Busy,
            "another program holds its lock; end that program's transaction",
        ),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => (
            Kind::Corrupt,
            "the file is damaged or no SQLite database; restore a copy made by `chaton jobs backup`, \
             or move it away to begin anew",
        ),
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => (
            Kind::Refused,
            "it cannot be written; check the owner and the rights of the file and its directory",
        ),
        Some(ErrorCode::CannotOpen) => (
            Kind::Refused,
            "it cannot be opened; check that its directory exists and can be written",
        ),
        Some(ErrorCode::SystemIoFailure) => (Kind::Unavailable, "the disk failed; see the system's log"),
        _ => (Kind::Unavailable, "SQLite failed"),
    };
    StoreError::new(kind, format!("jobs database {file}: {advice} ({error})"))
}

/// An error of the operating system about a file.
pub(super) fn of_io(path: &Path, what: &str, error: &std::io::Error) -> StoreError {
    let kind = match error.raw_os_error() {
        Some(libc::ENOSPC) => Kind::Full,
        Some(
            libc::EACCES | libc::EPERM | libc::EROFS | libc::ENOENT | libc::ENOTDIR | libc::EEXIST,
        ) => Kind::Refused,
        _ => Kind::Unavailable,
    };
    StoreError::new(kind, format!("jobs database {}: {what}: {error}", path.display()))
}
