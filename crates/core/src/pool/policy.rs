//! How many Ruby threads may be awake: a pure decision on readings.
//!
//! One runnable thread is the normal state. More help only while user code
//! blocks, and a block shows as a *stall*: units wait, threads hold work, and
//! none of those threads used the CPU. The `width` is the number of threads
//! allowed to be awake. Each stall widens it, doubling while stalls follow one
//! another (a burst of sleeping requests finds its width in milliseconds);
//! time without a stall narrows it, so that CPU-bound work returns to one.
//! Throughput is never the signal for growth, only for stopping it (`growth`).

/// What the decision looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readings {
    /// Units waiting.
    pub waiting: usize,
    /// Some of them wait in the first class: somebody waits for the answer.
    pub interactive_waiting: bool,
    /// Time in ns since one more unit was last to be begun beside a hog.
    pub since_admit_ns: u64,
    /// No thread that holds work used the CPU since the last look.
    pub stalled: bool,
    /// Of late they used it nearly all the time, or were held back by neighbours.
    /// Only read where nothing is interactive_waiting.
    pub cpu_saturated: bool,
    /// Looks in a row, this one included, that were stalled.
    pub stalled_looks: u32,
    /// Time in ns since the width last narrowed or a stall was seen.
    pub calm_ns: u64,
    /// Time in ns since a unit was last taken, or the VM last asked to yield.
    pub since_take_ns: u64,
    /// Time in ns for which one and the same thread has been using the CPU.
    pub same_runner_ns: u64,
    /// Threads that hold work or are on their way to take some.
    pub awake: usize,
    /// Of these, the ones woken that have not taken anything yet.
    pub waking: usize,
    /// Threads parked.
    pub idle: usize,
    /// Threads asked for but not started yet.
    pub spawning: usize,
    /// Threads allowed to be awake so far.
    pub width: usize,
    /// Threads the pool may have: its maximum, or less where more did not help.
    pub max: usize,
}

/// Constants of the decision, in ns.
#[derive(Clone, Copy, Debug)]
pub struct Tuning {
    /// One thread uses the CPU and nothing was taken for this long while units
    /// wait: ask the VM to yield.
    pub preempt_ns: u64,
    /// Time without a stall after which the width narrows.
    pub narrow_ns: u64,
}

/// What to do.
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
    /// Whether the width narrowed, which restarts `calm_ns`.
    pub narrowed: bool,
    /// Whether one more unit is to be begun beside a hog, which restarts
    /// `since_admit_ns`, also where all threads are awake.
    pub admit_one: bool,
}

/// What a unit that is not interactive_waiting waits beside a hog, in times of `preempt_ns`; it
/// doubles with each thread that is awake, this often at most.
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
        return widen(now, 1 << now.stalled_looks.saturating_sub(1).min(6));
    }
    let hogged = now.same_runner_ns >= tuning.preempt_ns && now.since_take_ns >= tuning.preempt_ns;
    if hogged || now.stalled {
        // Somebody holds the GVL: a thread of ours at work, or, when a woken
        // one does not get to take, any other. Those that have begun take turns.
        let begins = now.waking == 0 && may_begin(now, tuning);
        let ready = if begins { widen(now, 1) } else { keep };
        return Decision { preempt: true, admit_one: begins, ..ready };
    }
    let awaited = !now.interactive_waiting && now.waking + now.spawning > 0;
    if now.calm_ns >= tuning.narrow_ns && keep.width > 1 && !awaited {
        let width = keep.width - (keep.width / 8).max(1);
        return Decision { width, narrowed: true, ..keep };
    }
    keep
}

/// Whether one more unit is begun beside those that compute.
///
/// A request is at once, and so is anything that could use what they leave of the
/// CPU. Else a job or a batch that begins lets none of them end sooner, and holds
/// memory all the while: the more are awake, the longer the next one waits.
fn may_begin(now: &Readings, tuning: &Tuning) -> bool {
    if now.interactive_waiting || !now.cpu_saturated {
        return true;
    }
    let beside = (now.awake + now.spawning).saturating_sub(1);
    let wait_ns = (tuning.preempt_ns * ADMIT_WAIT) << beside.min(ADMIT_DOUBLINGS);
    now.since_admit_ns >= wait_ns
}

/// Threads to send away: those that stayed parked for the whole window, down
/// to the minimum. `idle_low` is the least number parked at any time in it.
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
    fn a_stall_widens() {
        check(&[
            ("nothing waits", Readings { waiting: 0, stalled: true, ..busy() }, keep(1)),
            ("one thread at work", busy(), keep(1)),
            (
                "first stall wakes one",
                Readings { stalled: true, stalled_looks: 1, ..busy() },
                Decision { width: 2, wake: 1, ..keep(2) },
            ),
            (
                "stalls in a row double, started where none is parked",
                Readings { stalled: true, stalled_looks: 4, ..busy() },
                Decision { width: 9, wake: 4, spawn: 4, ..keep(9) },
            ),
            (
                "never more than wait",
                Readings { stalled: true, stalled_looks: 4, waiting: 2, ..busy() },
                Decision { width: 3, wake: 2, ..keep(3) },
            ),
            (
                "never over the maximum",
                Readings { stalled: true, stalled_looks: 4, max: 3, idle: 0, ..busy() },
                Decision { width: 3, spawn: 2, ..keep(3) },
            ),
            (
                "threads already asked for count",
                Readings {
                    stalled: true,
                    stalled_looks: 1,
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
    fn a_hog_is_preempted_and_calm_narrows() {
        check(&[
            (
                "a hog is preempted and someone made ready",
                Readings { since_take_ns: 5_000_000, same_runner_ns: 5_000_000, ..busy() },
                Decision { width: 2, wake: 1, preempt: true, admit_one: true, ..keep(2) },
            ),
            (
                "a hog with someone ready is only preempted",
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
                "threads that take turns at the CPU are no hogs",
                Readings { since_take_ns: 9_000_000, same_runner_ns: 1_000_000, ..busy() },
                keep(1),
            ),
            (
                "a woken thread that cannot take is held up by the GVL, not by a stall",
                Readings {
                    stalled: true,
                    stalled_looks: 9,
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
    fn jobs_are_begun_beside_hogs_ever_later() {
        let hog = |awake, since_guest_ms: u64| Readings {
            since_take_ns: 5_000_000,
            same_runner_ns: 5_000_000,
            since_admit_ns: since_guest_ms * 1_000_000,
            cpu_saturated: true,
            interactive_waiting: false,
            awake,
            width: awake,
            ..busy()
        };
        let turns = |width| Decision { preempt: true, ..keep(width) };
        let begins = |width| Decision { wake: 1, admit_one: true, ..turns(width) };
        check(&[
            ("one beside the first", hog(1, 20), begins(2)),
            ("after some time", hog(1, 19), turns(1)),
            ("two take turns", hog(2, 39), turns(2)),
            ("before there are three", hog(2, 40), begins(3)),
            ("four for longer", hog(4, 159), turns(4)),
            ("before there are five", hog(4, 160), begins(5)),
            ("and many no longer than that", hog(20, 160), begins(21)),
            (
                "at most all",
                Readings { max: 20, ..hog(20, 160) },
                Decision { wake: 0, ..begins(20) },
            ),
            (
                "they leave some of the CPU",
                Readings { cpu_saturated: false, ..hog(4, 0) },
                begins(5),
            ),
            (
                "a request waits for none",
                Readings { interactive_waiting: true, ..hog(4, 0) },
                begins(5),
            ),
            ("one is on its way", Readings { waking: 1, ..hog(4, 160) }, turns(4)),
            ("one starts", Readings { spawning: 1, ..hog(3, 159) }, turns(3)),
            ("that never arrives", Readings { spawning: 1, ..hog(3, 160) }, begins(4)),
        ]);
    }

    #[test]
    fn calm_does_not_send_away_a_job_that_is_on_its_way() {
        let calm = Readings {
            interactive_waiting: false,
            awake: 2,
            width: 4,
            calm_ns: 50_000_000,
            ..busy()
        };
        let narrowed = Decision { narrowed: true, ..keep(3) };
        check(&[
            ("nobody is", calm, narrowed),
            ("woken", Readings { waking: 1, ..calm }, keep(4)),
            ("started", Readings { spawning: 1, ..calm }, keep(4)),
            (
                "requests find others",
                Readings { interactive_waiting: true, waking: 1, ..calm },
                narrowed,
            ),
        ]);
    }

    #[test]
    fn only_threads_unused_for_the_window_leave() {
        for (idle_low, alive, min, expected) in
            [(0, 8, 1, 0), (3, 8, 1, 3), (8, 8, 1, 7), (2, 2, 5, 0)]
        {
            assert_eq!(unneeded(idle_low, alive, min), expected);
        }
    }

    #[test]
    fn stays_within_its_bounds_for_all_small_readings() {
        for waiting in 0..4 {
            for awake in 0..5 {
                for idle in 0..4 {
                    for looks in 0..9 {
                        for max in 1..6 {
                            let now = Readings {
                                waiting,
                                stalled: looks > 0,
                                stalled_looks: looks,
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
