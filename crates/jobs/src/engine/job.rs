//! One claimed job, shared by the engine and the thread that runs it.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;

use chaton_core::clock;
use chaton_core::work::{AtomicWorkState, Role, Work, WorkState};

use super::put_back::put_back;
use crate::document::Document;
use crate::limit::Limit;
use crate::outcome::{Ack, Outcome, SideEffects};

/// A due job that is given back is due again after this time (s), so that it does not return at once to a
/// process that cannot take it.
pub(super) const DUE_AGAIN_S: f64 = 0.5;

/// What a job needs of the engine that claimed it. The engine's state holds
/// its jobs; with this trait they need not import it.
pub(super) trait JobOwner: Send + Sync {
    /// Now (ns since boot), while the engine's lease is valid, so that its claims are still its own.
    fn leased_at_ns(&self) -> Option<u64>;

    /// A time (ns since boot) by the store's clock (s since 1970).
    fn store_s(&self, boot_ns: u64) -> f64;

    /// A thread started the job. `due`: see [`Job::is_due`]. `unlock`: a lock (key, jid) that ends here.
    fn job_started(&self, due: bool, unlock: Option<(String, String)>);

    /// A running job stays in the in-flight set in the store.
    fn job_left(&self, ticket: u64);

    /// A job failed; whether that gets a line in the log.
    fn job_failed(&self) -> bool;

    /// A job was put back that this release cannot run.
    fn job_put_back(&self);

    /// The name under which the engine has claimed the job.
    fn name(&self) -> &str;

    /// A job ended. `run`: when it did; `None`: it was not started. `written`: the store has the acknowledgement.
    fn job_ended(&self, ack: Ack, run: Option<Run>, written: bool);
}

/// A run of a job that has ended.
#[derive(Clone, Copy)]
pub(super) struct Run {
    /// When it ended (ns of the clock).
    pub ended_ns: u64,
    /// How long it took (ns).
    pub ran_ns: u64,
}

/// A claimed job. Only its first outcome counts.
pub struct Job {
    doc: Document,
    ticket: u64,
    queue: Arc<str>,
    due: bool,
    state: AtomicWorkState,
    thread: AtomicU32,
    started_ns: AtomicU64,
    started_boot_ns: AtomicU64,
    cancelled: AtomicBool,
    /// It holds slots of concurrency limits, or was called to take one.
    granted: AtomicBool,
    /// When a limit first denied it (s), if it comes from a line.
    since_s: Option<f64>,
    /// Its failure was reported.
    failed: AtomicBool,
    /// That got no line in the log.
    failed_silently: AtomicBool,
    owner: Arc<dyn JobOwner>,
}

impl Job {
    pub(super) fn new(
        doc: Document,
        ticket: u64,
        queue: Arc<str>,
        due: bool,
        owner: Arc<dyn JobOwner>,
    ) -> Arc<Self> {
        let mut doc = doc;
        // A due job is pushed again, with its place.
        let since_s = doc.extra().and_then(|extra| extra.since).filter(|_| !due);
        if since_s.is_some() {
            let without = doc.waiting(None).and_then(|doc| Document::parse(doc.into()).ok());
            doc = without.unwrap_or(doc);
        }
        Arc::new(Self {
            doc,
            ticket,
            queue,
            due,
            state: AtomicWorkState::default(),
            thread: AtomicU32::new(0),
            started_ns: AtomicU64::new(0),
            started_boot_ns: AtomicU64::new(0),
            cancelled: AtomicBool::new(false),
            granted: AtomicBool::new(since_s.is_some()),
            since_s,
            failed: AtomicBool::new(false),
            failed_silently: AtomicBool::new(false),
            owner,
        })
    }

    /// Its document.
    pub fn document(&self) -> &Document {
        &self.doc
    }

    /// Its owner in the store.
    pub fn owner(&self) -> &str {
        self.owner.name()
    }

    /// Its number in this engine's in-flight set.
    pub fn ticket(&self) -> u64 {
        self.ticket
    }

    /// The queue it was claimed from. A due job has the queue that its document names.
    pub fn queue(&self) -> &Arc<str> {
        &self.queue
    }

    /// The queue in its in-flight entry: empty for a due job.
    pub(super) fn stored_queue(&self) -> Arc<str> {
        if self.due {
            Arc::from("")
        } else {
            self.queue.clone()
        }
    }

    /// Whether it came from the schedule or the retry set and waits for client
    /// middleware: push it to its queue, then acknowledge it; or discard it, if middleware stops it.
    pub fn is_due(&self) -> bool {
        self.due
    }

    /// Whether it may be started, which happens next: it has not ended, and the engine still holds
    /// its lease. After that another process may have reclaimed the job.
    pub fn may_start(&self) -> bool {
        let Some(now_ns) = self.owner.leased_at_ns() else { return false };
        self.started_boot_ns.store(now_ns, Ordering::Relaxed);
        self.state.get() == WorkState::Waiting
    }

    /// A thread begins to run it.
    pub fn start(&self, thread: usize) {
        self.started_ns.store(clock::now_ns(), Ordering::Relaxed);
        self.thread.store(thread as u32, Ordering::Relaxed);
        if !self.state.start() {
            return;
        }
        let unlock = self.doc.extra().filter(|extra| extra.unlocks_at_start());
        let unlock = unlock.and_then(|extra| extra.lock.clone());
        self.owner.job_started(self.due, unlock.map(|key| (key, self.doc.jid().to_string())));
    }

    /// Ends it. `false`: it had ended before, and nothing was done.
    pub fn finish(&self, outcome: Outcome) -> bool {
        self.end(self.ack(outcome), false)
    }

    /// Acknowledges it by `write`, which is given the claim's owner and the acknowledgement, and ends it if that is done.
    ///
    /// # Errors
    /// That of `write`: the job goes on.
    pub fn commit<E>(&self, write: impl FnOnce(&str, &Ack) -> Result<(), E>) -> Result<(), E> {
        let ack = self.ack(Outcome::Ack);
        write(self.owner.name(), &ack)?;
        self.end(ack, true);
        Ok(())
    }

    fn end(&self, ack: Ack, written: bool) -> bool {
        let before = self.state.finish();
        if before == WorkState::Finished {
            return false;
        }
        let run = (before == WorkState::Running).then(|| {
            let (started_ns, ended_ns) = (self.started_ns.load(Ordering::Relaxed), clock::now_ns());
            Run { ended_ns, ran_ns: ended_ns.saturating_sub(started_ns) }
        });
        self.owner.job_ended(ack, run, written);
        true
    }

    /// Notes that it failed, before its outcome; whether that gets a line in the log.
    pub fn report_failure(&self) -> bool {
        self.failed.store(true, Ordering::Relaxed);
        let shown = self.owner.job_failed();
        self.failed_silently.store(!shown, Ordering::Relaxed);
        shown
    }

    /// Whether its failure was reported and got no line in the log.
    pub(super) fn failed_without_line(&self) -> bool {
        self.failed_silently.load(Ordering::Relaxed)
    }

    /// Whether it ran to its end, and its failure was not reported: one that is discarded after a failure ends in
    /// the same way.
    pub(super) fn ran_well(&self, outcome: &Outcome) -> bool {
        *outcome == Outcome::Ack && !self.has_failed()
    }

    /// Whether its failure was reported.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Puts it back, uncounted, for a release that can run it. `false`: it has waited for too long, and nothing was
    /// done.
    pub fn put_back(&self) -> bool {
        let Some(outcome) = put_back(&self.doc, self.now_s()) else { return false };
        if self.finish(outcome) {
            self.owner.job_put_back();
        }
        true
    }

    fn now_s(&self) -> f64 {
        self.owner.store_s(clock::boot_ns())
    }

    /// Puts it back to the front of its queue, uncounted, unless it has ended.
    pub fn give_back(&self) {
        self.finish(Outcome::requeue());
    }

    /// Leaves it in the in-flight set, unless it has ended: the supervisor counts it there. Its later
    /// outcome is ignored.
    pub(super) fn leave(&self) {
        if self.is_running() && self.state.finish() == WorkState::Running {
            self.owner.job_left(self.ticket);
        }
    }

    /// Whether it has not ended.
    pub fn is_open(&self) -> bool {
        self.state.get() != WorkState::Finished
    }

    /// Whether a thread runs it.
    pub fn is_running(&self) -> bool {
        self.state.get() == WorkState::Running
    }

    /// Whether it was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Whether it runs for longer than its own deadline.
    pub fn is_past_deadline(&self) -> bool {
        let deadline = self.doc.extra().and_then(|extra| extra.deadline);
        deadline.is_some_and(|deadline| {
            let ran = clock::now_ns().saturating_sub(self.started_ns.load(Ordering::Relaxed));
            self.is_running() && ran as f64 / 1e9 > deadline
        })
    }

    /// A time of this machine's clock by the store's clock, which is the one that counts for due jobs. To a
    /// tenth of a second: clocks that agree so far are not told apart.
    pub fn store_time(&self, wall_at_s: f64) -> f64 {
        let ahead_s = self.owner.store_s(clock::boot_ns()) - clock::wall_s();
        wall_at_s + (ahead_s * 10.0).round() / 10.0
    }

    /// Number of the thread that runs it.
    pub(super) fn thread(&self) -> u32 {
        self.thread.load(Ordering::Relaxed)
    }

    /// When it was started, by the store's clock (s since 1970).
    pub(super) fn started_at_s(&self) -> f64 {
        self.owner.store_s(self.started_boot_ns.load(Ordering::Relaxed))
    }

    pub(super) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// When a limit first denied it (s), if it comes from a line.
    pub(super) fn since_s(&self) -> Option<f64> {
        self.since_s
    }

    pub(super) fn grant(&self) {
        self.granted.store(true, Ordering::Relaxed);
    }

    pub(super) fn limits(&self) -> Vec<Limit> {
        self.doc.extra().map(|extra| extra.limits()).unwrap_or_default()
    }

    fn ack(&self, mut outcome: Outcome) -> Ack {
        let pushed_due = self.due && outcome == Outcome::Ack;
        let mut event = outcome.batch_event();
        if self.due && outcome == Outcome::Discard {
            // Client middleware has stopped it: its batch waits for it no longer.
            event = Outcome::Ack.batch_event();
        }
        // A due job that waits again has not passed the client middleware.
        outcome = match outcome {
            Outcome::Requeue { payload, .. } if self.due => {
                let at = self.now_s() + DUE_AGAIN_S;
                Outcome::back_to_set(&self.doc, payload, at)
            }
            Outcome::Reschedule { at, payload } if self.due => {
                Outcome::back_to_set(&self.doc, payload, at)
            }
            outcome => outcome,
        };
        let granted = self.granted.load(Ordering::Relaxed);
        let granted_s = granted.then(|| self.owner.store_s(clock::boot_ns()));
        // A due job that was pushed keeps its lock, and its batch still waits for it.
        let effects = (!pushed_due).then(|| SideEffects::of(&self.doc, event, granted_s)).flatten();
        Ack { ticket: self.ticket, queue: self.stored_queue(), outcome, effects }
    }
}

impl Work for Job {
    fn role(&self) -> Role {
        Role::Jobs
    }

    fn id(&self) -> u64 {
        self.ticket
    }

    fn describe(&self) -> String {
        format!("{} jid={} queue={}", self.doc.class(), self.doc.jid(), self.queue)
    }

    fn log_context(&self) -> Vec<(&'static str, String)> {
        vec![("class", self.doc.display_class()), ("jid", self.doc.jid().into())]
    }

    fn bytes(&self) -> usize {
        self.doc.payload().len()
    }

    fn abandon(self: Arc<Self>) {
        self.give_back();
    }

    fn release(self: Arc<Self>) {
        self.give_back();
    }
}
