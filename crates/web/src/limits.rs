//! The bounds and time limits of the web engine: everything that a client can
//! make grow or wait is bounded here.

use std::time::Duration;

use chaton_core::settings::{seconds, seconds_or_off};
use serde::Deserialize;

/// The bounds of the budget. They are no settings: they only have to be smaller than the machine.
#[derive(Clone, Copy, Debug)]
pub struct BudgetLimits {
    /// Bytes in memory for one connection; above it no further request of an HTTP/2 connection is
    /// taken, and its answers and bodies go to files. A browser's whole page fits several times;
    /// 12 hostile connections fill the worker's share.
    pub connection_memory_bytes_max: u64,
    /// Bytes in memory for all connections. From a half of that on answers and bodies go to files at
    /// once: the rest is for what disks write and threads produce meanwhile, and for small ones. The
    /// heap has fragments and garbage beside it.
    pub memory_bytes_max: u64,
    /// Bytes in files for all connections, or four of the largest allowed body if that is more.
    /// A connection may have as much as is left free ("dynamic thresholds", Choudhury and Hahne
    /// 1998): one alone gets half, and however many there are, another one still gets a part.
    pub spool_bytes_max: u64,
    /// Bytes a second that a client must take of what is ready for it, on average over each
    /// `write_timeout_s` that it lets the server wait; Kestrel's default (MinResponseDataRate).
    pub reply_rate_min: u64,
}

impl Default for BudgetLimits {
    fn default() -> Self {
        Self {
            connection_memory_bytes_max: 16 << 20,
            memory_bytes_max: 256 << 20,
            spool_bytes_max: 4 << 30,
            reply_rate_min: 240,
        }
    }
}

/// Bounds of sizes and counts.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Bytes of a request head: request line, headers and the blank line. Also
    /// the bytes of a chunked body's trailers. Above it: 431.
    pub header_bytes_max: usize,
    /// Header lines of a request, and trailer lines of a chunked body. Above it:
    /// 431.
    pub header_count_max: usize,
    /// Bytes of the request target as sent. Above it: 414.
    pub uri_bytes_max: usize,
    /// Bytes of a request body once chunks are decoded. Above it: 413.
    pub body_bytes_max: u64,
    /// Bytes of a request body kept in memory; a larger one is spooled to an
    /// unlinked temporary file.
    pub body_memory_bytes_max: usize,
    /// Bytes a second of a request body, on average over each
    /// [`Timeouts::body`]; 0 is one byte in that time.
    pub body_rate_min: u64,
    /// Bytes of a streamed request body that wait in memory for the application;
    /// above it the socket is not read.
    pub stream_body_bytes_max: usize,
    /// Connections open at once.
    pub connections_max: usize,
    /// TLS handshakes under way at once; above it the oldest is closed.
    pub tls_handshakes_max: usize,
    /// Requests of one HTTP/2 connection under way at once.
    pub http2_streams_max: u32,
    /// Requests that the client of an HTTP/2 connection may give up beyond those it lets be answered.
    pub http2_resets_max: u32,
    /// Requests answered on one connection before it is closed; 0 is no limit.
    pub requests_per_connection_max: u64,
    /// Bytes of a streamed response kept in memory for a client that reads slowly;
    /// more is spooled to an unlinked temporary file.
    pub reply_memory_bytes_max: usize,
    /// Bytes of a streamed response spooled to a file; above it the producer waits.
    pub reply_spool_bytes_max: u64,
}

/// Bytes that have to pass within `time` at so many a second.
pub(crate) fn bytes_min(rate: u64, time: Duration) -> u64 {
    ((rate as f64 * time.as_secs_f64()) as u64).max(1)
}

#[cfg(any(test, feature = "test-support"))]
impl Limits {
    /// What tests use.
    pub fn for_tests() -> Self {
        Self {
            header_bytes_max: 32 * 1024,
            header_count_max: 100,
            uri_bytes_max: 8 * 1024,
            body_rate_min: 0,
            ..chaton_core::default_settings!("web", "limits")
        }
    }
}

/// How long the engine waits for a client, and a client for the application.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timeouts {
    /// From the accepted connection to the end of its TLS handshake.
    #[serde(rename = "tls_handshake_timeout_s", deserialize_with = "seconds")]
    pub tls_handshake: Duration,
    /// From the first byte of a request head to its last.
    #[serde(rename = "header_timeout_s", deserialize_with = "seconds")]
    pub header: Duration,
    /// A request body is complete within it, or brings `body_rate_min` bytes for
    /// each second of it; then it has as long again.
    #[serde(rename = "body_timeout_s", deserialize_with = "seconds")]
    pub body: Duration,
    /// A client may let a response wait so long; then it must have taken
    /// [`reply_rate_min`](crate::BudgetLimits::reply_rate_min) for each second of it.
    #[serde(rename = "write_timeout_s", deserialize_with = "seconds")]
    pub write: Duration,
    /// A kept-alive connection without a request.
    #[serde(rename = "idle_timeout_s", deserialize_with = "seconds")]
    pub idle: Duration,
    /// From the complete request to the first byte of its response; then the
    /// client gets 503. `None` is off.
    #[serde(rename = "request_timeout_s", deserialize_with = "seconds_or_off")]
    pub request: Option<Duration>,
    /// A request that has waited this long is not run if its client has ended its side
    /// of the connection. `None` is off.
    #[serde(rename = "abort_on_close_s", deserialize_with = "seconds_or_off")]
    pub abort_on_close: Option<Duration>,
    /// A kept-alive connection without a request, once the server drains.
    #[serde(rename = "drain_idle_s", deserialize_with = "seconds")]
    pub drain_idle: Duration,
}

#[cfg(any(test, feature = "test-support"))]
impl Timeouts {
    /// What tests use.
    pub fn for_tests() -> Self {
        let tls_handshake = Duration::from_secs(30);
        Self { tls_handshake, ..chaton_core::default_settings!("web", "timeouts") }
    }
}
