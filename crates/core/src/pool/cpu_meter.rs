//! Measures the CPU time of a thread's work without reading its clock each time.

use crate::pool::quantum::CpuTimes;
use crate::work::Role;

/// The clock is read once in this time (ns): it costs a fiftieth of a short request.
const READ_EVERY_NS: u64 = 1_000_000;

/// Counts the units of work between two readings of a thread's CPU clock.
#[derive(Default)]
pub struct CpuMeter {
    read_at_ns: u64,
    cpu_ns: u64,
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

    /// Runs units of work of so many µs of CPU time, 100 µs apart; returns the quantum in ms.
    fn quantum_ms(units: &[u64]) -> u64 {
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
        let short = quantum_ms(&[50; 200]);
        let mixed: Vec<u64> = (0..200).map(|n| if n % 4 == 0 { 300_000 } else { 50 }).collect();
        assert!((1..=2).contains(&short), "{short}");
        assert!(quantum_ms(&mixed) <= 2 * short, "{}", quantum_ms(&mixed));
        assert_eq!(quantum_ms(&[300_000; 20]), 1_000);
    }
}
