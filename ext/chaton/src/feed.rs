//! How engines give work to the hub: what their sinks have in common.

use std::sync::Arc;

use chaton_core::hub::Hub;

use crate::gvl_events::Crowd;
use crate::hub::HubParts;
use crate::unit::Unit;

/// One lane of the hub, as an engine sees it.
pub struct Feed {
    /// Behind it.
    pub hub: Arc<Hub<Unit>>,
    crowd: Option<Arc<Crowd>>,
    lane: usize,
}

impl Feed {
    /// Of this lane.
    pub fn new(parts: &HubParts, lane: usize) -> Self {
        Self { hub: parts.hub.clone(), crowd: parts.crowd.clone(), lane }
    }

    /// Puts a unit in; nobody is woken yet.
    ///
    /// # Errors
    /// The unit, when the lane is full.
    pub fn submit(&self, unit: Unit) -> Result<(), Unit> {
        self.hub.enqueue(self.lane, unit)
    }

    /// Wakes Ruby, once for all that was put in.
    pub fn flush(&self) {
        self.hub.nudge();
        self.crowd.as_ref().inspect(|crowd| crowd.check());
    }

    /// Takes back what nobody has begun.
    #[cfg(any(feature = "jobs", feature = "streams"))]
    pub fn take_waiting(&self) -> Vec<Unit> {
        self.hub.take_waiting(self.lane)
    }
}
