//! The engine's state: what its threads, its jobs and Ruby's threads share.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use chaton_core::clock::{boot_ns, wall_s};
use chaton_core::engine::Feed;
use chaton_core::idle_wait::IdleWait;
use chaton_core::process::counters::{add, ClassCounters};
use parking_lot::{Condvar, Mutex};

use super::config::Config;
use super::hand::{Ended, Hand, HandCell, Inbox};
use super::job::{Job, JobOwner, Run};
use super::job_log::FailedLines;
use super::orphans::WorkerDeath;
use super::owner_identity::OwnerIdentity;
use super::stats::JobCounters;
use crate::store::{Ack, Interrupt};

/// Due jobs that may wait for client middleware. Claimed half by half, they last longer than a claim takes,
/// and no job of a queue waits long behind them.
pub(super) const DUE_AHEAD: usize = 256;
/// Deaths of siblings that may wait to be handled.
pub(super) const DEATHS_MAX: usize = 64;

fn boot_s(boot_ns: u64) -> f64 {
    boot_ns as f64 / 1e9
}

/// Messages to the maintenance thread.
#[derive(Default)]
pub(super) struct Chores {
    /// When the next scheduled job is due (s); `Some(None)`: none is scheduled.
    pub due: Option<Option<f64>>,
    /// Jobs may have been cancelled.
    pub cancels: bool,
    /// The next heartbeat is due at once.
    pub heartbeat: bool,
    /// Workers of the same supervisor that died.
    pub deaths: VecDeque<WorkerDeath>,
    /// The fetcher has ended: the owner may be removed.
    pub fetcher_done: bool,
}

/// What the engine's threads, its jobs and Ruby's threads share.
pub struct EngineState {
    pub(super) config: Config,
    pub(super) identity: OwnerIdentity,
    pub(super) feed: Arc<dyn Feed<Job>>,
    /// Messages to the fetcher, and what it has in hand.
    pub(super) inbox: Mutex<Inbox>,
    pub(super) hand: HandCell,
    /// Wakes the fetcher.
    pub(super) fetcher_cond: Condvar,
    pub(super) chores: Mutex<Chores>,
    /// Wakes the maintenance thread.
    pub(super) maintenance_cond: Condvar,
    /// Waits until the engine is idle.
    pub(super) idle_wait: IdleWait,
    /// No more claims; only the engine's callers write it.
    pub(super) quiet: AtomicBool,
    /// The engine ends; only the engine's callers write it.
    pub(super) stopping: AtomicBool,
    /// The next ticket.
    pub(super) next_ticket: AtomicU64,
    /// The first ticket of those claimed since the lease last began. While it lasts, no other process reclaims
    /// them. Only the maintenance thread writes it.
    pub(super) leased_from: AtomicU64,
    /// A suspect waits or runs, as the fetcher knows.
    pub(super) has_suspect: AtomicBool,
    /// The fetcher waits (set with its inbox locked, as the next three).
    pub(super) fetcher_waits: AtomicBool,
    /// It waits until acknowledgements are due.
    pub(super) acks_wait: AtomicBool,
    /// It waits though the queues may have jobs.
    pub(super) would_claim: AtomicBool,
    /// It waits and would claim for a thread that is idle. A thread is so only a moment after its job has ended.
    pub(super) thread_wanted: AtomicBool,
    /// Claimed from queues, not started.
    pub(super) unstarted: AtomicUsize,
    /// Due jobs claimed for client middleware, not started.
    pub(super) due_unstarted: AtomicUsize,
    /// [`EngineState::moves`] when due jobs were last refused by the pool or taken back from it; 0: never.
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
    failed_lines: FailedLines,
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
        Arc::new(Self {
            quiet: AtomicBool::new(config.begins_quiet),
            failed_lines: FailedLines::new(config.log),
            config,
            identity,
            feed,
            inbox: Mutex::default(),
            hand: HandCell::default(),
            chores: Mutex::default(),
            stopping: AtomicBool::new(false),
            next_ticket: AtomicU64::new(1),
            leased_from: AtomicU64::new(0),
            has_suspect: AtomicBool::new(false),
            acks_wait: AtomicBool::new(false),
            would_claim: AtomicBool::new(false),
            fetcher_cond: Condvar::new(),
            maintenance_cond: Condvar::new(),
            idle_wait: IdleWait::default(),
            fetcher_waits: AtomicBool::new(false),
            thread_wanted: AtomicBool::new(false),
            unstarted: AtomicUsize::new(0),
            due_unstarted: AtomicUsize::new(0),
            due_refused: AtomicU64::new(0),
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

    /// Sends a message to the fetcher.
    pub(super) fn tell_fetcher(&self, write: impl FnOnce(&mut Inbox)) {
        write(&mut self.inbox.lock());
        self.fetcher_cond.notify_one();
    }

    /// Sends a message to the maintenance thread.
    pub(super) fn tell_maintenance(&self, write: impl FnOnce(&mut Chores)) {
        write(&mut self.chores.lock());
        self.maintenance_cond.notify_one();
    }

    /// Claims again though the queues were empty at the last claim.
    pub(super) fn wake_fetcher(&self) {
        self.tell_fetcher(|inbox| inbox.look = true);
    }

    /// A thread has become idle.
    pub(super) fn note_idle_thread(&self) {
        if self.thread_wanted.load(Ordering::SeqCst) {
            self.tell_fetcher(|_| ());
        }
    }

    /// Ends the pauses of the fetcher and the maintenance thread.
    pub(super) fn end_pauses(&self) {
        self.answers.fetch_add(1, Ordering::SeqCst);
        self.tell_fetcher(|_| ());
        self.tell_maintenance(|_| ());
    }

    pub(super) fn set_quiet(&self, quiet: bool) {
        self.quiet.store(quiet, Ordering::SeqCst);
        self.wake_fetcher();
        self.tell_maintenance(|chores| chores.heartbeat = true);
    }

    /// Whether no more jobs may start.
    pub(super) fn is_closing(&self) -> bool {
        self.quiet.load(Ordering::SeqCst) || self.stopping.load(Ordering::SeqCst)
    }

    /// Whether the engine claims nothing, and whether that is because it was asked to: one that has claimed
    /// nothing yet may be about to begin.
    pub(super) fn quiet_and_stops(&self) -> (bool, bool) {
        let quiet = self.quiet.load(Ordering::SeqCst);
        (quiet, quiet && self.next_ticket.load(Ordering::Relaxed) > 1)
    }

    /// Whether nothing is claimed, running or unwritten.
    pub(super) fn is_idle(&self) -> bool {
        let hand = self.hand.read();
        let inbox = self.inbox.lock();
        let told = inbox.claimed.is_empty() && inbox.ended.is_empty() && inbox.due_claim.is_none();
        told && hand.is_idle()
    }

    /// The jobs that run now.
    pub(super) fn running_jobs(&self) -> Vec<Arc<Job>> {
        let hand = self.hand.read();
        let inbox = self.inbox.lock();
        let jobs = hand.jobs.values().chain(&inbox.claimed);
        jobs.filter(|job| job.is_running()).cloned().collect()
    }

    /// Shows whether a suspect waits or runs. Due jobs wait for it.
    pub(super) fn show_suspect(&self, has_suspect: bool) {
        if self.has_suspect.swap(has_suspect, Ordering::SeqCst) && !has_suspect {
            self.wake_for_due();
        }
    }

    /// Wakes the maintenance thread if it waits for room for due jobs and there is some.
    fn wake_for_due(&self) {
        if self.due_waits.load(Ordering::SeqCst) && self.may_move_due() {
            self.tell_maintenance(|_| ());
        }
    }

    /// Makes the watcher choose anew which queues it watches.
    pub(super) fn wake_watcher(&self) {
        self.watch.get().inspect(|watch| watch.interrupt());
    }

    /// Notes that a sibling died. Beyond a bound the oldest one is left to its lease.
    pub(super) fn add_death(&self, death: WorkerDeath) {
        self.tell_maintenance(|chores| {
            if chores.deaths.len() >= DEATHS_MAX {
                chores.deaths.pop_front();
            }
            chores.deaths.push_back(death);
        });
    }

    /// Whether due jobs may be moved now: not while stopping, and through Ruby's middleware only while the
    /// pool has room for them and no suspect has to run alone.
    pub(super) fn may_move_due(&self) -> bool {
        let stopping = self.stopping.load(Ordering::SeqCst);
        let waits = || self.is_closing() || self.has_suspect.load(Ordering::SeqCst);
        !stopping && (!self.config.claim_due || !waits() && self.due_room() > 0)
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

    /// One more than starts and ends of jobs so far: ends are starts less running jobs.
    fn moves(&self) -> u64 {
        let running = self.running.load(Ordering::SeqCst) as u64;
        (2 * self.starts.load(Ordering::SeqCst) + 1).saturating_sub(running)
    }

    /// Notes that due jobs did not find room.
    pub(super) fn refuse_due(&self) {
        self.due_refused.fetch_max(self.moves(), Ordering::SeqCst);
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
    pub(super) fn may_claim(&self, hand: &Hand) -> bool {
        !self.is_closing()
            && (!hand.queues_empty || hand.slot_released)
            && hand.has_no_suspect()
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

    /// Counts a run for the metrics. Only the fetcher does.
    pub(super) fn count_run(&self, job: &Job, run: Run, fails: bool) {
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
        self.running.fetch_add(1, Ordering::SeqCst);
        self.starts.fetch_add(1, Ordering::SeqCst);
        let left = self.unstarted_of(due).fetch_sub(1, Ordering::SeqCst) - 1;
        if self.due_waits.load(Ordering::SeqCst) && self.due_room() > 0 {
            self.tell_maintenance(|_| ());
        }
        let asleep = self.fetcher_waits.load(Ordering::SeqCst);
        if let Some(unlock) = unlock {
            self.tell_fetcher(|inbox| inbox.unlocks.push(unlock));
        } else if asleep && !due && left <= self.low_water.load(Ordering::Relaxed) {
            self.tell_fetcher(|_| ());
        }
    }

    fn job_left(&self, ticket: u64) {
        self.running.fetch_sub(1, Ordering::SeqCst);
        self.tell_fetcher(|inbox| inbox.left.push(ticket));
    }

    fn job_put_back(&self) {
        self.counters.put_back.fetch_add(1, Ordering::Relaxed);
        if let Some(gauges) = &self.config.gauges {
            gauges.counters().jobs.put_back.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn job_failed(&self) -> bool {
        self.failed_lines.add()
    }

    fn name(&self) -> &str {
        &self.identity.name
    }

    fn job_ended(&self, ack: Ack, run: Option<Run>, written: bool) {
        let (due, releases) = (ack.queue.is_empty(), ack.releases_slot());
        let mut inbox = self.inbox.lock();
        inbox.ended.push(Ended { ack, run, written });
        match run {
            Some(_) => self.running.fetch_sub(1, Ordering::SeqCst),
            None => self.unstarted_of(due).fetch_sub(1, Ordering::SeqCst),
        };
        let low = self.unstarted.load(Ordering::Relaxed) <= self.low_water.load(Ordering::Relaxed);
        let first = inbox.ended.len() == 1 && !self.acks_wait.load(Ordering::Relaxed);
        let claims = low && (releases || self.would_claim.load(Ordering::Relaxed));
        let wakes = self.fetcher_waits.load(Ordering::SeqCst) && (first || claims || written);
        drop(inbox);
        if wakes {
            self.fetcher_cond.notify_one();
        }
        self.wake_for_due();
    }
}
