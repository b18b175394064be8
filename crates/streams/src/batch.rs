//! A batch: records of one partition that one thread runs together, or a notice about the
//! partition.
//!
//! The same [`Batch`] goes from the poller through the queue to Ruby and back. The engine fills it,
//! a thread takes it, the consumer marks records in it, and [`Batch::finish`] reports its one
//! [`BatchOutcome`] to the partition that owns it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

use chaton_core::work::{AtomicWorkState, Role, Work, WorkState};
use chaton_embedded::Enlisted;
use parking_lot::Mutex;

use crate::log::{self, Partition, Position, Writes};
use crate::record::{Chunk, OwnedRecord};
use crate::record_set::RecordSet;

/// What a batch is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchKind {
    /// Records for the consumer.
    Records,
    /// Notice: the partition was revoked. The last batch of its generation.
    Revoked,
    /// Notice: the consumer has worked on every record of the partition.
    End,
    /// Notice: the process stops. The last batch of its partition.
    Shutdown,
}

/// How a batch ended. These words are used from Ruby to the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BatchOutcome {
    /// The consumer returned: its records are committed, with manual offsets only the marked ones.
    Done,
    /// The consumer raised: what was not marked is retried.
    Failed {
        /// Class of the error.
        class: String,
        /// Its message.
        message: String,
    },
    /// The batch was not run to its end: what was not marked is handed out again as the same
    /// attempt.
    Abandoned,
}

/// What the engine does after a batch has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BatchVerdict {
    /// Nothing: it is done.
    Done,
    /// What is left of the batch is handed out again.
    Retry {
        /// After this many ms.
        in_ms: u64,
        /// As this attempt.
        attempt: u32,
    },
    /// What is left of the batch is handed out again, one record at a time.
    Isolated {
        /// After this many ms.
        in_ms: u64,
    },
    /// The record is written to this dead-letter topic.
    DeadLetter {
        /// The topic.
        topic: String,
    },
    /// The outcome does not count: the batch was abandoned, had ended before, or its partition was
    /// revoked.
    Dropped,
}

/// What the consumer asked for, to take effect when the batch has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConsumerRequests {
    /// How long the partition pauses.
    pub pause: Option<Duration>,
    /// Where the partition is read from next.
    pub seek: Option<Position>,
}

/// What a consumer did with a batch that has no engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsumerCalls {
    /// Offsets that were marked, in the order of the calls.
    pub marked: Vec<i64>,
    /// What the consumer asked for.
    pub requests: ConsumerRequests,
    /// Records that were written in transactions.
    pub written: Vec<OwnedRecord>,
    /// How the batch ended.
    pub outcome: Option<BatchOutcome>,
}

/// The partition that a batch belongs to.
pub(crate) trait BatchOwner: Send + Sync {
    /// A thread begins to run the batch.
    fn started(&self, batch: &Batch, thread: usize);

    /// The batch has ended; `started`: a thread had taken it.
    fn finish(self: Arc<Self>, batch: &Batch, outcome: BatchOutcome, started: bool)
        -> BatchVerdict;

    /// Records are done: with `alone` the one with this offset, otherwise all up to it.
    fn mark(&self, batch: &Batch, offset: i64, alone: bool);

    /// Writes records and commits in one transaction.
    fn transact(
        self: Arc<Self>,
        batch: &Batch,
        writes: Writes<'_>,
        through: Option<i64>,
    ) -> log::Result<()>;

    /// The first offset of the partition that is not written yet.
    fn end_offset(&self) -> Option<i64>;
}

enum Attachment {
    Partition(Arc<dyn BatchOwner>),
    /// None: it keeps what the consumer does.
    Detached(Mutex<ConsumerCalls>),
}

/// A batch. It ends once; a second outcome is dropped.
pub struct Batch {
    pub(crate) id: u64,
    pub(crate) lane: usize,
    pub(crate) generation: u64,
    pub(crate) route: usize,
    kind: BatchKind,
    records: RecordSet,
    partition: Partition,
    state: AtomicWorkState,
    /// The thread that runs it.
    thread: AtomicUsize,
    revoked: AtomicBool,
    requests: Mutex<ConsumerRequests>,
    attachment: Attachment,
}

impl Batch {
    pub(crate) fn new(partition: Partition, kind: BatchKind, records: RecordSet) -> Self {
        Self {
            id: 0,
            lane: 0,
            generation: 0,
            route: 0,
            kind,
            records,
            partition,
            state: AtomicWorkState::default(),
            thread: AtomicUsize::new(usize::MAX),
            revoked: AtomicBool::new(false),
            requests: Mutex::default(),
            attachment: Attachment::Detached(Mutex::default()),
        }
    }

    /// A batch of all records of a chunk, without an engine: for tests of consumers, and for
    /// reading outside of a group.
    pub fn detached(partition: Partition, chunk: Arc<Chunk>) -> Arc<Self> {
        Arc::new(Self::new(partition, BatchKind::Records, RecordSet::all(chunk)))
    }

    /// The same batch, reporting to this partition.
    pub(crate) fn owned_by(self, owner: Arc<dyn BatchOwner>) -> Arc<Self> {
        Arc::new(Self { attachment: Attachment::Partition(owner), ..self })
    }

    /// What it is for.
    pub fn kind(&self) -> BatchKind {
        self.kind
    }

    /// The number of its route, counted through all groups.
    pub fn route(&self) -> usize {
        self.route
    }

    /// Its partition.
    pub fn partition(&self) -> &Partition {
        &self.partition
    }

    /// The number of the assignment it belongs to; an engine never uses one twice.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Its key lane of the partition, from 0.
    pub fn lane(&self) -> usize {
        self.lane
    }

    /// The number of this attempt, from 1.
    pub fn attempt(&self) -> u32 {
        self.records.attempt
    }

    /// Its record is handed out alone, because a batch with it failed too often.
    pub fn isolated(&self) -> bool {
        self.records.isolated
    }

    /// The chunk that holds its records.
    pub fn chunk(&self) -> &Arc<Chunk> {
        &self.records.chunk
    }

    /// The indexes of its records in the chunk, rising.
    pub fn picks(&self) -> &[u32] {
        &self.records.picks
    }

    /// How many records it has.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether it has no records, like a notice.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Bytes it holds, about.
    pub fn bytes(&self) -> usize {
        self.records.bytes()
    }

    /// Its number, unique in its engine; 0 without an engine.
    pub fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn records(&self) -> &RecordSet {
        &self.records
    }

    /// One line for people, as `events/3 @1200-1699`.
    pub fn describe(&self) -> String {
        let Partition { topic, number } = &self.partition;
        let mut offsets = self.records.offsets();
        let what = match (self.kind, offsets.next(), offsets.next_back()) {
            (BatchKind::Revoked, ..) => "revoked".into(),
            (BatchKind::End, ..) => "end".into(),
            (BatchKind::Shutdown, ..) => "shutdown".into(),
            (BatchKind::Records, Some(first), Some(last)) => format!("@{first}-{last}"),
            (BatchKind::Records, Some(only), None) => format!("@{only}"),
            (BatchKind::Records, None, _) => "without records".into(),
        };
        format!("{topic}/{number} {what}")
    }

    /// Whether its partition was revoked: marks and the outcome no longer count.
    pub fn is_revoked(&self) -> bool {
        self.revoked.load(Ordering::Acquire)
    }

    /// Whether it has not ended.
    pub fn is_open(&self) -> bool {
        self.state.get() != WorkState::Finished
    }

    /// Whether the calling thread may run it now. If not, the thread abandons it.
    pub fn may_start(&self) -> bool {
        if self.is_revoked() {
            return false;
        }
        self.state.start() || self.is_running()
    }

    /// The thread with this number begins to run it.
    pub fn started_on(&self, thread: usize) {
        self.thread.store(thread, Ordering::Relaxed);
        if let Attachment::Partition(partition) = &self.attachment {
            partition.started(self, thread);
        }
    }

    /// The thread that runs it, or has run it.
    pub(crate) fn thread(&self) -> Option<usize> {
        Some(self.thread.load(Ordering::Relaxed)).filter(|thread| *thread != usize::MAX)
    }

    /// Marks the record with this offset and all before it in this batch as done.
    pub fn mark(&self, offset: i64) {
        match &self.attachment {
            Attachment::Partition(partition) => partition.mark(self, offset, false),
            Attachment::Detached(calls) => calls.lock().marked.extend(self.through(offset)),
        }
    }

    /// Marks the record with this offset as done.
    pub fn mark_one(&self, offset: i64) {
        match &self.attachment {
            Attachment::Partition(partition) => partition.mark(self, offset, true),
            Attachment::Detached(calls) => calls.lock().marked.push(offset),
        }
    }

    fn through(&self, offset: i64) -> impl Iterator<Item = i64> + '_ {
        self.records.offsets().take_while(move |own| *own <= offset)
    }

    /// Pauses the partition for this long when the batch has ended.
    pub fn pause(&self, time: Duration) {
        self.requests.lock().pause = Some(time);
    }

    /// Reads the partition from there when the batch has ended; records read ahead are dropped.
    pub fn seek(&self, position: Position) {
        self.requests.lock().seek = Some(position);
    }

    /// The first offset of the partition that is not written yet, as last reported by the log.
    pub fn end_offset(&self) -> Option<i64> {
        match &self.attachment {
            Attachment::Partition(partition) => partition.end_offset(),
            Attachment::Detached(_) => self.chunk().entries().last().map(|entry| entry.offset + 1),
        }
    }

    /// Ends the batch; a second call is dropped.
    pub fn finish(&self, outcome: BatchOutcome) -> BatchVerdict {
        let before = self.state.finish();
        if before == WorkState::Finished {
            return BatchVerdict::Dropped;
        }
        self.report(outcome, before == WorkState::Running)
    }

    /// Ends it unless a thread has taken it.
    pub(crate) fn abandon_untaken(&self) {
        if self.state.finish_unstarted() {
            self.report(BatchOutcome::Abandoned, false);
        }
    }

    fn report(&self, outcome: BatchOutcome, started: bool) -> BatchVerdict {
        match &self.attachment {
            Attachment::Partition(partition) => partition.clone().finish(self, outcome, started),
            Attachment::Detached(calls) => {
                let verdict = match &outcome {
                    BatchOutcome::Done => BatchVerdict::Done,
                    BatchOutcome::Failed { .. } => BatchVerdict::Retry { in_ms: 0, attempt: 2 },
                    BatchOutcome::Abandoned => BatchVerdict::Dropped,
                };
                calls.lock().outcome = Some(outcome);
                verdict
            }
        }
    }

    /// Writes records and commits how far the partition has come in one transaction: what is
    /// marked, and with `through` also the records of this batch up to that offset. Waits for the
    /// log's answer.
    ///
    /// # Errors
    /// `Fenced` when the partition was revoked; otherwise the error of the log.
    pub fn transact(&self, records: Vec<OwnedRecord>, through: Option<i64>) -> log::Result<()> {
        self.transact_with(records, None, through)
    }

    /// The same with what another engine writes, where it is in one file with the log.
    ///
    /// # Errors
    /// As [`Batch::transact`], and that of the other engine.
    pub fn transact_with(
        &self,
        records: Vec<OwnedRecord>,
        also: Option<&dyn Enlisted>,
        through: Option<i64>,
    ) -> log::Result<()> {
        match &self.attachment {
            Attachment::Partition(partition) => {
                partition.clone().transact(self, Writes { records: &records, also }, through)
            }
            Attachment::Detached(calls) => {
                let mut calls = calls.lock();
                calls.marked.extend(through.into_iter().flat_map(|offset| self.through(offset)));
                calls.written.extend(records);
                Ok(())
            }
        }
    }

    /// What the consumer did with a detached batch; empty for any other.
    pub fn calls(&self) -> ConsumerCalls {
        match &self.attachment {
            Attachment::Partition(_) => ConsumerCalls::default(),
            Attachment::Detached(calls) => {
                ConsumerCalls { requests: self.requests(), ..calls.lock().clone() }
            }
        }
    }

    pub(crate) fn requests(&self) -> ConsumerRequests {
        *self.requests.lock()
    }

    pub(crate) fn revoke(&self) {
        self.revoked.store(true, Ordering::Release);
    }

    pub(crate) fn is_running(&self) -> bool {
        self.state.get() == WorkState::Running
    }
}

impl Work for Batch {
    fn role(&self) -> Role {
        Role::Streams
    }

    fn id(&self) -> u64 {
        self.id
    }

    fn describe(&self) -> String {
        Batch::describe(self)
    }

    fn log_context(&self) -> Vec<(&'static str, String)> {
        vec![("batch", Batch::describe(self))]
    }

    fn bytes(&self) -> usize {
        self.records.bytes()
    }

    fn release(self: Arc<Self>) {
        self.finish(BatchOutcome::Abandoned);
    }

    fn abandon(self: Arc<Self>) {
        self.finish(BatchOutcome::Abandoned);
    }
}
