//! How engines give work to the pool: what their sinks have in common.

use std::sync::Arc;

use chaton_core::pool::Pool;

use crate::gvl_events::Crowd;
use crate::pool::PoolParts;
use crate::unit::Unit;

/// One lane of the pool, as an engine sees it.
pub struct Feed {
    /// Behind it.
    pub pool: Arc<Pool<Unit>>,
    crowd: Option<Arc<Crowd>>,
    lane: usize,
}

impl Feed {
    /// Of this lane.
    pub fn new(parts: &PoolParts, lane: usize) -> Self {
        Self { pool: parts.pool.clone(), crowd: parts.crowd.clone(), lane }
    }

    /// Puts a unit in; nobody is woken yet.
    ///
    /// # Errors
    /// The unit, when the lane is full.
    pub fn submit(&self, unit: Unit) -> Result<(), Unit> {
        self.pool.enqueue(self.lane, unit)
    }

    /// Wakes Ruby, once for all that was put in.
    pub fn flush(&self) {
        self.pool.nudge();
        self.crowd.as_ref().inspect(|crowd| crowd.check());
    }

    /// Takes back what nobody has begun.
    #[cfg(any(feature = "jobs", feature = "streams"))]
    pub fn take_waiting(&self) -> Vec<Unit> {
        self.pool.take_waiting(self.lane)
    }
}
