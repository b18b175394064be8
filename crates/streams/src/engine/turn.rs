//! One turn of a partition: a batch of records, or a notice, in the hands of
//! one thread.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::cell::Cell;
use super::ending::{Ending, Kind, Outcome, Verdict};
use super::life::Give;
use crate::log::{self, Partition, Position};
use crate::record::{Chunk, OwnedRecord};

const WAITING: u8 = 0;
const STARTED: u8 = 1;
const ENDED: u8 = 2;

/// What a turn asked for, to be done when it ends.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wishes {
    pub pause: Option<Duration>,
    pub seek: Option<Position>,
}

/// Where a turn reports to.
enum Home {
    Engine(Arc<Cell>),
    /// Nowhere: it keeps what happened.
    Detached(Mutex<Outcome>),
}

/// What a turn is made of.
pub(super) struct Parts {
    pub id: u64,
    pub kind: Kind,
    pub strand: usize,
    pub attempt: u32,
    pub isolated: bool,
    pub chunk: Arc<Chunk>,
    pub picks: Arc<[u32]>,
    pub bytes: usize,
}

impl Parts {
    /// Of a turn with this batch, or of a notice.
    pub fn new(give: Give, none: &Arc<Chunk>) -> Self {
        let Give { id, strand, kind, batch } = give;
        let Some(batch) = batch else {
            let (chunk, picks) = (none.clone(), Arc::from([]));
            return Self { id, kind, strand, attempt: 1, isolated: false, chunk, picks, bytes: 0 };
        };
        Self {
            id,
            kind,
            strand,
            attempt: batch.attempt,
            isolated: batch.isolated,
            bytes: batch.bytes(),
            chunk: batch.chunk,
            picks: batch.picks,
        }
    }
}

/// A turn. It ends once; whoever comes second is told that it was dropped.
pub struct Turn {
    parts: Parts,
    partition: Partition,
    generation: u64,
    route: usize,
    phase: AtomicU8,
    revoked: AtomicBool,
    wishes: Mutex<Wishes>,
    home: Home,
}

impl Turn {
    pub(super) fn new(cell: &Arc<Cell>, parts: Parts) -> Arc<Self> {
        Arc::new(Self {
            parts,
            partition: cell.partition().clone(),
            generation: cell.generation(),
            route: cell.route(),
            phase: AtomicU8::new(WAITING),
            revoked: AtomicBool::new(false),
            wishes: Mutex::default(),
            home: Home::Engine(cell.clone()),
        })
    }

    /// A turn of all records of a chunk without an engine behind it: for tests
    /// of consumers, and for reading outside of a group.
    pub fn detached(partition: Partition, chunk: Arc<Chunk>) -> Arc<Self> {
        let picks: Arc<[u32]> = (0..chunk.len() as u32).collect();
        let parts = Parts {
            id: 0,
            kind: Kind::Records,
            strand: 0,
            attempt: 1,
            isolated: false,
            bytes: chunk.bytes(),
            chunk,
            picks,
        };
        Arc::new(Self {
            parts,
            partition,
            generation: 0,
            route: 0,
            phase: AtomicU8::new(WAITING),
            revoked: AtomicBool::new(false),
            wishes: Mutex::default(),
            home: Home::Detached(Mutex::default()),
        })
    }

    /// What it is for.
    pub fn kind(&self) -> Kind {
        self.parts.kind
    }

    /// The number of its route, counted through all groups.
    pub fn route(&self) -> usize {
        self.route
    }

    /// Its partition.
    pub fn partition(&self) -> &Partition {
        &self.partition
    }

    /// Which assignment of the partition it belongs to; never the same again
    /// in one engine.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Its strand of the partition, from 0.
    pub fn strand(&self) -> usize {
        self.parts.strand
    }

    /// The how-maniest try this is, from 1.
    pub fn attempt(&self) -> u32 {
        self.parts.attempt
    }

    /// Its record is given alone, since a batch with it failed too often.
    pub fn isolated(&self) -> bool {
        self.parts.isolated
    }

    /// Where its records are.
    pub fn chunk(&self) -> &Arc<Chunk> {
        &self.parts.chunk
    }

    /// Which of the chunk's records are its own: their indexes, rising.
    pub fn picks(&self) -> &[u32] {
        &self.parts.picks
    }

    /// Records.
    pub fn len(&self) -> usize {
        self.parts.picks.len()
    }

    /// Whether it has none, as a notice.
    pub fn is_empty(&self) -> bool {
        self.parts.picks.is_empty()
    }

    /// Bytes it holds, about.
    pub fn bytes(&self) -> usize {
        self.parts.bytes
    }

    /// Its number, unique in its engine; 0 for a detached one.
    pub fn id(&self) -> u64 {
        self.parts.id
    }

    /// One line for people, as `events/3 @1200-1699`.
    pub fn describe(&self) -> String {
        let Partition { topic, number } = &self.partition;
        let notice = match self.parts.kind {
            Kind::Records => return format!("{topic}/{number} {}", self.span()),
            Kind::Revoked => "revoked",
            Kind::End => "end",
            Kind::Shutdown => "shutdown",
        };
        format!("{topic}/{number} {notice}")
    }

    fn span(&self) -> String {
        let entries = self.parts.chunk.entries();
        let offset = |pick: &u32| entries[*pick as usize].offset;
        match (self.picks().first().map(offset), self.picks().last().map(offset)) {
            (Some(first), Some(last)) if first != last => format!("@{first}-{last}"),
            (Some(first), _) => format!("@{first}"),
            _ => "without records".into(),
        }
    }

    /// Its partition was taken away, and what it says does not count any more.
    pub fn is_revoked(&self) -> bool {
        self.revoked.load(Ordering::Acquire)
    }

    /// Whether it has not ended.
    pub fn is_open(&self) -> bool {
        self.phase.load(Ordering::Acquire) != ENDED
    }

    /// A thread is about to run it: whether it may. If not, the thread calls
    /// [`Turn::abandon`].
    pub fn may_start(&self) -> bool {
        if self.is_revoked() {
            return false;
        }
        let begun =
            self.phase.compare_exchange(WAITING, STARTED, Ordering::AcqRel, Ordering::Acquire);
        begun.is_ok() || begun == Err(STARTED)
    }

    /// The record with this offset and all before it in this turn are done.
    pub fn mark(&self, offset: i64) {
        match &self.home {
            Home::Engine(cell) => cell.mark(self, offset, false),
            Home::Detached(outcome) => outcome.lock().marked.extend(self.through(offset)),
        }
    }

    /// The record with this offset is done.
    pub fn mark_one(&self, offset: i64) {
        match &self.home {
            Home::Engine(cell) => cell.mark(self, offset, true),
            Home::Detached(outcome) => outcome.lock().marked.push(offset),
        }
    }

    fn through(&self, offset: i64) -> impl Iterator<Item = i64> + '_ {
        let entries = self.parts.chunk.entries();
        let offsets = self.picks().iter().map(|pick| entries[*pick as usize].offset);
        offsets.take_while(move |own| *own <= offset)
    }

    /// When this turn has ended, the partition rests for this long.
    pub fn pause(&self, time: Duration) {
        self.wishes.lock().pause = Some(time);
        if let Home::Detached(outcome) = &self.home {
            outcome.lock().pause = Some(time);
        }
    }

    /// When this turn has ended, the partition goes on there; what was read
    /// ahead is dropped.
    pub fn seek(&self, position: Position) {
        self.wishes.lock().seek = Some(position);
        if let Home::Detached(outcome) = &self.home {
            outcome.lock().seek = Some(position);
        }
    }

    /// The first offset of the partition that is not written yet, as last
    /// heard.
    pub fn end_offset(&self) -> Option<i64> {
        match &self.home {
            Home::Engine(cell) => cell.end_offset(),
            Home::Detached(_) => self.parts.chunk.entries().last().map(|entry| entry.offset + 1),
        }
    }

    /// Ends it.
    pub fn finish(&self, ending: Ending) -> Verdict {
        if self.phase.swap(ENDED, Ordering::AcqRel) == ENDED {
            return Verdict::Dropped;
        }
        match &self.home {
            Home::Engine(cell) => cell.finish(self, ending),
            Home::Detached(outcome) => {
                let verdict = match &ending {
                    Ending::Done => Verdict::Done,
                    Ending::Failed { .. } => Verdict::Retry { in_ms: 0, attempt: 2 },
                };
                outcome.lock().ending = Some(ending);
                verdict
            }
        }
    }

    /// Nobody ran it to its end: it is given again, as the same attempt. No-op
    /// when it has ended.
    pub fn abandon(&self) {
        let was = self.phase.swap(ENDED, Ordering::AcqRel);
        if let Home::Engine(cell) = &self.home {
            if was != ENDED {
                cell.abandon(self, was == STARTED);
            }
        }
    }

    /// Writes records and commits how far the partition has come, both or
    /// neither: what is marked, and with `through` also this turn's records up
    /// to that offset. Waits for the log's answer.
    ///
    /// # Errors
    /// `Fenced` when the partition is no longer ours; what the log says.
    pub fn transact(&self, records: Vec<OwnedRecord>, through: Option<i64>) -> log::Result<()> {
        match &self.home {
            Home::Engine(cell) => cell.transact(self, &records, through),
            Home::Detached(outcome) => {
                let mut outcome = outcome.lock();
                outcome.marked.extend(through.into_iter().flat_map(|offset| self.through(offset)));
                outcome.written.extend(records);
                Ok(())
            }
        }
    }

    /// What has happened to a detached turn; nothing for any other.
    pub fn endings(&self) -> Outcome {
        match &self.home {
            Home::Engine(_) => Outcome::default(),
            Home::Detached(outcome) => outcome.lock().clone(),
        }
    }

    pub(super) fn wishes(&self) -> Wishes {
        *self.wishes.lock()
    }

    pub(super) fn revoke(&self) {
        self.revoked.store(true, Ordering::Release);
    }

    /// As [`Turn::abandon`], unless a thread has taken it.
    pub(super) fn drop_untaken(&self) {
        let dropped =
            self.phase.compare_exchange(WAITING, ENDED, Ordering::AcqRel, Ordering::Acquire);
        if let (Ok(_), Home::Engine(cell)) = (dropped, &self.home) {
            cell.abandon(self, false);
        }
    }

    pub(super) fn is_running(&self) -> bool {
        self.phase.load(Ordering::Acquire) == STARTED
    }
}
