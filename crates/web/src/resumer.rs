//! Requests of clients that come back to an event stream.

use std::sync::Arc;
use std::time::Duration;

use crate::exchange::Exchange;

/// Answers requests of clients that come back to an event stream, before Ruby gets them.
pub trait Resumer: Send + Sync {
    /// Looks at a request with a `Last-Event-ID`.
    fn resume(&self, exchange: &Arc<Exchange>, id: &[u8]) -> Resumed;
}

/// What becomes of such a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resumed {
    /// It is answered.
    Answered,
    /// Ruby gets it after this time, so that many at once leave room for others.
    After(Duration),
    /// There are too many.
    Refused,
}
