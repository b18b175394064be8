//! How long work may compute before it makes place for other work.
//!
//! Taking turns helps short work that waits behind long work. It only costs where all
//! work is equal: every unit then ends later. So the quantum is three times the CPU time
//! of the quicker quarter of recent work: equal work is never interrupted, and long work
//! is as soon as a quarter of the load is short. It ends at CRuby's own time slice,
//! after which the VM switches by itself.

use crate::work::Role;

/// CRuby's time slice in ns (`TIME_QUANTUM_MSEC` in thread_pthread.c).
pub const TIME_SLICE_NS: u64 = 100_000_000;
/// The quantum in units of the CPU time that a quarter of the work stays below.
const FACTOR: u64 = 3;
/// Buckets of the histogram: four for each doubling, from 1 µs on.
const BUCKETS: usize = 80;
const BUCKET_NS: f64 = 1_000.0;
const PER_DOUBLING: f64 = 4.0;
/// Above this number of units of work all counts are halved, so that recent work counts.
const COUNT_MAX: u32 = 512;
/// Below this number the quantum stays at its lower bound.
const COUNT_MIN: u32 = 4;
/// The clock is read once in this time (ns): it costs a fiftieth of a short request.
const READ_EVERY_NS: u64 = 1_000_000;

/// CPU times of recent work of one engine.
#[derive(Default)]
struct Histogram {
    counts: Vec<u32>,
}

impl Histogram {
    fn total(&self) -> u32 {
        self.counts.iter().sum()
    }

    fn record(&mut self, cpu_ns: u64, count: u32) {
        let doublings = (cpu_ns as f64 / BUCKET_NS).max(1.0).log2();
        let bucket = ((doublings * PER_DOUBLING) as usize).min(BUCKETS - 1);
        self.counts.resize(BUCKETS, 0);
        self.counts[bucket] += count.min(COUNT_MAX);
        if self.total() > COUNT_MAX {
            self.counts.iter_mut().for_each(|count| *count -= *count / 2);
        }
    }

    /// The CPU time in ns that a quarter of the work stays below; 0 while too little is
    /// known.
    fn quarter_ns(&self) -> u64 {
        let (total, mut below) = (self.total(), 0);
        if total < COUNT_MIN {
            return 0;
        }
        let bucket = self.counts.iter().position(|count| {
            below += count;
            below * 4 >= total
        });
        let doublings = bucket.map_or(0.0, |bucket| (bucket + 1) as f64 / PER_DOUBLING);
        (BUCKET_NS * doublings.exp2()) as u64
    }
}

/// CPU times of recent work.
#[derive(Default)]
pub struct CpuTimes {
    engines: [Histogram; Role::ALL.len()],
    /// The shortest quantum of work that no request waits for.
    pub least_ns: u64,
}

impl CpuTimes {
    /// No quantum is shorter than `least_ns`.
    pub fn new(least_ns: u64) -> Self {
        Self { least_ns, ..Self::default() }
    }

    /// Records that `count` units of work used `cpu_ns` each.
    pub fn record(&mut self, role: Role, cpu_ns: u64, count: u32) {
        self.engines[role as usize].record(cpu_ns, count);
    }

    /// The quantum of work of this engine; `None` stands for a thread outside the pool.
    pub fn quantum_ns(&self, role: Option<Role>) -> u64 {
        let quarter_ns = role.map_or(0, |role| self.engines[role as usize].quarter_ns());
        (quarter_ns * FACTOR).clamp(self.least_ns, TIME_SLICE_NS.max(self.least_ns))
    }
}

/// Counts the units of work between two readings of a thread's CPU clock.
#[derive(Default)]
pub struct CpuMeter {
    read_at_ns: u64,
    /// The thread's CPU clock at the last reading (ns).
    pub cpu_ns: u64,
    short: u32,
}

impl CpuMeter {
    /// Counts work that began at `since_ns` and has ended. `cpu_ns` reads the thread's
    /// CPU clock. Work that took as long as the time between two readings is counted
    /// alone, so that the short work beside it does not seem long.
    pub fn ended(
        &mut self,
        times: &mut CpuTimes,
        role: Role,
        since_ns: u64,
        now_ns: u64,
        cpu_ns: impl Fn() -> u64,
    ) {
        self.short += 1;
        if now_ns.saturating_sub(self.read_at_ns) < READ_EVERY_NS {
            return;
        }
        let cpu_ns = cpu_ns();
        let mut used_ns = cpu_ns.saturating_sub(self.cpu_ns);
        let took_ns = now_ns.saturating_sub(since_ns);
        if took_ns >= READ_EVERY_NS {
            let long_ns = used_ns.min(took_ns);
            times.record(role, long_ns, 1);
            used_ns -= long_ns;
            self.short -= 1;
        }
        if self.short > 0 && self.read_at_ns > 0 {
            times.record(role, used_ns / u64::from(self.short), self.short);
        }
        *self = Self { read_at_ns: now_ns, cpu_ns, short: 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn quantum_ms(times: &[(u64, u32)]) -> u64 {
        let mut recent = CpuTimes::new(4 * MS);
        for _ in 0..400 {
            for (us, count) in times {
                recent.record(Role::Web, us * 1_000, *count);
            }
        }
        recent.quantum_ns(Some(Role::Web)) / MS
    }

    #[test]
    fn equal_work_gets_more_than_it_needs() {
        for ms in [2, 5, 20, 30] {
            let quantum = quantum_ms(&[(ms * 1_000, 1)]);
            assert!(quantum > 2 * ms && quantum <= (4 * ms).max(4), "{ms}: {quantum}");
        }
        assert_eq!(quantum_ms(&[(300_000, 1)]), 100, "no more than CRuby's own slice");
    }

    #[test]
    fn a_quarter_of_short_work_sets_the_lower_bound() {
        for (short, long, expected) in [(1, 9, 100), (3, 7, 4), (5, 5, 4), (9, 1, 4), (100, 1, 4)] {
            assert_eq!(quantum_ms(&[(100, short), (300_000, long)]), expected, "{short}:{long}");
        }
    }

    #[test]
    fn old_work_is_forgotten() {
        let mut recent = CpuTimes::new(4 * MS);
        recent.record(Role::Web, 300 * MS, 10_000);
        recent.record(Role::Web, MS / 10, 2_000);
        assert_eq!(recent.quantum_ns(Some(Role::Web)), 4 * MS);
    }

    #[test]
    fn engines_are_counted_apart_and_few_units_say_nothing() {
        let mut recent = CpuTimes::new(4 * MS);
        recent.record(Role::Jobs, 20 * MS, 50);
        recent.record(Role::Web, 20 * MS, COUNT_MIN - 1);
        assert!(recent.quantum_ns(Some(Role::Jobs)) >= 60 * MS);
        assert_eq!(recent.quantum_ns(Some(Role::Web)), 4 * MS);
    }

    /// Runs units of work of so many µs of CPU time, 100 µs apart; returns the quantum in ms.
    fn metered_quantum_ms(units: &[u64]) -> u64 {
        let (mut meter, mut times) = (CpuMeter::default(), CpuTimes::new(1_000));
        let (mut now, mut cpu) = (MS, 0);
        for us in units {
            let since = now;
            now += us * 1_000;
            cpu += us * 1_000;
            meter.ended(&mut times, Role::Web, since, now, || cpu);
            now += 100_000;
        }
        times.quantum_ns(Some(Role::Web)) / 100_000
    }

    #[test]
    fn short_work_is_not_taken_for_long_beside_long_work() {
        let short = metered_quantum_ms(&[50; 200]);
        let mixed: Vec<u64> = (0..200).map(|n| if n % 4 == 0 { 300_000 } else { 50 }).collect();
        assert!((1..=2).contains(&short), "{short}");
        assert!(metered_quantum_ms(&mixed) <= 2 * short, "{}", metered_quantum_ms(&mixed));
        assert_eq!(metered_quantum_ms(&[300_000; 20]), 1_000);
    }
}
