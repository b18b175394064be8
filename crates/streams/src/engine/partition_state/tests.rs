//! The state of a partition under random sequences of events, including those of earlier batches
//! and generations.

use std::collections::{BTreeMap, BTreeSet};

use super::super::settings::{RecordOrder, RouteSettings, Throttle};
use super::*;
use crate::batch::{Batch, BatchOutcome, BatchVerdict};
use crate::log::Limits;
use crate::record::{Chunk, ChunkBuilder};

mod edges;
mod suspects;

const MS: u64 = 1_000_000;

fn route_of(settings: RouteSettings, ready_batches: usize) -> Arc<Route> {
    Arc::new(Route {
        number: 0,
        settings,
        source: 1,
        suspects: Arc::default(),
        ready_batches,
        counters: Arc::default(),
        metrics: None,
        batch_ids: Arc::default(),
        transactor: parking_lot::Mutex::default(),
    })
}

fn assigned(committed: Option<i64>, metadata: &str) -> Assignment {
    let partition = Partition { topic: "events".into(), number: 0 };
    Assignment { partition, committed, metadata: metadata.into(), is_first: false }
}

fn at(ms: u64) -> Now {
    Now { ns: ms * MS, ms: 1_000_000 + ms as i64 }
}

/// Records with these offsets; key and timestamp follow from the offset.
fn chunk(offsets: &[i64]) -> Chunk {
    let mut builder = ChunkBuilder::default();
    for offset in offsets {
        let key = format!("k{}", offset % 7);
        builder.push(*offset, 1_000_000, Some(key.as_bytes()), Some(b"v"), []);
    }
    builder.finish()
}

fn failed() -> BatchOutcome {
    BatchOutcome::Failed { class: "E".into(), message: "m".into() }
}

fn offsets(batch: &Batch) -> Vec<i64> {
    batch.records().offsets().collect()
}

/// The dead letter of another batch.
fn stale_letter(lane: usize, batch: u64) -> PendingDeadLetter {
    PendingDeadLetter {
        batch,
        lane,
        records: RecordSet::all(Arc::default()),
        topic: String::new(),
        class: String::new(),
        message: String::new(),
        failed_at_ms: 0,
        size: LetterSize::Whole,
    }
}

fn advance(state: &mut PartitionState, now: Now) -> Vec<Batch> {
    let mut batches = Vec::new();
    state.advance(now, &mut batches);
    batches
}

fn state(settings: RouteSettings) -> PartitionState {
    let (route, assigned) = (route_of(settings, 2), assigned(Some(0), ""));
    PartitionState::new(&route, &assigned, 1, at(0), Rng::with_seed(3))
}

fn route() -> RouteSettings {
    RouteSettings { batch: 10, ..RouteSettings::for_tests("events") }
}

#[test]
fn unmarked_records_are_retried_after_a_pause() {
    let mut state = state(route());
    assert_eq!(state.fetch_limits().map(|limits| limits.records), Some(20));
    state.fetched(chunk(&(0..20).collect::<Vec<_>>()), at(0));
    let first = advance(&mut state, at(0)).remove(0);
    assert_eq!(offsets(&first), (0..10).collect::<Vec<_>>());
    assert!(advance(&mut state, at(0)).is_empty(), "one batch at a time");
    assert!(state.mark(&first, 3, false));
    assert_eq!(state.take_commit().map(|commit| commit.offset), Some(4));
    let verdict = state.finish(&first, failed(), true, at(0));
    assert!(matches!(verdict, BatchVerdict::Retry { attempt: 2, .. }), "{verdict:?}");
    assert!(advance(&mut state, at(100)).is_empty());
    let until = state.next_ns().unwrap();
    assert!((500 * MS..=1_000 * MS).contains(&until));
    let again = advance(&mut state, at(1_000)).remove(0);
    assert_eq!(offsets(&again), (4..10).collect::<Vec<_>>());
    assert_eq!(again.attempt(), 2);
    // Reports of the first batch are ignored now.
    assert!(!state.mark(&first, 9, false));
    let late = state.finish(&first, BatchOutcome::Done, true, at(1_000));
    assert_eq!(late, BatchVerdict::Dropped);
}

#[test]
fn a_poison_record_is_isolated_and_dead_lettered() {
    let mut state = state(RouteSettings {
        attempts_max: Some(2),
        dead_letter: Some("dead".into()),
        backoff: Duration::from_millis(0),
        ..route()
    });
    state.fetched(chunk(&[0, 1, 2]), at(0));
    let mut verdicts = Vec::new();
    let mut given = Vec::new();
    for step in 0..20 {
        for batch in advance(&mut state, at(step)) {
            given.push(offsets(&batch));
            let ending = if offsets(&batch).contains(&1) { failed() } else { BatchOutcome::Done };
            verdicts.push(state.finish(&batch, ending, true, at(step)));
        }
        if let Some(letter) = state.dead_letter_due(at(step)) {
            assert_eq!((letter.record().offset(), letter.attempts()), (1, 3));
            assert!(state.dead_letter_due(at(step)).is_none(), "sent once");
            assert!(advance(&mut state, at(step)).is_empty(), "it waits for the dead letter");
            state.dead_letter_ended(
                &stale_letter(letter.lane, letter.batch + 1),
                LetterEnd::Durable,
                at(step),
            );
            state.dead_letter_ended(&letter, LetterEnd::Durable, at(step));
        }
    }
    assert_eq!(given, [vec![0, 1, 2], vec![0, 1, 2], vec![0], vec![1], vec![2]]);
    assert!(matches!(verdicts[0], BatchVerdict::Retry { attempt: 2, .. }));
    assert!(matches!(verdicts[1], BatchVerdict::Isolated { .. }));
    assert_eq!(verdicts[3], BatchVerdict::DeadLetter { topic: "dead".into() });
    assert_eq!(state.head(), Some(3));
}

#[test]
fn a_dead_letter_that_is_not_durable_is_sent_again() {
    let dead_letter = Some("dead".into());
    let mut state = state(RouteSettings { attempts_max: Some(1), dead_letter, ..route() });
    state.fetched(chunk(&[0]), at(0));
    let batch = advance(&mut state, at(0)).remove(0);
    state.finish(&batch, failed(), true, at(0));
    let letter = state.dead_letter_due(at(0)).unwrap();
    state.dead_letter_ended(&letter, LetterEnd::Failed, at(0));
    assert!(state.dead_letter_due(at(0)).is_none() && state.head() == Some(0));
    assert!(state.next_ns().unwrap() >= 500 * MS);
    assert!(state.dead_letter_due(at(1_000)).is_some());
    state.dead_letter_ended(&letter, LetterEnd::Durable, at(1_000));
    assert_eq!(state.head(), Some(1));
}

#[test]
fn without_a_dead_letter_topic_a_record_is_retried_for_ever() {
    let mut state = state(RouteSettings {
        attempts_max: Some(1),
        backoff_max: Duration::from_millis(700),
        ..route()
    });
    state.fetched(chunk(&[0]), at(0));
    for attempt in 2..9 {
        let now = at(u64::from(attempt) * 1_000);
        let batch = advance(&mut state, now).remove(0);
        let verdict = state.finish(&batch, failed(), true, now);
        assert_eq!(verdict, BatchVerdict::Retry { in_ms: 700, attempt });
    }
}

#[test]
fn a_pause_and_a_seek_take_effect_when_the_batch_ends() {
    let mut state = state(route());
    state.fetched(chunk(&(0..20).collect::<Vec<_>>()), at(0));
    let batch = advance(&mut state, at(0)).remove(0);
    batch.pause(Duration::from_millis(50));
    batch.seek(Position::Offset(5));
    state.finish(&batch, BatchOutcome::Done, true, at(0));
    // A fetch was in flight.
    state.fetched(chunk(&(20..30).collect::<Vec<_>>()), at(0));
    assert!(advance(&mut state, at(0)).is_empty() && state.fetch_limits().is_none());
    assert_eq!(state.seek_due(at(0)), Some(Position::Offset(5)));
    assert_eq!(state.take_commit().map(|commit| commit.offset), Some(10));
    state.seek_done();
    assert_eq!(state.next_ns(), Some(50 * MS));
    state.fetched(chunk(&[5, 6]), at(0));
    assert!(advance(&mut state, at(49)).is_empty());
    assert_eq!(offsets(&advance(&mut state, at(50))[0]), [5, 6]);
}

#[test]
fn records_wait_expire_and_are_throttled() {
    let mut state = state(RouteSettings {
        delay: Duration::from_millis(100),
        expires: Some(Duration::from_millis(1_000)),
        throttle: Some(Throttle { records: 2, per: Duration::from_millis(100) }),
        ..route()
    });
    state.fetched(chunk(&[0, 1, 2]), at(0));
    assert!(advance(&mut state, at(0)).is_empty());
    assert_eq!(state.next_ns(), Some(100 * MS));
    let batch = advance(&mut state, at(100)).remove(0);
    assert_eq!(offsets(&batch), [0, 1]);
    state.finish(&batch, BatchOutcome::Done, true, at(100));
    assert!(advance(&mut state, at(100)).is_empty());
    assert_eq!(state.next_ns(), Some(150 * MS));
    // The last record has expired.
    assert!(advance(&mut state, at(1_101)).is_empty());
    assert_eq!((state.head(), state.is_dirty()), (Some(3), true));
    assert_eq!(state.route.counters.read().expired, 1);
}

#[test]
fn records_done_before_the_assignment_are_skipped() {
    let mut tracker = Tracker::new(Some(0));
    tracker.fetched(0, 10);
    tracker.done(&[(2, 4), (7, 8)]);
    let assigned = assigned(Some(0), &tracker.metadata());
    let mut state =
        PartitionState::new(&route_of(route(), 2), &assigned, 1, at(0), Rng::with_seed(1));
    state.fetched(chunk(&(0..12).collect::<Vec<_>>()), at(0));
    let mut given = Vec::new();
    while let Some(batch) = advance(&mut state, at(0)).pop() {
        given.extend(offsets(&batch));
        state.finish(&batch, BatchOutcome::Done, true, at(0));
    }
    assert_eq!(given, [0, 1, 4, 5, 6, 8, 9, 10, 11]);
    assert_eq!(state.head(), Some(12));
}

#[test]
fn a_commit_keeps_records_that_were_done_before_and_are_not_fetched_again_yet() {
    let mut tracker = Tracker::new(Some(0));
    tracker.fetched(0, 10);
    tracker.done(&[(2, 4), (7, 8)]);
    let assigned = assigned(Some(0), &tracker.metadata());
    for (fetched, offset, done) in [(1, 1, vec![(2, 4), (7, 8)]), (2, 4, vec![(7, 8)])] {
        let route = route_of(route(), 2);
        let mut state = PartitionState::new(&route, &assigned, 1, at(0), Rng::with_seed(1));
        state.fetched(chunk(&(0..fetched).collect::<Vec<_>>()), at(0));
        let batch = advance(&mut state, at(0)).remove(0);
        state.finish(&batch, BatchOutcome::Done, true, at(0));
        let commit = state.take_commit().unwrap();
        assert_eq!(
            (commit.offset, metadata::decode(offset, &commit.metadata)),
            (offset, done.into())
        );
    }
}

#[test]
fn a_mark_with_manual_offsets_includes_earlier_batches() {
    let mut state = state(RouteSettings { manual: true, ..route() });
    state.fetched(chunk(&(0..20).collect::<Vec<_>>()), at(0));
    let first = advance(&mut state, at(0)).remove(0);
    state.finish(&first, BatchOutcome::Done, true, at(0));
    assert!(!state.is_dirty());
    let second = advance(&mut state, at(0)).remove(0);
    assert!(state.mark(&second, 5, false));
    assert_eq!(state.head(), Some(6));
    state.mark(&second, 14, false);
    state.finish(&second, BatchOutcome::Done, true, at(0));
    assert_eq!(state.head(), Some(15));
}

/// A model of the log and of user code.
struct Model {
    random: Rng,
    state: PartitionState,
    now: u64,
    /// All offsets, with gaps.
    records: Vec<i64>,
    fetched: usize,
    out: BTreeMap<usize, Batch>,
    stale: Vec<Batch>,
    /// Done by user code, marks included, or dead-lettered, and not dropped.
    done: BTreeSet<i64>,
    poison: BTreeSet<i64>,
    dead: BTreeSet<i64>,
    lane_of: BTreeMap<i64, usize>,
}

impl Model {
    fn new(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed * 104_729);
        let lanes = 1 + random.u64(..4) as usize;
        let settings = RouteSettings {
            batch: 1 + random.u64(..12) as usize,
            concurrency: lanes,
            order: if lanes > 1 { RecordOrder::Key } else { RecordOrder::Partition },
            attempts_max: Some(1 + random.u64(..3) as u32),
            dead_letter: Some("dead".into()),
            backoff: Duration::from_millis(5),
            backoff_max: Duration::from_millis(20),
            delay: Duration::from_millis(random.u64(..2) * 10),
            throttle: (random.u64(..3) == 0)
                .then_some(Throttle { records: 9, per: Duration::from_millis(3) }),
            ..RouteSettings::for_tests("events")
        };
        let ready = 1 + random.u64(..3) as usize;
        let mut offset = 0;
        let records: Vec<i64> = (0..random.u64(..200))
            .map(|_| {
                offset += 1 + if random.u64(..6) == 0 { random.u64(..4) as i64 } else { 0 };
                offset
            })
            .collect();
        let poison = records.iter().copied().filter(|_| random.u64(..25) == 0).collect();
        let (route, assigned) = (route_of(settings, ready), assigned(Some(0), ""));
        let state = PartitionState::new(&route, &assigned, 1, at(0), Rng::with_seed(seed));
        let (out, stale, now) = (BTreeMap::new(), Vec::new(), 0);
        let (done, dead, lane_of) = (BTreeSet::new(), BTreeSet::new(), BTreeMap::new());
        Self { random, state, now, records, fetched: 0, out, stale, done, poison, dead, lane_of }
    }

    fn fetch(&mut self, limits: Limits) {
        let most = limits.records.min(self.records.len() - self.fetched);
        if most > 0 {
            let count = 1 + self.random.u64(..most as u64) as usize;
            self.state
                .fetched(chunk(&self.records[self.fetched..self.fetched + count]), at(self.now));
            self.fetched += count;
        }
    }

    fn take(&mut self) {
        for batch in advance(&mut self.state, at(self.now)) {
            let own = offsets(&batch);
            assert!(!own.is_empty() && own.windows(2).all(|pair| pair[0] < pair[1]));
            for offset in &own {
                assert!(!self.done.contains(offset), "{offset} was done and is handed out again");
                let lane = *self.lane_of.entry(*offset).or_insert(batch.lane);
                assert_eq!(lane, batch.lane, "{offset} changed its lane");
                // Order of a key: all before it have been done.
                let key = offset % 7;
                let before = self.records.iter().take_while(|other| *other < offset);
                let mut before = before.filter(|other| *other % 7 == key && !own.contains(other));
                assert!(before.all(|other| self.done.contains(other)), "{offset} came too early");
            }
            let before = self.out.insert(batch.lane, batch);
            assert!(before.is_none(), "two batches of a lane");
        }
    }

    fn step(&mut self) {
        self.now += self.random.u64(..4);
        if let Some(limits) = self.state.fetch_limits() {
            self.fetch(limits);
        }
        self.take();
        if let Some(letter) = self.state.dead_letter_due(at(self.now)) {
            let durable = self.random.u64(..3) > 0;
            let end = if durable { LetterEnd::Durable } else { LetterEnd::Failed };
            self.state.dead_letter_ended(&letter, end, at(self.now));
            if durable {
                self.done.insert(letter.record().offset());
                self.dead.insert(letter.record().offset());
            }
        }
        let lanes: Vec<usize> = self.out.keys().copied().collect();
        for lane in lanes {
            if self.random.u64(..2) == 0 {
                self.end(lane);
            }
        }
        self.send_stale_reports();
        self.check();
    }

    fn end(&mut self, lane: usize) {
        let batch = self.out.remove(&lane).unwrap();
        let own = offsets(&batch);
        let bad = own.iter().position(|offset| self.poison.contains(offset));
        let now = at(self.now);
        match self.random.u64(..5) {
            0 => {
                self.state.finish(&batch, BatchOutcome::Abandoned, true, now);
            }
            1 => {
                self.state.refused(&batch);
            }
            2 if bad.is_some_and(|bad| bad > 0) => {
                let last = self.random.u64(..(bad.unwrap_or(0) as u64).max(1)) as usize;
                assert!(self.state.mark(&batch, own[last], false));
                self.done.extend(&own[..=last]);
                self.state.finish(&batch, failed(), true, now);
            }
            _ if bad.is_some() => {
                batch.pause(Duration::from_millis(3));
                self.state.finish(&batch, failed(), true, now);
            }
            _ => {
                self.done.extend(&own);
                let verdict = self.state.finish(&batch, BatchOutcome::Done, true, now);
                assert_eq!(verdict, BatchVerdict::Done);
            }
        }
        self.stale.push(batch);
    }

    fn send_stale_reports(&mut self) {
        if self.stale.is_empty() {
            return;
        }
        let which = self.random.u64(..(self.stale.len() as u64).max(1)) as usize;
        let batch = &self.stale[which];
        let now = at(self.now);
        assert!(!self.state.mark(batch, i64::MAX, false));
        for outcome in [BatchOutcome::Done, BatchOutcome::Abandoned] {
            assert_eq!(self.state.finish(batch, outcome, true, now), BatchVerdict::Dropped);
        }
        self.state.dead_letter_ended(&stale_letter(batch.lane, batch.id), LetterEnd::Durable, now);
    }

    fn first_undone(&self) -> Option<i64> {
        self.records[..self.fetched].iter().copied().find(|offset| !self.done.contains(offset))
    }

    fn check(&mut self) {
        let head = self.state.head().unwrap();
        let first = self.first_undone();
        let end = self.records[..self.fetched].last().map_or(0, |last| last + 1);
        assert_eq!(head, first.unwrap_or(end));
        if let Some(commit) = self.state.take_commit() {
            assert!(commit.metadata.len() <= 4_096);
            for range in metadata::decode(commit.offset, &commit.metadata) {
                let inside =
                    self.records.iter().filter(|offset| (range.0..range.1).contains(offset));
                inside.for_each(|offset| assert!(self.done.contains(offset)));
            }
        }
    }
}

#[test]
fn every_record_is_done_once_and_in_its_order() {
    for seed in 1..200 {
        let mut model = Model::new(seed);
        let mut steps = 0;
        while model.done.len() < model.records.len() {
            model.step();
            steps += 1;
            assert!(steps < 100_000, "seed {seed} does not end");
        }
        assert!(model.dead.is_subset(&model.poison), "seed {seed}");
        assert_eq!(model.dead, model.poison, "seed {seed}");
        assert!(model.state.is_drained());
    }
}

/// At a random moment the partition is revoked or lost.
#[test]
fn nothing_counts_after_a_revocation() {
    for seed in 1..200 {
        let mut model = Model::new(seed);
        for _ in 0..model.random.u64(..60) {
            model.step();
        }
        let lost = seed % 2 == 0;
        if lost {
            model.state.lose();
            assert_eq!(model.state.take_commit(), None);
        } else {
            model.state.drain(BatchKind::Revoked);
            model.state.fetched(chunk(&[1_000_000]), at(0));
            for (lane, batch) in std::mem::take(&mut model.out) {
                if model.random.u64(..2) == 0 {
                    let now = at(model.now);
                    let verdict = model.state.finish(&batch, BatchOutcome::Done, true, now);
                    assert_eq!(verdict, BatchVerdict::Done);
                    model.done.extend(offsets(&batch));
                } else {
                    model.out.insert(lane, batch);
                }
            }
            if let Some(commit) = model.state.take_last_commit() {
                assert!(model.first_undone().is_none_or(|first| commit.offset <= first));
            }
        }
        assert!(model.state.fetch_limits().is_none());
        assert!(model.state.dead_letter_due(at(model.now)).is_none());
        // The notice comes once, after the last batch.
        let mut notices = BTreeSet::new();
        for _ in 0..3 {
            for batch in advance(&mut model.state, at(model.now)) {
                assert_eq!(batch.kind(), BatchKind::Revoked);
                assert!(!model.out.contains_key(&batch.lane) && notices.insert(batch.lane));
                let end = model.state.finish(&batch, BatchOutcome::Done, true, at(model.now));
                assert_eq!(end, BatchVerdict::Done);
            }
            for (_, batch) in std::mem::take(&mut model.out) {
                assert!(!model.state.mark(&batch, i64::MAX, false));
                let now = at(model.now);
                let verdict = model.state.finish(&batch, BatchOutcome::Done, true, now);
                assert_eq!(verdict, BatchVerdict::Dropped);
            }
        }
        assert!(model.state.is_over() && model.state.take_commit().is_none());
    }
}

#[test]
fn a_stuck_lane_stops_fetching_at_the_limits() {
    let settings = RouteSettings { concurrency: 2, order: RecordOrder::Key, ..route() };
    let mut state = state(settings);
    let mut next = 0;
    let mut stuck = None;
    for _ in 0..1_000 {
        if let Some(limits) = state.fetch_limits() {
            let end = next + limits.records as i64;
            state.fetched(chunk(&(next..end).collect::<Vec<_>>()), at(0));
            next = end;
        }
        for batch in advance(&mut state, at(0)) {
            if *stuck.get_or_insert(batch.lane) != batch.lane {
                state.finish(&batch, BatchOutcome::Done, true, at(0));
            }
        }
    }
    assert!(state.fetch_limits().is_none() && next < 200, "{next}");
    assert!(state.head().unwrap() < 10);
}
