//! The stores under test: what can be done to them from outside, and what is left in them.

use std::sync::Arc;

use rusqlite::Connection;

use super::redis_server::TestRedis;
use crate::store::postgres::tests::postgres_server::TestPostgres;
use crate::store::{open, StoreFactory, StoreOptions};

/// Keys of Redis that may stay: counters, what people look up for some time, and what expires by itself.
const REDIS_KEPT: [&str; 8] = [
    "stat:",
    "queues",
    "chaton:batch:",
    "chaton:bucket:",
    "chaton:window:",
    "chaton:cron:",
    "chaton:tick:",
    "chaton:cancels",
];
/// Keys of Redis that have no time to live though they stay.
const REDIS_ENDLESS: [&str; 3] = ["stat:", "queues", "dead"];
/// Tables of SQLite that may hold rows at the end.
const SQLITE_KEPT: [&str; 13] = [
    "queues",
    "entries",
    // They are forgotten when the queue is used again.
    "holes",
    "counters",
    "starts",
    "buckets",
    "batches",
    "batch_lists",
    "batch_failures",
    "batch_jobs",
    "batch_callbacks",
    "ticks",
    "cancels",
];

/// Tables of PostgreSQL that may hold rows at the end, besides jobs in sets.
const POSTGRES_KEPT: [&str; 10] = [
    "queues",
    "counters",
    "starts",
    "buckets",
    "batches",
    "batch_jobs",
    "batch_callbacks",
    "ticks",
    "cancels",
    "version",
];

/// A store under test.
pub enum RealStore {
    /// A file of its own.
    Sqlite(tempfile::TempDir),
    /// A server that many runs use, one after the other.
    Redis(TestRedis),
    /// A server that many runs use, each with a database of its own.
    Postgres(TestPostgres, String),
}

impl RealStore {
    /// A new file.
    pub fn sqlite() -> Self {
        Self::Sqlite(tempfile::tempdir().unwrap())
    }

    /// A new server. It loses nothing by `kill -9`: what it has answered is in its log.
    pub fn redis() -> Self {
        Self::Redis(TestRedis::start(&["--appendonly", "yes", "--appendfsync", "no"]))
    }

    /// A new server. The tests kill it, but not its machine.
    pub fn postgres() -> Self {
        Self::Postgres(TestPostgres::start(&["-c", "fsync=off"]), String::new())
    }

    /// Empties it; returns how it is opened by processes that write each of these formats.
    pub fn fresh(&mut self, formats: [u8; 2]) -> [Arc<dyn StoreFactory>; 2] {
        let url = match self {
            Self::Sqlite(dir) => {
                *dir = tempfile::tempdir().unwrap();
                format!("sqlite://{}", dir.path().join("jobs.db").display())
            }
            Self::Redis(server) => {
                assert_eq!(server.cli(&["FLUSHALL"]), "OK");
                format!("unix://{}?db=0", server.socket())
            }
            Self::Postgres(server, database) => {
                server.drop_database(database);
                *database = server.database();
                server.url(database)
            }
        };
        formats.map(|format| {
            let options = StoreOptions::for_tests(url.clone());
            open(&StoreOptions { durable: false, format, ..options }).unwrap()
        })
    }

    /// Kills the server and starts it again; a file has none.
    pub fn restart(&mut self) -> bool {
        match self {
            Self::Sqlite(_) => return false,
            Self::Redis(server) => {
                server.kill();
                server.restart();
            }
            Self::Postgres(server, _) => server.crash_after_a_flush(),
        }
        true
    }

    /// Makes the server a replica, which takes no writes, or a primary again with what it has; a file is neither.
    pub fn set_replica(&mut self, replica: bool) -> bool {
        let Self::Redis(server) = self else { return false };
        // Nobody listens at this port.
        let of = if replica { ["127.0.0.1", "1"] } else { ["NO", "ONE"] };
        assert_eq!(server.cli(&["REPLICAOF", of[0], of[1]]), "OK");
        true
    }

    /// Fills it, or makes room again; a file cannot be filled from outside.
    pub fn fill(&mut self, full: bool) -> bool {
        let Self::Redis(server) = self else { return false };
        let bytes = if full { "1" } else { "0" };
        assert_eq!(server.cli(&["CONFIG", "SET", "maxmemory", bytes]), "OK");
        true
    }

    /// What is left in it, now that no process and no job is there.
    pub fn leftovers(&self) -> Vec<String> {
        match self {
            Self::Sqlite(dir) => sqlite_leftovers(&dir.path().join("jobs.db")),
            Self::Redis(server) => redis_leftovers(server),
            Self::Postgres(server, database) => postgres_leftovers(server, database),
        }
    }
}

fn postgres_leftovers(server: &TestPostgres, database: &str) -> Vec<String> {
    let listing =
        "SELECT relname FROM pg_class WHERE relnamespace='chaton'::regnamespace AND relkind='r'";
    let tables = server.psql(database, listing).unwrap();
    let rows = |table: &str| {
        let counted = match table {
            "jobs" => "WHERE place<2",
            _ => kept(table),
        };
        let sql = format!("SELECT count(*) FROM chaton.{table} {counted}");
        let count = server.psql(database, &sql).unwrap();
        (count != "0").then(|| format!("{count} rows in {table}"))
    };
    tables.lines().filter(|table| !POSTGRES_KEPT.contains(table)).filter_map(rows).collect()
}

fn redis_leftovers(server: &TestRedis) -> Vec<String> {
    let listing = "local out = {} for _, key in ipairs(redis.call('KEYS', '*')) do \
                   out[#out + 1] = redis.call('TTL', key) .. ' ' .. key end return out";
    let names = server.cli(&["EVAL", listing, "0"]);
    let is_left = |line: &&str| {
        let Some((ttl, key)) = line.split_once(' ') else { return false };
        let starts = |list: &[&str]| list.iter().any(|start| key.starts_with(start));
        let endless = ttl == "-1" && !starts(&REDIS_ENDLESS);
        key != "dead" && !starts(&REDIS_KEPT) || endless && key != "chaton:cancels"
    };
    names.lines().filter(is_left).map(String::from).collect()
}

/// Which rows of a table do not count.
fn kept(table: &str) -> &'static str {
    // Since when an entry has its schedule.
    if table == "hashes" {
        "WHERE key NOT LIKE 'chaton:cron:%'"
    } else {
        ""
    }
}

fn sqlite_leftovers(path: &std::path::Path) -> Vec<String> {
    let conn = Connection::open(path).unwrap();
    let mut select = conn.prepare("SELECT name FROM sqlite_schema WHERE type='table'").unwrap();
    let tables: Vec<String> =
        select.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap();
    let rows = |table: &String| {
        let count: i64 = conn
            .query_row(&format!("SELECT count(*) FROM {table} {}", kept(table)), [], |row| {
                row.get(0)
            })
            .unwrap();
        (count > 0).then(|| format!("{count} rows in {table}"))
    };
    let others = tables
        .iter()
        .filter(|table| !SQLITE_KEPT.contains(&table.as_str()) && !table.starts_with("sqlite_"));
    others.filter_map(rows).collect()
}
