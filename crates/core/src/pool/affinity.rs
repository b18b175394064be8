//! On which cores the threads of a pool run: on one, while they take turns at the GVL.
//!
//! Only one of them can run Ruby code. A page with 35 queries gives the GVL up 250 times, and where several pages are at work
//! it mostly goes to a thread that the kernel wakes on an idle core, whose caches know nothing of what Ruby has just
//! used. On the core of the thread before, a hand-over costs so little that it does not matter how many there are.
//! What it costs is that work of the threads without the GVL has to share the core. So they are bound only while they take many
//! turns, for which they need little of the CPU without the GVL, and a thread that computes without it is freed.
//!
//! The threads are bound for a second, and are then free until they have taken so many turns again: the kernel, which puts
//! a thread that wakes on an idle core, thus chooses the core anew, away from other programs. Workers publish their cores on
//! the scoreboard and leave those of each other alone, because a core whose threads wait for a moment looks idle to the
//! kernel.
//!
//! A thread that starts a thread or a program is freed before, because both inherit its cores: see `before_start.c` of the
//! extension.

use std::sync::Arc;

use rustix::thread::{sched_getaffinity, sched_getcpu, sched_setaffinity, CpuSet, Pid};

use crate::pool::thread_record::ThreadRecord;
use crate::process::scoreboard::OwnGauges;
use crate::sync::atomic::AtomicU64;
use crate::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// So many turns within [`TURNS_NS`] bind the threads: a thousand in a second, so that a hand-over which costs 10 µs takes a
/// hundredth of the time.
const TURNS: u64 = 10;
/// See [`TURNS`] (ns).
const TURNS_NS: u64 = 10_000_000;
/// For how long the threads are then bound (ns). Each time that they are free costs them some turns, and their caches:
/// with a tenth of this a page of Redmine gained 9 % instead of 26 (docs/decisions/057).
const BOUND_NS: u64 = 1_000_000_000;
/// Time between two looks of the scheduler while threads are bound (ns). It looks at those that have been without the GVL for
/// as long.
const AWAY_NS: u64 = 1_000_000;
/// A thread that has used so much of the CPU (ns) since the first such look computes, and is freed. The others wait for a
/// database, for example, and would only be moved twice.
const AWAY_CPU_NS: u64 = 500_000;
/// CPU time (ns) that a thread uses between giving the GVL up and wanting it again, from which on other cores are worth more
/// than a hand-over on the same one.
const APART_NS_MAX: u64 = 50_000;
/// Each thread reads its CPU clock around one time without the GVL of so many: a read is a system call.
const SAMPLE_EVERY: u64 = 8;
/// The mean is of about so many samples; a quarter of them is enough for the first one.
const SAMPLES: u64 = 64;

/// To which core the threads of a worker are bound, and until when (ns of the clock, which all processes share). One number,
/// with the core in its lowest bits; 0 if all threads are free.
#[derive(Clone, Copy, PartialEq)]
struct BoundCore(u64);

impl BoundCore {
    /// As many as a [`CpuSet`] has cores.
    const CORE: u64 = CpuSet::MAX_CPU as u64 - 1;

    fn new(core: usize, until_ns: u64) -> Self {
        Self(until_ns & !Self::CORE | core as u64)
    }

    fn core(self) -> usize {
        (self.0 & Self::CORE) as usize
    }

    fn is_over(self, now: u64) -> bool {
        now >= self.0 & !Self::CORE
    }
}

/// The cores of a pool's threads.
pub(crate) struct Affinity {
    /// Those of the process; `None` if the threads are never bound.
    all: Option<CpuSet>,
    /// Where the [`BoundCore`] is published.
    gauges: OwnGauges,
    /// The turns of late, and since when they are counted (ns of the clock).
    turns: AtomicU64,
    turns_since_ns: AtomicU64,
    /// Times without the GVL of which the CPU time is known, and its sum (ns).
    samples: AtomicU64,
    apart_ns: AtomicU64,
}

impl Affinity {
    /// `wanted`: whether the threads may be bound at all.
    pub fn new(wanted: bool, gauges: OwnGauges) -> Self {
        let all = if wanted { sched_getaffinity(None).ok() } else { None };
        Self::of(all.filter(|cores| cores.count() > 1), gauges)
    }

    fn of(all: Option<CpuSet>, gauges: OwnGauges) -> Self {
        Self {
            all,
            gauges,
            turns: AtomicU64::new(0),
            turns_since_ns: AtomicU64::new(0),
            samples: AtomicU64::new(0),
            apart_ns: AtomicU64::new(0),
        }
    }

    /// The thread, which has work, has given up the GVL.
    pub fn suspended(&self, thread: &ThreadRecord) {
        if self.all.is_none() {
            return;
        }
        let sampled = thread.suspensions.fetch_add(1, Relaxed).is_multiple_of(SAMPLE_EVERY);
        let cpu_ns = if sampled { thread.probe.cpu_ns() } else { None };
        thread.apart_since_ns.store(cpu_ns.unwrap_or(0), Relaxed);
    }

    /// The thread wants the GVL, to go on with its work. `turn`: others hold or want it. Returns whether the threads are bound
    /// from now on.
    pub fn returns(&self, thread: &ThreadRecord, turn: bool, now: u64) -> bool {
        let Some(all) = &self.all else { return false };
        let since_ns = thread.apart_since_ns.swap(0, Relaxed);
        if since_ns > 0 {
            self.sample(thread.probe.cpu_ns().unwrap_or(0).saturating_sub(since_ns));
        }
        let bound = self.bound();
        if !bound.is_over(now) {
            bind(thread, bound.core());
            return false;
        }
        free(thread, all);
        turn && self.begins(all, sched_getcpu(), now)
    }

    fn bound(&self) -> BoundCore {
        BoundCore(self.gauges.bound_core.load(Acquire))
    }

    /// Counts a turn on this core, and returns whether the threads are bound to it from now on.
    fn begins(&self, all: &CpuSet, core: usize, now: u64) -> bool {
        if now.saturating_sub(self.turns_since_ns.load(Relaxed)) > TURNS_NS {
            self.turns_since_ns.store(now, Relaxed);
            self.turns.store(0, Relaxed);
        }
        let is_known = self.samples.load(Relaxed) >= SAMPLES / 4;
        let many = self.turns.fetch_add(1, Relaxed) + 1 >= TURNS;
        if !many || !is_known || self.is_parallel() {
            return false;
        }
        self.turns.store(0, Relaxed);
        let begins = !self.is_taken(all, core, now);
        if begins {
            self.gauges.bound_core.store(BoundCore::new(core, now + BOUND_NS).0, Release);
        }
        begins
    }

    /// Whether the threads of a sibling are bound to the core, and not to each one.
    fn is_taken(&self, all: &CpuSet, core: usize, now: u64) -> bool {
        let mut taken = CpuSet::new();
        for sibling in self.gauges.siblings() {
            let bound = BoundCore(sibling.bound_core.load(Relaxed));
            if !bound.is_over(now) {
                taken.set(bound.core());
            }
        }
        taken.is_set(core) && taken.count() < all.count()
    }

    /// Counts so much CPU time without the GVL. Of two threads at a time one count may be lost.
    fn sample(&self, apart_ns: u64) {
        let samples = self.samples.fetch_add(1, Relaxed) + 1;
        let sum_ns = self.apart_ns.fetch_add(apart_ns, Relaxed) + apart_ns;
        if samples >= SAMPLES {
            self.samples.store(samples / 2, Relaxed);
            self.apart_ns.store(sum_ns / 2, Relaxed);
        }
        if self.is_parallel() {
            // Over, but none is free yet.
            self.gauges.bound_core.fetch_min(1, Relaxed);
        }
    }

    /// Whether the threads gain more by several cores than hand-overs cost.
    fn is_parallel(&self) -> bool {
        self.apart_ns.load(Relaxed) > self.samples.load(Relaxed) * APART_NS_MAX
    }

    /// Whether [`Affinity::look`] is due from time to time: threads are bound, or their time is over and some may still be.
    pub fn is_due(&self) -> bool {
        self.bound() != BoundCore(0)
    }

    /// Frees threads that compute without the GVL, and all when their time is over. Returns when it is due again (ns of the clock).
    pub fn look<'a>(
        &self,
        threads: impl Iterator<Item = &'a Arc<ThreadRecord>>,
        now: u64,
    ) -> Option<u64> {
        let all = self.all.as_ref()?;
        let bound = self.bound();
        let is_over = bound.is_over(now);
        for thread in threads {
            if is_over || computes(thread, now) {
                free(thread, all);
            }
        }
        // They may have been bound again meanwhile.
        let are_free =
            is_over && self.gauges.bound_core.compare_exchange(bound.0, 0, AcqRel, Acquire).is_ok();
        (!are_free).then_some(now + AWAY_NS)
    }

    /// The thread may run on all cores, until it next wants the GVL.
    pub fn free(&self, thread: &ThreadRecord) {
        if let Some(all) = &self.all {
            free(thread, all);
        }
    }
}

/// Whether the work of a bound thread has been without the GVL for long and computes.
fn computes(thread: &ThreadRecord, now: u64) -> bool {
    let since_ns = thread.released_ns.load(Relaxed);
    let is_away = thread.has_work()
        && !thread.can_run.load(Relaxed)
        && now.saturating_sub(since_ns) >= AWAY_NS
        && thread.core.lock().is_some();
    if !is_away {
        return false;
    }
    let cpu_ns = thread.probe.cpu_ns().unwrap_or(0);
    if thread.away_since_ns.swap(since_ns, Relaxed) != since_ns {
        thread.away_cpu_ns.store(cpu_ns, Relaxed);
    }
    cpu_ns.saturating_sub(thread.away_cpu_ns.load(Relaxed)) >= AWAY_CPU_NS
}

fn bind(thread: &ThreadRecord, core: usize) {
    let mut bound = thread.core.lock();
    if *bound != Some(core) {
        let mut one = CpuSet::new();
        one.set(core);
        // The core may have been taken from the process: then the thread stays where it may be.
        if sched_setaffinity(Pid::from_raw(thread.probe.tid()), &one).is_ok() {
            *bound = Some(core);
        }
    }
}

fn free(thread: &ThreadRecord, all: &CpuSet) {
    let mut bound = thread.core.lock();
    if bound.is_some() && sched_setaffinity(Pid::from_raw(thread.probe.tid()), all).is_ok() {
        *bound = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::scoreboard::Scoreboard;
    use crate::sync::Parker;

    const US: u64 = 1_000;
    const MS: u64 = 1_000 * US;

    fn affinity() -> Affinity {
        Affinity::of(sched_getaffinity(None).ok(), gauges())
    }

    fn gauges() -> OwnGauges {
        OwnGauges::new(Arc::new(Scoreboard::new(1).unwrap()), 0)
    }

    /// The part of ten seconds for which threads are bound that take a turn each `every_us`, between which they use
    /// so much CPU time without the GVL, in turn; so much later than the start.
    fn bound(affinity: &Affinity, from_ns: u64, every_us: u64, apart_us: &[u64]) -> f64 {
        let (mut now, end, mut bound_ns) = (from_ns, from_ns + 10_000 * MS, 0);
        let all = sched_getaffinity(None).unwrap();
        for turn in 0_usize.. {
            if now >= end {
                break;
            }
            if turn.is_multiple_of(SAMPLE_EVERY as usize) {
                affinity.sample(apart_us[turn / SAMPLE_EVERY as usize % apart_us.len()] * US);
            }
            if affinity.bound().is_over(now) {
                affinity.begins(&all, 0, now);
            } else {
                bound_ns += every_us * US;
            }
            now += every_us * US;
        }
        bound_ns as f64 / (end - from_ns) as f64
    }

    #[test]
    fn threads_are_bound_while_they_take_many_turns_with_little_work_apart() {
        let long = [20_000, 20, 20, 20, 20, 20, 20, 20, 20, 20];
        for (case, every_us, apart_us, part) in [
            ("queries", 200, [10, 30].as_slice(), 0.95..1.0),
            ("few queries at a time", 900, &[10, 30], 0.8..1.0),
            ("few turns", 2_000, &[10, 30], 0.0..0.001),
            ("compression", 200, &[500], 0.0..0.001),
            ("some of it", 200, &[10, 10, 10, 400], 0.0..0.05),
            ("one long piece in ten", 200, &long, 0.0..0.05),
            ("one in a hundred", 200, &[[20; 99].as_slice(), &[20_000]].concat(), 0.0..0.05),
            ("just worth it", 200, &[45], 0.94..1.0),
        ] {
            // Cold, and after other work.
            let (cold, after_queries, after_work) = (affinity(), affinity(), affinity());
            bound(&after_queries, 0, 200, &[20]);
            bound(&after_work, 0, 200, &[3_000]);
            for affinity in [cold, after_queries, after_work] {
                let seen = bound(&affinity, 20_000 * MS, every_us, apart_us);
                assert!(part.contains(&seen), "{case}: {seen:.3}");
            }
        }
    }

    fn cores() -> u32 {
        sched_getaffinity(None).unwrap().count()
    }

    #[test]
    fn a_bound_thread_has_one_core_until_it_is_freed() {
        let (affinity, all) = (affinity(), cores());
        let thread = Arc::new(ThreadRecord::current(0, Parker::new().unparker().clone()));
        (0..SAMPLES).for_each(|_| affinity.sample(20 * US));
        let bind = |now| {
            (0..TURNS).for_each(|_| {
                affinity.returns(&thread, true, now);
            });
            affinity.returns(&thread, true, now)
        };
        let (start, mut begun) = (10_000 * MS, 0);
        for _ in 0..TURNS {
            assert_eq!(cores(), all);
            begun += usize::from(affinity.returns(&thread, true, start));
        }
        assert_eq!(begun, 1);
        affinity.returns(&thread, false, start);
        assert_eq!(cores(), 1);
        affinity.free(&thread);
        assert_eq!(cores(), all, "before it starts a program");
        bind(start);
        assert_eq!(cores(), 1, "as soon as it goes on");
        thread.released_ns.store(start, Relaxed);
        thread.work_since_ns.store(start, Relaxed);
        let look = |now| affinity.look([&thread].into_iter(), now);
        thread.can_run.store(true, Relaxed);
        assert_eq!(look(start + 2 * AWAY_NS), Some(start + 3 * AWAY_NS));
        assert_eq!(cores(), 1, "it can run");
        thread.can_run.store(false, Relaxed);
        assert!(look(start + AWAY_NS - 1).is_some());
        assert_eq!(cores(), 1, "a short query");
        assert!(look(start + AWAY_NS).is_some());
        let computes = |cpu_ns| {
            let until_ns = thread.probe.cpu_ns().unwrap() + cpu_ns;
            while thread.probe.cpu_ns().unwrap() < until_ns {}
            look(start + 2 * AWAY_NS);
            cores() > 1
        };
        assert!(!computes(AWAY_CPU_NS / 10), "it waits for a query");
        assert!(computes(AWAY_CPU_NS));
        bind(start);
        assert!(affinity.is_due());
        assert_eq!(look(start + BOUND_NS), None);
        assert_eq!(cores(), all, "the time is over");
        assert!(!affinity.is_due());
        bind(start + 2 * BOUND_NS);
        assert_eq!(cores(), 1);
        (0..SAMPLES).for_each(|_| affinity.sample(MS));
        assert!(affinity.is_due(), "a thread that is away may have to be freed");
        affinity.returns(&thread, true, start + 2 * BOUND_NS);
        assert_eq!(cores(), all, "its work has changed");
        assert_eq!(look(start + 2 * BOUND_NS), None);
        assert!(!affinity.is_due());
    }

    #[test]
    fn workers_leave_the_cores_of_each_other_alone() {
        let mut all = CpuSet::new();
        [3, 900].into_iter().for_each(|core| all.set(core));
        let scoreboard = Arc::new(Scoreboard::new(3).unwrap());
        let workers: Vec<_> = (0..3)
            .map(|slot| {
                scoreboard.slot(slot).pid.store(1, Relaxed);
                let affinity = Affinity::of(Some(all), OwnGauges::new(scoreboard.clone(), slot));
                (0..SAMPLES).for_each(|_| affinity.sample(20 * US));
                affinity
            })
            .collect();
        let binds = |worker: usize, core, now| {
            let turns = (0..TURNS).filter(|_| workers[worker].begins(&all, core, now));
            turns.count() == 1 && workers[worker].bound().core() == core
        };
        let now = 10_000 * MS;
        assert!(binds(0, 900, now));
        assert!(!binds(1, 900, now), "taken");
        assert!(binds(1, 3, now));
        assert!(binds(2, 3, now), "all are taken");
        assert!(binds(1, 900, now + BOUND_NS), "its time is over");
        assert!(!binds(0, 900, now + BOUND_NS));
        scoreboard.clear(1);
        assert!(binds(0, 900, now + BOUND_NS), "that worker has ended");
    }

    #[test]
    fn threads_that_are_not_to_be_bound_never_are() {
        let (affinity, all) = (Affinity::new(false, gauges()), cores());
        let thread = ThreadRecord::current(0, Parker::new().unparker().clone());
        (0..SAMPLES).for_each(|_| affinity.sample(20 * US));
        for _ in 0..3 * TURNS {
            affinity.suspended(&thread);
            assert!(!affinity.returns(&thread, true, 10_000 * MS));
        }
        assert_eq!(cores(), all);
    }
}
