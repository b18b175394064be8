//! How long a request's body may take.

use std::future::Future;
use std::pin::Pin;
use std::task::Context;
use std::time::{Duration, Instant};

use tokio::time::{sleep_until, Sleep};

use crate::limits::bytes_min;

use super::window::BodyWindow;

/// A body must bring so many bytes a second, measured over each
/// [`Timeouts::body`](crate::limits::Timeouts::body).
pub(super) struct BodyClock {
    time: Duration,
    rate_min: u64,
    /// Bytes that arrived in the current time.
    arrived: u64,
    /// The current time; none while the client need not send.
    timer: Option<Pin<Box<Sleep>>>,
    window: BodyWindow,
    /// Of the window at the beginning of the current time.
    openings: Option<usize>,
}

impl BodyClock {
    pub fn new(time: Duration, rate_min: u64, window: BodyWindow) -> Self {
        Self { time, rate_min, arrived: 0, timer: None, window, openings: None }
    }

    pub fn add(&mut self, bytes: usize) {
        self.arrived += bytes as u64;
        self.window.go_on();
        self.window.add(bytes);
    }

    /// The client need not send now.
    pub fn pause(&mut self) {
        self.timer = None;
        self.window.pause();
    }

    /// Whether the client sends too slowly; if not, the task is woken when it may be. It is not late
    /// where the bodies of other streams used up the window.
    pub fn is_late(&mut self, cx: &mut Context) -> bool {
        self.window.go_on();
        loop {
            let ends = || Box::pin(sleep_until((Instant::now() + self.time).into()));
            let timer = match &mut self.timer {
                Some(timer) => timer,
                None => {
                    self.arrived = 0;
                    self.openings = self.window.openings();
                    self.timer.insert(ends())
                }
            };
            if timer.as_mut().poll(cx).is_pending() {
                return false;
            }
            let could_send = self.openings.is_some() && self.openings == self.window.openings();
            if could_send && self.arrived < bytes_min(self.rate_min, self.time) {
                return true;
            }
            self.timer = None;
        }
    }
}
