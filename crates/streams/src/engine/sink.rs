//! Where the engine puts turns: the other side is the boundary to Ruby.

use std::sync::Arc;

use super::turn::Turn;

/// Takes turns for Ruby's threads. Called by the engine's threads and by
/// those that finish a turn, never with one of the engine's locks held.
pub trait Sink: Send + Sync {
    /// Puts a turn into the bounded queue.
    ///
    /// # Errors
    /// Gives it back when the queue is full or closed; it is put in again
    /// when another turn has ended.
    fn submit(&self, turn: Arc<Turn>) -> Result<(), Arc<Turn>>;

    /// All turns of a round are in: wake a thread.
    fn flush(&self);

    /// Takes back every turn that no thread has taken.
    fn take_waiting(&self) -> Vec<Arc<Turn>>;

    /// A line for the log.
    fn warn(&self, message: &str);
}
