//! The settings an engine is started with.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use chaton_core::pool::queue::QueueLimits;
use chaton_core::process::counters::RequestCounters;
use chaton_core::process::scoreboard::{OwnGauges, Scoreboard, WorkerGauges};
use chaton_core::settings::{millis, seconds};
use serde::Deserialize;

use crate::access_log::AccessLog;
use crate::compression::CompressionSettings;
use crate::forwarded::{ForwardedSettings, Network};
use crate::limits::{BudgetLimits, Limits, Timeouts};
use crate::path_patterns::is_among;
use crate::static_settings::StaticSettings;
use crate::tls::TlsSettings;

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
    /// How its connections are encrypted; `None`: they are not.
    pub tls: Option<TlsSettings>,
}

/// A listener whose connections begin with a header of the PROXY protocol.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProxyBind {
    /// Its index.
    pub listener: usize,
    /// The networks of the balancers; `None`: anybody may send the header.
    pub sources: Option<Vec<Network>>,
}

fn buffers_idle() -> Duration {
    Duration::from_secs(2)
}

/// All settings of an engine: the section `web` of the document, and what this
/// process adds to it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The listening sockets; [`crate::Exchange::listener`] is an index into them.
    #[serde(skip)]
    pub listeners: Vec<Listener>,
    /// Sizes and counts that may not be exceeded.
    pub limits: Limits,
    /// How long each stage of a connection may take.
    pub timeouts: Timeouts,
    /// Bounds of the requests that wait in the pool.
    pub queue: QueueLimits,
    /// Paths whose request bodies are handed over while they arrive; a `*` at the
    /// end stands for any rest.
    pub stream_bodies: Vec<String>,
    /// The listeners whose connections begin with a header of the PROXY protocol.
    pub proxy_protocol: Vec<ProxyBind>,
    /// Whose word of the client is believed.
    pub forwarded: ForwardedSettings,
    /// Compression of the application's answers.
    pub compression: Option<CompressionSettings>,
    /// Files that are served without the application.
    pub static_files: Option<StaticSettings>,
    /// Whether answers of the application have `Server-Timing`.
    pub server_timing: bool,
    /// Whether clients may speak HTTP/2.
    pub http2: bool,
    /// Form of the access log.
    pub access_log: AccessLog,
    /// `Retry-After` of every 503, in seconds.
    pub retry_after_s: u32,
    /// Gauges shared with the sibling workers.
    #[serde(skip)]
    pub scoreboard: Option<Arc<Scoreboard>>,
    /// This worker's slot on the scoreboard.
    #[serde(skip)]
    pub slot: usize,
    /// How long a new connection is left to a freer sibling before this worker
    /// checks again.
    #[serde(rename = "accept_grace_ms", deserialize_with = "millis")]
    pub accept_grace: Duration,
    /// Time between two looks at the files of certificates.
    #[serde(rename = "tls_reload_s", deserialize_with = "seconds")]
    pub tls_reload: Duration,
    /// Time for which a key of session tickets is used.
    #[serde(rename = "tls_ticket_s", deserialize_with = "seconds")]
    pub tls_ticket: Duration,
    /// Longest time a connection is left to the siblings.
    #[serde(rename = "accept_defer_ms", deserialize_with = "millis")]
    pub accept_defer: Duration,
    /// A worker counts as hogged when one unit of work has run this long and no
    /// other was taken: as long as a thread of the pool may keep the CPU.
    #[serde(skip)]
    pub hogged_after: Duration,
    /// The most threads of the pool.
    #[serde(skip)]
    pub threads_max: usize,
    /// Quiet time after which a kept-alive connection gives its buffers back. No
    /// setting; tests shorten it.
    #[serde(skip, default = "buffers_idle")]
    pub buffers_idle: Duration,
    /// What clients may make the worker hold.
    #[serde(skip)]
    pub budget: BudgetLimits,
}

impl Config {
    /// The configuration of tests, serving `listeners`.
    #[cfg(any(test, feature = "test-support"))]
    pub fn for_tests(listeners: Vec<Listener>) -> Self {
        Self {
            listeners,
            limits: Limits::for_tests(),
            timeouts: Timeouts::for_tests(),
            queue: QueueLimits {
                count_max: 1024,
                bytes_max: 64 << 20,
                age_max: Duration::from_secs(5),
            },
            tls_reload: Duration::from_millis(10),
            hogged_after: Duration::from_millis(5),
            threads_max: 64,
            ..chaton_core::default_settings!("web")
        }
    }

    /// Whether the request body of this path is streamed.
    pub(crate) fn streams_body(&self, path: &[u8]) -> bool {
        is_among(path, &self.stream_bodies)
    }

    /// What the workers of this slot have done.
    pub(crate) fn own_counters(&self) -> Option<&RequestCounters> {
        self.scoreboard.as_ref().map(|scoreboard| &scoreboard.counters(self.slot).requests)
    }

    /// What the worker shows on the scoreboard, for others that write there.
    pub(crate) fn shown(&self) -> Option<OwnGauges> {
        let scoreboard = self.scoreboard.as_ref()?;
        Some(OwnGauges::new(Arc::clone(scoreboard), self.slot))
    }

    /// This worker's gauges on the scoreboard.
    pub(crate) fn own_gauges(&self) -> Option<&WorkerGauges> {
        self.scoreboard.as_ref().map(|scoreboard| scoreboard.slot(self.slot))
    }
}
