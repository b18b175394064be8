//! Batches that a dead process left open. The job that opened one runs again and makes another, so that the
//! first would be closed by nobody. It is removed, since callbacks for a part of the jobs would be wrong.

use super::state::EngineState;
use crate::store::{Result, Store};

/// Time between two looks (s).
const EVERY_S: f64 = 60.0;

/// When to look for such batches.
#[derive(Default)]
pub(super) struct LeftBatches {
    /// The time of the next look (s).
    pub next_at_s: f64,
}

impl LeftBatches {
    /// Removes them if a look is due.
    pub fn sweep(&mut self, store: &mut dyn Store, state: &EngineState, now_s: f64) -> Result<()> {
        if now_s < self.next_at_s && self.next_at_s - now_s <= EVERY_S {
            return Ok(());
        }
        for batch in store.remove_open(None)? {
            state.feed.warn(&format!(
                "jobs: batch {} {:?} was left open by a process that is gone, and is removed with its callbacks; \
                 {} jobs that it had already run all the same; a job that was making it makes another one",
                batch.bid, batch.description, batch.total
            ));
        }
        self.next_at_s = now_s + EVERY_S;
        Ok(())
    }
}
