//! The life of one assigned partition: a state machine without effects. Every
//! change of state is in this module and its children; time comes in as an
//! argument, what is to be done goes out as values.
//!
//! The partition has a [`Phase`], each of its strands a [`State`]. Without
//! `order: :key` there is one strand. What a turn of another generation or of
//! an earlier time says meets an id that is not out, and changes nothing.

mod begin;
mod end;
mod intake;
mod letter;
mod picture;
mod promise;
mod strand;

use std::collections::VecDeque;
use std::sync::atomic::AtomicU64;
use std::sync::Arc;

use super::bucket::Bucket;
use super::ending::Kind;
use super::settings::RouteSettings;
use super::stats::Counters;
use super::tracker::metadata;
use super::tracker::{Range, Tracker};
use crate::log::{Assignment, Position};
use chaton_core::random::Random;
pub(super) use letter::Letter;
pub(super) use promise::Promise;
pub(super) use strand::Give;
use strand::{Batch, Held, State, Strand};

/// One moment on both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    /// Of the monotonic clock.
    pub ns: u64,
    /// Since 1970.
    pub ms: i64,
}

impl Now {
    /// This moment.
    pub fn read() -> Self {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let ms = since.map_or(0, |time| time.as_millis() as i64);
        Self { ns: chaton_core::clock::now_ns(), ms }
    }

    /// On the monotonic clock, when the other will show this; a time that it
    /// cannot show is its last.
    fn ns_at(&self, ms: i64) -> u64 {
        let in_ms = ms.saturating_sub(self.ms).max(0) as u64;
        self.ns.saturating_add(in_ms.saturating_mul(1_000_000))
    }
}

/// What holds for every partition of a route.
pub(super) struct Rules {
    /// The route's number, counted through all groups.
    pub route: usize,
    pub settings: RouteSettings,
    pub ready_batches: usize,
    pub counters: Arc<Counters>,
    /// Numbers of turns.
    pub ids: Arc<AtomicU64>,
}

/// What the partition as a whole does.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// Strands begin what is ready.
    Open,
    /// They wait until then.
    Paused { until_ns: u64 },
    /// They wait for what is out, and the log to go elsewhere.
    Seeking { to: Position, not_before_ns: u64, pause_until_ns: u64 },
    /// It is to be given up: what is out may end and counts.
    Ending { notice: Kind },
    /// It is given up: what is out does not count.
    Gone { notice: Option<Kind> },
}

/// An assigned partition.
pub(super) struct Life {
    rules: Arc<Rules>,
    phase: Phase,
    strands: Vec<Strand>,
    tracker: Tracker,
    /// Done by those who had it before, beyond where they had come.
    skip: VecDeque<Range>,
    bucket: Option<Bucket>,
    random: Random,
    held: Held,
    /// The next strand for a record without a key.
    keyless: usize,
    /// Something was done that no commit has said.
    dirty: bool,
    /// Commits are taken.
    owned: bool,
    /// The offset of the last commit; -1: none.
    said: i64,
    scratch: Vec<Range>,
}

impl Life {
    pub fn new(rules: Arc<Rules>, assigned: &Assignment, now: Now, random: Random) -> Self {
        let strands = (0..rules.settings.strands()).map(|_| Strand::default()).collect();
        let note = assigned.committed.map(|head| metadata::decode(head, &assigned.metadata));
        Self {
            phase: Phase::Open,
            strands,
            tracker: Tracker::new(assigned.committed),
            skip: note.unwrap_or_default(),
            bucket: rules.settings.throttle.map(|throttle| Bucket::new(throttle, now.ns)),
            random,
            held: Held::default(),
            keyless: 0,
            dirty: false,
            owned: true,
            said: assigned.committed.unwrap_or(-1),
            scratch: Vec::new(),
            rules,
        }
    }

    /// It is to be given up, by this notice. What is ready is dropped; what is
    /// out may end.
    pub fn drain(&mut self, notice: Kind) {
        if self.is_ending() {
            return;
        }
        self.phase = Phase::Ending { notice };
        self.strands.iter_mut().for_each(Strand::drop_ready);
    }

    /// Nothing that is out is waited for any more.
    pub fn is_drained(&self) -> bool {
        self.is_gone() || !self.strands.iter().any(Strand::is_busy)
    }

    /// What is out does not count from now on. Strands hear of it in a last
    /// turn, if there is a notice.
    pub fn give_up(&mut self, notice: Option<Kind>) {
        let notice = match self.phase {
            Phase::Ending { notice: own } => notice.map(|_| own),
            Phase::Gone { notice: own } => notice.and(own),
            Phase::Open | Phase::Paused { .. } | Phase::Seeking { .. } => notice,
        };
        self.phase = Phase::Gone { notice };
        self.strands.iter_mut().for_each(Strand::drop_all);
    }

    /// Others have it: nothing counts, and nothing can be committed.
    pub fn lose(&mut self) {
        self.dirty = false;
        self.owned = false;
        self.give_up(Some(Kind::Revoked));
    }

    /// Whether commits are taken.
    pub fn is_ours(&self) -> bool {
        self.owned
    }

    /// Whether it is to be given up, or is.
    pub fn is_ending(&self) -> bool {
        matches!(self.phase, Phase::Ending { .. } | Phase::Gone { .. })
    }

    /// Whether what is out does not count.
    pub fn is_gone(&self) -> bool {
        matches!(self.phase, Phase::Gone { .. })
    }

    /// Whether its last turn has ended, and what it did is said.
    pub fn is_over(&self) -> bool {
        !self.is_dirty() && self.strands.iter().all(|strand| matches!(strand.state, State::Over))
    }

    /// Whether no turn is out and every ending is committed.
    pub fn is_idle(&self) -> bool {
        let ending = self.is_ending();
        let still = |strand: &Strand| match strand.state {
            State::Free => !ending,
            State::Waiting { .. } | State::Over => true,
            State::Out { .. } | State::Dead { .. } => false,
        };
        !self.dirty && self.strands.iter().all(still)
    }

    /// Where to go on, when what was out before has ended.
    pub fn seek_due(&self, now: Now) -> Option<Position> {
        match self.phase {
            Phase::Seeking { to, not_before_ns, .. } if not_before_ns <= now.ns => {
                self.is_drained().then_some(to)
            }
            _ => None,
        }
    }

    /// The log went there.
    pub fn sought(&mut self) {
        let Phase::Seeking { to, pause_until_ns, .. } = self.phase else { return };
        self.phase = match pause_until_ns {
            0 => Phase::Open,
            until_ns => Phase::Paused { until_ns },
        };
        let position = if let Position::Offset(offset) = to { Some(offset) } else { None };
        self.tracker = Tracker::asked(position);
        // What was done before the seek was said before it.
        self.dirty = false;
        self.skip.clear();
    }

    /// It could not, and is asked again then.
    pub fn seek_again(&mut self, at_ns: u64) {
        if let Phase::Seeking { not_before_ns, .. } = &mut self.phase {
            *not_before_ns = at_ns;
        }
    }

    /// The next moment at which something is to be done without anybody's
    /// asking.
    pub fn next_ns(&self) -> Option<u64> {
        let strands = self.strands.iter().filter_map(Strand::wakes_ns);
        match self.phase {
            Phase::Paused { until_ns } => {
                // Strands wait for it, whatever their own time is; letters do not.
                let letters = self.strands.iter().filter_map(Strand::letter_ns);
                letters.chain([until_ns]).min()
            }
            Phase::Seeking { not_before_ns, .. } => {
                let seek = self.is_drained().then_some(not_before_ns);
                self.strands.iter().filter_map(Strand::letter_ns).chain(seek).min()
            }
            Phase::Open => strands.min(),
            Phase::Ending { .. } | Phase::Gone { .. } => None,
        }
    }

    fn pause(&mut self, until_ns: u64) {
        match &mut self.phase {
            Phase::Open => self.phase = Phase::Paused { until_ns },
            Phase::Paused { until_ns: before } => *before = until_ns.max(*before),
            Phase::Seeking { pause_until_ns, .. } => *pause_until_ns = until_ns,
            Phase::Ending { .. } | Phase::Gone { .. } => {}
        }
    }

    fn seek(&mut self, to: Position) {
        let pause_until_ns = match self.phase {
            Phase::Open => 0,
            Phase::Paused { until_ns } => until_ns,
            Phase::Seeking { pause_until_ns, .. } => pause_until_ns,
            Phase::Ending { .. } | Phase::Gone { .. } => return,
        };
        self.phase = Phase::Seeking { to, not_before_ns: 0, pause_until_ns };
        self.strands.iter_mut().for_each(Strand::drop_ready);
    }

    /// These records are done.
    fn settle(&mut self, batch: &Batch, picks: &[u32]) {
        super::tracker::ranges_of(batch.chunk.entries(), picks, &mut self.scratch);
        self.tracker.done(&self.scratch);
        self.dirty |= !picks.is_empty();
    }
}

#[cfg(test)]
mod tests;
