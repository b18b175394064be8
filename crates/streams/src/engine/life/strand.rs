//! A strand: what is worked on one after the other.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use super::super::ending::Kind;
use super::letter::{Letter, Step};
use crate::record::Chunk;

/// Bytes of chunks that are ready or out.
pub type Held = Arc<AtomicUsize>;

/// A chunk's share of them.
pub struct Hold {
    bytes: usize,
    held: Held,
}

impl Hold {
    pub fn new(bytes: usize, held: &Held) -> Arc<Self> {
        held.fetch_add(bytes, Ordering::Relaxed);
        Arc::new(Self { bytes, held: held.clone() })
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Records to be handed out together.
#[derive(Clone)]
pub struct Batch {
    pub chunk: Arc<Chunk>,
    /// Indexes into it, rising.
    pub picks: Arc<[u32]>,
    pub _hold: Arc<Hold>,
    /// Which try comes next.
    pub attempt: u32,
    /// How often in a row it was begun, and neither ended nor got on.
    pub abandoned: u32,
    /// When it was fetched, on the monotonic clock.
    pub fetched_ns: u64,
    /// Its records are given one at a time.
    pub isolated: bool,
}

impl Batch {
    pub fn with(&self, picks: &[u32]) -> Self {
        Self { picks: picks.into(), ..self.clone() }
    }

    /// Its share of the chunk's bytes.
    pub fn bytes(&self) -> usize {
        (self.chunk.bytes() / self.chunk.len().max(1)).saturating_mul(self.picks.len())
    }

    /// Number of the first records up to this offset.
    pub fn count_through(&self, offset: i64) -> usize {
        let entries = self.chunk.entries();
        self.picks.partition_point(|pick| entries[*pick as usize].offset <= offset)
    }
}

/// What a strand has ready.
pub enum Piece {
    Batch(Batch),
    /// Everything before it was all there is.
    End,
}

/// Why a strand waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    Retry,
    Delay,
    Throttle,
}

/// What a strand does.
#[derive(Default)]
pub enum State {
    /// Nothing: it begins what is ready.
    #[default]
    Free,
    /// A turn is out: with this batch, or a notice.
    Out { id: u64, kind: Kind, batch: Option<Batch> },
    /// The first that is ready is due then.
    Waiting { until_ns: u64, why: Why },
    /// A record goes to the dead letters.
    Dead { letter: Arc<Letter>, step: Step },
    /// Its last turn has ended.
    Over,
}

/// A turn to be handed out.
pub struct Give {
    pub id: u64,
    pub strand: usize,
    pub kind: Kind,
    pub batch: Option<Batch>,
}

/// A strand.
#[derive(Default)]
pub struct Strand {
    pub state: State,
    /// It had a turn with records, and shall hear of the end.
    pub used: bool,
    ready: VecDeque<Piece>,
    records: usize,
}

impl Strand {
    pub fn push_back(&mut self, piece: Piece) {
        self.records += len(&piece);
        self.ready.push_back(piece);
    }

    pub fn push_front(&mut self, piece: Piece) {
        self.records += len(&piece);
        self.ready.push_front(piece);
    }

    pub fn pop(&mut self) -> Option<Piece> {
        let piece = self.ready.pop_front()?;
        self.records -= len(&piece);
        Some(piece)
    }

    /// Pieces that are ready.
    pub fn pieces(&self) -> usize {
        self.ready.len()
    }

    /// Records in them.
    pub fn records(&self) -> usize {
        self.records
    }

    /// The first that is ready.
    pub fn first(&self) -> Option<&Piece> {
        self.ready.front()
    }

    pub fn ends_with_end(&self) -> bool {
        matches!(self.ready.back(), Some(Piece::End))
    }

    /// What is ready is not handed out any more. A dead letter that is on its
    /// way, or about to be, is waited for.
    pub fn drop_ready(&mut self) {
        self.ready.clear();
        self.records = 0;
        let waits = match &self.state {
            State::Waiting { .. } => true,
            State::Dead { step, .. } => matches!(step, Step::Waiting { .. }),
            State::Free | State::Out { .. } | State::Over => false,
        };
        if waits {
            self.state = State::Free;
        }
    }

    /// Nor is that one.
    pub fn drop_all(&mut self) {
        self.drop_ready();
        if matches!(self.state, State::Dead { .. }) {
            self.state = State::Free;
        }
    }

    /// Something is under way that counts when it ends.
    pub fn is_busy(&self) -> bool {
        matches!(self.state, State::Out { batch: Some(_), .. } | State::Dead { .. })
    }

    /// When it goes on by itself.
    pub fn wakes_ns(&self) -> Option<u64> {
        match self.state {
            State::Waiting { until_ns, .. } => Some(until_ns),
            _ => self.letter_ns(),
        }
    }

    /// When its letter is sent (again).
    pub fn letter_ns(&self) -> Option<u64> {
        match self.state {
            State::Dead { step: Step::Waiting { until_ns, .. }, .. } => Some(until_ns),
            State::Dead { step: Step::Due, .. } => Some(0),
            _ => None,
        }
    }

    /// Whether this turn is out.
    pub fn has_out(&self, own: u64) -> bool {
        matches!(self.state, State::Out { id, .. } if id == own)
    }
}

fn len(piece: &Piece) -> usize {
    match piece {
        Piece::Batch(batch) => batch.picks.len(),
        Piece::End => 0,
    }
}
