//! What an engine keeps in its file, the name of the file in sentences, and errors of SQLite and of files about it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rusqlite::ErrorCode;
use rustix::io::Errno;

use crate::error::{Error, ErrorKind};

/// Marks a file as Chaton's: "CHTN".
pub const APPLICATION: i32 = 0x4348_544E;

/// The tables of an engine, and how its errors name the file.
#[derive(Debug)]
pub struct Format {
    /// What the file holds, as "jobs".
    pub content: &'static str,
    /// The setting that names the file.
    pub setting: &'static str,
    /// What to do about a damaged file.
    pub advice_when_corrupt: &'static str,
    /// Version of the tables, below 65,536. Each engine has its part of SQLite's `user_version`, so that several may keep
    /// their tables in one file.
    pub version: i32,
    /// The first bit of that part: 0 or 16.
    pub version_bit: u32,
    /// The mark of a file of the engine alone by which an earlier version told it from others, and what makes its tables,
    /// whose version is the same, those of this one.
    pub former: Option<(i32, &'static str)>,
    /// Makes the tables of a new file.
    pub tables: &'static str,
    /// Makes tables that an older version does not know: it ignores them, and can use the same file at the same time.
    pub later_tables: &'static str,
    /// Bytes of a page of a new file.
    pub page_bytes: i32,
    /// A thread copies the log back into the file, and no commit waits for that.
    pub checkpoints_beside: bool,
}

/// A file and what is kept in it; shown as `jobs database PATH`.
#[derive(Clone, Debug)]
pub struct DatabaseFile {
    /// Where it is.
    pub path: PathBuf,
    /// What is kept in it.
    pub format: &'static Format,
    /// Other engines that keep their tables in the file.
    pub(crate) others: Arc<Mutex<Vec<&'static Format>>>,
}

impl fmt::Display for DatabaseFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.format.content)?;
        self.others.lock().iter().try_for_each(|other| write!(f, " and {}", other.content))?;
        write!(f, " database {}", self.path.display())
    }
}

impl DatabaseFile {
    /// Names the file.
    pub fn new(path: &Path, format: &'static Format) -> Self {
        Self { path: path.to_path_buf(), format, others: Arc::default() }
    }

    /// An error of SQLite about this file, with advice.
    pub fn sql(&self, error: &rusqlite::Error) -> Error {
        use rusqlite::ffi;
        let extended = error.sqlite_error().map_or(0, |error| error.extended_code);
        let (kind, advice) = match (error.sqlite_error_code(), extended) {
            (Some(ErrorCode::DiskFull), _) => (ErrorKind::Full, FULL),
            (Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked), _) => (
                ErrorKind::Busy,
                "another program holds its lock; end that program's transaction",
            ),
            (Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase), _) => {
                (ErrorKind::Corrupt, self.format.advice_when_corrupt)
            }
            (Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied), _) => (
                ErrorKind::Refused,
                "it cannot be written; check the owner and the rights of the file and its directory",
            ),
            (Some(ErrorCode::CannotOpen), _) => (
                ErrorKind::Refused,
                "it cannot be opened; check that its directory exists and can be written",
            ),
            // A full disk, where the shared index needs room.
            (Some(ErrorCode::SystemIoFailure), ffi::SQLITE_IOERR_SHMSIZE) => (ErrorKind::Full, FULL),
            (Some(ErrorCode::SystemIoFailure), _) => {
                (ErrorKind::Unavailable, "its disk failed; see the system's log")
            }
            _ => (ErrorKind::Unavailable, "SQLite failed"),
        };
        Error::new(kind, format!("{self}: {advice} ({error})"))
    }

    /// An error of the operating system about a file beside the database.
    pub fn io(&self, what: &str, error: &std::io::Error) -> Error {
        use std::io::ErrorKind::*;
        let (kind, advice) = match error.kind() {
            StorageFull | QuotaExceeded => (ErrorKind::Full, "; free some space"),
            Unsupported => (ErrorKind::Refused, ""),
            PermissionDenied | ReadOnlyFilesystem | NotFound | NotADirectory | AlreadyExists
            | IsADirectory => (ErrorKind::Refused, "; check the path, its owner and its rights"),
            _ if Errno::from_io_error(error) == Some(Errno::MFILE) && what.contains("wake") => (
                ErrorKind::Unavailable,
                "; raise fs.inotify.max_user_instances or the limit of open files",
            ),
            _ => (ErrorKind::Unavailable, ""),
        };
        Error::new(kind, format!("{self}: {what}: {error}{advice}"))
    }

    pub(crate) fn panicked(&self) -> Error {
        Error::unavailable(format!(
            "{self}: an operation panicked; this is a bug, its message is above"
        ))
    }
}

const FULL: &str = "its disk is full; free some space, nothing that was stored is lost";
