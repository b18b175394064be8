//! Responses that no thread produces: an event stream's connection is fed by a hub.

use std::task::{Context, Poll};

use bytes::Bytes;

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
