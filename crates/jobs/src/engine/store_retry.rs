//! Tries again what the store refused, and says so in the log.

use std::time::Duration;

use chaton_core::backoff::Backoff;

use super::state::EngineState;
use crate::store::StoreError;

/// The first pause.
const FIRST: Duration = Duration::from_millis(50);

/// The tries of one thread of the engine.
pub struct StoreRetry(Backoff);

impl StoreRetry {
    /// Pauses of `max` at most. The error of the start is reported already.
    pub fn new(max: Duration, state: &EngineState) -> Self {
        let backoff = Backoff::new(FIRST.min(max), max);
        Self(backoff.reported(state.error_at_start.get().map_or("", String::as_str)))
    }

    /// Notes a failure: the pause before the next try, and a log line when the error is a new one.
    pub fn failed(&mut self, action: &str, error: &StoreError) -> (Duration, Option<String>) {
        let (pause, is_new) = self.0.failed(&error.message);
        let max = self.0.max();
        let line = || format!("jobs: {action}: {error}; trying again, at most {max:?} apart");
        (pause, is_new.then(line))
    }

    /// Notes a success; a log line when it ended a row of failures.
    pub fn succeeded(&mut self, action: &str) -> Option<String> {
        let failures = self.0.succeeded();
        let line = || format!("jobs: {action}: the store answers again after {failures} failures");
        (failures > 0).then(line)
    }
}
