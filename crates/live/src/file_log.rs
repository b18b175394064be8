//! The log in a SQLite file.

use std::fs::OpenOptions;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use chaton_embedded::{
    inode, with_suffix, ChangeWatch, Database, ErrorKind, Format, Reader, Result,
};
use rusqlite::{params, Connection, OptionalExtension};
use rustix::event::{poll, PollFd, PollFlags, Timespec};

use crate::message::Message;
use crate::row::{unavailable, Ends, Extent, Kind, Position, Row};
use crate::settings::Settings;

/// Longest wait for the lock between processes: a transaction takes milliseconds.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// Old messages are deleted when there are so many more than are kept, so that not each append deletes one.
const TRIM_SLACK: u64 = 64;
/// Messages deleted by one append at most, so that nobody waits long for it.
const TRIM_MAX: u64 = 512;
/// What waits for a message watches this channel.
const CHANNEL: u8 = 0;

/// `epoch` names the file: another file has another one, and offsets of another epoch say nothing. `size` is the sum of
/// the bytes of all messages up to the row. `kind` is 0 for a message, 1 for the end of all subscriptions of a name, 2 for
/// a message with which a text begins.
static FORMAT: Format = Format {
    content: "messages",
    setting: "live { store }",
    advice_when_corrupt: "it is damaged; stop the server and remove it, only its messages are lost",
    version: 1,
    version_bit: 0,
    former: None,
    tables: "
CREATE TABLE messages(id INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, size INTEGER NOT NULL,
    kind INTEGER NOT NULL, name TEXT NOT NULL, event TEXT, key TEXT, data BLOB NOT NULL);
CREATE INDEX messages_by_name ON messages(name, id);
CREATE UNIQUE INDEX messages_by_key ON messages(name, key) WHERE key IS NOT NULL;
CREATE INDEX messages_by_end ON messages(id) WHERE kind = 1;
CREATE TABLE log(epoch INTEGER NOT NULL, secret BLOB NOT NULL);
INSERT INTO log VALUES(random() & 0xffffffffffff, randomblob(32));
",
    later_tables: "CREATE INDEX IF NOT EXISTS messages_by_begin ON messages(name, id) WHERE kind = 2;",
    page_bytes: 4096,
    checkpoints_beside: true,
};

/// The file.
pub(crate) struct FileLog {
    database: Arc<Database>,
    history_messages: u64,
    history_bytes: u64,
    history_age: Duration,
}

impl FileLog {
    /// The log at the settings' path, which is opened on first use.
    pub fn new(settings: &Settings) -> Self {
        let file = chaton_embedded::Settings { lock_timeout: LOCK_TIMEOUT, follows: true };
        Self {
            database: Database::shared(&settings.path, &FORMAT, file),
            history_messages: settings.history_messages,
            history_bytes: settings.history_bytes,
            history_age: settings.history_age,
        }
    }

    pub fn reader(&self) -> FileReader<'_> {
        FileReader { log: self, reader: self.database.reader(), watch: None, epoch: 0 }
    }

    /// See [`crate::log::Log::add`].
    pub fn add(&self, message: &Message<'_>, kind: Kind) -> Result<Option<u64>> {
        let mut added = self.try_append(message, kind);
        match added.as_ref().map_err(|error| error.kind) {
            Err(ErrorKind::Full) => {
                let full = inode(&self.database.file().path);
                added = self.halve().and_then(|()| self.try_append(message, kind));
                // To delete takes some blocks, too. The messages are worth less than those to come; each client is told
                // of a gap.
                if added.as_ref().is_err_and(|error| error.kind == ErrorKind::Full) {
                    self.remove_full(full);
                    added = self.try_append(message, kind);
                }
            }
            // The file was removed or replaced; the next transaction uses the one that is there.
            Err(ErrorKind::Unavailable) => added = self.try_append(message, kind),
            _ => {}
        }
        added
    }

    fn try_append(&self, message: &Message<'_>, kind: Kind) -> Result<Option<u64>> {
        let now = now_ms();
        self.database.write(false, |tx| {
            let offset = insert(tx.conn, message, kind, now)?;
            if let Some(offset) = offset {
                self.trim(tx.conn, offset, now)?;
                tx.notify(CHANNEL);
            }
            Ok(offset)
        })
    }

    /// Deletes what the log keeps no longer. The newest message stays: its size counts for the next one.
    fn trim(&self, conn: &Connection, newest: u64, now: u64) -> rusqlite::Result<()> {
        let numbers = |row: &rusqlite::Row<'_>| Ok([get(row, 0)?, get(row, 1)?, get(row, 2)?]);
        let first = "SELECT id, size, at FROM messages ORDER BY id LIMIT 1";
        let [first, first_size, at] = conn.prepare_cached(first)?.query_row([], numbers)?;
        let last = "SELECT id, size, at FROM messages ORDER BY id DESC LIMIT 1";
        let [_, size, _] = conn.prepare_cached(last)?.query_row([], numbers)?;
        let slack = TRIM_SLACK.min(self.history_messages / 2);
        let too_many = newest - first >= self.history_messages + slack;
        let too_large = size - first_size > self.history_bytes;
        let oldest = now.saturating_sub(self.history_age.as_millis() as u64);
        if first == newest || !(too_many || too_large || at < oldest) {
            return Ok(());
        }
        let delete = "DELETE FROM messages WHERE id < ?1 AND id IN (SELECT id FROM messages ORDER BY id LIMIT ?2)
            AND (id <= ?3 OR size < ?4 OR at < ?5)";
        let id = newest.saturating_sub(self.history_messages);
        let size = size.saturating_sub(self.history_bytes);
        let values = [newest, TRIM_MAX, id, size, oldest].map(|number| number as i64);
        conn.prepare_cached(delete)?.execute(values)?;
        Ok(())
    }

    /// Removes the file that had this inode when its disk was full, under the lock between processes: another one may have
    /// been faster. It is made again by the next message.
    fn remove_full(&self, full: Option<(u64, u64)>) {
        let path = &self.database.file().path;
        // That the file has gone is no error here.
        let _ = self.database.write(false, |_| {
            if inode(path) == full {
                remove(path);
            }
            Ok(())
        });
    }

    /// Deletes the older half of the messages.
    fn halve(&self) -> Result<()> {
        let middle =
            "DELETE FROM messages WHERE id < (SELECT (min(id) + max(id) + 1) / 2 FROM messages)";
        self.database.write(false, |tx| tx.conn.execute(middle, []).map(drop))
    }

    /// What the log keeps.
    pub fn extent(&self) -> Result<Extent> {
        self.database.read(extent)
    }

    /// What positions are signed with, and the ends of subscriptions that the log knows.
    pub fn secret(&self) -> Result<(Extent, Vec<u8>, Ends)> {
        self.database.read(|conn| {
            let mut secret = Vec::new();
            let mut ends = Vec::new();
            let extent = in_one_read(conn, |_| {
                secret = conn.query_row("SELECT secret FROM log", [], |row| row.get(0))?;
                let sql = "SELECT name, id FROM messages WHERE kind = 1 ORDER BY id";
                let mut statement = conn.prepare(sql)?;
                let rows = statement.query_map([], |row| Ok((row.get(0)?, get(row, 1)?)))?;
                ends = rows.collect::<rusqlite::Result<_>>()?;
                Ok(())
            })?;
            Ok((extent, secret, ends))
        })
    }

    /// Takes the oldest messages out, once `take` has succeeded with them and the file's epoch; whether there were any.
    pub fn take_out(
        &self,
        take: impl FnOnce(u64, &[OwnedRow]) -> Result<()> + Send,
    ) -> Result<bool> {
        if inode(&self.database.file().path).is_none() {
            return Ok(false);
        }
        let oldest_at = now_ms().saturating_sub(self.history_age.as_millis() as u64);
        // The lock is held while others put them into their place, so that they stay in order.
        let mut failed = Ok(());
        let failure = &mut failed;
        let taken = self.database.write(false, move |tx| {
            // What was kept for longer than that is forgotten.
            tx.conn.execute("DELETE FROM messages WHERE at < ?1", [oldest_at as i64])?;
            let rows = oldest(tx.conn)?;
            let Some(last) = rows.last().map(|row| row.offset) else { return Ok(false) };
            *failure = take(extent(tx.conn)?.epoch, &rows);
            if failure.is_ok() {
                tx.conn.execute("DELETE FROM messages WHERE id <= ?1", [last as i64])?;
            }
            Ok(failure.is_ok())
        })?;
        failed.map(|()| taken)
    }
}

/// A message that is taken out of the file.
pub(crate) struct OwnedRow {
    pub offset: u64,
    pub kind: Kind,
    pub name: String,
    pub event: Option<String>,
    pub key: Option<String>,
    pub data: String,
}

impl OwnedRow {
    pub fn message(&self) -> Message<'_> {
        let (event, key) = (self.event.as_deref(), self.key.as_deref());
        Message { name: &self.name, data: &self.data, event, key }
    }
}

/// Messages that are taken out at once.
const TAKEN_OUT_MAX: u64 = 100;

fn oldest(conn: &Connection) -> rusqlite::Result<Vec<OwnedRow>> {
    let sql =
        "SELECT id, kind, name, event, key, CAST(data AS TEXT) FROM messages ORDER BY id LIMIT ?1";
    let mut statement = conn.prepare_cached(sql)?;
    let rows = statement.query_map([TAKEN_OUT_MAX as i64], |row| {
        let kind = if get(row, 1)? == 1 { Kind::End } else { Kind::Message };
        let (name, event, key, data) = (row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?);
        Ok(OwnedRow { offset: get(row, 0)?, kind, name, event, key, data })
    })?;
    rows.collect()
}

/// Reads the file for the tail.
pub(crate) struct FileReader<'a> {
    log: &'a FileLog,
    reader: Arc<Reader>,
    watch: Option<ChangeWatch>,
    /// See [`FileReader::prepare`].
    epoch: u64,
}

impl FileReader<'_> {
    /// Watches the file that is there.
    pub fn watch(&mut self) -> Result<()> {
        let database = &self.log.database;
        let path = &database.file().path;
        if self.watch.as_ref().is_none_or(|watch| !watch.is_current()) {
            self.watch = None;
            // Not made again here, because a person may be removing the files beside it as well.
            if inode(path).is_none() {
                return Err(unavailable(format!("{} was removed", database.file())));
            }
            let watch = ChangeWatch::open(path, CHANNEL);
            self.watch = Some(watch.map_err(|error| database.file().io("its wake file", &error))?);
        }
        if let Some(watch) = &self.watch {
            watch.drain();
        }
        Ok(())
    }

    /// The same, for messages that are kept for a server: it makes the file, and notes its epoch.
    pub fn prepare(&mut self) -> Result<()> {
        if self.watch.as_ref().is_none_or(|watch| !watch.is_current()) {
            self.log.database.prepare()?;
            self.epoch = self.log.extent()?.epoch;
        }
        self.watch()
    }

    /// See [`FileReader::prepare`].
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The descriptor that can be read after a change.
    pub fn changes(&self) -> Option<BorrowedFd<'_>> {
        self.watch.as_ref().map(AsFd::as_fd)
    }

    pub fn wait(&self, interrupt: BorrowedFd<'_>, time: Duration) {
        let fds = [Some(interrupt), self.changes()].into_iter().flatten();
        let mut fds: Vec<_> = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        // An error is an interrupted call.
        let _ = poll(&mut fds, Some(&Timespec::try_from(time).unwrap_or_default()));
    }

    /// See [`crate::log::Reader::read_all`].
    pub fn read_all(
        &self,
        at: Position,
        replaced: impl FnOnce(u64),
        mut each: impl FnMut(&Row<'_>) -> bool,
    ) -> Result<Extent> {
        self.log.database.read_by(&self.reader, |conn| {
            in_one_read(conn, |extent| {
                if at.epoch == extent.epoch {
                    extent.read = at.offset;
                } else {
                    replaced(extent.epoch);
                }
                let sql =
                    "SELECT id, name, event, data, kind = 1 FROM messages WHERE id > ?1 ORDER BY id";
                let mut statement = conn.prepare_cached(sql)?;
                let mut rows = statement.query([extent.read as i64])?;
                while let Some(row) = rows.next()? {
                    let goes_on = pass(row, &mut each)?;
                    extent.read = get(row, 0)?;
                    if !goes_on {
                        break;
                    }
                }
                Ok(())
            })
        })
    }

    /// See [`crate::log::Reader::read_names`].
    pub fn read_names(
        &self,
        names: &[Arc<str>],
        (after, to): (u64, u64),
        mut each: impl FnMut(&Row<'_>) -> bool,
    ) -> Result<Extent> {
        self.log.database.read_by(&self.reader, |conn| {
            in_one_read(conn, |extent| {
                extent.read = to;
                let places = vec!["?"; names.len()].join(",");
                let sql = format!(
                    "SELECT id, name, event, data, kind = 1 FROM messages WHERE id > ? AND id <= ? AND name IN ({places})
                     ORDER BY id"
                );
                let mut statement = conn.prepare_cached(&sql)?;
                statement.raw_bind_parameter(1, after as i64)?;
                statement.raw_bind_parameter(2, to as i64)?;
                for (at, name) in names.iter().enumerate() {
                    statement.raw_bind_parameter(at + 3, &**name)?;
                }
                let mut rows = statement.raw_query();
                while let Some(row) = rows.next()? {
                    if !pass(row, &mut each)? {
                        extent.read = get(row, 0)?;
                        break;
                    }
                }
                Ok(())
            })
        })
    }
}

/// Removes the file, and frees its blocks at once though others still have it open. They find that it has gone before
/// they read on. It goes last: a reader that makes it again must not lose the log of the new one.
fn remove(path: &Path) {
    for suffix in ["-wal", "-shm", ""] {
        let path = with_suffix(path, suffix);
        let blocks = OpenOptions::new().write(true).open(&path);
        let _ = std::fs::remove_file(&path);
        // The last one is mapped by others, who would get SIGBUS.
        if let (Ok(blocks), true) = (blocks, suffix != "-shm") {
            let _ = blocks.set_len(0);
        }
    }
}

fn insert(
    conn: &Connection,
    message: &Message<'_>,
    kind: Kind,
    now: u64,
) -> rusqlite::Result<Option<u64>> {
    let (kind, begin) = kind.stored();
    let begin = begin.map(|begin| begin as i64);
    let size = (message.name.len() + message.data.len()) as u64;
    let sql = "INSERT INTO messages(at, size, kind, name, event, key, data)
        SELECT ?1, ?2 + ifnull((SELECT size FROM messages ORDER BY id DESC LIMIT 1), 0), ?7, ?3, ?4, ?5, ?6
        WHERE ?8 IS NULL OR NOT EXISTS (SELECT 1 FROM messages WHERE name = ?3 AND kind = 2 AND id > ?8)
        ON CONFLICT DO NOTHING RETURNING id";
    let Message { name, data, event, key } = *message;
    let values = params![now as i64, size as i64, name, event, key, data.as_bytes(), kind, begin];
    conn.prepare_cached(sql)?.query_row(values, |row| get(row, 0)).optional()
}

/// A number of a column; SQLite has only signed ones.
fn get(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<u64> {
    Ok(row.get::<_, i64>(column)? as u64)
}

fn pass(
    row: &rusqlite::Row<'_>,
    each: &mut impl FnMut(&Row<'_>) -> bool,
) -> rusqlite::Result<bool> {
    let (name, event, data) = (row.get_ref(1)?, row.get_ref(2)?, row.get_ref(3)?);
    let event = event.as_str_or_null()?;
    let (offset, is_end) = (get(row, 0)?, row.get(4)?);
    Ok(each(&Row { offset, is_end, name: name.as_str()?, event, data: data.as_blob()?, kept: 0 }))
}

/// Reads with one view of the file.
fn in_one_read(
    conn: &Connection,
    read: impl FnOnce(&mut Extent) -> rusqlite::Result<()>,
) -> rusqlite::Result<Extent> {
    let transaction = conn.unchecked_transaction()?;
    let mut extent = extent(conn)?;
    read(&mut extent)?;
    transaction.commit()?;
    Ok(extent)
}

fn extent(conn: &Connection) -> rusqlite::Result<Extent> {
    let sql = "SELECT epoch, ifnull((SELECT min(id) FROM messages), 0), ifnull((SELECT max(id) FROM messages), 0),
        ifnull((SELECT size FROM messages ORDER BY id DESC LIMIT 1)
            - (SELECT size - length(CAST(name AS BLOB)) - length(data) FROM messages ORDER BY id LIMIT 1), 0) FROM log";
    conn.prepare_cached(sql)?.query_row([], |row| {
        let [epoch, first, last, bytes] = [get(row, 0)?, get(row, 1)?, get(row, 2)?, get(row, 3)?];
        let deleted = if first == 0 { last } else { first - 1 };
        Ok(Extent { epoch, deleted, last, messages: last - deleted, bytes, read: 0 })
    })
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// The log of a new file with these bounds, and that file's folder.
    fn log(
        history_messages: u64,
        history_bytes: u64,
        history_age: Duration,
    ) -> (FileLog, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let settings = Settings::of_file(dir.path().join("live.db"));
        (FileLog::new(&Settings { history_messages, history_bytes, history_age, ..settings }), dir)
    }

    fn add(log: &FileLog, data: &str) {
        let message = Message::new("name", data, None, None).unwrap();
        assert!(log.add(&message, Kind::Message).unwrap().is_some());
    }

    #[test]
    fn what_is_kept_has_bounds_of_messages_bytes_and_age() {
        const HOUR: Duration = Duration::from_secs(3600);
        let (few, _dir) = log(100, 1 << 30, HOUR);
        (0..1000).for_each(|_| add(&few, "x"));
        let extent = few.extent().unwrap();
        assert!((100..=100 + TRIM_SLACK).contains(&extent.messages), "{extent:?}");
        assert_eq!((extent.last, extent.deleted), (1000, 1000 - extent.messages));
        let (small, _dir) = log(1 << 30, 10_000, HOUR);
        (0..100).for_each(|_| add(&small, &"x".repeat(996)));
        let extent = small.extent().unwrap();
        assert!((9000..=11_000).contains(&extent.bytes), "{extent:?}");
        let (young, _dir) = log(1 << 30, 1 << 30, Duration::ZERO);
        add(&young, "old");
        let then = now_ms();
        while now_ms() == then {
            thread::sleep(Duration::from_millis(1));
        }
        add(&young, "new");
        assert_eq!(young.extent().unwrap().messages, 1);
    }

    /// With a full file, to free its blocks takes longer than to make another one.
    #[test]
    fn a_file_that_another_process_makes_while_the_full_one_is_removed_keeps_its_log() {
        let full = vec![1; 256 << 20];
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("live.db");
        std::fs::write(&path, &full).unwrap();
        std::fs::write(with_suffix(&path, "-wal"), "full").unwrap();
        let other = thread::spawn({
            let path = path.clone();
            move || {
                while path.exists() {
                    thread::yield_now();
                }
                let conn = Connection::open(&path).unwrap();
                let made = "PRAGMA synchronous=OFF; PRAGMA journal_mode=WAL; CREATE TABLE new(id);";
                conn.execute_batch(made).unwrap();
                conn
            }
        });
        remove(&path);
        let _conn = other.join().unwrap();
        let new = Connection::open(&path).unwrap();
        let count = new.query_row("SELECT count(*) FROM new", [], |row| row.get::<_, i64>(0));
        assert_eq!(count, Ok(0));
    }
}
