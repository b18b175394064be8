//! What comes of a turn.

use std::sync::atomic::Ordering;
use std::sync::Arc;

use super::super::backoff::pause_ms;
use super::super::ending::{Ending, Kind, Verdict};
use super::super::settings::Order;
use super::super::tracker::end_of;
use super::super::turn::Wishes;
use super::letter::{Letter, Step};
use super::strand::{Batch, Piece, State, Why};
use super::{Life, Now, Phase};

/// A turn whose thread was ended so often in a row waits before the next.
const ABANDONED_AT_ONCE: u32 = 2;

impl Life {
    /// A turn ends.
    pub fn finish(
        &mut self,
        strand: usize,
        id: u64,
        ending: Ending,
        wishes: Wishes,
        now: Now,
    ) -> Verdict {
        let Some((kind, batch)) = self.take_out(strand, id) else { return Verdict::Dropped };
        let Some(batch) = batch else {
            // The last notice of a strand is its last turn.
            if kind != Kind::End {
                self.strands[strand].state = State::Over;
            }
            return Verdict::Done;
        };
        self.strands[strand].used = true;
        if matches!(self.phase, Phase::Gone { .. }) {
            return Verdict::Dropped;
        }
        if let Some(time) = wishes.pause {
            self.pause(now.ns.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)));
        }
        let verdict = match ending {
            Ending::Done => {
                let count = batch.picks.len();
                self.rules.counters.records.fetch_add(count as u64, Ordering::Relaxed);
                if !self.rules.settings.manual {
                    self.settle(&batch, &batch.picks);
                }
                Verdict::Done
            }
            Ending::Failed { class, message } => {
                self.failed(strand, id, &batch, (class, message), now)
            }
        };
        if let Some(position) = wishes.seek {
            self.seek(position);
        }
        verdict
    }

    /// Nobody ran it to its end. What was marked is done; the rest is given
    /// again, at once or, if this goes on, after a pause.
    pub fn abandon(&mut self, strand: usize, id: u64, started: bool, now: Now) {
        let Some((kind, batch)) = self.take_out(strand, id) else { return };
        self.strands[strand].used |= started && kind == Kind::Records;
        match batch {
            Some(batch) => {
                let rest = self.rest_of(&batch);
                if matches!(self.phase, Phase::Open | Phase::Paused { .. }) {
                    self.put_back(strand, &batch, rest, started, now);
                }
            }
            None if kind == Kind::End => {}
            None => self.strands[strand].state = State::Over,
        }
    }

    fn put_back(&mut self, strand: usize, batch: &Batch, rest: Vec<u32>, started: bool, now: Now) {
        if rest.is_empty() {
            return;
        }
        let got_on = rest.len() < batch.picks.len();
        let attempt = if got_on { 1 } else { batch.attempt };
        let abandoned = if got_on { 0 } else { batch.abandoned } + u32::from(started);
        let rest = Batch { attempt, abandoned, ..batch.with(&rest) };
        self.take_back(strand, Piece::Batch(rest));
        if abandoned >= ABANDONED_AT_ONCE {
            let in_ms = self.pause_ms(abandoned + 1 - ABANDONED_AT_ONCE);
            let until_ns = now.ns.saturating_add(in_ms.saturating_mul(1_000_000));
            self.strands[strand].state = State::Waiting { until_ns, why: Why::Retry };
        }
    }

    /// The sink had no room for it.
    pub fn refused(&mut self, strand: usize, id: u64) {
        let Some((kind, batch)) = self.take_out(strand, id) else { return };
        match batch {
            Some(batch) if matches!(self.phase, Phase::Open | Phase::Paused { .. }) => {
                self.rules.counters.batches.fetch_sub(1, Ordering::Relaxed);
                self.take_back(strand, Piece::Batch(batch));
            }
            None if kind == Kind::End => self.strands[strand].push_front(Piece::End),
            _ => {}
        }
    }

    /// Records of a turn that is out are done: this one, or all up to it.
    /// Answers whether that counts.
    pub fn mark(&mut self, strand: usize, id: u64, offset: i64, alone: bool) -> bool {
        if self.is_gone() || !self.strands[strand].has_out(id) {
            return false;
        }
        let State::Out { batch: Some(batch), .. } = &self.strands[strand].state else {
            return false;
        };
        let batch = batch.clone();
        let count = batch.count_through(offset);
        let first = if alone { count.saturating_sub(1) } else { 0 };
        let picks = &batch.picks[first..count];
        let entries = batch.chunk.entries();
        let is_own = picks.last().is_some_and(|pick| entries[*pick as usize].offset == offset);
        if alone && !is_own {
            return false;
        }
        if !alone && self.rules.settings.order == Order::Partition {
            // Also what earlier turns left unmarked.
            let end = picks.last().map_or(offset.saturating_add(1), |pick| end_of(entries, *pick));
            self.tracker.done(&[(i64::MIN, end)]);
            self.dirty = true;
        } else {
            self.settle(&batch, picks);
        }
        true
    }

    fn failed(
        &mut self,
        strand: usize,
        id: u64,
        batch: &Batch,
        error: (String, String),
        now: Now,
    ) -> Verdict {
        let rest = self.rest_of(batch);
        let done = batch.picks.len() - rest.len();
        if rest.is_empty() {
            return Verdict::Done;
        }
        if matches!(self.phase, Phase::Ending { .. }) {
            return Verdict::Dropped;
        }
        self.rules.counters.retries.fetch_add(1, Ordering::Relaxed);
        // Another record is the first now: the tries before were not for it.
        let attempt = if done > 0 { 1 } else { batch.attempt };
        let rest = Batch { attempt, abandoned: 0, ..batch.with(&rest) };
        let settings = &self.rules.settings;
        let spent = settings.attempts_max.is_some_and(|most| attempt >= most);
        let Some(topic) = settings.dead_letter.clone().filter(|_| batch.isolated || spent) else {
            return self.again(strand, rest, spent, now);
        };
        if rest.picks.len() > 1 {
            return self.isolate(strand, rest, now);
        }
        let (class, message) = error;
        let letter = Letter {
            id,
            strand,
            topic: topic.clone(),
            attempts: attempt,
            class,
            message,
            failed_at_ms: now.ms,
            batch: rest,
        };
        self.strands[strand].state = State::Dead { letter: Arc::new(letter), step: Step::Due };
        Verdict::DeadLetter { topic }
    }

    /// What of it was not marked; the others are counted.
    fn rest_of(&self, batch: &Batch) -> Vec<u32> {
        let entries = batch.chunk.entries();
        let undone = |pick: &u32| self.tracker.is_undone(entries[*pick as usize].offset);
        let rest: Vec<u32> = batch.picks.iter().copied().filter(undone).collect();
        let done = batch.picks.len() - rest.len();
        self.rules.counters.records.fetch_add(done as u64, Ordering::Relaxed);
        rest
    }

    fn again(&mut self, strand: usize, rest: Batch, spent: bool, now: Now) -> Verdict {
        let in_ms =
            if spent { self.rules.settings.backoff_max_ms } else { self.pause_ms(rest.attempt) };
        let attempt = rest.attempt.saturating_add(1);
        self.wait(strand, Batch { attempt, ..rest }, in_ms, now);
        Verdict::Retry { in_ms, attempt }
    }

    fn isolate(&mut self, strand: usize, rest: Batch, now: Now) -> Verdict {
        let in_ms = self.pause_ms(rest.attempt);
        let attempt = rest.attempt.saturating_add(1);
        self.wait(strand, Batch { attempt, isolated: true, ..rest }, in_ms, now);
        Verdict::Isolated { in_ms }
    }

    fn pause_ms(&mut self, failures: u32) -> u64 {
        let settings = &self.rules.settings;
        pause_ms(settings.backoff_ms, settings.backoff_max_ms, failures, &mut self.random)
    }

    fn wait(&mut self, strand: usize, batch: Batch, in_ms: u64, now: Now) {
        let until_ns = now.ns.saturating_add(in_ms.saturating_mul(1_000_000));
        self.strands[strand].push_front(Piece::Batch(batch));
        self.strands[strand].state = State::Waiting { until_ns, why: Why::Retry };
    }

    fn take_back(&mut self, strand: usize, piece: Piece) {
        if let (Some(bucket), Piece::Batch(batch)) = (&mut self.bucket, &piece) {
            bucket.put_back(batch.picks.len());
        }
        self.strands[strand].push_front(piece);
    }

    /// The turn with this id is out no more. `None`: it was not out.
    fn take_out(&mut self, strand: usize, id: u64) -> Option<(Kind, Option<Batch>)> {
        let strand = self.strands.get_mut(strand).filter(|strand| strand.has_out(id))?;
        match std::mem::take(&mut strand.state) {
            State::Out { kind, batch, .. } => Some((kind, batch)),
            _ => None,
        }
    }
}
