//! Jobs in a SQLite file: the embedded default, for one machine.
//!
//! The file is the jobs' own. Beside it lie SQLite's log and index
//! (`-wal`, `-shm`), the lock between processes (`-lock`) and the bell that
//! ends the waits of others (`-wake`).

mod backup;
mod batches;
mod beside;
mod connections;
mod db;
mod entries;
mod failure;
mod inspect;
mod limits;
mod owners;
mod queues;
mod registry;
mod schema;
mod small;
#[cfg(test)]
mod tests;
mod wake;

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::Connection;

use super::*;
use db::Db;
use entries::Rules;
use schema::Manner;

/// A transaction, and what its operations want done at the end.
struct Tx<'a> {
    conn: &'a Connection,
    wakes: Cell<bool>,
    burial: Cell<Option<f64>>,
}

impl<'a> Tx<'a> {
    fn new(conn: &'a Connection) -> Self {
        Self { conn, wakes: Cell::new(false), burial: Cell::new(None) }
    }

    /// Others wait for what this one stores.
    fn wake(&self) {
        self.wakes.set(true);
    }

    fn wakes(&self) -> bool {
        self.wakes.get()
    }

    /// The dead set grew, at this time.
    fn buried(&self, at: f64) {
        self.burial.set(Some(self.burial.get().map_or(at, |last| last.max(at))));
    }

    /// When it last grew; told once.
    fn last_burial(&self) -> Option<f64> {
        self.burial.take()
    }
}

/// Where the address's path begins.
const SCHEME: &str = "sqlite://";
/// Between two sweeps of what is over.
const SWEEP_EVERY: Duration = Duration::from_secs(300);

struct SqliteFactory {
    address: String,
    path: PathBuf,
    options: StoreOptions,
}

/// The kit for `sqlite://PATH`.
///
/// # Errors
/// When the address has no path.
pub fn factory(options: &StoreOptions) -> Result<Arc<dyn StoreFactory>> {
    let path = options.url.strip_prefix(SCHEME).unwrap_or_default();
    if path.is_empty() || path.ends_with('/') {
        return Err(StoreError::refused(format!(
            "store {:?}: no file is named; write sqlite://storage/chaton.db",
            options.url
        )));
    }
    let path = canonical(Path::new(path))
        .map_err(|error| StoreError::refused(format!("store {:?}: {error}", options.url)))?;
    Ok(Arc::new(SqliteFactory { address: options.url.clone(), path, options: options.clone() }))
}

/// The same path for everybody, as far as it exists yet.
fn canonical(path: &Path) -> std::io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    if let Ok(path) = path.canonicalize() {
        return Ok(path);
    }
    match (path.parent().and_then(|folder| folder.canonicalize().ok()), path.file_name()) {
        (Some(folder), Some(name)) => Ok(folder.join(name)),
        _ => Ok(path),
    }
}

impl SqliteFactory {
    fn manner(&self) -> Manner {
        Manner { durable: self.options.durable, busy: self.options.lock_timeout }
    }
}

impl StoreFactory for SqliteFactory {
    fn store(&self) -> Box<dyn Store> {
        let options = &self.options;
        Box::new(SqliteStore {
            path: self.path.clone(),
            manner: self.manner(),
            db: None,
            swept_ns: 0,
            rules: Rules {
                dead_max: options.dead_max,
                dead_age_s: options.dead_age.as_secs_f64(),
                format: options.format,
                lease_s: options.lease.as_secs_f64(),
            },
        })
    }

    fn watch(&self) -> Box<dyn StoreWatch> {
        Box::new(wake::SqliteWatch::new(registry::shared(&self.path, self.manner())))
    }

    fn address(&self) -> &str {
        &self.address
    }
}

struct SqliteStore {
    path: PathBuf,
    manner: Manner,
    db: Option<Arc<Db>>,
    swept_ns: u64,
    rules: Rules,
}

fn unix_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

impl SqliteStore {
    /// The file, opened by this process: after a fork another one.
    fn db(&mut self) -> Arc<Db> {
        let pid = std::process::id();
        match &self.db {
            Some(db) if db.pid == pid => db.clone(),
            _ => {
                let db = registry::shared(&self.path, self.manner);
                // A parent's is leaked: the child must not close it.
                std::mem::forget(self.db.replace(db.clone()));
                db
            }
        }
    }

    fn write<T: Send>(
        &mut self,
        op: impl FnOnce(&Tx<'_>, &Rules) -> rusqlite::Result<T> + Send,
    ) -> Result<T> {
        let rules = self.rules;
        self.db().write(true, |tx| op(tx, &rules))
    }

    /// As [`SqliteStore::write`], for what a loss of power may undo: claims
    /// and moves, after which the job is where it was, and signs of life.
    fn write_soon<T: Send>(
        &mut self,
        op: impl FnOnce(&Tx<'_>, &Rules) -> rusqlite::Result<T> + Send,
    ) -> Result<T> {
        let rules = self.rules;
        self.db().write(false, |tx| op(tx, &rules))
    }

    fn read<T>(&mut self, op: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        self.db().read(op)
    }

    fn sweeps(&mut self) -> bool {
        let now_ns = chaton_core::clock::now_ns();
        let due = now_ns - self.swept_ns > SWEEP_EVERY.as_nanos() as u64 || self.swept_ns == 0;
        if due {
            self.swept_ns = now_ns;
        }
        due
    }
}

impl Store for SqliteStore {
    fn push(&mut self, jobs: &[NewJob<'_>]) -> Result<Vec<PushResult>> {
        self.write(|tx, _| queues::push(tx, jobs, unix_s()))
    }

    fn push_once(&mut self, key: &str, ttl: Duration, job: &NewJob<'_>) -> Result<bool> {
        self.write(|tx, _| small::push_once(tx, key, ttl.as_secs_f64(), job))
    }

    fn ack_and_claim(
        &mut self,
        owner: &str,
        settles: &[Ack],
        want: Option<&ClaimRequest<'_>>,
    ) -> Result<ClaimReply> {
        let turn =
            |tx: &Tx<'_>, rules: &Rules| queues::ack_and_claim(tx, owner, settles, want, rules);
        if settles.is_empty() {
            return self.write_soon(turn);
        }
        self.write(turn)
    }

    fn acquire(
        &mut self,
        owner: &str,
        asks: &[LimitRequest<'_>],
        now_s: f64,
    ) -> Result<Vec<Grant>> {
        self.write_soon(|tx, _| limits::acquire(tx, owner, asks, now_s))
    }

    fn unlock(&mut self, locks: &[HeldLock<'_>]) -> Result<()> {
        self.write_soon(|tx, _| {
            locks.iter().try_for_each(|lock| limits::unlock(tx, lock.key, lock.jid))
        })
    }

    fn move_due(&mut self, now_s: f64, max: usize) -> Result<DueSummary> {
        self.write_soon(|tx, rules| entries::move_due(tx, now_s, max, rules))
    }

    fn claim_due(
        &mut self,
        owner: &str,
        first_ticket: u64,
        now_s: f64,
        max: usize,
    ) -> Result<(Vec<ClaimedJob>, DueSummary)> {
        self.write_soon(|tx, rules| entries::claim_due(tx, owner, first_ticket, now_s, max, rules))
    }

    fn heartbeat(&mut self, beat: &ProcessReport<'_>) -> Result<HeartbeatReply> {
        let sweeps = self.sweeps();
        self.write_soon(|tx, _| {
            if sweeps {
                small::sweep(tx)?;
            }
            owners::heartbeat(tx, beat)
        })
    }

    fn owners(&mut self) -> Result<Vec<OwnerStatus>> {
        let rules = self.rules;
        self.read(|conn| owners::all(conn, &rules))
    }

    fn in_flight(&mut self, owner: &str) -> Result<Vec<ClaimedJob>> {
        self.read(|conn| owners::in_flight(conn, owner))
    }

    fn forget(&mut self, owner: &str) -> Result<bool> {
        self.write(|tx, _| owners::forget(tx, owner))
    }

    fn pause(&mut self, queue: &str, paused: bool) -> Result<()> {
        self.write(|tx, _| small::pause(tx, queue, paused))
    }

    fn cancel(&mut self, jid: &str) -> Result<()> {
        self.write(|tx, _| small::cancel(tx, jid))
    }

    fn cancelled(&mut self, jids: &[&str]) -> Result<Vec<bool>> {
        self.read(|conn| small::cancelled(conn, jids))
    }

    fn load(&mut self, key: &str) -> Result<Vec<(String, Vec<u8>)>> {
        self.read(|conn| small::load(conn, key))
    }

    fn save(&mut self, key: &str, fields: &[(&str, &[u8])], ttl: Duration) -> Result<()> {
        self.write(|tx, _| small::save(tx, key, fields, ttl.as_secs_f64()))
    }

    fn remove_hash(&mut self, key: &str) -> Result<()> {
        self.write(|tx, _| small::remove_hash(tx, key))
    }

    fn batch_open(&mut self, batch: &NewBatch<'_>) -> Result<()> {
        self.write(|tx, _| batches::open(tx, batch))
    }

    fn batch_close(&mut self, bid: &str) -> Result<()> {
        self.write(|tx, _| batches::close(tx, bid))
    }

    fn batch(&mut self, bid: &str) -> Result<Option<BatchStatus>> {
        self.read(|conn| batches::status(conn, bid))
    }

    fn stats(&mut self) -> Result<Stats> {
        let rules = self.rules;
        self.read(|conn| inspect::stats(conn, &rules))
    }

    fn queues(&mut self) -> Result<Vec<QueueStatus>> {
        self.read(|conn| inspect::queues(conn, unix_s()))
    }

    fn processes(&mut self) -> Result<Vec<ProcessStatus>> {
        let rules = self.rules;
        self.read(|conn| owners::processes(conn, &rules))
    }

    fn list(&mut self, place: &JobLocation, offset: usize, count: usize) -> Result<Vec<JobEntry>> {
        self.read(|conn| inspect::list(conn, place, offset, count))
    }

    fn find(&mut self, jid: &str) -> Result<Option<(JobLocation, JobEntry)>> {
        self.read(|conn| inspect::find(conn, jid))
    }

    fn remove(&mut self, place: &JobLocation, entry: &JobEntry) -> Result<bool> {
        self.write(|tx, _| entries::remove(tx, place, entry))
    }

    fn requeue(&mut self, place: &JobLocation, entry: &JobEntry, now_s: f64) -> Result<bool> {
        let Some((queue, payload)) = entries::renewed(place, entry, now_s, self.rules.format)
        else {
            return Err(StoreError::refused(
                "this entry is no job document with a queue: it can only be removed",
            ));
        };
        self.write(|tx, _| entries::requeue(tx, place, entry, &queue, &payload))
    }

    fn kill(&mut self, place: &JobLocation, entry: &JobEntry, now_s: f64) -> Result<bool> {
        self.write(|tx, rules| entries::kill(tx, place, entry, now_s, rules))
    }

    fn clear(&mut self, place: &JobLocation, max: usize) -> Result<usize> {
        // In steps, so that others get in between.
        let max = if max == 0 { usize::MAX } else { max };
        let mut cleared = 0;
        loop {
            let step = CLEAR_STEP.min(max - cleared);
            let gone = self.write(|tx, _| entries::clear(tx, place, step))?;
            cleared += gone;
            if gone < step || cleared >= max {
                return Ok(cleared);
            }
        }
    }

    fn signal(&mut self, identity: &str, signal: &str) -> Result<()> {
        self.write(|tx, _| owners::signal(tx, identity, signal))
    }

    fn backup(&mut self, path: &str, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        backup::run(&self.db(), Path::new(path), progress)
    }
}

/// Entries removed in one transaction.
const CLEAR_STEP: usize = 1000;
