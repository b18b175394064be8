//! The maintenance thread: sends heartbeats, moves due jobs, enqueues cron jobs
//! and reclaims the jobs of dead owners. It never waits for a claim, so that a
//! slow claim cannot delay a heartbeat until the lease has run out.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

use super::admission::Admission;
use super::neighbours::Neighbours;
use super::orphans::{self, WorkerDeath};
use super::owner_identity;
use super::reconcile::reconcile;
use super::report;
use super::state::{EngineState, LockedState};
use super::store_retry::StoreRetry;
use crate::cron::Cron;
use crate::store::{DueSummary, NewJob, ProcessReport, Result, Store, StoreError};
use chaton_core::clock::boot_ns;
use fastrand::Rng;

/// Checks for dead owners in the time of one lease.
const SCANS_PER_LEASE: u32 = 4;
/// Least time between two checks for cancelled jobs (s).
const CANCEL_GAP_S: f64 = 0.05;
/// Jobs moved from the schedule in one call.
const DUE_MAX: usize = 1000;
/// How long a cron tick stays marked as enqueued. `catch_up` is shorter.
const TICK_KEPT: Duration = Duration::from_secs(24 * 3600);
/// How long the store remembers a cron entry that no process has: longer than a year, in which each
/// entry has a tick.
const ENTRY_KEPT: Duration = Duration::from_secs(400 * 24 * 3600);

/// The maintenance thread. [`Maintenance::round`] does what is due and never waits.
pub(super) struct Maintenance {
    state: Arc<EngineState>,
    store: Box<dyn Store>,
    admission: Admission,
    store_retry: StoreRetry,
    random: Rng,
    /// The store can only be used from this machine.
    local: bool,
    /// No call before this time (s), unless the store answers again.
    retry_at_s: f64,
    /// [`EngineState::answers`] when the last round began.
    answers_seen: u64,
    heartbeat_at_s: f64,
    scan_at_s: f64,
    cancel_at_s: f64,
    /// When the next tick of each cron is due (s); empty until the store was asked.
    ticks: Vec<Option<f64>>,
    /// Since when every call has succeeded (ns since boot); 0: the last one failed.
    healthy_since_ns: u64,
    /// [`Store::connections`] at the last look.
    connections: u64,
    /// Counts (processed, failed) that are written to the store.
    written: (u64, u64),
    neighbours: Neighbours,
    /// The store's warning that was logged last.
    warning: Option<String>,
}

impl Maintenance {
    pub fn new(state: &Arc<EngineState>, store: Box<dyn Store>, local: bool) -> Self {
        Self {
            admission: Admission::new(state),
            store_retry: StoreRetry::new(state.config.retry_max, state),
            random: Rng::new(),
            local,
            retry_at_s: 0.0,
            answers_seen: 0,
            heartbeat_at_s: 0.0,
            scan_at_s: 0.0,
            cancel_at_s: f64::MAX,
            ticks: vec![],
            healthy_since_ns: 0,
            connections: 0,
            written: (0, 0),
            neighbours: Neighbours::default(),
            warning: None,
            state: state.clone(),
            store,
        }
    }

    /// Runs until the engine stops, then removes the owner from the store.
    pub fn run(mut self) {
        loop {
            let until_s = self.round();
            let mut locked = self.state.locked.lock();
            if locked.fetcher_done {
                drop(locked);
                self.leave();
                return;
            }
            if self.has_work(&locked) {
                continue;
            }
            // The watcher may have found an earlier one since.
            let due_at = locked.due_at.filter(|_| self.state.may_move_due(&locked));
            let until_s = until_s.min(due_at.unwrap_or(f64::MAX).max(self.retry_at_s));
            let rest = (until_s - self.state.now_s()).clamp(0.0, 3600.0);
            self.state.maintenance_cond.wait_for(&mut locked, Duration::from_secs_f64(rest));
        }
    }

    /// Does what is due; returns when something is due next (s).
    pub fn round(&mut self) -> f64 {
        let now_s = self.state.now_s();
        if self.pauses(now_s) && self.retry_at_s - now_s <= self.max_pause_s() {
            return self.retry_at_s;
        }
        self.answers_seen = self.state.answers.load(Ordering::Relaxed);
        match self.do_due(now_s) {
            Ok(()) => {
                self.retry_at_s = 0.0;
                if let Some(gauges) = &self.state.config.gauges {
                    gauges.jobs_failing.store(0, Ordering::Relaxed);
                }
                self.state.warn(self.store_retry.succeeded("heartbeat"));
                self.next_at()
            }
            Err(error) => {
                self.failed(&error);
                self.retry_at_s
            }
        }
    }

    /// Bounds the wait when the clock was set back.
    fn max_pause_s(&self) -> f64 {
        self.state.config.retry_max.as_secs_f64()
    }

    fn pauses(&self, now_s: f64) -> bool {
        let answers = self.state.answers.load(Ordering::Relaxed);
        now_s < self.retry_at_s && answers == self.answers_seen
    }

    fn failed(&mut self, error: &StoreError) {
        self.healthy_since_ns = 0;
        if let Some(gauges) = &self.state.config.gauges {
            gauges.jobs_failing.store(1, Ordering::Relaxed);
        }
        self.state.counters.failures.fetch_add(1, Ordering::Relaxed);
        let (pause, line) = self.store_retry.failed("heartbeat", error);
        self.state.warn(line);
        self.retry_at_s = self.state.now_s() + pause.as_secs_f64();
    }

    fn do_due(&mut self, now_s: f64) -> Result<()> {
        let heartbeat_now = std::mem::take(&mut self.state.locked.lock().heartbeat_now);
        if heartbeat_now
            || now_s >= self.heartbeat_at_s
            || self.heartbeat_at_s - now_s > self.heartbeat_s()
        {
            self.heartbeat(now_s)?;
        }
        // The heartbeat may have set the clock.
        let now_s = self.state.now_s();
        self.reclaim_orphans(now_s)?;
        self.move_due(now_s)?;
        self.push_crons(now_s)?;
        self.check_cancels(now_s)
    }

    fn heartbeat_s(&self) -> f64 {
        self.state.config.heartbeat.as_secs_f64()
    }

    fn next_at(&self) -> f64 {
        let locked = self.state.locked.lock();
        let due_at = locked.due_at.filter(|_| self.state.may_move_due(&locked)).unwrap_or(f64::MAX);
        drop(locked);
        let tick = self.ticks.iter().flatten().copied().fold(f64::MAX, f64::min);
        self.heartbeat_at_s.min(self.scan_at_s).min(self.cancel_at_s).min(due_at).min(tick)
    }

    /// Whether something became due while the round ran.
    fn has_work(&self, locked: &LockedState) -> bool {
        if self.pauses(self.state.now_s()) {
            return false;
        }
        if self.state.now_s() < self.retry_at_s {
            return true;
        }
        let due = locked.due_at.is_some_and(|at| at <= self.state.now_s());
        let due = due && self.state.may_move_due(locked);
        let cancels = locked.check_cancels && self.state.running.load(Ordering::Relaxed) > 0;
        locked.heartbeat_now || cancels || due || !locked.deaths.is_empty()
    }

    fn heartbeat(&mut self, now_s: f64) -> Result<()> {
        let state = self.state.clone();
        let counters = &state.counters;
        let totals =
            (counters.processed.load(Ordering::Relaxed), counters.failed.load(Ordering::Relaxed));
        let (quiet, stops) = state.locked.lock().quiet_and_stops();
        let work = report::running_jobs(&state);
        let report = ProcessReport {
            identity: &state.identity.name,
            process_key: &state.identity.place(stops),
            info: &report::process_info(&state),
            concurrency: state.config.concurrency,
            busy: state.running.load(Ordering::Relaxed),
            quiet,
            rss_kb: report::rss_kb(),
            rtt_us: counters.rtt_us.load(Ordering::Relaxed),
            work: &work,
            processed: totals.0 - self.written.0,
            failed: totals.1 - self.written.1,
            now_s,
        };
        let sent_ns = boot_ns();
        let reply = self.store.heartbeat(&report)?;
        self.written = totals;
        let warning = self.store.warning();
        if warning != self.warning {
            self.state.warn(warning.as_ref().map(|line| format!("jobs: {line}")));
            self.warning = warning;
        }
        let received_ns = boot_ns();
        state.processes.store(reply.processes, Ordering::Relaxed);
        state.note_clock(reply.now_s, sent_ns, received_ns);
        counters.rtt_us.store((received_ns - sent_ns) / 1000, Ordering::Relaxed);
        counters.heartbeats.fetch_add(1, Ordering::Relaxed);
        let held = state.holds_lease();
        self.note_connection(reply.is_new && state.heartbeat_ns.load(Ordering::Relaxed) != 0);
        if !held {
            let mut locked = state.locked.lock();
            locked.leased_from = locked.next_ticket;
        }
        state.heartbeat_ns.store(sent_ns.max(1), Ordering::Relaxed);
        if let Some(gauges) = &state.config.gauges {
            let lease_ms = state.config.store.lease.as_millis() as u64;
            gauges.jobs_lease_ms.store(lease_ms, Ordering::Relaxed);
            gauges.jobs_heartbeat_ms.store((sent_ns / 1_000_000).max(1), Ordering::Relaxed);
        }
        // After a gap (the machine slept) other owners' leases say nothing.
        if self.healthy_since_ns == 0 || !held {
            self.healthy_since_ns = sent_ns.max(1);
        }
        if !held {
            // Claims wait for a valid lease.
            state.wake_fetcher();
        }
        reply.signals.iter().for_each(|signal| state.feed.signal(signal));
        self.heartbeat_at_s = state.now_s() + self.heartbeat_s();
        Ok(())
    }

    /// After a new connection, or when the store has forgotten this owner, the store may have lost its
    /// last writes: the fetcher compares the in-flight set, and the heartbeats of other owners say nothing
    /// for a lease.
    fn note_connection(&mut self, was_forgotten: bool) {
        let before = std::mem::replace(&mut self.connections, self.store.connections());
        if was_forgotten || before != 0 && before != self.connections {
            self.healthy_since_ns = boot_ns().max(1);
            self.state.locked.lock().reconcile = true;
            self.state.fetcher_cond.notify_one();
        }
    }

    /// Reclaims the jobs of siblings whose death the supervisor reported, then those of owners that
    /// are certainly dead or sent no heartbeat for a whole lease in which this engine was healthy.
    fn reclaim_orphans(&mut self, now_s: f64) -> Result<()> {
        loop {
            // Removed only when it is done, so that a failure is tried again.
            let Some(death) = self.state.locked.lock().deaths.front().cloned() else { break };
            self.reclaim(&death, now_s)?;
            self.state.locked.lock().deaths.pop_front();
        }
        let lease_s = self.state.config.store.lease.as_secs_f64();
        let gap_s = lease_s / f64::from(SCANS_PER_LEASE);
        if now_s < self.scan_at_s && self.scan_at_s - now_s <= gap_s {
            return Ok(());
        }
        let owners = self.store.owners()?;
        self.note_connection(false);
        let healthy_ns = boot_ns().saturating_sub(self.healthy_since_ns);
        let lease_ns = self.state.config.store.lease.as_nanos() as u64;
        let watched = self.healthy_since_ns != 0 && healthy_ns >= lease_ns;
        for owner in owners {
            let silent = watched && owner.heartbeat_age > self.state.config.store.lease;
            let other = owner.identity != self.state.identity.name;
            if other && (silent || owner_identity::is_dead(&owner.process_key, self.local)) {
                let crashed = owner_identity::has_crashed(&owner.process_key);
                let death = orphans::unseen(&mut *self.store, owner.identity, crashed)?;
                self.reclaim(&death, now_s)?;
            }
        }
        let lines = self.neighbours.scan(&mut *self.store, &self.state.config)?;
        lines.iter().for_each(|line| self.state.feed.warn(line));
        self.scan_at_s = now_s + gap_s;
        Ok(())
    }

    fn reclaim(&mut self, death: &WorkerDeath, now_s: f64) -> Result<()> {
        let reclaimed = orphans::reclaim(&mut *self.store, death, now_s)?;
        let counters = &self.state.counters;
        counters.recovered.fetch_add(reclaimed.returned as u64, Ordering::Relaxed);
        counters.poisoned.fetch_add(reclaimed.lines.len() as u64, Ordering::Relaxed);
        reclaimed.lines.iter().for_each(|line| self.state.feed.warn(line));
        if reclaimed.returned + reclaimed.dead > 0 {
            self.state.feed.warn(&format!(
                "jobs: {} died{}; {} of its jobs are back in their queues",
                death.identity,
                death.cause.as_ref().map(|cause| format!(" ({cause})")).unwrap_or_default(),
                reclaimed.returned
            ));
            self.state.wake_fetcher();
        }
        Ok(())
    }

    fn move_due(&mut self, now_s: f64) -> Result<()> {
        let mut now_s = now_s;
        loop {
            let locked = self.state.locked.lock();
            let updates = locked.due_updates;
            let due = locked.due_at.is_some_and(|at| at <= now_s);
            if !due || !self.state.may_move_due(&locked) {
                return Ok(());
            }
            drop(locked);
            let due = if self.state.config.claim_due {
                self.claim_due(now_s)?
            } else {
                self.store.move_due(now_s, DUE_MAX)?
            };
            let counters = &self.state.counters;
            counters.due_moved.fetch_add(due.moved as u64, Ordering::Relaxed);
            let mut locked = self.state.locked.lock();
            if locked.due_updates == updates {
                locked.due_at = due.next_at;
            }
            drop(locked);
            if due.moved == 0 {
                return Ok(());
            }
            counters.schedule_lag_us.store((due.lag_max_s * 1e6) as u64, Ordering::Relaxed);
            self.state.wake_fetcher();
            now_s = self.state.now_s();
        }
    }

    /// Claims due jobs for Ruby's client middleware. Meanwhile the fetcher
    /// ignores these tickets; when the reply is lost it looks for them.
    fn claim_due(&mut self, now_s: f64) -> Result<DueSummary> {
        let mut locked = self.state.locked.lock();
        let first = locked.next_ticket;
        locked.next_ticket += DUE_MAX as u64;
        locked.reserved_tickets = Some((first, first + DUE_MAX as u64));
        locked.claims_pending += 1;
        drop(locked);
        let claimed = self.store.claim_due(&self.state.identity.name, first, now_s, DUE_MAX);
        let lost = claimed.is_err();
        let taken = claimed.and_then(|(jobs, due)| {
            self.admission.admit(&mut *self.store, jobs)?;
            Ok(due)
        });
        let mut locked = self.state.locked.lock();
        locked.reserved_tickets = None;
        locked.claims_pending -= 1;
        if lost {
            locked.note_lost_claim(first);
        }
        drop(locked);
        self.state.fetcher_cond.notify_one();
        self.state.idle_wait.changed();
        taken
    }

    /// Enqueues due cron jobs, once across all processes: the tick's time is the
    /// key.
    fn push_crons(&mut self, now_s: f64) -> Result<()> {
        if self.ticks.is_empty() {
            let crons = &self.state.config.crons;
            let first = |cron| first_tick(&mut *self.store, cron, &self.state, now_s);
            self.ticks = crons.iter().map(first).collect::<Result<_>>()?;
        }
        for index in 0..self.ticks.len() {
            let Some(at) = self.ticks[index].filter(|at| *at <= now_s) else { continue };
            let cron = &self.state.config.crons[index];
            let payload =
                cron.document(&jid(&mut self.random), now_s, self.state.config.store.format);
            let key = format!("{}:{}", cron.name, at as i64);
            let queue = &cron.queue;
            let job = NewJob { queue, payload: &payload, at: None, lock: None, bid: None };
            if self.store.push_once(&key, TICK_KEPT, &job)? {
                self.state.counters.cron_pushed.fetch_add(1, Ordering::Relaxed);
                self.state.wake_fetcher();
                if at < self.state.started_at_s {
                    self.state.feed.warn(&format!(
                        "jobs: cron {:?}: no process ran at its last tick, {:.0} s ago; it is enqueued now",
                        cron.name,
                        now_s - at
                    ));
                }
            }
            self.ticks[index] = cron.next(now_s);
        }
        Ok(())
    }

    fn check_cancels(&mut self, now_s: f64) -> Result<()> {
        if std::mem::take(&mut self.state.locked.lock().check_cancels) {
            self.cancel_at_s = self.cancel_at_s.min(now_s + CANCEL_GAP_S);
        }
        if now_s < self.cancel_at_s {
            return Ok(());
        }
        self.cancel_at_s = f64::MAX;
        let jobs = self.state.locked.lock().jobs.clone();
        let jobs: Vec<_> = jobs.into_values().filter(|job| job.is_running()).collect();
        if jobs.is_empty() {
            return Ok(());
        }
        let jids: Vec<&str> = jobs.iter().map(|job| job.document().jid()).collect();
        let answers = self.store.cancelled(&jids)?;
        jobs.iter().zip(answers).filter(|(_, yes)| *yes).for_each(|(job, _)| job.cancel());
        Ok(())
    }

    /// Writes the last counts and removes the owner, unless it has jobs in
    /// flight for others to reclaim.
    fn leave(&mut self) {
        let now_s = self.state.now_s();
        let result = self.heartbeat(now_s).and_then(|()| {
            if std::mem::take(&mut self.state.locked.lock().reconcile) {
                reconcile(&self.state, &mut *self.store, &[], now_s)?;
            }
            let name = self.state.identity.name.clone();
            self.store.forget(&name).map(|_| ())
        });
        if let Err(error) = result {
            self.state.feed.warn(&format!(
                "jobs: this process could not be removed from the store: {error}; its lease will run out"
            ));
        }
    }
}

/// The first tick that this process enqueues: the next one, or the last one if it was missed by at most
/// `catch_up`. The store remembers since when the entry has this schedule, so that a new one does not
/// begin in the past.
fn first_tick(
    store: &mut dyn Store,
    cron: &Cron,
    state: &EngineState,
    now_s: f64,
) -> Result<Option<f64>> {
    let key = format!("chaton:cron:{}", cron.name);
    let fields: HashMap<String, Vec<u8>> = store.load(&key)?.into_iter().collect();
    let is_known = fields.get("schedule").is_some_and(|known| known == cron.schedule.as_bytes());
    let since = fields.get("since").filter(|_| is_known);
    let since = since.and_then(|since| std::str::from_utf8(since).ok()?.parse::<f64>().ok());
    let since_s = since.unwrap_or(state.started_at_s);
    let written = format!("{since_s:.3}");
    let fields = [("schedule", cron.schedule.as_bytes()), ("since", written.as_bytes())];
    store.save(&key, &fields, ENTRY_KEPT)?;
    let oldest_s = since_s.max(now_s - state.config.catch_up.as_secs_f64());
    let missed = cron.last(oldest_s.min(state.started_at_s), now_s);
    Ok(missed.or_else(|| cron.next(now_s)))
}

/// 24 hexadecimal digits, as Sidekiq's.
fn jid(random: &mut Rng) -> String {
    format!("{:016x}{:08x}", random.u64(..), random.u64(..) >> 32)
}
