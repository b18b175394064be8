//! The relay of the outbox, with a log in memory.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::postgres_server::TestPostgres;
use chaton_core::outbox::{Delivery, OnDelivery, Outlet, OwnedRecord};
use chaton_jobs::store::{open, StoreOptions};
use parking_lot::Mutex;

const WAIT: Duration = Duration::from_secs(60);

/// What a log has, and what becomes of a value that it gets.
#[derive(Default)]
struct Log {
    records: Vec<OwnedRecord>,
    fails: HashSet<String>,
    refuses: HashSet<String>,
}

#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Log>>);

impl Outlet for Memory {
    fn send(&mut self, record: OwnedRecord, done: OnDelivery) {
        let mut log = self.0.lock();
        let value = String::from_utf8(record.value.clone().unwrap()).unwrap();
        let end = if log.fails.remove(&value) {
            Delivery::Failed("the log is away".into())
        } else if log.refuses.contains(&value) {
            Delivery::Refused("never".into())
        } else {
            log.records.push(record);
            Delivery::Written
        };
        drop(log);
        done(end);
    }

    fn reset(&mut self) {}

    fn complaint(&mut self) -> Option<String> {
        None
    }

    fn address(&self) -> String {
        "memory".into()
    }
}

/// A database of a server of its own: a transaction of another test that is open would hold rows up.
struct Fixture {
    server: TestPostgres,
    database: String,
    log: Memory,
}

impl Fixture {
    fn new() -> Self {
        let server = TestPostgres::start(&["-c", "fsync=off"]);
        let database = server.database();
        Self { server, database, log: Memory::default() }
    }

    fn options(&self) -> StoreOptions {
        StoreOptions::for_tests(self.server.url(&self.database))
    }

    /// Returns what stops it.
    fn relay(&self) -> Box<dyn FnOnce() + Send> {
        open(&self.options()).unwrap().relay(Box::new(self.log.clone())).unwrap().unwrap()
    }

    /// The statement that stores records, each a key and a value.
    fn insert(&self, records: &[(&str, &str)]) -> String {
        let record = |(key, value): &(&str, &str)| OwnedRecord {
            topic: "t".into(),
            key: Some(key.as_bytes().into()),
            value: Some(value.as_bytes().into()),
            headers: vec![(b"n".to_vec(), None)],
            ..OwnedRecord::default()
        };
        let records: Vec<_> = records.iter().map(record).collect();
        let mut store = open(&self.options()).unwrap().store();
        store.connect().unwrap();
        store.own_transactions().unwrap().outbox(&records).unwrap()
    }

    fn sql(&self, sql: &str) -> String {
        self.server.psql(&self.database, sql).unwrap_or_else(|| panic!("{sql}"))
    }

    fn wait_for(&self, what: &str, condition: impl Fn() -> bool) {
        let began = Instant::now();
        while !condition() {
            assert!(began.elapsed() < WAIT, "{what}; the log has {:?}", self.values());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Whether the relay has looked for rows so long (s) after the last one was stored.
    fn has_looked(&self, after_s: f64) -> bool {
        let last = "SELECT max(at) AS at FROM chaton.outbox";
        self.sql(&format!(
            "SELECT count(*) FROM pg_stat_activity, ({last}) last WHERE application_name='chaton outbox'
            AND query LIKE '%WITH gone%' AND query_start>at+interval '{after_s} s'"
        )) == "1"
    }

    fn values(&self) -> Vec<String> {
        let log = self.log.0.lock();
        let value = |one: &OwnedRecord| String::from_utf8(one.value.clone().unwrap()).unwrap();
        log.records.iter().map(value).collect()
    }

    fn waiting(&self) -> String {
        self.sql("SELECT count(*) FROM chaton.outbox")
    }
}

#[test]
fn rows_wait_for_a_transaction_that_may_add_one_before_them() {
    let it = Fixture::new();
    let (first, second) = (it.insert(&[("k", "first")]), it.insert(&[("k", "second")]));
    // It begins to write before the others, and commits after them.
    let slow = format!("BEGIN; {first}; SELECT pg_advisory_lock(7); COMMIT");
    let mut holder =
        it.server.session(&it.database, "SELECT pg_advisory_lock(7); SELECT pg_sleep(600)");
    let sleeps = "SELECT count(*) FROM pg_locks WHERE locktype='advisory' AND objid=7 AND";
    it.wait_for("the lock", || it.sql(&format!("{sleeps} granted")) == "1");
    let mut slow = it.server.session(&it.database, &slow);
    it.wait_for("the slow one", || it.sql(&format!("{sleeps} NOT granted")) == "1");
    it.sql(&second);
    let stop = it.relay();
    it.wait_for("it has looked", || it.has_looked(0.3));
    assert_eq!(it.values(), Vec::<String>::new());
    holder.kill().unwrap();
    holder.wait().unwrap();
    it.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(600)'",
    );
    slow.wait().unwrap();
    it.wait_for("both", || it.values().len() == 2);
    assert_eq!(it.values(), ["first", "second"]);
    it.wait_for("they are removed", || it.waiting() == "0");
    stop();
}

/// The row of a key is locked before the insert, so the second transaction inserts after the first has committed, although
/// its number, which it took with another write, is smaller, and that of a third one is between the two.
#[test]
fn the_numbers_of_transactions_are_no_order() {
    let it = Fixture::new();
    let (first, second) = (it.insert(&[("k", "first")]), it.insert(&[("k", "second")]));
    let begin = || it.server.transaction(&it.database, "SELECT pg_current_xact_id()");
    let (early, between) = (begin(), begin());
    it.sql(&first);
    early.run(&format!("{second}; COMMIT"));
    let stop = it.relay();
    it.wait_for("it has looked", || it.has_looked(0.3));
    assert_eq!(it.values(), Vec::<String>::new());
    between.run("COMMIT");
    it.wait_for("both", || it.values().len() == 2);
    assert_eq!(it.values(), ["first", "second"]);
    stop();
}

/// A row that was sent has a greater number than one that nobody sees yet.
#[test]
fn what_nobody_sees_yet_is_not_passed() {
    let it = Fixture::new();
    let insert = |record| it.insert(&[record]);
    let (first, second) = (insert(("k", "first")), insert(("k", "second")));
    let old = it.server.transaction(&it.database, "SELECT pg_current_xact_id()");
    let open = it.server.transaction(&it.database, &first);
    let stop = it.relay();
    old.run(&format!("{}; COMMIT", insert(("other", "other"))));
    it.wait_for("the other", || it.values() == ["other"]);
    // It keeps one row that waits, by which the age of a look is known.
    it.sql(&insert(("later", "later")));
    it.wait_for("it has looked for long", || it.has_looked(3.0));
    open.run(&format!("COMMIT; {second}"));
    it.wait_for("all", || it.values().len() == 4);
    let mut values = it.values();
    values.retain(|value| value != "later");
    assert_eq!(values, ["other", "first", "second"]);
    stop();
}

#[test]
fn rows_behind_a_failed_one_of_their_key_are_sent_again() {
    let it = Fixture::new();
    it.sql(&it.insert(&[("a", "a1"), ("a", "a2"), ("b", "b1"), ("a", "a3")]));
    it.log.0.lock().fails.insert("a1".into());
    let stop = it.relay();
    it.wait_for("all", || it.values().len() == 6 && it.waiting() == "0");
    assert_eq!(it.values(), ["a2", "b1", "a3", "a1", "a2", "a3"]);
    let log = it.log.0.lock();
    let id = |one: &OwnedRecord| one.headers[1].clone();
    let ids: HashSet<_> = log.records.iter().map(id).collect();
    assert_eq!((ids.len(), &log.records[0].headers[0]), (4, &(b"n".to_vec(), None)));
    assert_eq!(id(&log.records[0]), id(&log.records[4]));
    drop(log);
    stop();
}

#[test]
fn a_refused_row_is_kept_whole_and_its_key_goes_on() {
    let it = Fixture::new();
    it.log.0.lock().refuses.insert("a1".into());
    let stop = it.relay();
    it.sql(&it.insert(&[("a", "a1"), ("a", "a2")]));
    it.wait_for("the other", || it.values() == ["a2"] && it.waiting() == "0");
    let kept = "SELECT topic, convert_from(key, 'UTF8'), convert_from(value, 'UTF8'), headers, why
        FROM chaton.outbox_refused";
    assert_eq!(it.sql(kept), "t|a|a1|{\"\\\\x6e\",NULL}|never");
    let status = open(&it.options()).unwrap().store().outbox().unwrap().unwrap();
    assert_eq!((status.waiting, status.refused, status.lag_s), (0, 1, 0.0));
    stop();
}

/// More rows than are on their way at once, of which some are read again and again.
#[test]
fn many_rows_are_relayed_once_each_and_in_order() {
    let it = Fixture::new();
    it.insert(&[("a", "a")]);
    it.sql(
        "INSERT INTO chaton.outbox(topic, key, value) SELECT 't', (n%10)::text::bytea, n::text::bytea
        FROM generate_series(1, 20000) n",
    );
    let stop = it.relay();
    it.wait_for("all", || it.values().len() >= 20_000 && it.waiting() == "0");
    let expected: Vec<_> = (1..=20_000).map(|n| n.to_string()).collect();
    assert!(it.values() == expected);
    stop();
}

#[test]
fn another_relay_follows_when_one_ends_or_loses_its_connection() {
    let it = Fixture::new();
    let (first, second) = (it.relay(), it.relay());
    it.sql(&it.insert(&[("a", "1")]));
    it.wait_for("the first", || it.values().len() == 1);
    it.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name='chaton outbox'");
    it.sql(&it.insert(&[("a", "2")]));
    it.wait_for("the second", || it.values().len() == 2);
    first();
    it.sql(&it.insert(&[("a", "3")]));
    it.wait_for("the third", || it.values() == ["1", "2", "3"]);
    second();
    // One of another machine holds the lock.
    let lock = "SELECT pg_advisory_lock(1128812110, 1); SELECT pg_sleep(600)";
    let mut other = it.server.session(&it.database, lock);
    let held = "SELECT count(*) FROM pg_locks WHERE locktype='advisory' AND objid=1";
    it.wait_for("the lock", || it.sql(held) == "1");
    let third = it.relay();
    it.wait_for("it waits", || it.sql(held) == "2");
    it.sql(&it.insert(&[("a", "4")]));
    it.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(600)'",
    );
    it.wait_for("the fourth", || it.values().len() == 4);
    other.wait().unwrap();
    third();
}

/// A copy of a database that was restored elsewhere has numbers of transactions that are still to come there.
#[test]
fn rows_of_a_restored_database_are_relayed() {
    let it = Fixture::new();
    it.insert(&[("a", "a")]);
    it.sql("INSERT INTO chaton.outbox(topic, value, xid) VALUES('t', 'old', '99999999999')");
    let stop = it.relay();
    it.wait_for("the row", || it.values() == ["old"]);
    stop();
}
