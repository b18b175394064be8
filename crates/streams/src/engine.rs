//! The engine: reads the topics of consumer groups and hands batches to Ruby's threads through a
//! [`Feed`].
//!
//! Each group has a thread, the poller. It polls the group's
//! [`GroupMember`](crate::log::GroupMember), whatever user code does, fetches where little is ready
//! and commits what is done. Each assigned partition is a state machine. A thread that finishes a
//! batch moves it on and hands out the next batch itself, without a change of threads. Nothing
//! spins: every wait ends by a notification or when something is due.

mod assigned_partition;
mod context;
mod group;
mod group_partitions;
mod partition_state;
mod poller;
mod room;
mod route;
mod settings;
mod stats;
mod suspects;
mod token_bucket;
mod tracker;

use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use chaton_core::engine::{self, Feed, Released};
use chaton_core::event_fd::EventFd;
use parking_lot::Mutex;

use crate::batch::{Batch, BatchKind, BatchOutcome};
use crate::log::{self, ErrorKind, LogError, RecordLog};
use context::EngineContext;
use group::ConsumerGroup;
use group_partitions::GroupPartitions;
use partition_state::Now;
use poller::Poller;
use route::{Route, RouteMetrics};
use suspects::Suspects;

pub use context::ProducerFactory;
pub use settings::{EngineSettings, GroupRoutes, OnGap, RecordOrder, RouteSettings, Throttle};
pub use stats::{GroupStats, PartitionStats, Stats, Totals};
pub use suspects::BatchSlot;

/// A running engine. Clones are the same engine.
#[derive(Clone)]
pub struct Engine {
    context: Arc<EngineContext>,
    groups: Arc<Vec<Arc<GroupPartitions>>>,
    threads: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

impl Engine {
    /// Starts a thread per group. A log that cannot be reached is tried again. `producer` is called
    /// when the first dead letter is written.
    ///
    /// # Errors
    /// `Invalid` for settings that contradict each other; `Refused` for an unusable folder of the
    /// local log, and when the system gives no thread or descriptor.
    pub fn start(
        mut settings: EngineSettings,
        log: Arc<dyn RecordLog>,
        producer: ProducerFactory,
        feed: Arc<dyn Feed<Batch>>,
    ) -> log::Result<Self> {
        settings.check()?;
        let (routed, in_flight) = (mem::take(&mut settings.groups), settings.in_flight.take());
        let context = Arc::new(EngineContext::new(log, producer, feed, settings));
        let settings = &context.settings;
        match context.log.create_declared() {
            Err(error) if error.kind == ErrorKind::Refused => return Err(error),
            // Its groups say so, too, as long as they wait for it.
            Err(error) => context.warn(&format!("the declared topics: {}", error.message)),
            Ok(()) => {}
        }
        if let Some(gauges) = &settings.gauges {
            gauges.groups.store(routed.len() as u32, Ordering::Relaxed);
            if let Some(interval) = settings.broker_statistics {
                context.log.count_brokers(gauges, interval);
            }
        }
        let suspects = Arc::new(Suspects::new(in_flight));
        let batch_ids = Arc::new(AtomicU64::new(1));
        let ready_batches = settings.ready_batches;
        let mut numbers = 0..;
        let mut groups = Vec::new();
        for GroupRoutes { group, routes } in routed {
            let routes = routes.into_iter().zip(&mut numbers).map(|(settings, number)| {
                let gauges = context.settings.gauges.clone();
                let metrics =
                    gauges.map(|own| RouteMetrics::new(own, &settings.topic, &group.name));
                let (counters, batch_ids) = (context.counters.clone(), batch_ids.clone());
                let source = suspects::source(&group.name, &settings.topic);
                let (suspects, transactor) = (suspects.clone(), Mutex::default());
                Arc::new(Route {
                    number,
                    settings,
                    source,
                    suspects,
                    ready_batches,
                    counters,
                    metrics,
                    batch_ids,
                    transactor,
                })
            });
            let routes = routes.collect();
            let event_fd = EventFd::new().map_err(|error| unavailable("descriptor", &error))?;
            let group = ConsumerGroup::new(group, routes, &context, event_fd);
            groups.push(GroupPartitions::new(group));
        }
        let engine = Self { context, groups: Arc::new(groups), threads: Arc::default() };
        for group in engine.groups.iter() {
            let poller = Poller::new(group);
            let started = chaton_core::thread::spawn("chaton streams", move || poller.run());
            match started {
                Ok(thread) => engine.threads.lock().push(thread),
                Err(error) => {
                    engine::Engine::stop(&engine);
                    return Err(unavailable("thread", &error));
                }
            }
        }
        Ok(engine)
    }

    /// Joins its groups, where it was held back until the process is ready.
    pub fn resume(&self) {
        self.context.held.store(false, Ordering::SeqCst);
        self.groups.iter().for_each(|group| group.group.event_fd.notify());
    }

    /// Statistics of this moment.
    pub fn stats(&self) -> Stats {
        let now = Now::read();
        Stats {
            quiet: self.context.is_quiet(),
            totals: self.context.counters.read(),
            groups: self.groups.iter().map(|group| group.stats(now)).collect(),
        }
    }
}

impl engine::Engine for Engine {
    /// Stops fetching. Batches that no thread has taken are dropped uncommitted; each partition
    /// gets [`BatchKind::Shutdown`] after its last batch.
    fn quiet(&self) -> usize {
        if self.context.quiet.swap(true, Ordering::SeqCst) {
            return 0;
        }
        for group in self.groups.iter() {
            group.group.commit_not_before(0);
            for partition in group.all() {
                partition.drain(BatchKind::Shutdown);
                // A commit that was not waited for could fail unnoticed: it is sent again, and
                // waited for.
                partition.uncommitted();
            }
        }
        // Batches with records were abandoned by that; notices are submitted again.
        let mut released = 0;
        for batch in self.context.feed.take_waiting().into_iter().filter(|batch| batch.is_open()) {
            let is_notice = batch.kind() != BatchKind::Records;
            if !is_notice || self.context.feed.submit(batch.clone()).is_err() {
                batch.finish(BatchOutcome::Abandoned);
                released += 1;
            }
        }
        self.context.feed.flush();
        for group in self.groups.iter() {
            group.all().iter().for_each(|partition| partition.hand_out());
            group.group.notify();
        }
        released
    }

    /// Waits until no batch is in flight and everything done is committed.
    fn wait_idle(&self, timeout: Duration) -> bool {
        self.context.idle_wait.wait(timeout, || self.groups.iter().all(|group| group.is_idle()))
    }

    fn interrupt_wait(&self) {
        self.context.idle_wait.interrupt();
    }

    /// Revokes what still runs: its marks and its outcome no longer count.
    fn give_up(&self) -> Released {
        let waiting = self.quiet();
        let partitions = self.groups.iter().flat_map(|group| group.all());
        let running = partitions.flat_map(|partition| partition.give_up()).collect();
        Released { waiting, running }
    }

    /// Gives up what still runs, commits, leaves the groups and joins the threads. Bounded in time.
    fn stop(&self) {
        self.give_up();
        self.context.stopping.store(true, Ordering::SeqCst);
        self.groups.iter().for_each(|group| group.group.event_fd.notify());
        for thread in std::mem::take(&mut *self.threads.lock()) {
            let _ = thread.join();
        }
    }

    fn stats_json(&self) -> String {
        serde_json::to_string(&self.stats()).unwrap_or_default()
    }
}

fn unavailable(what: &str, error: &std::io::Error) -> LogError {
    let message = format!("the system gives the streams engine no {what}: {error}");
    LogError::new(ErrorKind::Refused, message)
}
