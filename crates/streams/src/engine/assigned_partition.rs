//! An assigned partition: its state under a lock, and the effects of its changes.
//!
//! A thread that ends a batch calls in here. It holds the lock for a short time, does no IO, and
//! hands out the next batch of the partition itself, without a change of threads.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, MutexGuard};

use super::group::ConsumerGroup;
use super::partition_state::{LetterEnd, Now, PartitionState, PendingDeadLetter};
use super::room::{RoomWait, RoomWaiter};
use super::route::Route;
use super::stats::PartitionStats;
use crate::batch::{Batch, BatchKind, BatchOutcome, BatchOwner, BatchVerdict};
use crate::log::{
    self, Assignment, Commit, ErrorKind, Limits, LogError, LostRecords, Partition, Position, Writes,
};
use crate::record::Chunk;
use fastrand::Rng;

struct Inner {
    state: PartitionState,
    /// The batch in flight of each lane.
    in_flight: Vec<Weak<Batch>>,
    /// The batch that runs in each lane, as last seen.
    running: Vec<RunningBatch>,
    /// The last fetch found nothing; the log reports when there is more.
    exhausted: bool,
}

/// How long a batch has been running.
#[derive(Clone, Copy, Default)]
struct RunningBatch {
    id: u64,
    /// When it was first seen running.
    since_ns: u64,
    /// It is told of when it has been running for this long.
    tell_after_ns: u64,
}

/// A batch that runs for too long.
pub(super) struct OverdueBatch {
    pub what: String,
    pub ran_ns: u64,
}

/// An assigned partition.
pub(super) struct AssignedPartition {
    pub partition: Partition,
    pub generation: u64,
    pub group: Arc<ConsumerGroup>,
    pub route: Arc<Route>,
    inner: Mutex<Inner>,
    end: AtomicI64,
    /// See [`AssignedPartition::oldest_ms`]; 0 without such a record.
    oldest_ms: AtomicI64,
    room_wait: RoomWait,
}

/// What a group's thread has to do for a partition.
#[derive(Default)]
pub(super) struct PartitionActions {
    pub dead_letters: Vec<Arc<PendingDeadLetter>>,
    pub seek: Option<Position>,
    pub fetch: Option<Limits>,
    /// A record that ended too many workers, and how.
    pub poison: Option<(i64, String)>,
    /// There is something to commit.
    pub dirty: bool,
    pub next_ns: Option<u64>,
    /// Its last batch has ended.
    pub over: bool,
    /// There may be records that were not fetched.
    pub behind: bool,
}

impl AssignedPartition {
    pub fn new(
        group: &Arc<ConsumerGroup>,
        route: &Arc<Route>,
        assigned: &Assignment,
        generation: u64,
    ) -> Arc<Self> {
        let state = PartitionState::new(route, assigned, generation, Now::read(), Rng::new());
        let in_flight: Vec<_> = (0..route.settings.lanes()).map(|_| Weak::new()).collect();
        let running = vec![RunningBatch::default(); in_flight.len()];
        Arc::new(Self {
            partition: assigned.partition.clone(),
            generation,
            group: group.clone(),
            route: route.clone(),
            inner: Mutex::new(Inner { state, in_flight, running, exhausted: false }),
            end: AtomicI64::new(-1),
            oldest_ms: AtomicI64::new(0),
            room_wait: RoomWait::default(),
        })
    }

    pub fn set_end(&self, end: Option<i64>) {
        self.end.store(end.unwrap_or(-1), Ordering::Relaxed);
    }

    /// Hands out what is due; the rest is for the caller to do. `woken`: the log may have more.
    pub fn advance(self: &Arc<Self>, now: Now, woken: bool) -> PartitionActions {
        let mut inner = self.inner.lock();
        inner.exhausted &= !woken;
        let batches = self.next_batches(&mut inner, now);
        let behind = !inner.exhausted;
        let state = &mut inner.state;
        let actions = PartitionActions {
            dead_letters: std::iter::from_fn(|| state.dead_letter_due(now)).collect(),
            seek: state.seek_due(now),
            poison: state.poison.clone(),
            dirty: state.is_dirty(),
            next_ns: state.next_ns(),
            over: state.is_over(),
            behind,
            fetch: state.fetch_limits().filter(|_| behind),
        };
        drop(inner);
        self.submit(batches);
        actions
    }

    /// The poison at this offset is logged.
    pub fn poison_told(&self, told: i64) {
        self.inner.lock().state.poison.take_if(|(offset, _)| *offset == told);
    }

    /// See [`PartitionState::expected`].
    pub fn expected(&self) -> Option<i64> {
        self.inner.lock().state.expected()
    }

    /// See [`PartitionState::stop_at`].
    pub fn stop_at(&self, lost: LostRecords) {
        self.inner.lock().state.stop_at(lost);
    }

    /// See [`PartitionState::pass_over`].
    pub fn pass_over(&self, lost: &LostRecords) {
        self.inner.lock().state.pass_over(lost);
    }

    /// The lost records at which it has stopped.
    pub fn stopped(&self) -> Option<LostRecords> {
        self.inner.lock().state.stopped().cloned()
    }

    /// See [`PartitionState::is_paused`].
    pub fn is_paused(&self) -> bool {
        self.inner.lock().state.is_paused()
    }

    /// Takes fetched records; `None`: there are no more now. Returns the position that the log
    /// went back from, if it did.
    pub fn fetched(self: &Arc<Self>, chunk: Option<Chunk>) -> Option<i64> {
        let mut inner = self.inner.lock();
        let Some(chunk) = chunk else {
            inner.exhausted = true;
            return None;
        };
        let now = Now::read();
        let back_from = inner.state.fetched(chunk, now);
        let batches = self.next_batches(&mut inner, now);
        drop(inner);
        self.submit(batches);
        back_from
    }

    /// Hands out what can be handed out.
    pub fn hand_out(self: &Arc<Self>) {
        let now = Now::read();
        let inner = self.inner.lock();
        self.hand_out_locked(inner, now);
    }

    /// See [`PartitionState::read_up_to`].
    pub fn read_up_to(&self, offset: i64) {
        self.inner.lock().state.read_up_to(offset);
    }

    pub fn end_reached(&self) {
        self.inner.lock().state.end_reached();
    }

    pub fn dead_letter_ended(&self, letter: &PendingDeadLetter, end: LetterEnd) {
        self.inner.lock().state.dead_letter_ended(letter, end, Now::read());
        self.group.notify();
        self.group.context.idle_wait.changed();
    }

    pub fn seek_done(&self) {
        let mut inner = self.inner.lock();
        inner.state.seek_done();
        inner.exhausted = false;
    }

    pub fn seek_failed(&self, retry_at_ns: u64) {
        self.inner.lock().state.seek_failed(retry_at_ns);
    }

    /// See [`PartitionState::drain`]. Batches that no thread has taken are abandoned.
    pub fn drain(&self, notice: BatchKind) {
        let mut inner = self.inner.lock();
        inner.state.drain(notice);
        let in_flight: Vec<_> = inner.in_flight.iter().filter_map(Weak::upgrade).collect();
        drop(inner);
        for batch in in_flight.iter().filter(|batch| batch.kind() == BatchKind::Records) {
            batch.abandon_untaken();
        }
    }

    /// The last commit; nothing counts after it.
    pub fn take_last_commit(&self) -> Option<Commit> {
        let mut inner = self.inner.lock();
        let commit = inner.state.take_last_commit();
        inner.revoke();
        commit
    }

    /// Another member has the partition: nothing counts, and nothing can be committed.
    pub fn lose(self: &Arc<Self>) {
        let mut inner = self.inner.lock();
        inner.state.lose();
        inner.revoke();
        self.hand_out_locked(inner, Now::read());
    }

    /// Batches in flight no longer count; those that have ended do. Returns the ids of those that run.
    pub fn give_up(self: &Arc<Self>) -> Vec<u64> {
        let mut inner = self.inner.lock();
        inner.state.give_up(None);
        let running = inner.revoke();
        self.hand_out_locked(inner, Now::read());
        running
    }

    /// How many batches have been running for longer than `bound_ns`; those to be told of now are added: at the
    /// bound, and whenever the time has doubled since.
    pub fn overdue(&self, now: Now, bound_ns: u64, tell: &mut Vec<OverdueBatch>) -> usize {
        let inner = &mut *self.inner.lock();
        let mut count = 0;
        for (batch, seen) in inner.in_flight.iter().zip(&mut inner.running) {
            let batch = batch.upgrade().filter(|batch| batch.is_running() && !batch.is_empty());
            let Some(batch) = batch else { continue };
            if seen.id != batch.id() {
                *seen = RunningBatch { id: batch.id(), since_ns: now.ns, tell_after_ns: bound_ns };
            }
            let ran_ns = now.ns.saturating_sub(seen.since_ns);
            count += usize::from(ran_ns >= bound_ns);
            if ran_ns >= seen.tell_after_ns {
                seen.tell_after_ns = seen.tell_after_ns.saturating_mul(2);
                tell.push(OverdueBatch { what: batch.describe(), ran_ns });
            }
        }
        count
    }

    pub fn take_commit(&self) -> Option<Commit> {
        self.inner.lock().state.take_commit()
    }

    pub fn uncommitted(&self) {
        self.inner.lock().state.uncommitted();
    }

    /// See [`PartitionState::is_dirty`].
    pub fn is_dirty(&self) -> bool {
        self.inner.lock().state.is_dirty()
    }

    pub fn is_drained(&self) -> bool {
        self.inner.lock().state.is_drained()
    }

    pub fn is_owned(&self) -> bool {
        self.inner.lock().state.is_owned()
    }

    pub fn is_over(&self) -> bool {
        self.inner.lock().state.is_over()
    }

    pub fn is_idle(&self) -> bool {
        self.inner.lock().state.is_idle()
    }

    /// Records between the first one that is not done and the end, where both are known.
    pub fn lag(&self) -> Option<u64> {
        self.lag_of(&self.inner.lock())
    }

    /// The time of the oldest record that is not done (ms since 1970). While that record is not
    /// fetched, it is that of the one before, or the time since when there is a lag.
    pub fn oldest_ms(&self, now: Now) -> Option<i64> {
        let inner = self.inner.lock();
        let before = Some(self.oldest_ms.load(Ordering::Relaxed)).filter(|ms| *ms > 0);
        let lags = self.lag_of(&inner).is_some_and(|lag| lag > 0);
        let oldest = lags.then(|| inner.state.head_time_ms().or(before).unwrap_or(now.ms));
        self.oldest_ms.store(oldest.unwrap_or(0), Ordering::Relaxed);
        oldest
    }

    fn lag_of(&self, inner: &Inner) -> Option<u64> {
        let end = Some(self.end.load(Ordering::Relaxed)).filter(|end| *end >= 0)?;
        let lost = inner.state.stopped().map_or(0, |lost| lost.until - lost.from);
        inner.state.head().map(|head| (end - head - lost).max(0) as u64)
    }

    pub fn stats(&self, now: Now) -> PartitionStats {
        let inner = self.inner.lock();
        let end = self.end.load(Ordering::Relaxed);
        let lag = self.lag_of(&inner).map_or(-1, |lag| lag as i64);
        PartitionStats { end, lag, ..inner.state.stats(now) }
    }

    /// Hands out what can be handed out, releases the lock, and wakes the group's thread if it has
    /// something to do.
    fn hand_out_locked(self: &Arc<Self>, mut inner: MutexGuard<'_, Inner>, now: Now) {
        let batches = self.next_batches(&mut inner, now);
        let notify = self.needs_thread(&inner);
        drop(inner);
        // What a full queue refuses is ready, so that less is to be fetched.
        let is_whole = self.submit(batches);
        if notify && (is_whole || self.needs_thread(&self.inner.lock())) {
            self.group.notify();
        }
        self.group.context.idle_wait.changed();
    }

    fn needs_thread(&self, inner: &Inner) -> bool {
        let (state, group) = (&inner.state, &self.group);
        let fetches = !inner.exhausted && state.fetch_limits().is_some();
        let commit = state.is_dirty().then(|| group.commit_at_ns());
        let first = [state.next_ns(), commit].into_iter().flatten().min();
        fetches
            || state.is_draining()
            || state.poison.is_some()
            || first.is_some_and(|at_ns| group.is_asleep_after(at_ns))
    }

    fn next_batches(self: &Arc<Self>, inner: &mut Inner, now: Now) -> Vec<Arc<Batch>> {
        let mut batches = Vec::new();
        if !self.room_wait.is_queued() {
            inner.state.advance(now, &mut batches);
        }
        let own = batches.into_iter().map(|batch| {
            let batch = batch.owned_by(self.clone());
            inner.in_flight[batch.lane] = Arc::downgrade(&batch);
            batch
        });
        own.collect()
    }

    /// Puts batches into the queue. Where others wait for room, it waits behind them. Returns whether there was
    /// room for all.
    fn submit(self: &Arc<Self>, batches: Vec<Arc<Batch>>) -> bool {
        if batches.is_empty() {
            return true;
        }
        let context = &self.group.context;
        let mut is_whole = true;
        for batch in batches {
            let waits = context.room.is_crowded() && !self.room_wait.is_trying();
            let submitted = if waits { Err(batch) } else { context.feed.submit(batch) };
            if let Err(batch) = submitted {
                is_whole = false;
                self.inner.lock().state.refused(&batch);
                context.counters.refused.fetch_add(1, Ordering::Relaxed);
                context.room.refuse(self.clone());
            }
        }
        context.feed.flush();
        is_whole
    }
}

impl RoomWaiter for AssignedPartition {
    fn room_wait(&self) -> &RoomWait {
        &self.room_wait
    }

    fn retry(self: Arc<Self>) {
        self.hand_out();
    }
}

impl BatchOwner for AssignedPartition {
    fn started(&self, batch: &Batch, thread: usize) {
        self.route.suspects.started(self.route.source, batch, thread);
    }

    fn finish(
        self: Arc<Self>,
        batch: &Batch,
        outcome: BatchOutcome,
        started: bool,
    ) -> BatchVerdict {
        let now = Now::read();
        if let Some(thread) = batch.thread() {
            self.route.suspects.ended(batch, thread);
        }
        if outcome == BatchOutcome::Abandoned {
            // The caller may hold other locks, so the group's thread hands the batch out again.
            let verdict = self.inner.lock().state.finish(batch, outcome, started, now);
            self.group.notify();
            self.group.context.idle_wait.changed();
            return verdict;
        }
        // Partitions that wait for room come before the next batch of this one.
        self.group.context.room.readmit();
        let mut inner = self.inner.lock();
        let verdict = inner.state.finish(batch, outcome, started, now);
        self.hand_out_locked(inner, now);
        verdict
    }

    fn mark(&self, batch: &Batch, offset: i64, alone: bool) {
        let marked = self.inner.lock().state.mark(batch, offset, alone);
        if marked {
            self.group.notify_by(self.group.commit_at_ns());
        }
    }

    fn transact(
        self: Arc<Self>,
        batch: &Batch,
        writes: Writes<'_>,
        through: Option<i64>,
    ) -> log::Result<()> {
        if !batch.is_open() {
            let message = format!("{}: the batch has ended", batch.describe());
            return Err(LogError::new(ErrorKind::Fenced, message));
        }
        let group = &self.group;
        let mut transactor = self.route.transactor.lock();
        // Read before: the log refuses it where the partition is lost from here on, even if it comes back at once.
        let identity = group.identity();
        let (commit, version) = self.inner.lock().state.prepare_transaction(batch, through)?;
        let offset = commit.offset;
        let topic = &self.route.settings.topic;
        let wanted = || !batch.is_revoked();
        let ended = group.transact(&mut transactor, topic, writes, &identity, &[commit], &wanted);
        if let Err(error) = ended {
            drop(transactor);
            if error.kind == ErrorKind::Unknown && self.is_owned() {
                // Neither this batch nor a second try may count. The log assigns the partition, with
                // its commit, when it knows how the transaction has ended.
                self.lose();
                group.rejoin(error.clone());
            }
            return Err(error);
        }
        group.context.counters.transactions.fetch_add(1, Ordering::Relaxed);
        let mut inner = self.inner.lock();
        inner.state.finish_transaction(batch, through, offset, version);
        let dirty = inner.state.is_dirty();
        drop(inner);
        drop(transactor);
        if dirty {
            group.notify();
        }
        Ok(())
    }

    fn end_offset(&self) -> Option<i64> {
        Some(self.end.load(Ordering::Relaxed)).filter(|end| *end >= 0)
    }
}

impl Inner {
    /// Marks batches in flight as revoked; returns the ids of those that run.
    fn revoke(&self) -> Vec<u64> {
        let in_flight = self.in_flight.iter().filter_map(Weak::upgrade);
        in_flight
            .filter(|batch| batch.kind() == BatchKind::Records && batch.is_open())
            .filter_map(|batch| {
                batch.revoke();
                batch.is_running().then(|| batch.id())
            })
            .collect()
    }
}
