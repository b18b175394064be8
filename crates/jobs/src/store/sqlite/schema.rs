//! The tables. Queues and in-flight sets are ordered by their rowid, which holds
//! queue and position, or owner and ticket: a job that is pushed, claimed and
//! acknowledged updates no index.

use chaton_embedded::Format;

/// The file of jobs. (Version 1 was never released.)
pub(super) static FORMAT: Format = Format {
    content: "jobs",
    setting: "store",
    advice_when_corrupt:
        "it is damaged or no SQLite database; restore a copy made by `chaton jobs backup`, \
                          or move it away to begin anew",
    version: 2,
    version_bit: 0,
    former: None,
    tables: TABLES,
    later_tables: LATER_TABLES,
    page_bytes: 4096,
    checkpoints_beside: false,
};

const TABLES: &str = "
CREATE TABLE queues(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE,
    paused INTEGER NOT NULL DEFAULT 0);
CREATE TABLE waiting(id INTEGER PRIMARY KEY, payload BLOB NOT NULL);
CREATE TABLE flights(id INTEGER PRIMARY KEY, queue INTEGER NOT NULL, payload BLOB NOT NULL);
CREATE TABLE entries(id INTEGER PRIMARY KEY, kind INTEGER NOT NULL, at REAL NOT NULL,
    payload BLOB NOT NULL);
CREATE INDEX entries_by_time ON entries(kind, at, id);
CREATE TABLE owners(id INTEGER PRIMARY KEY, identity TEXT NOT NULL UNIQUE, place TEXT,
    boot TEXT NOT NULL, clock REAL NOT NULL, beat_at REAL NOT NULL, info TEXT NOT NULL DEFAULT '',
    busy INTEGER NOT NULL DEFAULT 0, quiet INTEGER NOT NULL DEFAULT 0,
    rss_kb INTEGER NOT NULL DEFAULT 0);
CREATE TABLE work(owner INTEGER NOT NULL, tid TEXT NOT NULL, queue TEXT NOT NULL,
    payload BLOB NOT NULL, run_at INTEGER NOT NULL, PRIMARY KEY(owner, tid)) WITHOUT ROWID;
CREATE TABLE signals(id INTEGER PRIMARY KEY, identity TEXT NOT NULL, name TEXT NOT NULL,
    until REAL NOT NULL);
CREATE TABLE counters(name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE locks(key TEXT PRIMARY KEY, jid TEXT NOT NULL, until REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE slots(key TEXT NOT NULL, holder TEXT NOT NULL, until REAL NOT NULL,
    PRIMARY KEY(key, holder)) WITHOUT ROWID;
CREATE TABLE starts(key TEXT NOT NULL, at REAL NOT NULL, holder TEXT NOT NULL, until REAL NOT NULL,
    PRIMARY KEY(key, at, holder)) WITHOUT ROWID;
CREATE TABLE buckets(key TEXT PRIMARY KEY, level REAL NOT NULL, at REAL NOT NULL,
    until REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE batches(bid TEXT PRIMARY KEY, description TEXT NOT NULL, parent TEXT,
    created_at REAL NOT NULL, until REAL NOT NULL, closed INTEGER NOT NULL DEFAULT 0,
    total INTEGER NOT NULL DEFAULT 0, pending INTEGER NOT NULL DEFAULT 0,
    children INTEGER NOT NULL DEFAULT 0, running INTEGER NOT NULL DEFAULT 0,
    complete INTEGER NOT NULL DEFAULT 0, success INTEGER NOT NULL DEFAULT 0,
    dead INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;
CREATE TABLE batch_failures(bid TEXT NOT NULL, jid TEXT NOT NULL,
    PRIMARY KEY(bid, jid)) WITHOUT ROWID;
CREATE TABLE batch_callbacks(bid TEXT NOT NULL, event TEXT NOT NULL, number INTEGER NOT NULL,
    queue TEXT NOT NULL, payload BLOB NOT NULL, PRIMARY KEY(bid, event, number)) WITHOUT ROWID;
CREATE TABLE hashes(key TEXT NOT NULL, field TEXT NOT NULL, value BLOB NOT NULL,
    until REAL NOT NULL, PRIMARY KEY(key, field)) WITHOUT ROWID;
CREATE TABLE ticks(key TEXT PRIMARY KEY, until REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE cancels(jid TEXT PRIMARY KEY, until REAL NOT NULL) WITHOUT ROWID;
";

/// Tables that an older version does not know: it ignores them, and can use the same file at the same time.
/// `listed` and `unlisted`: jobs that were ever in `batch_jobs`, and jobs pushed by an older version that
/// have succeeded. `owner` is set while the batch is open. `holes`: rows between those of a queue's jobs whose job a
/// person has removed. `line_jobs` has the row and the time of each waiting job's entry; another entry may get the row
/// later, but hardly with the same time.
const LATER_TABLES: &str = "
CREATE TABLE IF NOT EXISTS batch_jobs(bid TEXT NOT NULL, jid TEXT NOT NULL,
    PRIMARY KEY(bid, jid)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS batch_lists(bid TEXT PRIMARY KEY, listed INTEGER NOT NULL DEFAULT 0,
    unlisted INTEGER NOT NULL DEFAULT 0, owner TEXT, opened_at REAL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS holes(id INTEGER PRIMARY KEY);
CREATE TABLE IF NOT EXISTS lines(name TEXT PRIMARY KEY, max INTEGER NOT NULL, span REAL NOT NULL,
    look_at REAL NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS lines_by_look ON lines(look_at);
CREATE TABLE IF NOT EXISTS line_jobs(name TEXT NOT NULL, jid TEXT NOT NULL, place REAL NOT NULL,
    entry INTEGER NOT NULL, at REAL NOT NULL, queue TEXT NOT NULL, PRIMARY KEY(name, jid)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS line_jobs_by_place ON line_jobs(name, place, jid);
CREATE TABLE IF NOT EXISTS owner_locks(identity TEXT PRIMARY KEY, file TEXT NOT NULL, byte INTEGER NOT NULL)
    WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS open_batches ON batch_lists(opened_at) WHERE owner IS NOT NULL;
";
