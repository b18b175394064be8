//! The settings an engine is started with.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use chaton_core::process::scoreboard::{Scoreboard, WorkerGauges};

use crate::limits::{Limits, Timeouts};

/// The kind of a listening socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenerKind {
    /// A TCP socket: `TCP_NODELAY` is set, the peer has an address.
    Tcp,
    /// A Unix stream socket: the peer has no address and is reported as `127.0.0.1`.
    Unix,
}

/// A bound, listening socket handed to the engine.
#[derive(Debug)]
pub struct Listener {
    /// The descriptor; the engine makes it non-blocking and closes it when it stops.
    pub fd: OwnedFd,
    /// TCP or Unix.
    pub kind: ListenerKind,
    /// How messages name it, for example `tcp://127.0.0.1:9292`.
    pub label: String,
}

/// The form of the access log, which goes to descriptor 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessLog {
    /// No access log.
    #[default]
    Off,
    /// The common log format followed by the duration in ms.
    Common,
    /// One JSON object a line.
    Json,
}

/// All settings of an engine.
pub struct Config {
    /// The listening sockets; [`crate::Exchange::listener`] is an index into them.
    pub listeners: Vec<Listener>,
    /// Sizes and counts that may not be exceeded.
    pub limits: Limits,
    /// How long each stage of a connection may take.
    pub timeouts: Timeouts,
    /// Form of the access log. Default: off.
    pub access_log: AccessLog,
    /// `Retry-After` of every 503, in seconds. Default: 1.
    pub retry_after_s: u32,
    /// Gauges shared with the sibling workers. Default: none.
    pub scoreboard: Option<Arc<Scoreboard>>,
    /// This worker's slot on the scoreboard. Default: 0.
    pub slot: usize,
    /// How long a new connection is left to a freer sibling before this worker
    /// checks again. Default: 1 ms.
    pub accept_grace: Duration,
    /// Longest time a connection is left to the siblings. Default: 50 ms.
    pub accept_defer: Duration,
    /// A worker counts as hogged when one unit of work has run this long and no
    /// other was taken. Default: 5 ms.
    pub hogged_after: Duration,
    /// Pause after `accept` failed for lack of descriptors or memory. Default: 100 ms.
    pub accept_pause: Duration,
    /// Longest wait for the peer's end after the engine ended its own side
    /// early, so that a reset does not destroy the response. Default: 1 s.
    pub linger: Duration,
    /// Bytes read and thrown away during that wait. Default: 256 KiB.
    pub linger_bytes_max: usize,
    /// Quiet time after which a kept-alive connection gives its buffers back. Default: 2 s.
    pub buffers_idle: Duration,
    /// How long small writes of a streamed response are gathered after the first
    /// one was sent. Default: 1 ms; zero sends each as soon as possible.
    pub gather: Duration,
}

impl Config {
    /// A configuration with every default, serving `listeners`.
    pub fn new(listeners: Vec<Listener>) -> Self {
        Self {
            listeners,
            limits: Limits::default(),
            timeouts: Timeouts::default(),
            access_log: AccessLog::Off,
            retry_after_s: 1,
            scoreboard: None,
            slot: 0,
            accept_grace: Duration::from_millis(1),
            accept_defer: Duration::from_millis(50),
            hogged_after: Duration::from_millis(5),
            accept_pause: Duration::from_millis(100),
            linger: Duration::from_secs(1),
            linger_bytes_max: 256 * 1024,
            buffers_idle: Duration::from_secs(2),
            gather: Duration::from_millis(1),
        }
    }

    /// This worker's gauges on the scoreboard.
    pub(crate) fn own_gauges(&self) -> Option<&WorkerGauges> {
        self.scoreboard.as_ref().map(|scoreboard| scoreboard.slot(self.slot))
    }
}
