//! Leaves work alone where switching threads brings the program to a halt.
//!
//! A thread that loses the GVL may hold a lock outside Ruby, such as that of a SQLite database. If the thread that gets
//! the GVL waits for that lock in C, without giving the GVL up, no thread computes until it gives up: SQLite's own busy
//! handler (`busy_timeout`) sleeps like that for seconds. Nobody can end such a wait, so it must not come again soon:
//! work keeps the GVL then for as long as the VM lets it, and one thread at a time has work where that suffices.

use crate::pool::thread_record::ThreadRecord;

/// A thread that sleeps for so long (ns) with the GVL, which others want, is a halt: much longer than a page fault or a
/// write to a disk, and short beside the seconds that such a wait takes.
const HALT_NS: u64 = 50_000_000;
/// It sleeps if it uses the CPU for no more than one part in so many of the time.
const UNUSED_PART: u64 = 20;
/// Work is left alone for this time (ns), which doubles up to the second one with each halt. A halt takes some 5 s, the
/// busy timeout of Rails.
const PATIENT_NS_MIN: u64 = 20_000_000_000;
const PATIENT_NS_MAX: u64 = 640_000_000_000;

/// A thread that sleeps with the GVL.
struct Sleeper {
    thread: usize,
    since_ns: u64,
    /// Its CPU clock at that time.
    cpu_ns: u64,
}

/// The halts so far.
#[derive(Default)]
pub(crate) struct BackOff {
    sleeper: Option<Sleeper>,
    patient_ns: u64,
    patient_until_ns: u64,
}

impl BackOff {
    /// Notes the thread that sleeps with the GVL while others with work want it; returns whether a halt was seen just now.
    pub fn observe(&mut self, sleeper: Option<&ThreadRecord>, now_ns: u64) -> bool {
        let Some(thread) = sleeper else {
            self.sleeper = None;
            return false;
        };
        let cpu_ns = thread.probe.cpu_ns().unwrap_or(0);
        let next = Sleeper { thread: thread.index, since_ns: now_ns, cpu_ns };
        let seen = self.sleeper.get_or_insert(next);
        let (asleep_ns, used_ns) = (now_ns - seen.since_ns, cpu_ns.saturating_sub(seen.cpu_ns));
        if seen.thread != thread.index || used_ns * UNUSED_PART > asleep_ns {
            *seen = Sleeper { thread: thread.index, since_ns: now_ns, cpu_ns };
            return false;
        }
        if asleep_ns < HALT_NS {
            return false;
        }
        let is_new = !self.is_patient(now_ns);
        // One that comes long after the last one has another reason.
        if is_new && now_ns.saturating_sub(self.patient_until_ns) > PATIENT_NS_MAX {
            self.patient_ns = 0;
        }
        if is_new {
            self.patient_ns = (self.patient_ns * 2).clamp(PATIENT_NS_MIN, PATIENT_NS_MAX);
        }
        // It counts from the end of the halt.
        self.patient_until_ns = now_ns + self.patient_ns;
        is_new
    }

    /// Whether work is left alone.
    pub fn is_patient(&self, now_ns: u64) -> bool {
        now_ns < self.patient_until_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::Parker;

    const S: u64 = 1_000_000_000;

    fn thread(index: usize) -> ThreadRecord {
        ThreadRecord::current(index, Parker::new().unparker().clone())
    }

    /// Halts from `at_ns` on; returns for how long work is left alone then.
    fn halt(back_off: &mut BackOff, at_ns: u64) -> u64 {
        let (sleeper, now_ns) = (thread(0), at_ns + HALT_NS);
        back_off.sleeper = None;
        assert!(!back_off.observe(Some(&sleeper), at_ns));
        assert!(!back_off.observe(Some(&sleeper), now_ns - 1));
        assert!(back_off.observe(Some(&sleeper), now_ns));
        assert!(!back_off.observe(Some(&sleeper), now_ns), "it is the same halt");
        back_off.patient_until_ns - now_ns
    }

    #[test]
    fn work_is_left_alone_after_a_halt_for_twice_as_long_each_time() {
        let (mut back_off, mut at_ns) = (BackOff::default(), S);
        for seconds in [20, 40, 80, 160, 320, 640, 640] {
            assert_eq!(halt(&mut back_off, at_ns), seconds * S);
            assert!(back_off.is_patient(at_ns + seconds * S));
            at_ns += (seconds + 1) * S;
            assert!(!back_off.is_patient(at_ns));
        }
        assert_eq!(
            halt(&mut back_off, at_ns + 700 * S),
            20 * S,
            "after a long peace it begins anew"
        );
    }

    #[test]
    fn a_thread_that_computes_or_another_one_begins_anew() {
        let (mut back_off, computes) = (BackOff::default(), thread(0));
        assert!(!back_off.observe(Some(&computes), S));
        let until_ns = computes.probe.cpu_ns().unwrap() + HALT_NS / UNUSED_PART + 1;
        while computes.probe.cpu_ns().unwrap() < until_ns {
            std::hint::black_box(0);
        }
        assert!(!back_off.observe(Some(&computes), S + HALT_NS));
        assert!(!back_off.observe(Some(&thread(1)), S + 2 * HALT_NS), "another one");
        assert!(!back_off.observe(None, S + 3 * HALT_NS));
        assert!(!back_off.observe(Some(&thread(1)), S + 4 * HALT_NS), "it slept anew");
        assert!(!back_off.is_patient(S + 4 * HALT_NS));
    }
}
