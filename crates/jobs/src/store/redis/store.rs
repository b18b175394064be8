//! The store on Redis.

use std::sync::Arc;
use std::time::Duration;

use super::connection::RedisConnection;
use super::resp::{Pipeline, RespValue};
use super::scripts::Script;
use crate::outcome::Ack;
use crate::store::clock::unix_s;
use crate::store::error::StoreError;
use crate::store::options::StoreOptions;
use crate::store::traits::{Result, Store};
use crate::store::types::*;

/// One connection to the server.
pub struct RedisStore {
    /// The connection.
    pub conn: RedisConnection,
    /// The store's settings.
    pub options: Arc<StoreOptions>,
    /// The queue of the last push, if there were jobs in it already.
    pub filled: String,
}

impl RedisStore {
    pub(super) fn run(&mut self, pipeline: &Pipeline) -> Result<std::vec::IntoIter<RespValue>> {
        Ok(self.conn.run(pipeline)?.into_iter())
    }

    pub(super) fn one(&mut self, words: &[&[u8]]) -> Result<RespValue> {
        self.conn.one(words)
    }

    /// One call of a script.
    pub(super) fn call(&mut self, script: Script, args: &[&[u8]]) -> Result<RespValue> {
        let mut pipeline = Pipeline::new();
        self.conn.script(&mut pipeline, script, args.len())?;
        for arg in args {
            pipeline.word(arg);
        }
        Ok(self.run(&pipeline)?.next().unwrap_or(RespValue::Nil))
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
        acks: &[Ack],
        request: Option<&ClaimRequest<'_>>,
    ) -> Result<ClaimReply> {
        self.ack_and_claim_jobs(owner, acks, request)
    }

    fn acquire(
        &mut self,
        owner: &str,
        requests: &[LimitRequest<'_>],
        now_s: f64,
    ) -> Result<Vec<Grant>> {
        self.acquire_limits(owner, requests, now_s)
    }

    fn unlock(&mut self, locks: &[HeldLock<'_>]) -> Result<()> {
        if locks.is_empty() {
            return Ok(());
        }
        let words: Vec<&[u8]> =
            locks.iter().flat_map(|l| [l.key.as_bytes(), l.jid.as_bytes()]).collect();
        self.call(Script::Unlock, &words).map(|_| ())
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

    fn heartbeat(&mut self, report: &ProcessReport<'_>) -> Result<HeartbeatReply> {
        self.write_heartbeat(report)
    }

    fn owners(&mut self) -> Result<Vec<OwnerStatus>> {
        self.list_owners()
    }

    fn sidekiq_processes(&mut self) -> Result<Vec<String>> {
        self.list_sidekiq_processes()
    }

    fn in_flight(&mut self, owner: &str) -> Result<Vec<ClaimedJob>> {
        self.list_in_flight(owner)
    }

    fn forget(&mut self, owner: &str) -> Result<bool> {
        Ok(self.call(Script::Forget, &[owner.as_bytes()])?.count() == 1)
    }

    fn connect(&mut self) -> Result<()> {
        self.conn.ensure()
    }

    fn connections(&self) -> u64 {
        self.conn.connections()
    }

    fn restore(&mut self, owner: &str, jobs: &[ClaimedJob]) -> Result<usize> {
        self.restore_in_flight(owner, jobs)
    }

    fn pause(&mut self, queue: &str, paused: bool) -> Result<()> {
        let verb: &[u8] = if paused { b"SADD" } else { b"SREM" };
        self.one(&[verb, b"paused", queue.as_bytes()]).map(|_| ())
    }

    fn cancel(&mut self, jid: &str) -> Result<()> {
        let now = unix_s();
        let mut pipeline = Pipeline::new();
        pipeline.begin(4).word("ZADD").word("chaton:cancels").float(now).word(jid);
        pipeline.begin(4).word("ZREMRANGEBYSCORE").word("chaton:cancels").word("-inf");
        pipeline.float(now - CANCEL_TTL.as_secs_f64());
        self.conn.atomic(&pipeline).map(|_| ())
    }

    fn cancelled(&mut self, jids: &[&str]) -> Result<Vec<bool>> {
        if jids.is_empty() {
            return Ok(Vec::new());
        }
        let mut pipeline = Pipeline::new();
        pipeline.begin(jids.len() + 2).word("ZMSCORE").word("chaton:cancels");
        for jid in jids {
            pipeline.word(jid);
        }
        let oldest = unix_s() - CANCEL_TTL.as_secs_f64();
        let scores = self.run(&pipeline)?.next().unwrap_or(RespValue::Nil).items();
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
        let mut pipeline = Pipeline::new();
        self.conn.script(&mut pipeline, Script::Save, 2 + 2 * fields.len())?;
        pipeline.word(key).number(ms(ttl));
        for (field, value) in fields {
            pipeline.word(field).word(value);
        }
        self.run(&pipeline).map(|_| ())
    }

    fn remove_hash(&mut self, key: &str) -> Result<()> {
        self.one(&[b"UNLINK", key.as_bytes()]).map(|_| ())
    }

    fn batch_open(&mut self, batch: &NewBatch<'_>) -> Result<()> {
        self.open_batch(batch)
    }

    fn batch_close(&mut self, bid: &str) -> Result<bool> {
        Ok(self.call(Script::BatchClose, &[bid.as_bytes()])?.count() == 1)
    }

    fn remove_open(&mut self, bid: Option<&str>) -> Result<Vec<BatchStatus>> {
        self.remove_open_batches(bid)
    }

    fn batches(&mut self, max: usize) -> Result<Vec<BatchStatus>> {
        self.unfinished_batches(max)
    }

    fn batch(&mut self, bid: &str) -> Result<Option<BatchStatus>> {
        self.batch_status(bid)
    }

    fn stats(&mut self) -> Result<Stats> {
        self.count_all()
    }

    fn reset_counter(&mut self, name: &str) -> Result<()> {
        self.one(&[b"SET", format!("stat:{name}").as_bytes(), b"0"]).map(|_| ())
    }

    fn daily_counts(&mut self, days: &[String]) -> Result<Vec<(u64, u64)>> {
        self.count_days(days)
    }

    fn queues(&mut self) -> Result<Vec<QueueStatus>> {
        self.list_queues()
    }

    fn processes(&mut self) -> Result<Vec<ProcessStatus>> {
        self.list_processes()
    }

    fn list(&mut self, from: &JobLocation, offset: usize, count: usize) -> Result<Vec<JobEntry>> {
        self.page(from, offset, count)
    }

    fn find(&mut self, jid: &str) -> Result<Option<(JobLocation, JobEntry)>> {
        self.search(jid)
    }

    fn remove(&mut self, from: &JobLocation, entry: &JobEntry) -> Result<bool> {
        self.remove_entry(from, entry)
    }

    fn enqueue_entry(&mut self, from: &JobLocation, entry: &JobEntry, now_s: f64) -> Result<bool> {
        self.requeue_entry(from, entry, now_s)
    }

    fn kill(&mut self, from: &JobLocation, entry: &JobEntry, now_s: f64) -> Result<bool> {
        self.kill_entry(from, entry, now_s)
    }

    fn add_entry(&mut self, to: &JobLocation, at: f64, payload: &[u8]) -> Result<()> {
        self.add_to_set(to, at, payload)
    }

    fn reschedule_entry(&mut self, from: &JobLocation, entry: &JobEntry, at: f64) -> Result<bool> {
        self.change_time(from, entry, at)
    }

    fn clear(&mut self, from: &JobLocation, max: usize) -> Result<usize> {
        self.clear_entries(from, max)
    }

    fn signal(&mut self, identity: &str, signal: &str) -> Result<()> {
        let key = format!("{identity}-signals");
        let mut pipeline = Pipeline::new();
        pipeline.command(&[b"LPUSH", key.as_bytes(), signal.as_bytes()]);
        pipeline.begin(3).word("EXPIRE").word(&key).number(SIGNAL_TTL.as_secs());
        self.conn.atomic(&pipeline).map(|_| ())
    }

    fn probe(&mut self) -> Result<()> {
        super::rights::check(&mut self.conn)
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

/// Whole milliseconds, at least 1 and at most what Redis takes.
pub(super) fn ms(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX).clamp(1, i64::MAX / 4)
}
