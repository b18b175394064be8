//! The fetcher: one thread that acks what has ended and claims what comes
//! next, both in one round trip, and routes what it claimed.

use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

use chaton_core::clock;

use super::admission::{Admission, SUSPECT_WAIT};
use super::backoff::Backoff;
use super::queue_order::QueueOrder;
use super::state::{EngineState, LockedState};
use crate::outcome::Ack;
use crate::store::{ClaimReply, ClaimRequest, ClaimedJob, HeldLock, Result, Store, StoreError};
use chaton_core::random::Random;

/// Settles written in one round trip at most.
const ACKS_MAX: usize = 2000;
/// Unstarted jobs go back when the oldest waited this many prefetch times (and
/// at least [`STALE_MIN`]): a long job holds them up, others may run them.
const STALE_PREFETCHES: u32 = 20;
/// The least of that.
const STALE_MIN: Duration = Duration::from_millis(100);

/// What the next round does.
struct FetchPlan {
    acks: Vec<Ack>,
    unlocks: Vec<(String, String)>,
    queues: Vec<Arc<str>>,
    count: usize,
    first_ticket: u64,
}

/// The fetcher. [`Fetcher::round`] does one round without waiting, so that a
/// test can drive it step by step; [`Fetcher::run`] is the thread.
pub(super) struct Fetcher {
    shared: Arc<EngineState>,
    store: Box<dyn Store>,
    order: QueueOrder,
    admission: Admission,
    backoff: Backoff,
    /// No call before this time (ns).
    retry_at_ns: u64,
    /// A call failed: what it claimed may be ours without our knowing.
    reconcile: bool,
    /// The engine ends, and the last try to write everything was begun.
    fetcher_done: bool,
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
    pub fn new(shared: &Arc<EngineState>, store: Box<dyn Store>, random: Random) -> Self {
        let config = &shared.config;
        Self {
            order: QueueOrder::new(config.queues.clone(), config.mode, random),
            admission: Admission::new(shared),
            backoff: Backoff::new(config.retry_max),
            shared: shared.clone(),
            store,
            retry_at_ns: 0,
            reconcile: false,
            fetcher_done: false,
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
            let locked = self.shared.locked.lock();
            if locked.stopping && self.shared.is_idle(&locked) {
                return;
            }
            if locked.stopping && !self.fetcher_done {
                // Whatever failed before: the store may be back.
                self.fetcher_done = true;
                self.retry_at_ns = 0;
                continue;
            }
            if locked.stopping && self.retry_at_ns > 0 {
                return;
            }
            if !worked {
                self.wait(locked);
            }
        }
    }

    /// One round; false when there was nothing to do.
    pub fn round(&mut self) -> bool {
        if clock::now_ns() < self.retry_at_ns {
            return false;
        }
        self.return_stuck();
        self.admission.start_suspect();
        let plan = self.plan();
        let nothing = plan.acks.is_empty() && plan.unlocks.is_empty() && plan.count == 0;
        if nothing && !self.reconcile {
            return false;
        }
        let result = self.execute(&plan);
        self.finish_round(plan, result);
        true
    }

    fn plan(&mut self) -> FetchPlan {
        let target = self.target();
        let mut locked = self.shared.locked.lock();
        let preempted = std::mem::take(&mut locked.preempt);
        if preempted {
            locked.dry = false;
            drop(locked);
            self.return_unstarted();
            locked = self.shared.locked.lock();
        }
        self.reconcile |= std::mem::take(&mut locked.reconcile);
        let unstarted = self.shared.unstarted.load(Ordering::Acquire);
        let low = target / 2;
        self.shared.low_water.store(low, Ordering::Relaxed);
        let may = !locked.quiet
            && !locked.stopping
            && !locked.dry
            && locked.suspects.is_empty()
            && locked.alone.is_none()
            && self.shared.holds_lease();
        let count = if may && unstarted <= low { target.saturating_sub(unstarted) } else { 0 };
        let due = self.acks_are_due(&locked);
        let acks = if count > 0 || due { take_batch(&mut locked.acks) } else { vec![] };
        locked.acks_in_write = acks.len();
        let first_ticket = locked.next_ticket;
        // Never used twice, even when the call fails half-way.
        locked.next_ticket += count as u64;
        locked.claims_pending += usize::from(count > 0);
        let unlocks = std::mem::take(&mut locked.unlocks);
        drop(locked);
        let queues = if count > 0 { self.order.draw() } else { vec![] };
        FetchPlan { acks, unlocks, queues, count, first_ticket }
    }

    /// Jobs to have unstarted: at least a job for each free thread, at most
    /// what will start within the prefetch time and a round trip (Little's
    /// law: running jobs over their mean time is how many start per second).
    fn target(&self) -> usize {
        let config = &self.shared.config;
        let running = self.shared.running.load(Ordering::Relaxed).max(1) as f64;
        let service_ns = self.shared.locked.lock().service_ns;
        let ahead_ns = config.prefetch.as_nanos() as f64 + self.rtt_ns;
        let ahead = if service_ns > 0.0 { running / service_ns * ahead_ns } else { 0.0 };
        let free = self.shared.sink.idle_threads();
        if self.held_up {
            return free.min(config.prefetch_max);
        }
        (ahead as usize).max(free).min(config.prefetch_max)
    }

    fn acks_are_due(&self, locked: &LockedState) -> bool {
        if locked.acks.is_empty() {
            return false;
        }
        let age = clock::now_ns().saturating_sub(locked.acks_since_ns);
        locked.stopping
            || locked.acks.len() >= ACKS_MAX
            || age >= self.shared.config.ack_delay.as_nanos() as u64
    }

    fn execute(&mut self, plan: &FetchPlan) -> Result<ClaimReply> {
        if self.reconcile {
            self.adopt_lost_claims(plan)?;
            self.reconcile = false;
        }
        if !plan.unlocks.is_empty() {
            let held: Vec<_> =
                plan.unlocks.iter().map(|(key, jid)| HeldLock { key, jid }).collect();
            self.store.unlock(&held)?;
        }
        if plan.acks.is_empty() && plan.count == 0 {
            return Ok(ClaimReply::default());
        }
        let want = ClaimRequest {
            queues: &plan.queues,
            count: plan.count,
            first_ticket: plan.first_ticket,
        };
        let began = clock::now_ns();
        let want = (plan.count > 0).then_some(&want);
        let turn = self.store.ack_and_claim(&self.shared.identity.name, &plan.acks, want)?;
        let took = (clock::now_ns() - began) as f64;
        self.rtt_ns += if self.rtt_ns == 0.0 { took } else { 0.1 * (took - self.rtt_ns) };
        Ok(turn)
    }

    fn finish_round(&mut self, plan: FetchPlan, result: Result<ClaimReply>) {
        match result {
            Ok(turn) => self.on_reply(&plan, turn),
            Err(error) => self.on_failure(plan, &error),
        }
        self.shared.idle_cond.notify_all();
    }

    fn on_reply(&mut self, plan: &FetchPlan, turn: ClaimReply) {
        self.retry_at_ns = 0;
        self.shared.warn(self.backoff.worked("claim"));
        let counters = &self.shared.counters;
        counters.round_trips.fetch_add(1, Ordering::Relaxed);
        counters.fenced.fetch_add(turn.fenced as u64, Ordering::Relaxed);
        counters.claimed.fetch_add(turn.jobs.len() as u64, Ordering::Relaxed);
        if plan.count > 0 && turn.jobs.is_empty() {
            counters.empty_claims.fetch_add(1, Ordering::Relaxed);
        }
        let dry = plan.count > 0 && turn.drained && turn.jobs.len() < plan.count;
        let above = self.above(&turn.jobs);
        // Claimed jobs enter the locked before it can look idle.
        if let Err(error) = self.admission.admit(&mut *self.store, turn.jobs) {
            self.note_failure(&error);
        }
        let mut locked = self.shared.locked.lock();
        locked.acks_in_write = 0;
        locked.claims_pending -= usize::from(plan.count > 0);
        locked.dry |= dry;
        let watch = dry || above.as_ref().is_some_and(|above| *above != locked.above);
        locked.above = above.unwrap_or_else(|| std::mem::take(&mut locked.above));
        drop(locked);
        if watch {
            self.shared.wake_watcher();
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
    fn on_failure(&mut self, plan: FetchPlan, error: &StoreError) {
        let mut locked = self.shared.locked.lock();
        locked.acks_in_write = 0;
        locked.claims_pending -= usize::from(plan.count > 0);
        let newer = std::mem::replace(&mut locked.acks, plan.acks);
        locked.acks.extend(newer);
        let newer = std::mem::replace(&mut locked.unlocks, plan.unlocks);
        locked.unlocks.extend(newer);
        drop(locked);
        self.reconcile = true;
        self.note_failure(error);
    }

    fn note_failure(&mut self, error: &StoreError) {
        self.shared.counters.failures.fetch_add(1, Ordering::Relaxed);
        let (pause, line) = self.backoff.failed("claim", error);
        self.shared.warn(line);
        self.retry_at_ns = clock::now_ns() + pause.as_nanos() as u64;
    }

    /// After a call that failed: what the store holds for us and we do not
    /// know was claimed by an answer that never came.
    fn adopt_lost_claims(&mut self, plan: &FetchPlan) -> Result<()> {
        let held = self.store.in_flight(&self.shared.identity.name)?;
        let locked = self.shared.locked.lock();
        let ending = |ticket| {
            let mut all = plan.acks.iter().chain(&locked.acks);
            all.any(|ack: &Ack| ack.ticket == ticket)
        };
        let reserved_tickets =
            |ticket| locked.reserved_tickets.is_some_and(|(a, b)| (a..b).contains(&ticket));
        let unknown: Vec<_> = held
            .into_iter()
            .filter(|job| !reserved_tickets(job.ticket))
            .filter(|job| !locked.jobs.contains_key(&job.ticket) && !ending(job.ticket))
            .collect();
        drop(locked);
        self.admission.admit(&mut *self.store, unknown)
    }

    /// Jobs that wait behind a long one go back, for other processes to run.
    fn return_stuck(&mut self) {
        let now = clock::now_ns();
        let starts = self.shared.starts.load(Ordering::Relaxed);
        let moves = starts != self.starts_seen;
        self.held_up &= !moves;
        if moves || self.shared.unstarted.load(Ordering::Relaxed) == 0 || self.stuck_since_ns == 0 {
            self.starts_seen = starts;
            self.stuck_since_ns = now;
        } else if now.saturating_sub(self.stuck_since_ns) >= self.stale_ns() {
            self.return_unstarted();
            self.held_up = true;
            self.stuck_since_ns = now;
        }
        // What would be taken for another owner's may not be started here.
        if !self.shared.holds_lease() && self.shared.heartbeat_ns.load(Ordering::Relaxed) != 0 {
            self.return_unstarted();
        }
    }

    fn stale_ns(&self) -> u64 {
        (self.shared.config.prefetch * STALE_PREFETCHES).max(STALE_MIN).as_nanos() as u64
    }

    fn return_unstarted(&self) {
        let waiting = self.shared.sink.take_waiting();
        let count = waiting.len() as u64;
        waiting.into_iter().for_each(|job| job.abandon());
        self.shared.counters.given_back.fetch_add(count, Ordering::Relaxed);
    }

    /// Waits until there may be something to do. The locked was held since the
    /// round found nothing, or is looked at again here.
    fn wait(&self, mut locked: parking_lot::MutexGuard<'_, LockedState>) {
        self.shared.fetcher_waits.store(true, Ordering::SeqCst);
        let wants = self.has_work(&locked);
        if !wants {
            match self.wait_time(&locked) {
                Some(time) => {
                    self.shared.fetcher_cond.wait_for(&mut locked, time);
                }
                None => self.shared.fetcher_cond.wait(&mut locked),
            }
        }
        self.shared.fetcher_waits.store(false, Ordering::SeqCst);
        self.shared.counters.fetcher_wakeups.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether a job started or ended between the round and the lock.
    fn has_work(&self, locked: &LockedState) -> bool {
        if clock::now_ns() < self.retry_at_ns {
            return false;
        }
        let unstarted = self.shared.unstarted.load(Ordering::SeqCst);
        let claims = !locked.quiet
            && !locked.stopping
            && !locked.dry
            && locked.suspects.is_empty()
            && locked.alone.is_none()
            && self.shared.holds_lease()
            && unstarted <= self.shared.low_water.load(Ordering::Relaxed)
            && self.shared.sink.idle_threads() > unstarted;
        claims
            || locked.preempt
            || locked.reconcile
            || !locked.unlocks.is_empty()
            || self.acks_are_due(locked)
    }

    /// How long nothing can be due by itself.
    fn wait_time(&self, locked: &LockedState) -> Option<Duration> {
        let now = clock::now_ns();
        let mut until: Option<u64> = None;
        let mut at = |ns: u64| until = Some(until.map_or(ns, |first| first.min(ns)));
        if self.retry_at_ns > now {
            // Until then nothing is done, whatever is due.
            return Some(Duration::from_nanos(self.retry_at_ns - now));
        }
        if let Some((_, since_ns)) = locked.suspects.front() {
            at(since_ns + SUSPECT_WAIT.as_nanos() as u64);
        }
        if !locked.acks.is_empty() {
            at(locked.acks_since_ns + self.shared.config.ack_delay.as_nanos() as u64);
        }
        if self.shared.unstarted.load(Ordering::Relaxed) > 0 {
            at(self.stuck_since_ns + self.stale_ns());
        }
        until.map(|ns| Duration::from_nanos(ns.saturating_sub(now)))
    }
}

fn take_batch(acks: &mut Vec<Ack>) -> Vec<Ack> {
    if acks.len() <= ACKS_MAX {
        return std::mem::take(acks);
    }
    let rest = acks.split_off(ACKS_MAX);
    std::mem::replace(acks, rest)
}
