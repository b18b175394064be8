//! The life of a partition under random sequences of events, those of earlier
//! turns and generations among them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::super::ending::{Ending, Verdict};
use super::super::settings::{Order, Throttle};
use super::super::turn::Wishes;
use super::strand::Give;
use super::*;
use crate::log::{Limits, Partition};
use crate::record::{Chunk, ChunkBuilder};

mod edges;

const MS: u64 = 1_000_000;

fn rules(settings: RouteSettings, ready_batches: usize) -> Arc<Rules> {
    Arc::new(Rules {
        route: 0,
        settings,
        ready_batches,
        counters: Arc::default(),
        ids: Arc::default(),
    })
}

fn assigned(committed: Option<i64>, metadata: &str) -> Assignment {
    let partition = Partition { topic: "events".into(), number: 0 };
    Assignment { partition, committed, metadata: metadata.into() }
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

fn failed() -> Ending {
    Ending::Failed { class: "E".into(), message: "m".into() }
}

fn offsets(give: &Give) -> Vec<i64> {
    let Some(batch) = &give.batch else { return vec![] };
    batch.picks.iter().map(|pick| batch.chunk.entries()[*pick as usize].offset).collect()
}

fn advance(life: &mut Life, now: Now) -> Vec<Give> {
    let mut gives = Vec::new();
    life.advance(now, &mut gives);
    gives
}

fn life(settings: RouteSettings) -> Life {
    Life::new(rules(settings, 2), &assigned(Some(0), ""), at(0), Random::seeded(3))
}

fn route() -> RouteSettings {
    RouteSettings { batch: 10, ..RouteSettings::new("events") }
}

#[test]
fn what_was_not_marked_is_given_again_after_a_pause() {
    let mut life = life(route());
    assert_eq!(life.wants().map(|limits| limits.records), Some(20));
    life.fetched(chunk(&(0..20).collect::<Vec<_>>()), at(0));
    let first = advance(&mut life, at(0)).remove(0);
    assert_eq!(offsets(&first), (0..10).collect::<Vec<_>>());
    assert!(advance(&mut life, at(0)).is_empty(), "one turn at a time");
    assert!(life.mark(0, first.id, 3, false));
    assert_eq!(life.promise().map(|promise| promise.offset), Some(4));
    let verdict = life.finish(0, first.id, failed(), Wishes::default(), at(0));
    assert!(matches!(verdict, Verdict::Retry { attempt: 2, .. }), "{verdict:?}");
    assert!(advance(&mut life, at(100)).is_empty());
    let until = life.next_ns().unwrap();
    assert!((500 * MS..=1_000 * MS).contains(&until));
    let again = advance(&mut life, at(1_000)).remove(0);
    assert_eq!(offsets(&again), (4..10).collect::<Vec<_>>());
    assert_eq!(again.batch.as_ref().unwrap().attempt, 2);
    // What the first turn says now is of another time.
    assert!(!life.mark(0, first.id, 9, false));
    let late = life.finish(0, first.id, Ending::Done, Wishes::default(), at(1_000));
    assert_eq!(late, Verdict::Dropped);
}

#[test]
fn a_poison_record_goes_alone_to_the_dead_letters() {
    let mut life = life(RouteSettings {
        attempts_max: Some(2),
        dead_letter: Some("dead".into()),
        backoff_ms: 0,
        ..route()
    });
    life.fetched(chunk(&[0, 1, 2]), at(0));
    let mut verdicts = Vec::new();
    let mut given = Vec::new();
    for step in 0..20 {
        for give in advance(&mut life, at(step)) {
            given.push(offsets(&give));
            let ending = if offsets(&give).contains(&1) { failed() } else { Ending::Done };
            verdicts.push(life.finish(give.strand, give.id, ending, Wishes::default(), at(step)));
        }
        if let Some(letter) = life.letter_due(at(step)) {
            assert_eq!((letter.record().offset(), letter.attempts), (1, 3));
            assert!(life.letter_due(at(step)).is_none(), "sent once");
            assert!(advance(&mut life, at(step)).is_empty(), "it waits for the letter");
            life.letter_ended(letter.strand, letter.id + 1, true, at(step));
            life.letter_ended(letter.strand, letter.id, true, at(step));
        }
    }
    assert_eq!(given, [vec![0, 1, 2], vec![0, 1, 2], vec![0], vec![1], vec![2]]);
    assert!(matches!(verdicts[0], Verdict::Retry { attempt: 2, .. }));
    assert!(matches!(verdicts[1], Verdict::Isolated { .. }));
    assert_eq!(verdicts[3], Verdict::DeadLetter { topic: "dead".into() });
    assert_eq!(life.head(), Some(3));
}

#[test]
fn a_letter_that_is_not_durable_is_sent_again() {
    let dead_letter = Some("dead".into());
    let mut life = life(RouteSettings { attempts_max: Some(1), dead_letter, ..route() });
    life.fetched(chunk(&[0]), at(0));
    let give = advance(&mut life, at(0)).remove(0);
    life.finish(0, give.id, failed(), Wishes::default(), at(0));
    let letter = life.letter_due(at(0)).unwrap();
    life.letter_ended(0, letter.id, false, at(0));
    assert!(life.letter_due(at(0)).is_none() && life.head() == Some(0));
    assert!(life.next_ns().unwrap() >= 500 * MS);
    assert!(life.letter_due(at(1_000)).is_some());
    life.letter_ended(0, letter.id, true, at(1_000));
    assert_eq!(life.head(), Some(1));
}

#[test]
fn without_a_dead_letter_topic_it_is_tried_for_ever() {
    let mut life = life(RouteSettings { attempts_max: Some(1), backoff_max_ms: 700, ..route() });
    life.fetched(chunk(&[0]), at(0));
    for attempt in 2..9 {
        let now = at(u64::from(attempt) * 1_000);
        let give = advance(&mut life, now).remove(0);
        let verdict = life.finish(0, give.id, failed(), Wishes::default(), now);
        assert_eq!(verdict, Verdict::Retry { in_ms: 700, attempt });
    }
}

#[test]
fn a_pause_and_a_seek_take_effect_when_the_turn_ends() {
    let mut life = life(route());
    life.fetched(chunk(&(0..20).collect::<Vec<_>>()), at(0));
    let give = advance(&mut life, at(0)).remove(0);
    let wishes = Wishes { pause: Some(Duration::from_millis(50)), seek: Some(Position::Offset(5)) };
    life.finish(0, give.id, Ending::Done, wishes, at(0));
    // A fetch was under way.
    life.fetched(chunk(&(20..30).collect::<Vec<_>>()), at(0));
    assert!(advance(&mut life, at(0)).is_empty() && life.wants().is_none());
    assert_eq!(life.seek_due(at(0)), Some(Position::Offset(5)));
    assert_eq!(life.promise().map(|promise| promise.offset), Some(10));
    life.sought();
    assert_eq!(life.next_ns(), Some(50 * MS));
    life.fetched(chunk(&[5, 6]), at(0));
    assert!(advance(&mut life, at(49)).is_empty());
    assert_eq!(offsets(&advance(&mut life, at(50))[0]), [5, 6]);
}

#[test]
fn records_wait_expire_and_are_throttled() {
    let mut life = life(RouteSettings {
        delay_ms: 100,
        expires_ms: 1_000,
        throttle: Some(Throttle { records: 2, per_ms: 100 }),
        ..route()
    });
    life.fetched(chunk(&[0, 1, 2]), at(0));
    assert!(advance(&mut life, at(0)).is_empty());
    assert_eq!(life.next_ns(), Some(100 * MS));
    let give = advance(&mut life, at(100)).remove(0);
    assert_eq!(offsets(&give), [0, 1]);
    life.finish(0, give.id, Ending::Done, Wishes::default(), at(100));
    assert!(advance(&mut life, at(100)).is_empty());
    assert_eq!(life.next_ns(), Some(150 * MS));
    // Nobody came in time.
    assert!(advance(&mut life, at(1_101)).is_empty());
    assert_eq!((life.head(), life.is_dirty()), (Some(3), true));
    assert_eq!(life.rules.counters.read().expired, 1);
}

#[test]
fn what_was_done_before_is_not_given_again() {
    let mut tracker = Tracker::new(Some(0));
    tracker.fetched(0, 10);
    tracker.done(&[(2, 4), (7, 8)]);
    let assigned = assigned(Some(0), &tracker.metadata());
    let mut life = Life::new(rules(route(), 2), &assigned, at(0), Random::seeded(1));
    life.fetched(chunk(&(0..12).collect::<Vec<_>>()), at(0));
    let mut given = Vec::new();
    while let Some(give) = advance(&mut life, at(0)).pop() {
        given.extend(offsets(&give));
        life.finish(0, give.id, Ending::Done, Wishes::default(), at(0));
    }
    assert_eq!(given, [0, 1, 4, 5, 6, 8, 9, 10, 11]);
    assert_eq!(life.head(), Some(12));
}

#[test]
fn a_mark_in_manual_mode_reaches_back_over_earlier_turns() {
    let mut life = life(RouteSettings { manual: true, ..route() });
    life.fetched(chunk(&(0..20).collect::<Vec<_>>()), at(0));
    let first = advance(&mut life, at(0)).remove(0);
    life.finish(0, first.id, Ending::Done, Wishes::default(), at(0));
    assert!(!life.is_dirty());
    let second = advance(&mut life, at(0)).remove(0);
    assert!(life.mark(0, second.id, 5, false));
    assert_eq!(life.head(), Some(6));
    life.mark(0, second.id, 14, false);
    life.finish(0, second.id, Ending::Done, Wishes::default(), at(0));
    assert_eq!(life.head(), Some(15));
}

/// What a model of the log and of user code knows.
struct World {
    random: Random,
    life: Life,
    now: u64,
    /// All offsets, with gaps.
    records: Vec<i64>,
    fetched: usize,
    out: BTreeMap<usize, Give>,
    stale: Vec<(usize, u64)>,
    /// Done by user code, marks included, or dead-lettered, and not dropped.
    done: BTreeSet<i64>,
    poison: BTreeSet<i64>,
    dead: BTreeSet<i64>,
    strand_of: BTreeMap<i64, usize>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random::seeded(seed * 104_729);
        let strands = 1 + random.below(4) as usize;
        let settings = RouteSettings {
            batch: 1 + random.below(12) as usize,
            concurrency: strands,
            order: if strands > 1 { Order::Key } else { Order::Partition },
            attempts_max: Some(1 + random.below(3) as u32),
            dead_letter: Some("dead".into()),
            backoff_ms: 5,
            backoff_max_ms: 20,
            delay_ms: random.below(2) * 10,
            throttle: (random.below(3) == 0).then_some(Throttle { records: 9, per_ms: 3 }),
            ..RouteSettings::new("events")
        };
        let ready = 1 + random.below(3) as usize;
        let mut offset = 0;
        let records: Vec<i64> = (0..random.below(200))
            .map(|_| {
                offset += 1 + if random.below(6) == 0 { random.below(4) as i64 } else { 0 };
                offset
            })
            .collect();
        let poison = records.iter().copied().filter(|_| random.below(25) == 0).collect();
        let life =
            Life::new(rules(settings, ready), &assigned(Some(0), ""), at(0), Random::seeded(seed));
        let (out, stale, now) = (BTreeMap::new(), Vec::new(), 0);
        let (done, dead, strand_of) = (BTreeSet::new(), BTreeSet::new(), BTreeMap::new());
        Self { random, life, now, records, fetched: 0, out, stale, done, poison, dead, strand_of }
    }

    fn fetch(&mut self, limits: Limits) {
        let most = limits.records.min(self.records.len() - self.fetched);
        if most > 0 {
            let count = 1 + self.random.below(most as u64) as usize;
            self.life
                .fetched(chunk(&self.records[self.fetched..self.fetched + count]), at(self.now));
            self.fetched += count;
        }
    }

    fn take(&mut self) {
        for give in advance(&mut self.life, at(self.now)) {
            let own = offsets(&give);
            assert!(!own.is_empty() && own.windows(2).all(|pair| pair[0] < pair[1]));
            for offset in &own {
                assert!(!self.done.contains(offset), "{offset} was done and is given again");
                let strand = *self.strand_of.entry(*offset).or_insert(give.strand);
                assert_eq!(strand, give.strand, "{offset} changed its strand");
                // Order of a key: all before it have been done.
                let key = offset % 7;
                let before = self.records.iter().take_while(|other| *other < offset);
                let mut before = before.filter(|other| *other % 7 == key && !own.contains(other));
                assert!(before.all(|other| self.done.contains(other)), "{offset} came too early");
            }
            let before = self.out.insert(give.strand, give);
            assert!(before.is_none(), "two turns of a strand");
        }
    }

    fn step(&mut self) {
        self.now += self.random.below(4);
        if let Some(limits) = self.life.wants() {
            self.fetch(limits);
        }
        self.take();
        if let Some(letter) = self.life.letter_due(at(self.now)) {
            let durable = self.random.below(3) > 0;
            self.life.letter_ended(letter.strand, letter.id, durable, at(self.now));
            if durable {
                self.done.insert(letter.record().offset());
                self.dead.insert(letter.record().offset());
            }
        }
        let strands: Vec<usize> = self.out.keys().copied().collect();
        for strand in strands {
            if self.random.below(2) == 0 {
                self.end(strand);
            }
        }
        self.say_stale_things();
        self.check();
    }

    fn end(&mut self, strand: usize) {
        let give = self.out.remove(&strand).unwrap();
        let own = offsets(&give);
        let bad = own.iter().position(|offset| self.poison.contains(offset));
        let now = at(self.now);
        match self.random.below(5) {
            0 => {
                self.life.abandon(strand, give.id, true, now);
            }
            1 => {
                self.life.refused(strand, give.id);
            }
            2 if bad.is_some_and(|bad| bad > 0) => {
                let last = self.random.below(bad.unwrap_or(0) as u64) as usize;
                assert!(self.life.mark(strand, give.id, own[last], false));
                self.done.extend(&own[..=last]);
                self.life.finish(strand, give.id, failed(), Wishes::default(), now);
            }
            _ if bad.is_some() => {
                let wishes = Wishes { pause: Some(Duration::from_millis(3)), seek: None };
                self.life.finish(strand, give.id, failed(), wishes, now);
            }
            _ => {
                self.done.extend(&own);
                let verdict =
                    self.life.finish(strand, give.id, Ending::Done, Wishes::default(), now);
                assert_eq!(verdict, Verdict::Done);
            }
        }
        self.stale.push((strand, give.id));
    }

    fn say_stale_things(&mut self) {
        if self.stale.is_empty() {
            return;
        }
        let which = self.random.below(self.stale.len() as u64) as usize;
        let (strand, id) = self.stale[which];
        let now = at(self.now);
        assert!(!self.life.mark(strand, id, i64::MAX, false));
        assert_eq!(
            self.life.finish(strand, id, Ending::Done, Wishes::default(), now),
            Verdict::Dropped
        );
        self.life.abandon(strand, id, true, now);
        self.life.letter_ended(strand, id, true, now);
    }

    fn first_undone(&self) -> Option<i64> {
        self.records[..self.fetched].iter().copied().find(|offset| !self.done.contains(offset))
    }

    fn check(&mut self) {
        let head = self.life.head().unwrap();
        let first = self.first_undone();
        let end = self.records[..self.fetched].last().map_or(0, |last| last + 1);
        assert_eq!(head, first.unwrap_or(end));
        if let Some(promise) = self.life.promise() {
            assert!(promise.metadata.len() <= 4_096);
            for range in metadata::decode(promise.offset, &promise.metadata) {
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
        let mut world = World::new(seed);
        let mut steps = 0;
        while world.done.len() < world.records.len() {
            world.step();
            steps += 1;
            assert!(steps < 100_000, "seed {seed} does not end");
        }
        assert!(world.dead.is_subset(&world.poison), "seed {seed}");
        assert_eq!(world.dead, world.poison, "seed {seed}");
        assert!(world.life.is_drained());
    }
}

/// At any moment the partition is taken away, with or without a word.
#[test]
fn nothing_counts_once_it_is_gone() {
    for seed in 1..200 {
        let mut world = World::new(seed);
        for _ in 0..world.random.below(60) {
            world.step();
        }
        let lost = seed % 2 == 0;
        if lost {
            world.life.lose();
            assert_eq!(world.life.promise(), None);
        } else {
            world.life.drain(Kind::Revoked);
            world.life.fetched(chunk(&[1_000_000]), at(0));
            for (strand, give) in std::mem::take(&mut world.out) {
                if world.random.below(2) == 0 {
                    let (id, now) = (give.id, at(world.now));
                    let verdict =
                        world.life.finish(strand, id, Ending::Done, Wishes::default(), now);
                    assert_eq!(verdict, Verdict::Done);
                    world.done.extend(offsets(&give));
                } else {
                    world.out.insert(strand, give);
                }
            }
            if let Some(promise) = world.life.last_promise() {
                assert!(world.first_undone().is_none_or(|first| promise.offset <= first));
            }
        }
        assert!(world.life.wants().is_none());
        assert!(world.life.letter_due(at(world.now)).is_none());
        // The notice comes behind the last turn, and once.
        let mut notices = BTreeSet::new();
        for _ in 0..3 {
            for give in advance(&mut world.life, at(world.now)) {
                assert_eq!(give.kind, Kind::Revoked);
                assert!(!world.out.contains_key(&give.strand) && notices.insert(give.strand));
                let end = world.life.finish(
                    give.strand,
                    give.id,
                    Ending::Done,
                    Wishes::default(),
                    at(world.now),
                );
                assert_eq!(end, Verdict::Done);
            }
            for (strand, give) in std::mem::take(&mut world.out) {
                assert!(!world.life.mark(strand, give.id, i64::MAX, false));
                let (id, now) = (give.id, at(world.now));
                let verdict = world.life.finish(strand, id, Ending::Done, Wishes::default(), now);
                assert_eq!(verdict, Verdict::Dropped);
            }
        }
        assert!(world.life.is_over() && world.life.promise().is_none());
    }
}

#[test]
fn a_stuck_strand_holds_up_what_is_ready_within_its_bounds() {
    let settings = RouteSettings { concurrency: 2, order: Order::Key, ..route() };
    let mut life = life(settings);
    let mut next = 0;
    let mut stuck = None;
    for _ in 0..1_000 {
        if let Some(limits) = life.wants() {
            let end = next + limits.records as i64;
            life.fetched(chunk(&(next..end).collect::<Vec<_>>()), at(0));
            next = end;
        }
        for give in advance(&mut life, at(0)) {
            if *stuck.get_or_insert(give.strand) != give.strand {
                life.finish(give.strand, give.id, Ending::Done, Wishes::default(), at(0));
            }
        }
    }
    assert!(life.wants().is_none() && next < 200, "{next}");
    assert!(life.head().unwrap() < 10);
}
