//! The state machine of one assigned partition, without effects.
//!
//! Every change of state is in this module. Time comes in as an argument; what is
//! to be done goes out as values. The partition has a [`PartitionPhase`] and each of its key lanes
//! a [`LaneState`]; without `order: :key` there is one lane. Every batch has a number of its own,
//! so that reports of older batches and of older assignments are ignored.

mod key_lane;
mod pending_dead_letter;

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

use super::route::Route;
use super::settings::RecordOrder;
use super::stats::PartitionStats;
use super::suspects::{lane_id, PartitionDeaths, POISON_DEATHS, SUSPECT_DEATHS};
use super::token_bucket::TokenBucket;
use super::tracker::{end_of, metadata, ranges_of, OffsetRange, Tracker};
use crate::batch::{Batch, BatchKind, BatchOutcome, BatchVerdict};
use crate::commit_notes;
use crate::log::{
    Assignment, Commit, ErrorKind, Limits, LogError, LostRecords, Partition, Position,
};
use crate::record::{Chunk, RecordLayout};
use crate::record_set::{HeldBytes, RecordSet};
use chaton_core::backoff::pause_ms;
use chaton_core::calendar::iso_8601;
use fastrand::Rng;
use key_lane::{KeyLane, LaneState, ReadyItem, WaitReason};
use pending_dead_letter::DeadLetterStep;

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

// Which offset is committed.
impl PartitionState {
    /// Whether there is something to commit.
    pub fn is_dirty(&self) -> bool {
        self.dirty && self.owned
    }

    /// The commit to send, if anything has changed; it counts as sent.
    pub fn take_commit(&mut self) -> Option<Commit> {
        if !self.is_dirty() {
            return None;
        }
        self.dirty = false;
        let commit = self.commit()?;
        self.committed = commit.offset;
        Some(commit)
    }

    /// The last commit failed, or may have: it is sent again.
    pub fn uncommitted(&mut self) {
        self.dirty |= self.owned && (self.tracker.version() > 0 || self.stopped.is_some());
    }

    /// The last commit of this assignment; nothing counts after it.
    pub fn take_last_commit(&mut self) -> Option<Commit> {
        let commit = self.take_commit();
        self.lose();
        commit
    }

    /// What a transaction of a batch in flight commits if it succeeds, and the version of the
    /// tracker that it is based on.
    ///
    /// # Errors
    /// `Fenced` when the batch no longer counts.
    pub fn prepare_transaction(
        &mut self,
        batch: &Batch,
        through: Option<i64>,
    ) -> Result<(Commit, u64), LogError> {
        let refused = |why: &str| LogError::new(ErrorKind::Fenced, why);
        if self.is_revoked() || !self.lanes[batch.lane].has_in_flight(batch.id) {
            return Err(refused("the partition was revoked, or the batch has ended"));
        }
        let version = self.tracker.version();
        let (before, dirty) = (self.tracker.clone(), self.dirty);
        if let Some(offset) = through {
            self.mark(batch, offset, false);
        }
        let commit = self.commit();
        (self.tracker, self.dirty) = (before, dirty);
        let commit = commit.ok_or_else(|| refused("nothing was fetched yet"))?;
        Ok((commit, version))
    }

    /// The transaction is committed.
    pub fn finish_transaction(
        &mut self,
        batch: &Batch,
        through: Option<i64>,
        offset: i64,
        version: u64,
    ) {
        let others = self.tracker.version() != version;
        if let Some(offset) = through {
            self.mark(batch, offset, false);
        }
        self.committed = offset;
        self.dirty = others && self.owned;
    }

    /// How far it has come; `None` where that is not known yet.
    fn commit(&self) -> Option<Commit> {
        // Records that were done before this assignment, and were not fetched since, stay done.
        let ahead = (!self.skip.is_empty()).then(|| self.tracker.with_done(&self.skip));
        let tracker = ahead.as_ref().unwrap_or(&self.tracker);
        let offset = tracker.head()?;
        let mut metadata = tracker.metadata();
        if let Some(lost) = &self.stopped {
            metadata::mark_stopped(&mut metadata, (lost.from, lost.until));
        }
        Some(Commit {
            topic: self.partition.topic.to_string(),
            partition: self.partition.number,
            offset,
            metadata: commit_notes::with_beginning(metadata, self.began_with),
        })
    }
}

// Writing a record to the dead-letter topic.
impl PartitionState {
    /// A dead letter that is to be sent now. It counts as sent from here on.
    pub fn dead_letter_due(&mut self, now: Now) -> Option<Arc<PendingDeadLetter>> {
        for lane in &mut self.lanes {
            let LaneState::DeadLetter { letter, step } = &mut lane.state else { continue };
            let failures = match *step {
                DeadLetterStep::Due => 0,
                DeadLetterStep::Waiting { until_ns, failures } if until_ns <= now.ns => failures,
                DeadLetterStep::Sent { .. } | DeadLetterStep::Waiting { .. } => continue,
            };
            *step = DeadLetterStep::Sent { failures };
            return Some(letter.clone());
        }
        None
    }

    /// The dead letter is durable, is sent again at once in a smaller size, or could not be written and is
    /// sent again after a pause.
    pub fn dead_letter_ended(&mut self, ended: &PendingDeadLetter, end: LetterEnd, now: Now) {
        let LaneState::DeadLetter { letter, step } = &mut self.lanes[ended.lane].state else {
            return;
        };
        let DeadLetterStep::Sent { failures } = *step else { return };
        if letter.batch != ended.batch {
            return;
        }
        if end == LetterEnd::Durable {
            let records = letter.records.clone();
            self.track_done(&records, &records.picks);
            self.lanes[ended.lane].state = LaneState::Free;
            return;
        }
        if matches!(self.phase, PartitionPhase::Draining { .. }) {
            // The next member of the group hands the record out again.
            self.lanes[ended.lane].state = LaneState::Free;
            return;
        }
        if let Some(smaller) = letter.smaller().filter(|_| end == LetterEnd::Invalid) {
            (*letter, *step) = (Arc::new(smaller), DeadLetterStep::Due);
            return;
        }
        let failures = failures + 1;
        let settings = &self.route.settings;
        let (first_ms, max_ms) = (ms(settings.backoff).max(1), ms(settings.backoff_max));
        let until_ns = now.ns_after(pause_ms(first_ms, max_ms, failures, &mut self.random));
        *step = DeadLetterStep::Waiting { until_ns, failures };
    }
}

/// Times of records are in milliseconds.
fn ms(time: Duration) -> u64 {
    time.as_millis() as u64
}

/// What is done with the first records of a lane.
enum NextStep {
    Deliver(RecordSet),
    /// Nothing is left of them.
    Skip,
    Wait(u64, WaitReason),
    /// The first one becomes a dead letter.
    DeadLetter,
}

// What is ready becomes batches.
impl PartitionState {
    /// Adds the batches that can be handed out now.
    pub fn advance(&mut self, now: Now, batches: &mut Vec<Batch>) {
        if matches!(self.phase, PartitionPhase::Paused { until_ns } if until_ns <= now.ns) {
            self.phase = PartitionPhase::Open;
        }
        for lane in 0..self.lanes.len() {
            let state = &mut self.lanes[lane].state;
            match state {
                LaneState::Waiting { until_ns, .. } if *until_ns <= now.ns => {
                    *state = LaneState::Free;
                }
                LaneState::Free => {}
                _ => continue,
            }
            match self.phase {
                PartitionPhase::Open => batches.extend(self.next_batch(lane, now)),
                PartitionPhase::Paused { .. } | PartitionPhase::Seeking { .. } => {}
                PartitionPhase::Draining { notice } => {
                    batches.extend(self.last_notice(lane, Some(notice)));
                }
                PartitionPhase::Revoked { notice } => {
                    batches.extend(self.last_notice(lane, notice));
                }
            }
        }
    }

    fn next_batch(&mut self, lane: usize, now: Now) -> Option<Batch> {
        loop {
            let ReadyItem::Records(records) = self.lanes[lane].pop()? else {
                return Some(self.batch(lane, BatchKind::End, None));
            };
            match self.next_step(lane, records, now) {
                NextStep::Deliver(records) => {
                    self.route.counters.batches.fetch_add(1, Ordering::Relaxed);
                    return Some(self.batch(lane, BatchKind::Records, Some(records)));
                }
                NextStep::Skip => {}
                NextStep::Wait(until_ns, reason) => {
                    self.lanes[lane].state = LaneState::Waiting { until_ns, reason };
                    return None;
                }
                NextStep::DeadLetter => return None,
            }
        }
    }

    /// Takes the part of these records that is handed out now; the rest goes back to the front.
    fn next_step(&mut self, lane: usize, records: RecordSet, now: Now) -> NextStep {
        let mut records = self.without_expired(records, now);
        if records.is_empty() {
            return NextStep::Skip;
        }
        let due = self.due(&records, now);
        if due == 0 {
            let first = records.chunk.entries()[records.picks[0] as usize].timestamp_ms;
            let at_ms = first.saturating_add_unsigned(ms(self.route.settings.delay));
            let until_ns = now.ns_at(at_ms).min(self.delayed_until_ns(&records));
            self.lanes[lane].push_front(ReadyItem::Records(records));
            return NextStep::Wait(until_ns, WaitReason::Delay);
        }
        let mut count = if records.isolated { 1 } else { due };
        let deaths = self.route.suspects.of(self.route.source, &self.partition, now.ms);
        if let Some(deaths) = deaths {
            match self.without_suspects(lane, &mut records, &deaths, now) {
                Ok(harmless) => count = count.min(harmless),
                Err(step) => return step,
            }
        }
        if let Some(throttle) = &mut self.throttle {
            count = count.min(throttle.size());
            if let Err(at_ns) = throttle.take(count, now.ns) {
                self.end_alone(lane);
                self.lanes[lane].push_front(ReadyItem::Records(records));
                return NextStep::Wait(at_ns, WaitReason::Throttle);
            }
        }
        if count < records.len() {
            let rest = records.with(&records.picks[count..]);
            self.lanes[lane].push_front(ReadyItem::Records(rest));
            records = records.with(&records.picks[..count]);
        }
        NextStep::Deliver(records)
    }

    fn without_expired(&mut self, records: RecordSet, now: Now) -> RecordSet {
        let Some(expires) = self.route.settings.expires else { return records };
        let entries = records.chunk.entries();
        let oldest = now.ms.saturating_sub_unsigned(ms(expires));
        let is_expired = |pick: &u32| (0..oldest).contains(&entries[*pick as usize].timestamp_ms);
        let (expired, fresh): (Vec<u32>, Vec<u32>) =
            records.picks.iter().partition(|pick| is_expired(pick));
        if expired.is_empty() {
            return records;
        }
        self.route.counters.expired.fetch_add(expired.len() as u64, Ordering::Relaxed);
        self.route.count(expired.len(), |topic| &topic.expired);
        self.track_done(&records, &expired);
        records.with(&fresh)
    }

    /// No record waits here for longer than the delay, even if its timestamp lies in the future or
    /// the clock is set back.
    fn delayed_until_ns(&self, records: &RecordSet) -> u64 {
        let delay_ns = self.route.settings.delay.as_nanos() as u64;
        records.fetched_ns.saturating_add(delay_ns)
    }

    /// How many of the first records are old enough; a record without a timestamp always is.
    fn due(&self, records: &RecordSet, now: Now) -> usize {
        let delay = self.route.settings.delay;
        if delay.is_zero() || self.delayed_until_ns(records) <= now.ns {
            return records.len();
        }
        let latest = now.ms.saturating_sub_unsigned(ms(delay));
        let entries = records.chunk.entries();
        let is_due = |pick: &&u32| entries[**pick as usize].timestamp_ms <= latest;
        records.picks.iter().take_while(is_due).count()
    }

    /// The last batch of a lane that has had one before.
    fn last_notice(&mut self, lane: usize, notice: Option<BatchKind>) -> Option<Batch> {
        let Some(kind) = notice.filter(|_| self.lanes[lane].used) else {
            self.lanes[lane].state = LaneState::Over;
            return None;
        };
        Some(self.batch(lane, kind, None))
    }

    fn batch(&mut self, lane: usize, kind: BatchKind, records: Option<RecordSet>) -> Batch {
        let id = self.route.batch_ids.fetch_add(1, Ordering::Relaxed);
        let contents = records.clone().unwrap_or_else(|| RecordSet::all(Arc::default()));
        self.lanes[lane].state = LaneState::InFlight { id, kind, records };
        let mut batch = Batch::new(self.partition.clone(), kind, contents);
        batch.id = id;
        batch.lane = lane;
        batch.generation = self.generation;
        batch.route = self.route.number;
        batch
    }
}

// Fetched records are put into lanes, in sets of at most one batch.
impl PartitionState {
    /// How much to fetch now. `None` while enough is ready, the bytes held are at their bound, or
    /// the offsets that are done beyond the head would not fit beside the commit.
    pub fn fetch_limits(&self) -> Option<Limits> {
        if !self.is_fetching() || self.stopped.is_some() {
            return None;
        }
        let settings = &self.route.settings;
        let (ahead, lanes) = (self.route.ready_batches, self.lanes.len());
        let low = self.lanes.iter().map(|lane| lane.ready_items()).min().unwrap_or(0);
        if low > ahead / 2 || !self.tracker.fits() {
            return None;
        }
        let batches = if lanes == 1 { ahead - low } else { lanes };
        let ready: usize = self.lanes.iter().map(|lane| lane.ready_records()).sum();
        let records_max = settings.batch.saturating_mul(lanes).saturating_mul(ahead);
        let bytes_max = settings.batch_bytes.saturating_mul(lanes).saturating_mul(ahead + 1);
        let held = self.held.load(Ordering::Relaxed);
        // Fetches less than a whole batch only when nothing is ready.
        if ready > 0 && (ready.saturating_add(settings.batch) > records_max || held >= bytes_max) {
            return None;
        }
        Some(Limits {
            records: settings.batch.saturating_mul(batches),
            bytes: settings.batch_bytes.saturating_mul(batches),
        })
    }

    /// Where reading was to continue; `None` before the first record, and after a seek until the
    /// log has said where it continues.
    pub fn expected(&self) -> Option<i64> {
        let asked = !self.is_fetching() || self.tracker.is_asked();
        self.tracker.position().filter(|_| !asked)
    }

    /// Fetches nothing behind the records before these.
    pub fn stop_at(&mut self, lost: LostRecords) {
        if self.is_fetching() {
            self.tracker.begin_at(lost.from);
            self.stopped = Some(lost);
            self.dirty = true;
        }
    }

    /// Goes on behind lost records.
    pub fn pass_over(&mut self, lost: &LostRecords) {
        if self.is_fetching() {
            self.tracker.fetched(lost.from, lost.until);
            self.tracker.done(&[(lost.from, lost.until)]);
            self.dirty = true;
        }
    }

    /// Takes fetched records. Those fetched before a seek are dropped. Returns the position that
    /// the log went back from, if it did.
    pub fn fetched(&mut self, chunk: Chunk, now: Now) -> Option<i64> {
        if !self.is_fetching() {
            return None;
        }
        let entries = chunk.entries();
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else { return None };
        let before = self.tracker.position();
        let went_back = self.tracker.fetched(first.offset, last.offset + 1);
        if went_back {
            // Other records have these offsets now.
            self.skip.clear();
        }
        let all = RecordSet::fetched(chunk, &self.held, now.ns);
        let picks = self.skip_done(all.chunk.entries());
        if self.lanes.len() == 1 {
            self.put(0, &all, &picks);
        } else {
            let mut by_lane = vec![Vec::new(); self.lanes.len()];
            for pick in picks {
                by_lane[self.lane_of(&all.chunk, pick)].push(pick);
            }
            for (lane, picks) in by_lane.iter().enumerate() {
                self.put(lane, &all, picks);
            }
        }
        before.filter(|_| went_back)
    }

    /// There are no records between the position and this offset, up to which the log was read: markers of
    /// transactions, for example. They are done with what is before them.
    pub fn read_up_to(&mut self, offset: i64) {
        let continues = self.is_fetching() && self.stopped.is_none();
        self.dirty |= continues && self.tracker.read_up_to(offset);
    }

    /// The log has no more records now.
    pub fn end_reached(&mut self) {
        if self.is_draining() {
            return;
        }
        let any = self.lanes.iter().any(|lane| lane.used || lane.ready_items() > 0);
        for (index, lane) in self.lanes.iter_mut().enumerate() {
            let is_concerned = lane.used || lane.ready_items() > 0 || lane.is_busy();
            if (is_concerned || !any && index == 0) && !lane.ends_with_end() {
                lane.push_back(ReadyItem::End);
            }
        }
    }

    /// The records that were not consumed before this assignment.
    fn skip_done(&mut self, entries: &[RecordLayout]) -> Vec<u32> {
        if self.skip.is_empty() {
            return (0..entries.len() as u32).collect();
        }
        let (mut picks, mut done) = (Vec::new(), Vec::new());
        for (index, entry) in entries.iter().enumerate() {
            while self.skip.front().is_some_and(|range| range.1 <= entry.offset) {
                self.skip.pop_front();
            }
            let skipped = self.skip.front().is_some_and(|range| range.0 <= entry.offset);
            if skipped { &mut done } else { &mut picks }.push(index as u32);
        }
        ranges_of(entries, &done, &mut self.scratch);
        self.tracker.done(&self.scratch);
        self.dirty |= !done.is_empty();
        picks
    }

    /// The lane of a record: by the hash of its key, without a key in turn. The hash differs from
    /// the one that chose the partition; otherwise all keys of a partition could share a lane.
    fn lane_of(&mut self, chunk: &Chunk, pick: u32) -> usize {
        let lanes = self.lanes.len();
        if let Some(key) = chunk.record(pick as usize).key() {
            // Mixed, because the lowest bits of the checksums of `k0` … `k9` hardly differ.
            let hash = u64::from(crc32c::crc32c(key)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
            return (hash as usize * lanes) >> 32;
        }
        self.keyless_lane = (self.keyless_lane + 1) % lanes;
        self.keyless_lane
    }

    fn put(&mut self, lane: usize, all: &RecordSet, picks: &[u32]) {
        let settings = &self.route.settings;
        let entries = all.chunk.entries();
        let mut rest = picks;
        while !rest.is_empty() {
            let mut count = rest.len().min(settings.batch.max(1));
            if all.chunk.bytes() > settings.batch_bytes {
                let sizes = rest[..count].iter().map(|pick| size(&entries[*pick as usize]));
                count = count_within(sizes, settings.batch_bytes);
            }
            let (set, after) = rest.split_at(count);
            self.lanes[lane].push_back(ReadyItem::Records(all.with(set)));
            rest = after;
        }
    }
}

/// How many of the first sizes fit into `bytes_max`, at least one.
fn count_within(sizes: impl Iterator<Item = usize>, bytes_max: usize) -> usize {
    let mut bytes = 0usize;
    let fit = sizes.take_while(|size| {
        bytes = bytes.saturating_add(*size);
        bytes <= bytes_max
    });
    fit.count().max(1)
}

fn size(entry: &RecordLayout) -> usize {
    let len = |len: u32| if len == u32::MAX { 0 } else { len as usize };
    len(entry.key.len) + len(entry.value.len)
}

/// A batch that is abandoned this often in a row is paused before it is handed out again.
const ABANDONED_AT_ONCE: u32 = 2;

// What follows when a batch ends.
impl PartitionState {
    /// The batch has ended; `started`: a thread had taken it.
    pub fn finish(
        &mut self,
        batch: &Batch,
        outcome: BatchOutcome,
        started: bool,
        now: Now,
    ) -> BatchVerdict {
        self.end_alone(batch.lane);
        let Some((kind, records)) = self.take_in_flight(batch) else {
            return BatchVerdict::Dropped;
        };
        let abandoned = outcome == BatchOutcome::Abandoned;
        let lane = &mut self.lanes[batch.lane];
        lane.used |= kind == BatchKind::Records && (started || !abandoned);
        let Some(records) = records else {
            // The last notice of a lane is its last batch.
            if kind != BatchKind::End {
                lane.state = LaneState::Over;
            }
            return if abandoned { BatchVerdict::Dropped } else { BatchVerdict::Done };
        };
        if abandoned {
            self.abandoned(batch.lane, &records, started, now);
            return BatchVerdict::Dropped;
        }
        if self.is_revoked() {
            return BatchVerdict::Dropped;
        }
        let requests = batch.requests();
        if let Some(time) = requests.pause {
            self.pause(now.ns.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)));
        }
        let verdict = match outcome {
            BatchOutcome::Failed { class, message } => {
                self.failed(batch, &records, (class, message), now)
            }
            BatchOutcome::Done | BatchOutcome::Abandoned => {
                self.route.count_records(records.len());
                if !self.route.settings.manual {
                    self.track_done(&records, &records.picks);
                }
                BatchVerdict::Done
            }
        };
        if let Some(position) = requests.seek {
            self.seek(position);
        }
        verdict
    }

    /// Hands out again what was not marked: at once, or after a pause when it is abandoned again
    /// and again.
    fn abandoned(&mut self, lane: usize, records: &RecordSet, started: bool, now: Now) {
        let rest = self.unmarked(records);
        if !self.is_fetching() || rest.is_empty() {
            return;
        }
        let got_on = rest.len() < records.len();
        let attempt = if got_on { 1 } else { records.attempt };
        let abandoned = if got_on { 0 } else { records.abandoned } + u32::from(started);
        let rest = RecordSet { attempt, abandoned, ..records.with(&rest) };
        self.put_back(lane, rest);
        if abandoned >= ABANDONED_AT_ONCE {
            let until_ns = now.ns_after(self.pause_ms(abandoned + 1 - ABANDONED_AT_ONCE));
            self.lanes[lane].state = LaneState::Waiting { until_ns, reason: WaitReason::Retry };
        }
    }

    /// The queue had no room for the batch.
    pub fn refused(&mut self, batch: &Batch) {
        self.end_alone(batch.lane);
        match self.take_in_flight(batch) {
            Some((_, Some(records))) if self.is_fetching() => {
                self.route.counters.batches.fetch_sub(1, Ordering::Relaxed);
                self.put_back(batch.lane, records);
            }
            Some((BatchKind::End, None)) => self.lanes[batch.lane].push_front(ReadyItem::End),
            _ => {}
        }
    }

    /// Marks records of a batch in flight: with `alone` the one with this offset, otherwise all up
    /// to it. False when that does not count.
    pub fn mark(&mut self, batch: &Batch, offset: i64, alone: bool) -> bool {
        if self.is_revoked() || !self.lanes[batch.lane].has_in_flight(batch.id) {
            return false;
        }
        let records = batch.records();
        let count = records.count_through(offset);
        let first = if alone { count.saturating_sub(1) } else { 0 };
        let picks = &records.picks[first..count];
        let has_offset = picks.last().is_some_and(|pick| records.offset_of(*pick) == offset);
        if batch.is_empty() || alone && !has_offset {
            return false;
        }
        if !alone && self.route.settings.order == RecordOrder::Partition {
            // This includes what earlier batches left unmarked.
            let entries = records.chunk.entries();
            let end = picks.last().map_or(offset.saturating_add(1), |pick| end_of(entries, *pick));
            self.tracker.done(&[(i64::MIN, end)]);
            self.dirty = true;
        } else {
            self.track_done(records, picks);
        }
        true
    }

    fn failed(
        &mut self,
        batch: &Batch,
        records: &RecordSet,
        (class, message): (String, String),
        now: Now,
    ) -> BatchVerdict {
        let rest = self.unmarked(records);
        if rest.is_empty() {
            return BatchVerdict::Done;
        }
        if matches!(self.phase, PartitionPhase::Draining { .. }) {
            return BatchVerdict::Dropped;
        }
        self.route.counters.retries.fetch_add(1, Ordering::Relaxed);
        self.route.count(1, |topic| &topic.retries);
        // When records were marked, another one is the first now and its attempts start at 1.
        let attempt = if rest.len() < records.len() { 1 } else { records.attempt };
        let rest = RecordSet { attempt, abandoned: 0, ..records.with(&rest) };
        let settings = &self.route.settings;
        let exhausted = settings.attempts_max.is_some_and(|max| attempt >= max);
        let dead_letter = settings.dead_letter.clone();
        let Some(topic) = dead_letter.filter(|_| rest.isolated || exhausted) else {
            let in_ms = if exhausted { ms(settings.backoff_max) } else { self.pause_ms(attempt) };
            let attempt = self.retry_in(batch.lane, rest, in_ms, now);
            return BatchVerdict::Retry { in_ms, attempt };
        };
        if rest.len() > 1 {
            let in_ms = self.pause_ms(attempt);
            self.retry_in(batch.lane, RecordSet { isolated: true, ..rest }, in_ms, now);
            return BatchVerdict::Isolated { in_ms };
        }
        let letter = PendingDeadLetter {
            batch: batch.id,
            lane: batch.lane,
            topic: topic.clone(),
            class,
            message,
            failed_at_ms: now.ms,
            size: LetterSize::Whole,
            records: rest,
        };
        self.lanes[batch.lane].state =
            LaneState::DeadLetter { letter: Arc::new(letter), step: DeadLetterStep::Due };
        BatchVerdict::DeadLetter { topic }
    }

    /// The records that are not done; those that are get counted.
    fn unmarked(&self, records: &RecordSet) -> Vec<u32> {
        let undone = |pick: &u32| self.tracker.is_undone(records.offset_of(*pick));
        let rest: Vec<u32> = records.picks.iter().copied().filter(undone).collect();
        let done = records.len() - rest.len();
        self.route.count_records(done);
        rest
    }

    fn pause_ms(&mut self, failures: u32) -> u64 {
        let settings = &self.route.settings;
        pause_ms(ms(settings.backoff), ms(settings.backoff_max), failures, &mut self.random)
    }

    /// Hands the records out again as the next attempt, after a pause; returns its number.
    fn retry_in(&mut self, lane: usize, records: RecordSet, in_ms: u64, now: Now) -> u32 {
        let attempt = records.attempt.saturating_add(1);
        let lane = &mut self.lanes[lane];
        lane.push_front(ReadyItem::Records(RecordSet { attempt, ..records }));
        let until_ns = now.ns_after(in_ms);
        lane.state = LaneState::Waiting { until_ns, reason: WaitReason::Retry };
        attempt
    }

    fn put_back(&mut self, lane: usize, records: RecordSet) {
        if let Some(throttle) = &mut self.throttle {
            throttle.put_back(records.len());
        }
        self.lanes[lane].push_front(ReadyItem::Records(records));
    }

    /// Frees the lane of this batch; `None` when the batch is not in flight.
    fn take_in_flight(&mut self, batch: &Batch) -> Option<(BatchKind, Option<RecordSet>)> {
        let lane = self.lanes.get_mut(batch.lane).filter(|lane| lane.has_in_flight(batch.id))?;
        match std::mem::take(&mut lane.state) {
            LaneState::InFlight { kind, records, .. } => Some((kind, records)),
            _ => None,
        }
    }
}

// A partition's part of the statistics.
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

/// How long a suspect waits while another one runs, before it looks again.
const ALONE_WAIT_MS: u64 = 100;

// Records that were being consumed when workers died.
impl PartitionState {
    /// How many of these records are handed out together: those before the first one with a death,
    /// or one. Otherwise the step that follows, for which the records are put away.
    fn without_suspects(
        &mut self,
        lane: usize,
        records: &mut RecordSet,
        deaths: &PartitionDeaths,
        now: Now,
    ) -> Result<usize, NextStep> {
        let count = |pick: &u32| deaths.count(records.offset_of(*pick));
        let harmless = records.picks.iter().take_while(|pick| count(pick) == 0).count();
        let of_first = count(&records.picks[0]);
        records.attempt = records.attempt.max(of_first as u32 + 1);
        if harmless > 0 {
            return Ok(harmless);
        }
        let offset = records.offset_of(records.picks[0]);
        if deaths.is_poison(offset) {
            self.poisoned(lane, offset, records, deaths, now)?;
        }
        let alone = of_first < SUSPECT_DEATHS
            || self.route.suspects.begin_alone(lane_id(self.generation, lane));
        if alone {
            return Ok(1);
        }
        self.lanes[lane].push_front(ReadyItem::Records(records.clone()));
        Err(NextStep::Wait(now.ns_after(ALONE_WAIT_MS), WaitReason::Retry))
    }

    /// The suspect of this lane, if it ran one, has ended.
    fn end_alone(&self, lane: usize) {
        self.route.suspects.end_alone(lane_id(self.generation, lane));
    }

    /// The first record becomes a dead letter. Without a topic for it, it is tried again after a
    /// pause that grows with the deaths, and not before this is logged: it may end this worker at
    /// once.
    fn poisoned(
        &mut self,
        lane: usize,
        offset: i64,
        records: &RecordSet,
        deaths: &PartitionDeaths,
        now: Now,
    ) -> Result<(), NextStep> {
        let (story, count) = (deaths.story(offset, iso_8601), deaths.count(offset));
        if self.poison_seen.replace((offset, count)) != Some((offset, count)) {
            self.route.counters.poisoned.fetch_add(1, Ordering::Relaxed);
            self.poison = Some((offset, story.clone()));
        }
        let settings = &self.route.settings;
        let Some(topic) = settings.dead_letter.clone() else {
            let doublings = count.saturating_sub(POISON_DEATHS).min(30);
            let pause_ms = ms(settings.backoff).saturating_mul(1 << doublings);
            let pause_ms = pause_ms.min(ms(settings.backoff_max));
            let until_ms = deaths.last_at_ms(offset).saturating_add_unsigned(pause_ms);
            if until_ms <= now.ms && self.poison.is_none() {
                return Ok(());
            }
            self.lanes[lane].push_front(ReadyItem::Records(records.clone()));
            return Err(NextStep::Wait(now.ns_at(until_ms), WaitReason::Retry));
        };
        if records.len() > 1 {
            let rest = RecordSet { attempt: 1, ..records.with(&records.picks[1..]) };
            self.lanes[lane].push_front(ReadyItem::Records(rest));
        }
        let attempt = count as u32;
        let letter = PendingDeadLetter {
            batch: self.route.batch_ids.fetch_add(1, Ordering::Relaxed),
            lane,
            topic,
            class: "Chaton::Streams::Poison".into(),
            message: story,
            failed_at_ms: now.ms,
            size: LetterSize::Whole,
            records: RecordSet { attempt, ..records.with(&records.picks[..1]) },
        };
        self.lanes[lane].state =
            LaneState::DeadLetter { letter: Arc::new(letter), step: DeadLetterStep::Due };
        Err(NextStep::DeadLetter)
    }
}

#[cfg(test)]
mod tests;
