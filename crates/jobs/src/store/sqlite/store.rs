//! The store on SQLite.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use chaton_core::forks;
use chaton_embedded::{is_free, Database, Enlisted, LockPlace, OwnerLock};
use rusqlite::Connection;

use super::transaction::SqliteTransaction;
use super::{batches, entries, expiring, inspect, limits, lines, processes, queues, rows};
use crate::outcome::Ack;
use crate::store::clock::unix_s;
use crate::store::error::StoreError;
use crate::store::options::StoreOptions;
use crate::store::payload::{requeued, set_only};
use crate::store::traits::{Result, Store};
use crate::store::types::*;

/// Time between two removals of expired rows.
const CLEANUP_EVERY: Duration = Duration::from_secs(300);
/// Entries removed in one transaction.
const CLEAR_STEP: usize = 1000;

/// A user of the database of this process.
pub(super) struct SqliteStore {
    path: PathBuf,
    options: Arc<StoreOptions>,
    database: Option<Arc<Database>>,
    cleaned_ns: u64,
    lock: Option<OwnerLock>,
}

impl SqliteStore {
    pub fn new(path: PathBuf, options: Arc<StoreOptions>) -> Self {
        Self { path, options, database: None, cleaned_ns: 0, lock: None }
    }

    /// The database as opened by this process: a forked child opens its own.
    fn database(&mut self) -> Arc<Database> {
        match &self.database {
            Some(database) if database.made_in == forks::count() => database.clone(),
            _ => {
                let database = super::database(&self.path, &self.options);
                // The parent's is leaked: the child must not close it.
                std::mem::forget(self.database.replace(database.clone()));
                database
            }
        }
    }

    fn write_as<T: Send>(
        &mut self,
        durable: bool,
        op: impl FnOnce(&SqliteTransaction<'_>) -> rusqlite::Result<T> + Send,
    ) -> Result<T> {
        let op = |tx: &chaton_embedded::Transaction<'_>| op(&SqliteTransaction::new(tx));
        Ok(self.database().write(durable && self.options.durable, op)?)
    }

    fn write<T: Send>(
        &mut self,
        op: impl FnOnce(&SqliteTransaction<'_>) -> rusqlite::Result<T> + Send,
    ) -> Result<T> {
        self.write_as(true, op)
    }

    /// Writes what a loss of power may undo: claims and moves, after which the
    /// job is where it was, and heartbeats.
    fn write_soon<T: Send>(
        &mut self,
        op: impl FnOnce(&SqliteTransaction<'_>) -> rusqlite::Result<T> + Send,
    ) -> Result<T> {
        self.write_as(false, op)
    }

    fn read<T>(&mut self, op: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        Ok(self.database().read(op)?)
    }

    /// The lock of the process that sends heartbeats through this store. Without one, the lease tells when it has died.
    fn held_lock(&mut self) -> Option<LockPlace> {
        if !self.lock.as_ref().is_some_and(|lock| lock.is_of(&self.path)) {
            self.lock = OwnerLock::take(&self.path).ok();
        }
        self.lock.as_ref().map(OwnerLock::place)
    }

    fn lease_s(&self) -> f64 {
        self.options.lease.as_secs_f64()
    }

    fn cleanup_is_due(&mut self) -> bool {
        let now_ns = chaton_core::clock::now_ns();
        let due =
            now_ns - self.cleaned_ns > CLEANUP_EVERY.as_nanos() as u64 || self.cleaned_ns == 0;
        if due {
            self.cleaned_ns = now_ns;
        }
        due
    }
}

impl Store for SqliteStore {
    fn push(&mut self, jobs: &[NewJob<'_>]) -> Result<Vec<PushResult>> {
        self.write(|tx| queues::push(tx, jobs, unix_s()))
    }

    fn push_once(&mut self, key: &str, ttl: Duration, job: &NewJob<'_>) -> Result<bool> {
        self.write(|tx| expiring::push_once(tx, key, ttl.as_secs_f64(), job))
    }

    fn ack_and_claim(
        &mut self,
        owner: &str,
        acks: &[Ack],
        request: Option<&ClaimRequest<'_>>,
    ) -> Result<ClaimReply> {
        let options = self.options.clone();
        // A claim alone need not survive a loss of power: the job is in its queue then.
        self.write_as(!acks.is_empty(), |tx| {
            queues::ack_and_claim(tx, owner, acks, request, &options)
        })
    }

    fn commit(
        &mut self,
        owner: &str,
        ack: &Ack,
        jobs: &[NewJob<'_>],
        also: Option<&dyn Enlisted>,
    ) -> Result<()> {
        let options = self.options.clone();
        let mut refused = None;
        let done = self.database().write(self.options.durable, |tx| {
            let mut refuse = |error| {
                refused = Some(error);
                // Undoes the operation.
                Err(rusqlite::Error::InvalidQuery)
            };
            let own = SqliteTransaction::new(tx);
            let acks = std::slice::from_ref(ack);
            if queues::ack_and_claim(&own, owner, acks, None, &options)?.fenced > 0 {
                return refuse(StoreError::refused(
                    "another process has reclaimed the job, and runs it again; nothing was written",
                ));
            }
            queues::push(&own, jobs, unix_s())?;
            also.map_or(Ok(()), |also| also.write(tx)).or_else(|error| refuse(error.into()))
        });
        match refused {
            Some(error) => Err(error),
            None => Ok(done?),
        }
    }

    fn prepare(&mut self) -> Result<()> {
        Ok(self.database().prepare()?)
    }

    fn acquire(
        &mut self,
        owner: &str,
        requests: &[LimitRequest<'_>],
        now_s: f64,
    ) -> Result<Vec<Grant>> {
        self.write_soon(|tx| limits::acquire(tx, owner, requests, now_s))
    }

    fn unlock(&mut self, locks: &[HeldLock<'_>]) -> Result<()> {
        self.write_soon(|tx| {
            locks.iter().try_for_each(|lock| limits::unlock(tx, lock.key, lock.jid))
        })
    }

    fn move_due(&mut self, now_s: f64, max: usize) -> Result<DueSummary> {
        let options = self.options.clone();
        self.write_soon(|tx| entries::move_due(tx, now_s, max, &options))
    }

    fn claim_due(
        &mut self,
        owner: &str,
        first_ticket: u64,
        now_s: f64,
        max: usize,
    ) -> Result<(Vec<ClaimedJob>, DueSummary)> {
        let options = self.options.clone();
        self.write_soon(|tx| entries::claim_due(tx, owner, first_ticket, now_s, max, &options))
    }

    fn heartbeat(&mut self, report: &ProcessReport<'_>) -> Result<HeartbeatReply> {
        let cleanup = self.cleanup_is_due();
        let lock = self.held_lock();
        self.write_soon(|tx| {
            if cleanup {
                expiring::remove_expired(tx)?;
            }
            lines::look_at_all(tx, report.now_s)?;
            let reply = processes::heartbeat(tx, report)?;
            processes::note_lock(tx, report.identity, lock.as_ref())?;
            Ok(reply)
        })
    }

    fn owners(&mut self) -> Result<Vec<OwnerStatus>> {
        let lease_s = self.lease_s();
        let owners = self.read(|conn| processes::owners(conn, lease_s))?;
        let has_ended = |(owner, lock): (OwnerStatus, Option<LockPlace>)| OwnerStatus {
            ended: lock.is_some_and(|place| is_free(&self.path, &place)),
            ..owner
        };
        Ok(owners.into_iter().map(has_ended).collect())
    }

    fn in_flight(&mut self, owner: &str) -> Result<Vec<ClaimedJob>> {
        self.read(|conn| processes::in_flight(conn, owner))
    }

    fn forget(&mut self, owner: &str) -> Result<bool> {
        self.write(|tx| processes::forget(tx, owner))
    }

    fn pause(&mut self, queue: &str, paused: bool) -> Result<()> {
        self.write(|tx| expiring::pause(tx, queue, paused))
    }

    fn cancel(&mut self, jid: &str) -> Result<()> {
        self.write(|tx| expiring::cancel(tx, jid))
    }

    fn cancelled(&mut self, jids: &[&str]) -> Result<Vec<bool>> {
        self.read(|conn| expiring::cancelled(conn, jids))
    }

    fn load(&mut self, key: &str) -> Result<Vec<(String, Vec<u8>)>> {
        self.read(|conn| expiring::load(conn, key))
    }

    fn save(&mut self, key: &str, fields: &[(&str, &[u8])], ttl: Duration) -> Result<()> {
        self.write(|tx| expiring::save(tx, key, fields, ttl.as_secs_f64()))
    }

    fn remove_hash(&mut self, key: &str) -> Result<()> {
        self.write(|tx| expiring::remove_hash(tx, key))
    }

    fn batch_open(&mut self, batch: &NewBatch<'_>) -> Result<()> {
        self.write(|tx| batches::open(tx, batch))
    }

    fn batch_close(&mut self, bid: &str) -> Result<bool> {
        self.write(|tx| batches::close(tx, bid))
    }

    fn remove_open(&mut self, bid: Option<&str>) -> Result<Vec<BatchStatus>> {
        self.write(|tx| batches::remove_open(tx, bid))
    }

    fn batch(&mut self, bid: &str) -> Result<Option<BatchStatus>> {
        self.read(|conn| batches::status(conn, bid))
    }

    fn batches(&mut self, max: usize) -> Result<Vec<BatchStatus>> {
        self.read(|conn| batches::unfinished(conn, max))
    }

    fn probe(&mut self) -> Result<()> {
        self.read(|conn| inspect::availability(conn, &[])).map(drop)
    }

    fn stats(&mut self) -> Result<Stats> {
        let lease_s = self.lease_s();
        self.read(|conn| inspect::stats(conn, lease_s))
    }

    fn reset_counter(&mut self, name: &str) -> Result<()> {
        self.write(|tx| {
            tx.conn.execute("UPDATE counters SET value=0 WHERE name=?1", [name]).map(|_| ())
        })
    }

    fn queues(&mut self) -> Result<Vec<QueueStatus>> {
        self.read(|conn| inspect::queues(conn, unix_s()))
    }

    fn processes(&mut self) -> Result<Vec<ProcessStatus>> {
        let lease_s = self.lease_s();
        self.read(|conn| processes::processes(conn, lease_s))
    }

    fn list(&mut self, from: &JobLocation, offset: usize, count: usize) -> Result<Vec<JobEntry>> {
        self.read(|conn| inspect::list(conn, from, offset, count))
    }

    fn find(&mut self, jid: &str) -> Result<Option<(JobLocation, JobEntry)>> {
        self.read(|conn| inspect::find(conn, jid))
    }

    fn remove(&mut self, from: &JobLocation, entry: &JobEntry) -> Result<bool> {
        self.write(|tx| entries::remove(tx, from, entry))
    }

    fn enqueue_entry(&mut self, from: &JobLocation, entry: &JobEntry, now_s: f64) -> Result<bool> {
        let (queue, payload) = requeued(from, entry, now_s, self.options.format)?;
        self.write(|tx| entries::enqueue_entry(tx, from, entry, (&queue, &payload)))
    }

    fn kill(&mut self, from: &JobLocation, entry: &JobEntry, now_s: f64) -> Result<bool> {
        let options = self.options.clone();
        self.write(|tx| entries::kill(tx, from, entry, now_s, &options))
    }

    fn add_entry(&mut self, to: &JobLocation, at: f64, payload: &[u8]) -> Result<()> {
        set_only(to)?;
        let options = self.options.clone();
        self.write(|tx| {
            rows::add_to_set(tx, to, at, payload)?;
            rows::trim_dead(tx, &options)
        })
    }

    fn reschedule_entry(&mut self, from: &JobLocation, entry: &JobEntry, at: f64) -> Result<bool> {
        set_only(from)?;
        self.write(|tx| entries::reschedule(tx, from, entry, at))
    }

    fn clear(&mut self, from: &JobLocation, max: usize) -> Result<usize> {
        // In steps, so that other writers are not held up.
        let max = if max == 0 { usize::MAX } else { max };
        let mut cleared = 0;
        loop {
            let step = CLEAR_STEP.min(max - cleared);
            let gone = self.write(|tx| entries::clear(tx, from, step))?;
            cleared += gone;
            if gone < step || cleared >= max {
                return Ok(cleared);
            }
        }
    }

    fn signal(&mut self, identity: &str, signal: &str) -> Result<()> {
        self.write(|tx| processes::signal(tx, identity, signal))
    }

    fn vacuum(&mut self, force: bool) -> Result<(u64, u64)> {
        Ok(chaton_embedded::vacuum(&self.database(), force)?)
    }

    fn backup(&mut self, path: &str, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        Ok(chaton_embedded::backup(&self.database(), Path::new(path), progress)?)
    }
}
