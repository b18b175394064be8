//! Decides how many Ruby threads may be awake: a pure function of readings.
//!
//! Normally one thread is runnable. More threads help only while user code blocks,
//! and a block shows as a *stall*: work waits, threads hold work, and none of these
//! threads used the CPU. The `width` is the number of threads that may be awake. Each
//! stall increases it, by more with each stall in a row, so that a burst of sleeping
//! requests finds its width in milliseconds. Time without a stall reduces it, so that
//! CPU-bound work returns to one thread. Throughput never starts growth; it only
//! limits it (`growth`).

/// The input of the decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readings {
    /// Units of work that wait.
    pub waiting: usize,
    /// Whether some of them are interactive.
    pub interactive_waiting: bool,
    /// Time in ns since one more unit of work was last admitted beside a computing thread.
    pub since_admit_ns: u64,
    /// No thread that holds work used the CPU since the last observation.
    pub stalled: bool,
    /// The CPU was recently in use nearly all the time, by these threads or by other
    /// processes. False while interactive work waits.
    pub cpu_saturated: bool,
    /// Stalled observations in a row, including this one.
    pub stalls_in_row: u32,
    /// Time in ns since the width was last reduced or a stall was observed.
    pub calm_ns: u64,
    /// Time in ns since work was last taken or the VM was last asked to yield.
    pub since_take_ns: u64,
    /// Time in ns for which the same thread has been using the CPU.
    pub same_runner_ns: u64,
    /// Threads that hold work or are about to take some.
    pub awake: usize,
    /// Those of them that were woken and have not taken work yet.
    pub waking: usize,
    /// Parked threads.
    pub idle: usize,
    /// Threads that were requested but have not started.
    pub spawning: usize,
    /// Threads that may be awake so far.
    pub width: usize,
    /// Threads that the pool may have: its maximum, or less when more did not help.
    pub max: usize,
}

/// Constants of the decision, in ns.
#[derive(Clone, Copy, Debug)]
pub struct Tuning {
    /// Time after which the VM is asked to yield when one thread uses the CPU and no
    /// waiting work was taken.
    pub preempt_ns: u64,
    /// Time without a stall after which the width is reduced.
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
    /// Whether to ask the VM to take the GVL from the running thread.
    pub preempt: bool,
    /// Whether the width was reduced, which restarts `calm_ns`.
    pub narrowed: bool,
    /// Whether one more unit of work is admitted beside a computing thread, which
    /// restarts `since_admit_ns` even when no thread is left to wake.
    pub admit_one: bool,
}

/// How long background work waits beside a computing thread, in multiples of
/// `preempt_ns`. The time doubles with each thread that is awake, up to
/// `ADMIT_DOUBLINGS` times.
const ADMIT_WAIT: u64 = 4;
const ADMIT_DOUBLINGS: usize = 3;

/// Decides from one set of readings.
pub fn decide(now: &Readings, tuning: &Tuning) -> Decision {
    let keep = Decision { width: now.width.min(now.max.max(1)), ..Decision::default() };
    if now.waiting == 0 {
        return keep;
    }
    let held_up = now.waking > 0 && now.since_take_ns >= tuning.preempt_ns;
    if now.stalled && !held_up {
        return widen(now, 1 << now.stalls_in_row.saturating_sub(1).min(6));
    }
    let one_computes =
        now.same_runner_ns >= tuning.preempt_ns && now.since_take_ns >= tuning.preempt_ns;
    if one_computes || now.stalled {
        // Some thread holds the GVL: a pool thread that computes, or, when a woken
        // thread cannot take work, any other thread. The awake threads take turns.
        let admit_one = now.waking == 0 && may_admit(now, tuning);
        let next = if admit_one { widen(now, 1) } else { keep };
        return Decision { preempt: true, admit_one, ..next };
    }
    let expected = !now.interactive_waiting && now.waking + now.spawning > 0;
    if now.calm_ns >= tuning.narrow_ns && keep.width > 1 && !expected {
        let width = keep.width - (keep.width / 8).max(1);
        return Decision { width, narrowed: true, ..keep };
    }
    keep
}

/// Whether one more unit of work may begin beside the threads that compute.
///
/// A request may begin at once, and so may any work while the CPU is not saturated.
/// Otherwise a new job or batch would delay the others and hold memory meanwhile: the
/// more threads are awake, the longer the next one waits.
fn may_admit(now: &Readings, tuning: &Tuning) -> bool {
    if now.interactive_waiting || !now.cpu_saturated {
        return true;
    }
    let beside = (now.awake + now.spawning).saturating_sub(1);
    let wait_ns = (tuning.preempt_ns * ADMIT_WAIT) << beside.min(ADMIT_DOUBLINGS);
    now.since_admit_ns >= wait_ns
}

/// How many threads to end: those that were parked for the whole window, down to the
/// minimum. `idle_low` is the smallest number of parked threads in the window.
pub fn unneeded(idle_low: usize, alive: usize, min: usize) -> usize {
    idle_low.min(alive.saturating_sub(min))
}

fn widen(now: &Readings, step: usize) -> Decision {
    let room = now.max.saturating_sub(now.awake + now.spawning);
    let more = step.min(room).min(now.waiting.saturating_sub(now.waking + now.spawning));
    let wake = more.min(now.idle);
    Decision {
        width: now.width.max(now.awake + more).min(now.max.max(1)),
        wake,
        spawn: more - wake,
        ..Decision::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TUNING: Tuning = Tuning { preempt_ns: 5_000_000, narrow_ns: 50_000_000 };

    fn busy() -> Readings {
        let (interactive_waiting, width) = (true, 1);
        Readings {
            waiting: 10,
            interactive_waiting,
            awake: 1,
            idle: 4,
            width,
            max: 32,
            ..Readings::default()
        }
    }

    fn keep(width: usize) -> Decision {
        Decision { width, ..Decision::default() }
    }

    fn check(cases: &[(&str, Readings, Decision)]) {
        for (name, readings, expected) in cases {
            assert_eq!(decide(readings, &TUNING), *expected, "{name}");
        }
    }

    #[test]
    fn a_stall_increases_the_width() {
        check(&[
            ("nothing waits", Readings { waiting: 0, stalled: true, ..busy() }, keep(1)),
            ("one thread at work", busy(), keep(1)),
            (
                "first stall wakes one",
                Readings { stalled: true, stalls_in_row: 1, ..busy() },
                Decision { width: 2, wake: 1, ..keep(2) },
            ),
            (
                "stalls in a row double, started where none is parked",
                Readings { stalled: true, stalls_in_row: 4, ..busy() },
                Decision { width: 9, wake: 4, spawn: 4, ..keep(9) },
            ),
            (
                "never more than wait",
                Readings { stalled: true, stalls_in_row: 4, waiting: 2, ..busy() },
                Decision { width: 3, wake: 2, ..keep(3) },
            ),
            (
                "never over the maximum",
                Readings { stalled: true, stalls_in_row: 4, max: 3, idle: 0, ..busy() },
                Decision { width: 3, spawn: 2, ..keep(3) },
            ),
            (
                "threads already asked for count",
                Readings {
                    stalled: true,
                    stalls_in_row: 1,
                    max: 3,
                    idle: 0,
                    spawning: 2,
                    ..busy()
                },
                keep(1),
            ),
        ]);
    }

    #[test]
    fn a_computing_thread_is_preempted_and_time_without_stalls_reduces_the_width() {
        check(&[
            (
                "a computing thread is preempted and another one woken",
                Readings { since_take_ns: 5_000_000, same_runner_ns: 5_000_000, ..busy() },
                Decision { width: 2, wake: 1, preempt: true, admit_one: true, ..keep(2) },
            ),
            (
                "it is only preempted when another one is waking",
                Readings {
                    since_take_ns: 6_000_000,
                    same_runner_ns: 6_000_000,
                    waking: 1,
                    awake: 2,
                    ..busy()
                },
                Decision { preempt: true, ..keep(1) },
            ),
            (
                "threads that take turns are not preempted",
                Readings { since_take_ns: 9_000_000, same_runner_ns: 1_000_000, ..busy() },
                keep(1),
            ),
            (
                "a woken thread that cannot take work waits for the GVL",
                Readings {
                    stalled: true,
                    stalls_in_row: 9,
                    since_take_ns: 6_000_000,
                    waking: 1,
                    awake: 2,
                    ..busy()
                },
                Decision { preempt: true, ..keep(1) },
            ),
            (
                "calm narrows by one",
                Readings { width: 4, calm_ns: 50_000_000, ..busy() },
                Decision { narrowed: true, ..keep(3) },
            ),
            (
                "calm narrows a wide pool faster",
                Readings { width: 300, max: 512, calm_ns: 50_000_000, ..busy() },
                Decision { narrowed: true, ..keep(263) },
            ),
            ("never below one", Readings { width: 1, calm_ns: u64::MAX, ..busy() }, keep(1)),
        ]);
    }

    #[test]
    fn each_further_job_waits_longer_beside_computing_threads() {
        let computing = |awake, since_admit_ms: u64| Readings {
            since_take_ns: 5_000_000,
            same_runner_ns: 5_000_000,
            since_admit_ns: since_admit_ms * 1_000_000,
            cpu_saturated: true,
            interactive_waiting: false,
            awake,
            width: awake,
            ..busy()
        };
        let preempts = |width| Decision { preempt: true, ..keep(width) };
        let admits = |width| Decision { wake: 1, admit_one: true, ..preempts(width) };
        check(&[
            ("a second job begins", computing(1, 20), admits(2)),
            ("only after some time", computing(1, 19), preempts(1)),
            ("a third one waits longer", computing(2, 39), preempts(2)),
            ("then it begins", computing(2, 40), admits(3)),
            ("a fifth one waits still longer", computing(4, 159), preempts(4)),
            ("and begins", computing(4, 160), admits(5)),
            ("the wait has a maximum", computing(20, 160), admits(21)),
            (
                "all threads are awake",
                Readings { max: 20, ..computing(20, 160) },
                Decision { wake: 0, ..admits(20) },
            ),
            (
                "the CPU is not saturated",
                Readings { cpu_saturated: false, ..computing(4, 0) },
                admits(5),
            ),
            (
                "a request begins at once",
                Readings { interactive_waiting: true, ..computing(4, 0) },
                admits(5),
            ),
            ("a thread is waking", Readings { waking: 1, ..computing(4, 160) }, preempts(4)),
            ("a thread is starting", Readings { spawning: 1, ..computing(3, 159) }, preempts(3)),
            (
                "a starting thread counts as awake",
                Readings { spawning: 1, ..computing(3, 160) },
                admits(4),
            ),
        ]);
    }

    #[test]
    fn the_width_stays_while_a_thread_is_waking_for_a_job() {
        let calm = Readings {
            interactive_waiting: false,
            awake: 2,
            width: 4,
            calm_ns: 50_000_000,
            ..busy()
        };
        let narrowed = Decision { narrowed: true, ..keep(3) };
        check(&[
            ("no thread is waking", calm, narrowed),
            ("one was woken", Readings { waking: 1, ..calm }, keep(4)),
            ("one is starting", Readings { spawning: 1, ..calm }, keep(4)),
            (
                "a request waits",
                Readings { interactive_waiting: true, waking: 1, ..calm },
                narrowed,
            ),
        ]);
    }

    #[test]
    fn threads_that_were_parked_for_the_whole_window_are_unneeded() {
        for (idle_low, alive, min, expected) in
            [(0, 8, 1, 0), (3, 8, 1, 3), (8, 8, 1, 7), (2, 2, 5, 0)]
        {
            assert_eq!(unneeded(idle_low, alive, min), expected);
        }
    }

    #[test]
    fn decisions_stay_within_their_bounds() {
        for waiting in 0..4 {
            for awake in 0..5 {
                for idle in 0..4 {
                    for stalls in 0..9 {
                        for max in 1..6 {
                            let now = Readings {
                                waiting,
                                stalled: stalls > 0,
                                stalls_in_row: stalls,
                                awake,
                                idle,
                                width: awake.max(1).min(max),
                                max,
                                ..Readings::default()
                            };
                            let d = decide(&now, &TUNING);
                            assert!(d.width >= 1 && d.width <= max, "{now:?} {d:?}");
                            assert!(d.wake <= idle && d.wake + d.spawn <= waiting, "{now:?} {d:?}");
                            assert!(awake >= max || awake + d.wake + d.spawn <= max, "{now:?}");
                        }
                    }
                }
            }
        }
    }
}
