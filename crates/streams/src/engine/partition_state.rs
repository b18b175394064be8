//! The state machine of one assigned partition, without effects.
//!
//! Every change of state is in this module and its children. Time comes in as an argument; what is
//! to be done goes out as values. The partition has a [`PartitionPhase`] and each of its key lanes
//! a [`LaneState`]; without `order: :key` there is one lane. Every batch has a number of its own,
//! so that reports of older batches and of older assignments are ignored.

mod commit;
mod dead_letter;
mod deliver;
mod fetch;
mod finish;
mod key_lane;
mod pending_dead_letter;
mod stats;
mod suspect;

use std::collections::VecDeque;
use std::sync::Arc;

use super::route::Route;
use super::token_bucket::TokenBucket;
use super::tracker::{metadata, OffsetRange, Tracker};
use crate::batch::BatchKind;
use crate::commit_notes;
use crate::log::{Assignment, LostRecords, Partition, Position};
use crate::record_set::{HeldBytes, RecordSet};
use fastrand::Rng;
use key_lane::{KeyLane, LaneState};
pub(super) use pending_dead_letter::{LetterEnd, LetterSize, PendingDeadLetter};

/// One moment on both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    /// Monotonic.
    pub ns: u64,
    /// Since 1970.
    pub ms: i64,
}

impl Now {
    pub fn read() -> Self {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let ms = since.map_or(0, |time| time.as_millis() as i64);
        Self { ns: chaton_core::clock::now_ns(), ms }
    }

    /// The monotonic time at which the wall clock shows `ms`; the largest number when that is too
    /// far away.
    fn ns_at(&self, ms: i64) -> u64 {
        self.ns_after(ms.saturating_sub(self.ms).max(0) as u64)
    }

    fn ns_after(&self, ms: u64) -> u64 {
        self.ns.saturating_add(ms.saturating_mul(1_000_000))
    }
}

/// What the partition as a whole does.
#[derive(Clone, Copy, Debug, PartialEq)]
enum PartitionPhase {
    /// Lanes hand out what is ready.
    Open,
    /// Lanes hand out nothing until then.
    Paused { until_ns: u64 },
    /// Waits until the batches in flight have ended, and then for the log to seek.
    Seeking { to: Position, not_before_ns: u64, pause_until_ns: u64 },
    /// It is being revoked: batches in flight may end, and count.
    Draining { notice: BatchKind },
    /// It is revoked: batches in flight no longer count.
    Revoked { notice: Option<BatchKind> },
}

/// The state of an assigned partition.
pub(super) struct PartitionState {
    route: Arc<Route>,
    partition: Partition,
    generation: u64,
    phase: PartitionPhase,
    lanes: Vec<KeyLane>,
    tracker: Tracker,
    /// See [`commit_notes`].
    began_with: Option<i32>,
    /// Offsets that earlier members have consumed beyond their commit.
    skip: VecDeque<OffsetRange>,
    throttle: Option<TokenBucket>,
    random: Rng,
    held: HeldBytes,
    /// The last lane that got a record without a key.
    keyless_lane: usize,
    /// Something is done that no commit contains.
    dirty: bool,
    /// Commits are accepted.
    owned: bool,
    /// The lost records at which it has stopped.
    stopped: Option<LostRecords>,
    /// The offset of the last commit; -1: none.
    committed: i64,
    scratch: Vec<OffsetRange>,
    /// A record that ended too many workers, and how; not logged yet.
    pub poison: Option<(i64, String)>,
    /// The last such record, and how many workers it had ended.
    poison_seen: Option<(i64, usize)>,
}

impl PartitionState {
    pub fn new(
        route: &Arc<Route>,
        assigned: &Assignment,
        generation: u64,
        now: Now,
        random: Rng,
    ) -> Self {
        let settings = &route.settings;
        let (metadata, began_with) = commit_notes::split(&assigned.metadata);
        let skip = assigned.committed.map(|head| metadata::decode(head, metadata));
        let mut tracker = Tracker::new(assigned.committed);
        if let Some(head) = assigned.committed.filter(|_| assigned.is_first) {
            tracker.done(&[(i64::MIN, head)]);
        }
        Self {
            partition: assigned.partition.clone(),
            generation,
            phase: PartitionPhase::Open,
            lanes: (0..settings.lanes()).map(|_| KeyLane::default()).collect(),
            tracker,
            began_with,
            skip: skip.unwrap_or_default(),
            throttle: settings.throttle.map(|throttle| TokenBucket::new(throttle, now.ns)),
            random,
            held: HeldBytes::default(),
            keyless_lane: 0,
            dirty: assigned.is_first,
            owned: true,
            stopped: None,
            committed: assigned.committed.filter(|_| !assigned.is_first).unwrap_or(-1),
            scratch: Vec::new(),
            poison: None,
            poison_seen: None,
            route: route.clone(),
        }
    }

    /// Begins to give the partition up: records that are ready are dropped, batches in flight may
    /// end. Each lane that was used gets `notice` as its last batch.
    pub fn drain(&mut self, notice: BatchKind) {
        if !self.is_draining() {
            self.phase = PartitionPhase::Draining { notice };
            self.lanes.iter_mut().for_each(KeyLane::drop_ready);
        }
    }

    /// Whether nothing in flight is waited for.
    pub fn is_drained(&self) -> bool {
        self.is_revoked() || !self.lanes.iter().any(KeyLane::is_busy)
    }

    /// Batches in flight no longer count. Lanes that were used get a notice, if there is one.
    pub fn give_up(&mut self, notice: Option<BatchKind>) {
        let notice = match self.phase {
            PartitionPhase::Draining { notice: own } => notice.map(|_| own),
            PartitionPhase::Revoked { notice: own } => notice.and(own),
            _ => notice,
        };
        self.phase = PartitionPhase::Revoked { notice };
        self.lanes.iter_mut().for_each(KeyLane::drop_all);
    }

    /// Another member has the partition: nothing counts, and nothing can be committed.
    pub fn lose(&mut self) {
        self.dirty = false;
        self.owned = false;
        self.give_up(Some(BatchKind::Revoked));
    }

    /// Whether commits are accepted.
    pub fn is_owned(&self) -> bool {
        self.owned
    }

    /// Whether it is being given up, or is.
    pub fn is_draining(&self) -> bool {
        matches!(self.phase, PartitionPhase::Draining { .. } | PartitionPhase::Revoked { .. })
    }

    fn is_revoked(&self) -> bool {
        matches!(self.phase, PartitionPhase::Revoked { .. })
    }

    /// Whether records are fetched and kept.
    fn is_fetching(&self) -> bool {
        matches!(self.phase, PartitionPhase::Open | PartitionPhase::Paused { .. })
    }

    /// Whether its last batch has ended and everything done is committed.
    pub fn is_over(&self) -> bool {
        !self.is_dirty() && self.lanes.iter().all(|lane| matches!(lane.state, LaneState::Over))
    }

    /// Whether no batch is in flight and everything done is committed.
    pub fn is_idle(&self) -> bool {
        let draining = self.is_draining();
        let is_idle = |lane: &KeyLane| match lane.state {
            LaneState::Free => !draining,
            LaneState::Waiting { .. } | LaneState::Over => true,
            LaneState::InFlight { .. } | LaneState::DeadLetter { .. } => false,
        };
        !self.dirty && self.lanes.iter().all(is_idle)
    }

    /// The position to seek to, once the batches before the seek have ended.
    pub fn seek_due(&self, now: Now) -> Option<Position> {
        match self.phase {
            PartitionPhase::Seeking { to, not_before_ns, .. } if not_before_ns <= now.ns => {
                self.is_drained().then_some(to)
            }
            _ => None,
        }
    }

    /// The log has done the seek.
    pub fn seek_done(&mut self) {
        let PartitionPhase::Seeking { to, pause_until_ns, .. } = self.phase else { return };
        self.phase = match pause_until_ns {
            0 => PartitionPhase::Open,
            until_ns => PartitionPhase::Paused { until_ns },
        };
        let position = if let Position::Offset(offset) = to { Some(offset) } else { None };
        self.tracker = Tracker::asked(position);
        self.stopped = None;
        // Everything done before the seek was committed before it.
        self.dirty = false;
        self.skip.clear();
    }

    /// The log could not seek; it is tried again then.
    pub fn seek_failed(&mut self, retry_at_ns: u64) {
        if let PartitionPhase::Seeking { not_before_ns, .. } = &mut self.phase {
            *not_before_ns = retry_at_ns;
        }
    }

    /// When something is due without an event from outside.
    pub fn next_ns(&self) -> Option<u64> {
        let lanes = self.lanes.iter().filter_map(KeyLane::wakes_ns);
        let dead_letters = self.lanes.iter().filter_map(KeyLane::dead_letter_ns);
        match self.phase {
            // A pause holds lanes back, but not dead letters.
            PartitionPhase::Paused { until_ns } => dead_letters.chain([until_ns]).min(),
            PartitionPhase::Seeking { not_before_ns, .. } => {
                dead_letters.chain(self.is_drained().then_some(not_before_ns)).min()
            }
            PartitionPhase::Open => lanes.min(),
            PartitionPhase::Draining { .. } | PartitionPhase::Revoked { .. } => None,
        }
    }

    fn pause(&mut self, until_ns: u64) {
        match &mut self.phase {
            PartitionPhase::Open => self.phase = PartitionPhase::Paused { until_ns },
            PartitionPhase::Paused { until_ns: before } => *before = until_ns.max(*before),
            PartitionPhase::Seeking { pause_until_ns, .. } => *pause_until_ns = until_ns,
            PartitionPhase::Draining { .. } | PartitionPhase::Revoked { .. } => {}
        }
    }

    fn seek(&mut self, to: Position) {
        let pause_until_ns = match self.phase {
            PartitionPhase::Open => 0,
            PartitionPhase::Paused { until_ns } => until_ns,
            PartitionPhase::Seeking { pause_until_ns, .. } => pause_until_ns,
            PartitionPhase::Draining { .. } | PartitionPhase::Revoked { .. } => return,
        };
        self.phase = PartitionPhase::Seeking { to, not_before_ns: 0, pause_until_ns };
        self.lanes.iter_mut().for_each(KeyLane::drop_ready);
    }

    /// Tracks these records as done.
    fn track_done(&mut self, records: &RecordSet, picks: &[u32]) {
        super::tracker::ranges_of(records.chunk.entries(), picks, &mut self.scratch);
        self.tracker.done(&self.scratch);
        self.dirty |= !picks.is_empty();
    }
}

#[cfg(test)]
mod tests;
