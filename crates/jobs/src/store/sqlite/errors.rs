//! Errors of SQLite and of files as [`StoreError`]s.

use std::path::Path;

use rusqlite::{ffi, Error, ErrorCode};
use rustix::io::Errno;

use crate::store::error::{StoreError, StoreErrorKind};

/// An error of SQLite about this file, with advice.
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
        // A full disk, where the shared index needs room.
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
    use std::io::ErrorKind::*;
    let (kind, advice) = match error.kind() {
        StorageFull | QuotaExceeded => (StoreErrorKind::Full, "; free some space"),
        Unsupported => (StoreErrorKind::Refused, ""),
        PermissionDenied | ReadOnlyFilesystem | NotFound | NotADirectory | AlreadyExists
        | IsADirectory => (StoreErrorKind::Refused, "; check the path, its owner and its rights"),
        _ if Errno::from_io_error(error) == Some(Errno::MFILE) && what.contains("wake") => (
            StoreErrorKind::Unavailable,
            "; raise fs.inotify.max_user_instances or the limit of open files",
        ),
        _ => (StoreErrorKind::Unavailable, ""),
    };
    StoreError::new(kind, format!("jobs database {}: {what}: {error}{advice}", path.display()))
}
