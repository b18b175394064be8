//! The database of a log: a file, or `log.db` in a folder. Jobs may be in the same file.
//!
//! A batch of records is a row: its id is the number of the partition and the offset of its first
//! record, so that rows of a partition lie beside each other in the order of their offsets. The
//! records come last in the row, so that the other columns are read without them.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

use chaton_core::clock::wall_s;
use chaton_core::local_disk;
use chaton_embedded::{inode, one_path, Database, Format, Reader, Settings, Transaction};
use rusqlite::Connection;

use super::errors;
use crate::log::{ErrorKind, LogError, Result};
use crate::settings::LogSettings;

/// Names longer than this are refused, as by Kafka.
const NAME_BYTES_MAX: usize = 249;

/// The file of records. `next` is the offset of the next record. A partition of a deleted topic has
/// its negative id as topic until its batches are removed.
static FORMAT: Format = Format {
    content: "records",
    setting: "broker",
    advice_when_corrupt: "it is damaged or no SQLite database; restore a copy of it, or move it away to begin anew",
    version: 1,
    version_bit: 16,
    // "CHTL". (Jobs have a table `batches`, too.)
    former: Some((0x4348_544C, "ALTER TABLE batches RENAME TO record_batches;")),
    tables: "
CREATE TABLE topics(id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE,
    partitions INTEGER NOT NULL, settings TEXT NOT NULL);
CREATE TABLE partitions(id INTEGER PRIMARY KEY AUTOINCREMENT, topic INTEGER NOT NULL,
    number INTEGER NOT NULL, start INTEGER NOT NULL DEFAULT 0, next INTEGER NOT NULL DEFAULT 0,
    bytes INTEGER NOT NULL DEFAULT 0, UNIQUE(topic, number));
CREATE TABLE record_batches(id INTEGER PRIMARY KEY, count INTEGER NOT NULL, written_ms INTEGER NOT NULL,
    newest_ms INTEGER NOT NULL, crc INTEGER NOT NULL, frames BLOB NOT NULL);
CREATE TABLE committed(name TEXT NOT NULL, partition INTEGER NOT NULL, next INTEGER NOT NULL,
    metadata TEXT NOT NULL, PRIMARY KEY(name, partition)) WITHOUT ROWID;
CREATE TABLE groups(name TEXT PRIMARY KEY, state TEXT NOT NULL) WITHOUT ROWID;
",
    later_tables: "CREATE TABLE IF NOT EXISTS log_clock(boot TEXT PRIMARY KEY, ahead_ms INTEGER NOT NULL,
        behind_ms INTEGER NOT NULL) WITHOUT ROWID;",
    // With 4 KiB a batch of 64 KiB takes half as long again to write and to read; with 16 KiB a single
    // record writes so much that checkpoints double the delay of records (decision 049).
    page_bytes: 8 << 10,
    checkpoints_beside: true,
};

/// Bits of an offset in a batch's id; the bits above are the partition's.
pub(super) const OFFSET_BITS: u32 = 42;

/// Topics share so many channels, that a record wakes the readers of few other topics. Channel 0 is that of jobs, which may
/// be in the same file.
const TOPIC_CHANNELS: u32 = 64;
/// The channel that tells of changed topics and groups.
pub(super) const CHANGES: u8 = 1 + TOPIC_CHANNELS as u8;

/// The channel that tells of a topic's records.
pub(super) fn channel_of(topic: &str) -> u8 {
    1 + (crc32c::crc32c(topic.as_bytes()) % TOPIC_CHANNELS) as u8
}

/// Why an operation of the database has failed.
#[derive(Debug)]
pub(super) enum Failure {
    Sql(rusqlite::Error),
    Log(LogError),
    /// Another process held the log's lock for too long, or keeps SQLite's log.
    Busy(LogError),
}

impl From<chaton_embedded::Error> for Failure {
    fn from(error: chaton_embedded::Error) -> Self {
        let is_busy = error.kind == chaton_embedded::ErrorKind::Busy;
        let error = LogError::from(error);
        if is_busy {
            Self::Busy(error)
        } else {
            Self::Log(error)
        }
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<LogError> for Failure {
    fn from(error: LogError) -> Self {
        Self::Log(error)
    }
}

/// The result of an operation of the database.
pub(super) type Done<T> = std::result::Result<T, Failure>;

pub(super) struct LogDir {
    root: PathBuf,
    pub settings: LogSettings,
    database: Arc<Database>,
    /// It was there, or was created here: it is not created again.
    was_there: AtomicBool,
    /// How far a test has set the wall clock.
    #[cfg(test)]
    pub step_ms: std::sync::atomic::AtomicI64,
}

impl LogDir {
    /// Names the folder, which is created when something is written.
    pub fn open(settings: &LogSettings) -> Result<Self> {
        let path = Self::check_path(settings)?;
        let root = path.parent().unwrap_or(&path).to_path_buf();
        let was_there = AtomicBool::new(root.is_dir());
        let lock_timeout = settings.answer_timeout;
        let database = Database::shared(&path, &FORMAT, Settings { lock_timeout, follows: true });
        Ok(Self {
            root,
            settings: settings.clone(),
            database,
            was_there,
            #[cfg(test)]
            step_ms: 0.into(),
        })
    }

    /// The file of these settings, which must be on a local disk.
    pub fn check_path(settings: &LogSettings) -> Result<PathBuf> {
        let path = match settings.broker.split_once("://") {
            Some((_, path)) if !path.starts_with('/') => None,
            Some(("log", folder)) => Some(Path::new(folder).join("log.db")),
            Some(("sqlite", file)) if !file.ends_with('/') => Some(PathBuf::from(file)),
            _ => None,
        };
        let path = path.ok_or_else(|| {
            LogError::new(
                ErrorKind::Refused,
                format!(
                    "broker {:?} must be sqlite:// and the absolute path of a file, or log:// and that of a folder",
                    settings.broker
                ),
            )
        })?;
        if path.with_file_name("format").is_file() && !path.exists() {
            return Err(LogError::new(
                ErrorKind::Refused,
                format!(
                    "{}: it has files of records of a former Chaton, whose log was no SQLite database, and this one \
                     cannot read them; read them to their end with that one, or have it copy the topics to Kafka with \
                     `chaton streams copy`, then move the directory away or name another broker",
                    path.parent().unwrap_or(&path).display()
                ),
            ));
        }
        local_disk::check(&path)
            .map_err(|error| errors::io(&path, "checking the disk of", &error))?;
        one_path(&path).map_err(|error| errors::io(&path, "finding", &error))
    }

    /// The path of the database.
    pub fn path(&self) -> &Path {
        &self.database.file().path
    }

    /// Creates the folder unless it was there before: records that are written to a new one would
    /// not be in that which is restored.
    fn create(&self) -> Result<()> {
        if self.was_there.load(Ordering::Relaxed) {
            return if self.root.is_dir() { Ok(()) } else { Err(errors::removed(&self.root)) };
        }
        std::fs::create_dir_all(&self.root)
            .map_err(|error| errors::io(&self.root, "creating the folder", &error))?;
        self.was_there.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Creates the folder and its database, unless the folder was there before.
    pub fn prepare(&self) -> Result<()> {
        self.create()?;
        Ok(self.database.prepare()?)
    }

    /// Device and inode of the database, which change when it is replaced; `None` if there is none.
    ///
    /// # Errors
    /// `Unreachable` if its folder was removed.
    pub fn id(&self) -> Result<Option<(u64, u64)>> {
        let id = inode(self.path());
        if id.is_none() && self.was_there.load(Ordering::Relaxed) && !self.root.is_dir() {
            return Err(errors::removed(&self.root));
        }
        Ok(id)
    }

    /// Writes in a transaction, unless another process holds the lock for so long.
    pub fn write_within<T: Send>(
        &self,
        timeout: Duration,
        durable: bool,
        op: impl FnOnce(&Transaction<'_>) -> Done<T> + Send,
    ) -> Done<T> {
        self.create()?;
        let mut refused = None;
        let done = self.database.write_within(timeout, durable && self.settings.durable, |tx| {
            op(tx).map_err(|failure| match failure {
                Failure::Sql(error) => error,
                failure => {
                    refused = Some(failure);
                    // Undoes the operation.
                    rusqlite::Error::InvalidQuery
                }
            })
        });
        match refused {
            Some(failure) => Err(failure),
            None => Ok(done?),
        }
    }

    /// Writes in a transaction, unless another process holds the lock for the time of an answer.
    pub fn write<T: Send>(
        &self,
        durable: bool,
        op: impl FnOnce(&Transaction<'_>) -> Done<T> + Send,
    ) -> Result<T> {
        self.write_within(self.answer_timeout(), durable, op).map_err(|failure| self.error(failure))
    }

    /// A failure as an error of the log.
    pub fn error(&self, failure: Failure) -> LogError {
        match failure {
            Failure::Log(error) | Failure::Busy(error) => error,
            Failure::Sql(error) => self.database.file().sql(&error).into(),
        }
    }

    /// Waits until a large write may be made.
    pub fn wait_for_log_room(&self) -> Done<()> {
        Ok(self.database.wait_for_log_room()?)
    }

    /// Reads one state of the log; `None` if there is no log.
    pub fn read_by<T>(
        &self,
        reader: Option<&Reader>,
        op: impl FnOnce(&Connection) -> Done<T>,
    ) -> Result<Option<T>> {
        if self.id()?.is_none() {
            return Ok(None);
        }
        let op = |conn: &Connection| {
            conn.prepare_cached("BEGIN")?.execute([])?;
            let result = match op(conn) {
                Ok(value) => Ok(value),
                Err(Failure::Log(error) | Failure::Busy(error)) => Err(error),
                // The connection is closed.
                Err(Failure::Sql(error)) => return Err(error),
            };
            conn.prepare_cached("COMMIT")?.execute([])?;
            Ok(result)
        };
        let done = match reader {
            Some(reader) => self.database.read_by(reader, op)?,
            None => self.database.read(op)?,
        };
        done.map(Some)
    }

    /// The same with the connection that all share.
    pub fn read<T>(&self, op: impl FnOnce(&Connection) -> Done<T>) -> Result<Option<T>> {
        self.read_by(None, op)
    }

    /// A connection for reading.
    pub fn reader(&self) -> Arc<Reader> {
        self.database.reader()
    }

    /// Milliseconds since 1970 by the wall clock.
    pub fn now_ms(&self) -> i64 {
        let now_ms = (wall_s() * 1e3) as i64;
        #[cfg(test)]
        let now_ms = now_ms + self.step_ms.load(Ordering::Relaxed);
        now_ms
    }

    /// The longest wait for a lock by a call that waits.
    pub fn answer_timeout(&self) -> Duration {
        self.settings.answer_timeout
    }
}

/// Checks a topic's name by Kafka's rules.
pub(super) fn check_name(name: &str) -> Result<()> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name == "." || name == ".." {
        return Err(errors::invalid(format!(
            "a topic's name has 1 to {NAME_BYTES_MAX} letters and is not . or ..: {name:?}"
        )));
    }
    if !name.chars().all(legal) {
        return Err(errors::invalid(format!(
            "a topic's name is made of letters, digits, dots, hyphens and underscores: {name:?}"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topic_names_follow_kafkas_rules() {
        for good in ["events", "a.b_c-D9", ".x", &"x".repeat(249)] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        for bad in ["", ".", "..", "a/b", "~x", "ä", "a b", &"x".repeat(250)] {
            assert_eq!(check_name(bad).unwrap_err().kind, ErrorKind::Invalid, "{bad}");
        }
    }

    #[test]
    fn another_format_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let settings = LogSettings::for_tests(&format!("log://{}", folder.path().display()));
        let newer = Connection::open(folder.path().join("log.db")).unwrap();
        let newer_one = "PRAGMA application_id=0x4348544E; PRAGMA user_version=0x20002";
        newer.execute_batch(newer_one).unwrap();
        let error = LogDir::open(&settings).unwrap().prepare().unwrap_err();
        assert_eq!(error.kind, ErrorKind::Refused);
        assert!(error.message.contains("newer Chaton"), "{error}");
        let error = LogDir::open(&LogSettings::for_tests("log://here")).err().unwrap();
        assert!(error.message.contains("absolute"), "{error}");
    }

    #[test]
    fn files_of_a_former_version_are_read_or_refused() {
        let folder = tempfile::tempdir().unwrap();
        let settings = LogSettings::for_tests(&format!("log://{}", folder.path().display()));
        std::fs::write(folder.path().join("format"), "chaton log, format 1\n").unwrap();
        let error = LogDir::open(&settings).err().unwrap();
        assert!(error.message.contains("cannot read them"), "{error}");
        let former = Connection::open(folder.path().join("log.db")).unwrap();
        let tables = FORMAT.tables.replace("record_batches", "batches");
        former
            .execute_batch(&format!(
                "{tables} PRAGMA application_id=0x4348544C; PRAGMA user_version=1;
                 INSERT INTO batches VALUES(7, 1, 2, 3, 4, x'05');"
            ))
            .unwrap();
        let dir = LogDir::open(&settings).unwrap();
        let count = "SELECT count(*) FROM record_batches WHERE id=7";
        let count = dir.read(|conn| Ok(conn.query_row(count, [], |row| row.get::<_, i32>(0))?));
        assert_eq!(count.unwrap(), Some(1));
        let marks =
            "SELECT application_id, user_version FROM pragma_application_id, pragma_user_version";
        let marks = former.query_row(marks, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        assert_eq!(marks, (0x4348_544E, 0x10000), "and a former version refuses it");
    }
}
