//! The store on SQLite.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use chaton_core::forks;
use chaton_embedded::{is_free, Database, Enlisted, LockPlace, OwnerLock};
use rusqlite::Connection;

use super::transaction::SqliteTransaction;
use super::{batches, entries, expiring, inspect, limits, processes, queues, rows};
use crate::outcome::Ack;
use crate::store::clock::unix_s;
use crate::store::limiter;
use crate::store::options::StoreOptions;
use crate::store::payload::{requeued, set_only};
use crate::store::traits::{in_steps, no_tables, Answer, Change, Query, Result, Store};
use crate::store::types::*;
use crate::store::StoreError;

/// Time between two removals of expired rows.
const CLEANUP_EVERY: Duration = Duration::from_secs(300);

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

impl SqliteStore {
    fn owners(&mut self) -> Result<Vec<OwnerStatus>> {
        let lease_s = self.lease_s();
        let owners = self.read(|conn| processes::owners(conn, lease_s))?;
        let has_ended = |(owner, lock): (OwnerStatus, Option<LockPlace>)| OwnerStatus {
            ended: lock.is_some_and(|place| is_free(&self.path, &place)),
            ..owner
        };
        Ok(owners.into_iter().map(has_ended).collect())
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
        self.write_soon(|tx| limiter::acquire(&mut &*tx, owner, requests, now_s))
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
            limiter::look_at_all(&mut &*tx, report.now_s)?;
            let reply = processes::heartbeat(tx, report)?;
            processes::note_lock(tx, report.identity, lock.as_ref())?;
            Ok(reply)
        })
    }

    fn backup(&mut self, path: &str, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        Ok(chaton_embedded::backup(&self.database(), Path::new(path), progress)?)
    }

    fn query(&mut self, query: Query<'_>) -> Result<Answer> {
        let lease_s = self.lease_s();
        Ok(match query {
            Query::Owners() => self.owners()?.into(),
            Query::InFlight(owner) => self.read(|conn| processes::in_flight(conn, owner))?.into(),
            Query::Cancelled(jids) => self.read(|conn| expiring::cancelled(conn, jids))?.into(),
            Query::Load(key) => self.read(|conn| expiring::load(conn, key))?.into(),
            Query::Batch(bid) => self.read(|conn| batches::status(conn, bid))?.into(),
            Query::Batches(max) => self.read(|conn| batches::unfinished(conn, max))?.into(),
            Query::Probe() => self.read(|conn| inspect::availability(conn, &[])).map(drop)?.into(),
            Query::Stats() => self.read(|conn| inspect::stats(conn, lease_s))?.into(),
            Query::DailyCounts(days) => vec![(0, 0); days.len()].into(),
            Query::Queues() => self.read(|conn| inspect::queues(conn, unix_s()))?.into(),
            Query::Processes() => self.read(|conn| processes::processes(conn, lease_s))?.into(),
            Query::List(from, offset, count) => {
                self.read(|conn| inspect::list(conn, from, offset, count))?.into()
            }
            Query::Outbox() => Answer::Outbox(None),
            Query::Find(jid) => self.read(|conn| inspect::find(conn, jid))?.into(),
            Query::SidekiqProcesses() | Query::Advice() => Answer::Texts(vec![]),
        })
    }

    fn change(&mut self, change: Change<'_>) -> Result<Answer> {
        let options = self.options.clone();
        Ok(match change {
            Change::Unlock(locks) => self
                .write_soon(|tx| {
                    locks.iter().try_for_each(|lock| limits::unlock(tx, lock.key, lock.jid))
                })?
                .into(),
            Change::Forget(owner) => self.write(|tx| processes::forget(tx, owner))?.into(),
            Change::Pause(queue, paused) => {
                self.write(|tx| expiring::pause(tx, queue, paused))?.into()
            }
            Change::Cancel(jid) => self.write(|tx| expiring::cancel(tx, jid))?.into(),
            Change::Save(key, fields, ttl) => {
                self.write(|tx| expiring::save(tx, key, fields, ttl.as_secs_f64()))?.into()
            }
            Change::RemoveHash(key) => self.write(|tx| expiring::remove_hash(tx, key))?.into(),
            Change::BatchOpen(batch) => self.write(|tx| batches::open(tx, batch))?.into(),
            Change::BatchClose(bid) => self.write(|tx| batches::close(tx, bid))?.into(),
            Change::RemoveOpen(bid) => self.write(|tx| batches::remove_open(tx, bid))?.into(),
            Change::ResetCounter(name) => self
                .write(|tx| {
                    tx.conn.execute("UPDATE counters SET value=0 WHERE name=?1", [name]).map(drop)
                })?
                .into(),
            Change::Remove(from, entry) => {
                self.write(|tx| entries::remove(tx, from, entry))?.into()
            }
            Change::Enqueue(from, entry, now_s) => {
                let (queue, payload) = requeued(from, entry, now_s, options.format)?;
                self.write(|tx| entries::enqueue_entry(tx, from, entry, (&queue, &payload)))?.into()
            }
            Change::Kill(from, entry, now_s) => {
                self.write(|tx| entries::kill(tx, from, entry, now_s, &options))?.into()
            }
            Change::Add(to, at, payload) => {
                set_only(to)?;
                self.write(|tx| {
                    rows::add_to_set(tx, to, at, payload)
                        .and_then(|()| rows::trim_dead(tx, &options))
                })?
                .into()
            }
            Change::Reschedule(from, entry, at) => {
                set_only(from)?;
                self.write(|tx| entries::reschedule(tx, from, entry, at))?.into()
            }
            Change::Clear(from, max) => {
                in_steps(max, |step| self.write(|tx| entries::clear(tx, from, step)))?.into()
            }
            Change::Signal(identity, signal) => {
                self.write(|tx| processes::signal(tx, identity, signal))?.into()
            }
            Change::Migrate() => return no_tables(),
            Change::Vacuum(force) => chaton_embedded::vacuum(&self.database(), force)?.into(),
        })
    }
}
