//! Pushes that wait in memory while the store cannot be reached, and are sent in their order when it
//! answers again. A thread sends them; it runs only while there are some. Jobs that the store refuses
//! are set aside, so that they hold up no others, and tried again when nothing else waits.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use chaton_core::backoff::Backoff;
use chaton_core::idle_wait::IdleWait;
use chaton_core::{log, thread};
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::document::Document;
use crate::store::{
    NewJob, PushResult, Result, Store, StoreError, StoreErrorKind, StoreFactory, StoreOptions,
};

/// The first pause between two tries to send.
const PAUSE: Duration = Duration::from_millis(50);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Memory of a job in addition to its queue's name and its document.
const JOB_BYTES: usize = 64;
/// Jobs sent in one command, at most.
const SENT_MAX: usize = 1000;
/// Bytes of documents in one command, unless one job has more.
const SENT_BYTES_MAX: usize = 1 << 20;
/// Classes that are named when jobs could not be sent.
const CLASSES_MAX: usize = 20;
/// Refused jobs that are named in one line.
const NAMED_MAX: usize = 100;

/// A job that waits.
struct BufferedJob {
    queue: String,
    payload: Vec<u8>,
    at: Option<f64>,
    /// The reply to a try was lost.
    in_doubt: AtomicBool,
}

impl BufferedJob {
    fn new(job: &NewJob<'_>, in_doubt: bool) -> Arc<Self> {
        let (queue, payload) = (job.queue.to_owned(), job.payload.to_vec());
        Arc::new(Self { queue, payload, at: job.at, in_doubt: AtomicBool::new(in_doubt) })
    }

    fn job(&self) -> NewJob<'_> {
        NewJob { queue: &self.queue, payload: &self.payload, at: self.at, lock: None, bid: None }
    }

    fn class_and_jid(&self) -> (String, String) {
        match Document::parse(self.payload.as_slice().into()) {
            Ok(document) => (document.class().to_owned(), document.jid().to_owned()),
            Err(_) => ("?".into(), "?".into()),
        }
    }
}

fn bytes_of(job: &NewJob<'_>) -> usize {
    job.queue.len() + job.payload.len() + JOB_BYTES
}

#[derive(Default)]
struct State {
    /// Not known to be stored, in their order.
    jobs: VecDeque<Arc<BufferedJob>>,
    /// Refused by a store that can be reached.
    aside: VecDeque<Arc<BufferedJob>>,
    /// Memory of both.
    bytes: usize,
    /// The thread runs.
    sending: bool,
    /// It waits for the store.
    trying: bool,
    /// The thread tries at once instead of after its pause.
    hurry: bool,
    /// Tries that failed so far.
    failures: u64,
    /// Why the last try failed.
    error: Option<StoreError>,
    /// When the first one began to wait.
    since: Option<Instant>,
    /// Jobs sent since then.
    sent: usize,
    /// Jobs among them that an earlier try may have stored.
    in_doubt: usize,
}

struct Shared {
    factory: Arc<dyn StoreFactory>,
    bytes_max: usize,
    /// Longest wait of a push that must come after those in the buffer.
    turn_timeout: Duration,
    finish_timeout: Duration,
    state: Mutex<State>,
    /// Ends the pause of the thread.
    wake: Condvar,
    /// Waits until the jobs are sent, or a try has failed.
    tried: IdleWait,
}

/// The pushes of one process that wait in memory (`reliable_push`).
pub struct PushBuffer(Arc<Shared>);

/// Jobs that were given up at the end of the process.
#[derive(Debug, PartialEq, Eq)]
pub struct UnsentJobs {
    /// How many.
    pub count: usize,
    /// Their classes, each with its number.
    pub classes: String,
}

impl PushBuffer {
    /// `None` where the setting is off, or the store is a file.
    pub fn new(factory: &Arc<dyn StoreFactory>, options: &StoreOptions) -> Option<Self> {
        let bytes_max = options.reliable_push.filter(|_| !options.url.starts_with("sqlite:"))?;
        Some(Self(Arc::new(Shared {
            factory: factory.clone(),
            bytes_max,
            turn_timeout: options.connect_timeout + options.answer_timeout,
            finish_timeout: options.reliable_push_timeout,
            state: Mutex::default(),
            wake: Condvar::new(),
            tried: IdleWait::default(),
        })))
    }

    /// Adds jobs to those that wait; `None` when none do, or when these jobs cannot wait. It never blocks.
    pub fn push_behind(&self, jobs: &[NewJob<'_>]) -> Option<Result<Vec<PushResult>>> {
        let state = self.0.state.lock();
        (!state.jobs.is_empty() && may_wait(jobs)).then(|| self.0.keep(state, jobs, None))
    }

    /// Pushes jobs, or keeps them if the store cannot be reached. Jobs with a lock or a batch are never
    /// kept, because only the store can answer them; they are pushed after those that wait.
    ///
    /// # Errors
    /// What the store answered, if the jobs could not be kept.
    pub fn push(&self, store: &mut dyn Store, jobs: &[NewJob<'_>]) -> Result<Vec<PushResult>> {
        if !may_wait(jobs) {
            self.0.wait_for_turn()?;
            return store.push(jobs);
        }
        match store.push(jobs) {
            Err(error) if error.kind == StoreErrorKind::Unavailable => {
                self.0.keep(self.0.state.lock(), jobs, Some(error))
            }
            result => result,
        }
    }

    /// Waits until all jobs are sent, for `reliable_push_timeout` or for `time`, whichever is longer. Gives up and
    /// returns the others.
    pub fn finish(&self, time: Duration) -> Option<UnsentJobs> {
        let shared = &self.0;
        let mut state = shared.state.lock();
        shared.hurry(&mut state);
        let waiting = state.jobs.len();
        drop(state);
        let time = shared.finish_timeout.max(time);
        if waiting > 0 && time > shared.finish_timeout {
            log::info(&format!(
                "jobs: {waiting} jobs wait in memory (reliable_push) for the store; this process, whose place another \
                 one has taken, ends when they are sent, in {:.0} s at most",
                time.as_secs_f64()
            ));
        }
        let until = Instant::now() + time;
        let is_empty = || {
            let state = shared.state.lock();
            state.jobs.is_empty() && !state.trying
        };
        while !shared.tried.wait(until.saturating_duration_since(Instant::now()), is_empty) {
            if Instant::now() >= until {
                break;
            }
        }
        let mut state = shared.state.lock();
        state.bytes = 0;
        let mut jobs = std::mem::take(&mut state.jobs);
        jobs.append(&mut state.aside);
        unsent(&jobs)
    }
}

/// Whether the result of the push is known without the store.
fn may_wait(jobs: &[NewJob<'_>]) -> bool {
    jobs.iter().all(|job| job.lock.is_none() && job.bid.is_none())
}

fn unsent(jobs: &VecDeque<Arc<BufferedJob>>) -> Option<UnsentJobs> {
    let mut classes: BTreeMap<String, usize> = BTreeMap::new();
    for job in jobs {
        *classes.entry(job.class_and_jid().0).or_default() += 1;
    }
    let more = if classes.len() > CLASSES_MAX { " ..." } else { "" };
    let named = classes.iter().take(CLASSES_MAX).map(|(class, count)| format!("{class} {count}"));
    let classes = named.collect::<Vec<_>>().join(", ") + more;
    (!jobs.is_empty()).then_some(UnsentJobs { count: jobs.len(), classes })
}

impl State {
    /// Takes these jobs, the first ones, out. They may have been given up meanwhile.
    fn remove(&mut self, jobs: &[Arc<BufferedJob>], was_refused: bool) -> Vec<Arc<BufferedJob>> {
        let waiting = if was_refused { &mut self.aside } else { &mut self.jobs };
        let are_first =
            jobs.iter().zip(waiting.iter()).take_while(|(job, first)| Arc::ptr_eq(job, first));
        let count = are_first.count();
        waiting.drain(..count).collect()
    }
}

impl Shared {
    /// Keeps jobs. `error`: why they could not be pushed; `None`: others wait already.
    fn keep(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, State>,
        jobs: &[NewJob<'_>],
        error: Option<StoreError>,
    ) -> Result<Vec<PushResult>> {
        let bytes: usize = jobs.iter().map(bytes_of).sum();
        let in_doubt = error.as_ref().is_some_and(|error| error.in_doubt);
        let error = error.or_else(|| state.error.clone());
        let error = error.unwrap_or_else(|| StoreError::unavailable("jobs wait to be sent"));
        if state.bytes + bytes > self.bytes_max {
            let (waiting, max) = (state.jobs.len() + state.aside.len(), self.bytes_max);
            return Err(StoreError::unavailable(format!(
                "{error}; it is not kept in memory either: reliable_push allows {max} bytes, and {waiting} jobs \
                 wait there already"
            )));
        }
        if !state.sending {
            let shared = self.clone();
            thread::spawn("chaton push", move || shared.send_all()).map_err(|_| error.clone())?;
            state.sending = true;
        }
        if state.jobs.is_empty() {
            self.begin(&mut state, jobs.len(), &error);
        }
        state.error = Some(error);
        state.bytes += bytes;
        self.wake.notify_one();
        state.jobs.extend(jobs.iter().map(|job| BufferedJob::new(job, in_doubt)));
        Ok(vec![PushResult::Stored; jobs.len()])
    }

    fn begin(&self, state: &mut State, count: usize, error: &StoreError) {
        (state.since, state.sent, state.in_doubt) = (Some(Instant::now()), 0, 0);
        log::warn(&format!(
            "jobs: {error}; from now on jobs are kept in memory ({count} so far, at most {} bytes: reliable_push) \
             and sent later in their order; they are lost if this process ends before",
            self.bytes_max
        ));
    }

    fn hurry(&self, state: &mut State) {
        state.hurry = true;
        self.wake.notify_one();
    }

    /// Waits until the jobs that were pushed before are sent.
    fn wait_for_turn(&self) -> Result<()> {
        let mut state = self.state.lock();
        if state.jobs.is_empty() {
            return Ok(());
        }
        self.hurry(&mut state);
        let failures = state.failures;
        drop(state);
        let is_over = || {
            let state = self.state.lock();
            state.jobs.is_empty() || state.failures != failures
        };
        self.tried.wait(self.turn_timeout, is_over);
        let state = self.state.lock();
        if state.jobs.is_empty() {
            return Ok(());
        }
        let why = state.error.as_ref().map_or("they are being sent", |error| &error.message);
        Err(StoreError::unavailable(format!(
            "{why}; {} jobs that were pushed before wait in memory (reliable_push), and a job with a lock or a \
             batch cannot wait behind them",
            state.jobs.len()
        )))
    }

    /// The thread's body.
    fn send_all(&self) {
        let mut store = self.factory.store();
        let mut backoff = Backoff::new(PAUSE, PAUSE_MAX);
        while let Some((jobs, was_refused)) = self.next_jobs() {
            let new: Vec<_> = jobs.iter().map(|job| job.job()).collect();
            let connected = store.connect();
            let is_reached = connected.is_ok();
            match connected.and_then(|()| store.push(&new)) {
                Ok(_) => self.note_sent(&jobs, was_refused, &mut backoff),
                Err(error) if is_reached && is_refusal(&error) => {
                    self.set_aside(&jobs, was_refused, &error);
                }
                Err(error) => self.note_failure(error, &jobs, &mut backoff),
            }
            self.tried.changed();
        }
        self.tried.changed();
    }

    /// The jobs that the next command sends: it must take all or none. Whether they were refused before.
    /// `None`: all are sent.
    fn next_jobs(&self) -> Option<(Vec<Arc<BufferedJob>>, bool)> {
        let mut state = self.state.lock();
        let was_refused = state.jobs.is_empty();
        if was_refused {
            if let Some(since) = state.since.take().filter(|_| state.sent > 0) {
                log_end(&state, since.elapsed());
            }
        }
        let waiting = if was_refused { &state.aside } else { &state.jobs };
        let Some(first) = waiting.front() else {
            state.sending = false;
            return None;
        };
        let fits = |job: &&Arc<BufferedJob>| {
            job.at.is_some() == first.at.is_some() && job.queue == first.queue
        };
        let mut bytes = 0;
        let jobs = waiting.iter().take(SENT_MAX).take_while(fits).take_while(|job| {
            bytes += job.payload.len();
            bytes <= SENT_BYTES_MAX || bytes == job.payload.len()
        });
        let jobs = jobs.cloned().collect();
        state.trying = true;
        Some((jobs, was_refused))
    }

    fn note_sent(&self, jobs: &[Arc<BufferedJob>], was_refused: bool, backoff: &mut Backoff) {
        backoff.succeeded();
        let mut state = self.state.lock();
        state.trying = false;
        let removed = state.remove(jobs, was_refused);
        state.bytes -= removed.iter().map(|job| bytes_of(&job.job())).sum::<usize>();
        if was_refused {
            drop(state);
            return log::info(&format!(
                "jobs: {} jobs that waited in memory, and that the store had refused, are sent",
                jobs.len()
            ));
        }
        state.sent += jobs.len();
        state.in_doubt += jobs.iter().filter(|job| job.in_doubt.load(Ordering::Relaxed)).count();
    }

    /// Lets the other jobs go first. The refusal is logged once, with the identity of each job.
    fn set_aside(&self, jobs: &[Arc<BufferedJob>], was_refused: bool, error: &StoreError) {
        let mut state = self.state.lock();
        state.trying = false;
        let removed = state.remove(jobs, was_refused);
        state.aside.extend(removed);
        drop(state);
        if !was_refused {
            return log_refused(jobs, error);
        }
        self.tried.changed();
        let mut state = self.state.lock();
        let until = Instant::now() + PAUSE_MAX;
        while state.jobs.is_empty() && !self.wake.wait_until(&mut state, until).timed_out() {}
    }

    fn note_failure(&self, error: StoreError, jobs: &[Arc<BufferedJob>], backoff: &mut Backoff) {
        let (pause, is_new) = backoff.failed(&error.message);
        // An unreachable store was reported when the first job was kept.
        if is_new && error.kind != StoreErrorKind::Unavailable {
            log::warn(&format!(
                "jobs: the jobs that wait in memory (reliable_push) are refused: {error}"
            ));
        }
        if error.in_doubt {
            jobs.iter().for_each(|job| job.in_doubt.store(true, Ordering::Relaxed));
        }
        let mut state = self.state.lock();
        state.trying = false;
        state.failures += 1;
        state.error = Some(error);
        drop(state);
        self.tried.changed();
        let until = Instant::now() + pause;
        let mut state = self.state.lock();
        while !state.hurry && !self.wake.wait_until(&mut state, until).timed_out() {}
        state.hurry = false;
    }
}

fn log_end(state: &State, took: Duration) {
    let (sent, seconds) = (state.sent, took.as_secs_f64());
    let doubt = match state.in_doubt {
        0 => String::new(),
        count => format!(
            "; {count} of them may be stored twice, because the reply to an earlier try was lost"
        ),
    };
    log::info(&format!(
        "jobs: the store answers again: {sent} jobs that waited in memory for up to {seconds:.1} s are sent{doubt}"
    ));
}

/// Whether the store will refuse the same jobs again, though it takes others: their key is of another type, or
/// this user may not write it.
fn is_refusal(error: &StoreError) -> bool {
    !error.in_doubt && matches!(error.kind, StoreErrorKind::Refused | StoreErrorKind::Corrupt)
}

fn log_refused(jobs: &[Arc<BufferedJob>], error: &StoreError) {
    for some in jobs.chunks(NAMED_MAX) {
        let named = some.iter().map(|job| {
            let (class, jid) = job.class_and_jid();
            format!("{class} {jid}")
        });
        log::warn(&format!(
            "jobs: {} jobs for the queue {} that wait in memory (reliable_push) are refused: {error}; remove the \
             cause, and they are sent within some seconds, else they are lost when this process ends; the jobs \
             behind them are not held up: {}",
            some.len(),
            some[0].queue,
            named.collect::<Vec<_>>().join(", ")
        ));
    }
}
