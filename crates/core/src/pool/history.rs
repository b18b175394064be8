//! What a decision must know of the ones before it.

use crate::pool::policy::{decide, Decision, Facts, Rule};
use crate::pool::state::PoolState;

/// Time of calm after which the width is reduced (ns). A starved pool after a
/// reduction doubles this time, up to the maximum, so that a steady load keeps the
/// width it needs. A reduction that starves nobody halves it again.
const NARROW_NS: u64 = 50_000_000;
const NARROW_NS_MAX: u64 = 1_600_000_000;

/// The decisions so far.
pub(crate) struct History {
    /// The progress at the last decision.
    progress: u64,
    starved_in_row: u32,
    calm_since_ns: u64,
    narrow_ns: u64,
    /// The width was reduced and the pool has not starved since.
    narrowed: bool,
    switched_ns: u64,
    admitted_ns: u64,
}

impl History {
    pub fn new(now_ns: u64) -> Self {
        Self {
            progress: 0,
            starved_in_row: 0,
            calm_since_ns: now_ns,
            narrow_ns: NARROW_NS,
            narrowed: false,
            switched_ns: 0,
            admitted_ns: 0,
        }
    }

    /// The facts that the pool's state and the decisions so far tell. Those about running
    /// and blocked threads are still missing.
    pub fn facts(&self, state: &PoolState, now_ns: u64) -> Facts {
        let ago = |ns: u64| now_ns.saturating_sub(ns);
        Facts {
            waiting: state.queue.len(),
            progress: state.finished,
            interactive_waiting: state.queue.interactive_len() > 0,
            since_take_ns: ago(state.last_take_ns.max(self.switched_ns)),
            since_wake_ns: ago(state.last_wake_ns.max(self.switched_ns)),
            since_admit_ns: ago(self.admitted_ns),
            calm_ns: ago(self.calm_since_ns),
            awake: state.awake,
            waking: state.waking,
            idle: state.idle.len(),
            spawning: state.spawning,
            width: state.width,
            switched_ns: self.switched_ns,
            narrow_ns: self.narrow_ns,
            ..Facts::default()
        }
    }

    /// Decides and remembers it. `elapsed_ns` is the time since the decision before.
    pub fn decide(&mut self, facts: &Facts, elapsed_ns: u64, now_ns: u64) -> Decision {
        if facts.waiting == 0 {
            self.starved_in_row = 0;
            // Time with nothing to do does not count as calm.
            self.calm_since_ns += elapsed_ns.min(now_ns.saturating_sub(self.calm_since_ns));
        }
        if facts.progress != std::mem::replace(&mut self.progress, facts.progress) {
            self.starved_in_row = 0;
        }
        let starved_in_row = self.starved_in_row + 1;
        let decision = decide(&Facts { starved_in_row, ..*facts });
        match decision.rule {
            Rule::None | Rule::Hogged => {}
            Rule::Starved => {
                self.starved_in_row = starved_in_row;
                if std::mem::take(&mut self.narrowed) {
                    self.narrow_ns = (self.narrow_ns * 2).min(NARROW_NS_MAX);
                }
            }
            Rule::Admitted => self.admitted_ns = now_ns,
            Rule::Calm => {
                if std::mem::replace(&mut self.narrowed, true) {
                    self.narrow_ns = (self.narrow_ns / 2).max(NARROW_NS);
                }
            }
        }
        if matches!(decision.rule, Rule::Starved | Rule::Admitted | Rule::Calm) {
            self.calm_since_ns = now_ns;
        }
        if decision.preempt {
            self.switched_ns = now_ns;
        }
        decision
    }
}
