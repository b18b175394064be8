//! The store on PostgreSQL.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::connection::{args, Call, Mode};
use super::errors;
use super::jobs::{is_plain, plain_tickets};
use super::server::Server;
use super::{advice, batches, inspect, jobs, limits, outbox, owners, schema};
use crate::outcome::Ack;
use crate::store::clock::unix_s;
use crate::store::limiter;
use crate::store::payload::{requeued, set_only};
use crate::store::traits::{
    in_steps, no_file, Answer, Change, OwnTransactions, Query, Result, Store,
};
use crate::store::types::*;
use crate::store::StoreError;

/// Time between two removals of expired rows.
const CLEANUP_EVERY: Duration = Duration::from_secs(300);
/// Time between two looks for a transaction that keeps the rows of finished jobs from being removed.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// The part of a log file's name that stands for its timeline.
const TIMELINE: &str = "SELECT CASE WHEN NOT pg_is_in_recovery()
    THEN left(pg_walfile_name(pg_current_wal_lsn()), 8) END";

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
        self.server.run(Mode::Single, op)
    }

    /// The same, for what reads many rows of the jobs.
    fn planned<T>(&self, op: impl FnMut(&mut Call<'_>) -> errors::Result<T>) -> Result<T> {
        self.server.run(Mode::Planned, op)
    }

    /// A statement with one parameter that changes rows.
    fn tell(&self, statement: &str, what: &str) -> Result<Answer> {
        Ok(self.single(|call| call.exec(statement, args![what]))?.into())
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
        let limited = requests.iter().any(|request| !request.limits.is_empty());
        self.write(|call| {
            if limited {
                limits::serialize_limits(call)?;
            }
            limiter::acquire(call, owner, requests, now_s)
        })
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
            self.write(|call| {
                limits::serialize_limits(call)?;
                limiter::look_at_all(call, report.now_s)
            })?;
        }
        Ok(reply)
    }

    fn warning(&self) -> Option<String> {
        self.warning.clone()
    }

    fn own_transactions(&mut self) -> Option<&mut dyn OwnTransactions> {
        Some(self)
    }

    fn backup(&mut self, _path: &str, _progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        Err(StoreError::refused("backup: copy the schema with `pg_dump --schema=chaton`"))
    }

    fn query(&mut self, query: Query<'_>) -> Result<Answer> {
        let lease_s = self.lease_s();
        Ok(match query {
            Query::Owners() => self.single(owners::owners)?.into(),
            Query::InFlight(owner) => self.single(|call| jobs::in_flight(call, owner))?.into(),
            Query::Cancelled(jids) => self.single(|call| inspect::cancelled(call, jids))?.into(),
            Query::Load(key) => self.single(|call| inspect::load(call, key))?.into(),
            Query::Batch(bid) => self.single(|call| batches::status(call, bid))?.into(),
            Query::Batches(max) => self.single(|call| batches::unfinished(call, max))?.into(),
            Query::Probe() => self.single(|call| call.exec("SELECT 1", &[]))?.into(),
            Query::Stats() => self.planned(|call| inspect::stats(call, lease_s))?.into(),
            Query::DailyCounts(days) => vec![(0, 0); days.len()].into(),
            Query::Queues() => self.planned(|call| inspect::queues(call, unix_s()))?.into(),
            Query::Processes() => self.single(|call| owners::processes(call, lease_s))?.into(),
            Query::List(from, offset, count) => {
                self.planned(|call| inspect::list(call, from, offset, count))?.into()
            }
            Query::Find(jid) => self.planned(|call| inspect::find(call, jid))?.into(),
            Query::SidekiqProcesses() => Answer::Texts(vec![]),
            Query::Outbox() => Some(self.single(outbox::status)?).into(),
            Query::Advice() => self.single(advice::advice)?.into(),
        })
    }

    fn change(&mut self, change: Change<'_>) -> Result<Answer> {
        let options = &self.server.options;
        Ok(match change {
            Change::Unlock(locks) => {
                let (keys, jids): (Vec<&str>, Vec<&str>) =
                    locks.iter().map(|lock| (lock.key, lock.jid)).unzip();
                self.planned(|call| limits::unlock(call, &keys, &jids))?.into()
            }
            Change::Forget(owner) => self.write(|call| owners::forget(call, owner))?.into(),
            Change::Pause(queue, paused) => {
                self.single(|call| inspect::pause(call, queue, paused))?.into()
            }
            Change::Cancel(jid) => self.single(|call| inspect::cancel(call, jid))?.into(),
            Change::Save(key, fields, ttl) => {
                self.write(|call| inspect::save(call, key, fields, ttl.as_secs_f64()))?.into()
            }
            Change::RemoveHash(key) => self.tell("DELETE FROM chaton.hashes WHERE key=$1", key)?,
            Change::BatchOpen(batch) => self.write(|call| batches::open(call, batch))?.into(),
            Change::BatchClose(bid) => self.write(|call| batches::close(call, bid))?.into(),
            Change::RemoveOpen(bid) => self.write(|call| batches::remove_open(call, bid))?.into(),
            Change::ResetCounter(name) => {
                self.tell("UPDATE chaton.counters SET value=0 WHERE name=$1", name)?
            }
            Change::Remove(from, entry) => {
                self.write(|call| jobs::remove(call, from, entry))?.into()
            }
            Change::Enqueue(from, entry, now_s) => {
                let (queue, payload) = requeued(from, entry, now_s, options.format)?;
                self.write(|call| jobs::enqueue_entry(call, from, entry, (&queue, &payload)))?
                    .into()
            }
            Change::Kill(from, entry, now_s) => {
                self.write(|call| jobs::kill(call, from, entry, now_s, options))?.into()
            }
            Change::Add(to, at, payload) => {
                set_only(to)?;
                self.write(|call| jobs::add_entry(call, to, at, payload, options))?.into()
            }
            Change::Reschedule(from, entry, at) => {
                set_only(from)?;
                self.single(|call| jobs::reschedule(call, from, entry, at))?.into()
            }
            Change::Clear(from, max) => {
                in_steps(max, |step| self.write(|call| jobs::clear(call, from, step)))?.into()
            }
            Change::Signal(identity, signal) => {
                self.single(|call| owners::signal(call, identity, signal))?.into()
            }
            Change::Migrate() => self.server.migrate(schema::STEPS)?.into(),
            Change::Vacuum(_) => return no_file(),
        })
    }
}
