//! Decides how many Ruby threads may be awake: a pure function of facts.
//!
//! Normally one thread is runnable. Three rules change that while work waits:
//!
//! * *starved*: no pool thread has held or wanted the GVL for a short while
//!   (`blocked_ns`). All of them wait for something else, so another one is woken or
//!   started, and twice as many after every [`STARVED_PER_DOUBLING`] times until some
//!   work finishes or goes on. A shorter block is no reason: a write to a log inside a
//!   database transaction is over sooner.
//! * *hogged*: the work that runs has used the CPU for its quantum. The VM is asked to
//!   switch threads, and if none of the awake threads is done sooner, one more unit of
//!   work begins. The quantum follows the load ([`crate::pool::quantum`]), so that work
//!   of equal length is not interrupted.
//! * *calm*: neither has happened for a while, so the width is reduced.

/// The input of the decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Units of work that wait.
    pub waiting: usize,
    /// Whether some of them are interactive.
    pub interactive_waiting: bool,
    /// Whether a thread outside the pool wants the GVL.
    pub outsider_waiting: bool,
    /// Time in ns for which no pool thread has held or wanted the GVL; 0 while one does.
    pub blocked_ns: u64,
    /// How many times the pool starved before without progress in between.
    pub starved_before: u32,
    /// CPU time in ns that the running work has used since it last got the GVL.
    pub turn_ns: u64,
    /// Whether the work of an awake thread has used less than its quantum.
    pub one_is_quick: bool,
    /// Time in ns since work was last taken, a thread was last woken or the VM was last
    /// asked to switch.
    pub since_change_ns: u64,
    /// Time in ns since one more unit of work began beside a computing one.
    pub since_admit_ns: u64,
    /// Time in ns since the pool starved, a unit of work was admitted, or the width was
    /// reduced.
    pub calm_ns: u64,
    /// Grows when work finishes or goes on after a wait.
    pub progress: u64,
    /// Threads that are not parked.
    pub awake: usize,
    /// Those of them that were woken and have not taken work yet.
    pub waking: usize,
    /// Parked threads.
    pub idle: usize,
    /// Threads that were requested but have not started.
    pub spawning: usize,
    /// Threads that may be awake so far.
    pub width: usize,
    /// Threads that the pool may have.
    pub max: usize,
    /// After this time (ns) without a thread that can run, the pool is starved.
    pub starved_after_ns: u64,
    /// CPU time in ns after which running work makes place.
    pub quantum_ns: u64,
    /// Time of calm in ns after which the width is reduced.
    pub narrow_ns: u64,
}

/// The result of [`decide`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// The new width.
    pub width: usize,
    /// Parked threads to wake.
    pub wake: usize,
    /// Threads to start.
    pub spawn: usize,
    /// Which rule applied.
    pub rule: Rule,
}

impl Decision {
    /// Whether the VM is asked to take the GVL from the running thread.
    pub fn switches(&self) -> bool {
        matches!(self.rule, Rule::Hogged | Rule::Admitted)
    }
}

/// The rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rule {
    /// No rule applied.
    #[default]
    None,
    /// No pool thread could run.
    Starved,
    /// The running work used its quantum.
    Hogged,
    /// The same, and one more unit of work began.
    Admitted,
    /// The width was reduced.
    Calm,
}

/// Work that begins with a short wait must not make the pool as wide as it ever may be
/// before the first of it goes on; 200 long waits must begin within 100 ms.
const STARVED_PER_DOUBLING: u32 = 8;

/// Background work waits beside a computing thread for a quantum of each awake thread,
/// but no longer than this (ns): eight of CRuby's own time slices.
const ADMIT_AFTER_MAX_NS: u64 = 800_000_000;

/// Decides from one set of facts.
pub fn decide(now: &Facts) -> Decision {
    let keep = Decision { width: now.width, ..Decision::default() };
    let hogged = Decision { rule: Rule::Hogged, ..keep };
    let used_up = now.turn_ns >= now.quantum_ns;
    if now.waiting == 0 {
        return if now.outsider_waiting && used_up { hogged } else { keep };
    }
    // A woken thread that cannot take work waits for the GVL, which a thread outside
    // the pool holds.
    let held_up = now.waking > 0 && now.since_change_ns >= now.quantum_ns;
    if now.blocked_ns >= now.starved_after_ns && !held_up {
        let step = 1 << (now.starved_before / STARVED_PER_DOUBLING).min(6);
        return Decision { rule: Rule::Starved, ..widen(now, step) };
    }
    if used_up || held_up {
        let admitted = || Decision { rule: Rule::Admitted, ..widen(now, 1) };
        return if may_admit(now) { admitted() } else { hogged };
    }
    // A thread that was admitted for a job must not find itself one too many.
    let admitted = !now.interactive_waiting && now.waking + now.spawning > 0;
    if now.calm_ns >= now.narrow_ns && now.width > 1 && !admitted {
        let width = now.width - (now.width / 8).max(1);
        return Decision { width, rule: Rule::Calm, ..keep };
    }
    keep
}

/// Whether one more unit of work begins beside the ones that compute. A job or batch
/// would delay the others and hold memory meanwhile, and nobody waits for it: the more
/// threads are awake, the longer the next one waits.
fn may_admit(now: &Facts) -> bool {
    if now.one_is_quick || now.waking + now.spawning > 0 {
        return false;
    }
    let after_ns = now.quantum_ns.saturating_mul(now.awake as u64).min(ADMIT_AFTER_MAX_NS);
    now.interactive_waiting || now.since_admit_ns >= after_ns
}

fn widen(now: &Facts, step: usize) -> Decision {
    let room = now.max.saturating_sub(now.awake + now.spawning);
    let more = step.min(room).min(now.waiting.saturating_sub(now.waking + now.spawning));
    let wake = more.min(now.idle);
    Decision {
        width: now.width.max(now.awake + more).min(now.max),
        wake,
        spawn: more - wake,
        ..Decision::default()
    }
}

#[cfg(test)]
mod tests;
