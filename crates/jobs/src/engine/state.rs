//! What the engine's threads, its jobs and Ruby's threads share.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use chaton_core::clock;
use parking_lot::{Condvar, Mutex};

use super::config::Config;
use super::job::Job;
use super::owner_identity::OwnerIdentity;
use super::recovery::WorkerDeath;
use super::sink::Sink;
use super::stats::JobCounters;
use crate::store::{Ack, Interrupt};

/// Weight of the newest run in the mean time of a job.
const SERVICE_WEIGHT: f64 = 0.05;
/// Deaths that may wait to be worked off; the supervisor restarts slower.
const DEATHS_MAX: usize = 64;

/// What is known of the jobs in hand.
pub(super) struct LockedState {
    /// Claimed and not ended.
    pub jobs: HashMap<u64, Arc<Job>>,
    /// Ended and not written.
    pub acks: Vec<Ack>,
    /// When the first of them ended (ns).
    pub acks_since_ns: u64,
    /// Being written now.
    pub acks_in_write: usize,
    /// Locks (key, jid) to give up because their job started.
    pub unlocks: Vec<(String, String)>,
    /// Suspects wait here until they can run alone, each with the time (ns)
    /// at which it came.
    pub suspects: VecDeque<(Arc<Job>, u64)>,
    /// Claims that are on their way.
    pub claims_pending: usize,
    /// Tickets, first and one past the last, that the maintenance claims now.
    pub reserved_tickets: Option<(u64, u64)>,
    /// A claim's answer was lost: ask what is ours.
    pub reconcile: bool,
    /// The suspect that runs, alone.
    pub alone: Option<u64>,
    /// Mean time of a run in ns; 0 while unknown.
    pub service_ns: f64,
    /// The next ticket.
    pub next_ticket: u64,
    /// No more claims.
    pub quiet: bool,
    /// The engine ends.
    pub stopping: bool,
    /// The fetcher has written all it could: the maintenance may say good-bye.
    pub fetcher_done: bool,
    /// All queues were empty when last seen.
    pub dry: bool,
    /// Strict order: the queues before the last of those that the waiting
    /// jobs came from.
    pub above: Vec<Arc<str>>,
    /// A queue before those of the waiting jobs got one (strict order).
    pub preempt: bool,
    /// When the next scheduled job is due (s); `None`: nothing is.
    pub due_at: Option<f64>,
    /// How often the watcher has said so.
    pub due_updates: u64,
    /// Pauses or cancels may have changed.
    pub changed: bool,
    /// A beat is wanted now.
    pub heartbeat_now: bool,
    /// Siblings that died.
    pub deaths: VecDeque<WorkerDeath>,
}

/// EngineState by all.
pub struct EngineState {
    pub(super) config: Config,
    pub(super) identity: OwnerIdentity,
    pub(super) sink: Arc<dyn Sink>,
    pub(super) locked: Mutex<LockedState>,
    /// The fetcher waits here.
    pub(super) fetcher_cond: Condvar,
    /// The maintenance waits here.
    pub(super) maintenance_cond: Condvar,
    /// Who waits for the engine to be idle waits here.
    pub(super) idle_cond: Condvar,
    /// Somebody no longer wants to wait for that.
    pub(super) idle_wait_interrupted: AtomicBool,
    /// The fetcher waits (set under the locked's lock).
    pub(super) fetcher_waits: AtomicBool,
    /// Claimed, not started.
    pub(super) unstarted: AtomicUsize,
    /// Started, not ended.
    pub(super) running: AtomicUsize,
    /// Jobs started since the beginning.
    pub(super) starts: AtomicU64,
    /// The fetcher wants to hear when no more than this are unstarted.
    pub(super) low_water: AtomicUsize,
    /// When the last beat that was answered was sent (ns since boot); 0: never.
    pub(super) heartbeat_ns: AtomicU64,
    /// When the engine began (s since 1970).
    pub(super) started_at_s: f64,
    /// Seconds since 1970 at the last look of the maintenance: good enough for what
    /// people read.
    pub(super) seconds: AtomicU64,
    pub(super) counters: JobCounters,
    pub(super) watch: OnceLock<Arc<dyn Interrupt>>,
}

impl EngineState {
    pub(super) fn new(config: Config, identity: OwnerIdentity, sink: Arc<dyn Sink>) -> Arc<Self> {
        let locked = LockedState {
            jobs: HashMap::new(),
            acks: Vec::new(),
            acks_since_ns: 0,
            acks_in_write: 0,
            unlocks: Vec::new(),
            suspects: VecDeque::new(),
            claims_pending: 0,
            reserved_tickets: None,
            reconcile: false,
            alone: None,
            service_ns: 0.0,
            next_ticket: 1,
            quiet: false,
            stopping: false,
            fetcher_done: false,
            dry: false,
            above: Vec::new(),
            preempt: false,
            due_at: Some(0.0),
            due_updates: 0,
            changed: false,
            heartbeat_now: false,
            deaths: VecDeque::new(),
        };
        Arc::new(Self {
            config,
            identity,
            sink,
            locked: Mutex::new(locked),
            fetcher_cond: Condvar::new(),
            maintenance_cond: Condvar::new(),
            idle_cond: Condvar::new(),
            idle_wait_interrupted: AtomicBool::new(false),
            fetcher_waits: AtomicBool::new(false),
            unstarted: AtomicUsize::new(0),
            running: AtomicUsize::new(0),
            starts: AtomicU64::new(0),
            low_water: AtomicUsize::new(0),
            heartbeat_ns: AtomicU64::new(0),
            started_at_s: wall_s(),
            seconds: AtomicU64::new(wall_s() as u64),
            counters: JobCounters::default(),
            watch: OnceLock::new(),
        })
    }

    /// Now, in seconds since 1970.
    pub(super) fn wall_s(&self) -> f64 {
        wall_s()
    }

    pub(super) fn coarse_now_s(&self) -> u64 {
        self.seconds.load(Ordering::Relaxed)
    }

    /// Whether the last beat is younger than the lease: what was claimed is
    /// still ours.
    pub(super) fn holds_lease(&self) -> bool {
        let beat = self.heartbeat_ns.load(Ordering::Relaxed);
        beat != 0 && boot_ns().saturating_sub(beat) < self.config.lease.as_nanos() as u64
    }

    pub(super) fn job_started(&self, unlock: Option<(String, String)>) {
        // Running first: idle is "none unstarted and none running".
        self.running.fetch_add(1, Ordering::AcqRel);
        self.starts.fetch_add(1, Ordering::Relaxed);
        let left = self.unstarted.fetch_sub(1, Ordering::AcqRel) - 1;
        let asleep = self.fetcher_waits.load(Ordering::SeqCst);
        if let Some(unlock) = unlock {
            self.locked.lock().unlocks.push(unlock);
            self.fetcher_cond.notify_one();
        } else if asleep && left <= self.low_water.load(Ordering::Relaxed) {
            let _held = self.locked.lock();
            self.fetcher_cond.notify_one();
        }
    }

    /// `ran_ns`: how long it ran; `None`: it was not started.
    pub(super) fn job_ended(&self, ack: Ack, ran_ns: Option<u64>, counts: bool, failed: bool) {
        if counts {
            self.counters.processed.fetch_add(1, Ordering::Relaxed);
            self.counters.failed.fetch_add(u64::from(failed), Ordering::Relaxed);
        }
        let mut locked = self.locked.lock();
        locked.jobs.remove(&ack.ticket);
        if locked.alone == Some(ack.ticket) {
            locked.alone = None;
        }
        if locked.acks.is_empty() {
            locked.acks_since_ns = clock::now_ns();
        }
        locked.acks.push(ack);
        match ran_ns {
            Some(ran_ns) => {
                self.running.fetch_sub(1, Ordering::AcqRel);
                let ran = ran_ns as f64;
                let old = if locked.service_ns == 0.0 { ran } else { locked.service_ns };
                locked.service_ns = old + SERVICE_WEIGHT * (ran - old);
            }
            None => {
                self.unstarted.fetch_sub(1, Ordering::AcqRel);
            }
        }
        let asleep = self.fetcher_waits.load(Ordering::SeqCst);
        let low = self.unstarted.load(Ordering::Relaxed) <= self.low_water.load(Ordering::Relaxed);
        let wake = asleep && (locked.acks.len() == 1 || low && !locked.dry);
        drop(locked);
        if wake {
            self.fetcher_cond.notify_one();
        }
    }

    /// Something may be there to claim.
    pub(super) fn wake_fetcher(&self) {
        self.locked.lock().dry = false;
        self.fetcher_cond.notify_one();
    }

    /// Makes the watcher look again at what it shall watch.
    pub(super) fn wake_watcher(&self) {
        self.watch.get().inspect(|watch| watch.interrupt());
    }

    /// A sibling died. The oldest of too many is left to the lease.
    pub(super) fn add_death(&self, death: WorkerDeath) {
        let mut locked = self.locked.lock();
        if locked.deaths.len() >= DEATHS_MAX {
            locked.deaths.pop_front();
        }
        locked.deaths.push_back(death);
        drop(locked);
        self.maintenance_cond.notify_one();
    }

    /// Whether nothing is claimed, running or unwritten.
    pub(super) fn is_idle(&self, locked: &LockedState) -> bool {
        let written = locked.acks.is_empty() && locked.acks_in_write == 0;
        locked.jobs.is_empty() && locked.claims_pending == 0 && written
    }

    /// Whether due jobs may be moved now: not by one who is leaving, and not
    /// through a Ruby that takes no more.
    pub(super) fn may_move_due(&self, locked: &LockedState) -> bool {
        !(locked.stopping || self.config.claim_due && locked.quiet)
    }

    pub(super) fn warn(&self, line: Option<String>) {
        line.iter().for_each(|line| self.sink.warn(line));
    }

    /// Waits until idle; false when the time is up or somebody interrupted.
    pub(super) fn wait_idle(&self, timeout: Duration) -> bool {
        let until = std::time::Instant::now() + timeout;
        let mut locked = self.locked.lock();
        loop {
            if self.is_idle(&locked) {
                return true;
            }
            if self.idle_wait_interrupted.swap(false, Ordering::AcqRel) {
                return false;
            }
            if self.idle_cond.wait_until(&mut locked, until).timed_out() {
                return self.is_idle(&locked);
            }
        }
    }
}

/// Seconds since 1970.
pub(super) fn wall_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// Nanoseconds since boot, sleep of the machine included: while it slept,
/// leases ran out.
pub(super) fn boot_ns() -> u64 {
    let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `at` is ours.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &mut at) };
    at.tv_sec as u64 * 1_000_000_000 + at.tv_nsec as u64
}
