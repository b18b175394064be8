//! The engine's state: what its threads, its jobs and Ruby's threads share.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use chaton_core::clock::{boot_ns, now_ns, wall_s};
use chaton_core::engine::Feed;
use chaton_core::idle_wait::IdleWait;
use chaton_core::process::counters::{add, ClassCounters};
use parking_lot::{Condvar, Mutex};
use rustc_hash::FxHashMap;

use super::config::Config;
use super::job::{Job, JobOwner, Run};
use super::job_log::JobLog;
use super::orphans::WorkerDeath;
use super::owner_identity::OwnerIdentity;
use super::stats::JobCounters;
use crate::outcome::Outcome;
use crate::store::{Ack, Interrupt};

/// Weight of the newest run in the mean time of a job.
const SERVICE_WEIGHT: f64 = 0.05;
/// Due jobs that may wait for client middleware. Claimed half by half, they last longer than a claim takes,
/// and no job of a queue waits long behind them.
pub(super) const DUE_AHEAD: usize = 256;
/// Deaths of siblings that may wait to be handled.
const DEATHS_MAX: usize = 64;
/// Jobs that ended without an acknowledgement and are remembered.
const UNACKNOWLEDGED_MAX: usize = 10_000;

fn boot_s(boot_ns: u64) -> f64 {
    boot_ns as f64 / 1e9
}

/// The part of the engine's state behind its mutex: the claimed jobs, and what
/// its threads ask of each other.
#[derive(Default)]
pub(super) struct LockedState {
    /// Claimed and not ended, by ticket.
    pub jobs: FxHashMap<u64, Arc<Job>>,
    /// Ended and not yet acknowledged to the store.
    pub acks: Vec<Ack>,
    /// When the first of them ended (ns).
    pub acks_since_ns: u64,
    /// Acknowledgements in the call that runs now.
    pub acks_in_write: usize,
    /// Locks (key, jid) to give up because their job started.
    pub unlocks: Vec<(String, String)>,
    /// Suspects that wait until they can run alone, each with the time (ns) at which it is rescheduled.
    pub suspects: VecDeque<(Arc<Job>, u64)>,
    /// Ticket of the suspect that runs alone.
    pub running_alone: Option<u64>,
    /// The store has a note about a suspect that ran alone.
    pub has_note: bool,
    /// Claims that have no reply yet.
    pub claims_pending: usize,
    /// Tickets, first and one past the last, that the maintenance thread claims due jobs under.
    pub reserved_tickets: Option<(u64, u64)>,
    /// Compare the in-flight set in the store with `jobs`: the reply to a claim was lost, or the
    /// store may have lost its last writes.
    pub reconcile: bool,
    /// The first ticket of the claims whose reply was lost.
    pub lost_from: Option<u64>,
    /// The first ticket of those claimed since the lease last began. While it lasts, no other process
    /// reclaims them.
    pub leased_from: u64,
    /// Jobs that ran when the engine gave them up, by ticket: they stay in flight.
    pub left: HashSet<u64>,
    /// Jobs that ended in another way than [`Outcome::Ack`], by ticket.
    unacknowledged: BTreeSet<u64>,
    /// The first ticket from which `unacknowledged` is complete.
    remembered_from: u64,
    /// Mean time of a run in ns; 0 while unknown.
    pub service_ns: f64,
    /// The next ticket.
    pub next_ticket: u64,
    /// No more claims.
    pub quiet: bool,
    /// The engine ends.
    pub stopping: bool,
    /// The fetcher has ended: the maintenance thread may remove the owner.
    pub fetcher_done: bool,
    /// A slot of a limit was released, and the first job of its line may be in its queue now.
    pub slot_released: bool,
    /// The last claim found all queues empty.
    pub queues_empty: bool,
    /// Under strict order, the queues before the lowest one that claimed jobs came from.
    pub higher_queues: Vec<Arc<str>>,
    /// One of `higher_queues` got a job.
    pub preempt: bool,
    /// When the next scheduled job is due (s); `None`: none is scheduled.
    pub due_at: Option<f64>,
    /// How often the watcher has set `due_at`.
    pub due_updates: u64,
    /// Jobs may have been cancelled.
    pub check_cancels: bool,
    /// The next heartbeat is due at once.
    pub heartbeat_now: bool,
    /// Workers of the same supervisor that died.
    pub deaths: VecDeque<WorkerDeath>,
    /// The lines about ended jobs that are not written yet.
    pub log: JobLog,
}

impl LockedState {
    /// Whether the engine claims nothing, and whether that is because it was asked to: one that has claimed
    /// nothing yet may be about to begin.
    pub fn quiet_and_stops(&self) -> (bool, bool) {
        (self.quiet, self.quiet && self.next_ticket > 1)
    }

    /// Adds an acknowledgement for the fetcher to write.
    pub fn push_ack(&mut self, ack: Ack) {
        if self.acks.is_empty() {
            self.acks_since_ns = now_ns();
        }
        if ack.outcome != Outcome::Ack {
            self.note_unacknowledged(ack.ticket);
        }
        self.acks.push(ack);
    }

    /// Notes that a job is not in hand any more though it was not acknowledged.
    pub fn note_unacknowledged(&mut self, ticket: u64) {
        self.unacknowledged.insert(ticket);
        if self.unacknowledged.len() > UNACKNOWLEDGED_MAX {
            self.remembered_from = self.unacknowledged.pop_first().map_or(0, |first| first + 1);
        }
    }

    /// Whether a job that is not in hand any more has ended with [`Outcome::Ack`].
    pub fn was_acknowledged(&self, ticket: u64) -> bool {
        ticket >= self.remembered_from && !self.unacknowledged.contains(&ticket)
    }

    /// Notes that the reply to a claim with this first ticket was lost.
    pub fn note_lost_claim(&mut self, ticket: u64) {
        self.reconcile = true;
        self.lost_from = Some(self.lost_from.map_or(ticket, |from| from.min(ticket)));
    }

    /// Whether no suspect waits or runs.
    pub fn has_no_suspect(&self) -> bool {
        self.suspects.is_empty() && self.running_alone.is_none()
    }

    /// Takes acknowledgements back, to be written before the others.
    pub fn return_acks(&mut self, acks: Vec<Ack>) {
        let newer = std::mem::replace(&mut self.acks, acks);
        self.acks.extend(newer);
    }

    /// Whether nothing is claimed, running or unwritten.
    pub fn is_idle(&self) -> bool {
        let written = self.acks.is_empty() && self.acks_in_write == 0;
        self.jobs.is_empty() && self.claims_pending == 0 && written
    }
}

/// What the engine's threads, its jobs and Ruby's threads share.
pub struct EngineState {
    pub(super) config: Config,
    pub(super) identity: OwnerIdentity,
    pub(super) feed: Arc<dyn Feed<Job>>,
    pub(super) locked: Mutex<LockedState>,
    /// Wakes the fetcher.
    pub(super) fetcher_cond: Condvar,
    /// Wakes the maintenance thread.
    pub(super) maintenance_cond: Condvar,
    /// Waits until the engine is idle.
    pub(super) idle_wait: IdleWait,
    /// The fetcher waits (set under the mutex).
    pub(super) fetcher_waits: AtomicBool,
    /// It waits and would claim for a thread that is idle. A thread is so only a moment after its job has ended.
    pub(super) thread_wanted: AtomicBool,
    /// Claimed from queues, not started.
    pub(super) unstarted: AtomicUsize,
    /// Due jobs claimed for client middleware, not started.
    pub(super) due_unstarted: AtomicUsize,
    /// [`EngineState::moves`] when due jobs were last refused by the pool or taken back from it.
    due_refused: AtomicU64,
    /// The maintenance thread waits for room for due jobs.
    pub(super) due_waits: AtomicBool,
    /// Started, not ended.
    pub(super) running: AtomicUsize,
    /// Jobs started since the engine began.
    pub(super) starts: AtomicU64,
    /// The fetcher is woken when at most this many jobs are unstarted.
    pub(super) low_water: AtomicUsize,
    /// When the last heartbeat that succeeded was sent (ns since boot); 0: never.
    pub(super) heartbeat_ns: AtomicU64,
    /// When the engine began (s since 1970).
    pub(super) started_at_s: f64,
    /// The store's clock less the time since boot (s, as bits), measured by heartbeats. So a change of this
    /// machine's clock moves neither limits nor due times.
    clock_offset: AtomicU64,
    /// Processes that claim from the store, as the last heartbeat found.
    pub(super) processes: AtomicUsize,
    pub(super) counters: JobCounters,
    pub(super) watch: OnceLock<Arc<dyn Interrupt>>,
    /// With this error the store could not be reached at the start; it is reported.
    pub(super) error_at_start: OnceLock<String>,
    /// How often the watcher found that the store answers again. Each time ends the pauses of the
    /// other threads.
    pub(super) answers: AtomicU64,
}

impl EngineState {
    pub(super) fn new(
        config: Config,
        identity: OwnerIdentity,
        feed: Arc<dyn Feed<Job>>,
    ) -> Arc<Self> {
        let (quiet, log) = (config.begins_quiet, JobLog::new(config.log));
        let locked =
            LockedState { next_ticket: 1, due_at: Some(0.0), quiet, log, ..LockedState::default() };
        Arc::new(Self {
            config,
            identity,
            feed,
            locked: Mutex::new(locked),
            fetcher_cond: Condvar::new(),
            maintenance_cond: Condvar::new(),
            idle_wait: IdleWait::default(),
            fetcher_waits: AtomicBool::new(false),
            thread_wanted: AtomicBool::new(false),
            unstarted: AtomicUsize::new(0),
            due_unstarted: AtomicUsize::new(0),
            due_refused: AtomicU64::new(u64::MAX),
            due_waits: AtomicBool::new(false),
            running: AtomicUsize::new(0),
            starts: AtomicU64::new(0),
            low_water: AtomicUsize::new(0),
            heartbeat_ns: AtomicU64::new(0),
            started_at_s: wall_s(),
            clock_offset: AtomicU64::new((wall_s() - boot_s(boot_ns())).to_bits()),
            processes: AtomicUsize::new(1),
            counters: JobCounters::default(),
            watch: OnceLock::new(),
            error_at_start: OnceLock::new(),
            answers: AtomicU64::new(0),
        })
    }

    /// Notes that the store's clock showed this time at some moment between two others (ns since boot). What is
    /// assumed already stays where that leaves it possible, so that a slow answer moves nothing.
    pub(super) fn note_clock(&self, store_s: f64, sent_ns: u64, received_ns: u64) {
        let assumed = f64::from_bits(self.clock_offset.load(Ordering::Relaxed));
        let offset = assumed.clamp(store_s - boot_s(received_ns), store_s - boot_s(sent_ns));
        self.clock_offset.store(offset.to_bits(), Ordering::Relaxed);
    }

    /// Claims again though the queues were empty at the last claim.
    pub(super) fn wake_fetcher(&self) {
        self.locked.lock().queues_empty = false;
        self.fetcher_cond.notify_one();
    }

    /// A thread has become idle.
    pub(super) fn note_idle_thread(&self) {
        if self.thread_wanted.load(Ordering::SeqCst) {
            let _held = self.locked.lock();
            self.fetcher_cond.notify_one();
        }
    }

    /// Ends the pauses of the fetcher and the maintenance thread.
    pub(super) fn end_pauses(&self) {
        let _held = self.locked.lock();
        self.answers.fetch_add(1, Ordering::Relaxed);
        self.fetcher_cond.notify_one();
        self.maintenance_cond.notify_one();
    }

    /// Makes the watcher choose anew which queues it watches.
    pub(super) fn wake_watcher(&self) {
        self.watch.get().inspect(|watch| watch.interrupt());
    }

    /// Notes that a sibling died. Beyond a bound the oldest one is left to its lease.
    pub(super) fn add_death(&self, death: WorkerDeath) {
        let mut locked = self.locked.lock();
        if locked.deaths.len() >= DEATHS_MAX {
            locked.deaths.pop_front();
        }
        locked.deaths.push_back(death);
        drop(locked);
        self.maintenance_cond.notify_one();
    }

    /// Whether due jobs may be moved now: not while stopping, and through Ruby's middleware only while the
    /// pool has room for them and no suspect has to run alone.
    pub(super) fn may_move_due(&self, locked: &LockedState) -> bool {
        let is_free = || !locked.quiet && locked.has_no_suspect() && self.due_room() > 0;
        !locked.stopping && (!self.config.claim_due || is_free())
    }

    /// How many due jobs may be claimed for client middleware. After a refusal only as many as threads are
    /// free, until a job has started or ended.
    pub(super) fn due_room(&self) -> usize {
        let waiting = self.due_unstarted.load(Ordering::SeqCst);
        if waiting > DUE_AHEAD / 2 {
            return 0;
        }
        let room = DUE_AHEAD - waiting;
        if self.due_is_refused() {
            return room.min(self.feed.idle_threads().saturating_sub(waiting));
        }
        room
    }

    /// Starts and ends of jobs so far: ends are starts less running jobs.
    fn moves(&self) -> u64 {
        let running = self.running.load(Ordering::SeqCst) as u64;
        (2 * self.starts.load(Ordering::SeqCst)).wrapping_sub(running)
    }

    /// Notes that due jobs did not find room.
    pub(super) fn refuse_due(&self) {
        self.due_refused.store(self.moves(), Ordering::SeqCst);
    }

    /// Whether no job has started or ended since due jobs found no room.
    pub(super) fn due_is_refused(&self) -> bool {
        self.due_refused.load(Ordering::SeqCst) == self.moves()
    }

    /// The count of claimed jobs that no thread has started, apart for due jobs: neither kind takes the
    /// other's room.
    pub(super) fn unstarted_of(&self, due: bool) -> &AtomicUsize {
        if due {
            &self.due_unstarted
        } else {
            &self.unstarted
        }
    }

    /// All claimed jobs that no thread has started.
    pub(super) fn all_unstarted(&self) -> usize {
        [&self.unstarted, &self.due_unstarted].iter().map(|n| n.load(Ordering::Relaxed)).sum()
    }

    /// Whether the engine may claim jobs: a waiting suspect comes first.
    pub(super) fn may_claim(&self, locked: &LockedState) -> bool {
        !locked.quiet
            && !locked.stopping
            && (!locked.queues_empty || locked.slot_released)
            && locked.has_no_suspect()
            && self.holds_lease()
    }

    /// Whether the engine's lease is valid.
    pub(super) fn holds_lease(&self) -> bool {
        self.leased_at_ns().is_some()
    }

    /// Now, by the store's clock (s since 1970).
    pub(super) fn now_s(&self) -> f64 {
        self.store_s(boot_ns())
    }

    /// Counts a run for the metrics. The lock is held: no other thread counts.
    fn count_run(&self, job: &Job, run: Run, fails: bool) {
        let Some(gauges) = &self.config.gauges else { return };
        let counters = gauges.named::<ClassCounters>(job.document().class(), job.queue());
        let failed = fails || job.has_failed();
        add(if failed { &counters.failed } else { &counters.done }, 1);
        counters.run_time.add_alone(run.ran_ns);
        if let Some(enqueued_at_s) = job.document().enqueued_at_s() {
            let waited_s = job.started_at_s() - enqueued_at_s;
            // Clocks of machines differ a little.
            counters.latency.add_alone((waited_s.max(0.0) * 1e9) as u64);
        }
    }

    pub(super) fn warn(&self, line: Option<String>) {
        line.iter().for_each(|line| self.feed.warn(line));
    }
}

impl JobOwner for EngineState {
    fn leased_at_ns(&self) -> Option<u64> {
        let (heartbeat, now_ns) = (self.heartbeat_ns.load(Ordering::Relaxed), boot_ns());
        let age_ns = now_ns.saturating_sub(heartbeat);
        let valid = heartbeat != 0 && age_ns < self.config.store.lease.as_nanos() as u64;
        valid.then_some(now_ns)
    }

    fn store_s(&self, boot_ns: u64) -> f64 {
        f64::from_bits(self.clock_offset.load(Ordering::Relaxed)) + boot_s(boot_ns)
    }

    fn job_started(&self, due: bool, unlock: Option<(String, String)>) {
        // Running first: idle is "none unstarted and none running".
        self.running.fetch_add(1, Ordering::AcqRel);
        self.starts.fetch_add(1, Ordering::Relaxed);
        let left = self.unstarted_of(due).fetch_sub(1, Ordering::AcqRel) - 1;
        if self.due_waits.load(Ordering::SeqCst) && self.due_room() > 0 {
            let _held = self.locked.lock();
            self.maintenance_cond.notify_one();
        }
        let asleep = self.fetcher_waits.load(Ordering::SeqCst);
        if let Some(unlock) = unlock {
            self.locked.lock().unlocks.push(unlock);
            self.fetcher_cond.notify_one();
        } else if asleep && !due && left <= self.low_water.load(Ordering::Relaxed) {
            let _held = self.locked.lock();
            self.fetcher_cond.notify_one();
        }
    }

    fn job_left(&self, ticket: u64) {
        self.running.fetch_sub(1, Ordering::AcqRel);
        let mut locked = self.locked.lock();
        locked.jobs.remove(&ticket);
        locked.left.insert(ticket);
        drop(locked);
        self.fetcher_cond.notify_one();
        self.idle_wait.changed();
    }

    fn job_put_back(&self) {
        self.counters.put_back.fetch_add(1, Ordering::Relaxed);
        if let Some(gauges) = &self.config.gauges {
            gauges.counters().jobs.put_back.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn job_failed(&self) -> bool {
        self.locked.lock().log.add_failed()
    }

    fn name(&self) -> &str {
        &self.identity.name
    }

    fn job_ended(&self, ack: Ack, run: Option<Run>, written: bool) {
        let due = ack.queue.is_empty();
        let (runs, fails) = (!due && ack.outcome.counts_as_run(), ack.outcome.is_failure());
        let mut locked = self.locked.lock();
        if runs {
            add(&self.counters.processed, 1);
            add(&self.counters.failed, u64::from(fails));
        }
        let job = locked.jobs.remove(&ack.ticket);
        if let (Some(job), Some(run), false) = (&job, run, due) {
            if job.ran_well(&ack.outcome) {
                locked.log.add_done(job, run);
            }
            if runs {
                self.count_run(job, run, fails);
            }
        }
        if locked.running_alone == Some(ack.ticket) {
            locked.running_alone = None;
        }
        locked.slot_released |= ack.effects.as_ref().is_some_and(|e| !e.release.is_empty());
        if !written {
            locked.push_ack(ack);
        }
        match run {
            Some(run) => {
                self.running.fetch_sub(1, Ordering::AcqRel);
                let ran = run.ran_ns as f64;
                let old = if locked.service_ns == 0.0 { ran } else { locked.service_ns };
                locked.service_ns = old + SERVICE_WEIGHT * (ran - old);
            }
            None => {
                self.unstarted_of(due).fetch_sub(1, Ordering::AcqRel);
            }
        }
        let asleep = self.fetcher_waits.load(Ordering::SeqCst);
        let low = self.unstarted.load(Ordering::Relaxed) <= self.low_water.load(Ordering::Relaxed);
        let wake = asleep
            && (locked.acks.len() == 1 || low && (!locked.queues_empty || locked.slot_released));
        let wakes_due = self.due_waits.load(Ordering::SeqCst) && self.may_move_due(&locked);
        drop(locked);
        if wake {
            self.fetcher_cond.notify_one();
        }
        if wakes_due {
            self.maintenance_cond.notify_one();
        }
    }
}
