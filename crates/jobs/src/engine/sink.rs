//! Where the engine puts admitted jobs; the extension implements it.

use std::sync::Arc;

use super::job::Job;

/// Takes jobs for Ruby's threads. Called by the engine's threads, never with
/// one of its locks held.
pub trait Sink: Send + Sync {
    /// Puts a job into the bounded queue.
    ///
    /// # Errors
    /// Gives it back when the queue is full or closed.
    fn submit(&self, job: Arc<Job>) -> Result<(), Arc<Job>>;

    /// All jobs of one claim are submitted: wakes a thread.
    fn flush(&self);

    /// Takes back every job that no thread has taken yet.
    fn take_waiting(&self) -> Vec<Arc<Job>>;

    /// Threads that run no work now, those included that could still be
    /// started: the pool's maximum less the running work. Work that waits in
    /// the queue is not subtracted.
    fn idle_threads(&self) -> usize;

    /// A line for the log.
    fn warn(&self, message: &str);

    /// A signal (TSTP, TERM, TTIN) that Sidekiq's UI left for this process.
    fn signal(&self, name: &str);
}
