//! The store on PostgreSQL.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::connection::{args, Call, Mode};
use super::errors;
use super::jobs::{is_plain, plain_tickets};
use super::server::Server;
use super::{advice, batches, inspect, jobs, limits, lines, outbox, owners, schema};
use crate::outcome::Ack;
use crate::store::clock::unix_s;
use crate::store::error::StoreError;
use crate::store::payload::{requeued, set_only};
use crate::store::traits::{OwnTransactions, Result, Store};
use crate::store::types::*;

/// Time between two removals of expired rows.
const CLEANUP_EVERY: Duration = Duration::from_secs(300);
/// Time between two looks for a transaction that keeps the rows of finished jobs from being removed.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// The part of a log file's name that stands for its timeline.
const TIMELINE: &str = "SELECT CASE WHEN NOT pg_is_in_recovery()
    THEN left(pg_walfile_name(pg_current_wal_lsn()), 8) END";
/// Entries removed in one transaction.
const CLEAR_STEP: usize = 1000;

/// A user of the connections of this process.
pub(super) struct PostgresStore {
    server: Arc<Server>,
    cleaned: Option<Instant>,
    looked: Option<Instant>,
    warning: Option<String>,
}

impl PostgresStore {
    pub fn new(server: Arc<Server>) -> Self {
        server.add_user();
        Self { server, cleaned: None, looked: None, warning: None }
    }

    /// A transaction.
    fn write<T>(&self, op: impl FnMut(&mut Call<'_>) -> errors::Result<T>) -> Result<T> {
        self.server.run(Mode::Transaction, op)
    }

    /// One statement, or reads that need not belong together.
    pub fn single<T>(&self, op: impl FnMut(&mut Call<'_>) -> errors::Result<T>) -> Result<T> {
        self.server.run(Mode::Planned, op)
    }

    /// The history that the server goes on with: a standby that takes over begins a new one, a server that recovers from
    /// a crash does not. `None`: not known.
    fn timeline(&self) -> Option<String> {
        let row = self.single(|call| call.one(TIMELINE, args![]));
        row.ok().flatten().and_then(|row| row.get(0))
    }

    /// Queues that the table has for certain.
    pub fn known_queues(&self) -> &Mutex<HashSet<String>> {
        &self.server.known_queues
    }

    /// Whether it has a connection of its own, not shared by a bouncer.
    pub fn listens(&self) -> bool {
        self.server.address.listen.is_some()
    }

    fn lease_s(&self) -> f64 {
        self.server.options.lease.as_secs_f64()
    }
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        self.server.remove_user();
    }
}

impl Store for PostgresStore {
    fn connect(&mut self) -> Result<()> {
        self.server.connect()?;
        if self.server.timeline.lock().is_none() {
            *self.server.timeline.lock() = self.timeline();
        }
        Ok(())
    }

    fn connections(&self) -> u64 {
        self.server.connections()
    }

    fn restore(&mut self, owner: &str, jobs: &[ClaimedJob]) -> Result<usize> {
        let (before, now) = (self.server.timeline.lock().clone(), self.timeline());
        let may_be_lost = before.is_none() || before != now;
        let restored = if jobs.is_empty() {
            0
        } else {
            self.write(|call| jobs::restore(call, owner, jobs, may_be_lost))?
        };
        *self.server.timeline.lock() = now;
        Ok(restored)
    }

    fn push(&mut self, jobs: &[NewJob<'_>]) -> Result<Vec<PushResult>> {
        let mode = if is_plain(jobs) { Mode::Single } else { Mode::Transaction };
        self.server.run(mode, |call| jobs::push(call, jobs))
    }

    fn push_once(&mut self, key: &str, ttl: Duration, job: &NewJob<'_>) -> Result<bool> {
        self.write(|call| inspect::push_once(call, key, ttl.as_secs_f64(), job))
    }

    fn ack_and_claim(
        &mut self,
        owner: &str,
        acks: &[Ack],
        request: Option<&ClaimRequest<'_>>,
    ) -> Result<ClaimReply> {
        if let Some(tickets) = plain_tickets(acks) {
            // An acknowledgement is safe on the disk once it has an answer.
            let mode = if tickets.is_empty() { Mode::Claim } else { Mode::Planned };
            let floors = &self.server.floors;
            let op = |call: &mut Call<'_>| {
                jobs::delete_and_claim(call, owner, &tickets, request, floors)
            };
            return self.server.run(mode, op);
        }
        let (options, floors) = (&self.server.options, &self.server.floors);
        self.write(|call| jobs::ack_and_claim(call, owner, acks, request, options, floors))
    }

    fn acquire(
        &mut self,
        owner: &str,
        requests: &[LimitRequest<'_>],
        now_s: f64,
    ) -> Result<Vec<Grant>> {
        self.write(|call| lines::acquire(call, owner, requests, now_s))
    }

    fn unlock(&mut self, locks: &[HeldLock<'_>]) -> Result<()> {
        let (keys, jids): (Vec<&str>, Vec<&str>) =
            locks.iter().map(|lock| (lock.key, lock.jid)).unzip();
        self.single(|call| limits::unlock(call, &keys, &jids))
    }

    fn move_due(&mut self, now_s: f64, max: usize) -> Result<DueSummary> {
        let options = &self.server.options;
        self.write(|call| Ok(jobs::take_due(call, now_s, max, None, options)?.1))
    }

    fn claim_due(
        &mut self,
        owner: &str,
        first_ticket: u64,
        now_s: f64,
        max: usize,
    ) -> Result<(Vec<ClaimedJob>, DueSummary)> {
        let options = &self.server.options;
        self.write(|call| jobs::take_due(call, now_s, max, Some((owner, first_ticket)), options))
    }

    fn heartbeat(&mut self, report: &ProcessReport<'_>) -> Result<HeartbeatReply> {
        self.server.tree.note(report.process_key, &self.server.options);
        let beat = owners::Beat::new(report);
        let id = self.server.tree.id;
        let by_leader = self.server.tree.beat(&beat);
        let shared = by_leader.is_some();
        let reply = match by_leader {
            Some(reply) => Some(reply),
            None => self.single(|call| owners::heartbeat(call, &beat, id))?,
        };
        let Some(reply) = reply else { return Ok(HeartbeatReply::default()) };
        let lines_are_due = reply.lines_are_due;
        let reply = reply.into_reply(id, shared);
        if reply.follows {
            self.server.close_old();
            return Ok(reply);
        }
        if self.cleaned.is_none_or(|at| at.elapsed() > CLEANUP_EVERY) {
            self.write(inspect::remove_expired)?;
            self.cleaned = Some(Instant::now());
        }
        if self.looked.is_none_or(|at| at.elapsed() > LOOK_EVERY) {
            self.warning = self.single(|call| advice::snapshot(call, advice::SNAPSHOT_MAX_S))?;
            self.looked = Some(Instant::now());
        }
        if lines_are_due {
            self.write(|call| lines::look_at_all(call, report.now_s))?;
        }
        Ok(reply)
    }

    fn owners(&mut self) -> Result<Vec<OwnerStatus>> {
        self.single(owners::owners)
    }

    fn in_flight(&mut self, owner: &str) -> Result<Vec<ClaimedJob>> {
        self.single(|call| jobs::in_flight(call, owner))
    }

    fn forget(&mut self, owner: &str) -> Result<bool> {
        self.write(|call| owners::forget(call, owner))
    }

    fn pause(&mut self, queue: &str, paused: bool) -> Result<()> {
        self.single(|call| inspect::pause(call, queue, paused))
    }

    fn cancel(&mut self, jid: &str) -> Result<()> {
        self.single(|call| inspect::cancel(call, jid))
    }

    fn cancelled(&mut self, jids: &[&str]) -> Result<Vec<bool>> {
        self.single(|call| inspect::cancelled(call, jids))
    }

    fn load(&mut self, key: &str) -> Result<Vec<(String, Vec<u8>)>> {
        self.single(|call| inspect::load(call, key))
    }

    fn save(&mut self, key: &str, fields: &[(&str, &[u8])], ttl: Duration) -> Result<()> {
        self.write(|call| inspect::save(call, key, fields, ttl.as_secs_f64()))
    }

    fn remove_hash(&mut self, key: &str) -> Result<()> {
        self.single(|call| {
            call.rows("DELETE FROM chaton.hashes WHERE key=$1", args![key]).map(drop)
        })
    }

    fn batch_open(&mut self, batch: &NewBatch<'_>) -> Result<()> {
        self.write(|call| batches::open(call, batch))
    }

    fn batch_close(&mut self, bid: &str) -> Result<bool> {
        self.write(|call| batches::close(call, bid))
    }

    fn remove_open(&mut self, bid: Option<&str>) -> Result<Vec<BatchStatus>> {
        self.write(|call| batches::remove_open(call, bid))
    }

    fn batch(&mut self, bid: &str) -> Result<Option<BatchStatus>> {
        self.single(|call| batches::status(call, bid))
    }

    fn batches(&mut self, max: usize) -> Result<Vec<BatchStatus>> {
        self.single(|call| batches::unfinished(call, max))
    }

    fn probe(&mut self) -> Result<()> {
        self.single(|call| call.rows("SELECT 1", &[]).map(drop))
    }

    fn stats(&mut self) -> Result<Stats> {
        let lease_s = self.lease_s();
        self.single(|call| inspect::stats(call, lease_s))
    }

    fn reset_counter(&mut self, name: &str) -> Result<()> {
        self.single(|call| {
            call.rows("UPDATE chaton.counters SET value=0 WHERE name=$1", args![name]).map(drop)
        })
    }

    fn outbox(&mut self) -> Result<Option<OutboxStatus>> {
        self.single(outbox::status).map(Some)
    }

    fn queues(&mut self) -> Result<Vec<QueueStatus>> {
        self.single(|call| inspect::queues(call, unix_s()))
    }

    fn processes(&mut self) -> Result<Vec<ProcessStatus>> {
        let lease_s = self.lease_s();
        self.single(|call| owners::processes(call, lease_s))
    }

    fn list(&mut self, from: &JobLocation, offset: usize, count: usize) -> Result<Vec<JobEntry>> {
        self.single(|call| inspect::list(call, from, offset, count))
    }

    fn find(&mut self, jid: &str) -> Result<Option<(JobLocation, JobEntry)>> {
        self.single(|call| inspect::find(call, jid))
    }

    fn remove(&mut self, from: &JobLocation, entry: &JobEntry) -> Result<bool> {
        self.write(|call| jobs::remove(call, from, entry))
    }

    fn enqueue_entry(&mut self, from: &JobLocation, entry: &JobEntry, now_s: f64) -> Result<bool> {
        let (queue, payload) = requeued(from, entry, now_s, self.server.options.format)?;
        self.write(|call| jobs::enqueue_entry(call, from, entry, (&queue, &payload)))
    }

    fn kill(&mut self, from: &JobLocation, entry: &JobEntry, now_s: f64) -> Result<bool> {
        let options = &self.server.options;
        self.write(|call| jobs::kill(call, from, entry, now_s, options))
    }

    fn add_entry(&mut self, to: &JobLocation, at: f64, payload: &[u8]) -> Result<()> {
        set_only(to)?;
        let options = &self.server.options;
        self.write(|call| jobs::add_entry(call, to, at, payload, options))
    }

    fn reschedule_entry(&mut self, from: &JobLocation, entry: &JobEntry, at: f64) -> Result<bool> {
        set_only(from)?;
        self.single(|call| jobs::reschedule(call, from, entry, at))
    }

    fn clear(&mut self, from: &JobLocation, max: usize) -> Result<usize> {
        // In steps, so that other writers are not held up.
        let max = if max == 0 { usize::MAX } else { max };
        let mut cleared = 0;
        loop {
            let step = CLEAR_STEP.min(max - cleared);
            let gone = self.write(|call| jobs::clear(call, from, step))?;
            cleared += gone;
            if gone < step || cleared >= max {
                return Ok(cleared);
            }
        }
    }

    fn signal(&mut self, identity: &str, signal: &str) -> Result<()> {
        self.single(|call| owners::signal(call, identity, signal))
    }

    fn warning(&self) -> Option<String> {
        self.warning.clone()
    }

    fn own_transactions(&mut self) -> Option<&mut dyn OwnTransactions> {
        Some(self)
    }

    fn advice(&mut self) -> Result<Vec<String>> {
        self.single(advice::advice)
    }

    fn migrate(&mut self) -> Result<i64> {
        self.server.migrate(schema::STEPS)
    }

    fn backup(&mut self, _path: &str, _progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        Err(StoreError::refused("backup: copy the schema with `pg_dump --schema=chaton`"))
    }
}
