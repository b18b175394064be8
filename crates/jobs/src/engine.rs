//! The engine: claims jobs from a store, hands them to Ruby's threads through
//! a [`Sink`], and acks how they ended.
//!
//! Three threads, each with a connection of its own: the *fetcher* acks and
//! claims in batches, the *maintenance* gives signs of life and does what is due by
//! the clock, the *watcher* waits for changes while there is nothing to do.
//! None of them polls: each waits for a bell or for the next moment at which
//! something is due.

mod admission;
mod backoff;
mod config;
mod fetcher;
mod job;
mod maintenance;
mod owner_identity;
mod queue_order;
mod recovery;
mod report;
mod sink;
mod state;
mod stats;
mod watcher;

use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;

use crate::outcome::Outcome;
use crate::store::{StoreError, StoreErrorKind, StoreFactory};
use chaton_core::random::Random;
use fetcher::Fetcher;
use maintenance::Maintenance;
use owner_identity::OwnerIdentity;
use state::EngineState;
use watcher::Watcher;

pub use config::{Config, QueueMode};
pub use job::Job;
pub use recovery::WorkerDeath;
pub use sink::Sink;
pub use stats::Stats;

/// A running engine. Clones are the same engine.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<EngineState>,
    threads: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

impl Engine {
    /// Starts the engine's threads. A store that cannot be reached now is
    /// waited for; what a person must mend is an error.
    ///
    /// # Errors
    /// A wrong address, password, version or setting, a damaged file.
    pub fn start(
        config: Config,
        factory: &Arc<dyn StoreFactory>,
        sink: Arc<dyn Sink>,
    ) -> Result<Self, StoreError> {
        let mut probe = factory.store();
        match probe.stats() {
            Err(error)
                if matches!(error.kind, StoreErrorKind::Refused | StoreErrorKind::Corrupt) =>
            {
                return Err(error)
            }
            Err(error) => {
                sink.warn(&format!("jobs: {error}; starting all the same, and trying on"))
            }
            Ok(_) => {}
        }
        drop(probe);
        let identity = OwnerIdentity::new(config.supervised);
        let shared = EngineState::new(config, identity, sink);
        let watch = factory.watch();
        let _ = shared.watch.set(watch.interrupter());
        let fetcher = Fetcher::new(&shared, factory.store(), Random::new());
        let maintenance = Maintenance::new(&shared, factory.store(), is_local(factory.address()));
        let watcher = Watcher::new(&shared, watch);
        let engine = Self { shared, threads: Arc::default() };
        engine.spawn("chaton jobs", move || fetcher.run())?;
        engine.spawn("chaton maintenance", move || maintenance.run())?;
        engine.spawn("chaton watcher", move || watcher.run())?;
        Ok(engine)
    }

    /// `HOST:PID:NONCE`.
    pub fn identity(&self) -> &str {
        &self.shared.identity.name
    }

    /// Claims no more jobs.
    pub fn quiet(&self) {
        self.set_quiet(true);
    }

    /// Claims jobs again.
    pub fn resume(&self) {
        self.set_quiet(false);
    }

    /// Sends every job that was not started back to the front of its queue;
    /// answers how many.
    pub fn release(&self) -> usize {
        let suspects: Vec<_> = self.shared.locked.lock().suspects.drain(..).collect();
        let waiting = self.shared.sink.take_waiting();
        let count = suspects.len() + waiting.len();
        let suspects = suspects.iter().map(|(job, _)| job);
        suspects.chain(&waiting).for_each(|job| job.abandon());
        count
    }

    /// Waits until no job is in hand and every end is written; false when the
    /// time is up or [`Engine::interrupt_wait`] was called.
    pub fn wait_idle(&self, timeout: Duration) -> bool {
        self.shared.wait_idle(timeout)
    }

    /// Ends a [`Engine::wait_idle`] early.
    pub fn interrupt_wait(&self) {
        self.shared.idle_wait_interrupted.store(true, Ordering::Release);
        let _held = self.shared.locked.lock();
        self.shared.idle_cond.notify_all();
    }

    /// Sends the jobs that run back to the front of their queues, whatever
    /// their threads will say later; answers their jids.
    pub fn give_back_running(&self) -> Vec<String> {
        let jobs: Vec<_> = self.shared.locked.lock().jobs.values().cloned().collect();
        let given = |job: &&Arc<Job>| job.finish(Outcome::requeue());
        let running = jobs.iter().filter(|job| job.is_running()).filter(given);
        running.map(|job| job.document().jid().to_string()).collect()
    }

    /// Writes what is left, says good-bye to the store and ends the threads.
    /// Jobs still in hand go back.
    pub fn stop(&self) {
        self.shared.locked.lock().quiet = true;
        self.release();
        self.give_back_running();
        self.shared.locked.lock().stopping = true;
        self.shared.fetcher_cond.notify_all();
        // The maintenance says good-bye when the fetcher has written everything.
        let mut threads = std::mem::take(&mut *self.threads.lock()).into_iter();
        if let Some(fetcher) = threads.next() {
            let _ = fetcher.join();
        }
        self.shared.locked.lock().fetcher_done = true;
        self.shared.maintenance_cond.notify_all();
        self.shared.wake_watcher();
        for thread in threads {
            let _ = thread.join();
        }
    }

    /// A sibling died: its jobs go back at once.
    pub fn recover(&self, death: WorkerDeath) {
        self.shared.add_death(death);
    }

    /// The counters now.
    pub fn stats(&self) -> Stats {
        let locked = self.shared.locked.lock();
        Stats {
            unstarted: self.shared.unstarted.load(Ordering::Relaxed),
            running: self.shared.running.load(Ordering::Relaxed),
            unwritten: locked.acks.len() + locked.acks_in_write,
            service_us: (locked.service_ns / 1e3) as u64,
            quiet: locked.quiet,
            holds_lease: self.shared.holds_lease(),
            ..self.shared.counters.read()
        }
    }

    fn set_quiet(&self, quiet: bool) {
        let mut locked = self.shared.locked.lock();
        locked.quiet = quiet;
        locked.dry = false;
        locked.heartbeat_now = true;
        drop(locked);
        self.shared.fetcher_cond.notify_one();
        self.shared.maintenance_cond.notify_one();
    }

    fn spawn(&self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), StoreError> {
        let started = chaton_core::thread::spawn(name, run);
        let thread = started.map_err(|e| StoreError::unavailable(format!("thread {name}: {e}")))?;
        self.threads.lock().push(thread);
        Ok(())
    }
}

/// Whether only this machine can use the store.
fn is_local(address: &str) -> bool {
    address.starts_with("sqlite:") || address.starts_with("memory:")
}

#[cfg(test)]
mod tests;
