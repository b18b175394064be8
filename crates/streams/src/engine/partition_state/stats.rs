//! A partition's part of the statistics.

use super::super::stats::PartitionStats;
use super::key_lane::{KeyLane, LaneState, ReadyItem, WaitReason};
use super::{Now, PartitionPhase, PartitionState};
use crate::log::LostRecords;

impl PartitionState {
    /// Everything but the end of the log.
    pub fn stats(&self, now: Now) -> PartitionStats {
        let in_flight = |state: &LaneState| matches!(state, LaneState::InFlight { .. });
        PartitionStats {
            topic: self.partition.topic.to_string(),
            partition: self.partition.number,
            state: self.state_name(),
            position: self.tracker.position().unwrap_or(-1),
            committed: self.committed,
            running: self.lanes.iter().filter(|lane| in_flight(&lane.state)).count(),
            ready: self.lanes.iter().map(|lane| lane.ready_records()).sum(),
            attempt: self.attempt(),
            retry_in_ms: self.retry_in_ms(now),
            missing: self.stopped.as_ref().map(|lost| (lost.from, lost.until)),
            ..PartitionStats::default()
        }
    }

    /// The first offset that is not done, as far as is known.
    pub fn head(&self) -> Option<i64> {
        self.tracker.head().or(self.tracker.position())
    }

    /// The lost records at which it has stopped.
    pub fn stopped(&self) -> Option<&LostRecords> {
        self.stopped.as_ref()
    }

    /// Whether it waits because its consumer has asked for that.
    pub fn is_paused(&self) -> bool {
        matches!(self.phase, PartitionPhase::Paused { .. })
    }

    /// The time of the first record that is not done (ms since 1970), while the partition holds it and where it
    /// has one.
    pub fn head_time_ms(&self) -> Option<i64> {
        let head = self.tracker.head()?;
        let time_ms = self.lanes.iter().flat_map(KeyLane::record_sets).find_map(|records| {
            let entries = records.chunk.entries();
            let at = entries.binary_search_by_key(&head, |entry| entry.offset).ok()?;
            Some(entries[at].timestamp_ms)
        });
        time_ms.filter(|ms| *ms > 0)
    }

    fn state_name(&self) -> &'static str {
        match self.phase {
            PartitionPhase::Open => {}
            PartitionPhase::Paused { .. } => return "paused",
            PartitionPhase::Seeking { .. } => return "seeking",
            PartitionPhase::Draining { .. } => return "draining",
            PartitionPhase::Revoked { .. } => return "revoked",
        }
        let ranks = self.lanes.iter().map(|lane| match lane.state {
            LaneState::DeadLetter { .. } => (5, "dead_lettering"),
            LaneState::Waiting { reason: WaitReason::Retry, .. } => (4, "retrying"),
            LaneState::InFlight { .. } => (3, "running"),
            LaneState::Waiting { reason: WaitReason::Delay, .. } => (2, "delayed"),
            LaneState::Waiting { reason: WaitReason::Throttle, .. } => (1, "throttled"),
            LaneState::Free | LaneState::Over if self.stopped.is_some() => (0, "stopped"),
            LaneState::Free | LaneState::Over => (0, "fetching"),
        });
        ranks.max().map_or("fetching", |(_, name)| name)
    }

    fn attempt(&self) -> u32 {
        let attempts = self.lanes.iter().map(|lane| match (&lane.state, lane.first()) {
            (LaneState::InFlight { records: Some(records), .. }, _) => records.attempt,
            (LaneState::DeadLetter { letter, .. }, _) => letter.attempts(),
            (_, Some(ReadyItem::Records(records))) => records.attempt,
            _ => 0,
        });
        attempts.max().unwrap_or(0)
    }

    fn retry_in_ms(&self, now: Now) -> u64 {
        let waits = self.lanes.iter().filter_map(|lane| match lane.state {
            LaneState::Waiting { until_ns, reason: WaitReason::Retry } => {
                Some(until_ns.saturating_sub(now.ns))
            }
            _ => None,
        });
        waits.min().unwrap_or(0) / 1_000_000
    }
}
