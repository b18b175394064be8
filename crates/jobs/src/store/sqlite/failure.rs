//! SQLite's errors in our words.

use std::path::Path;

use rusqlite::{ffi, Error, ErrorCode};

use crate::store::{Kind, StoreError};

/// An error of SQLite about this file, with what to do next.
pub(super) fn of(path: &Path, error: &Error) -> StoreError {
    let extended = error.sqlite_error().map_or(0, |error| error.extended_code);
    let (kind, advice) = match (error.sqlite_error_code(), extended) {
        (Some(ErrorCode::DiskFull), _) => {
            (Kind::Full, "its disk is full; free some space, nothing that was stored is lost")
        }
        (Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked), _) => {
            (Kind::Busy, "another program holds its lock; end that program's transaction")
        }
        (Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase), _) => (
            Kind::Corrupt,
            "it is damaged or no SQLite database; restore a copy made by `chaton jobs backup`, \
             or move it away to begin anew",
        ),
        (Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied), _) => (
            Kind::Refused,
            "it cannot be written; check the owner and the rights of the file and its directory",
        ),
        (Some(ErrorCode::CannotOpen), _) => (
            Kind::Refused,
            "it cannot be opened; check that its directory exists and can be written",
        ),
        // What a full disk looks like where room is needed for the shared index.
        (Some(ErrorCode::SystemIoFailure), ffi::SQLITE_IOERR_SHMSIZE) => {
            (Kind::Full, "its disk is full; free some space, nothing that was stored is lost")
        }
        (Some(ErrorCode::SystemIoFailure), _) => {
            (Kind::Unavailable, "its disk failed; see the system's log")
        }
        _ => (Kind::Unavailable, "SQLite failed"),
    };
    StoreError::new(kind, format!("jobs database {}: {advice} ({error})", path.display()))
}

/// An error of the operating system about a file beside the database.
pub(super) fn of_io(path: &Path, what: &str, error: &std::io::Error) -> StoreError {
    let (kind, advice) = match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT) => (Kind::Full, "; free some space"),
        Some(libc::EMFILE) if what.contains("wake") => {
            (Kind::Unavailable, "; raise fs.inotify.max_user_instances or the limit of open files")
        }
        Some(
            libc::EACCES
            | libc::EPERM
            | libc::EROFS
            | libc::ENOENT
            | libc::ENOTDIR
            | libc::EEXIST
            | libc::EISDIR,
        ) => (Kind::Refused, "; check the path, its owner and its rights"),
        _ => (Kind::Unavailable, ""),
    };
    StoreError::new(kind, format!("jobs database {}: {what}: {error}{advice}", path.display()))
}
