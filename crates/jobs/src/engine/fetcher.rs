//! The fetcher: one thread that settles what has ended and claims what comes
//! next, both in one round trip, and routes what it claimed.

use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

use chaton_core::clock;

use super::backoff::Backoff;
use super::intake::{Intake, SUSPECT_WAIT};
use super::order::Order;
use super::shared::{Book, Shared};
use crate::outcome::Ack;
use crate::store::{ClaimReply, ClaimRequest, ClaimedJob, HeldLock, Result, Store, StoreError};
use chaton_core::random::Random;

/// Settles written in one round trip at most.
const SETTLES_MAX: usize = 2000;
/// Unstarted jobs go back when the oldest waited this many prefetch times (and
/// at least [`STALE_MIN`]): a long job holds them up, others may run them.
const STALE_PREFETCHES: u32 = 20;
/// The least of that.
const STALE_MIN: Duration = Duration::from_millis(100);

/// What the next round does.
struct Plan {
    settles: Vec<Ack>,
    unlocks: Vec<(String, String)>,
    queues: Vec<Arc<str>>,
    count: usize,
    first_ticket: u64,
}

/// The fetcher. [`Fetcher::round`] does one round without waiting, so that a
/// test can drive it step by step; [`Fetcher::run`] is the thread.
pub(super) struct Fetcher {
    shared: Arc<Shared>,
    store: Box<dyn Store>,
    order: Order,
    intake: Intake,
    backoff: Backoff,
    /// No call before this time (ns).
    retry_at_ns: u64,
    /// A call failed: what it claimed may be ours without our knowing.
    reconcile: bool,
    /// The engine ends, and the last try to write everything was begun.
    parting: bool,
    /// Smoothed round trip in ns.
    rtt_ns: f64,
    /// Since when jobs wait without one being started (ns).
    stuck_since_ns: u64,
    /// Jobs started when that was last looked at.
    starts_seen: u64,
    /// Jobs were given back because none was started, and none has been since.
    held_up: bool,
}

impl Fetcher {
    pub fn new(shared: &Arc<Shared>, store: Box<dyn Store>, random: Random) -> Self {
        let config = &shared.config;
        Self {
            order: Order::new(config.queues.clone(), config.mode, random),
            intake: Intake::new(shared),
            backoff: Backoff::new(config.retry_max),
            shared: shared.clone(),
            store,
            retry_at_ns: 0,
            reconcile: false,
            parting: false,
            rtt_ns: 0.0,
            stuck_since_ns: 0,
            starts_seen: 0,
            held_up: false,
        }
    }

    /// Works until the engine stops and everything is written (or the last
    /// try to write it failed).
    pub fn run(mut self) {
        loop {
            let worked = self.round();
            let book = self.shared.book.lock();
            if book.stopping && self.shared.is_idle(&book) {
                return;
            }
            if book.stopping && !self.parting {
                // Whatever failed before: the store may be back.
                self.parting = true;
                self.retry_at_ns = 0;
                continue;
            }
            if book.stopping && self.retry_at_ns > 0 {
                return;
            }
            if !worked {
                self.rest(book);
            }
        }
    }

    /// One round; false when there was nothing to do.
    pub fn round(&mut self) -> bool {
        if clock::now_ns() < self.retry_at_ns {
            return false;
        }
        self.give_back_if_stuck();
        self.intake.run_a_suspect();
        let plan = self.plan();
        let nothing = plan.settles.is_empty() && plan.unlocks.is_empty() && plan.count == 0;
        if nothing && !self.reconcile {
            return false;
        }
        let result = self.carry_out(&plan);
        self.conclude(plan, result);
        true
    }

    fn plan(&mut self) -> Plan {
        let target = self.target();
        let mut book = self.shared.book.lock();
        let preempted = std::mem::take(&mut book.preempt);
        if preempted {
            book.dry = false;
            drop(book);
            self.give_back();
            book = self.shared.book.lock();
        }
        self.reconcile |= std::mem::take(&mut book.reconcile);
        let unstarted = self.shared.unstarted.load(Ordering::Acquire);
        let low = target / 2;
        self.shared.low_water.store(low, Ordering::Relaxed);
        let may = !book.quiet
            && !book.stopping
            && !book.dry
            && book.suspects.is_empty()
            && book.alone.is_none()
            && self.shared.holds_lease();
        let count = if may && unstarted <= low { target.saturating_sub(unstarted) } else { 0 };
        let due = self.settles_are_due(&book);
        let settles = if count > 0 || due { take_some(&mut book.settles) } else { vec![] };
        book.settling = settles.len();
        let first_ticket = book.next_ticket;
        // Never used twice, even when the call fails half-way.
        book.next_ticket += count as u64;
        book.claiming += usize::from(count > 0);
        let unlocks = std::mem::take(&mut book.unlocks);
        drop(book);
        let queues = if count > 0 { self.order.draw() } else { vec![] };
        Plan { settles, unlocks, queues, count, first_ticket }
    }

    /// Jobs to have unstarted: at least a job for each free thread, at most
    /// what will start within the prefetch time and a round trip (Little's
    /// law: running jobs over their mean time is how many start per second).
    fn target(&self) -> usize {
        let config = &self.shared.config;
        let running = self.shared.running.load(Ordering::Relaxed).max(1) as f64;
        let service_ns = self.shared.book.lock().service_ns;
        let ahead_ns = config.prefetch.as_nanos() as f64 + self.rtt_ns;
        let ahead = if service_ns > 0.0 { running / service_ns * ahead_ns } else { 0.0 };
        let free = self.shared.sink.idle_threads();
        if self.held_up {
            return free.min(config.prefetch_max);
        }
        (ahead as usize).max(free).min(config.prefetch_max)
    }

    fn settles_are_due(&self, book: &Book) -> bool {
        if book.settles.is_empty() {
            return false;
        }
        let age = clock::now_ns().saturating_sub(book.settles_since_ns);
        book.stopping
            || book.settles.len() >= SETTLES_MAX
            || age >= self.shared.config.settle.as_nanos() as u64
    }

    fn carry_out(&mut self, plan: &Plan) -> Result<ClaimReply> {
        if self.reconcile {
            self.adopt_unknown(plan)?;
            self.reconcile = false;
        }
        if !plan.unlocks.is_empty() {
            let held: Vec<_> =
                plan.unlocks.iter().map(|(key, jid)| HeldLock { key, jid }).collect();
            self.store.unlock(&held)?;
        }
        if plan.settles.is_empty() && plan.count == 0 {
            return Ok(ClaimReply::default());
        }
        let want = ClaimRequest {
            queues: &plan.queues,
            count: plan.count,
            first_ticket: plan.first_ticket,
        };
        let began = clock::now_ns();
        let want = (plan.count > 0).then_some(&want);
        let turn = self.store.ack_and_claim(&self.shared.identity.name, &plan.settles, want)?;
        let took = (clock::now_ns() - began) as f64;
        self.rtt_ns += if self.rtt_ns == 0.0 { took } else { 0.1 * (took - self.rtt_ns) };
        Ok(turn)
    }

    fn conclude(&mut self, plan: Plan, result: Result<ClaimReply>) {
        match result {
            Ok(turn) => self.accept(&plan, turn),
            Err(error) => self.suffer(plan, &error),
        }
        self.shared.calm_bell.notify_all();
    }

    fn accept(&mut self, plan: &Plan, turn: ClaimReply) {
        self.retry_at_ns = 0;
        self.shared.warn(self.backoff.worked("claim"));
        let counters = &self.shared.counters;
        counters.turns.fetch_add(1, Ordering::Relaxed);
        counters.fenced.fetch_add(turn.fenced as u64, Ordering::Relaxed);
        counters.claimed.fetch_add(turn.jobs.len() as u64, Ordering::Relaxed);
        if plan.count > 0 && turn.jobs.is_empty() {
            counters.empty_turns.fetch_add(1, Ordering::Relaxed);
        }
        let dry = plan.count > 0 && turn.drained && turn.jobs.len() < plan.count;
        let above = self.above(&turn.jobs);
        // Claimed jobs enter the book before it can look idle.
        if let Err(error) = self.intake.take_in(&mut *self.store, turn.jobs) {
            self.suffer_nothing_lost(&error);
        }
        let mut book = self.shared.book.lock();
        book.settling = 0;
        book.claiming -= usize::from(plan.count > 0);
        book.dry |= dry;
        let watch = dry || above.as_ref().is_some_and(|above| *above != book.above);
        book.above = above.unwrap_or_else(|| std::mem::take(&mut book.above));
        drop(book);
        if watch {
            self.shared.rewatch();
        }
    }

    /// The queues whose jobs would come before those just claimed; `None`:
    /// nothing was.
    fn above(&self, claimed: &[ClaimedJob]) -> Option<Vec<Arc<str>>> {
        let mut queues: Vec<Arc<str>> = claimed.iter().map(|job| job.queue.clone()).collect();
        queues.dedup();
        (!queues.is_empty()).then(|| self.order.above(&queues))
    }

    /// What was to be written stays to be written: writing it twice does
    /// nothing, since the entry is gone after the first time.
    fn suffer(&mut self, plan: Plan, error: &StoreError) {
        let mut book = self.shared.book.lock();
        book.settling = 0;
        book.claiming -= usize::from(plan.count > 0);
        let newer = std::mem::replace(&mut book.settles, plan.settles);
        book.settles.extend(newer);
        let newer = std::mem::replace(&mut book.unlocks, plan.unlocks);
        book.unlocks.extend(newer);
        drop(book);
        self.reconcile = true;
        self.suffer_nothing_lost(error);
    }

    fn suffer_nothing_lost(&mut self, error: &StoreError) {
        self.shared.counters.failures.fetch_add(1, Ordering::Relaxed);
        let (pause, line) = self.backoff.failed("claim", error);
        self.shared.warn(line);
        self.retry_at_ns = clock::now_ns() + pause.as_nanos() as u64;
    }

    /// After a call that failed: what the store holds for us and we do not
    /// know was claimed by an answer that never came.
    fn adopt_unknown(&mut self, plan: &Plan) -> Result<()> {
        let held = self.store.in_flight(&self.shared.identity.name)?;
        let book = self.shared.book.lock();
        let ending = |ticket| {
            let mut all = plan.settles.iter().chain(&book.settles);
            all.any(|settle: &Ack| settle.ticket == ticket)
        };
        let reserved = |ticket| book.reserved.is_some_and(|(a, b)| (a..b).contains(&ticket));
        let unknown: Vec<_> = held
            .into_iter()
            .filter(|job| !reserved(job.ticket))
            .filter(|job| !book.jobs.contains_key(&job.ticket) && !ending(job.ticket))
            .collect();
        drop(book);
        self.intake.take_in(&mut *self.store, unknown)
    }

    /// Jobs that wait behind a long one go back, for other processes to run.
    fn give_back_if_stuck(&mut self) {
        let now = clock::now_ns();
        let starts = self.shared.starts.load(Ordering::Relaxed);
        let moves = starts != self.starts_seen;
        self.held_up &= !moves;
        if moves || self.shared.unstarted.load(Ordering::Relaxed) == 0 || self.stuck_since_ns == 0 {
            self.starts_seen = starts;
            self.stuck_since_ns = now;
        } else if now.saturating_sub(self.stuck_since_ns) >= self.stale_ns() {
            self.give_back();
            self.held_up = true;
            self.stuck_since_ns = now;
        }
        // What would be taken for another owner's may not be started here.
        if !self.shared.holds_lease() && self.shared.beat_ns.load(Ordering::Relaxed) != 0 {
            self.give_back();
        }
    }

    fn stale_ns(&self) -> u64 {
        (self.shared.config.prefetch * STALE_PREFETCHES).max(STALE_MIN).as_nanos() as u64
    }

    fn give_back(&self) {
        let waiting = self.shared.sink.take_waiting();
        let count = waiting.len() as u64;
        waiting.into_iter().for_each(|job| job.abandon());
        self.shared.counters.given_back.fetch_add(count, Ordering::Relaxed);
    }

    /// Waits until there may be something to do. The book was held since the
    /// round found nothing, or is looked at again here.
    fn rest(&self, mut book: parking_lot::MutexGuard<'_, Book>) {
        self.shared.fetch_asleep.store(true, Ordering::SeqCst);
        let wants = self.wants_now(&book);
        if !wants {
            match self.rest_time(&book) {
                Some(time) => {
                    self.shared.fetch_bell.wait_for(&mut book, time);
                }
                None => self.shared.fetch_bell.wait(&mut book),
            }
        }
        self.shared.fetch_asleep.store(false, Ordering::SeqCst);
        self.shared.counters.fetcher_wakeups.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether a job started or ended between the round and the lock.
    fn wants_now(&self, book: &Book) -> bool {
        if clock::now_ns() < self.retry_at_ns {
            return false;
        }
        let unstarted = self.shared.unstarted.load(Ordering::SeqCst);
        let claims = !book.quiet
            && !book.stopping
            && !book.dry
            && book.suspects.is_empty()
            && book.alone.is_none()
            && self.shared.holds_lease()
            && unstarted <= self.shared.low_water.load(Ordering::Relaxed)
            && self.shared.sink.idle_threads() > unstarted;
        claims
            || book.preempt
            || book.reconcile
            || !book.unlocks.is_empty()
            || self.settles_are_due(book)
    }

    /// How long nothing can be due by itself.
    fn rest_time(&self, book: &Book) -> Option<Duration> {
        let now = clock::now_ns();
        let mut until: Option<u64> = None;
        let mut at = |ns: u64| until = Some(until.map_or(ns, |first| first.min(ns)));
        if self.retry_at_ns > now {
            // Until then nothing is done, whatever is due.
            return Some(Duration::from_nanos(self.retry_at_ns - now));
        }
        if let Some((_, since_ns)) = book.suspects.front() {
            at(since_ns + SUSPECT_WAIT.as_nanos() as u64);
        }
        if !book.settles.is_empty() {
            at(book.settles_since_ns + self.shared.config.settle.as_nanos() as u64);
        }
        if self.shared.unstarted.load(Ordering::Relaxed) > 0 {
            at(self.stuck_since_ns + self.stale_ns());
        }
        until.map(|ns| Duration::from_nanos(ns.saturating_sub(now)))
    }
}

fn take_some(settles: &mut Vec<Ack>) -> Vec<Ack> {
    if settles.len() <= SETTLES_MAX {
        return std::mem::take(settles);
    }
    let rest = settles.split_off(SETTLES_MAX);
    std::mem::replace(settles, rest)
}
