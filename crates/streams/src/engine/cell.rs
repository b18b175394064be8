//! One assigned partition: its life under a lock, and what follows from it.
//!
//! Ruby's threads call in here when a turn ends. They hold the lock for a
//! short time, do no IO, and give the partition's next turn themselves.

use std::sync::atomic::{AtomicI64, AtomicU8, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, MutexGuard};

use super::ending::{Ending, Kind, Verdict};
use super::group::{Group, Route};
use super::life::{Give, Letter, Life, Now, Promise};
use super::stats::PartitionStats;
use super::turn::{Parts, Turn};
use crate::log::{self, Assignment, Commit, ErrorKind, Limits, LogError, Partition, Position};
use crate::record::{Chunk, OwnedRecord};
use chaton_core::random::Random;

const NOT: u8 = 0;
const QUEUED: u8 = 1;
const FIRST: u8 = 2;

/// Whether a partition has waited for room in the sink.
pub(super) enum Waited {
    /// It has not.
    Not,
    /// It does.
    Queued,
    /// It was the first of those, and has tried.
    First,
}

struct Book {
    life: Life,
    /// The turn that each strand has out.
    out: Vec<Weak<Turn>>,
    /// The last fetch found nothing; the log tells when there is more.
    dry: bool,
}

/// An assigned partition.
pub(super) struct Cell {
    partition: Partition,
    generation: u64,
    group: Arc<Group>,
    route: Arc<Route>,
    book: Mutex<Book>,
    end: AtomicI64,
    /// Whether it waits for room in the sink.
    waits: AtomicU8,
}

/// What a group's thread is to do for a partition.
#[derive(Default)]
pub(super) struct Errands {
    pub letters: Vec<Arc<Letter>>,
    pub seek: Option<Position>,
    pub fetch: Option<Limits>,
    pub dirty: bool,
    pub next_ns: Option<u64>,
    pub over: bool,
    /// There may be records that no fetch has come to.
    pub behind: bool,
}

impl Cell {
    pub fn new(
        group: &Arc<Group>,
        route: &Arc<Route>,
        assigned: &Assignment,
        generation: u64,
    ) -> Arc<Self> {
        let now = Now::read();
        let life = Life::new(route.rules.clone(), assigned, now, Random::new());
        let out = (0..route.rules.settings.strands()).map(|_| Weak::new()).collect();
        Arc::new(Self {
            partition: assigned.partition.clone(),
            generation,
            group: group.clone(),
            route: route.clone(),
            book: Mutex::new(Book { life, out, dry: false }),
            end: AtomicI64::new(-1),
            waits: AtomicU8::new(NOT),
        })
    }

    pub fn partition(&self) -> &Partition {
        &self.partition
    }

    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Its route's number.
    pub fn route(&self) -> usize {
        self.route.rules.route
    }

    pub fn settings(&self) -> &super::settings::RouteSettings {
        &self.route.rules.settings
    }

    pub fn group(&self) -> &Arc<Group> {
        &self.group
    }

    pub fn route_parts(&self) -> &Arc<Route> {
        &self.route
    }

    pub fn end_offset(&self) -> Option<i64> {
        Some(self.end.load(Ordering::Relaxed)).filter(|end| *end >= 0)
    }

    pub fn set_end(&self, end: Option<i64>) {
        self.end.store(end.unwrap_or(-1), Ordering::Relaxed);
    }

    // For the threads that run turns.

    pub fn finish(self: &Arc<Self>, turn: &Turn, ending: Ending) -> Verdict {
        let now = Now::read();
        let wishes = turn.wishes();
        // Those that found no room come before what this one has next.
        self.group.shared.readmit();
        let mut book = self.book.lock();
        let verdict = book.life.finish(turn.strand(), turn.id(), ending, wishes, now);
        self.go_on(book, now);
        verdict
    }

    /// May be called by whoever sheds it: the group's thread gives it again.
    pub fn abandon(&self, turn: &Turn, started: bool) {
        self.book.lock().life.abandon(turn.strand(), turn.id(), started, Now::read());
        self.group.notify();
        self.group.shared.ended();
    }

    pub fn mark(&self, turn: &Turn, offset: i64, alone: bool) {
        let mut book = self.book.lock();
        let counts = book.life.mark(turn.strand(), turn.id(), offset, alone);
        drop(book);
        if counts && self.group.oversleeps(self.group.commit_at_ns()) {
            self.group.notify();
        }
    }

    pub fn transact(
        &self,
        turn: &Turn,
        records: &[OwnedRecord],
        through: Option<i64>,
    ) -> log::Result<()> {
        if !turn.is_open() {
            let what = format!("{}: its turn has ended", turn.describe());
            return Err(LogError::new(ErrorKind::Fenced, what));
        }
        let (strand, id) = (turn.strand(), turn.id());
        let group = &self.group;
        // One at a time: the commits of one must not overtake the other's.
        let mut transactor = self.route.transactors.take();
        let (promise, version) = self.book.lock().life.pledge(strand, id, through)?;
        let commit = self.commit_of(promise.clone());
        transactor.transact(group, &self.settings().topic, records, &[commit])?;
        group.shared.counters.transactions.fetch_add(1, Ordering::Relaxed);
        self.book.lock().life.redeem(strand, id, through, (&promise, version));
        drop(transactor);
        if self.book.lock().life.is_dirty() {
            group.notify();
        }
        Ok(())
    }

    // For the group's thread.

    /// Begins what is due; what else is to be done is for the caller.
    pub fn tend(self: &Arc<Self>, now: Now, woken: bool) -> Errands {
        let mut book = self.book.lock();
        book.dry &= !woken;
        let turns = self.begin(&mut book, now);
        let behind = !book.dry;
        let life = &mut book.life;
        let letters = std::iter::from_fn(|| life.letter_due(now)).collect();
        let errands = Errands {
            letters,
            seek: life.seek_due(now),
            dirty: life.is_dirty(),
            next_ns: life.next_ns(),
            over: life.is_over(),
            behind,
            fetch: life.wants().filter(|_| behind),
        };
        drop(book);
        self.give(turns);
        errands
    }

    /// These came; `None`: there are none now. Answers the position that the
    /// log went back from, if it did.
    pub fn fetched(self: &Arc<Self>, chunk: Option<Chunk>) -> Option<i64> {
        let mut book = self.book.lock();
        let Some(chunk) = chunk else {
            book.dry = true;
            return None;
        };
        let now = Now::read();
        let back_from = book.life.fetched(chunk, now);
        let turns = self.begin(&mut book, now);
        drop(book);
        self.give(turns);
        back_from
    }

    /// It waits for room from now on; answers where it has waited before.
    pub fn wait_for_room(&self) -> Waited {
        match self.waits.swap(QUEUED, Ordering::SeqCst) {
            QUEUED => Waited::Queued,
            FIRST => Waited::First,
            _ => Waited::Not,
        }
    }

    /// There may be room now; false: there is none.
    pub fn try_again(self: &Arc<Self>) -> bool {
        self.waits.store(FIRST, Ordering::SeqCst);
        self.kick();
        let tried = self.waits.compare_exchange(FIRST, NOT, Ordering::SeqCst, Ordering::SeqCst);
        tried.is_ok()
    }

    /// Begins what may begin.
    pub fn kick(self: &Arc<Self>) {
        let now = Now::read();
        let book = self.book.lock();
        self.go_on(book, now);
    }

    pub fn end_reached(self: &Arc<Self>) {
        self.book.lock().life.end_reached();
    }

    pub fn letter_ended(&self, strand: usize, id: u64, durable: bool) {
        self.book.lock().life.letter_ended(strand, id, durable, Now::read());
        self.group.notify();
        self.group.shared.ended();
    }

    pub fn sought(&self) {
        let mut book = self.book.lock();
        book.life.sought();
        book.dry = false;
    }

    pub fn seek_again(&self, at_ns: u64) {
        self.book.lock().life.seek_again(at_ns);
    }

    /// See [`Life::drain`]. Turns that no thread has taken are dropped.
    pub fn drain(&self, notice: Kind) {
        let mut book = self.book.lock();
        book.life.drain(notice);
        let out: Vec<_> = book.out.iter().filter_map(Weak::upgrade).collect();
        drop(book);
        for turn in out.iter().filter(|turn| turn.kind() == Kind::Records) {
            turn.drop_untaken();
        }
    }

    /// The last commit; from here on nothing counts.
    pub fn last_commit(&self) -> Option<Commit> {
        let mut book = self.book.lock();
        let promise = book.life.last_promise();
        book.revoke();
        drop(book);
        promise.map(|promise| self.commit_of(promise))
    }

    /// Others have it: nothing counts, and nothing can be committed.
    pub fn lose(&self) {
        let mut book = self.book.lock();
        book.life.lose();
        book.revoke();
    }

    /// What is out does not count from here on; what has ended does. Answers
    /// how many turns were running.
    pub fn give_up(&self) -> usize {
        let mut book = self.book.lock();
        book.life.give_up(None);
        book.revoke()
    }

    pub fn commit(&self) -> Option<Commit> {
        let promise = self.book.lock().life.promise();
        promise.map(|promise| self.commit_of(promise))
    }

    pub fn unsaid(&self) {
        self.book.lock().life.unsaid();
    }

    pub fn is_drained(&self) -> bool {
        self.book.lock().life.is_drained()
    }

    pub fn is_ours(&self) -> bool {
        self.book.lock().life.is_ours()
    }

    pub fn is_over(&self) -> bool {
        self.book.lock().life.is_over()
    }

    pub fn is_idle(&self) -> bool {
        self.book.lock().life.is_idle()
    }

    pub fn picture(&self, now: Now) -> PartitionStats {
        let book = self.book.lock();
        let end = self.end.load(Ordering::Relaxed);
        let lag = book.life.head().filter(|_| end >= 0).map_or(-1, |head| (end - head).max(0));
        PartitionStats {
            topic: self.partition.topic.to_string(),
            partition: self.partition.number,
            end,
            lag,
            ..book.life.picture(now)
        }
    }

    /// Begins what may begin, lets go of the lock, and wakes who is needed.
    fn go_on(self: &Arc<Self>, mut book: MutexGuard<'_, Book>, now: Now) {
        let turns = self.begin(&mut book, now);
        let ring = self.needs_thread(&book);
        drop(book);
        self.give(turns);
        if ring {
            self.group.notify();
        }
        self.group.shared.ended();
    }

    /// Whether the group's thread, if it waits, has something to do now.
    fn needs_thread(&self, book: &Book) -> bool {
        let (life, group) = (&book.life, &self.group);
        let hungry = !book.dry && life.wants().is_some();
        let commit = life.is_dirty().then(|| group.commit_at_ns());
        let first = [life.next_ns(), commit].into_iter().flatten().min();
        hungry || life.is_ending() || first.is_some_and(|at_ns| group.oversleeps(at_ns))
    }

    fn begin(self: &Arc<Self>, book: &mut Book, now: Now) -> Vec<Arc<Turn>> {
        if self.waits.load(Ordering::SeqCst) == QUEUED {
            return Vec::new();
        }
        let mut gives = Vec::new();
        book.life.advance(now, &mut gives);
        gives.into_iter().map(|give| self.turn(book, give)).collect()
    }

    fn turn(self: &Arc<Self>, book: &mut Book, give: Give) -> Arc<Turn> {
        let strand = give.strand;
        let turn = Turn::new(self, Parts::new(give, &self.group.no_records));
        book.out[strand] = Arc::downgrade(&turn);
        turn
    }

    fn give(self: &Arc<Self>, turns: Vec<Arc<Turn>>) {
        if turns.is_empty() {
            return;
        }
        let shared = &self.group.shared;
        for turn in turns {
            let behind = shared.is_crowded() && self.waits.load(Ordering::SeqCst) != FIRST;
            let submitted = if behind { Err(turn) } else { shared.sink.submit(turn) };
            if let Err(turn) = submitted {
                self.book.lock().life.refused(turn.strand(), turn.id());
                shared.refuse(self);
            }
        }
        shared.sink.flush();
    }

    fn commit_of(&self, promise: Promise) -> Commit {
        Commit {
            topic: self.partition.topic.to_string(),
            partition: self.partition.number,
            offset: promise.offset,
            metadata: promise.metadata,
        }
    }
}

impl Book {
    /// What is out learns that it does not count; answers how many were
    /// running.
    fn revoke(&self) -> usize {
        let out = self.out.iter().filter_map(Weak::upgrade);
        out.filter(|turn| turn.kind() == Kind::Records && turn.is_open())
            .map(|turn| {
                turn.revoke();
                usize::from(turn.is_running())
            })
            .sum()
    }
}
