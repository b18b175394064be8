//! How long a request's body may take.

use std::task::Context;
use std::time::Instant;

use crate::config::Config;
use crate::limits::bytes_min;

use super::timer::Timer;
use super::window::BodyWindow;

/// A body must bring so many bytes a second, measured over each
/// [`Timeouts::body`](crate::limits::Timeouts::body).
pub(super) struct BodyClock {
    /// Bytes that arrived in the current time.
    arrived: u64,
    /// The timer has the end of the current time. It has not while the client need not send.
    is_running: bool,
    /// Of HTTP/2.
    window: Option<BodyWindow>,
}

impl BodyClock {
    pub fn new(window: Option<BodyWindow>) -> Self {
        Self { arrived: 0, is_running: false, window }
    }

    pub fn add(&mut self, bytes: usize) {
        self.arrived += bytes as u64;
        if let Some(window) = &mut self.window {
            window.go_on();
            window.add(bytes);
        }
    }

    /// The current time begins anew: the client was not waited for.
    pub fn restart(&mut self) {
        self.is_running = false;
    }

    /// The client need not send now.
    pub fn pause(&mut self) {
        self.is_running = false;
        self.window.iter_mut().for_each(BodyWindow::pause);
    }

    /// Whether the client sends too slowly; if not, the task is woken when it may be. It is not late
    /// where the bodies of other streams used up the window.
    pub fn is_late(&mut self, cx: &mut Context, timer: &mut impl Timer, config: &Config) -> bool {
        let time = config.timeouts.body;
        self.window.iter_mut().for_each(BodyWindow::go_on);
        loop {
            if !std::mem::replace(&mut self.is_running, true) {
                self.arrived = 0;
                self.window.iter_mut().for_each(BodyWindow::begin_time);
                timer.set_deadline(Some(Instant::now() + time));
            }
            if !timer.poll_expired(cx) {
                return false;
            }
            let could_send = self.window.as_ref().is_none_or(BodyWindow::was_open);
            if could_send && self.arrived < bytes_min(config.limits.body_rate_min, time) {
                return true;
            }
            self.is_running = false;
        }
    }
}
