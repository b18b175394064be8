//! How long a request's body may take.

use std::future::Future;
use std::pin::Pin;
use std::task::Context;
use std::time::{Duration, Instant};

use tokio::time::{sleep_until, Sleep};

use super::super::request::body_bytes_min;

/// A body must bring so many bytes a second, measured over each
/// [`Timeouts::body`](crate::limits::Timeouts::body).
pub(super) struct BodyClock {
    time: Duration,
    rate_min: u64,
    /// Bytes that arrived in the current time.
    arrived: u64,
    /// The current time; none while the client need not send.
    timer: Option<Pin<Box<Sleep>>>,
}

impl BodyClock {
    pub fn new(time: Duration, rate_min: u64) -> Self {
        Self { time, rate_min, arrived: 0, timer: None }
    }

    pub fn add(&mut self, bytes: usize) {
        self.arrived += bytes as u64;
    }

    /// The client need not send now.
    pub fn pause(&mut self) {
        self.timer = None;
    }

    /// Whether the client sends too slowly; if not, the task is woken when it may be.
    pub fn is_late(&mut self, cx: &mut Context) -> bool {
        loop {
            let ends = || Box::pin(sleep_until((Instant::now() + self.time).into()));
            let timer = match &mut self.timer {
                Some(timer) => timer,
                None => {
                    self.arrived = 0;
                    self.timer.insert(ends())
                }
            };
            if timer.as_mut().poll(cx).is_pending() {
                return false;
            }
            if self.arrived < body_bytes_min(self.rate_min, self.time) {
                return true;
            }
            self.timer = None;
        }
    }
}
