//! A deadline and its timer.

use std::future::Future;
use std::pin::Pin;
use std::task::Context;
use std::time::Instant;

use tokio::time::{sleep_until, Sleep};

/// Wakes a task at a time.
pub(super) trait Timer {
    /// Sets when it is over; `None`: never.
    fn set_deadline(&mut self, at: Option<Instant>);

    /// Whether the deadline has passed; if not, the task is woken then.
    fn poll_expired(&mut self, cx: &mut Context) -> bool;

    /// Clears the deadline, and nothing wakes the task because of earlier ones.
    fn disarm(&mut self);
}

/// A timer that takes memory once it is needed.
#[derive(Default)]
pub(super) struct LazyTimer {
    timer: Option<Pin<Box<Sleep>>>,
    deadline: Option<Instant>,
}

impl Timer for LazyTimer {
    fn set_deadline(&mut self, at: Option<Instant>) {
        self.deadline = at;
    }

    fn poll_expired(&mut self, cx: &mut Context) -> bool {
        let Some(deadline) = self.deadline else { return false };
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(deadline.into())));
        if timer.deadline().into_std() != deadline {
            timer.as_mut().reset(deadline.into());
        }
        timer.as_mut().poll(cx).is_ready()
    }

    fn disarm(&mut self) {
        *self = Self::default();
    }
}
