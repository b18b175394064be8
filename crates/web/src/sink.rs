//! The receiver of complete requests.

use std::io::{self, Write};
use std::sync::Arc;

use crate::exchange::Exchange;

/// Takes complete requests, normally into the queue of the Ruby threads. Every
/// call is made on the IO thread and must not block.
pub trait Sink: Send + Sync + 'static {
    /// Takes one request whose body has been read.
    ///
    /// # Errors
    /// Returns the exchange when the queue is full; the engine answers 503.
    fn submit(&self, exchange: Arc<Exchange>) -> Result<(), Arc<Exchange>>;

    /// The request timeout has passed before the response began: the client gets
    /// 503 and a later response is dropped.
    fn timed_out(&self, exchange: &Arc<Exchange>);

    /// Called before the IO thread sleeps, at the latest after 32 submissions.
    /// Wake a sleeping consumer here: a wake-up in every `submit` would make the
    /// IO thread half as expensive again.
    fn flush(&self) {}

    /// Reports to the operator a problem outside any request.
    fn warn(&self, message: &str) {
        // A closed standard error is no reason to end the thread that reports.
        let _ = writeln!(io::stderr(), "chaton: {message}");
    }
}
