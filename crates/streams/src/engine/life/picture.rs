//! A partition as the statistics show it.

use super::super::stats::PartitionStats;
use super::strand::{Piece, State, Why};
use super::{Life, Now, Phase};

impl Life {
    /// Its part of the picture: all but the names and the end of the log.
    pub fn picture(&self, now: Now) -> PartitionStats {
        let out = |state: &State| matches!(state, State::Out { .. });
        PartitionStats {
            state: self.state_name(),
            position: self.tracker.position().unwrap_or(-1),
            committed: self.said,
            running: self.strands.iter().filter(|strand| out(&strand.state)).count(),
            ready: self.strands.iter().map(|strand| strand.records()).sum(),
            attempt: self.attempt(),
            retry_in_ms: self.retry_in_ms(now),
            ..PartitionStats::default()
        }
    }

    /// The first offset that is not done, as far as is known.
    pub fn head(&self) -> Option<i64> {
        self.tracker.head().or(self.tracker.position())
    }

    fn state_name(&self) -> &'static str {
        match self.phase {
            Phase::Open => {}
            Phase::Paused { .. } => return "paused",
            Phase::Seeking { .. } => return "seeking",
            Phase::Ending { .. } => return "draining",
            Phase::Gone { .. } => return "revoked",
        }
        let ranks = self.strands.iter().map(|strand| match strand.state {
            State::Dead { .. } => (5, "dead_lettering"),
            State::Waiting { why: Why::Retry, .. } => (4, "retrying"),
            State::Out { .. } => (3, "running"),
            State::Waiting { why: Why::Delay, .. } => (2, "delayed"),
            State::Waiting { why: Why::Throttle, .. } => (1, "throttled"),
            State::Free | State::Over => (0, "fetching"),
        });
        ranks.max().map_or("fetching", |(_, name)| name)
    }

    fn attempt(&self) -> u32 {
        let attempts = self.strands.iter().map(|strand| match (&strand.state, strand.first()) {
            (State::Out { batch: Some(batch), .. }, _) => batch.attempt,
            (State::Dead { letter, .. }, _) => letter.attempts,
            (_, Some(Piece::Batch(batch))) => batch.attempt,
            _ => 0,
        });
        attempts.max().unwrap_or(0)
    }

    fn retry_in_ms(&self, now: Now) -> u64 {
        let waits = self.strands.iter().filter_map(|strand| match strand.state {
            State::Waiting { until_ns, why: Why::Retry } => Some(until_ns.saturating_sub(now.ns)),
            _ => None,
        });
        waits.min().unwrap_or(0) / 1_000_000
    }
}
