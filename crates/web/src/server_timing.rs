//! `Server-Timing`: how long a request has waited and run, for the tools of browsers.

use std::io::Write as _;
use std::time::Duration;

/// The times of a request whose response begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerTiming {
    /// It waited for a thread, also before it came here (`X-Request-Start`).
    pub queue: Duration,
    /// It ran in the application.
    pub app: Duration,
}

impl ServerTiming {
    /// Calls `add` with the value of the header.
    pub(crate) fn add_to(&self, add: impl FnOnce(&[u8])) {
        let ms = |time: Duration| time.as_secs_f64() * 1000.0;
        let (queue, app) = (ms(self.queue), ms(self.app));
        // Two durations of the longest kind and their names have 74 bytes.
        let mut value = [0; 80];
        let mut rest = &mut value[..];
        let _ = write!(rest, "queue;dur={queue:.2}, app;dur={app:.2}");
        let left = rest.len();
        add(&value[..80 - left]);
    }
}
