//! An engine without threads, and a feed that a test empties.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::engine::config::Config;
use crate::engine::fetcher::Fetcher;
use crate::engine::job::Job;
use crate::engine::job_log::JobLogSettings;
use crate::engine::maintenance::Maintenance;
use crate::engine::owner_identity::OwnerIdentity;
use crate::engine::state::EngineState;
use crate::store::{self, JobLocation, NewJob, Store, StoreFactory, StoreOptions};
use chaton_core::engine::Feed;
use fastrand::Rng;

/// A feed that keeps what it gets.
#[derive(Default)]
pub struct CollectingFeed {
    pub jobs: Mutex<VecDeque<Arc<Job>>>,
    pub lines: Mutex<Vec<String>>,
    pub idle: Mutex<usize>,
    /// Jobs that it takes at most.
    pub room: Mutex<Option<usize>>,
}

impl Feed<Job> for CollectingFeed {
    fn submit(&self, job: Arc<Job>) -> Result<(), Arc<Job>> {
        let mut jobs = self.jobs.lock();
        if self.room.lock().is_some_and(|room| jobs.len() >= room) {
            return Err(job);
        }
        jobs.push_back(job);
        Ok(())
    }
    fn flush(&self) {}
    fn take_waiting(&self) -> Vec<Arc<Job>> {
        self.jobs.lock().drain(..).collect()
    }
    fn idle_threads(&self) -> usize {
        *self.idle.lock()
    }
    fn warn(&self, message: &str) {
        self.lines.lock().push(message.to_string());
    }
    fn signal(&self, _: &str) {}
}

/// One engine, driven by hand.
pub struct SteppedEngine {
    pub state: Arc<EngineState>,
    pub feed: Arc<CollectingFeed>,
    pub fetcher: Fetcher,
    pub maintenance: Maintenance,
}

impl SteppedEngine {
    /// Registered in the store by a first heartbeat.
    pub fn new(factory: &Arc<dyn StoreFactory>, config: Config, seed: u64) -> Self {
        Self::with_store(factory.store(), factory, config, seed)
    }

    /// With another connection for its fetcher.
    pub fn with_store(
        store: Box<dyn Store>,
        factory: &Arc<dyn StoreFactory>,
        config: Config,
        seed: u64,
    ) -> Self {
        let feed = Arc::new(CollectingFeed { idle: Mutex::new(4), ..CollectingFeed::default() });
        let state = EngineState::new(config, OwnerIdentity::new(false), feed.clone());
        Self::over(state, feed, store, factory, seed)
    }

    /// With the same name in each run, begun at this time (s since 1970).
    pub fn named(
        name: &str,
        factory: &Arc<dyn StoreFactory>,
        config: Config,
        started_at_s: f64,
    ) -> Self {
        let feed = Arc::new(CollectingFeed { idle: Mutex::new(4), ..CollectingFeed::default() });
        let identity = OwnerIdentity { name: name.into(), ..OwnerIdentity::new(false) };
        let mut state = EngineState::new(config, identity, feed.clone());
        Arc::get_mut(&mut state).unwrap().started_at_s = started_at_s;
        Self::over(state, feed, factory.store(), factory, 1)
    }

    fn over(
        state: Arc<EngineState>,
        feed: Arc<CollectingFeed>,
        store: Box<dyn Store>,
        factory: &Arc<dyn StoreFactory>,
        seed: u64,
    ) -> Self {
        let fetcher = Fetcher::new(&state, store, Rng::with_seed(seed));
        let mut maintenance = Maintenance::new(&state, factory.store(), false);
        maintenance.round();
        Self { state, feed, fetcher, maintenance }
    }

    /// Fetches even when the queues were empty before.
    pub fn fetch(&mut self) -> bool {
        self.state.inbox.lock().look = true;
        self.fetcher.round()
    }

    /// Starts the next job.
    pub fn start_one(&self) -> Option<Arc<Job>> {
        let job = self.feed.jobs.lock().pop_front()?;
        if !job.may_start() {
            job.give_back();
            return None;
        }
        job.start(0);
        Some(job)
    }
}

/// Settings without pauses.
pub fn config() -> Config {
    Config {
        store: StoreOptions::for_tests("memory://config"),
        queues: vec![("high".into(), 1), ("low".into(), 1)],
        concurrency: 10,
        ack_delay: Duration::ZERO,
        heartbeat: Duration::from_secs(5),
        retry_max: Duration::from_nanos(1),
        catch_up: Duration::from_secs(600),
        log: JobLogSettings::default(),
        ..chaton_core::default_settings!("jobs")
    }
}

/// A store in memory.
pub fn factory(name: &str) -> Arc<dyn StoreFactory> {
    store::open(&StoreOptions::for_tests(format!("memory://{name}"))).unwrap()
}

/// Pushes a job; `more` goes into its document.
pub fn push(store: &mut dyn Store, queue: &str, jid: &str, more: &str, at: Option<f64>) {
    let payload = format!(r#"{{"class":"A","args":[],"jid":"{jid}","queue":"{queue}"{more}}}"#);
    let job = NewJob { queue, payload: payload.as_bytes(), at, lock: None, bid: None };
    store.push(&[job]).unwrap();
}

/// The jids at a location, in the order of their claims.
pub fn jids(store: &mut dyn Store, place: &JobLocation) -> Vec<String> {
    let entries = store.list(place, 0, 10_000).unwrap();
    let jid = |payload: &[u8]| crate::document::Fields::parse(payload).unwrap().text("jid");
    entries.iter().filter_map(|entry| jid(&entry.payload)).collect()
}

/// The location of a queue.
pub fn queue(name: &str) -> JobLocation {
    JobLocation::Queue(name.into())
}
