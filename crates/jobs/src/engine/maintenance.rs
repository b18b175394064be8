//! The maintenance thread: sends heartbeats, moves due jobs, enqueues cron jobs
//! and reclaims the jobs of dead owners. It never waits for a claim, so that a
//! slow claim cannot delay a heartbeat until the lease has run out. Heartbeats also come first in each
//! round, and a round moves one batch of due jobs, so that no backlog delays them.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

use super::admission::Admission;
use super::cron_ticks::CronTicks;
use super::intake::Intake;
use super::job::DUE_AGAIN_S;
use super::left_batches::LeftBatches;
use super::neighbours::Neighbours;
use super::orphans::{self, WorkerDeath};
use super::owner_identity;
use super::reconcile::reconcile;
use super::report;
use super::state::{Chores, EngineState, DEATHS_MAX};
use super::store_retry::StoreRetry;
use crate::store::{DueSummary, ProcessReport, Result, Store, StoreError};
use chaton_core::clock::boot_ns;

/// Time between two looks for dead owners on a store of one machine, where the kernel knows them (s). One whose process
/// has ended is reclaimed at the second look, so that its supervisor can report first which jobs were running.
const LOCAL_SCAN_S: f64 = 1.5;
/// The same on Redis, unless a heartbeat finds one silent for a lease.
const SCAN_S: f64 = 15.0;
/// Time between two looks at other processes' queues (s), at most: by the second one those that were started together
/// with this one have sent a heartbeat.
const NEIGHBOURS_S: f64 = 15.0;
/// Least time between two checks for cancelled jobs (s).
const CANCEL_GAP_S: f64 = 0.05;
/// Jobs moved from the schedule in one call.
const DUE_MAX: usize = 1000;

/// The parts of a round. One whose entries cannot be handled pauses without holding up the others.
#[derive(Clone, Copy)]
enum Part {
    Reclaim,
    Due,
    Cron,
    Cancel,
}

/// The names of the parts in the log.
const PARTS: [&str; 4] = ["reclaiming jobs", "due jobs", "cron", "cancellations"];

/// The maintenance thread. [`Maintenance::round`] does what is due and never waits.
pub(super) struct Maintenance {
    state: Arc<EngineState>,
    store: Box<dyn Store>,
    admission: Admission,
    store_retry: StoreRetry,
    /// Of each [`Part`], and no call of it before this time (s).
    parts: [(StoreRetry, f64); 4],
    /// The store can only be used from this machine.
    local: bool,
    /// No call before this time (s), unless the store answers again.
    retry_at_s: f64,
    /// [`EngineState::answers`] when the last round began.
    answers_seen: u64,
    heartbeat_at_s: f64,
    /// When the next scheduled job is due (s); `None`: none is scheduled.
    due_at: Option<f64>,
    /// Workers of the same supervisor that died, until their jobs are reclaimed.
    deaths: VecDeque<WorkerDeath>,
    scan_at_s: f64,
    cancel_at_s: f64,
    cron_ticks: CronTicks,
    /// Since when every call has succeeded (ns since boot); 0: the last one failed.
    healthy_since_ns: u64,
    /// [`Store::connections`] at the last look.
    connections: u64,
    /// Counts (processed, failed) that are written to the store.
    written: (u64, u64),
    /// Owners whose process had ended at the last look.
    ended: HashSet<String>,
    neighbours: Neighbours,
    neighbours_at_s: f64,
    left_batches: LeftBatches,
    /// Another process looks for dead owners.
    follows: bool,
    /// The store's warning that was logged last.
    warning: Option<String>,
}

impl Maintenance {
    pub fn new(state: &Arc<EngineState>, store: Box<dyn Store>, local: bool) -> Self {
        Self {
            admission: Admission::new(state),
            store_retry: StoreRetry::new(state.config.retry_max, state),
            parts: PARTS.map(|_| (StoreRetry::new(state.config.retry_max, state), 0.0)),
            local,
            retry_at_s: 0.0,
            answers_seen: 0,
            heartbeat_at_s: 0.0,
            due_at: Some(0.0),
            deaths: VecDeque::new(),
            scan_at_s: 0.0,
            cancel_at_s: f64::MAX,
            cron_ticks: CronTicks::new(),
            healthy_since_ns: 0,
            connections: 0,
            written: (0, 0),
            ended: HashSet::new(),
            neighbours: Neighbours::default(),
            neighbours_at_s: 0.0,
            left_batches: LeftBatches::default(),
            follows: false,
            warning: None,
            state: state.clone(),
            store,
        }
    }

    /// Runs until the engine stops, then removes the owner from the store.
    pub fn run(mut self) {
        loop {
            self.state.due_waits.store(false, Ordering::Relaxed);
            let until_s = self.round();
            let state = self.state.clone();
            let mut chores = state.chores.lock();
            if chores.fetcher_done {
                drop(chores);
                self.leave();
                return;
            }
            // Before the look at the room, so that a start after it ends the wait.
            let due_at = chores.due.unwrap_or(self.due_at);
            let is_due = due_at.is_some_and(|at| at <= state.now_s());
            state.due_waits.store(is_due && state.config.claim_due, Ordering::SeqCst);
            if self.has_work(&chores) {
                continue;
            }
            // The watcher may have found an earlier one since.
            let until_s = until_s.min(self.due_at(&chores).max(self.retry_at_s));
            let rest = (until_s - state.now_s()).clamp(0.0, 3600.0);
            state.maintenance_cond.wait_for(&mut chores, Duration::from_secs_f64(rest));
        }
    }

    /// Does what is due; returns when something is due next (s).
    pub fn round(&mut self) -> f64 {
        let now_s = self.state.now_s();
        if self.pauses(now_s) && self.retry_at_s - now_s <= self.max_pause_s() {
            return self.retry_at_s;
        }
        self.answers_seen = self.state.answers.load(Ordering::Relaxed);
        match self.do_due() {
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

    fn do_due(&mut self) -> Result<()> {
        self.keep_lease()?;
        self.run_part(Part::Reclaim, Self::reclaim_orphans)?;
        self.run_part(Part::Due, Self::move_due)?;
        self.run_part(Part::Cron, Self::push_crons)?;
        self.run_part(Part::Cancel, Self::check_cancels)
    }

    /// Runs a part unless it pauses. An outage concerns all parts; any other error concerns what this one has
    /// read or written.
    fn run_part(&mut self, part: Part, run: fn(&mut Self, f64) -> Result<()>) -> Result<()> {
        let (now_s, index) = (self.state.now_s(), part as usize);
        if now_s < self.part_at_s(part) {
            return Ok(());
        }
        let result = run(self, now_s);
        let (retry, at_s) = &mut self.parts[index];
        let line = match result {
            Ok(()) => retry.succeeded(PARTS[index]),
            Err(error) if error.is_outage() => return Err(error),
            Err(error) => {
                self.state.counters.failures.fetch_add(1, Ordering::Relaxed);
                let (pause, line) = retry.failed(PARTS[index], &error);
                *at_s = now_s + pause.as_secs_f64();
                line
            }
        };
        self.state.warn(line);
        Ok(())
    }

    /// Until when a part pauses (s).
    fn part_at_s(&self, part: Part) -> f64 {
        let at_s = self.parts[part as usize].1;
        // Bounded, in case the clock was set back.
        if at_s - self.state.now_s() <= self.max_pause_s() {
            at_s
        } else {
            0.0
        }
    }

    /// Sends the heartbeat if it is due.
    fn keep_lease(&mut self) -> Result<()> {
        let now_s = self.state.now_s();
        let heartbeat_now = std::mem::take(&mut self.state.chores.lock().heartbeat);
        if heartbeat_now
            || now_s >= self.heartbeat_at_s
            || self.heartbeat_at_s - now_s > 2.0 * self.heartbeat_s()
        {
            self.heartbeat(now_s)?;
        }
        Ok(())
    }

    fn heartbeat_s(&self) -> f64 {
        self.state.config.heartbeat.as_secs_f64()
    }

    fn next_at(&self) -> f64 {
        let chores = self.state.chores.lock();
        let due_at = self.due_at(&chores);
        let reclaim_at = if self.has_deaths(&chores) { 0.0 } else { self.scan_at_s };
        drop(chores);
        let tick = self.cron_ticks.next_at(&self.state);
        let parts = [
            (Part::Reclaim, reclaim_at),
            (Part::Due, due_at),
            (Part::Cron, tick),
            (Part::Cancel, self.cancel_at_s),
        ];
        let times = parts.map(|(part, at_s)| at_s.max(self.part_at_s(part)));
        times.into_iter().fold(self.heartbeat_at_s, f64::min)
    }

    /// When due jobs may be moved next (s).
    fn due_at(&self, chores: &Chores) -> f64 {
        let due_at = chores.due.unwrap_or(self.due_at);
        let due_at = due_at.filter(|_| self.state.may_move_due());
        due_at.map_or(f64::MAX, |at| at.max(self.part_at_s(Part::Due)))
    }

    fn has_deaths(&self, chores: &Chores) -> bool {
        !self.deaths.is_empty() || !chores.deaths.is_empty()
    }

    /// Whether something became due while the round ran.
    fn has_work(&self, chores: &Chores) -> bool {
        let now_s = self.state.now_s();
        if self.pauses(now_s) {
            return false;
        }
        if now_s < self.retry_at_s {
            return true;
        }
        let may = |part| now_s >= self.part_at_s(part);
        let cancels = chores.cancels && self.state.running.load(Ordering::Relaxed) > 0;
        chores.heartbeat
            || cancels && may(Part::Cancel)
            || self.due_at(chores) <= now_s
            || self.has_deaths(chores) && may(Part::Reclaim)
    }

    fn heartbeat(&mut self, now_s: f64) -> Result<()> {
        let state = self.state.clone();
        let counters = &state.counters;
        let totals =
            (counters.processed.load(Ordering::Relaxed), counters.failed.load(Ordering::Relaxed));
        let (quiet, stops) = state.quiet_and_stops();
        // What killed its supervisor may kill it, too, a moment after it has noticed.
        let orphaned = state.config.gauges.as_ref().is_some_and(|gauges| gauges.is_orphaned());
        let work = report::running_jobs(&state);
        let report = ProcessReport {
            identity: &state.identity.name,
            process_key: &state.identity.place(stops && !orphaned),
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
        if reply.silent > 0 {
            self.scan_at_s = 0.0;
        }
        self.follows = reply.follows;
        state.note_clock(reply.now_s, sent_ns, received_ns);
        counters.rtt_us.store((received_ns - sent_ns) / 1000, Ordering::Relaxed);
        counters.heartbeats.fetch_add(1, Ordering::Relaxed);
        let held = state.holds_lease();
        self.note_connection(reply.is_new && state.heartbeat_ns.load(Ordering::Relaxed) != 0);
        if !held {
            let next_ticket = state.next_ticket.load(Ordering::SeqCst);
            state.leased_from.store(next_ticket, Ordering::SeqCst);
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
        let (now_s, gap_s) = (state.now_s(), self.heartbeat_s());
        // At multiples of the gap those of several processes come at the same time.
        let shared_at_s = ((now_s / gap_s + 0.5).floor() + 1.0) * gap_s;
        self.heartbeat_at_s = if reply.shared { shared_at_s } else { now_s + gap_s };
        Ok(())
    }

    /// After a new connection, or when the store has forgotten this owner, the store may have lost its
    /// last writes: the fetcher compares the in-flight set, and the heartbeats of other owners say nothing
    /// for a lease.
    fn note_connection(&mut self, was_forgotten: bool) {
        let before = std::mem::replace(&mut self.connections, self.store.connections());
        if was_forgotten || before != 0 && before != self.connections {
            self.healthy_since_ns = boot_ns().max(1);
            self.state.tell_fetcher(|inbox| inbox.doubts.compare = true);
        }
    }

    /// Reclaims the jobs of siblings whose death the supervisor reported, then those of owners that
    /// are certainly dead or sent no heartbeat for a whole lease in which this engine was healthy.
    fn reclaim_orphans(&mut self, now_s: f64) -> Result<()> {
        let mut failed = Ok(());
        self.deaths.append(&mut self.state.chores.lock().deaths);
        self.deaths.drain(..self.deaths.len().saturating_sub(DEATHS_MAX));
        for _ in 0..self.deaths.len() {
            self.keep_lease()?;
            let Some(death) = self.deaths.pop_front() else { break };
            let result = self.reclaim(&death, now_s);
            // A failure is tried again, after the others.
            if result.is_err() {
                self.deaths.push_back(death);
            }
            note_failure(&mut failed, result)?;
        }
        failed.and(self.scan_owners(now_s))
    }

    fn scan_owners(&mut self, now_s: f64) -> Result<()> {
        let lease_s = self.state.config.store.lease.as_secs_f64();
        let gap_s = if self.local { LOCAL_SCAN_S } else { SCAN_S };
        let gap_s = gap_s.min(lease_s);
        if now_s < self.scan_at_s && self.scan_at_s - now_s <= gap_s {
            return Ok(());
        }
        if self.follows {
            self.scan_at_s = now_s + gap_s;
            return Ok(());
        }
        let owners = self.store.owners()?;
        self.note_connection(false);
        let healthy_ns = boot_ns().saturating_sub(self.healthy_since_ns);
        let lease_ns = self.state.config.store.lease.as_nanos() as u64;
        let watched = self.healthy_since_ns != 0 && healthy_ns >= lease_ns;
        let mut failed = Ok(());
        let ended = owners.iter().filter(|owner| owner.ended).map(|owner| owner.identity.clone());
        let ended_before = std::mem::replace(&mut self.ended, ended.collect());
        for owner in owners {
            let ended = self.local && owner.ended && ended_before.contains(&owner.identity);
            let silent = watched && owner.heartbeat_age > self.state.config.store.lease;
            let other = owner.identity != self.state.identity.name;
            if other && (silent || owner_identity::is_dead(&owner.process_key, self.local, ended)) {
                self.keep_lease()?;
                let crashed = owner_identity::has_crashed(&owner.process_key, silent || ended);
                let death = orphans::unseen(&mut *self.store, owner.identity, crashed);
                let reclaimed = death.and_then(|death| self.reclaim(&death, now_s));
                note_failure(&mut failed, reclaimed)?;
            }
        }
        failed?;
        if watched {
            self.left_batches.sweep(&mut *self.store, &self.state, now_s)?;
        }
        self.scan_at_s = now_s + gap_s;
        self.look_around(now_s, NEIGHBOURS_S.min(lease_s))
    }

    /// Looks at the queues of other processes, if that is due.
    fn look_around(&mut self, now_s: f64, gap_s: f64) -> Result<()> {
        if now_s < self.neighbours_at_s && self.neighbours_at_s - now_s <= gap_s {
            return Ok(());
        }
        let lines = self.neighbours.scan(&mut *self.store, &self.state.config)?;
        lines.iter().for_each(|line| self.state.feed.warn(line));
        self.neighbours_at_s = now_s + gap_s;
        Ok(())
    }

    fn reclaim(&mut self, death: &WorkerDeath, now_s: f64) -> Result<()> {
        let reclaimed = orphans::reclaim(&mut *self.store, death, now_s)?;
        self.left_batches.next_at_s = 0.0;
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

    /// Moves one batch of due jobs; the next rounds move the others.
    fn move_due(&mut self, now_s: f64) -> Result<()> {
        let mut chores = self.state.chores.lock();
        self.due_at = chores.due.take().unwrap_or(self.due_at);
        if self.due_at(&chores) > now_s {
            return Ok(());
        }
        drop(chores);
        let due = if self.state.config.claim_due {
            self.claim_due(now_s)?
        } else {
            self.store.move_due(now_s, DUE_MAX)?
        };
        let counters = &self.state.counters;
        counters.due_moved.fetch_add(due.moved as u64, Ordering::Relaxed);
        // What the watcher has found since comes next.
        self.due_at = due.next_at;
        if due.moved > 0 {
            counters.schedule_lag_us.store((due.lag_max_s * 1e6) as u64, Ordering::Relaxed);
            self.state.wake_fetcher();
        }
        Ok(())
    }

    /// Claims due jobs for Ruby's client middleware, as many as there is room for. Meanwhile the fetcher
    /// ignores these tickets; when the reply is lost it looks for them.
    fn claim_due(&mut self, now_s: f64) -> Result<DueSummary> {
        let room = self.state.due_room().max(1);
        let first = self.state.next_ticket.fetch_add(room as u64, Ordering::SeqCst);
        self.state.inbox.lock().due_claim = Some((first, first + room as u64));
        let claimed = self.store.claim_due(&self.state.identity.name, first, now_s, room);
        let lost = claimed.is_err();
        let taken = claimed.and_then(|(jobs, due)| {
            self.admission.admit(&mut *self.store, jobs)?;
            Ok(due)
        });
        self.state.tell_fetcher(|inbox| {
            inbox.due_claim = None;
            if lost {
                inbox.doubts.note_lost_claim(first);
            }
        });
        self.state.idle_wait.changed();
        if self.state.due_is_refused() {
            self.parts[Part::Due as usize].1 = now_s + DUE_AGAIN_S;
        }
        taken
    }

    fn push_crons(&mut self, now_s: f64) -> Result<()> {
        self.cron_ticks.push_due(&mut *self.store, &self.state, now_s)
    }

    fn check_cancels(&mut self, now_s: f64) -> Result<()> {
        if std::mem::take(&mut self.state.chores.lock().cancels) {
            self.cancel_at_s = self.cancel_at_s.min(now_s + CANCEL_GAP_S);
        }
        if now_s < self.cancel_at_s {
            return Ok(());
        }
        let jobs = self.state.running_jobs();
        if jobs.is_empty() {
            self.cancel_at_s = f64::MAX;
            return Ok(());
        }
        let jids: Vec<&str> = jobs.iter().map(|job| job.document().jid()).collect();
        let answers = self.store.cancelled(&jids)?;
        self.cancel_at_s = f64::MAX;
        jobs.iter().zip(answers).filter(|(_, yes)| *yes).for_each(|(job, _)| job.cancel());
        Ok(())
    }

    /// Writes the last counts and removes the owner, unless it has jobs in
    /// flight for others to reclaim.
    pub(super) fn leave(&mut self) {
        let now_s = self.state.now_s();
        let result = self.heartbeat(now_s).and_then(|()| {
            // The fetcher has ended: what it was told last is taken here.
            Intake::new(&self.state).take(&self.state);
            if self.state.hand.read().doubts.compare {
                reconcile(&self.state, &mut *self.store, &[], || ())?;
            }
            let name = self.state.identity.name.clone();
            if self.state.hand.read().has_note {
                orphans::remove_note(&mut *self.store, &name)?;
            }
            self.store.forget(&name).map(|_| ())
        });
        if let Err(error) = result {
            self.state.feed.warn(&format!(
                "jobs: this process could not be removed from the store: {error}; its lease will run out"
            ));
        }
    }
}

/// Keeps the first failure for later; returns an outage at once.
fn note_failure(first: &mut Result<()>, result: Result<()>) -> Result<()> {
    match result {
        Err(error) if error.is_outage() => return Err(error),
        Err(error) if first.is_ok() => *first = Err(error),
        _ => {}
    }
    Ok(())
}
