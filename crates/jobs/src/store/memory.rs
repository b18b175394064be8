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

use super::options::StoreOptions;
use super::payload::set_only;
use super::traits::{
    no_file, no_tables, Answer, Change, Query, Result, Store, StoreFactory, StoreWatch,
};
use super::types::*;
use super::StoreError;
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

    fn restore(&mut self, owner: &str, jobs: &[ClaimedJob]) -> Result<usize> {
        self.step(|data| data.restore(owner, jobs))
    }

    fn backup(&mut self, _: &str, _: &mut dyn FnMut(u64, u64)) -> Result<()> {
        Err(StoreError::refused(format!(
            "{}: there is no file to copy, its jobs live in one process's memory; \
             use sqlite://PATH for jobs that last",
            self.options.url
        )))
    }

    fn query(&mut self, query: Query<'_>) -> Result<Answer> {
        let lease = self.options.lease;
        self.step(|data| match query {
            Query::Owners() => data.owner_statuses().into(),
            Query::InFlight(owner) => data.in_flight(owner).into(),
            Query::Cancelled(jids) => {
                let cancelled = jids.iter().map(|jid| data.cancels.get(jid).is_some());
                cancelled.collect::<Vec<_>>().into()
            }
            Query::Load(key) => {
                let hash = data.hashes.get(key).cloned().unwrap_or_default();
                hash.into_iter().collect::<Vec<_>>().into()
            }
            Query::Batch(bid) => data.batch_status(bid).into(),
            Query::Batches(_) => Answer::Batches(vec![]),
            Query::Probe() => Answer::Done(()),
            Query::Stats() => data.stats(lease).into(),
            Query::DailyCounts(days) => vec![(0, 0); days.len()].into(),
            Query::Queues() => data.queue_statuses().into(),
            Query::Processes() => data.processes(lease).into(),
            Query::List(from, offset, count) => data.list(from, offset, count).into(),
            Query::Outbox() => Answer::Outbox(None),
            Query::Find(jid) => data.find(jid).into(),
            Query::SidekiqProcesses() | Query::Advice() => Answer::Texts(vec![]),
        })
    }

    #[allow(clippy::unit_arg)] // most answer nothing
    fn change(&mut self, change: Change<'_>) -> Result<Answer> {
        let options = &self.options;
        self.step(|data| {
            Ok(match change {
                Change::Unlock(locks) => {
                    locks.iter().for_each(|lock| data.unlock(lock.key, lock.jid)).into()
                }
                Change::Forget(owner) => data.forget(owner).into(),
                Change::Pause(queue, paused) => data.pause(queue, paused).into(),
                Change::Cancel(jid) => {
                    data.cancels.put(jid, (), CANCEL_TTL);
                    data.touch().into()
                }
                Change::Save(key, fields, ttl) => {
                    let mut hash = data.hashes.get(key).cloned().unwrap_or_default();
                    hash.extend(
                        fields.iter().map(|(name, value)| (name.to_string(), value.to_vec())),
                    );
                    data.hashes.put(key, hash, ttl).into()
                }
                Change::RemoveHash(key) => data.hashes.remove(key).into(),
                Change::BatchOpen(batch) => data.batch_open(batch).into(),
                Change::BatchClose(bid) => data.batch_close(bid).into(),
                Change::RemoveOpen(bid) => data.remove_open(bid).into(),
                Change::ResetCounter("failed") => {
                    data.failed = 0;
                    Answer::Done(())
                }
                Change::ResetCounter(_) => {
                    data.processed = 0;
                    Answer::Done(())
                }
                Change::Remove(from, entry) => data.remove(from, entry).into(),
                Change::Enqueue(from, entry, now_s) => {
                    data.enqueue_entry(from, entry, now_s, options)?.into()
                }
                Change::Kill(from, entry, now_s) => data.kill(from, entry, now_s, options).into(),
                Change::Add(to, at, payload) => {
                    set_only(to)?;
                    data.add_entry(to, at, payload, options).into()
                }
                Change::Reschedule(from, entry, at) => {
                    set_only(from)?;
                    data.reschedule(from, entry, at).into()
                }
                Change::Clear(from, max) => data.clear(from, max).into(),
                Change::Signal(identity, signal) => data.signal(identity, signal).into(),
                Change::Migrate() => return no_tables(),
                Change::Vacuum(_) => return no_file(),
            })
        })?
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
