//! Redis or Valkey: Sidekiq's keys, and ours under `chaton:`.
//!
//! | key | what |
//! |---|---|
//! | `chaton:inflight:IDENTITY` | hash `TICKET:QUEUE` → document of what it claimed |
//! | `chaton:owners` | set by time (the server's clock) of who beats or claimed |
//! | `chaton:places` | hash identity → where its process is |
//! | `chaton:lock:KEY`, `chaton:tick:KEY` | who holds a lock; that a tick was pushed |
//! | `chaton:slots:KEY`, `chaton:window:KEY`, `chaton:bucket:KEY` | limiters |
//! | `chaton:batch:BID`, `…:calls`, `…:failed` | a batch, its callbacks, its failed jids |
//! | `chaton:cancels` | set by time of jids asked to end |
//!
//! The transport is our own (`stream`, `link`): a watcher must wait for the
//! server and for its own process at once, one answer must have one deadline,
//! and of a pipeline must be known which parts ran. The crate `redis` reads
//! the address, so that it means what it means to other clients.

mod address;
mod conn;
mod due;
mod failure;
mod link;
mod peers;
mod places;
mod push;
mod resp;
mod rules;
mod scripts;
mod stream;
#[cfg(test)]
mod tests;
mod turn;
mod watch;

use std::time::Duration;

use parking_lot::Mutex;

use super::*;
use address::Address;
use conn::{Conn, Shared};
use resp::{Pack, Value};

/// How long a cancel is kept.
const CANCEL_S: f64 = 24.0 * 3600.0;

/// Opens connections to one Redis or Valkey.
pub struct RedisFactory {
    shared: Arc<Shared>,
    rules: Rules,
}

/// What of the options a store needs besides the address.
#[derive(Clone, Copy)]
struct Rules {
    format: u8,
    lease: Duration,
    dead_max: usize,
    dead_age: Duration,
}

/// One connection to it.
struct RedisStore {
    conn: Conn,
    rules: Rules,
}

/// The kit for an address.
///
/// # Errors
/// [`StoreErrorKind::Refused`] naming what is wrong with the address.
pub fn factory(options: &StoreOptions) -> Result<Arc<dyn StoreFactory>> {
    Ok(Arc::new(RedisFactory::new(options)?))
}

/// Connects once and says what the operator should know of the server, such
/// as that it throws keys away when it is full.
///
/// # Errors
/// When it cannot be reached or will not do.
pub fn warning(options: &StoreOptions) -> Result<Option<String>> {
    let factory = RedisFactory::new(options)?;
    Conn::new(factory.shared.clone(), false).ensure()?;
    Ok(factory.warning())
}

impl RedisFactory {
    /// Reads the options; connects to nothing yet.
    ///
    /// # Errors
    /// [`StoreErrorKind::Refused`] naming what is wrong with the address.
    pub fn new(options: &StoreOptions) -> Result<Self> {
        let shared = Shared { address: Address::read(options)?, warning: Mutex::new(None) };
        let rules = Rules {
            format: options.format,
            lease: options.lease,
            dead_max: options.dead_max,
            dead_age: options.dead_age,
        };
        Ok(Self { shared: Arc::new(shared), rules })
    }

    /// What the operator should know of the server; known after the first
    /// connection.
    pub fn warning(&self) -> Option<String> {
        self.shared.warning.lock().clone()
    }
}

impl StoreFactory for RedisFactory {
    fn store(&self) -> Box<dyn Store> {
        Box::new(RedisStore { conn: Conn::new(self.shared.clone(), false), rules: self.rules })
    }

    fn watch(&self) -> Box<dyn StoreWatch> {
        Box::new(watch::RedisWatch::new(self.shared.clone()))
    }

    fn address(&self) -> &str {
        &self.shared.address.shown
    }
}

impl RedisStore {
    fn run(&mut self, pack: &Pack) -> Result<std::vec::IntoIter<Value>> {
        Ok(self.conn.run(pack)?.into_iter())
    }

    fn one(&mut self, words: &[&[u8]]) -> Result<Value> {
        self.conn.one(words)
    }

    /// One call of a script.
    fn call(&mut self, script: scripts::Script, args: &[&[u8]]) -> Result<Value> {
        let mut pack = Pack::new();
        self.conn.script(&mut pack, script, args.len())?;
        for arg in args {
            pack.word(arg);
        }
        Ok(self.run(&pack)?.next().unwrap_or(Value::Nil))
    }
}

impl Store for RedisStore {
    fn push(&mut self, jobs: &[NewJob<'_>]) -> Result<Vec<PushResult>> {
        self.push_jobs(jobs)
    }

    fn push_once(&mut self, key: &str, ttl: Duration, job: &NewJob<'_>) -> Result<bool> {
        self.push_tick(key, ttl, job)
    }

    fn ack_and_claim(
        &mut self,
        owner: &str,
        settles: &[Ack],
        want: Option<&ClaimRequest<'_>>,
    ) -> Result<ClaimReply> {
        self.take_turn(owner, settles, want)
    }

    fn acquire(
        &mut self,
        owner: &str,
        asks: &[LimitRequest<'_>],
        now_s: f64,
    ) -> Result<Vec<Grant>> {
        self.ask_limits(owner, asks, now_s)
    }

    fn unlock(&mut self, locks: &[HeldLock<'_>]) -> Result<()> {
        if locks.is_empty() {
            return Ok(());
        }
        let words: Vec<&[u8]> =
            locks.iter().flat_map(|l| [l.key.as_bytes(), l.jid.as_bytes()]).collect();
        self.call(scripts::Script::Unlock, &words).map(|_| ())
    }

    fn move_due(&mut self, now_s: f64, max: usize) -> Result<DueSummary> {
        self.move_due_jobs(now_s, max)
    }

    fn claim_due(
        &mut self,
        owner: &str,
        first_ticket: u64,
        now_s: f64,
        max: usize,
    ) -> Result<(Vec<ClaimedJob>, DueSummary)> {
        self.claim_due_jobs(owner, first_ticket, now_s, max)
    }

    fn heartbeat(&mut self, beat: &ProcessReport<'_>) -> Result<HeartbeatReply> {
        self.give_beat(beat)
    }

    fn owners(&mut self) -> Result<Vec<OwnerStatus>> {
        self.list_owners()
    }

    fn in_flight(&mut self, owner: &str) -> Result<Vec<ClaimedJob>> {
        self.list_in_flight(owner)
    }

    fn forget(&mut self, owner: &str) -> Result<bool> {
        Ok(self.call(scripts::Script::Forget, &[owner.as_bytes()])?.count() == 1)
    }

    fn pause(&mut self, queue: &str, paused: bool) -> Result<()> {
        let verb: &[u8] = if paused { b"SADD" } else { b"SREM" };
        self.one(&[verb, b"paused", queue.as_bytes()]).map(|_| ())
    }

    fn cancel(&mut self, jid: &str) -> Result<()> {
        let now = unix_s();
        let mut pack = Pack::new();
        pack.begin(4).word("ZADD").word("chaton:cancels").float(now).word(jid);
        pack.begin(4).word("ZREMRANGEBYSCORE").word("chaton:cancels").word("-inf");
        pack.float(now - CANCEL_S);
        self.conn.atomic(&pack).map(|_| ())
    }

    fn cancelled(&mut self, jids: &[&str]) -> Result<Vec<bool>> {
        if jids.is_empty() {
            return Ok(Vec::new());
        }
        let mut pack = Pack::new();
        pack.begin(jids.len() + 2).word("ZMSCORE").word("chaton:cancels");
        for jid in jids {
            pack.word(jid);
        }
        let oldest = unix_s() - CANCEL_S;
        let scores = self.run(&pack)?.next().unwrap_or(Value::Nil).items();
        Ok(scores.iter().map(|s| s.float().is_some_and(|at| at > oldest)).collect())
    }

    fn load(&mut self, key: &str) -> Result<Vec<(String, Vec<u8>)>> {
        let hash = self.one(&[b"HGETALL", key.as_bytes()])?;
        Ok(hash.pairs().into_iter().map(|(field, value)| (field.text(), value.bytes())).collect())
    }

    fn save(&mut self, key: &str, fields: &[(&str, &[u8])], ttl: Duration) -> Result<()> {
        if fields.is_empty() {
            return Ok(());
        }
        let mut pack = Pack::new();
        pack.begin(2 + 2 * fields.len()).word("HSET").word(key);
        for (field, value) in fields {
            pack.word(field).word(value);
        }
        pack.begin(3).word("PEXPIRE").word(key).number(ms(ttl));
        self.conn.atomic(&pack).map(|_| ())
    }

    fn remove_hash(&mut self, key: &str) -> Result<()> {
        self.one(&[b"UNLINK", key.as_bytes()]).map(|_| ())
    }

    fn batch_open(&mut self, batch: &NewBatch<'_>) -> Result<()> {
        self.open_batch(batch)
    }

    fn batch_close(&mut self, bid: &str) -> Result<()> {
        self.call(scripts::Script::BatchClose, &[bid.as_bytes()]).map(|_| ())
    }

    fn batch(&mut self, bid: &str) -> Result<Option<BatchStatus>> {
        self.show_batch(bid)
    }

    fn stats(&mut self) -> Result<Stats> {
        self.count_all()
    }

    fn queues(&mut self) -> Result<Vec<QueueStatus>> {
        self.list_queues()
    }

    fn processes(&mut self) -> Result<Vec<ProcessStatus>> {
        self.list_processes()
    }

    fn list(&mut self, place: &JobLocation, offset: usize, count: usize) -> Result<Vec<JobEntry>> {
        self.page(place, offset, count)
    }

    fn find(&mut self, jid: &str) -> Result<Option<(JobLocation, JobEntry)>> {
        self.search(jid)
    }

    fn remove(&mut self, place: &JobLocation, entry: &JobEntry) -> Result<bool> {
        self.drop_entry(place, entry)
    }

    fn requeue(&mut self, place: &JobLocation, entry: &JobEntry, now_s: f64) -> Result<bool> {
        self.requeue_entry(place, entry, now_s)
    }

    fn kill(&mut self, place: &JobLocation, entry: &JobEntry, now_s: f64) -> Result<bool> {
        self.kill_entry(place, entry, now_s)
    }

    fn clear(&mut self, place: &JobLocation, max: usize) -> Result<usize> {
        self.clear_place(place, max)
    }

    fn signal(&mut self, identity: &str, signal: &str) -> Result<()> {
        let key = format!("{identity}-signals");
        let mut pack = Pack::new();
        pack.command(&[b"LPUSH", key.as_bytes(), signal.as_bytes()]);
        // As long as Sidekiq's own UI lets one wait.
        pack.command(&[b"EXPIRE", key.as_bytes(), b"60"]);
        self.conn.atomic(&pack).map(|_| ())
    }

    fn backup(&mut self, _: &str, _: &mut dyn FnMut(u64, u64)) -> Result<()> {
        Err(StoreError::refused(format!(
            "{}: Redis has its own tool for a copy: redis-cli --rdb FILE",
            self.conn.shared().address.shown
        )))
    }
}

fn ms(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX).clamp(1, i64::MAX / 4)
}

/// Now, for what has no time among its arguments.
fn unix_s() -> f64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map(|now| now.as_secs_f64()).unwrap_or_default()
}
