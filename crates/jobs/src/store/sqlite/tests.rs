//! The conformance suite, and tests of what only SQLite does.

mod faults;
mod sharing;
mod sizes;
mod transactions;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;

use super::*;
use crate::store::clock::unix_s;
use crate::store::conformance::conformance;
use crate::store::*;

/// A store whose file is removed when it is dropped.
struct TemporaryStore {
    factory: Arc<dyn StoreFactory>,
    folder: tempfile::TempDir,
}

impl TemporaryStore {
    fn new(tune: impl Fn(&mut StoreOptions)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("jobs.db");
        let mut options = StoreOptions::for_tests(format!("sqlite://{}", path.display()));
        tune(&mut options);
        Self { factory: factory(&options).unwrap(), folder }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("jobs.db")
    }
}

impl StoreFactory for TemporaryStore {
    fn store(&self) -> Box<dyn Store> {
        self.factory.store()
    }

    fn watch(&self) -> Box<dyn StoreWatch> {
        self.factory.watch()
    }

    fn address(&self) -> &str {
        self.factory.address()
    }
}

/// Held by tests that fork and by those that use SQLite beside the store: a fork
/// during such a use leaves SQLite's own locks held in the child.
static ALONE: parking_lot::Mutex<()> = parking_lot::Mutex::new(());

/// Does not wait for the disk: no test cuts the power.
fn fresh() -> Arc<dyn StoreFactory> {
    Arc::new(temporary())
}

conformance!(fresh);

#[test]
fn each_number_has_its_place() {
    crate::store::conformance::priorities::each_number_has_its_place(&fresh);
}

fn push(store: &mut dyn Store, payload: &str) -> Result<()> {
    let payload = payload.as_bytes();
    store.push(&[NewJob { queue: "q", payload, at: None, lock: None, bid: None }]).map(|_| ())
}

/// Claims from the queue `q`.
fn claim(store: &mut dyn Store, owner: &str, first_ticket: u64, count: usize) -> Vec<ClaimedJob> {
    let queues = ["q".into()];
    let want = ClaimRequest { queues: &queues, count, first_ticket };
    store.claim(owner, &want).unwrap().jobs
}

fn done(ticket: u64) -> Ack {
    Ack { ticket, queue: "q".into(), outcome: Outcome::Ack, effects: None }
}

#[test]
fn an_address_needs_a_file() {
    for url in ["sqlite://", "sqlite:///tmp/", "sqlite:x"] {
        let error = factory(&StoreOptions::for_tests(url)).unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Refused);
        assert!(error.message.contains(url), "{error}");
    }
}

#[test]
fn a_backup_is_a_store() {
    let _alone = ALONE.lock();
    let place = TemporaryStore::new(|_| {});
    let mut store = place.store();
    for number in 0..500 {
        push(&mut *store, &format!("{number}{}", "x".repeat(4000))).unwrap();
    }
    let copy = place.folder.path().join("copy.db");
    let mut steps = Vec::new();
    store.backup(copy.to_str().unwrap(), &mut |done, all| steps.push((done, all))).unwrap();
    assert!(steps.len() > 1 && steps.last().is_some_and(|(done, all)| done == all), "{steps:?}");
    let again = store.backup(copy.to_str().unwrap(), &mut |_, _| {}).unwrap_err();
    assert_eq!(again.kind, StoreErrorKind::Refused);
    let copy = factory(&StoreOptions::for_tests(format!("sqlite://{}", copy.display()))).unwrap();
    assert_eq!(claim(&mut *copy.store(), "o", 1, 1000).len(), 500);
    assert_eq!(store.stats().unwrap().enqueued, 500);
}

#[test]
fn only_owners_with_a_lease_are_processes() {
    let place = TemporaryStore::new(|options| options.lease = Duration::from_millis(50));
    let mut store = place.store();
    let beat = ProcessReport {
        identity: "o",
        process_key: "p",
        info: "{}",
        concurrency: 1,
        busy: 0,
        quiet: false,
        rss_kb: 0,
        rtt_us: 0,
        work: &[],
        processed: 0,
        failed: 0,
        now_s: unix_s(),
    };
    store.heartbeat(&beat).unwrap();
    let began = std::time::Instant::now();
    while !store.processes().unwrap().is_empty() {
        assert!(began.elapsed() < Duration::from_secs(20), "the lease does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(store.owners().unwrap().len(), 1, "known until it is forgotten");
}

#[test]
fn a_vacuum_gives_the_space_of_removed_jobs_back_while_others_use_the_file() {
    let store = temporary();
    let (mut one, mut other) = (store.store(), store.store());
    let payload = format!("{{\"queue\":\"q\",\"x\":\"{}\"}}", "x".repeat(4000)).into_bytes();
    let job = |queue| NewJob { queue, payload: &payload, at: None, lock: None, bid: None };
    one.push(&vec![job("q"); 3000]).unwrap();
    one.push(&[job("kept")]).unwrap();
    one.clear(&JobLocation::Queue("q".into()), 0).unwrap();
    let (before, after) = std::thread::scope(|scope| {
        let pushing =
            scope.spawn(move || (0..50).for_each(|_| drop(other.push(&[job("r")]).unwrap())));
        let sizes = one.vacuum(false).unwrap();
        pushing.join().unwrap();
        sizes
    });
    assert!(before > 8 << 20 && after < 2 << 20, "{before} {after}");
    assert_eq!(one.stats().unwrap().enqueued, 51);
    assert_eq!(one.list(&JobLocation::Queue("kept".into()), 0, 9).unwrap()[0].payload, payload);
}

#[test]
fn the_probe_reads_no_jobs() {
    let _alone = ALONE.lock();
    let store = temporary();
    let mut one = store.store();
    one.push(&[NewJob { queue: "q", payload: b"{}", at: None, lock: None, bid: None }]).unwrap();
    let conn = Connection::open(store.path()).unwrap();
    conn.execute_batch("ALTER TABLE waiting RENAME TO elsewhere").unwrap();
    drop(conn);
    assert!(one.stats().is_err());
    one.probe().unwrap();
}

fn temporary() -> TemporaryStore {
    TemporaryStore::new(|options| options.durable = false)
}
