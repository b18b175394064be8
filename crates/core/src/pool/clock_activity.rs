//! What the threads do, by their CPU clocks (before CRuby 3.3).
//!
//! While work waits, the clocks are read every `stall_ms`, less often while that could
//! not help. Threads that used less than a quarter of one CPU together have blocked,
//! unless one of them is runnable: it lost its CPU to another process.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

use crate::pool::observer::{Activity, ARRIVAL_NS};
use crate::pool::policy::{Decision, Facts, Rule};
use crate::pool::state::{Member, Place, PoolState};
use crate::pool::thread_record::ThreadRecord;

/// Threads read at once: few enough to be cheap, always with the one that ran last.
const SAMPLE_MAX: usize = 24;
/// Threads that use less than this share of one CPU together count as blocked.
const UNUSED: f64 = 0.25;
/// The time between two readings grows up to this many times `stall_ms`.
const PAUSE_FACTOR_MAX: u64 = 8;
/// The same bound while work takes longer but nothing blocks: a block is then seen
/// within twice `stall_ms`, at half the cost.
const CALM_FACTOR_MAX: u64 = 2;
/// Units of work taken between two readings that count as quick progress.
const QUICK_TAKES: u64 = 8;

/// Reads the clocks.
pub(crate) struct ClockActivity {
    stall_ns: u64,
    pause_ns: u64,
    read_at_ns: u64,
    /// The thread that used the CPU most at the last reading, and since when it alone
    /// has.
    last_runner: usize,
    runner_since_ns: u64,
    /// Since when the runner's time counts, and the CPU time that it has used since.
    turn_since_ns: u64,
    turn_cpu_ns: u64,
    /// Hardly any CPU time was used before the last reading.
    is_unused: bool,
    next: usize,
    /// Units of work taken until the last reading, and since the one before it.
    taken: u64,
    pub takes: u64,
    /// Readings at which work went on.
    returns: u64,
}

impl ClockActivity {
    /// Reads every `stall_ns` at most.
    pub fn new(stall_ns: u64, now_ns: u64) -> Self {
        Self {
            stall_ns,
            pause_ns: stall_ns,
            read_at_ns: now_ns,
            last_runner: usize::MAX,
            runner_since_ns: 0,
            turn_since_ns: 0,
            turn_cpu_ns: 0,
            is_unused: false,
            next: 0,
            taken: 0,
            takes: 0,
            returns: 0,
        }
    }

    /// The thread that ran last, and others that are not parked. When there are too
    /// many for one reading, the next one continues with the rest.
    fn pick<'a>(&mut self, threads: &'a [Option<Member>]) -> Vec<&'a Arc<ThreadRecord>> {
        let last = threads.get(self.last_runner).into_iter().flatten();
        let (front, back) = threads.split_at(self.next.min(threads.len()));
        let others =
            back.iter().chain(front).flatten().filter(|member| member.place != Place::Parked);
        let others = others.filter(|member| member.record.index != self.last_runner);
        let sample = last.chain(others).map(|member| &member.record);
        let sample: Vec<_> = sample.take(SAMPLE_MAX).collect();
        self.next = sample.last().map_or(0, |thread| thread.index + 1);
        sample
    }

    /// Notes which thread used the CPU most: `most` of the `used` ns of all. When
    /// nothing was used (the kernel ran other processes), the last one is still the
    /// runner.
    fn note_runner(&mut self, runner: usize, most: u64, used: u64, now_ns: u64) {
        if runner != self.last_runner || most * 4 < used * 3 {
            self.runner_since_ns = now_ns;
        }
        self.last_runner = runner;
    }

    /// The CPU time that the runner has used for its work since `since_ns`, with the `cpu_ns` of the last interval.
    /// Time in which it waits does not count: work that writes to a disk inside a database transaction has not
    /// computed, and would lose the GVL while it holds the database's lock.
    fn turn_ns(&mut self, since_ns: u64, cpu_ns: u64, now_ns: u64) -> u64 {
        if std::mem::replace(&mut self.turn_since_ns, since_ns) != since_ns {
            self.turn_cpu_ns = 0;
        }
        self.turn_cpu_ns = (self.turn_cpu_ns + cpu_ns).min(now_ns.saturating_sub(since_ns));
        self.turn_cpu_ns
    }
}

/// Whether the threads used less than this much of the CPU since each was last read.
/// Called only when a part of the threads has used too little: one of the rest may be the
/// one that computes.
fn unused(threads: &[Option<Member>], enough_ns: u64) -> bool {
    let awake = threads.iter().flatten().filter(|member| member.place != Place::Parked);
    awake.map(|member| member.record.cpu_since_last_read_ns()).sum::<u64>() < enough_ns
}

impl Activity for ClockActivity {
    /// The clocks do not tell a thread that waits for the GVL from one that waits for
    /// IO. So work counts as quick while it was taken within the quantum.
    fn observe(
        &mut self,
        state: &PoolState,
        facts: &mut Facts,
        now_ns: u64,
    ) -> Option<Arc<ThreadRecord>> {
        let elapsed_ns = now_ns.saturating_sub(std::mem::replace(&mut self.read_at_ns, now_ns));
        let taken = state.totals.taken;
        self.takes = taken - std::mem::replace(&mut self.taken, taken);
        if facts.waiting == 0 {
            facts.quantum_ns = state.quantum_ns(None);
            return None;
        }
        let sample = self.pick(&state.threads);
        let (mut used, mut most, mut runner) = (0, 0, self.last_runner);
        for thread in &sample {
            let cpu_ns = thread.cpu_since_last_read_ns().min(elapsed_ns);
            used += cpu_ns;
            if cpu_ns > most {
                (most, runner) = (cpu_ns, thread.index);
            }
        }
        self.note_runner(runner, most, used, now_ns);
        let enough_ns = (UNUSED * elapsed_ns as f64) as u64;
        self.is_unused = used < enough_ns;
        let woken_ago_ns = now_ns.saturating_sub(state.last_wake_ns);
        // Time was lost only if some work waited during all of it.
        let blocked = used < enough_ns
            && state.queue.oldest_age_ns(now_ns) >= elapsed_ns
            && elapsed_ns >= self.stall_ns / 2
            && !(facts.waking > 0 && woken_ago_ns < ARRIVAL_NS)
            && !sample.iter().any(|thread| thread.probe.is_runnable())
            // A thread that is woken now would only wait for the GVL. SQLite writes to the disk with it, too.
            && !sample.iter().filter(|thread| thread.has_work()).any(|thread| {
                thread.probe.sleeps_in_c() || (state.is_patient && thread.probe.waits_for_disk())
            })
            && (facts.awake <= sample.len() || unused(&state.threads, enough_ns - used));
        facts.blocked_ns = if blocked { elapsed_ns } else { 0 };
        self.returns += u64::from(used >= enough_ns && self.takes == 0 && facts.waking == 0);
        facts.progress += self.returns;
        let runner = state.threads.get(self.last_runner).and_then(Option::as_ref);
        let runner = runner.map(|member| member.record.clone());
        facts.quantum_ns = state.quantum_ns(runner.as_ref().and_then(|runner| runner.role()));
        let took_ns = state.last_take_ns.max(state.last_switch_ns);
        facts.one_is_quick = now_ns.saturating_sub(took_ns) < facts.quantum_ns;
        if let Some(runner) = runner.as_ref().filter(|runner| runner.has_work()) {
            let since_ns = runner.work_since_ns.load(Relaxed).max(state.last_switch_ns);
            let turn_ns = self.turn_ns(since_ns.max(self.runner_since_ns), most, now_ns);
            facts.turn_ns = turn_ns.min(facts.quantum_ns);
        }
        runner
    }

    /// A thread that waits for the GVL sleeps on a futex.
    fn sleeper(&self, state: &PoolState) -> Option<Arc<ThreadRecord>> {
        if !self.is_unused {
            return None;
        }
        let at_work = || state.records().filter(|thread| thread.has_work()).take(SAMPLE_MAX);
        let sleeper = at_work().find(|thread| thread.probe.sleeps_in_c())?;
        let waits = |thread: &Arc<ThreadRecord>| {
            thread.probe.wait_channel().is_some_and(|channel| channel.contains("futex"))
        };
        at_work().any(waits).then(|| sleeper.clone())
    }

    fn pause_ns(&mut self, facts: &Facts, made: &Decision) -> u64 {
        let full = facts.waking == 0 && facts.awake + facts.spawning >= facts.max;
        let woken = made.wake + made.spawn > 0;
        let factor_max = match made.rule {
            Rule::Starved if woken => 1,
            // There is nothing to decide until a thread ends its work.
            Rule::Starved => PAUSE_FACTOR_MAX,
            _ if full || !facts.interactive_waiting || self.takes >= QUICK_TAKES => {
                PAUSE_FACTOR_MAX
            }
            _ => CALM_FACTOR_MAX,
        };
        self.pause_ns = (self.pause_ns * 2).min(self.stall_ns * factor_max);
        self.pause_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::quantum::CpuTimes;
    use crate::pool::queue::WorkQueue;
    use crate::pool::state::Take;
    use crate::sync::Parker;

    fn threads(parked: &[bool]) -> PoolState {
        let mut state = PoolState::new(WorkQueue::new(10), CpuTimes::new(0), 0);
        for parked in parked {
            let unparker = Parker::new().unparker().clone();
            let record = state.enter(|index| Arc::new(ThreadRecord::current(index, unparker)));
            if *parked {
                assert!(matches!(state.take(record.index, 0, &mut vec![]), Take::Wait));
            }
        }
        state
    }

    fn activity() -> ClockActivity {
        ClockActivity::new(200_000, 0)
    }

    #[test]
    fn picks_the_last_runner_first_and_no_parked_threads() {
        let all = threads(&[false, true, false, false]);
        let mut activity = ClockActivity { last_runner: 3, ..activity() };
        let seen: Vec<usize> = activity.pick(&all.threads).iter().map(|e| e.index).collect();
        assert_eq!(seen, [3, 0, 2]);
    }

    #[test]
    fn picks_every_thread_in_turn() {
        let all = threads(&[false; 100]);
        let mut activity = activity();
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..100_usize.div_ceil(SAMPLE_MAX - 1) {
            seen.extend(activity.pick(&all.threads).iter().map(|e| e.index));
        }
        assert_eq!(seen.len(), 100);
    }

    #[test]
    fn a_runner_counts_from_when_it_alone_used_the_cpu() {
        let mut activity = activity();
        for (runner, most, used, now, since) in [
            (1, 9, 9, 10, 10),
            (1, 8, 9, 20, 10),
            (1, 0, 0, 25, 10),
            (1, 5, 9, 30, 30),
            (2, 9, 9, 40, 40),
        ] {
            activity.note_runner(runner, most, used, now);
            assert_eq!(activity.runner_since_ns, since);
        }
    }

    #[test]
    fn a_thread_that_sleeps_in_c_is_seen_while_another_one_waits() {
        let (tx, rx) = std::sync::mpsc::channel();
        let (stop, wait) = std::sync::mpsc::channel::<()>();
        let record = |index| ThreadRecord::current(index, Parker::new().unparker().clone());
        let records = tx.clone();
        std::thread::spawn(move || {
            records.send(record(0)).unwrap();
            // Longer than the test takes on a busy machine; nobody waits for it.
            std::thread::sleep(std::time::Duration::from_secs(60));
        });
        std::thread::spawn(move || {
            tx.send(record(1)).unwrap();
            let _ = wait.recv();
        });
        let (mut state, mut activity) = (threads(&[]), activity());
        let mut records = [rx.recv().unwrap(), rx.recv().unwrap()];
        records.sort_by_key(|record| record.index);
        for record in records {
            record.work_since_ns.store(1, Relaxed);
            while record.probe.is_runnable() {
                std::thread::yield_now();
            }
            assert!(activity.sleeper(&state).is_none(), "it is alone");
            state.enter(|_| Arc::new(record));
            activity.is_unused = true;
        }
        // Both may still be on their way to where they wait.
        let started = std::time::Instant::now();
        let seen = loop {
            match activity.sleeper(&state) {
                Some(seen) => break seen.index,
                None => assert!(started.elapsed().as_secs() < 50, "nobody is seen"),
            }
            std::thread::yield_now();
        };
        assert_eq!(seen, 0);
        activity.is_unused = false;
        assert!(activity.sleeper(&state).is_none(), "somebody computes");
        drop(stop);
    }

    #[test]
    fn only_cpu_time_counts_as_a_turn() {
        let mut activity = activity();
        for (since, cpu, now, turn) in [
            (100, 50, 110, 10),
            (100, 0, 900, 10),
            (100, 5, 910, 15),
            (905, 9, 920, 9),
            (905, 9, 930, 18),
        ] {
            assert_eq!(activity.turn_ns(since, cpu, now), turn, "{now}");
        }
    }

    #[test]
    fn reads_often_only_when_that_could_help() {
        let waiting =
            Facts { waiting: 3, interactive_waiting: true, awake: 4, max: 8, ..Facts::default() };
        let starved = Decision { rule: Rule::Starved, ..Decision::default() };
        let none = Decision::default();
        for (name, facts, made, takes, factor) in [
            ("threads were woken", waiting, Decision { wake: 1, ..starved }, 99, 1),
            ("threads were started", waiting, Decision { spawn: 1, ..starved }, 0, 1),
            ("none is left to wake", waiting, starved, 0, 8),
            ("all threads are awake", Facts { awake: 8, ..waiting }, none, 0, 8),
            ("quick work", waiting, none, 8, 8),
            ("slow work", waiting, none, 7, 2),
            (
                "nobody waits for the work",
                Facts { interactive_waiting: false, ..waiting },
                none,
                0,
                8,
            ),
        ] {
            let mut activity = ClockActivity { takes, ..activity() };
            let pauses = (0..5).map(|_| activity.pause_ns(&facts, &made));
            assert_eq!(pauses.last(), Some(factor * 200_000), "{name}");
        }
    }
}
