//! Where requests go: the other side of the hand-over.

use std::io::{self, Write};
use std::sync::Arc;

use crate::exchange::Exchange;

/// Takes complete requests. Implemented over the queue that Ruby threads pull
/// from; every call is made on the IO thread and must not block.
pub trait Sink: Send + Sync + 'static {
    /// Takes one request whose body has been read.
    ///
    /// # Errors
    /// Gives the exchange back when there is no room; the engine answers 503.
    fn submit(&self, exchange: Arc<Exchange>) -> Result<(), Arc<Exchange>>;

    /// The request timeout has passed before the answer began; the client has
    /// been told 503 and whatever is answered later is dropped.
    fn late(&self, exchange: &Arc<Exchange>);

    /// Called once after the submissions of one turn of the IO thread, at the
    /// latest after 32 of them. This is the place to wake a sleeping consumer:
    /// a wake-up in every `submit` costs the IO thread half as much again.
    fn flush(&self) {}

    /// Something an operator should read happened outside any request.
    fn warn(&self, message: &str) {
        // A closed standard error is no reason to end the thread that reports.
        let _ = writeln!(io::stderr(), "chaton: {message}");
    }
}
