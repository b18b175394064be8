//! One observation of the pool: the facts, the decision, and what the next decision must
//! know of the ones before it. The simulation drives it as the scheduler does.

use std::sync::Arc;

use crate::pool::back_off::BackOff;
use crate::pool::policy::{decide, Decision, Facts, Rule};
use crate::pool::state::PoolState;
use crate::pool::thread_record::ThreadRecord;
use crate::sync::atomic::Ordering::Relaxed;

/// A requested thread is expected to take work within this time (ns).
pub const ARRIVAL_NS: u64 = 1_000_000;
/// Time of calm after which the width is reduced (ns). A pool that starves within this
/// time after a reduction doubles it, up to the maximum, so that a steady load keeps the
/// width it needs. A reduction that starves nobody halves it again.
const NARROW_NS: u64 = 50_000_000;
const NARROW_NS_MAX: u64 = 1_600_000_000;
/// One observation charges no more than this (ns): the scheduler may have slept before.
const CHARGE_NS_MAX: u64 = 10_000_000;

/// What can be seen of the threads. CRuby 3.3 and later report which thread holds the GVL
/// and which ones want it ([`crate::pool::gvl_activity`]). On older ones the threads' CPU
/// clocks are read from outside ([`crate::pool::clock_activity`]).
pub(crate) trait Activity: Send {
    /// Fills in the facts about running and blocked threads, and returns the one that
    /// runs.
    fn observe(
        &mut self,
        state: &PoolState,
        facts: &mut Facts,
        now_ns: u64,
    ) -> Option<Arc<ThreadRecord>>;

    /// The thread that sleeps with the GVL while another one that has work wants it.
    fn sleeper(&self, state: &PoolState) -> Option<Arc<ThreadRecord>>;

    /// Time in ns until the next observation, when nothing notifies the scheduler sooner.
    fn pause_ns(&mut self, facts: &Facts, made: &Decision) -> u64;
}

/// An observation whose decision the pool's state shows already.
pub(crate) struct Observed {
    pub decision: Decision,
    /// The thread that runs.
    pub runner: Option<Arc<ThreadRecord>>,
    /// The threads that must be unparked.
    pub woken: Vec<Arc<ThreadRecord>>,
    /// Nothing waited, neither for a thread nor for the GVL.
    pub is_empty: bool,
    /// Time in ns until the next observation.
    pub pause_ns: u64,
}

/// Observes a pool.
pub(crate) struct Observer {
    threads_max: usize,
    /// After this time without a thread that can run, the pool is starved (ns).
    blocked_ns: u64,
    observed_ns: u64,
    /// The progress at the last decision.
    progress: u64,
    starved_in_row: u32,
    calm_since_ns: u64,
    narrow_ns: u64,
    /// The width was reduced and the pool has not starved since.
    narrowed: bool,
    admitted_ns: u64,
    back_off: BackOff,
}

impl Observer {
    pub fn new(threads_max: usize, blocked_ns: u64, now_ns: u64) -> Self {
        Self {
            threads_max,
            blocked_ns,
            observed_ns: now_ns,
            progress: 0,
            starved_in_row: 0,
            calm_since_ns: now_ns,
            narrow_ns: NARROW_NS,
            narrowed: false,
            admitted_ns: 0,
            back_off: BackOff::default(),
        }
    }

    /// Observes the pool under its lock, decides, and changes its state accordingly.
    pub fn observe(
        &mut self,
        state: &mut PoolState,
        activity: &mut dyn Activity,
        now_ns: u64,
    ) -> Observed {
        self.look_for_halts(state, activity, now_ns);
        let elapsed_ns = now_ns.saturating_sub(std::mem::replace(&mut self.observed_ns, now_ns));
        let mut facts = self.facts(state, now_ns);
        let runner = activity.observe(state, &mut facts, now_ns);
        if let Some(role) = runner.as_ref().and_then(|runner| runner.role()) {
            state.charge(role, elapsed_ns.min(CHARGE_NS_MAX));
        }
        let decision = self.decide(&mut facts, elapsed_ns, now_ns);
        if decision.rule == Rule::Admitted && !facts.interactive_waiting {
            let more = decision.width.saturating_sub(state.width);
            if let Some(runner) = &runner {
                runner.places.fetch_add(more, Relaxed);
            }
        }
        let woken = state.apply(&decision, now_ns);
        state.totals.observations += 1;
        state.totals.stalls += u64::from(decision.rule == Rule::Starved);
        facts.awake = state.awake;
        facts.waking += decision.wake;
        facts.spawning = state.spawning;
        let pause_ns = activity.pause_ns(&facts, &decision);
        let is_empty = facts.waiting == 0 && !facts.outsider_waiting;
        Observed { decision, runner, woken, is_empty, pause_ns }
    }

    /// Leaves work alone for a while when a thread sleeps with the GVL.
    fn look_for_halts(&mut self, state: &mut PoolState, activity: &dyn Activity, now_ns: u64) {
        let sleeper = (state.running > 1).then(|| activity.sleeper(state)).flatten();
        if self.back_off.observe(sleeper.as_deref(), now_ns) {
            state.width = 1;
        }
        state.is_patient = self.back_off.is_patient(now_ns);
    }

    /// The facts that the pool's state and the decisions so far tell. Those about running
    /// and blocked threads are still missing.
    fn facts(&self, state: &PoolState, now_ns: u64) -> Facts {
        let ago = |ns: u64| now_ns.saturating_sub(ns);
        let changed_ns = state.last_take_ns.max(state.last_wake_ns).max(state.last_switch_ns);
        Facts {
            waiting: state.queue.len(),
            interactive_waiting: state.queue.interactive_len() > 0,
            progress: state.totals.finished,
            since_change_ns: ago(changed_ns),
            since_admit_ns: ago(self.admitted_ns),
            calm_ns: ago(self.calm_since_ns),
            awake: state.awake,
            waking: state.waking(),
            idle: state.idle.len(),
            spawning: state.spawning,
            width: state.width,
            max: state.threads_max(self.threads_max, now_ns),
            starved_after_ns: self.blocked_ns,
            narrow_ns: self.narrow_ns,
            ..Facts::default()
        }
    }

    /// Decides and remembers it. `elapsed_ns` is the time since the decision before.
    fn decide(&mut self, facts: &mut Facts, elapsed_ns: u64, now_ns: u64) -> Decision {
        let before = std::mem::replace(&mut self.progress, facts.progress);
        if facts.waiting == 0 || facts.progress != before {
            self.starved_in_row = 0;
        }
        if facts.waiting == 0 {
            // Time with nothing to do does not count as calm.
            self.calm_since_ns += elapsed_ns.min(facts.calm_ns);
        }
        facts.starved_before = self.starved_in_row;
        let decision = decide(facts);
        match decision.rule {
            Rule::None | Rule::Hogged => return decision,
            Rule::Starved => {
                self.starved_in_row += 1;
                // One that comes later has nothing to do with the reduction.
                if std::mem::take(&mut self.narrowed) {
                    let soon = facts.calm_ns < NARROW_NS;
                    let next_ns = if soon { self.narrow_ns * 2 } else { self.narrow_ns / 2 };
                    self.narrow_ns = next_ns.clamp(NARROW_NS, NARROW_NS_MAX);
                }
            }
            Rule::Admitted => self.admitted_ns = now_ns,
            Rule::Calm => {
                if std::mem::replace(&mut self.narrowed, true) {
                    self.narrow_ns = (self.narrow_ns / 2).max(NARROW_NS);
                }
            }
        }
        self.calm_since_ns = now_ns;
        decision
    }
}
