//! SQLite's errors in our words.

use std::path::Path;

use rusqlite::{ffi, Error, ErrorCode};

use crate::store::{StoreError, StoreErrorKind};

/// An error of SQLite about this file, with what to do next.
pub(super) fn of(path: &Path, error: &Error) -> StoreError {
    let extended = error.sqlite_error().map_or(0, |error| error.extended_code);
    let (kind, advice) = match (error.sqlite_error_code(), extended) {
        (Some(ErrorCode::DiskFull), _) => (
            StoreErrorKind::Full,
            "its disk is full; free some space, nothing that was stored is lost",
        ),
        (Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked), _) => {
            (StoreErrorKind::Busy, "another program holds its lock; end that program's transaction")
        }
        (Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase), _) => (
            StoreErrorKind::Corrupt,
            "it is damaged or no SQLite database; restore a copy made by `chaton jobs backup`, \
             or move it away to begin anew",
        ),
        (Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied), _) => (
            StoreErrorKind::Refused,
            "it cannot be written; check the owner and the rights of the file and its directory",
        ),
        (Some(ErrorCode::CannotOpen), _) => (
            StoreErrorKind::Refused,
            "it cannot be opened; check that its directory exists and can be written",
        ),
        // What a full disk looks like where room is needed for the shared index.
        (Some(ErrorCode::SystemIoFailure), ffi::SQLITE_IOERR_SHMSIZE) => (
            StoreErrorKind::Full,
            "its disk is full; free some space, nothing that was stored is lost",
        ),
        (Some(ErrorCode::SystemIoFailure), _) => {
            (StoreErrorKind::Unavailable, "its disk failed; see the system's log")
        }
        _ => (StoreErrorKind::Unavailable, "SQLite failed"),
    };
    StoreError::new(kind, format!("jobs database {}: {advice} ({error})", path.display()))
}

/// An error of the operating system about a file beside the database.
pub(super) fn of_io(path: &Path, what: &str, error: &std::io::Error) -> StoreError {
    let (kind, advice) = match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT) => (StoreErrorKind::Full, "; free some space"),
        Some(libc::EMFILE) if what.contains("wake") => (
            StoreErrorKind::Unavailable,
            "; raise fs.inotify.max_user_instances or the limit of open files",
        ),
        Some(
            libc::EACCES
            | libc::EPERM
            | libc::EROFS
            | libc::ENOENT
            | libc::ENOTDIR
            | libc::EEXIST
            | libc::EISDIR,
        ) => (StoreErrorKind::Refused, "; check the path, its owner and its rights"),
        _ => (StoreErrorKind::Unavailable, ""),
    };
    StoreError::new(kind, format!("jobs database {}: {what}: {error}{advice}", path.display()))
}
