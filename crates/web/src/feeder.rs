//! Responses that no thread produces: an event stream's connection is fed by a hub.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;

use crate::exchange::Exchange;

/// Feeds the body of one response. The connection's task polls it; dropped, the response has ended.
pub trait Feeder: Send {
    /// What the connection does next; `out` gets bytes to send. If that is pending, the task is woken.
    /// `drains` says that the server stops: the body should end soon.
    fn poll_step(
        &mut self,
        cx: &mut Context<'_>,
        drains: bool,
        out: &mut Vec<u8>,
    ) -> Poll<FeedStep>;
}

/// What the connection does next.
#[derive(Debug)]
pub enum FeedStep {
    /// It sends the buffer, and then these bytes, which are not copied.
    Send(Option<Bytes>),
    /// It ends the response.
    End,
}

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
