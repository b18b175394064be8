//! The contract between a worker and its engines.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use crate::log;
use crate::pool::queue::QueueLimits;
use crate::pool::Pool;
use crate::process::events::SupportEvent;
use crate::work::{downcast, Role, Work};

/// The work that was left at [`Engine::give_up`].
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Released {
    /// Units of work that had not begun and will not run here.
    pub waiting: usize,
    /// Ids of the units of work that still run although their outcome no longer
    /// counts: their threads may be interrupted.
    pub running: Vec<u64>,
}

/// A running engine, as its worker uses it. Each engine has its own constructor.
pub trait Engine: Send + Sync {
    /// Stops taking in work. Work that has not begun goes back to its source; returns
    /// how many units of work that were. Running work is finished.
    fn quiet(&self) -> usize;

    /// Waits until nothing is left to do; `false` when `timeout` has passed or
    /// [`Engine::interrupt_wait`] was called.
    fn wait_idle(&self, timeout: Duration) -> bool;

    /// Ends an [`Engine::wait_idle`] early; kept for the next one when none waits.
    fn interrupt_wait(&self);

    /// Gives up unfinished work, because the deadline has passed.
    fn give_up(&self) -> Released;

    /// Ends the engine's threads. Later calls do nothing.
    fn stop(&self);

    /// The engine's statistics, a JSON object.
    fn stats_json(&self) -> String;
}

/// Where an engine puts its work. Called by the engine's own threads, never
/// with one of their locks held; no call blocks.
pub trait Feed<W>: Send + Sync + 'static {
    /// Puts one unit of work into the bounded queue without waking a thread.
    ///
    /// # Errors
    /// Gives the work back when the queue is full or closed.
    fn submit(&self, work: Arc<W>) -> Result<(), Arc<W>>;

    /// Wakes a Ruby thread, once for everything submitted since the last call.
    fn flush(&self) {}

    /// Takes back the work that no thread has begun, oldest first.
    fn take_waiting(&self) -> Vec<Arc<W>> {
        Vec::new()
    }

    /// Threads that run nothing now, including those that may still be started.
    fn idle_threads(&self) -> usize {
        0
    }

    /// Has `told` called whenever a thread has become one of [`Feed::idle_threads`] and found nothing to run, which is
    /// a moment after its last work has ended. It is called by that thread and must not block.
    fn on_idle_thread(&self, _told: Box<dyn Fn() + Send + Sync>) {}

    /// Asks for a report about work that runs past its time.
    fn report_late(&self, _id: u64) {}

    /// Passes on a signal (`TSTP`, `TERM`, `TTIN`) that was left for this
    /// process in a store.
    fn signal(&self, _name: &str) {}

    /// Writes a warning to the log.
    fn warn(&self, message: &str) {
        log::warn(message);
    }
}

/// The [`Feed`] into a pool.
pub struct PoolFeed<W> {
    pool: Arc<Pool>,
    role: Role,
    work: PhantomData<fn(W)>,
}

impl<W: Work> PoolFeed<W> {
    /// Opens the pool's queue for the engine of this role.
    pub fn open(pool: &Arc<Pool>, role: Role, limits: QueueLimits) -> Arc<Self> {
        pool.register(role, limits);
        Arc::new(Self { pool: pool.clone(), role, work: PhantomData })
    }
}

impl<W: Work> Feed<W> for PoolFeed<W> {
    fn submit(&self, work: Arc<W>) -> Result<(), Arc<W>> {
        self.pool.enqueue(work).map_err(own)
    }

    fn flush(&self) {
        self.pool.wake_thread();
    }

    fn take_waiting(&self) -> Vec<Arc<W>> {
        self.pool.take_waiting(self.role).into_iter().map(own).collect()
    }

    fn idle_threads(&self) -> usize {
        self.pool.idle_threads()
    }

    fn on_idle_thread(&self, told: Box<dyn Fn() + Send + Sync>) {
        self.pool.on_idle_thread(told);
    }

    fn report_late(&self, id: u64) {
        self.pool.report_late(self.role, id);
    }

    fn signal(&self, name: &str) {
        self.pool.events.post(SupportEvent::Signal(name.to_owned()));
    }
}

fn own<W: Work>(work: Arc<dyn Work>) -> Arc<W> {
    downcast(work).unwrap_or_else(|| unreachable!("the queue gives back what was put in"))
}
