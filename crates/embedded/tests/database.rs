//! One file with several users. Most of it is tested by the stores that use it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use chaton_core::file_lock::{FileLock, Held};
use chaton_embedded::change_file::path_of;
use chaton_embedded::{with_suffix, Database, ErrorKind, Format, Settings};

const FORMAT: Format = Format {
    content: "numbers",
    setting: "file",
    advice_when_corrupt: "it is damaged",
    version: 1,
    version_bit: 0,
    former: None,
    tables: "CREATE TABLE numbers(n INTEGER);",
    later_tables: "",
    page_bytes: 4096,
    checkpoints_beside: true,
};

const WORDS: Format = Format {
    content: "words",
    version: 3,
    version_bit: 16,
    tables: "CREATE TABLE words(word TEXT);",
    checkpoints_beside: false,
    ..FORMAT
};

/// Without one look at the file the race was met in each run of so many.
const ROUNDS: usize = 500;
/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(30);

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("numbers.db")
    }

    fn open(&self, follows: bool) -> Arc<Database> {
        let settings = Settings { lock_timeout: PATIENCE, follows };
        Database::shared(&self.path(), &FORMAT, settings)
    }

    /// The lock, as another process holds it.
    fn lock(&self) -> Held {
        let path = with_suffix(&self.path(), "-lock");
        let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
        FileLock::open(&file).unwrap().acquire(PATIENCE).unwrap().unwrap()
    }
}

fn add(database: &Database, n: i64) -> chaton_embedded::Result<()> {
    database.write(false, |tx| tx.conn.execute("INSERT INTO numbers VALUES(?1)", [n]).map(drop))
}

fn sum(database: &Database) -> i64 {
    let sum = "SELECT ifnull(sum(n), 0) FROM numbers";
    database.read(|conn| conn.query_row(sum, [], |row| row.get(0))).unwrap()
}

#[test]
fn a_write_that_has_waited_too_long_is_taken_back() {
    let place = Place::new();
    let database = place.open(false);
    add(&database, 1).unwrap();
    let ran = AtomicU32::new(0);
    let held = place.lock();
    let hasty = |timeout| {
        let run = |_: &chaton_embedded::Transaction<'_>| {
            ran.fetch_add(1, Ordering::Relaxed);
            Ok(())
        };
        let error = database.write_within(Duration::from_millis(timeout), false, run).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Busy);
        assert!(error.message.contains("held its lock for"), "{error}");
    };
    hasty(20);
    std::thread::scope(|scope| {
        // It waits as the leader, and the others behind it.
        let patient = scope.spawn(|| add(&database, 2));
        let began = Instant::now();
        hasty(50);
        std::thread::scope(|scope| (0..3).for_each(|_| drop(scope.spawn(|| hasty(50)))));
        assert!(began.elapsed() < PATIENCE / 2, "nobody waits for the leader");
        drop(held);
        patient.join().unwrap().unwrap();
    });
    assert_eq!((sum(&database), ran.load(Ordering::Relaxed)), (3, 0));
}

#[test]
fn a_replaced_file_is_reported_or_followed() {
    for follows in [false, true] {
        let place = Place::new();
        let database = place.open(follows);
        add(&database, 1).unwrap();
        assert_eq!(sum(&database), 1);
        for end in ["", "-wal", "-shm"] {
            let path = with_suffix(&place.path(), end);
            std::fs::rename(&path, with_suffix(&path, ".aside")).unwrap();
        }
        let added = add(&database, 2);
        assert_eq!(added.is_ok(), follows, "{added:?}");
        if let Err(error) = added {
            assert!(error.message.contains("was removed while in use"), "{error}");
            add(&database, 2).unwrap();
        }
        assert_eq!(sum(&database), 2);
    }
}

/// Another process makes the tables of a new file while this one looks whose file it is.
#[test]
fn a_file_that_another_process_makes_is_not_foreign() {
    for _ in 0..ROUNDS {
        let place = Place::new();
        let start = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let conn = rusqlite::Connection::open(place.path()).unwrap();
                conn.busy_timeout(PATIENCE).unwrap();
                conn.pragma_update(None, "journal_mode", "WAL").unwrap();
                start.wait();
                let tables = "BEGIN IMMEDIATE; CREATE TABLE IF NOT EXISTS numbers(n INTEGER);
                              PRAGMA application_id=0x4348544E; PRAGMA user_version=1; COMMIT";
                conn.execute_batch(tables).unwrap();
            });
            let database = place.open(false);
            start.wait();
            database.prepare().unwrap();
        });
    }
}

#[test]
fn engines_share_a_file() {
    let place = Place::new();
    let settings = Settings { lock_timeout: PATIENCE, follows: false };
    let version = || {
        let conn = rusqlite::Connection::open(place.path()).unwrap();
        conn.query_row("PRAGMA user_version", [], |row| row.get::<_, i32>(0)).unwrap()
    };
    let numbers = place.open(false);
    add(&numbers, 1).unwrap();
    assert_eq!((sum(&numbers), version()), (1, 1));
    let words = Database::shared(&place.path(), &WORDS, settings);
    assert!(Arc::ptr_eq(&numbers, &words), "one queue of writes");
    let count = || {
        let count = "SELECT count(*) FROM words";
        words.read(|conn| conn.query_row(count, [], |row| row.get::<_, i64>(0)))
    };
    assert_eq!((count().unwrap(), version()), (0, 3 << 16 | 1));
    words
        .write(false, |tx| {
            tx.conn.execute("INSERT INTO words VALUES('one')", [])?;
            tx.conn.execute("INSERT INTO numbers VALUES(2)", [])
        })
        .unwrap();
    assert_eq!((sum(&numbers), count().unwrap()), (3, 1));
    drop((numbers, words));
    // The other one first, and one of which the file has newer tables.
    let words = Database::shared(&place.path(), &WORDS, settings);
    let numbers = place.open(false);
    add(&numbers, 3).unwrap();
    assert_eq!(sum(&words), 6);
    drop((numbers, words));
    let conn = rusqlite::Connection::open(place.path()).unwrap();
    conn.pragma_update(None, "user_version", 4 << 16 | 1).unwrap();
    drop(conn);
    let numbers = place.open(false);
    add(&numbers, 4).unwrap();
    let words = Database::shared(&place.path(), &WORDS, settings);
    let error = words.prepare().unwrap_err();
    assert!(error.message.contains("words database") && error.message.contains("newer"), "{error}");
}

#[test]
fn a_commit_touches_the_files_of_its_channels() {
    let place = Place::new();
    let database = place.open(false);
    let changed = |path: &Path| std::fs::metadata(path).ok().map(|about| about.modified().unwrap());
    let path = |channel| path_of(&place.path(), channel);
    database.write(false, |tx| Ok([7].map(|channel| tx.notify(channel)))).unwrap();
    let first = changed(&path(7)).unwrap();
    assert_eq!(changed(&path(0)), None);
    add(&database, 1).unwrap();
    assert_eq!(changed(&path(7)), Some(first));
    let failed = database.write(false, |tx| {
        tx.notify(0);
        tx.conn.execute("INSERT INTO nothing VALUES(1)", []).map(drop)
    });
    assert!(failed.is_err());
    database.write(false, |tx| Ok([0, 127].map(|channel| tx.notify(channel)))).unwrap();
    assert!(changed(&path(0)).is_some() && changed(&path(127)).is_some());
}
