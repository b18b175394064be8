//! Ending the wait of a watch.

use std::sync::Arc;

use chaton_core::event_fd::EventFd;

use super::traits::Interrupt;

/// Ends the wait of a watch through its event descriptor, if it has one.
pub(super) struct EventInterrupt(pub Option<Arc<EventFd>>);

impl Interrupt for EventInterrupt {
    fn interrupt(&self) {
        if let Some(event) = &self.0 {
            event.notify();
        }
    }
}
