//! The engine: reads the topics of consumer groups and hands batches to Ruby's
//! threads through a [`Sink`].
//!
//! A thread per group polls its [`GroupMember`](crate::log::GroupMember) for ever,
//! whatever user code does, fetches where little is ready and commits what is
//! done. A partition's life is one state machine; a turn's end moves it on,
//! on the thread that ran the turn, so that the next one follows without a
//! change of threads. Nobody polls: every wait has a bell and a time at which
//! something is due.

mod backoff;
mod bucket;
mod cell;
mod ending;
mod group;
mod life;
mod poller;
mod settings;
mod shared;
mod sink;
mod stats;
mod tracker;
mod transactors;
mod turn;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use chaton_core::event_fd::EventFd;
use parking_lot::Mutex;

use crate::log::{self, ErrorKind, LogError, Producer, RecordLog};
use group::{Group, Route};
use life::{Now, Rules};
use poller::Poller;
use shared::Shared;
use transactors::Transactors;

pub use ending::{Ending, Kind, Outcome, Verdict};
pub use settings::{EngineSettings, GroupRoutes, Order, RouteSettings, Throttle};
pub use sink::Sink;
pub use stats::{GroupStats, PartitionStats, Stats, Totals};
pub use turn::Turn;

/// Makes the producer, or gives the one that the process has.
pub type ProducerMaker = Arc<dyn Fn() -> log::Result<Arc<dyn Producer>> + Send + Sync>;

/// What an engine works with.
#[derive(Clone)]
pub struct Tools {
    /// Where the records are.
    pub log: Arc<dyn RecordLog>,
    /// Writes dead letters; asked for when the first one is due.
    pub producer: ProducerMaker,
}

/// A running engine. Clones are the same engine.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
    groups: Arc<Vec<Arc<Group>>>,
    threads: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

impl Engine {
    /// Starts a thread per group. A log that cannot be reached now is tried
    /// again.
    ///
    /// # Errors
    /// `Invalid` for settings that contradict each other; no thread or
    /// descriptor to be had.
    pub fn start(settings: EngineSettings, tools: Tools, sink: Arc<dyn Sink>) -> log::Result<Self> {
        settings.check()?;
        let interval = Duration::from_millis(settings.commit_interval_ms);
        let shared = Arc::new(Shared::new(tools, sink, interval, settings.group_retry_max_ms));
        let ids = Arc::new(AtomicU64::new(1));
        let ready_batches = settings.ready_batches;
        let mut numbers = 0..;
        let mut groups = Vec::new();
        for GroupRoutes { group, routes } in settings.groups {
            let routes = routes.into_iter().zip(&mut numbers).map(|(settings, route)| {
                let (counters, ids) = (shared.counters.clone(), ids.clone());
                let rules = Rules { route, settings, ready_batches, counters, ids };
                Arc::new(Route { rules: Arc::new(rules), transactors: Transactors::default() })
            });
            let bell = EventFd::new().map_err(|error| unavailable("descriptor", &error))?;
            groups.push(Group::new(group, routes.collect(), &shared, bell));
        }
        let engine = Self { shared, groups: Arc::new(groups), threads: Arc::default() };
        for group in engine.groups.iter() {
            let poller = Poller::new(group);
            let started = chaton_core::thread::spawn("chaton streams", move || poller.run());
            match started {
                Ok(thread) => engine.threads.lock().push(thread),
                Err(error) => {
                    engine.stop();
                    return Err(unavailable("thread", &error));
                }
            }
        }
        Ok(engine)
    }

    /// Fetches no more. What no thread has taken is dropped uncommitted; after
    /// its last turn each partition is given [`Kind::Shutdown`].
    pub fn quiet(&self) {
        if self.shared.quiet.swap(true, Ordering::SeqCst) {
            return;
        }
        for group in self.groups.iter() {
            group.commit_not_before(0);
            let cells = group.cells();
            for cell in &cells {
                cell.drain(Kind::Shutdown);
                // What the log took without saying yes is said once more, and
                // waited for: nobody would hear of its failure.
                cell.unsaid();
            }
        }
        // Those that were dropped by that, and notices, which are given again.
        let waiting = self.shared.sink.take_waiting();
        for turn in waiting.into_iter().filter(|turn| turn.is_open()) {
            if turn.kind() == Kind::Records || self.shared.sink.submit(turn.clone()).is_err() {
                turn.abandon();
            }
        }
        self.shared.sink.flush();
        for group in self.groups.iter() {
            group.cells().iter().for_each(|cell| cell.kick());
            group.notify();
        }
    }

    /// Waits until no turn is out and every ending is committed; false when
    /// time is up or [`Engine::interrupt_wait`] was called.
    pub fn wait_idle(&self, timeout: Duration) -> bool {
        self.shared.wait_calm(timeout, || self.groups.iter().all(|group| group.is_idle()))
    }

    /// Ends a [`Engine::wait_idle`] early.
    pub fn interrupt_wait(&self) {
        self.shared.interrupt_calm();
    }

    /// What still runs is revoked: its marks and its end are dropped from now
    /// on. Answers how many turns that were.
    pub fn give_up(&self) -> usize {
        self.quiet();
        let cells = self.groups.iter().flat_map(|group| group.cells());
        let running = cells.map(|cell| {
            let running = cell.give_up();
            cell.kick();
            running
        });
        running.sum()
    }

    /// Commits, leaves the groups and joins the threads; what still runs is
    /// given up. Bounded in time.
    pub fn stop(&self) {
        self.give_up();
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.groups.iter().for_each(|group| group.bell.notify());
        for thread in std::mem::take(&mut *self.threads.lock()) {
            let _ = thread.join();
        }
    }

    /// The engine now.
    pub fn stats(&self) -> Stats {
        let now = Now::read();
        Stats {
            quiet: self.shared.is_quiet(),
            totals: self.shared.counters.read(),
            groups: self.groups.iter().map(|group| group.stats(now)).collect(),
        }
    }
}

fn unavailable(what: &str, error: &std::io::Error) -> LogError {
    let message = format!("the system gives the streams engine no {what}: {error}");
    LogError::new(ErrorKind::Refused, message)
}
