//! The bounds and time limits of the web engine: everything that a client can
//! make grow or wait is bounded here.

use std::time::Duration;

/// Bounds of sizes and counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a request head: request line, headers and the blank line. Also
    /// the bytes of a chunked body's trailers. Above it: 431. Default 32,768.
    pub header_bytes_max: usize,
    /// Header lines of a request, and trailer lines of a chunked body. Above it:
    /// 431. Default 100.
    pub header_count_max: usize,
    /// Bytes of the request target as sent. Above it: 414. Default 8,192.
    pub uri_bytes_max: usize,
    /// Bytes of a request body once chunks are decoded. Above it: 413. Default 1 GiB.
    pub body_bytes_max: u64,
    /// Bytes of a request body kept in memory; a larger one is spooled to an
    /// unlinked temporary file. Default 256 KiB.
    pub body_memory_bytes_max: usize,
    /// Connections open at once. Default 10,000.
    pub connections_max: usize,
    /// Requests answered on one connection before it is closed; 0 is no limit. Default 0.
    pub requests_per_connection_max: u64,
    /// Bytes of a streamed response kept in memory for a client that reads slowly;
    /// more is spooled to an unlinked temporary file. Default 1 MiB.
    pub reply_memory_bytes_max: usize,
    /// Bytes of a streamed response spooled to a file; above it the producer waits. Default 1 GiB.
    pub reply_spool_bytes_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            header_bytes_max: 32 * 1024,
            header_count_max: 100,
            uri_bytes_max: 8 * 1024,
            body_bytes_max: 1 << 30,
            body_memory_bytes_max: 256 * 1024,
            connections_max: 10_000,
            requests_per_connection_max: 0,
            reply_memory_bytes_max: 1 << 20,
            reply_spool_bytes_max: 1 << 30,
        }
    }
}

/// How long the engine waits for a client, and a client for the application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// From the first byte of a request head to its last. Default 30 s.
    pub header: Duration,
    /// Without one byte of progress while a request body arrives. Default 30 s.
    pub body: Duration,
    /// Without one byte of progress while a response is sent. Default 30 s.
    pub write: Duration,
    /// A kept-alive connection without a request. Default 60 s.
    pub idle: Duration,
    /// From the complete request to the first byte of its response; then the
    /// client gets 503. `None`, the default, is off.
    pub request: Option<Duration>,
    /// How long an idle connection stays open once the server drains. Default 5 s.
    pub drain_idle: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            header: Duration::from_secs(30),
            body: Duration::from_secs(30),
            write: Duration::from_secs(30),
            idle: Duration::from_secs(60),
            request: None,
            drain_idle: Duration::from_secs(5),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_the_documented_ones() {
        let limits = Limits::default();
        assert_eq!(limits.header_bytes_max, 32_768);
        assert_eq!(limits.body_bytes_max, 1_073_741_824);
        assert_eq!(limits.reply_memory_bytes_max, 1_048_576);
        assert_eq!(Timeouts::default().request, None);
    }
}
