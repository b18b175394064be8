//! `Server-Timing`: how long a request has waited and run, for the tools of browsers.

use std::io::Write as _;
use std::time::Duration;

use crate::exchange::Exchange;

/// The times of a request whose response begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerTiming {
    /// It waited for a thread, also before it came here (`X-Request-Start`).
    pub queue: Duration,
    /// It ran in the application.
    pub app: Duration,
}

impl ServerTiming {
    /// Those of a request that a thread has taken.
    pub fn of(exchange: &Exchange) -> Self {
        let took = exchange.received_at().elapsed();
        let waited = exchange.waited().unwrap_or_default();
        let proxied = exchange.waited_before(took);
        Self { queue: proxied + waited, app: took.saturating_sub(waited) }
    }

    pub(crate) fn append(&self, out: &mut Vec<u8>) {
        let ms = |time: Duration| time.as_secs_f64() * 1000.0;
        let (queue, app) = (ms(self.queue), ms(self.app));
        let _ = write!(out, "Server-Timing: queue;dur={queue:.2}, app;dur={app:.2}\r\n");
    }
}
