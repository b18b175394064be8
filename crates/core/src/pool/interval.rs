//! How often the scheduler looks while units wait.

use crate::pool::policy::Readings;
use crate::pool::sampler::looks_for_all;

/// The interval grows up to this many times `stall_ns` while all goes well.
pub const INTERVAL_FACTOR_MAX: u64 = 8;
/// Units taken between two looks that count as quick progress.
const QUICK_TAKES: u64 = 8;
/// The same factor while units take longer but nothing stalls: a stall is then
/// seen within 0.4 ms, and looking costs half.
const CALM_FACTOR_MAX: u64 = 2;
/// While the CPU is used nearly all the time and no request waits, so many looks
/// fall into the time after which a hog is preempted, where they are fewer.
const HOG_LOOKS: u64 = 5;
/// Time in which each thread is looked at once while nobody is left to wake:
/// that late a hog may be seen.
const FULL_NS: u64 = 1_600_000;

/// How many times `stall_ns` may go by until the next look.
pub fn interval_factor(seen: &Readings, takes: u64, stall_ns: u64, preempt_ns: u64) -> u64 {
    // All that may be awake are, and seem to sleep: until one of them ends its
    // unit and takes the next by itself, there is nothing to decide.
    let full = seen.waking == 0 && seen.awake + seen.spawning >= seen.max;
    let factor = |within_ns| within_ns / (stall_ns * looks_for_all(seen.awake)).max(1);
    match seen.stalled {
        true if full => factor(FULL_NS).clamp(1, INTERVAL_FACTOR_MAX),
        true => 1,
        false if takes >= QUICK_TAKES => INTERVAL_FACTOR_MAX,
        false if seen.cpu_saturated && !seen.interactive_waiting => {
            factor(preempt_ns / HOG_LOOKS).clamp(CALM_FACTOR_MAX, INTERVAL_FACTOR_MAX)
        }
        false => CALM_FACTOR_MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_often_only_where_it_could_help() {
        let stalled = Readings { stalled: true, awake: 4, max: 8, ..Readings::default() };
        let cpu_saturated = Readings { stalled: false, cpu_saturated: true, ..stalled };
        for (name, seen, takes, factor) in [
            ("a stall that can be helped", stalled, 0, 1),
            ("however many were taken", stalled, 99, 1),
            ("everybody is awake", Readings { awake: 8, ..stalled }, 0, INTERVAL_FACTOR_MAX),
            ("or starts", Readings { awake: 6, spawning: 2, ..stalled }, 0, INTERVAL_FACTOR_MAX),
            ("a look cannot see all", Readings { awake: 32, max: 32, ..stalled }, 0, 4),
            ("it sees few of many", Readings { awake: 300, max: 300, ..stalled }, 0, 1),
            ("but one does not get on", Readings { awake: 8, waking: 1, ..stalled }, 0, 1),
            ("quick units", Readings { stalled: false, ..stalled }, 8, INTERVAL_FACTOR_MAX),
            ("slow units", Readings { stalled: false, ..stalled }, 7, CALM_FACTOR_MAX),
            ("that compute", cpu_saturated, 7, 4),
            ("many of them", Readings { awake: 40, ..cpu_saturated }, 7, 2),
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

    /// `Growth` leaves out longer pauses: it would wait for the end of its
    /// first stage for ever.
    #[test]
    fn each_thread_of_a_full_pool_is_seen_in_time() {
        for stall_ns in [10_000, 200_000, 1_000_000, 3_000_000, 1_000_000_000] {
            for awake in [1, 16, 23, 24, 32, 100, 512] {
                let seen = Readings { stalled: true, awake, max: awake, ..Readings::default() };
                let interval = interval_factor(&seen, 0, stall_ns, 4_000_000) * stall_ns;
                let all = interval * looks_for_all(awake);
                assert!(interval == stall_ns || all <= FULL_NS, "{stall_ns} {awake}: {all}");
            }
        }
    }
}
