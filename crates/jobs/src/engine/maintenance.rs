//! The maintenance: one thread that gives signs of life, moves due jobs, enqueues
//! by the clock, and returns the jobs of owners that died. It never waits for
//! a claim, so that a slow claim cannot make others think that we are dead.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

use super::admission::Admission;
use super::backoff::Backoff;
use super::owner_identity;
use super::recovery::{self, WorkerDeath};
use super::report;
use super::state::{boot_ns, EngineState, LockedState};
use crate::store::{DueSummary, NewJob, ProcessReport, Result, Store, StoreError};
use chaton_core::random::Random;

/// Looks for dead owners this many times in a lease.
const SCANS_PER_LEASE: u32 = 4;
/// Between two questions for cancelled jobs while things change all the time.
const CANCEL_GAP_S: f64 = 0.05;
/// How long a tick of the clock stays marked as enqueued.
const TICK_KEPT: Duration = Duration::from_secs(24 * 3600);

/// The maintenance. [`Maintenance::round`] does what is due and never waits.
pub(super) struct Maintenance {
    shared: Arc<EngineState>,
    store: Box<dyn Store>,
    admission: Admission,
    backoff: Backoff,
    random: Random,
    /// The store can only be used from this machine.
    local: bool,
    retry_at_s: f64,
    heartbeat_at_s: f64,
    scan_at_s: f64,
    cancel_at_s: f64,
    /// When the next tick of each cron is due (s).
    ticks: Vec<Option<f64>>,
    /// Since when every call worked (ns since boot); 0: the last one failed.
    healthy_since_ns: u64,
    /// Totals that the store has been reported.
    reported: (u64, u64),
}

impl Maintenance {
    pub fn new(shared: &Arc<EngineState>, store: Box<dyn Store>, local: bool) -> Self {
        let now_s = shared.wall_s();
        Self {
            admission: Admission::new(shared),
            backoff: Backoff::new(shared.config.retry_max),
            random: Random::new(),
            local,
            retry_at_s: 0.0,
            heartbeat_at_s: 0.0,
            scan_at_s: 0.0,
            cancel_at_s: f64::MAX,
            ticks: shared.config.crons.iter().map(|cron| cron.next(now_s)).collect(),
            healthy_since_ns: 0,
            reported: (0, 0),
            shared: shared.clone(),
            store,
        }
    }

    /// Works until the engine stops; says good-bye then.
    pub fn run(mut self) {
        loop {
            let until_s = self.round();
            let mut locked = self.shared.locked.lock();
            if locked.fetcher_done {
                drop(locked);
                self.leave();
                return;
            }
            if self.called(&locked) {
                continue;
            }
            // The watcher may have heard of an earlier one since.
            let due_at = locked.due_at.filter(|_| self.shared.may_move_due(&locked));
            let until_s = until_s.min(due_at.unwrap_or(f64::MAX).max(self.retry_at_s));
            let rest = (until_s - self.shared.wall_s()).clamp(0.0, 3600.0);
            self.shared.maintenance_cond.wait_for(&mut locked, Duration::from_secs_f64(rest));
        }
    }

    /// Does what is due; answers when something is due next (s).
    pub fn round(&mut self) -> f64 {
        let now_s = self.shared.wall_s();
        self.shared.seconds.store(now_s as u64, Ordering::Relaxed);
        if now_s < self.retry_at_s && self.retry_at_s - now_s <= self.max_pause_s() {
            return self.retry_at_s;
        }
        match self.work(now_s) {
            Ok(()) => {
                self.retry_at_s = 0.0;
                self.shared.warn(self.backoff.worked("beat"));
                self.next_at()
            }
            Err(error) => {
                self.failed(&error);
                self.retry_at_s
            }
        }
    }

    /// A clock that was set back must not make us wait for ever.
    fn max_pause_s(&self) -> f64 {
        self.shared.config.retry_max.as_secs_f64()
    }

    fn failed(&mut self, error: &StoreError) {
        self.healthy_since_ns = 0;
        self.shared.counters.failures.fetch_add(1, Ordering::Relaxed);
        let (pause, line) = self.backoff.failed("beat", error);
        self.shared.warn(line);
        self.retry_at_s = self.shared.wall_s() + pause.as_secs_f64();
    }

    fn work(&mut self, now_s: f64) -> Result<()> {
        let heartbeat_now = std::mem::take(&mut self.shared.locked.lock().heartbeat_now);
        if heartbeat_now
            || now_s >= self.heartbeat_at_s
            || self.heartbeat_at_s - now_s > self.heartbeat_s()
        {
            self.heartbeat(now_s)?;
        }
        self.reclaim_orphans(now_s)?;
        self.move_due(now_s)?;
        self.tick(now_s)?;
        self.look_for_cancels(now_s)
    }

    fn heartbeat_s(&self) -> f64 {
        self.shared.config.heartbeat.as_secs_f64()
    }

    fn next_at(&self) -> f64 {
        let locked = self.shared.locked.lock();
        let due_at =
            locked.due_at.filter(|_| self.shared.may_move_due(&locked)).unwrap_or(f64::MAX);
        drop(locked);
        let tick = self.ticks.iter().flatten().copied().fold(f64::MAX, f64::min);
        self.heartbeat_at_s.min(self.scan_at_s).min(self.cancel_at_s).min(due_at).min(tick)
    }

    /// Whether somebody rang while the round ran.
    fn called(&self, locked: &LockedState) -> bool {
        if self.shared.wall_s() < self.retry_at_s {
            return false;
        }
        let due = locked.due_at.is_some_and(|at| at <= self.shared.wall_s());
        let due = due && self.shared.may_move_due(locked);
        let changed = locked.changed && self.shared.running.load(Ordering::Relaxed) > 0;
        locked.heartbeat_now || changed || due || !locked.deaths.is_empty()
    }

    fn heartbeat(&mut self, now_s: f64) -> Result<()> {
        let shared = self.shared.clone();
        let counters = &shared.counters;
        let totals =
            (counters.processed.load(Ordering::Relaxed), counters.failed.load(Ordering::Relaxed));
        let quiet = shared.locked.lock().quiet;
        let work = report::work(&shared);
        let beat = ProcessReport {
            identity: &shared.identity.name,
            process_key: &shared.identity.place(),
            info: &report::info(&shared),
            concurrency: shared.config.concurrency,
            busy: shared.running.load(Ordering::Relaxed),
            quiet,
            rss_kb: report::rss_kb(),
            rtt_us: counters.rtt_us.load(Ordering::Relaxed),
            work: &work,
            processed: totals.0 - self.reported.0,
            failed: totals.1 - self.reported.1,
            now_s,
        };
        let sent_ns = boot_ns();
        let beaten = self.store.heartbeat(&beat)?;
        self.reported = totals;
        counters.rtt_us.store((boot_ns() - sent_ns) / 1000, Ordering::Relaxed);
        counters.heartbeats.fetch_add(1, Ordering::Relaxed);
        let held = shared.holds_lease();
        shared.heartbeat_ns.store(sent_ns.max(1), Ordering::Relaxed);
        // After a gap (the machine slept) nobody has watched anybody.
        if self.healthy_since_ns == 0 || !held {
            self.healthy_since_ns = sent_ns.max(1);
        }
        if !held {
            // Claims wait for the lease.
            shared.wake_fetcher();
        }
        beaten.signals.iter().for_each(|signal| shared.sink.signal(signal));
        self.heartbeat_at_s = now_s + self.heartbeat_s();
        Ok(())
    }

    /// Siblings that died, by the supervisor's word; then whoever is known to
    /// be dead, or was silent for a lease that we watched from end to end.
    fn reclaim_orphans(&mut self, now_s: f64) -> Result<()> {
        loop {
            // Taken out only when it is done: a failure tries again.
            let Some(death) = self.shared.locked.lock().deaths.front().cloned() else { break };
            self.recover(&death, now_s)?;
            self.shared.locked.lock().deaths.pop_front();
        }
        let lease_s = self.shared.config.lease.as_secs_f64();
        let gap_s = lease_s / f64::from(SCANS_PER_LEASE);
        if now_s < self.scan_at_s && self.scan_at_s - now_s <= gap_s {
            return Ok(());
        }
        let healthy_ns = boot_ns().saturating_sub(self.healthy_since_ns);
        let lease_ns = self.shared.config.lease.as_nanos() as u64;
        let watched = self.healthy_since_ns != 0 && healthy_ns >= lease_ns;
        for owner in self.store.owners()? {
            let silent = watched && owner.heartbeat_age > self.shared.config.lease;
            let other = owner.identity != self.shared.identity.name;
            if other && (silent || owner_identity::is_dead(&owner.process_key, self.local)) {
                let death = WorkerDeath { identity: owner.identity, ..WorkerDeath::default() };
                self.recover(&death, now_s)?;
            }
        }
        self.scan_at_s = now_s + gap_s;
        Ok(())
    }

    fn recover(&mut self, death: &WorkerDeath, now_s: f64) -> Result<()> {
        let done = recovery::recover(&mut *self.store, death, now_s)?;
        let counters = &self.shared.counters;
        counters.recovered.fetch_add(done.returned as u64, Ordering::Relaxed);
        counters.poisoned.fetch_add(done.lines.len() as u64, Ordering::Relaxed);
        done.lines.iter().for_each(|line| self.shared.sink.warn(line));
        if done.returned + done.buried > 0 {
            self.shared.sink.warn(&format!(
                "jobs: {} died{}; {} of its jobs are back in their queues",
                death.identity,
                death.cause.as_ref().map(|cause| format!(" ({cause})")).unwrap_or_default(),
                done.returned
            ));
            self.shared.wake_fetcher();
        }
        Ok(())
    }

    fn move_due(&mut self, now_s: f64) -> Result<()> {
        let mut now_s = now_s;
        loop {
            let locked = self.shared.locked.lock();
            let heard = locked.due_updates;
            let due = locked.due_at.is_some_and(|at| at <= now_s);
            if !due || !self.shared.may_move_due(&locked) {
                return Ok(());
            }
            drop(locked);
            let max = self.shared.config.due_max;
            let due = if self.shared.config.claim_due {
                self.claim_due(now_s, max)?
            } else {
                self.store.move_due(now_s, max)?
            };
            let counters = &self.shared.counters;
            counters.due_moved.fetch_add(due.moved as u64, Ordering::Relaxed);
            let mut locked = self.shared.locked.lock();
            if locked.due_updates == heard {
                locked.due_at = due.next_at;
            }
            drop(locked);
            if due.moved == 0 {
                return Ok(());
            }
            counters.schedule_lag_us.store((due.lag_max_s * 1e6) as u64, Ordering::Relaxed);
            self.shared.wake_fetcher();
            now_s = self.shared.wall_s();
        }
    }

    /// Claims due jobs for Ruby. While that is on its way the fetcher leaves
    /// these tickets alone; when the answer is lost it looks for them.
    fn claim_due(&mut self, now_s: f64, max: usize) -> Result<DueSummary> {
        let mut locked = self.shared.locked.lock();
        let first = locked.next_ticket;
        locked.next_ticket += max as u64;
        locked.reserved_tickets = Some((first, first + max as u64));
        locked.claims_pending += 1;
        drop(locked);
        let claimed = self.store.claim_due(&self.shared.identity.name, first, now_s, max);
        let lost = claimed.is_err();
        let taken = claimed.and_then(|(jobs, due)| {
            self.admission.admit(&mut *self.store, jobs)?;
            Ok(due)
        });
        let mut locked = self.shared.locked.lock();
        locked.reserved_tickets = None;
        locked.claims_pending -= 1;
        locked.reconcile |= lost;
        drop(locked);
        self.shared.fetcher_cond.notify_one();
        self.shared.idle_cond.notify_all();
        taken
    }

    /// Enqueues what the clock asks for: once across all processes, since the
    /// tick's own time is the key. Ticks that nobody was there for are gone.
    fn tick(&mut self, now_s: f64) -> Result<()> {
        for index in 0..self.ticks.len() {
            let Some(at) = self.ticks[index].filter(|at| *at <= now_s) else { continue };
            let cron = &self.shared.config.crons[index];
            let payload = cron.document(&jid(&mut self.random), now_s, self.shared.config.format);
            let key = format!("{}:{}", cron.name, at as i64);
            let queue = &cron.queue;
            let job = NewJob { queue, payload: &payload, at: None, lock: None, bid: None };
            if self.store.push_once(&key, TICK_KEPT, &job)? {
                self.shared.counters.cron_pushed.fetch_add(1, Ordering::Relaxed);
                self.shared.wake_fetcher();
            }
            self.ticks[index] = cron.next(now_s);
        }
        Ok(())
    }

    fn look_for_cancels(&mut self, now_s: f64) -> Result<()> {
        if std::mem::take(&mut self.shared.locked.lock().changed) {
            self.cancel_at_s = self.cancel_at_s.min(now_s + CANCEL_GAP_S);
        }
        if now_s < self.cancel_at_s {
            return Ok(());
        }
        self.cancel_at_s = f64::MAX;
        let jobs: HashMap<u64, _> = self.shared.locked.lock().jobs.clone();
        let jobs: Vec<_> = jobs.into_values().filter(|job| job.is_running()).collect();
        if jobs.is_empty() {
            return Ok(());
        }
        let jids: Vec<&str> = jobs.iter().map(|job| job.document().jid()).collect();
        let answers = self.store.cancelled(&jids)?;
        jobs.iter().zip(answers).filter(|(_, yes)| *yes).for_each(|(job, _)| job.cancel());
        Ok(())
    }

    /// The last counts; then the owner is no more, unless jobs are left for
    /// others to recover.
    fn leave(&mut self) {
        let now_s = self.shared.wall_s();
        let result = self.heartbeat(now_s).and_then(|()| {
            let name = self.shared.identity.name.clone();
            self.store.forget(&name).map(|_| ())
        });
        if let Err(error) = result {
            self.shared.sink.warn(&format!(
                "jobs: could not say good-bye: {error}; others will find out by themselves"
            ));
        }
    }
}

/// 24 hexadecimal digits, as Sidekiq's.
fn jid(random: &mut Random) -> String {
    format!("{:016x}{:08x}", random.draw(), random.draw() >> 32)
}
