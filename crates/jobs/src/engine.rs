//! The engine: claims jobs from a store, submits them to Ruby's threads through
//! a [`Feed`], and acknowledges them with their outcome.
//!
//! It has three threads, each with its own connection: the *fetcher*
//! acknowledges and claims in batches, the *maintenance* thread sends heartbeats
//! and does what is due by the clock, the *watcher* waits for changes of the
//! store. Each waits to be woken, or for the next time at which something is
//! due. Only where the store cannot be watched do they ask it every second.

mod admission;
mod config;
mod cron_ticks;
mod fetcher;
mod hand;
mod intake;
mod job;
mod job_log;
mod left_batches;
mod maintenance;
mod neighbours;
mod orphans;
mod owner_identity;
mod put_back;
mod queue_order;
mod reconcile;
mod report;
mod state;
mod stats;
mod store_retry;
mod watcher;

use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;

use crate::store::{StoreError, StoreErrorKind, StoreFactory};
use chaton_core::engine::{self, Feed, Released};
use chaton_core::work::Work;
use fastrand::Rng;
use fetcher::Fetcher;
use maintenance::Maintenance;
use owner_identity::OwnerIdentity;
use state::EngineState;
use watcher::{Watcher, POLL};

pub use config::{Config, QueueMode};
pub use job::Job;
pub use job_log::JobLogSettings;
pub use orphans::WorkerDeath;
pub use stats::Stats;

/// A running engine. Clones are the same engine.
#[derive(Clone)]
pub struct Engine {
    state: Arc<EngineState>,
    threads: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

impl Engine {
    /// Starts the engine's threads. A store that cannot be reached now is tried
    /// again; an error is returned for what trying again cannot mend.
    ///
    /// # Errors
    /// A wrong address, password, version or setting, a damaged file.
    pub fn start(
        config: Config,
        factory: &Arc<dyn StoreFactory>,
        feed: Arc<dyn Feed<Job>>,
    ) -> Result<Self, StoreError> {
        let probed = factory.store().probe();
        let identity = OwnerIdentity::new(config.supervised);
        let state = EngineState::new(config, identity, feed);
        if let Err(error) = probed {
            if matches!(error.kind, StoreErrorKind::Refused | StoreErrorKind::Corrupt) {
                return Err(error);
            }
            state.warn(Some(format!(
                "jobs: this process is ready without its job store, tries again at most {POLL:?} apart, \
                 and runs jobs when it answers; until then enqueueing raises, or with reliable_push \
                 keeps jobs in memory: {error}"
            )));
            let _ = state.error_at_start.set(error.message);
        }
        let watch = factory.watch();
        let _ = state.watch.set(watch.interrupter());
        let told = Arc::downgrade(&state);
        state.feed.on_idle_thread(Box::new(move || {
            told.upgrade().into_iter().for_each(|state| state.note_idle_thread());
        }));
        let fetcher = Fetcher::new(&state, factory.store(), Rng::new());
        let maintenance = Maintenance::new(&state, factory.store(), is_local(factory.address()));
        let watcher = Watcher::new(&state, watch);
        let engine = Self { state, threads: Arc::default() };
        engine.spawn("chaton jobs", move || fetcher.run())?;
        engine.spawn("chaton maint", move || maintenance.run())?;
        engine.spawn("chaton watcher", move || watcher.run())?;
        Ok(engine)
    }

    /// `HOST:PID:NONCE`.
    pub fn identity(&self) -> &str {
        &self.state.identity.name
    }

    /// Claims jobs again.
    pub fn resume(&self) {
        self.state.set_quiet(false);
    }

    /// Reclaims the jobs of a sibling that died.
    pub fn recover(&self, death: WorkerDeath) {
        self.state.add_death(death);
    }

    /// Sends unstarted jobs back and leaves running ones in the in-flight set, for the supervisor to
    /// count when this process has ended.
    pub fn leave_running(&self) {
        self.release_waiting();
        self.state.running_jobs().iter().for_each(|job| job.leave());
    }

    /// The counters now.
    pub fn stats(&self) -> Stats {
        let hand = self.state.hand.read();
        Stats {
            unstarted: self.state.all_unstarted(),
            running: self.state.running.load(Ordering::Relaxed),
            unwritten: hand.acks.len() + hand.acks_in_write + self.state.inbox.lock().ended.len(),
            service_us: (hand.service_ns / 1e3) as u64,
            quiet: self.state.quiet.load(Ordering::SeqCst),
            holds_lease: self.state.holds_lease(),
            ..self.state.counters.read()
        }
    }

    /// Sends every unstarted job back to the front of its queue; returns how many.
    fn release_waiting(&self) -> usize {
        let waiting = self.state.feed.take_waiting();
        waiting.iter().for_each(|job| job.give_back());
        // The fetcher sends suspects back, as it claims no more.
        let hand = self.state.hand.read();
        waiting.len() + hand.suspects.len() + self.state.inbox.lock().suspects.len()
    }

    fn spawn(&self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), StoreError> {
        let started = chaton_core::thread::spawn(name, run);
        let thread = started.map_err(|e| StoreError::unavailable(format!("thread {name}: {e}")))?;
        self.threads.lock().push(thread);
        Ok(())
    }
}

impl engine::Engine for Engine {
    /// Claims no more jobs and sends the unstarted ones back to the front of their queues.
    fn quiet(&self) -> usize {
        self.state.set_quiet(true);
        self.release_waiting()
    }

    /// Waits until no job is claimed and every acknowledgement is written.
    fn wait_idle(&self, timeout: Duration) -> bool {
        self.state.idle_wait.wait(timeout, || self.state.is_idle())
    }

    fn interrupt_wait(&self) {
        self.state.idle_wait.interrupt();
    }

    /// Sends every job back to the front of its queue, and ignores the later
    /// outcomes of those that run.
    fn give_up(&self) -> Released {
        // What waits goes first: an interrupted thread must find nothing to start.
        let waiting = self.release_waiting();
        let (now_s, config) = (self.state.now_s(), &self.state.config);
        let gauges = config.gauges.as_ref().filter(|_| config.supervised);
        let asked = gauges.is_none_or(|gauges| gauges.is_asked_to_stop());
        let requeued = self.state.running_jobs().into_iter().filter(|job| {
            let outcome = orphans::stopped(job.document(), asked || job.is_due(), now_s);
            let line = orphans::stopped_line(job.document(), &outcome);
            let ended = job.finish(outcome);
            self.state.warn(line.filter(|_| ended));
            ended
        });
        Released { waiting, running: requeued.map(|job| job.id()).collect() }
    }

    /// Sends claimed jobs back, writes what is left, removes the owner from the
    /// store and ends the threads.
    fn stop(&self) {
        self.state.quiet.store(true, Ordering::SeqCst);
        self.give_up();
        self.state.stopping.store(true, Ordering::SeqCst);
        self.state.tell_fetcher(|_| ());
        // The owner is removed when the fetcher has written everything.
        let mut threads = std::mem::take(&mut *self.threads.lock()).into_iter();
        if let Some(fetcher) = threads.next() {
            let _ = fetcher.join();
        }
        self.state.tell_maintenance(|chores| chores.fetcher_done = true);
        self.state.wake_watcher();
        for thread in threads {
            let _ = thread.join();
        }
    }

    fn stats_json(&self) -> String {
        serde_json::to_string(&self.stats()).unwrap_or_default()
    }
}

/// Whether only this machine can use the store.
fn is_local(address: &str) -> bool {
    address.starts_with("sqlite:") || address.starts_with("memory:")
}

#[cfg(test)]
mod tests;
