//! Who holds and who wants the GVL, by CRuby's GVL events (3.3 and later).
//!
//! An event may arrive on a thread other than the one it is about, and without the GVL.
//! So all of this is atomic, takes no lock and does not call Ruby.

use std::sync::Arc;

use crate::clock;
use crate::event_fd::EventFd;
use crate::pool::affinity::Affinity;
use crate::pool::observer::{Activity, ARRIVAL_NS};
use crate::pool::policy::{Decision, Facts, Rule};
use crate::pool::state::PoolState;
use crate::pool::thread_record::ThreadRecord;
use crate::pool::PoolSettings;
use crate::process::scoreboard::OwnGauges;
use crate::sync::atomic::Ordering::{Relaxed, SeqCst};
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

/// The longest time between two readings while work waits (ns).
const PAUSE_NS_MAX: u64 = 10_000_000;
/// The same while no work waits, until the scheduler sleeps.
const EMPTY_PAUSE_NS: u64 = 1_600_000;
/// The least time to wait for the end of a quantum (ns): the kernel may run other
/// processes meanwhile.
const DUE_NS_MIN: u64 = 200_000;
/// After a block that was over before the pool starved, the next one is not told of for this time (ns), which doubles
/// each time up to the larger one: a request may call Redis or a database forty times, for less than `blocked_ms` each, and
/// telling of each took 7 % of the CPU. The pool then starves for so much longer before it is seen.
const QUIET_NS: u64 = 250_000;
/// See [`QUIET_NS`].
const QUIET_NS_MAX: u64 = 4_000_000;
/// A computing thread must use this much of the CPU (ns) while it is watched.
const CONFIRM_NS: u64 = 500_000;

/// Counts the threads that hold or want the GVL.
pub struct GvlCounts {
    /// Pool threads that hold or want it.
    wanting: AtomicUsize,
    /// Other threads that want it.
    outsiders: AtomicUsize,
    /// When a pool thread last gave it up (ns of the clock).
    released_ns: AtomicU64,
    /// How many times a pool thread has wanted it to go on with its work.
    returns: AtomicU64,
    /// A thread outside the pool has the GVL.
    outsider_holds: AtomicBool,
    /// Work waits, and a thread is left that may be woken or started for it.
    is_wakeable: AtomicBool,
    /// The scheduler asks to be notified when no pool thread is left that can run although
    /// work waits, or when a thread outside the pool competes with one of the pool.
    is_watched: AtomicBool,
    /// The first of these is asked for: the blocks of late were long enough.
    tells_blocks: AtomicBool,
    /// Whether the waits of pool threads are timed.
    times_waits: bool,
    affinity: Affinity,
    event_fd: Arc<EventFd>,
}

impl GvlCounts {
    /// `event_fd` wakes the scheduler, and the bound core is published on `gauges`.
    pub fn new(event_fd: Arc<EventFd>, settings: &PoolSettings, gauges: OwnGauges) -> Self {
        Self {
            wanting: AtomicUsize::new(0),
            outsiders: AtomicUsize::new(0),
            released_ns: AtomicU64::new(clock::now_ns()),
            returns: AtomicU64::new(0),
            outsider_holds: AtomicBool::new(false),
            is_wakeable: AtomicBool::new(false),
            is_watched: AtomicBool::new(true),
            tells_blocks: AtomicBool::new(true),
            times_waits: settings.gvl_wait,
            affinity: Affinity::new(settings.cpu_affinity, gauges),
            event_fd,
        }
    }

    /// Whether the waits of pool threads are timed.
    pub fn times_waits(&self) -> bool {
        self.times_waits
    }

    /// Whether more threads than the calling one, which holds the GVL, want it.
    pub fn others_want(&self) -> bool {
        self.wanting.load(Relaxed) > 1 || self.outsiders.load(Relaxed) > 0
    }

    /// Whether no pool thread holds or wants it.
    pub fn none_wants(&self) -> bool {
        self.wanting.load(SeqCst) == 0
    }

    /// Notes whether work waits and a thread is left that may be woken for it.
    pub fn note_wakeable(&self, wakeable: bool) {
        // The pool's lock is held. Most takes change nothing and need no fence.
        if self.is_wakeable.load(Relaxed) != wakeable {
            self.is_wakeable.store(wakeable, SeqCst);
        }
    }

    /// The thread wants the GVL.
    pub fn ready(&self, thread: &ThreadRecord) {
        thread.held_since_ns.store(0, Relaxed);
        let now = self.times_waits.then(clock::now_ns);
        if let Some(now) = now {
            thread.ready_since_ns.store(now, Relaxed);
        }
        if !thread.can_run.swap(true, SeqCst) {
            let none_wanted = self.wanting.fetch_add(1, SeqCst) == 0;
            if thread.has_work() {
                self.returns.fetch_add(1, Relaxed);
                let now = now.unwrap_or_else(clock::now_ns);
                if self.affinity.returns(thread, !none_wanted, now) {
                    // From now on the scheduler looks for threads that compute without the GVL.
                    self.event_fd.notify();
                }
            }
        }
        if self.outsider_holds.load(SeqCst) {
            self.notify();
        }
    }

    /// The thread has got the GVL.
    pub fn resumed(&self, thread: &ThreadRecord) {
        let now = clock::now_ns();
        thread.held_since_ns.store(now, Relaxed);
        let ready_since_ns = thread.ready_since_ns.load(Relaxed);
        if ready_since_ns != 0 {
            thread.ready_since_ns.store(0, Relaxed);
            thread.gvl_wait_ns.fetch_add(now.saturating_sub(ready_since_ns), Relaxed);
        }
        self.outsider_holds.store(false, SeqCst);
        if !thread.can_run.swap(true, SeqCst) {
            self.wanting.fetch_add(1, SeqCst);
        }
    }

    /// The thread has given up the GVL, and waits for something or ends.
    pub fn suspended(&self, thread: &ThreadRecord) {
        let now = clock::now_ns();
        thread.used_ns.fetch_add(thread.held_ns(now), Relaxed);
        thread.held_since_ns.store(0, Relaxed);
        // Stored before the count falls: who sees no thread sees since when.
        self.released_ns.store(now, SeqCst);
        thread.released_ns.store(now, Relaxed);
        if thread.has_work() {
            self.affinity.suspended(thread);
        }
        let could_run = thread.can_run.swap(false, SeqCst);
        let was_last = could_run && self.wanting.fetch_sub(1, SeqCst) == 1;
        if was_last && self.is_wakeable.load(SeqCst) && self.tells_blocks.load(SeqCst) {
            self.notify();
        }
    }

    /// A thread outside the pool wants the GVL.
    pub fn outsider_ready(&self) {
        self.outsiders.fetch_add(1, SeqCst);
        if self.wanting.load(SeqCst) > 0 {
            self.notify();
        }
    }

    /// A thread outside the pool has got the GVL.
    pub fn outsider_resumed(&self) {
        // A thread may have wanted it since before the events were counted.
        let fewer = |count: usize| count.checked_sub(1);
        let _ = self.outsiders.fetch_update(SeqCst, SeqCst, fewer);
        self.outsider_holds.store(true, SeqCst);
        if !self.none_wants() {
            self.notify();
        }
    }

    /// A thread outside the pool has given up the GVL.
    pub fn outsider_suspended(&self) {
        self.outsider_holds.store(false, SeqCst);
    }

    /// Whether a thread outside the pool and one of the pool compete for it. Asks for
    /// the next notification.
    pub fn compete(&self) -> bool {
        self.is_watched.store(true, SeqCst);
        !self.none_wants() && (self.outsiders_want() || self.outsider_holds.load(SeqCst))
    }

    /// The cores of the pool's threads.
    pub(crate) fn affinity(&self) -> &Affinity {
        &self.affinity
    }

    /// The thread ends, or is about to start a thread or a program: it may run on all cores.
    pub fn free(&self, thread: &ThreadRecord) {
        self.affinity.free(thread);
    }

    /// Whether a thread outside the pool wants it.
    pub fn outsiders_want(&self) -> bool {
        self.outsiders.load(SeqCst) > 0
    }

    fn notify(&self) {
        if self.is_watched.load(SeqCst) && self.is_watched.swap(false, SeqCst) {
            self.event_fd.notify();
        }
    }
}

/// One thread's time with the GVL.
#[derive(Default)]
struct Turn {
    thread: usize,
    since_ns: u64,
    /// The time before the first reading of the turn.
    unread_ns: u64,
    /// The thread's CPU clock at the first reading.
    cpu_ns: u64,
}

/// Which blocks of the last runnable thread the scheduler is told of.
#[derive(Default)]
struct Alarms {
    /// Since when the threads had blocked at the last observation, if they had (ns of the clock).
    blocked_since_ns: Option<u64>,
    /// How long nothing was told after the last block that was short (ns), and until when.
    quiet_ns: u64,
    quiet_until_ns: u64,
}

impl Alarms {
    /// Compares the block of the last observation with the one of now; returns whether blocks are told of.
    fn judge(&mut self, blocked_since_ns: Option<u64>, is_starved: bool, now_ns: u64) -> bool {
        let before = self.blocked_since_ns.take();
        if is_starved {
            (self.quiet_ns, self.quiet_until_ns) = (0, 0);
        } else if before.is_some() && before != blocked_since_ns {
            self.quiet_ns = (self.quiet_ns * 2).clamp(QUIET_NS, QUIET_NS_MAX);
            self.quiet_until_ns = now_ns + self.quiet_ns;
        }
        now_ns >= self.quiet_until_ns
    }

    /// The time until the pool may have starved without a word (ns).
    fn pause_ns(
        &mut self,
        blocked_since_ns: Option<u64>,
        starved_after_ns: u64,
        now_ns: u64,
    ) -> u64 {
        self.blocked_since_ns = blocked_since_ns;
        match blocked_since_ns {
            Some(since_ns) => (since_ns + starved_after_ns).saturating_sub(now_ns),
            None if now_ns < self.quiet_until_ns => self.quiet_until_ns - now_ns,
            None => PAUSE_NS_MAX,
        }
    }
}

/// Reads the counts for the scheduler.
pub(crate) struct GvlActivity {
    counts: Arc<GvlCounts>,
    turn: Turn,
    alarms: Alarms,
}

impl GvlActivity {
    pub fn new(counts: Arc<GvlCounts>) -> Self {
        Self { counts, turn: Turn::default(), alarms: Alarms::default() }
    }

    /// The time until the pool may have starved (ns), when nothing is told of sooner.
    fn starves_in_ns(&mut self, facts: &Facts, is_starved: bool) -> u64 {
        let now = clock::now_ns();
        let tells = self.alarms.judge(self.none_since_ns(), is_starved, now);
        let is_full = facts.awake + facts.spawning >= facts.max;
        // Before it is looked for: the last thread may block meanwhile. A full pool is told nothing until a thread of it
        // is free, and then at once.
        self.counts.tells_blocks.store(tells || is_full, SeqCst);
        let since_ns = self.none_since_ns();
        if is_full {
            return PAUSE_NS_MAX;
        }
        if facts.waking + facts.spawning > 0 {
            return ARRIVAL_NS;
        }
        if since_ns.is_some() {
            // What is looked at is not told of again.
            self.counts.tells_blocks.store(false, SeqCst);
        }
        self.alarms.pause_ns(since_ns, facts.starved_after_ns, now)
    }

    fn none_since_ns(&self) -> Option<u64> {
        let none = self.counts.none_wants();
        none.then(|| self.counts.released_ns.load(SeqCst))
    }

    /// The time that the runner has used for its work since it last got the GVL or
    /// `since_ns` (of the clock), at most its quantum. By the CPU clock from the first
    /// reading of the turn on: a thread may hold the GVL for long only because the kernel
    /// runs other processes.
    fn turn_ns(&mut self, runner: &ThreadRecord, since_ns: u64, quantum_ns: u64, now: u64) -> u64 {
        let since_ns = since_ns.max(runner.held_since_ns.load(Relaxed));
        let cpu_ns = runner.probe.cpu_ns().unwrap_or(0);
        if (self.turn.thread, self.turn.since_ns) != (runner.index, since_ns) {
            // It may have slept with the GVL, as the busy handler of SQLite does.
            let metered_ns = runner.metered_ns.load(Relaxed);
            let unread_ns = now.saturating_sub(since_ns).min(cpu_ns.saturating_sub(metered_ns));
            self.turn = Turn { thread: runner.index, since_ns, unread_ns, cpu_ns };
        }
        let unread_ns = self.turn.unread_ns.min(quantum_ns.saturating_sub(CONFIRM_NS));
        (unread_ns + cpu_ns.saturating_sub(self.turn.cpu_ns)).min(quantum_ns)
    }
}

impl Activity for GvlActivity {
    fn observe(
        &mut self,
        state: &PoolState,
        facts: &mut Facts,
        now: u64,
    ) -> Option<Arc<ThreadRecord>> {
        let runner = state.records().find(|thread| thread.holds_gvl());
        facts.outsider_waiting = self.counts.outsiders_want();
        facts.progress += self.counts.returns.load(Relaxed);
        // A woken thread wants the GVL as soon as the kernel lets it run, unless it blocks in a finalizer first.
        let recently = now.saturating_sub(state.last_wake_ns) < ARRIVAL_NS;
        let arriving = (facts.waking + facts.spawning > 0 && recently)
            || (facts.waking > 0
                && state.waking_records().any(|thread| thread.probe.is_runnable()));
        if !arriving {
            facts.blocked_ns = self.none_since_ns().map_or(0, |since| now.saturating_sub(since));
        }
        facts.quantum_ns = state.exact_quantum_ns(runner.and_then(|runner| runner.role()));
        if let Some(runner) = runner.filter(|runner| runner.has_work()) {
            let since_ns = runner.work_since_ns.load(Relaxed).max(state.last_switch_ns);
            facts.turn_ns = self.turn_ns(runner, since_ns, facts.quantum_ns, now);
        }
        let mut at_work = state.records().filter(|t| t.can_run.load(SeqCst) && t.has_work());
        facts.one_is_quick = at_work.any(|thread| thread.used_ns(now) < facts.quantum_ns);
        runner.cloned()
    }

    fn sleeper(&self, state: &PoolState) -> Option<Arc<ThreadRecord>> {
        let holder = state.records().find(|thread| thread.holds_gvl() && thread.has_work())?;
        let mut others = state.records().filter(|thread| !Arc::ptr_eq(thread, holder));
        let wanted = others.any(|thread| thread.has_work() && thread.can_run.load(SeqCst));
        (wanted && !holder.probe.is_runnable()).then(|| holder.clone())
    }

    fn pause_ns(&mut self, facts: &Facts, made: &Decision) -> u64 {
        let used_ns = if made.switches() { 0 } else { facts.turn_ns };
        let due_ns = (facts.quantum_ns - used_ns).max(DUE_NS_MIN);
        let compete = self.counts.compete();
        if facts.waiting == 0 {
            self.counts.tells_blocks.store(true, SeqCst);
            return if compete { due_ns } else { EMPTY_PAUSE_NS };
        }
        due_ns.min(self.starves_in_ns(facts, made.rule == Rule::Starved))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::scoreboard::Scoreboard;
    use crate::sync::Parker;

    fn thread(index: usize) -> ThreadRecord {
        ThreadRecord::current(index, Parker::new().unparker().clone())
    }

    fn counts() -> GvlCounts {
        counts_of(Arc::new(EventFd::new().unwrap()), false)
    }

    fn counts_of(event_fd: Arc<EventFd>, gvl_wait: bool) -> GvlCounts {
        let gauges = OwnGauges::new(Arc::new(Scoreboard::new(1).unwrap()), 0);
        GvlCounts::new(event_fd, &PoolSettings { gvl_wait, ..PoolSettings::for_tests(1) }, gauges)
    }

    const US: u64 = 1_000;

    /// The scheduler's wake-ups in a second, and the longest time (µs) that a starved pool is not seen, for a thread that
    /// runs and blocks for so many µs in turn.
    fn alarms(pattern: &[(u64, u64)]) -> (usize, u64) {
        let (starved_after, end) = (100 * US, 1_000_000 * US);
        let mut blocks = Vec::new();
        let mut at = 0;
        while at < end {
            for (runs, blocked) in pattern {
                blocks.push((at + runs * US, at + (runs + blocked) * US));
                at += (runs + blocked) * US;
            }
        }
        let (mut alarms, mut now, mut wakes, mut unseen) = (Alarms::default(), 0, 0, 0);
        while now < end {
            let block = blocks.iter().find(|(from, until)| (*from..*until).contains(&now));
            let since = block.map(|(from, _)| *from);
            let is_starved = since.is_some_and(|since| now - since >= starved_after);
            let tells = alarms.judge(since, is_starved, now);
            if let (true, Some((from, until))) = (is_starved, block) {
                // Another thread takes the work; the next block is a new one.
                (unseen, now) = (unseen.max(now - from - starved_after), *until);
                continue;
            }
            let due = now + alarms.pause_ns(since, starved_after, now);
            let told = blocks.iter().map(|(from, _)| *from).find(|from| *from > now);
            now = told.filter(|_| tells && since.is_none()).map_or(due, |told| told.min(due));
            wakes += 1;
        }
        (wakes, unseen / US)
    }

    #[test]
    fn short_blocks_are_seldom_told_of_and_long_ones_at_once() {
        let calls = [(500, 60); 40];
        let (wakes, _) = alarms(&calls);
        assert!(wakes < 900, "forty short calls in a request: {wakes}, of 3,571 for two each");
        for (name, pattern) in [
            ("a page", vec![(1_000, 2_000)]),
            ("quick", vec![(200, 1_000)]),
            ("records", vec![(230, 500); 10]),
            ("just long enough", vec![(300, 110)]),
        ] {
            assert_eq!(alarms(&pattern).1, 0, "{name}");
        }
        // After many short ones a long one is seen a little later.
        let mixed: Vec<_> = calls.into_iter().chain([(500, 50_000)]).collect();
        let (_, unseen_us) = alarms(&mixed);
        assert!(unseen_us <= QUIET_NS_MAX / US, "{unseen_us}");
        // In no order: most are too short to starve the pool, and most are long enough.
        let mut seed = 7_u64;
        let mut random = |below| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        let short: Vec<_> = (0..2_000).map(|_| (50 + random(1_000), 20 + random(85))).collect();
        let (wakes, unseen_us) = alarms(&short);
        assert!(wakes < 1_600, "{wakes}, of 3,250 for two each");
        assert!(unseen_us <= QUIET_NS_MAX / US, "{unseen_us}");
        let long: Vec<_> = (0..2_000).map(|_| (50 + random(1_000), 20 + random(400))).collect();
        let (_, unseen_us) = alarms(&long);
        assert!(unseen_us <= 2 * QUIET_NS / US, "{unseen_us}");
        // Every second one is long.
        let (_, unseen_us) = alarms(&[(500, 60), (500, 2_000)]);
        assert!(unseen_us <= QUIET_NS / US, "{unseen_us}");
    }

    #[test]
    fn a_full_pool_is_told_of_blocks_as_soon_as_a_thread_is_free() {
        let mut activity = GvlActivity::new(Arc::new(counts()));
        activity.alarms.quiet_until_ns = u64::MAX;
        let facts = Facts { waiting: 1, awake: 1, max: 2, ..Facts::default() };
        for (awake, tells) in [(1, false), (2, true)] {
            activity.pause_ns(&Facts { awake, ..facts }, &Decision::default());
            assert_eq!(activity.counts.tells_blocks.load(SeqCst), tells, "{awake} awake");
        }
    }

    #[test]
    fn a_block_is_not_told_of_while_it_is_quiet() {
        let (counts, a) = (counts(), thread(0));
        counts.note_wakeable(true);
        counts.resumed(&a);
        counts.tells_blocks.store(false, SeqCst);
        counts.suspended(&a);
        assert!(!counts.event_fd.clear());
        counts.resumed(&a);
        counts.tells_blocks.store(true, SeqCst);
        counts.suspended(&a);
        assert!(counts.event_fd.clear());
    }

    #[test]
    fn counts_threads_once_whatever_the_order_of_events() {
        let (counts, a, b) = (counts(), thread(0), thread(1));
        counts.ready(&a);
        counts.resumed(&a);
        counts.resumed(&b);
        assert!(counts.others_want());
        counts.suspended(&a);
        counts.suspended(&a);
        assert!(!counts.others_want() && !counts.none_wants());
        counts.suspended(&b);
        assert!(counts.none_wants());
        counts.outsider_resumed();
        counts.outsider_ready();
        assert!(counts.others_want());
    }

    #[test]
    fn notifies_the_scheduler_once_when_the_last_thread_blocks() {
        let (counts, a, b) = (counts(), thread(0), thread(1));
        for thread in [&a, &b] {
            counts.resumed(thread);
        }
        counts.note_wakeable(true);
        counts.suspended(&a);
        assert!(!counts.event_fd.clear(), "another one can run");
        counts.suspended(&b);
        assert!(counts.event_fd.clear());
        counts.resumed(&b);
        counts.suspended(&b);
        assert!(!counts.event_fd.clear(), "not watched any more");
    }

    #[test]
    fn waits_are_timed_only_where_that_is_asked_for() {
        for (times_waits, least_ns) in [(true, 5_000_000), (false, 0)] {
            let event_fd = Arc::new(EventFd::new().unwrap());
            let (counts, a) = (counts_of(event_fd, times_waits), thread(0));
            counts.ready(&a);
            if times_waits {
                a.ready_since_ns.fetch_sub(5_000_000, Relaxed);
            }
            counts.resumed(&a);
            let waited_ns = a.gvl_wait_ns.load(Relaxed);
            assert!(waited_ns >= least_ns && (times_waits || waited_ns == 0), "{waited_ns}");
            counts.suspended(&a);
            counts.resumed(&a);
            assert_eq!(a.gvl_wait_ns.load(Relaxed), waited_ns, "it did not wait again");
            a.run(None);
            assert_eq!(a.gvl_wait_ns.load(Relaxed), 0, "the next work has not waited");
        }
    }

    #[test]
    fn a_thread_that_sleeps_with_the_gvl_is_seen_while_another_one_wants_it() {
        let (mut state, stop) = waking_and_blocked();
        let sleeper = state.records().next().unwrap().clone();
        let other = state.enter(|_| Arc::new(thread(1)));
        let activity = GvlActivity::new(Arc::new(counts()));
        for record in [&sleeper, &other] {
            record.work_since_ns.store(1, Relaxed);
        }
        activity.counts.resumed(&sleeper);
        assert!(activity.sleeper(&state).is_none(), "nobody wants it");
        activity.counts.ready(&other);
        assert!(activity.sleeper(&state).is_some_and(|seen| Arc::ptr_eq(&seen, &sleeper)));
        activity.counts.suspended(&sleeper);
        activity.counts.resumed(&other);
        activity.counts.ready(&sleeper);
        assert!(activity.sleeper(&state).is_none(), "the holder computes");
        drop(stop);
    }

    /// A pool with one thread that has not taken work, on a thread that waits until the sender is dropped.
    fn waking_and_blocked() -> (PoolState, std::sync::mpsc::Sender<()>) {
        let (tx, rx) = std::sync::mpsc::channel();
        let (stop, wait) = std::sync::mpsc::channel::<()>();
        std::thread::spawn(move || {
            tx.send(thread(0)).unwrap();
            let _ = wait.recv();
        });
        let (mut state, record) = (PoolState::default(), rx.recv().unwrap());
        while record.probe.is_runnable() {
            std::thread::yield_now();
        }
        state.enter(|_| Arc::new(record));
        (state, stop)
    }

    #[test]
    fn a_woken_thread_that_blocks_before_it_wants_the_gvl_hides_nothing() {
        let (state, _stop) = waking_and_blocked();
        let mut activity = GvlActivity::new(Arc::new(counts()));
        for (since_ns, blocked) in [(ARRIVAL_NS - 1, false), (ARRIVAL_NS, true)] {
            let mut facts = Facts { waiting: 1, waking: 1, ..Facts::default() };
            activity.counts.released_ns.store(1, Relaxed);
            activity.observe(&state, &mut facts, state.last_wake_ns + since_ns);
            assert_eq!(facts.blocked_ns > 0, blocked, "{since_ns}");
        }
    }

    #[test]
    fn time_asleep_with_the_gvl_is_no_turn() {
        let (mut activity, runner) = (GvlActivity::new(Arc::new(counts())), thread(0));
        let (now, quantum_ns) = (1_000_000_000, 4_000_000);
        runner.held_since_ns.store(1, Relaxed);
        runner.metered_ns.store(runner.probe.cpu_ns().unwrap(), Relaxed);
        let turn_ns = activity.turn_ns(&runner, 1, quantum_ns, now);
        assert!(turn_ns < quantum_ns / 2, "{turn_ns}");
        runner.metered_ns.store(0, Relaxed);
        while runner.probe.cpu_ns().unwrap() < quantum_ns {
            std::hint::black_box(0);
        }
        let turn_ns = activity.turn_ns(&runner, 2, quantum_ns, now);
        assert_eq!(turn_ns, quantum_ns - CONFIRM_NS, "it may have computed all the time");
    }

    #[test]
    fn work_is_charged_for_the_time_it_held_the_gvl() {
        let (counts, a) = (counts(), thread(0));
        counts.resumed(&a);
        a.held_since_ns.store(clock::now_ns() - 5_000_000, Relaxed);
        counts.suspended(&a);
        let used = a.used_ns.load(Relaxed);
        assert!(used >= 5_000_000, "{used}");
        counts.ready(&a);
        assert_eq!(a.used_ns(clock::now_ns()), used, "not while it waits for the GVL");
        counts.resumed(&a);
        a.held_since_ns.store(clock::now_ns() - 5_000_000, Relaxed);
        assert!(a.used_ns(clock::now_ns()) >= used + 5_000_000);
    }
}
