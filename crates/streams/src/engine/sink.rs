//! Where the engine puts batches: the other side is the boundary to Ruby.

use std::sync::Arc;

use crate::batch::Batch;

/// Takes batches for Ruby's threads. It is called by the engine's threads and by those that end a
/// batch, never with a lock of the engine held.
pub trait BatchSink: Send + Sync {
    /// Puts a batch into the bounded queue.
    ///
    /// # Errors
    /// Gives the batch back when the queue is full or closed. The engine submits it again when
    /// another batch has ended.
    fn submit(&self, batch: Arc<Batch>) -> Result<(), Arc<Batch>>;

    /// Wakes threads for the batches that were submitted.
    fn flush(&self);

    /// Takes back every batch that no thread has taken.
    fn take_waiting(&self) -> Vec<Arc<Batch>>;

    /// Writes a line to the log.
    fn warn(&self, message: &str);
}
