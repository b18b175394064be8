//! How often the scheduler observes the pool while work waits.

use crate::pool::policy::Readings;
use crate::pool::sampler::observations_for_all;

/// The interval grows up to this many times `stall_ns` while all goes well.
pub const INTERVAL_FACTOR_MAX: u64 = 8;
/// Units of work taken between two observations that count as quick progress.
const QUICK_TAKES: u64 = 8;
/// The same bound while work takes longer but nothing stalls: a stall is then seen
/// within 0.4 ms, at half the cost.
const CALM_FACTOR_MAX: u64 = 2;
/// While the CPU is saturated and no request waits: observations within the time after
/// which a computing thread is preempted, if that makes fewer of them.
const SATURATED_OBSERVATIONS: u64 = 5;
/// Time in which each thread is read once while no thread is left to wake. A
/// computing thread may be noticed that late.
const FULL_NS: u64 = 1_600_000;

/// The time until the next observation, in multiples of `stall_ns`.
pub fn interval_factor(seen: &Readings, takes: u64, stall_ns: u64, preempt_ns: u64) -> u64 {
    // All threads are awake. If they block, there is nothing to decide until one of
    // them finishes its work, and that one takes the next by itself.
    let full = seen.waking == 0 && seen.awake + seen.spawning >= seen.max;
    let factor = |within_ns| within_ns / (stall_ns * observations_for_all(seen.awake)).max(1);
    match seen.stalled {
        true if full => factor(FULL_NS).clamp(1, INTERVAL_FACTOR_MAX),
        true => 1,
        false if takes >= QUICK_TAKES => INTERVAL_FACTOR_MAX,
        false if seen.cpu_saturated && !seen.interactive_waiting => {
            factor(preempt_ns / SATURATED_OBSERVATIONS).clamp(CALM_FACTOR_MAX, INTERVAL_FACTOR_MAX)
        }
        false => CALM_FACTOR_MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn observes_often_only_when_that_could_help() {
        let stalled = Readings { stalled: true, awake: 4, max: 8, ..Readings::default() };
        let cpu_saturated = Readings { stalled: false, cpu_saturated: true, ..stalled };
        for (name, seen, takes, factor) in [
            ("a stall while threads can be woken", stalled, 0, 1),
            ("the same while much work is taken", stalled, 99, 1),
            ("all threads are awake", Readings { awake: 8, ..stalled }, 0, INTERVAL_FACTOR_MAX),
            ("or starting", Readings { awake: 6, spawning: 2, ..stalled }, 0, INTERVAL_FACTOR_MAX),
            (
                "one observation cannot read all threads",
                Readings { awake: 32, max: 32, ..stalled },
                0,
                4,
            ),
            ("it reads few of many threads", Readings { awake: 300, max: 300, ..stalled }, 0, 1),
            (
                "one was woken and waits for the GVL",
                Readings { awake: 8, waking: 1, ..stalled },
                0,
                1,
            ),
            ("quick work", Readings { stalled: false, ..stalled }, 8, INTERVAL_FACTOR_MAX),
            ("slow work", Readings { stalled: false, ..stalled }, 7, CALM_FACTOR_MAX),
            ("a saturated CPU", cpu_saturated, 7, 4),
            ("a saturated CPU and many threads", Readings { awake: 40, ..cpu_saturated }, 7, 2),
            (
                "a request waits",
                Readings { interactive_waiting: true, ..cpu_saturated },
                7,
                CALM_FACTOR_MAX,
            ),
        ] {
            assert_eq!(interval_factor(&seen, takes, 200_000, 4_000_000), factor, "{name}");
        }
    }

    /// `Growth` ignores longer pauses: its first stage would never end.
    #[test]
    fn each_thread_of_a_full_pool_is_read_in_time() {
        for stall_ns in [10_000, 200_000, 1_000_000, 3_000_000, 1_000_000_000] {
            for awake in [1, 16, 23, 24, 32, 100, 512] {
                let seen = Readings { stalled: true, awake, max: awake, ..Readings::default() };
                let interval = interval_factor(&seen, 0, stall_ns, 4_000_000) * stall_ns;
                let all = interval * observations_for_all(awake);
                assert!(interval == stall_ns || all <= FULL_NS, "{stall_ns} {awake}: {all}");
            }
        }
    }
}
