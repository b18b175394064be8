//! The fetcher: one thread that acknowledges jobs that ended and claims new
//! ones, both in one round trip, and admits what it claimed.

use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

use chaton_core::clock;

use super::admission::Admission;
use super::hand::Hand;
use super::intake::Intake;
use super::job_log::JobLogLines;
use super::queue_order::QueueOrder;
use super::reconcile::reconcile;
use super::state::EngineState;
use super::store_retry::StoreRetry;
use crate::outcome::Ack;
use crate::store::{ClaimReply, ClaimRequest, ClaimedJob, HeldLock, Result, Store, StoreError};
use fastrand::Rng;

/// Acknowledgements in one round trip, at most.
const ACKS_MAX: usize = 2000;
/// Jobs in a claim while none waits to start, unless more start within a round trip that carries little: so the first ones
/// of a burst begin soon. Further claims take twice as many as wait then, which last about until the next ones are there.
const FIRST_CLAIM_MAX: usize = 64;
/// Jobs in a claim at most, unless more start within a round trip.
const CLAIM_STEP: usize = 256;
/// How much longer the shortest round trip is assumed to be at each further one.
const RTT_GROWTH: f64 = 1.1;
/// Unstarted jobs go back when none was started for so many prefetch times and at least
/// [`STALE_MIN`]: long jobs hold them up, and other processes may be free.
const STALE_PREFETCHES: u32 = 20;
/// Least time until unstarted jobs go back.
const STALE_MIN: Duration = Duration::from_millis(100);

/// What the next round writes and claims.
struct FetchPlan {
    acks: Vec<Ack>,
    unlocks: Vec<(String, String)>,
    queues: Vec<Arc<str>>,
    count: usize,
    first_ticket: u64,
}

/// The fetcher. [`Fetcher::run`] is its thread; [`Fetcher::round`] does one round
/// without waiting, so that tests can drive it step by step.
pub(super) struct Fetcher {
    state: Arc<EngineState>,
    intake: Intake,
    store: Box<dyn Store>,
    order: QueueOrder,
    admission: Admission,
    store_retry: StoreRetry,
    /// No call before this time (ns), unless the store answers again.
    retry_at_ns: u64,
    /// [`EngineState::answers`] when the last round began.
    answers_seen: u64,
    /// [`Store::connections`] at the last comparison.
    connections: u64,
    /// Acknowledgements that are written again, since the reply of their first time was lost.
    rewritten: usize,
    /// The engine ends, and the last try to write everything has begun.
    last_try: bool,
    /// Smoothed round trip in ns.
    rtt_ns: f64,
    /// About the shortest of the last round trips: the time of one that carries little.
    rtt_least_ns: f64,
    /// Since when jobs wait without one being started (ns).
    stuck_since_ns: u64,
    /// Jobs started when that was last checked.
    starts_seen: u64,
    /// Unstarted jobs went back, and no job has been started since.
    held_up: bool,
}

impl Fetcher {
    pub fn new(state: &Arc<EngineState>, store: Box<dyn Store>, random: Rng) -> Self {
        let config = &state.config;
        Self {
            order: QueueOrder::new(&config.queues, config.mode, random),
            admission: Admission::new(state),
            store_retry: StoreRetry::new(config.retry_max, state),
            intake: Intake::new(state),
            state: state.clone(),
            store,
            retry_at_ns: 0,
            answers_seen: 0,
            connections: 0,
            rewritten: 0,
            last_try: false,
            rtt_ns: 0.0,
            rtt_least_ns: 0.0,
            stuck_since_ns: 0,
            starts_seen: 0,
            held_up: false,
        }
    }

    /// Runs until the engine stops and everything is written, or the last try
    /// to write it has failed.
    pub fn run(mut self) {
        loop {
            let worked = self.round();
            let stopping = self.state.stopping.load(Ordering::SeqCst);
            self.write_log(worked, stopping);
            if stopping && self.state.is_idle() {
                return;
            }
            if stopping && !self.last_try {
                // Despite the back-off: the store may answer again.
                self.last_try = true;
                self.retry_at_ns = 0;
                continue;
            }
            if stopping && self.retry_at_ns > 0 {
                return;
            }
            if !worked {
                self.wait(stopping);
            }
        }
    }

    /// One round; false when there was nothing to do.
    pub fn round(&mut self) -> bool {
        self.intake.take(&self.state);
        if self.pauses() {
            return false;
        }
        self.return_stuck();
        let suspect = self.admission.start_suspect(&mut *self.store);
        // Only an outage keeps outcomes from being written.
        let is_outage = suspect.as_ref().is_err_and(StoreError::is_outage);
        let worked = !is_outage && self.write_and_claim();
        if let Err(error) = suspect {
            self.note_failure(&error);
            return true;
        }
        worked
    }

    /// Writes what has ended and claims; false when there was nothing to do.
    fn write_and_claim(&mut self) -> bool {
        let plan = self.plan();
        self.answers_seen = self.state.answers.load(Ordering::SeqCst);
        let nothing = plan.acks.is_empty() && plan.unlocks.is_empty() && plan.count == 0;
        if nothing && !self.state.hand.read().doubts.compare {
            return false;
        }
        let result = self.execute(&plan);
        self.finish_round(plan, result);
        true
    }

    /// Writes the lines about ended jobs, when that holds up no claim.
    fn write_log(&mut self, worked: bool, last: bool) {
        let log = &mut self.intake.log;
        if !worked || last || log.is_urgent() {
            log.take(last).into_iter().for_each(JobLogLines::write);
        }
    }

    fn plan(&mut self) -> FetchPlan {
        let (target, first, step) = self.target();
        let mut hand = self.state.hand.write();
        let preempted = std::mem::take(&mut hand.preempt);
        hand.queues_empty &= !preempted;
        drop(hand);
        if preempted {
            self.return_unstarted();
        }
        // What went back since the round began is written with the rest.
        self.intake.take(&self.state);
        let mut hand = self.state.hand.write();
        let unstarted = self.state.unstarted.load(Ordering::Acquire);
        let low = (target / 2).max(target.saturating_sub(step));
        self.state.low_water.store(low, Ordering::Relaxed);
        let may_claim = self.state.may_claim(&hand);
        let most = (2 * unstarted).clamp(first, step);
        let count = if may_claim && unstarted <= low { (target - unstarted).min(most) } else { 0 };
        let due = self.acks_are_due(&hand);
        hand.slot_released &= count == 0;
        let acks = if count > 0 || due { take_batch(&mut hand.acks) } else { vec![] };
        hand.acks_in_write = acks.len();
        // No ticket is used twice, even when the call fails.
        let first_ticket = self.state.next_ticket.fetch_add(count as u64, Ordering::SeqCst);
        hand.claims = count > 0;
        let unlocks = std::mem::take(&mut hand.unlocks);
        drop(hand);
        let queues = if count > 0 { self.order.draw() } else { vec![] };
        FetchPlan { acks, unlocks, queues, count, first_ticket }
    }

    /// How many jobs should be unstarted: one for each free thread, or what will start within the prefetch time
    /// and a round trip. By Little's law the running jobs over their mean time are the starts per second. And how
    /// many of them one claim takes, least and most.
    fn target(&self) -> (usize, usize, usize) {
        let config = &self.state.config;
        let running = self.state.running.load(Ordering::Relaxed).max(1) as f64;
        let service_ns = self.state.hand.read().service_ns;
        let starts_in =
            |ns| if service_ns > 0.0 { (running / service_ns * ns) as usize } else { 0 };
        let ahead = starts_in(config.prefetch.as_nanos() as f64 + self.rtt_ns);
        let step = starts_in(self.rtt_ns).max(CLAIM_STEP);
        let first = starts_in(self.rtt_least_ns).max(FIRST_CLAIM_MAX).min(step);
        let free = self.state.feed.idle_threads();
        let target = if self.held_up { free } else { ahead.max(free) };
        (target.min(config.prefetch_max), first, step)
    }

    fn acks_are_due(&self, hand: &Hand) -> bool {
        if hand.acks.is_empty() {
            return false;
        }
        let age = clock::now_ns().saturating_sub(hand.acks_since_ns);
        self.state.stopping.load(Ordering::SeqCst)
            || hand.acks.len() >= ACKS_MAX
            || age >= self.state.config.ack_delay.as_nanos() as u64
    }

    fn execute(&mut self, plan: &FetchPlan) -> Result<ClaimReply> {
        self.store.connect()?;
        let before = self.connections;
        if self.state.hand.read().doubts.compare
            || before != 0 && before != self.store.connections()
        {
            self.compare_with_store(plan)?;
        }
        self.connections = self.store.connections();
        if !plan.unlocks.is_empty() {
            let held: Vec<_> =
                plan.unlocks.iter().map(|(key, jid)| HeldLock { key, jid }).collect();
            self.store.unlock(&held)?;
        }
        if plan.acks.is_empty() && plan.count == 0 {
            return Ok(ClaimReply::default());
        }
        let FetchPlan { queues, count, first_ticket, .. } = plan;
        let request = ClaimRequest { queues, count: *count, first_ticket: *first_ticket };
        let began = clock::now_ns();
        let request = (plan.count > 0).then_some(&request);
        let reply = self.store.ack_and_claim(&self.state.identity.name, &plan.acks, request)?;
        let took = (clock::now_ns() - began) as f64;
        self.rtt_ns += if self.rtt_ns == 0.0 { took } else { 0.1 * (took - self.rtt_ns) };
        let least = self.rtt_least_ns * RTT_GROWTH;
        self.rtt_least_ns = if least == 0.0 { took } else { took.min(least) };
        Ok(reply)
    }

    fn finish_round(&mut self, plan: FetchPlan, result: Result<ClaimReply>) {
        match result {
            Ok(reply) => self.on_reply(plan, reply),
            Err(error) => self.on_failure(plan, &error),
        }
        self.state.idle_wait.changed();
    }

    fn on_reply(&mut self, mut plan: FetchPlan, reply: ClaimReply) {
        self.retry_at_ns = 0;
        self.state.warn(self.store_retry.succeeded("claim"));
        let counters = &self.state.counters;
        counters.round_trips.fetch_add(1, Ordering::Relaxed);
        counters.fenced.fetch_add(reply.fenced as u64, Ordering::Relaxed);
        if let Some(gauges) = &self.state.config.gauges {
            let fenced = &gauges.counters().jobs.fenced;
            fenced.fetch_add(reply.fenced as u64, Ordering::Relaxed);
        }
        counters.claimed.fetch_add(reply.jobs.len() as u64, Ordering::Relaxed);
        if plan.count > 0 && reply.jobs.is_empty() {
            counters.empty_claims.fetch_add(1, Ordering::Relaxed);
        }
        self.handle_fenced(&mut plan, reply.fenced);
        let empty = plan.count > 0 && reply.drained && reply.jobs.len() < plan.count;
        let above = self.above(&reply.jobs);
        // While `claims` is set, the engine does not look idle.
        if let Err(error) = self.admission.admit(&mut *self.store, reply.jobs) {
            self.note_failure(&error);
        }
        self.intake.take(&self.state);
        let mut hand = self.state.hand.write();
        hand.acks_in_write = 0;
        hand.claims = false;
        let watch = empty && !hand.queues_empty
            || above.as_ref().is_some_and(|above| *above != hand.higher_queues);
        hand.queues_empty |= empty;
        hand.higher_queues = above.unwrap_or_else(|| std::mem::take(&mut hand.higher_queues));
        drop(hand);
        if watch {
            self.state.wake_watcher();
        }
    }

    /// The queues that come before those of the claimed jobs; `None`: no job was claimed.
    fn above(&self, claimed: &[ClaimedJob]) -> Option<Vec<Arc<str>>> {
        let mut queues: Vec<Arc<str>> = claimed.iter().map(|job| job.queue.clone()).collect();
        queues.dedup();
        (!queues.is_empty()).then(|| self.order.above(&queues))
    }

    /// Keeps what was to be written for the next round. Writing it twice is
    /// harmless, since the in-flight entry is gone after the first time.
    fn on_failure(&mut self, plan: FetchPlan, error: &StoreError) {
        let mut hand = self.state.hand.write();
        hand.acks_in_write = 0;
        hand.claims = false;
        hand.doubts.compare = true;
        self.rewritten += plan.acks.len();
        hand.return_acks(plan.acks);
        if plan.count > 0 {
            hand.doubts.note_lost_claim(plan.first_ticket);
        }
        let newer = std::mem::replace(&mut hand.unlocks, plan.unlocks);
        hand.unlocks.extend(newer);
        drop(hand);
        self.note_failure(error);
    }

    fn pauses(&self) -> bool {
        let answers = self.state.answers.load(Ordering::SeqCst);
        clock::now_ns() < self.retry_at_ns && answers == self.answers_seen
    }

    fn note_failure(&mut self, error: &StoreError) {
        self.state.counters.failures.fetch_add(1, Ordering::Relaxed);
        let (pause, line) = self.store_retry.failed("claim", error);
        self.state.warn(line);
        self.retry_at_ns = clock::now_ns() + pause.as_nanos() as u64;
    }

    /// Compares the in-flight set in the store with the jobs in hand, and admits those whose claim had
    /// no reply.
    fn compare_with_store(&mut self, plan: &FetchPlan) -> Result<()> {
        self.connections = self.store.connections();
        let Self { state, store, intake, .. } = self;
        let lost = reconcile(state, &mut **store, &plan.acks, || intake.take(state))?;
        let admitted = self.admission.admit(&mut *self.store, lost);
        self.state.hand.write().doubts.compare |= admitted.is_err();
        admitted
    }

    /// Handles outcomes that were not written because their jobs are not in flight any more. Those of a
    /// call that changed its connection on the way are written again after a comparison.
    fn handle_fenced(&mut self, plan: &mut FetchPlan, fenced: usize) {
        let rewritten = self.rewritten.min(plan.acks.len());
        self.rewritten -= rewritten;
        let unexpected = fenced.saturating_sub(rewritten);
        if unexpected == 0 || !self.state.holds_lease() {
            return;
        }
        if self.connections != self.store.connections() {
            self.rewritten += plan.acks.len();
            self.state.hand.write().return_acks(std::mem::take(&mut plan.acks));
            return;
        }
        self.state.feed.warn(&format!(
            "jobs: the outcomes of {unexpected} jobs were not written: the jobs are not in flight in this \
             process's name any more, though its lease is valid"
        ));
    }

    /// Returns unstarted jobs that wait behind long ones, and all of them when the
    /// lease has run out.
    fn return_stuck(&mut self) {
        let now = clock::now_ns();
        let starts = self.state.starts.load(Ordering::Relaxed);
        let moves = starts != self.starts_seen;
        self.held_up &= !moves;
        if moves || self.state.all_unstarted() == 0 || self.stuck_since_ns == 0 {
            self.starts_seen = starts;
            self.stuck_since_ns = now;
        } else if now.saturating_sub(self.stuck_since_ns) >= self.stale_ns() {
            self.return_unstarted();
            self.held_up = true;
            self.stuck_since_ns = now;
        }
        if !self.state.holds_lease() && self.state.heartbeat_ns.load(Ordering::Relaxed) != 0 {
            self.return_unstarted();
        }
    }

    fn stale_ns(&self) -> u64 {
        (self.state.config.prefetch * STALE_PREFETCHES).max(STALE_MIN).as_nanos() as u64
    }

    fn return_unstarted(&self) {
        let waiting = self.state.feed.take_waiting();
        let count = waiting.len() as u64;
        if waiting.iter().any(|job| job.is_due()) {
            self.state.refuse_due();
        }
        waiting.into_iter().for_each(|job| job.give_back());
        self.state.counters.given_back.fetch_add(count, Ordering::Relaxed);
    }

    /// Waits until there may be something to do. `stopping`: what the caller has seen of it.
    fn wait(&self, stopping: bool) {
        let state = &self.state;
        let hand = state.hand.read();
        let mut inbox = state.inbox.lock();
        let (may_claim, acks_wait) = (state.may_claim(&hand), !hand.acks.is_empty());
        state.fetcher_waits.store(true, Ordering::SeqCst);
        state.acks_wait.store(acks_wait, Ordering::SeqCst);
        state.would_claim.store(!hand.queues_empty || hand.slot_released, Ordering::SeqCst);
        state.thread_wanted.store(may_claim, Ordering::SeqCst);
        let told = !inbox.is_empty() || state.stopping.load(Ordering::SeqCst) != stopping;
        if !told && !self.has_work(&hand) {
            let time = self.wait_time(&hand);
            drop(hand);
            match time {
                Some(time) => {
                    state.fetcher_cond.wait_for(&mut inbox, time);
                }
                None => state.fetcher_cond.wait(&mut inbox),
            }
        }
        state.fetcher_waits.store(false, Ordering::SeqCst);
        state.thread_wanted.store(false, Ordering::SeqCst);
        state.counters.fetcher_wakeups.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether the fetcher has something to do: claim, acknowledge, unlock, or check its claims.
    fn has_work(&self, hand: &Hand) -> bool {
        if self.pauses() {
            return false;
        }
        let unstarted = self.state.unstarted.load(Ordering::SeqCst);
        let claims = self.state.may_claim(hand)
            && unstarted <= self.state.low_water.load(Ordering::Relaxed)
            && self.state.feed.idle_threads() > unstarted;
        claims
            || hand.preempt
            || hand.doubts.compare
            || !hand.unlocks.is_empty()
            || self.acks_are_due(hand)
    }

    /// How long the fetcher may wait; `None`: until it is woken.
    fn wait_time(&self, hand: &Hand) -> Option<Duration> {
        let now = clock::now_ns();
        let mut until: Option<u64> = None;
        let mut at = |ns: u64| until = Some(until.map_or(ns, |first| first.min(ns)));
        if self.pauses() {
            return Some(Duration::from_nanos(self.retry_at_ns.saturating_sub(now)));
        }
        self.intake.log.due_ns().into_iter().for_each(&mut at);
        if let Some(suspect) = hand.suspects.front() {
            at(suspect.until_ns);
        }
        if !hand.acks.is_empty() {
            at(hand.acks_since_ns + self.state.config.ack_delay.as_nanos() as u64);
        }
        if self.state.all_unstarted() > 0 {
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
