//! What the engine's threads, its jobs and Ruby's threads share.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use chaton_core::clock;
use parking_lot::{Condvar, Mutex};

use super::config::Config;
use super::identity::Identity;
use super::job::Job;
use super::recovery::Death;
use super::sink::Sink;
use super::stats::Counters;
use crate::store::{Ack, Interrupt};

/// Weight of the newest run in the mean time of a job.
const SERVICE_WEIGHT: f64 = 0.05;
/// Deaths that may wait to be worked off; the supervisor restarts slower.
const DEATHS_MAX: usize = 64;

/// What is known of the jobs in hand.
pub(super) struct Book {
    /// Claimed and not ended.
    pub jobs: HashMap<u64, Arc<Job>>,
    /// Ended and not written.
    pub settles: Vec<Ack>,
    /// When the first of them ended (ns).
    pub settles_since_ns: u64,
    /// Being written now.
    pub settling: usize,
    /// Locks (key, jid) to give up because their job started.
    pub unlocks: Vec<(String, String)>,
    /// Suspects wait here until they can run alone, each with the time (ns)
    /// at which it came.
    pub suspects: VecDeque<(Arc<Job>, u64)>,
    /// Claims that are on their way.
    pub claiming: usize,
    /// Tickets, first and one past the last, that the keeper claims now.
    pub reserved: Option<(u64, u64)>,
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
    /// The fetcher has written all it could: the keeper may say good-bye.
    pub parting: bool,
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
    pub due_heard: u64,
    /// Pauses or cancels may have changed.
    pub changed: bool,
    /// A beat is wanted now.
    pub beat_now: bool,
    /// Siblings that died.
    pub deaths: VecDeque<Death>,
}

/// Shared by all.
pub struct Shared {
    pub(super) config: Config,
    pub(super) identity: Identity,
    pub(super) sink: Arc<dyn Sink>,
    pub(super) book: Mutex<Book>,
    /// The fetcher waits here.
    pub(super) fetch_bell: Condvar,
    /// The keeper waits here.
    pub(super) keep_bell: Condvar,
    /// Who waits for the engine to be idle waits here.
    pub(super) calm_bell: Condvar,
    /// Somebody no longer wants to wait for that.
    pub(super) calm_interrupted: AtomicBool,
    /// The fetcher waits (set under the book's lock).
    pub(super) fetch_asleep: AtomicBool,
    /// Claimed, not started.
    pub(super) unstarted: AtomicUsize,
    /// Started, not ended.
    pub(super) running: AtomicUsize,
    /// Jobs started since the beginning.
    pub(super) starts: AtomicU64,
    /// The fetcher wants to hear when no more than this are unstarted.
    pub(super) low_water: AtomicUsize,
    /// When the last beat that was answered was sent (ns since boot); 0: never.
    pub(super) beat_ns: AtomicU64,
    /// When the engine began (s since 1970).
    pub(super) started_at_s: f64,
    /// Seconds since 1970 at the last look of the keeper: good enough for what
    /// people read.
    pub(super) seconds: AtomicU64,
    pub(super) counters: Counters,
    pub(super) watch: OnceLock<Arc<dyn Interrupt>>,
}

impl Shared {
    pub(super) fn new(config: Config, identity: Identity, sink: Arc<dyn Sink>) -> Arc<Self> {
        let book = Book {
            jobs: HashMap::new(),
            settles: Vec::new(),
            settles_since_ns: 0,
            settling: 0,
            unlocks: Vec::new(),
            suspects: VecDeque::new(),
            claiming: 0,
            reserved: None,
            reconcile: false,
            alone: None,
            service_ns: 0.0,
            next_ticket: 1,
            quiet: false,
            stopping: false,
            parting: false,
            dry: false,
            above: Vec::new(),
            preempt: false,
            due_at: Some(0.0),
            due_heard: 0,
            changed: false,
            beat_now: false,
            deaths: VecDeque::new(),
        };
        Arc::new(Self {
            config,
            identity,
            sink,
            book: Mutex::new(book),
            fetch_bell: Condvar::new(),
            keep_bell: Condvar::new(),
            calm_bell: Condvar::new(),
            calm_interrupted: AtomicBool::new(false),
            fetch_asleep: AtomicBool::new(false),
            unstarted: AtomicUsize::new(0),
            running: AtomicUsize::new(0),
            starts: AtomicU64::new(0),
            low_water: AtomicUsize::new(0),
            beat_ns: AtomicU64::new(0),
            started_at_s: wall_s(),
            seconds: AtomicU64::new(wall_s() as u64),
            counters: Counters::default(),
            watch: OnceLock::new(),
        })
    }

    /// Now, in seconds since 1970.
    pub(super) fn wall_s(&self) -> f64 {
        wall_s()
    }

    pub(super) fn started_now_s(&self) -> u64 {
        self.seconds.load(Ordering::Relaxed)
    }

    /// Whether the last beat is younger than the lease: what was claimed is
    /// still ours.
    pub(super) fn holds_lease(&self) -> bool {
        let beat = self.beat_ns.load(Ordering::Relaxed);
        beat != 0 && boot_ns().saturating_sub(beat) < self.config.lease.as_nanos() as u64
    }

    pub(super) fn job_started(&self, unlock: Option<(String, String)>) {
        // Running first: idle is "none unstarted and none running".
        self.running.fetch_add(1, Ordering::AcqRel);
        self.starts.fetch_add(1, Ordering::Relaxed);
        let left = self.unstarted.fetch_sub(1, Ordering::AcqRel) - 1;
        let asleep = self.fetch_asleep.load(Ordering::SeqCst);
        if let Some(unlock) = unlock {
            self.book.lock().unlocks.push(unlock);
            self.fetch_bell.notify_one();
        } else if asleep && left <= self.low_water.load(Ordering::Relaxed) {
            let _held = self.book.lock();
            self.fetch_bell.notify_one();
        }
    }

    /// `ran_ns`: how long it ran; `None`: it was not started.
    pub(super) fn job_ended(&self, settle: Ack, ran_ns: Option<u64>, counts: bool, failed: bool) {
        if counts {
            self.counters.processed.fetch_add(1, Ordering::Relaxed);
            self.counters.failed.fetch_add(u64::from(failed), Ordering::Relaxed);
        }
        let mut book = self.book.lock();
        book.jobs.remove(&settle.ticket);
        if book.alone == Some(settle.ticket) {
            book.alone = None;
        }
        if book.settles.is_empty() {
            book.settles_since_ns = clock::now_ns();
        }
        book.settles.push(settle);
        match ran_ns {
            Some(ran_ns) => {
                self.running.fetch_sub(1, Ordering::AcqRel);
                let ran = ran_ns as f64;
                let old = if book.service_ns == 0.0 { ran } else { book.service_ns };
                book.service_ns = old + SERVICE_WEIGHT * (ran - old);
            }
            None => {
                self.unstarted.fetch_sub(1, Ordering::AcqRel);
            }
        }
        let asleep = self.fetch_asleep.load(Ordering::SeqCst);
        let low = self.unstarted.load(Ordering::Relaxed) <= self.low_water.load(Ordering::Relaxed);
        let wake = asleep && (book.settles.len() == 1 || low && !book.dry);
        drop(book);
        if wake {
            self.fetch_bell.notify_one();
        }
    }

    /// Something may be there to claim.
    pub(super) fn nudge(&self) {
        self.book.lock().dry = false;
        self.fetch_bell.notify_one();
    }

    /// Makes the watcher look again at what it shall watch.
    pub(super) fn rewatch(&self) {
        self.watch.get().inspect(|watch| watch.interrupt());
    }

    /// A sibling died. The oldest of too many is left to the lease.
    pub(super) fn add_death(&self, death: Death) {
        let mut book = self.book.lock();
        if book.deaths.len() >= DEATHS_MAX {
            book.deaths.pop_front();
        }
        book.deaths.push_back(death);
        drop(book);
        self.keep_bell.notify_one();
    }

    /// Whether nothing is claimed, running or unwritten.
    pub(super) fn is_idle(&self, book: &Book) -> bool {
        let written = book.settles.is_empty() && book.settling == 0;
        book.jobs.is_empty() && book.claiming == 0 && written
    }

    /// Whether due jobs may be moved now: not by one who is leaving, and not
    /// through a Ruby that takes no more.
    pub(super) fn may_move(&self, book: &Book) -> bool {
        !(book.stopping || self.config.claim_due && book.quiet)
    }

    pub(super) fn warn(&self, line: Option<String>) {
        line.iter().for_each(|line| self.sink.warn(line));
    }

    /// Waits until idle; false when the time is up or somebody interrupted.
    pub(super) fn wait_idle(&self, timeout: Duration) -> bool {
        let until = std::time::Instant::now() + timeout;
        let mut book = self.book.lock();
        loop {
            if self.is_idle(&book) {
                return true;
            }
            if self.calm_interrupted.swap(false, Ordering::AcqRel) {
                return false;
            }
            if self.calm_bell.wait_until(&mut book, until).timed_out() {
                return self.is_idle(&book);
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
