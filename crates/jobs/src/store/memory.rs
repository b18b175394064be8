//! A store in this process's memory, which only this crate's tests compile:
//! `memory://NAME` is shared by all that open this name in the process, and lost
//! with the process. It passes the same conformance suite as the other stores.

mod batches;
mod data;
mod due;
mod entries;
mod expiring_map;
mod limits;
mod lines;
mod processes;
mod queues;
mod sorted_set;
mod watch;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::error::StoreError;
use super::options::StoreOptions;
use super::payload::set_only;
use super::traits::{Result, Store, StoreFactory, StoreWatch};
use super::types::*;
use crate::outcome::Ack;
use data::{MemoryData, SharedData};

/// All memory stores of this process. They live as long as it does.
static STORES: Mutex<BTreeMap<String, Arc<SharedData>>> = Mutex::new(BTreeMap::new());

struct MemoryFactory {
    shared: Arc<SharedData>,
    options: Arc<StoreOptions>,
}

struct MemoryStore {
    shared: Arc<SharedData>,
    options: Arc<StoreOptions>,
}

/// The factory for `memory://NAME`.
///
/// # Errors
/// [`StoreErrorKind::Refused`] when the address has no name.
pub fn factory(options: &StoreOptions) -> Result<Arc<dyn StoreFactory>> {
    let name = options.url.strip_prefix("memory://").unwrap_or_default();
    if name.is_empty() {
        return Err(StoreError::refused(format!(
            "store {:?}: no name; write memory://NAME, any word will do",
            options.url
        )));
    }
    let new = || Arc::new(SharedData { data: Mutex::default(), changed: Condvar::new() });
    let shared = STORES.lock().entry(name.to_string()).or_insert_with(new).clone();
    Ok(Arc::new(MemoryFactory { shared, options: Arc::new(options.clone()) }))
}

impl StoreFactory for MemoryFactory {
    fn store(&self) -> Box<dyn Store> {
        Box::new(MemoryStore { shared: self.shared.clone(), options: self.options.clone() })
    }

    fn watch(&self) -> Box<dyn StoreWatch> {
        Box::new(watch::MemoryWatch::new(self.shared.clone()))
    }

    fn address(&self) -> &str {
        &self.options.url
    }
}

impl MemoryStore {
    /// Makes one change atomically.
    fn step<R>(&self, step: impl FnOnce(&mut MemoryData) -> R) -> Result<R> {
        let mut data = self.shared.data.lock();
        let before = data.changes();
        let answer = step(&mut data);
        if data.changes() != before {
            self.shared.changed.notify_all();
        }
        Ok(answer)
    }
}

impl Store for MemoryStore {
    fn push(&mut self, jobs: &[NewJob<'_>]) -> Result<Vec<PushResult>> {
        self.step(|data| data.push(jobs))
    }

    fn push_once(&mut self, key: &str, ttl: Duration, job: &NewJob<'_>) -> Result<bool> {
        self.step(|data| data.push_once(key, ttl, job))
    }

    fn ack_and_claim(
        &mut self,
        owner: &str,
        acks: &[Ack],
        request: Option<&ClaimRequest<'_>>,
    ) -> Result<ClaimReply> {
        self.step(|data| data.ack_and_claim(owner, acks, request, &self.options))
    }

    fn acquire(
        &mut self,
        owner: &str,
        requests: &[LimitRequest<'_>],
        now_s: f64,
    ) -> Result<Vec<Grant>> {
        self.step(|data| data.acquire(owner, requests, now_s))
    }

    fn unlock(&mut self, locks: &[HeldLock<'_>]) -> Result<()> {
        self.step(|data| locks.iter().for_each(|lock| data.unlock(lock.key, lock.jid)))
    }

    fn move_due(&mut self, now_s: f64, max: usize) -> Result<DueSummary> {
        self.step(|data| data.move_due(now_s, max, &self.options))
    }

    fn claim_due(
        &mut self,
        owner: &str,
        first_ticket: u64,
        now_s: f64,
        max: usize,
    ) -> Result<(Vec<ClaimedJob>, DueSummary)> {
        self.step(|data| data.claim_due(owner, first_ticket, now_s, max, &self.options))
    }

    fn heartbeat(&mut self, report: &ProcessReport<'_>) -> Result<HeartbeatReply> {
        self.step(|data| data.heartbeat(report))
    }

    fn owners(&mut self) -> Result<Vec<OwnerStatus>> {
        self.step(|data| data.owner_statuses())
    }

    fn in_flight(&mut self, owner: &str) -> Result<Vec<ClaimedJob>> {
        self.step(|data| data.in_flight(owner))
    }

    fn forget(&mut self, owner: &str) -> Result<bool> {
        self.step(|data| data.forget(owner))
    }

    fn restore(&mut self, owner: &str, jobs: &[ClaimedJob]) -> Result<usize> {
        self.step(|data| data.restore(owner, jobs))
    }

    fn pause(&mut self, queue: &str, paused: bool) -> Result<()> {
        self.step(|data| data.pause(queue, paused))
    }

    fn cancel(&mut self, jid: &str) -> Result<()> {
        self.step(|data| {
            data.cancels.put(jid, (), CANCEL_TTL);
            data.touch();
        })
    }

    fn cancelled(&mut self, jids: &[&str]) -> Result<Vec<bool>> {
        self.step(|data| jids.iter().map(|jid| data.cancels.get(jid).is_some()).collect())
    }

    fn load(&mut self, key: &str) -> Result<Vec<(String, Vec<u8>)>> {
        self.step(|data| {
            let hash = data.hashes.get(key).cloned().unwrap_or_default();
            hash.into_iter().collect()
        })
    }

    fn save(&mut self, key: &str, fields: &[(&str, &[u8])], ttl: Duration) -> Result<()> {
        self.step(|data| {
            let mut hash = data.hashes.get(key).cloned().unwrap_or_default();
            hash.extend(fields.iter().map(|(name, value)| (name.to_string(), value.to_vec())));
            data.hashes.put(key, hash, ttl);
        })
    }

    fn remove_hash(&mut self, key: &str) -> Result<()> {
        self.step(|data| data.hashes.remove(key))
    }

    fn batch_open(&mut self, batch: &NewBatch<'_>) -> Result<()> {
        self.step(|data| data.batch_open(batch))
    }

    fn batch_close(&mut self, bid: &str) -> Result<bool> {
        self.step(|data| data.batch_close(bid))
    }

    fn remove_open(&mut self, bid: Option<&str>) -> Result<Vec<BatchStatus>> {
        self.step(|data| data.remove_open(bid))
    }

    fn batch(&mut self, bid: &str) -> Result<Option<BatchStatus>> {
        self.step(|data| data.batch_status(bid))
    }

    fn stats(&mut self) -> Result<Stats> {
        self.step(|data| data.stats(self.options.lease))
    }

    fn queues(&mut self) -> Result<Vec<QueueStatus>> {
        self.step(|data| data.queue_statuses())
    }

    fn processes(&mut self) -> Result<Vec<ProcessStatus>> {
        self.step(|data| data.processes(self.options.lease))
    }

    fn list(
        &mut self,
        location: &JobLocation,
        offset: usize,
        count: usize,
    ) -> Result<Vec<JobEntry>> {
        self.step(|data| data.list(location, offset, count))
    }

    fn find(&mut self, jid: &str) -> Result<Option<(JobLocation, JobEntry)>> {
        self.step(|data| data.find(jid))
    }

    fn remove(&mut self, location: &JobLocation, entry: &JobEntry) -> Result<bool> {
        self.step(|data| data.remove(location, entry))
    }

    fn enqueue_entry(
        &mut self,
        location: &JobLocation,
        entry: &JobEntry,
        now_s: f64,
    ) -> Result<bool> {
        self.step(|data| data.enqueue_entry(location, entry, now_s, &self.options))?
    }

    fn kill(&mut self, location: &JobLocation, entry: &JobEntry, now_s: f64) -> Result<bool> {
        self.step(|data| data.kill(location, entry, now_s, &self.options))
    }

    fn add_entry(&mut self, location: &JobLocation, at: f64, payload: &[u8]) -> Result<()> {
        set_only(location)?;
        self.step(|data| data.add_entry(location, at, payload, &self.options))
    }

    fn reschedule_entry(
        &mut self,
        location: &JobLocation,
        entry: &JobEntry,
        at: f64,
    ) -> Result<bool> {
        set_only(location)?;
        self.step(|data| data.reschedule(location, entry, at))
    }

    fn reset_counter(&mut self, name: &str) -> Result<()> {
        self.step(|data| match name {
            "failed" => data.failed = 0,
            _ => data.processed = 0,
        })
    }

    fn clear(&mut self, location: &JobLocation, max: usize) -> Result<usize> {
        self.step(|data| data.clear(location, max))
    }

    fn signal(&mut self, identity: &str, signal: &str) -> Result<()> {
        self.step(|data| data.signal(identity, signal))
    }

    fn backup(&mut self, _: &str, _: &mut dyn FnMut(u64, u64)) -> Result<()> {
        Err(StoreError::refused(format!(
            "{}: there is no file to copy, its jobs live in one process's memory; \
             use sqlite://PATH for jobs that last",
            self.options.url
        )))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::store::*;

    /// A name that no other test has.
    fn fresh() -> Arc<dyn StoreFactory> {
        static NAMES: AtomicUsize = AtomicUsize::new(0);
        let name = NAMES.fetch_add(1, Ordering::Relaxed);
        super::factory(&StoreOptions::for_tests(format!("memory://conformance-{name}"))).unwrap()
    }

    crate::store::conformance::conformance!(fresh);

    #[test]
    fn each_number_has_its_place() {
        crate::store::conformance::priorities::each_number_has_its_place(&fresh);
    }

    #[test]
    fn an_address_needs_a_name() {
        let error = super::factory(&StoreOptions::for_tests("memory://")).unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Refused);
        assert!(error.message.contains("memory://NAME"), "{error}");
    }

    #[test]
    fn the_format_decides_how_times_are_written() {
        let new = NewJob {
            queue: "q",
            payload: br#"{"queue":"q"}"#,
            at: Some(5.0),
            lock: None,
            bid: None,
        };
        for (format, stamp) in [(6, "7.25"), (7, "7.25"), (8, "7250")] {
            let name = format!("memory://stamp-{format}");
            let mut store =
                super::factory(&StoreOptions { format, ..StoreOptions::for_tests(name) })
                    .unwrap()
                    .store();
            store.push(&[new]).unwrap();
            assert_eq!(store.move_due(7.25, 1).unwrap().moved, 1);
            let moved =
                store.list(&JobLocation::Queue("q".into()), 0, 1).unwrap().remove(0).payload;
            let expected = format!(r#"{{"queue":"q","enqueued_at":{stamp}}}"#);
            assert_eq!(String::from_utf8(moved).unwrap(), expected);
        }
    }

    #[test]
    fn a_backup_is_refused() {
        let error = fresh().store().backup("/nowhere", &mut |_, _| ()).unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Refused);
    }
}
