//! Redis or Valkey: Sidekiq's keys, and Chaton's own under `chaton:`.
//!
//! | key | content |
//! |---|---|
//! | `chaton:high:QUEUE`, `chaton:low:QUEUE` | lists of the queue's jobs with a priority below 0 and above 0; the others are in `queue:QUEUE` |
//! | `chaton:inflight:IDENTITY` | hash `TICKET:QUEUE` → document of the jobs it claimed |
//! | `chaton:owners` | set of owners by the time of their last heartbeat or first claim (server's clock) |
//! | `chaton:places` | hash identity → boot id, pid namespace, pid and start time |
//! | `chaton:lock:KEY`, `chaton:tick:KEY` | the jid that holds a lock; that a tick was pushed |
//! | `chaton:slots:KEY`, `chaton:window:KEY`, `chaton:bucket:KEY` | limiters |
//! | `chaton:batch:BID`, `…:calls`, `…:failed` | a batch, its callbacks, its failed jids |
//! | `chaton:turn:QUEUE`, `chaton:mover` | that one of the idle processes is about to claim, or to move due jobs |
//! | `chaton:cancels` | set of cancelled jids by time |
//!
//! The connections are those of `chaton-redis`.

mod ack_and_claim;
mod batches;
mod due;
mod entries;
mod expiring;
mod limits;
mod processes;
mod push;
mod rights;
mod scripts;
mod store;
#[cfg(test)]
mod tests;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use super::error::StoreError;
use super::options::StoreOptions;
use super::payload;
use super::traits::{
    no_file, no_tables, Answer, Change, Query, Result, Store, StoreFactory, StoreWatch,
};
use super::types::*;
use crate::outcome::Ack;
use chaton_redis::{AddressOptions, RedisAddress, RedisConnection, ServerHandle};
use scripts::Script;
use store::RedisStore;
use watch::RedisWatch;

/// What the keys of a queue's lists begin with, in the order in which jobs are claimed: those with a priority below 0,
/// those without one, those above 0.
const LISTS: [&str; 3] = ["chaton:high:", "queue:", "chaton:low:"];

/// The list of [`LISTS`] that a job belongs to.
fn list_of(payload: &[u8]) -> &'static str {
    LISTS[(payload::priority_of(payload).signum() + 1) as usize]
}

/// Opens connections to one server.
struct RedisFactory {
    server: Arc<ServerHandle>,
    options: Arc<StoreOptions>,
}

impl RedisFactory {
    fn new(options: &StoreOptions) -> Result<Self> {
        let server = ServerHandle::new(RedisAddress::read(address(options))?, options.forks);
        let server = Arc::new(server);
        Ok(Self { server, options: Arc::new(options.clone()) })
    }
}

/// What the settings say about the server.
fn address(options: &StoreOptions) -> AddressOptions<'_> {
    AddressOptions {
        url: &options.url,
        user: [options.username.as_deref(), options.password.as_deref()],
        sentinel_user: [options.sentinel_username.as_deref(), options.sentinel_password.as_deref()],
        tls_files: [
            options.tls_ca_file.as_deref(),
            options.tls_cert_file.as_deref(),
            options.tls_key_file.as_deref(),
        ],
        tls_verify: options.tls_verify,
        timeouts: [options.connect_timeout, options.answer_timeout],
    }
}

/// The factory for an address. It does not connect yet.
///
/// # Errors
/// [`super::StoreErrorKind::Refused`] naming what is wrong with the address.
pub fn factory(options: &StoreOptions) -> Result<Arc<dyn StoreFactory>> {
    Ok(Arc::new(RedisFactory::new(options)?))
}

impl StoreFactory for RedisFactory {
    fn store(&self) -> Box<dyn Store> {
        let conn = RedisConnection::new(self.server.clone(), &scripts::SCRIPTS);
        Box::new(RedisStore { conn, options: self.options.clone(), filled: String::new() })
    }

    fn watch(&self) -> Box<dyn StoreWatch> {
        Box::new(RedisWatch::new(self.server.clone()))
    }

    fn address(&self) -> &str {
        &self.server.address.shown
    }
}

impl Store for RedisStore {
    fn push(&mut self, jobs: &[NewJob<'_>]) -> Result<Vec<PushResult>> {
        push::push(self, jobs)
    }

    fn push_once(&mut self, key: &str, ttl: Duration, job: &NewJob<'_>) -> Result<bool> {
        push::push_once(self, key, ttl, job)
    }

    fn ack_and_claim(
        &mut self,
        owner: &str,
        acks: &[Ack],
        request: Option<&ClaimRequest<'_>>,
    ) -> Result<ClaimReply> {
        ack_and_claim::ack_and_claim(self, owner, acks, request)
    }

    fn acquire(
        &mut self,
        owner: &str,
        requests: &[LimitRequest<'_>],
        now_s: f64,
    ) -> Result<Vec<Grant>> {
        limits::acquire(self, owner, requests, now_s)
    }

    fn move_due(&mut self, now_s: f64, max: usize) -> Result<DueSummary> {
        due::move_due(self, now_s, max)
    }

    fn claim_due(
        &mut self,
        owner: &str,
        first_ticket: u64,
        now_s: f64,
        max: usize,
    ) -> Result<(Vec<ClaimedJob>, DueSummary)> {
        due::claim_due(self, owner, first_ticket, now_s, max)
    }

    fn heartbeat(&mut self, report: &ProcessReport<'_>) -> Result<HeartbeatReply> {
        processes::heartbeat(self, report)
    }

    fn connect(&mut self) -> Result<()> {
        self.conn.ensure()
    }

    fn connections(&self) -> u64 {
        self.conn.connections()
    }

    fn restore(&mut self, owner: &str, jobs: &[ClaimedJob]) -> Result<usize> {
        processes::restore(self, owner, jobs)
    }

    fn query(&mut self, query: Query<'_>) -> Result<Answer> {
        Ok(match query {
            Query::Owners() => processes::owners(self)?.into(),
            Query::SidekiqProcesses() => processes::sidekiq_processes(self)?.into(),
            Query::InFlight(owner) => processes::in_flight(self, owner)?.into(),
            Query::Cancelled(jids) => expiring::cancelled(self, jids)?.into(),
            Query::Load(key) => expiring::load(self, key)?.into(),
            Query::Batch(bid) => batches::status(self, bid)?.into(),
            Query::Batches(max) => batches::unfinished(self, max)?.into(),
            Query::Probe() => rights::check(&mut self.conn)?.into(),
            Query::Stats() => entries::stats(self)?.into(),
            Query::DailyCounts(days) => entries::daily_counts(self, days)?.into(),
            Query::Queues() => entries::queues(self)?.into(),
            Query::Processes() => processes::processes(self)?.into(),
            Query::List(from, offset, count) => entries::list(self, from, offset, count)?.into(),
            Query::Outbox() => Answer::Outbox(None),
            Query::Find(jid) => entries::find(self, jid)?.into(),
            Query::Advice() => Answer::Texts(vec![]),
        })
    }

    fn change(&mut self, change: Change<'_>) -> Result<Answer> {
        Ok(match change {
            Change::Unlock(locks) => limits::unlock(self, locks)?.into(),
            Change::Forget(owner) => {
                (self.call(Script::Forget, &[owner.as_bytes()])?.count() == 1).into()
            }
            Change::Pause(queue, paused) => {
                let verb: &[u8] = if paused { b"SADD" } else { b"SREM" };
                self.tell(&[verb, b"paused", queue.as_bytes()])?
            }
            Change::Cancel(jid) => expiring::cancel(self, jid)?.into(),
            Change::Save(key, fields, ttl) => expiring::save(self, key, fields, ttl)?.into(),
            Change::RemoveHash(key) => self.tell(&[b"UNLINK", key.as_bytes()])?,
            Change::BatchOpen(batch) => batches::open(self, batch)?.into(),
            Change::BatchClose(bid) => {
                (self.call(Script::BatchClose, &[bid.as_bytes()])?.count() == 1).into()
            }
            Change::RemoveOpen(bid) => batches::remove_open(self, bid)?.into(),
            Change::ResetCounter(name) => {
                self.tell(&[b"SET", format!("stat:{name}").as_bytes(), b"0"])?
            }
            Change::Remove(from, entry) => entries::remove(self, from, entry)?.into(),
            Change::Enqueue(from, entry, now_s) => {
                entries::enqueue_entry(self, from, entry, now_s)?.into()
            }
            Change::Kill(from, entry, now_s) => entries::kill(self, from, entry, now_s)?.into(),
            Change::Add(to, at, payload) => entries::add_entry(self, to, at, payload)?.into(),
            Change::Reschedule(from, entry, at) => {
                entries::reschedule_entry(self, from, entry, at)?.into()
            }
            Change::Clear(from, max) => entries::clear(self, from, max)?.into(),
            Change::Signal(identity, signal) => processes::signal(self, identity, signal)?.into(),
            Change::Migrate() => return no_tables(),
            Change::Vacuum(_) => return no_file(),
        })
    }

    fn warning(&self) -> Option<String> {
        self.conn.warning()
    }

    fn backup(&mut self, _: &str, _: &mut dyn FnMut(u64, u64)) -> Result<()> {
        Err(StoreError::refused(format!(
            "{}: Redis has its own tool for a copy: redis-cli --rdb FILE",
            self.conn.address().shown
        )))
    }
}
