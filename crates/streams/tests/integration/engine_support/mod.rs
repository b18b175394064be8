//! A log in memory with faults on demand, and a feed that tests take batches from.
pub mod feed;
pub mod memory;

use chaton_core::engine::Engine as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chaton_streams::batch::{Batch, BatchKind, BatchOutcome};
use chaton_streams::engine::{Engine, EngineSettings, GroupRoutes, RouteSettings};
use chaton_streams::log::RecordLog;
use chaton_streams::settings::GroupSettings;
use feed::Queue;
use memory::MemoryLog;

/// Longer than anything takes.
pub const LONG: Duration = Duration::from_secs(20);

/// An engine, its log and its feed.
pub struct EngineHarness {
    pub log: Arc<MemoryLog>,
    pub queue: Arc<Queue>,
    pub engine: Engine,
}

/// A route with short pauses.
pub fn route(topic: &str) -> RouteSettings {
    RouteSettings {
        batch: 10,
        backoff: Duration::from_millis(1),
        backoff_max: Duration::from_millis(5),
        ..RouteSettings::for_tests(topic)
    }
}

/// One group with these routes.
pub fn settings(routes: Vec<RouteSettings>) -> EngineSettings {
    let topics: Vec<&str> = routes.iter().map(|route| &*route.topic).collect();
    let group = GroupSettings::for_tests("app", &topics);
    let groups = vec![GroupRoutes { group, routes }];
    EngineSettings {
        commit_interval: Duration::from_millis(1),
        group_retry_max: Duration::from_millis(20),
        ..EngineSettings::for_tests(groups)
    }
}

/// Starts an engine that reads this log and writes dead letters into it.
pub fn start(
    settings: EngineSettings,
    log: &Arc<MemoryLog>,
    queue: Arc<Queue>,
) -> chaton_streams::log::Result<Engine> {
    let producing = log.clone();
    Engine::start(settings, log.clone(), Arc::new(move || producing.producer()), queue)
}

impl EngineHarness {
    /// On a log that assigns all partitions to one member.
    pub fn new(log: Arc<MemoryLog>, settings: EngineSettings) -> Self {
        Self::with(log, settings, Queue::new(1_000))
    }

    pub fn with(log: Arc<MemoryLog>, settings: EngineSettings, queue: Arc<Queue>) -> Self {
        let engine = start(settings, &log, queue.clone()).unwrap();
        Self { log, queue, engine }
    }

    /// The next batch, started.
    pub fn batch(&self) -> Arc<Batch> {
        self.queue.take(LONG).expect("a batch")
    }

    /// The next batch, which has these records.
    pub fn batch_of(&self, offsets: impl IntoIterator<Item = i64>) -> Arc<Batch> {
        let batch = self.batch();
        assert_eq!(self::offsets(&batch), offsets.into_iter().collect::<Vec<_>>());
        batch
    }

    pub fn committed(&self, number: i32) -> Option<i64> {
        self.log.committed("app", number).map(|commit| commit.offset)
    }

    /// Stops the engine like a process does.
    pub fn end(&self) {
        self.engine.quiet();
        let until = Instant::now() + LONG;
        while !self.engine.wait_idle(Duration::ZERO) && Instant::now() < until {
            if let Some(batch) = self.queue.take(Duration::from_millis(1)) {
                assert_ne!(batch.kind(), BatchKind::Records, "{}", batch.describe());
                batch.finish(BatchOutcome::Done);
            }
        }
        self.engine.stop();
    }
}

impl Drop for EngineHarness {
    fn drop(&mut self) {
        self.engine.stop();
    }
}

pub fn offsets(batch: &Batch) -> Vec<i64> {
    batch.picks().iter().map(|pick| batch.chunk().entries()[*pick as usize].offset).collect()
}

pub fn failed(class: &str) -> BatchOutcome {
    BatchOutcome::Failed { class: class.into(), message: "on purpose".into() }
}

/// Waits for a condition; fails the test when it stays false.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !condition() {
        assert!(Instant::now() < end, "{what} did not come true");
        std::thread::yield_now();
    }
}
